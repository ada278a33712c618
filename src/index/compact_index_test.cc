// The compact page index against the model, its limits, and what its readers may see.

#include "index/compact_index.h"

#include <cstring>
#include <set>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/prng.h"
#include "index/test_compared_index.h"

namespace tiercel {
namespace {

Key key_of(std::uint64_t n) { return Key{{mix64(n * 2 + 1), mix64(n * 2 + 2)}}; }
SetNumber set_of(std::uint64_t n) { return SetNumber(static_cast<std::uint8_t>(n)); }

constexpr SpaceId kSpace{7};

std::unique_ptr<CompactIndex> made(const compact::Sizes& sizes) {
  auto index = CompactIndex::create(sizes, 1);
  EXPECT_TRUE(index.has_value());
  return std::move(*index);
}

// A chain of pages `first`, first + 1, … stored one after the other, visible, set 0 at `address` + i.
std::vector<Key> store_chain(PageIndex& index, std::uint64_t first, std::uint64_t pages,
                             std::uint32_t address) {
  std::vector<Key> keys;
  std::optional<PageNumber> parent;
  for (std::uint64_t i = 0; i < pages; ++i) {
    keys.push_back(key_of(first + i));
    parent = index.insert(kSpace, keys.back(), i, parent);
    index.put_set(*parent, SetNumber{0}, SlotAddress(address + static_cast<std::uint32_t>(i)));
    index.set_visible(*parent, true);
  }
  return keys;
}

// Random trees of chains, stored, dropped, erased, looked up, in every order that a node may.
class Workload {
 public:
  Workload(ComparedIndex& index, std::uint64_t seed) : index_(index), prng_(seed) {}
  void step() {
    switch (prng_.below(9)) {
      case 0:
      case 1:
      case 2:
        return insert();
      case 3:
        return put();
      case 4:
        return drop();
      case 5:
        return show();
      case 6:
        return hint();
      case 7:
        return look();
      default:
        return erase();
    }
  }

 private:
  struct Page {
    PageNumber number;
    SpaceId space;
    std::uint64_t name = 0, chain_page = 0;
    std::vector<Key> chain;  // from the root to itself
    std::set<std::uint64_t> sets;
  };
  void insert() {
    if (!index_.has_room(1, 0)) return erase();
    Page page;
    page.name = ++names_;
    page.space = SpaceId(static_cast<std::uint32_t>(prng_.between(1, 2)));
    std::optional<PageNumber> parent;
    if (!pages_.empty() && !prng_.chance(0.15)) {
      const Page& on = prng_.chance(0.7) ? pages_.back() : pages_[prng_.below(pages_.size())];
      parent = on.number;
      page.space = on.space;
      page.chain = on.chain;
      page.chain_page = on.chain_page + 1;
    } else {
      page.chain_page = prng_.below(40);
    }
    page.chain.push_back(key_of(page.name));
    page.number = index_.insert(page.space, page.chain.back(), page.chain_page, parent);
    pages_.push_back(page);
  }
  void put() {
    if (pages_.empty()) return;
    Page& page = pages_[prng_.below(pages_.size())];
    const std::uint64_t set = prng_.chance(0.8) ? prng_.below(3) : prng_.below(kSetsMax);
    if (index_.put_set(page.number, set_of(set), SlotAddress(static_cast<std::uint32_t>(prng_.next() >> 33))))
      page.sets.insert(set);
  }
  void drop() {
    if (pages_.empty()) return;
    Page& page = pages_[prng_.below(pages_.size())];
    if (page.sets.empty()) return;
    index_.drop_set(page.number, set_of(*page.sets.begin()));
    page.sets.erase(page.sets.begin());
  }
  void show() {
    if (!pages_.empty()) index_.set_visible(pages_[prng_.below(pages_.size())].number, prng_.chance(0.8));
  }
  void hint() {
    if (pages_.empty()) return;
    const Page& page = pages_[prng_.below(pages_.size())];
    sequence_ += prng_.below(30);
    index_.touch(page.number, prng_.chance(0.1) ? sequence_ / 2 : sequence_);
    index_.set_children(page.number, static_cast<std::uint32_t>(prng_.below(400)));
  }
  void look() {
    if (pages_.empty()) return;
    const Page& page = pages_[prng_.below(pages_.size())];
    std::vector<std::uint32_t> numbers(page.chain.size());
    index_.find_chain(page.space, page.chain_page + 1 - page.chain.size() + (prng_.chance(0.1) ? 3 : 0),
                      page.chain, numbers);
    EXPECT_EQ(numbers.back(), page.number.value());
    index_.find(SpaceId(3), page.chain.back());
    index_.find(page.space, key_of(prng_.below(names_ * 2 + 1)));
  }
  void erase() {
    if (pages_.empty()) return;
    const std::size_t at = prng_.below(pages_.size());
    Page page = pages_[at];
    index_.set_visible(page.number, false);
    for (const std::uint64_t set : page.sets) index_.drop_set(page.number, set_of(set));
    index_.erase(page.number);
    pages_[at] = pages_.back();
    pages_.pop_back();
  }

