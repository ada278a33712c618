#include "disk/catalogue.h"

#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "base/crc32c.h"
#include "disk/format.h"

namespace tiercel::disk {
namespace {

Digest digest_of(std::string_view text) { return sha256(as_byte_view(text)); }

DiskSpaceName name_of(std::string_view root, std::string_view form, std::string text = {}) {
  DiskSpaceName name;
  name.root = digest_of(root);
  name.form = digest_of(form);
  name.text = std::move(text);
  return name;
}
DiskSpaceName with_runs(DiskSpaceName name) {
  name.runs = {{100, 100, 100, 50}, {}, {8, 9, 8}};
  return name;
}

void expect_same(const DiskSpaceName& a, const DiskSpaceName& b) {
  EXPECT_EQ(a.root, b.root);
  EXPECT_EQ(a.form, b.form);
  EXPECT_EQ(a.text, b.text);
  EXPECT_EQ(a.runs, b.runs);
}

std::vector<std::byte> image_of(const Catalogue& catalogue) {
  std::vector<std::byte> bytes;
  catalogue.append_to(bytes);
  EXPECT_EQ(bytes.size(), catalogue.bytes());
  return bytes;
}

Catalogue sample() {
  Catalogue catalogue(1 << 16);
  EXPECT_EQ(catalogue.add(with_runs(name_of("a", "f", "model a\n"))), DiskSpaceId(1));
  EXPECT_EQ(catalogue.add(name_of("b", "f")), DiskSpaceId(2));
  EXPECT_EQ(catalogue.add(name_of("a", "g", "model a, other form\n")), DiskSpaceId(3));
  catalogue.note_form(digest_of("g"), 44, 5);
  return catalogue;
}

TEST(Catalogue, ANameHasOneNumberForEver) {
  Catalogue catalogue = sample();
  EXPECT_EQ(catalogue.find(digest_of("a"), digest_of("f")), DiskSpaceId(1));
  EXPECT_EQ(catalogue.find(digest_of("b"), digest_of("f")), DiskSpaceId(2));
  EXPECT_EQ(catalogue.find(digest_of("a"), digest_of("g")), DiskSpaceId(3));
  EXPECT_FALSE(catalogue.find(digest_of("b"), digest_of("g")));
  expect_same(*catalogue.name(DiskSpaceId(1)), with_runs(name_of("a", "f", "model a\n")));
  EXPECT_EQ(catalogue.name(DiskSpaceId(0)), nullptr);
  EXPECT_EQ(catalogue.name(DiskSpaceId(4)), nullptr);
  EXPECT_EQ(catalogue.of_form(digest_of("f")), (std::vector<DiskSpaceId>{DiskSpaceId(1), DiskSpaceId(2)}));
  EXPECT_TRUE(catalogue.of_form(digest_of("h")).empty());
  EXPECT_EQ(catalogue.all().size(), 3U);
}

TEST(Catalogue, WhatTheLogSaysIsLearntInAnyOrderAndTwice) {
  Catalogue catalogue(1 << 16);
  EXPECT_EQ(catalogue.learn(DiskSpaceId(7), name_of("a", "f", "text")), Status{});
  EXPECT_EQ(catalogue.learn(DiskSpaceId(3), name_of("b", "f")), Status{});
  EXPECT_EQ(catalogue.learn(DiskSpaceId(7), name_of("a", "f", "other text")), Status{});
  EXPECT_EQ(catalogue.name(DiskSpaceId(7))->text, "text") << "kept as it was first";
  EXPECT_EQ(catalogue.add(name_of("c", "f")), DiskSpaceId(8)) << "behind the highest";
}

TEST(Catalogue, ANameKnownWithoutTextAndRunsLearnsThem) {
  Catalogue catalogue(1 << 16);
  ASSERT_EQ(catalogue.learn(DiskSpaceId(1), name_of("a", "f")), Status{});
  ASSERT_EQ(catalogue.learn(DiskSpaceId(1), with_runs(name_of("a", "f", "text"))), Status{});
  expect_same(*catalogue.name(DiskSpaceId(1)), with_runs(name_of("a", "f", "text")));
  image_of(catalogue);
}

TEST(Catalogue, ANumberWithTwoNamesOrANameWithTwoNumbersIsDamage) {
  Catalogue catalogue = sample();
  EXPECT_EQ(catalogue.learn(DiskSpaceId(1), name_of("c", "f")).code, Code::kDataCorrupt);
  EXPECT_EQ(catalogue.learn(DiskSpaceId(4), name_of("a", "f")).code, Code::kDataCorrupt);
  EXPECT_EQ(catalogue.learn(DiskSpaceId(0), name_of("c", "f")).code, Code::kDataCorrupt);
  EXPECT_EQ(catalogue.all().size(), 3U);
}

TEST(Catalogue, NumbersOfAFormOnlyGrow) {
  Catalogue catalogue = sample();
  catalogue.note_form(digest_of("g"), 40, 9);
  EXPECT_EQ(catalogue.form_cleared_at(digest_of("g")), 44U);
  EXPECT_EQ(catalogue.weights_epoch(digest_of("g")), 9U);
  EXPECT_EQ(catalogue.form_cleared_at(digest_of("f")), 0U);
  EXPECT_EQ(catalogue.weights_epoch(digest_of("never seen")), 0U);
  catalogue.note_form(digest_of("without a name"), 1, 2);
  EXPECT_EQ(catalogue.weights_epoch(digest_of("without a name")), 2U);
  image_of(catalogue);
}

TEST(Catalogue, WhenFullItRefusesAndStaysWithinItsBytes) {
  for (std::uint64_t bytes_max = 0; bytes_max < 2000; bytes_max += 13) {
    Catalogue catalogue(bytes_max);
    std::uint32_t added = 0;
    while (catalogue.add(name_of(std::to_string(added), std::to_string(added / 2), "text"))) ++added;
    EXPECT_EQ(catalogue.all().size(), added);
    for (std::uint32_t i = 0; i < added; ++i) catalogue.note_form(digest_of(std::to_string(i / 2)), i, 7);
    catalogue.note_form(digest_of("no room for this one"), 1, 1);
    EXPECT_LE(image_of(catalogue).size(), std::max<std::uint64_t>(bytes_max, 16));
    EXPECT_EQ(catalogue.learn(DiskSpaceId(1000), name_of("x", "y", std::string(2000, 'x'))).code,
              Code::kDataCorrupt);
    if (added > 0) {
      EXPECT_EQ(catalogue.weights_epoch(digest_of("0")), 7U) << "room for it was kept";
    }
  }
}

// A few bytes of a file say that a name has thousands of runs: all of them together are bounded in memory.
TEST(Catalogue, RunsOfAllNamesTogetherAreBounded) {
  Catalogue catalogue(1 << 20);
  constexpr std::size_t kNames = kCatalogueRunsMax / kSpaceRunsMax + 10;
  std::size_t runs = 0;
  for (std::size_t i = 0; i < kNames; ++i) {
    DiskSpaceName name = name_of("n" + std::to_string(i), "f");
    name.runs = {std::vector<std::uint64_t>(kSpaceRunsMax, 64)};
    const auto id = catalogue.add(name);
    ASSERT_TRUE(id) << i;
    for (const auto& list : catalogue.name(*id)->runs) runs += list.size();
  }
  EXPECT_EQ(runs, kCatalogueRunsMax);
  EXPECT_TRUE(catalogue.name(DiskSpaceId(kNames))->runs.empty());
  Catalogue loaded(1 << 20);
  ASSERT_TRUE(loaded.load_from(image_of(catalogue)));
  EXPECT_EQ(image_of(loaded), image_of(catalogue));
}

TEST(Catalogue, NumbersEnd) {
  Catalogue catalogue(1 << 16);
  ASSERT_EQ(catalogue.learn(DiskSpaceId(UINT32_MAX), name_of("a", "f")), Status{});
  EXPECT_FALSE(catalogue.add(name_of("b", "f")));
}

TEST(Catalogue, LongTextsAreCut) {
  Catalogue catalogue(1 << 16);
  const DiskSpaceName name = name_of("a", "f", std::string(kSpaceTextMax + 1, 'x'));
  const DiskSpaceId id = catalogue.add(name).value();
  EXPECT_EQ(catalogue.name(id)->text.size(), kSpaceTextMax);
  EXPECT_EQ(Catalogue::parse_name(Catalogue::encode_name(id, name)).value().second.text.size(),
            kSpaceTextMax);
  image_of(catalogue);
}

TEST(Catalogue, AnEntryOfTheLogComesBackAndEveryFlippedBitIsNoticed) {
  const DiskSpaceName name = with_runs(name_of("a", "f", "model a\n"));
  std::vector<std::byte> bytes = Catalogue::encode_name(DiskSpaceId(5), name);
  for (std::size_t size = 0; size < bytes.size(); ++size)
    EXPECT_EQ(Catalogue::parse_name(ByteView(bytes).first(size)).error().code, Code::kDataCorrupt) << size;
  const std::size_t used = bytes.size();
  bytes.resize(4096);
  const auto parsed = Catalogue::parse_name(bytes).value();
  EXPECT_EQ(parsed.first, DiskSpaceId(5));
  expect_same(parsed.second, name);
  for (std::size_t bit = 0; bit < used * 8; ++bit) {
    auto damaged = bytes;
    damaged[bit / 8] ^= static_cast<std::byte>(1U << (bit % 8));
    EXPECT_FALSE(Catalogue::parse_name(damaged)) << bit;
  }
}

TEST(Catalogue, ARightChecksumOverTooManyRunsIsStillRefused) {
  DiskSpaceName name = name_of("a", "f");
  name.runs = {{7}};
  const std::vector<std::byte> bytes = Catalogue::encode_name(DiskSpaceId(5), name);  // runs from 72 on
  const auto with = [&](std::size_t at, auto value) {
    auto changed = bytes;
    store_le(&changed[at], value);
    store_le(&changed[changed.size() - 4], crc32c(ByteView(changed).first(changed.size() - 4)));
    return Catalogue::parse_name(changed).has_value();
  };
  EXPECT_TRUE(with(78, std::uint32_t{2}));
  EXPECT_FALSE(with(72, std::uint16_t{257})) << "classes";
  EXPECT_FALSE(with(72, std::uint16_t{2})) << "classes beyond the bytes";
  EXPECT_FALSE(with(74, std::uint32_t{2})) << "groups beyond the bytes";
  EXPECT_FALSE(with(74, UINT32_MAX));
  EXPECT_FALSE(with(78, std::uint32_t{0})) << "an empty group";
  EXPECT_FALSE(with(78, std::uint32_t{kSpaceRunsMax + 1}));
}

TEST(Catalogue, AnImageComesBack) {
  for (const Catalogue& catalogue : {Catalogue(1000), sample()}) {
    std::vector<std::byte> bytes = image_of(catalogue);
    bytes.resize(bytes.size() + 500, std::byte{0xFF});
    Catalogue again(1 << 16);
    EXPECT_EQ(again.load_from(bytes).value(), catalogue.bytes()) << "what follows is another's";
    EXPECT_EQ(image_of(again), image_of(catalogue));
    EXPECT_EQ(again.all(), catalogue.all());
    for (const DiskSpaceId id : again.all()) {
      expect_same(*again.name(id), *catalogue.name(id));
      EXPECT_EQ(again.find(again.name(id)->root, again.name(id)->form), id);
    }
    EXPECT_EQ(again.weights_epoch(digest_of("g")), catalogue.weights_epoch(digest_of("g")));
    EXPECT_EQ(again.form_cleared_at(digest_of("g")), catalogue.form_cleared_at(digest_of("g")));
    EXPECT_EQ(again.add(name_of("new", "f")).value().value(), catalogue.all().size() + 1);
  }
}

std::string wrong(const std::vector<std::byte>& bytes) {
  Catalogue catalogue(1 << 16);
  const auto result = catalogue.load_from(bytes);
  if (result) return {};
  EXPECT_EQ(result.error().code, Code::kDataCorrupt);
  EXPECT_TRUE(result.error().message.starts_with("catalogue: ")) << result.error().message;
  return result.error().message.substr(11, result.error().message.find(": wanted") - 11);
}

TEST(Catalogue, ADamagedImageIsRefusedNamingWhatIsWrong) {
  Catalogue catalogue(1 << 16);
  ASSERT_TRUE(catalogue.add(name_of("a", "f")));
  ASSERT_TRUE(catalogue.add(name_of("b", "f")));
  catalogue.note_form(digest_of("g"), 3, 4);
  const std::vector<std::byte> bytes = image_of(catalogue);  // 16 of head, names of 74, forms of 48
  ASSERT_EQ(bytes.size(), 16U + 2 * 74 + 2 * 48);
  for (std::size_t size = 0; size < bytes.size(); ++size)
    EXPECT_NE(wrong({bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(size)}), "") << size;
  const auto with = [&](std::size_t at, auto value) {
    auto changed = bytes;
    store_le(&changed[at], value);
    return wrong(changed);
  };
  EXPECT_EQ(with(0, std::uint32_t{2}), "");
  EXPECT_EQ(with(0, std::uint32_t{1}), "names");
  EXPECT_EQ(with(0, std::uint32_t{3}), "bytes of a name");
  EXPECT_EQ(with(4, UINT32_MAX), "forms");
  EXPECT_EQ(with(8, std::uint64_t{15}), "bytes");
  EXPECT_EQ(with(8, UINT64_MAX), "bytes");
  EXPECT_EQ(with(16, std::uint32_t{0}), "number of a name");
  EXPECT_EQ(with(16, std::uint32_t{2}), "number of a name") << "the next has it";
  EXPECT_EQ(with(84, std::uint32_t{kSpaceTextMax + 1}), "text of a name");
  EXPECT_EQ(with(52, std::uint64_t{1}), "form of a name");
  EXPECT_EQ(with(bytes.size() - 48, std::uint64_t{0}), "forms") << "their order";
  EXPECT_EQ(with(bytes.size() - 16, kAtMax + 1), "number of a form's clear");
  auto one_form_twice = bytes;
  std::copy_n(one_form_twice.end() - 96, 32, one_form_twice.end() - 48);
  EXPECT_EQ(wrong(one_form_twice), "forms");
  auto twice = bytes;
  std::copy_n(twice.begin() + 20, 64, twice.begin() + 20 + 74);
  EXPECT_EQ(wrong(twice), "number of a name") << "one name, two numbers";
}

}  // namespace
}  // namespace tiercel::disk
