#include "disk/removals.h"

#include <algorithm>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "base/exhaustive.h"
#include "base/prng.h"
#include "disk/format.h"

namespace tiercel::disk {
namespace {

constexpr DiskSpaceId kSpace{1};
constexpr DiskSpaceId kOther{2};

Key key_of(std::uint64_t number) { return {{number, ~number}}; }

bool dead_in_chain(const Removals& removals, DiskSpaceId space, const std::vector<std::uint64_t>& chain,
                   std::uint64_t born) {
  Removals::Walk walk(removals, space);
  for (const std::uint64_t page : chain) walk.step(key_of(page));
  return walk.dead(born);
}

std::vector<std::byte> image_of(const Removals& removals) {
  std::vector<std::byte> bytes;
  removals.append_to(bytes);
  return bytes;
}

Removals loaded(const std::vector<std::byte>& bytes, std::uint64_t pages_max) {
  Removals removals(pages_max);
  EXPECT_EQ(removals.load_from(bytes).value(), bytes.size());
  return removals;
}

TEST(Removals, NothingIsDeadAtFirst) {
  const Removals removals(10);
  EXPECT_FALSE(dead_in_chain(removals, kSpace, {1, 2, 3}, 1));
  EXPECT_FALSE(removals.dead_in_middle(kSpace, 1));
  EXPECT_EQ(removals.cleared_at(kSpace), 0U);
  EXPECT_EQ(removals.newest_page(kSpace), 0U);
  EXPECT_EQ(removals.page_at(kSpace, key_of(1)), 0U);
}

TEST(Removals, APageIsDeadWithEverythingBelowItThatWasBornBefore) {
  Removals removals(10);
  EXPECT_EQ(removals.remove_page(kSpace, key_of(2), 50), std::nullopt);
  EXPECT_FALSE(dead_in_chain(removals, kSpace, {1}, 10)) << "above it";
  EXPECT_TRUE(dead_in_chain(removals, kSpace, {1, 2}, 49));
  EXPECT_TRUE(dead_in_chain(removals, kSpace, {1, 2, 3}, 49)) << "below it";
  EXPECT_FALSE(dead_in_chain(removals, kSpace, {1, 2, 3}, 51)) << "stored again";
  EXPECT_FALSE(dead_in_chain(removals, kSpace, {1, 4, 3}, 49)) << "another branch";
  EXPECT_FALSE(dead_in_chain(removals, kOther, {1, 2, 3}, 49)) << "another namespace";
  EXPECT_TRUE(removals.dead_in_middle(kSpace, 49)) << "it may be below the removed page";
  EXPECT_FALSE(removals.dead_in_middle(kSpace, 51));
  EXPECT_FALSE(removals.dead_in_middle(kOther, 49));
}

TEST(Removals, TheHigherNumberHoldsInWhateverOrderTheyCome) {
  for (const bool later_first : {false, true}) {
    Removals removals(10);
    removals.remove_page(kSpace, key_of(2), later_first ? 70 : 50);
    removals.remove_page(kSpace, key_of(2), later_first ? 50 : 70);
    EXPECT_EQ(removals.page_at(kSpace, key_of(2)), 70U);
    EXPECT_EQ(removals.newest_page(kSpace), 70U);
    EXPECT_EQ(removals.pages(), 1U);
    removals.clear_space(kSpace, later_first ? 90 : 60);
    removals.clear_space(kSpace, later_first ? 60 : 90);
    EXPECT_EQ(removals.cleared_at(kSpace), 90U);
    EXPECT_EQ(removals.pages(), 0U) << "the clear says the same";
    removals.remove_page(kSpace, key_of(3), 89);
    EXPECT_EQ(removals.pages(), 0U) << "said already";
  }
}

TEST(Removals, AClearReachesWhatWasBornBeforeInItsNamespaceOnly) {
  Removals removals(10);
  removals.remove_page(kSpace, key_of(1), 40);
  removals.remove_page(kSpace, key_of(2), 60);
  removals.remove_page(kOther, key_of(1), 40);
  removals.clear_space(kSpace, 50);
  EXPECT_EQ(removals.pages(), 2U) << "the later removal and the other namespace's stay";
  EXPECT_TRUE(dead_in_chain(removals, kSpace, {7}, 49));
  EXPECT_FALSE(dead_in_chain(removals, kSpace, {7}, 51));
  EXPECT_TRUE(dead_in_chain(removals, kSpace, {2}, 59));
  EXPECT_FALSE(dead_in_chain(removals, kOther, {7}, 1));
  EXPECT_TRUE(removals.dead_in_middle(kSpace, 59));
  EXPECT_FALSE(removals.dead_in_middle(kSpace, 61));
}

TEST(Removals, WhenFullTheNamespaceWithTheMostPagesIsCleared) {
  Removals removals(5);
  for (std::uint64_t page = 0; page < 3; ++page) removals.remove_page(kSpace, key_of(page), 10 + page);
  for (std::uint64_t page = 0; page < 2; ++page) removals.remove_page(kOther, key_of(page), 20 + page);
  EXPECT_EQ(removals.remove_page(DiskSpaceId(3), key_of(9), 30), kSpace);
  EXPECT_EQ(removals.pages(), 3U);
  EXPECT_EQ(removals.folded(), 3U);
  EXPECT_EQ(removals.cleared_at(kSpace), 12U) << "its newest removal";
  for (std::uint64_t page = 0; page < 3; ++page)
    EXPECT_TRUE(dead_in_chain(removals, kSpace, {page}, 9 + page)) << "none comes back";
  EXPECT_FALSE(dead_in_chain(removals, kSpace, {1}, 13));
  EXPECT_FALSE(dead_in_chain(removals, kOther, {5}, 1));
}

TEST(Removals, WhatNothingOldEnoughIsLeftForIsForgotten) {
  Removals removals(10);
  removals.remove_page(kSpace, key_of(1), 40);
  removals.remove_page(kSpace, key_of(2), 60);
  removals.remove_page(kOther, key_of(1), 40);
  EXPECT_EQ(removals.forget_below(40), 0U);
  EXPECT_EQ(removals.newest_page(kOther), 40U) << "as long as one of its pages is kept";
  EXPECT_EQ(removals.forget_below(41), 2U);
  EXPECT_EQ(removals.pages(), 1U);
  EXPECT_TRUE(removals.dead_in_middle(kSpace, 59));
  EXPECT_FALSE(removals.dead_in_middle(kOther, 41));
  EXPECT_EQ(removals.newest_page(kOther), 0U);
  EXPECT_EQ(removals.forget_below(61), 1U);
  EXPECT_FALSE(removals.dead_in_middle(kSpace, 61));
  for (std::uint64_t page = 0; page < 10; ++page)
    EXPECT_EQ(removals.remove_page(kSpace, key_of(page), 70), std::nullopt);
}

// Chains of three pages, two of them sharing their first two; every order of five steps of: store a page,
// remove a page, clear, start again from an image, forget what can be forgotten. The model knows who is below
// whom.
TEST(Removals, AgreesWithAModelThatKnowsDescendantsInEveryOrder) {
  const std::vector<std::vector<std::uint64_t>> chains = {{1}, {1, 2}, {1, 2, 3}, {1, 2, 4}};
  std::uint64_t runs = 0, too_strict = 0;
  Exhaustive every;
  while (every.next()) {
    ++runs;
    Removals removals(every.coin() ? 1 : 100);
    std::map<std::uint64_t, std::uint64_t> born;  // of the pages stored, by page
    std::set<std::uint64_t> dead;                 // of those, in truth
    bool folded = false;
    for (std::uint64_t at = 1; at <= 5; ++at) {
      const std::uint64_t what = every.choose(11);
      if (what < 4) {
        born[what + 1] = at;
        dead.erase(what + 1);
      } else if (what < 8) {
        const std::uint64_t page = what - 3;
        folded = removals.remove_page(kSpace, key_of(page), at).has_value() || folded;
        for (const auto& chain : chains)
          if (born.contains(chain.back()) && std::find(chain.begin(), chain.end(), page) != chain.end())
            dead.insert(chain.back());
      } else if (what == 8) {
        removals.clear_space(kSpace, at);
        for (const auto& [page, number] : born) dead.insert(page);
      } else if (what == 9) {
        removals = loaded(image_of(removals), removals.pages_max());
      } else {
        std::uint64_t oldest = at;
        for (const auto& [page, number] : born) oldest = std::min(oldest, number);
        removals.forget_below(oldest);
      }
      for (const auto& chain : chains) {
        const auto stored = born.find(chain.back());
        if (stored == born.end()) continue;
        const bool is_dead = dead.contains(chain.back());
        const bool says = dead_in_chain(removals, kSpace, chain, stored->second);
        ASSERT_TRUE(says || !is_dead) << "run " << runs << ", page " << chain.back();
        if (!folded) {
          ASSERT_EQ(says, is_dead) << "run " << runs << ", page " << chain.back();
        }
        const bool in_middle = removals.dead_in_middle(kSpace, stored->second);
        ASSERT_TRUE(in_middle || !is_dead) << "run " << runs << ", page " << chain.back();
        if (in_middle && !is_dead) ++too_strict;
      }
    }
  }
  EXPECT_EQ(runs, 2U * 11 * 11 * 11 * 11 * 11);
  EXPECT_GT(too_strict, 0U) << "the middle of a chain must be answered more strictly than its start";
}

Removals sample() {
  Removals removals(100);
  Prng random(5);
  for (std::uint64_t i = 1; i <= 40; ++i)
    removals.remove_page(DiskSpaceId(static_cast<std::uint32_t>(1 + random.below(3))),
                         {{random.next(), random.next()}}, 10 * i);
  removals.clear_space(DiskSpaceId(2), 205);
  removals.clear_space(DiskSpaceId(9), 33);
  return removals;
}

TEST(Removals, AnImageComesBack) {
  for (const Removals& removals : {Removals(7), sample()}) {
    std::vector<std::byte> bytes = image_of(removals);
    EXPECT_LE(bytes.size(), Removals::bytes_max(removals.pages(), 5));
    bytes.resize(bytes.size() + 100, std::byte{0xFF});
    Removals again(removals.pages_max());
    EXPECT_EQ(again.load_from(bytes).value(), bytes.size() - 100) << "what follows is another's";
    EXPECT_EQ(again.pages(), removals.pages());
    EXPECT_EQ(image_of(again), image_of(removals));
    for (std::uint32_t space = 0; space < 10; ++space) {
      EXPECT_EQ(again.cleared_at(DiskSpaceId(space)), removals.cleared_at(DiskSpaceId(space)));
      EXPECT_EQ(again.newest_page(DiskSpaceId(space)), removals.newest_page(DiskSpaceId(space)));
    }
    again.forget_below(UINT64_MAX);
    EXPECT_EQ(again.pages(), 0U);
  }
}

std::string wrong(const std::vector<std::byte>& bytes) {
  Removals removals(30);
  const auto result = removals.load_from(bytes);
  if (result) return {};
  EXPECT_EQ(result.error().code, Code::kDataCorrupt);
  EXPECT_TRUE(result.error().message.starts_with("removals: ")) << result.error().message;
  return result.error().message.substr(10, result.error().message.find(": wanted") - 10);
}

TEST(Removals, ADamagedImageIsRefusedNamingWhatIsWrong) {
  Removals removals(30);
  removals.remove_page(kSpace, key_of(1), 40);
  removals.remove_page(kSpace, key_of(2), 60);
  removals.clear_space(kSpace, 20);
  removals.clear_space(kOther, 30);
  const std::vector<std::byte> bytes = image_of(removals);  // 12 of head, 2 × 20, 2 × 28
  ASSERT_EQ(bytes.size(), 108U);
  for (std::size_t size = 0; size < bytes.size(); ++size)
    EXPECT_NE(wrong({bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(size)}), "") << size;
  const auto with = [&](std::size_t at, auto value) {
    auto changed = bytes;
    store_le(&changed[at], value);
    return wrong(changed);
  };
  EXPECT_EQ(with(0, std::uint32_t{2}), "");
  EXPECT_EQ(with(0, UINT32_MAX), "namespaces");
  EXPECT_EQ(with(4, UINT64_MAX), "pages");
  EXPECT_EQ(with(4, std::uint64_t{3}), "pages");
  EXPECT_EQ(with(12, std::uint32_t{0}), "namespace");
  EXPECT_EQ(with(32, std::uint32_t{1}), "namespace");
  EXPECT_EQ(with(16, kAtMax + 1), "number of a removal");
  EXPECT_EQ(with(24, kAtMax + 1), "number of a removal");
  EXPECT_EQ(with(52, std::uint32_t{3}), "page's namespace");
  EXPECT_EQ(with(52, std::uint32_t{2}), "page's removal");
  EXPECT_EQ(with(56, std::uint64_t{3}), "pages");
  EXPECT_EQ(with(72, std::uint64_t{20}), "page's removal");
  EXPECT_EQ(with(72, std::uint64_t{61}), "page's removal");
  auto longer = bytes;
  longer.resize(4000);
  store_le(&longer[4], std::uint64_t{31});
  EXPECT_EQ(wrong(longer), "pages") << "more than there may be";
}

}  // namespace
}  // namespace tiercel::disk