  ComparedIndex& index_;
  Prng prng_;
  std::vector<Page> pages_;
  std::uint64_t names_ = 0, sequence_ = 0;
};

TEST(CompactIndex, AnswersAsTheModelDoesWhateverIsDone) {
  for (std::uint64_t seed = 1; seed <= 40; ++seed) {
    Prng prng(seed);
    compact::Sizes sizes;
    sizes.pages_max = prng.between(1, 300);
    sizes.strips = prng.between(1, sizes.pages_max);
    sizes.rows = prng.below(20);
    sizes.singles = prng.below(100);
    ComparedIndex index(sizes, seed);
    Workload workload(index, seed);
    for (int step = 0; step < 3000; ++step) {
      workload.step();
      if (step % 50 == 0) {
        ASSERT_EQ(index.compare_all(), std::nullopt) << "seed " << seed << ", step " << step;
        ASSERT_EQ(index.inconsistency(), std::nullopt) << "seed " << seed << ", step " << step;
      }
    }
    ASSERT_EQ(index.compare_all(), std::nullopt) << "seed " << seed;
    ASSERT_EQ(index.inconsistency(), std::nullopt) << "seed " << seed;
  }
}

TEST(CompactIndex, TakesAtMost28BytesAPageInWholeChainsAnd8ForAFurtherSet) {
  const std::uint64_t pages = 1 << 16;
  const auto index = made({pages, pages / 16, 0, 0});
  std::uint64_t chains = 0;
  while (index->has_room(1, 0)) store_chain(*index, chains++ * 128, 128, 1);
  EXPECT_EQ(index->pages(), pages);
  const double fixed = sizeof(compact::Header) + compact::kMarks * sizeof(compact::Word) + 64UL * 6;
  EXPECT_LE((static_cast<double>(index->bytes()) - fixed) / static_cast<double>(pages), 28.0);
  EXPECT_LE(sizeof(compact::Row), compact::kRowMinimum * 8U);
  EXPECT_EQ(sizeof(compact::Single), 8U);
}

TEST(CompactIndex, AFullIndexOfWholeChainsFindsEveryPageAndHasNoRoom) {
  const auto index = made({160, 10, 0, 0});
  const auto keys = store_chain(*index, 1, 160, 1);
  EXPECT_FALSE(index->has_room(1, 0));
  std::vector<FoundPage> found(keys.size());
  index->view().read_chain(kSpace, 0, keys, found);
  std::set<std::uint32_t> numbers;
  for (const FoundPage& page : found) {
    EXPECT_EQ(page.classes, 1U);
    numbers.insert(page.page);
  }
  EXPECT_EQ(numbers.size(), keys.size());
}

TEST(CompactIndex, AnAddressIsThatOfThePageThatWasFoundAlsoWhenAnotherHasTakenItsCell) {
  // Pages that are leased may be hidden all the same; the lease keeps their slots, not their cells.
  const auto index = made({64, 8, 8, 64});
  const auto keys = store_chain(*index, 1, 3, 100);
  std::vector<FoundPage> found(3);
  index->view().read_chain(kSpace, 0, keys, found);
  const PageNumber page(found[2].page);
  EXPECT_EQ(index->view().address(found[2], SetNumber{0}), SlotAddress(102));
  index->set_visible(page, false);
  index->drop_set(page, SetNumber{0});
  index->erase(page);
  const PageNumber other = index->insert(kSpace, key_of(9), 2, PageNumber(found[1].page));
  index->put_set(other, SetNumber{0}, SlotAddress(777));
  index->set_visible(other, true);
  ASSERT_EQ(other, page);
  EXPECT_EQ(index->view().address(found[2], SetNumber{0}), std::nullopt);
}

TEST(CompactIndex, RecencyIsKeptWhenSequencesOutgrow31Bits) {
  const auto index = made({64, 8, 0, 0});
  const PageNumber old = index->insert(kSpace, key_of(1), 0, std::nullopt);
  for (std::uint64_t sequence = 0; sequence <= 0x8000'0010; sequence += 0x1000'0010)
    index->touch(old, sequence);
  const PageNumber fresh = index->insert(kSpace, key_of(2), 0, std::nullopt);
  index->touch(fresh, 0x8000'0200);
  EXPECT_EQ(index->read(fresh).last_use, 0x8000'0200U);
}

TEST(CompactIndex, AFullIndexHasMostEntriesInTheirFirstBucketAndNoneInTheStash) {
  const std::uint64_t pages = 1 << 16;
  const auto index = made({pages, pages / 16, 0, 0});
  std::vector<Key> keys;
  for (std::uint64_t chain = 0; index->has_room(1, 0); ++chain)
    for (const Key& key : store_chain(*index, chain * 128, 128, 1)) keys.push_back(key);
  const std::uint32_t number_mask = (std::uint32_t{1} << index->view().plan().number_bits) - 1;
  std::uint64_t first = 0;
  for (const Key& key : keys)
    for (const compact::Word& word : index->view().bucket(index->view().places(kSpace, key).first).entries)
      first += (word.load() & number_mask) == index->find(kSpace, key)->value() + 1 ? 1U : 0U;
  EXPECT_EQ(keys.size(), pages);
  EXPECT_GT(first, pages - pages / 10);  // decision 0008: 7 % are in their second
  EXPECT_EQ(index->view().header().stash_used.load(), 0U);
}

TEST(CompactIndex, EqualTagsAreNotHits) {
  // Keys that differ in the high bits of both words only: with one strip the tag is the low bits of the
  // second.
  const auto index = made({64, 8, 0, 0});
  const Key stored{{42, 77}};
  const PageNumber page = index->insert(kSpace, stored, 0, std::nullopt);
  index->put_set(page, SetNumber{0}, SlotAddress(1));
  index->set_visible(page, true);
  const std::uint32_t tag_bits = 32 - index->view().plan().number_bits;
  for (std::uint64_t n = 1; n < 2000; ++n) {
    const Key same_tag{{42, 77 + (n << tag_bits)}};
    ASSERT_EQ(index->view().places(kSpace, same_tag).tag, index->view().places(kSpace, stored).tag);
    ASSERT_EQ(index->view().places(kSpace, same_tag).first, index->view().places(kSpace, stored).first);
    ASSERT_EQ(index->find(kSpace, same_tag), std::nullopt);
    FoundPage found;
    index->view().read_chain(kSpace, 0, {&same_tag, 1}, {&found, 1});
    ASSERT_EQ(found.page, kNoPage);
  }
  EXPECT_EQ(index->find(kSpace, stored), page);
  EXPECT_EQ(index->find(SpaceId{8}, stored), std::nullopt);
}

TEST(CompactIndex, AChangeVisitsABoundedNumberOfEntries) {
  const std::uint64_t pages = 20000;
  const auto index = made({pages, pages / 16, pages / 16, 1000});
  std::uint64_t before = 0;
  std::uint64_t most = 0;
  Prng prng(3);
  std::vector<PageNumber> at;
  std::uint64_t name = 0;
  const auto counted = [&](const auto& change) {
    before = index->visited();
    change();
    most = std::max(most, index->visited() - before);
  };
  for (int round = 0; round < 40000; ++round) {
    if (index->has_room(1, 0) && (at.empty() || prng.chance(0.6))) {
      counted([&] {
        const std::uint64_t cell = at.empty() ? 0 : at.back().value() % 16 + 1;
        at.push_back(index->insert(kSpace, key_of(++name), cell % 16,
                                   at.empty() ? std::nullopt : std::optional(at.back())));
      });
      counted([&] { index->put_set(at.back(), SetNumber{1}, SlotAddress(5)); });
    } else {
      const std::size_t victim = prng.below(at.size());
      counted([&] { index->drop_set(at[victim], SetNumber{1}); });
      counted([&] { index->erase(at[victim]); });
      at[victim] = at.back();
      at.pop_back();
    }
  }
  EXPECT_GT(most, 0U);
  // Two buckets, their entries once each, a strip's links three times, and for each cell where a row is made.
  EXPECT_LE(most, 2U + 2 * 16 + 3 * 16 + 2 * 16 * 16);
  EXPECT_EQ(index->inconsistency(), std::nullopt);
}

TEST(CompactIndex, AStripWhoseVersionsAreUsedUpIsRetired) {
  const auto index = made({32, 2, 0, 0});
  PageNumber page = index->insert(kSpace, key_of(1), 0, std::nullopt);
  auto& version = const_cast<compact::Word&>(index->view().generation(page));
  version.store(compact::kRetired, std::memory_order_relaxed);
  const PageNumber child = index->insert(kSpace, key_of(2), 1, page);
  EXPECT_NE(child.value() / 16, page.value() / 16) << "nothing joins a strip that is to be retired";
  index->erase(page);
  index->erase(child);
  EXPECT_EQ(index->strips_retired(), 1U);
  for (std::uint64_t i = 0; i < 16; ++i) {
    page = index->insert(kSpace, key_of(10 + i), 0, std::nullopt);
    EXPECT_EQ(page.value() / 16, child.value() / 16);
    EXPECT_FALSE(index->has_room(1, 0));
    index->erase(page);
  }
}

TEST(CompactIndex, ImagesThatAreNoneAreRefused) {
  const auto index = made({100, 10, 3, 5});
  std::vector<std::byte> copy(index->image().size() + 64);
  const auto misfit = reinterpret_cast<std::uintptr_t>(copy.data()) % 64;
  std::byte* at = copy.data() + (misfit == 0 ? 0 : 64 - misfit);
  const auto attach = [&](std::size_t bytes) { return IndexView::attach(ByteView(at, bytes)); };
  const std::size_t whole = index->image().size();
  std::memcpy(at, index->image().data(), whole);
  EXPECT_TRUE(attach(whole).has_value());
  EXPECT_FALSE(attach(whole - 1).has_value());
  EXPECT_FALSE(attach(0).has_value());
  for (std::size_t byte = 0; byte < offsetof(compact::Header, stash_used); ++byte)
    for (const std::byte flip : {std::byte{0x01}, std::byte{0x80}}) {
      at[byte] ^= flip;
      EXPECT_FALSE(attach(whole).has_value()) << "byte " << byte;
      at[byte] ^= flip;
    }
}

TEST(CompactIndex, AReaderOfAForeignImageNeverLeavesIt) {
  // Whatever stands in the image after a valid header, a reader stays inside it and comes back.
  const auto index = made({200, 20, 8, 50});
  store_chain(*index, 1, 100, 1);
  std::vector<std::byte> copy(index->image().size() + 64);
  const auto misfit = reinterpret_cast<std::uintptr_t>(copy.data()) % 64;
  std::byte* at = copy.data() + (misfit == 0 ? 0 : 64 - misfit);
  std::vector<Key> keys;
  for (std::uint64_t i = 1; i <= 100; ++i) keys.push_back(key_of(i));
  std::vector<FoundPage> found(keys.size());
  Prng prng(11);
  for (int round = 0; round < 300; ++round) {
    std::memcpy(at, index->image().data(), index->image().size());
    for (int i = 0; i < 2000; ++i)
      at[prng.between(offsetof(compact::Header, stash_used), index->image().size() - 1)] =
          std::byte(prng.below(256));
    const auto view = IndexView::attach(ByteView(at, index->image().size()));
    ASSERT_TRUE(view.has_value());
    view->read_chain(kSpace, 0, keys, found);
    for (std::uint32_t page = 0; page < 340; ++page) view->address(PageNumber(page), set_of(prng.below(256)));
  }
}

TEST(CompactIndex, ReadersInOtherThreadsSeeWholePagesOrNone) {
  // The writer stores and drops chains; a page's address always tells which key it belongs to.
  const auto index = made({512, 40, 64, 64});
  std::atomic<bool> stop{false};
  std::atomic<std::uint64_t> hits{0};
  const auto address_for = [](std::uint64_t name) { return SlotAddress(static_cast<std::uint32_t>(name)); };
  std::vector<std::thread> readers;
  readers.reserve(2);
  for (int r = 0; r < 2; ++r)
    readers.emplace_back([&, r] {
      const auto view = IndexView::attach(index->image());
      Prng prng(static_cast<std::uint64_t>(r) + 5);
      std::vector<FoundPage> found(40);
      while (!stop.load(std::memory_order_relaxed)) {
        const std::uint64_t chain = prng.below(12);
        std::vector<Key> keys;
        for (std::uint64_t i = 0; i < 40; ++i) keys.push_back(key_of(chain * 64 + i));
        view->read_chain(kSpace, 0, keys, found);
        for (std::uint64_t i = 0; i < 40; ++i) {
          if (found[i].page == kNoPage) continue;
          const auto first = view->address(found[i], SetNumber{0});
          const auto second = view->address(found[i], SetNumber{1});
          if (!first || !second) {  // then it has changed meanwhile
            ASSERT_NE(view->generation(PageNumber(found[i].page)).load(), found[i].generation);
            continue;
          }
          ASSERT_EQ(found[i].classes, 3U);
          ASSERT_EQ(first, address_for(chain * 64 + i));
          ASSERT_EQ(second, address_for(chain * 64 + i));
          hits.fetch_add(1, std::memory_order_relaxed);
        }
      }
    });
  Prng prng(2);
  std::vector<std::vector<PageNumber>> chains(12);
  for (int round = 0; round < 4000 || hits.load() < 1000; ++round) {
    auto& chain = chains[prng.below(chains.size())];
    const std::uint64_t number = static_cast<std::uint64_t>(&chain - chains.data());
    if (!chain.empty()) {
      while (!chain.empty()) {
        index->set_visible(chain.back(), false);
        index->drop_set(chain.back(), SetNumber{0});
        index->drop_set(chain.back(), SetNumber{1});
        index->erase(chain.back());
        chain.pop_back();
      }
      continue;
    }
    const std::uint64_t pages = prng.between(1, 40);
    for (std::uint64_t i = 0; i < pages && index->has_room(1, 0); ++i) {
      chain.push_back(index->insert(kSpace, key_of(number * 64 + i), i,
                                    chain.empty() ? std::nullopt : std::optional(chain.back())));
      index->put_set(chain.back(), SetNumber{0}, address_for(number * 64 + i));
      index->put_set(chain.back(), SetNumber{1}, address_for(number * 64 + i));
      index->set_visible(chain.back(), true);
    }
  }
  stop.store(true);
  for (std::thread& reader : readers) reader.join();
  EXPECT_EQ(index->inconsistency(), std::nullopt);
}

}  // namespace
}  // namespace tiercel
