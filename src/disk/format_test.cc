#include "disk/format.h"

#include <algorithm>
#include <functional>
#include <utility>

#include <gtest/gtest.h>

#include "base/crc32c.h"
#include "base/prng.h"
#include "os/block_device.h"

namespace tiercel::disk {
namespace {

using Bytes = std::vector<std::byte>;

Uuid sample_uuid() {
  Uuid uuid;
  for (std::size_t i = 0; i < uuid.size(); ++i) uuid[i] = static_cast<std::byte>(0xA0 + i);
  return uuid;
}

Superblock sample_superblock() {
  Superblock s;
  s.uuid = sample_uuid();
  s.sequence = 9;
  s.epoch = 4;
  s.geometry = plan_geometry({}, 1ULL << 30).value();
  s.geometry.host_bytes = 0;
  s.image = 1;
  s.image_sequence = 77;
  s.closed = true;
  return s;
}
RegionHeader sample_region() { return {sample_uuid(), 3, 12, 1000}; }
ImageHeader sample_image() { return {sample_uuid(), 77, 900, 1000, 12, 11, 5000, 4321, 0xDEADBEEF}; }

Descriptor class_set(std::uint32_t block, std::uint32_t blocks, std::uint64_t born) {
  Descriptor d;
  d.cls = ClassId(2);
  d.space = 7;
  d.key.words = {1, 2};
  d.parent.words = {3, 4};
  d.born = born;
  d.length = 5;
  d.shards = 2;
  d.block = block;
  d.blocks = blocks;
  return d;
}
Descriptor removal(std::uint64_t born) {
  Descriptor d;
  d.kind = EntryKind::kRemovePage;
  d.space = 7;
  d.key.words = {8, 9};
  d.born = born;
  return d;
}
Descriptor form_clear(std::uint64_t born) {
  Descriptor d;
  d.kind = EntryKind::kClearForm;
  d.born = born;
  d.length = UINT64_MAX;
  set_form(d, sha256(as_byte_view("form")));
  return d;
}
// One of each kind; payloads from block 11 on.
std::vector<Descriptor> sample_entries() {
  Descriptor clear;
  clear.kind = EntryKind::kClearSpace;
  clear.space = 7;
  clear.born = 102;
  Descriptor name;
  name.kind = EntryKind::kName;
  name.space = 8;
  name.born = 104;
  name.block = 16;
  name.blocks = 1;
  return {class_set(11, 4, 100), removal(101), clear, form_clear(103), name, class_set(20, 2, 17)};
}
SegmentHead sample_segment() { return {sample_uuid(), 12, 4, 100, 99, 10, 15, 6, 0xC0FFEE}; }
FooterTail sample_footer() { return {sample_uuid(), 3, 12, 100, 200, 6}; }

Bytes sample_directory() { return encode_directory(sample_segment(), sample_entries()); }
Bytes sample_footer_bytes() { return encode_footer(sample_footer(), sample_entries()); }

// Which field a parser names, with the checks that every refusal must pass.
template <typename T>
std::string wrong(const Result<T>& result) {
  if (result) return {};
  const std::string& message = result.error().message;
  EXPECT_EQ(result.error().code, Code::kDataCorrupt) << message;
  EXPECT_EQ(message.find('\n'), std::string::npos);
  EXPECT_NE(message.find(": wanted "), std::string::npos) << message;
  const std::size_t field = message.find(": ") + 2;
  return message.substr(field, message.find(": wanted ") - field);
}

void reseal(Bytes& block) { store_le(&block[4092], crc32c(ByteView(block).first(4092))); }
void reseal_directory(Bytes& bytes, std::size_t entries) {
  const ByteView list = ByteView(bytes).subspan(128, 64 * entries);
  store_le(&bytes[124], crc32c(list, crc32c(ByteView(bytes).first(124))));
}

struct Case {
  std::string name;
  Bytes bytes;
  std::function<std::string(ByteView)> wrong;
};
std::vector<Case> every_kind() {
  return {{"superblock", encode(sample_superblock()), [](ByteView b) { return wrong(parse_superblock(b)); }},
          {"region", encode(sample_region()), [](ByteView b) { return wrong(parse_region_header(b)); }},
          {"image", encode(sample_image()), [](ByteView b) { return wrong(parse_image_header(b)); }},
          {"directory", sample_directory(), [](ByteView b) { return wrong(parse_directory(b)); }},
          {"footer", sample_footer_bytes(), [](ByteView b) { return wrong(parse_footer(b)); }}};
}

TEST(DiskFormat, EveryBlockComesBackAsItWasWritten) {
  EXPECT_EQ(parse_superblock(encode(sample_superblock())).value(), sample_superblock());
  EXPECT_EQ(parse_region_header(encode(sample_region())).value(), sample_region());
  EXPECT_EQ(parse_image_header(encode(sample_image())).value(), sample_image());
  const Directory directory = parse_directory(sample_directory()).value();
  EXPECT_EQ(directory.head, sample_segment());
  EXPECT_EQ(directory.entries, sample_entries());
  const Footer footer = parse_footer(sample_footer_bytes()).value();
  EXPECT_EQ(footer.tail, sample_footer());
  EXPECT_EQ(footer.entries, sample_entries());
  EXPECT_EQ(form_of(footer.entries[3]), sha256(as_byte_view("form")));
}

TEST(DiskFormat, ASuperblockWithoutAnImageComesBack) {
  Superblock s = sample_superblock();
  s.image = std::nullopt;
  s.image_sequence = 0;
  s.closed = false;
  EXPECT_EQ(parse_superblock(encode(s)).value(), s);
}

TEST(DiskFormat, ADirectoryMayBeFollowedAndAFooterPrecededByAnything) {
  Bytes bytes = sample_directory();
  bytes.resize(bytes.size() + 8192, std::byte{0xFF});
  EXPECT_EQ(parse_directory(bytes).value().entries, sample_entries());
  EXPECT_EQ(parse_segment_head(ByteView(bytes).first(4096)).value(), sample_segment());
  bytes = sample_footer_bytes();
  bytes.insert(bytes.begin(), 4096, std::byte{0xFF});
  EXPECT_EQ(parse_footer(bytes).value().entries, sample_entries());
  EXPECT_EQ(parse_footer_tail(ByteView(bytes).last(4096)).value(), sample_footer());
}

TEST(DiskFormat, LongListsTakeMoreBlocksAndComeBack) {
  for (const std::uint32_t count : {0U, 1U, 61U, 62U, 63U, 64U, 126U, 127U, 1000U}) {
    std::vector<Descriptor> entries;
    for (std::uint32_t i = 0; i < count; ++i) entries.push_back(class_set(100 + 2 * i, 2, 100 + i));
    SegmentHead head = sample_segment();
    head.entries = count;
    head.blocks = 100 + 2 * count;
    const Bytes directory = encode_directory(head, entries);
    EXPECT_EQ(directory.size(), directory_bytes(count));
    EXPECT_EQ(directory.size(), (128 + 64 * std::size_t{count} + 4095) / 4096 * 4096);
    EXPECT_EQ(parse_directory(directory).value().entries, entries);
    FooterTail tail = sample_footer();
    tail.entries = count;
    tail.last_at = 2000;
    const Bytes footer = encode_footer(tail, entries);
    EXPECT_EQ(footer.size(), footer_bytes(count));
    EXPECT_EQ(parse_footer(footer).value().entries, entries);
  }
}

TEST(DiskFormat, EveryFlippedBitIsNoticed) {
  for (Case& each : every_kind()) {
    for (std::size_t bit = 0; bit < each.bytes.size() * 8; ++bit) {
      if (bit / 8 % 4096 == 8 || bit / 8 % 4096 == 9) continue;  // the version: another test
      if (each.name == "footer" && (bit / 8 == 4096 - 128 + 8 || bit / 8 == 4096 - 128 + 9)) continue;
      const std::byte mask = static_cast<std::byte>(1U << (bit % 8));
      each.bytes[bit / 8] ^= mask;
      ASSERT_NE(each.wrong(each.bytes), "") << each.name << " bit " << bit;
      each.bytes[bit / 8] ^= mask;
    }
    EXPECT_EQ(each.wrong(each.bytes), "");
  }
}

TEST(DiskFormat, EveryTruncationIsNoticed) {
  for (const Case& each : every_kind())
    for (std::size_t size = 0; size < each.bytes.size(); ++size) {
      const Bytes cut(each.bytes.begin(), each.bytes.begin() + static_cast<std::ptrdiff_t>(size));
      ASSERT_NE(each.wrong(cut), "") << each.name << " " << size;
    }
}

TEST(DiskFormat, AnotherVersionIsRefusedNamingBoth) {
  const std::pair<std::size_t, std::function<Status(ByteView)>> kinds[] = {
      {0, [](ByteView b) { return parse_superblock(b).error(); }},
      {0, [](ByteView b) { return parse_region_header(b).error(); }},
      {0, [](ByteView b) { return parse_image_header(b).error(); }},
      {0, [](ByteView b) { return parse_directory(b).error(); }},
      {4096 - 128, [](ByteView b) { return parse_footer(b).error(); }}};
  auto cases = every_kind();
  for (std::size_t i = 0; i < cases.size(); ++i) {
    store_le(&cases[i].bytes[kinds[i].first + 8], std::uint16_t{258});
    const Status status = kinds[i].second(cases[i].bytes);
    EXPECT_EQ(status.code, Code::kFailedPrecondition) << cases[i].name;
    EXPECT_NE(status.message.find("format version: wanted 1, got 258"), std::string::npos) << status.message;
  }
}

TEST(DiskFormat, ARightChecksumOverNonsenseIsStillRefused) {
  using Change = std::tuple<std::string, std::size_t, std::uint64_t>;  // field, offset, value
  const auto expect_named = [](const Bytes& bytes, const std::vector<Change>& changes, const auto& parse) {
    for (const auto& [field, at, value] : changes) {
      Bytes changed = bytes;
      store_le(&changed[at], value);
      reseal(changed);
      EXPECT_EQ(wrong(parse(changed)), field) << at;
    }
  };
  expect_named(encode(sample_superblock()),
               {{"magic", 0, 1},
                {"unused bytes", 10, 1},
                {"size", 48, 1},
                {"image", 136, 3},
                {"image", 136, 0},
                {"closed", 140, 2},
                {"unused bytes", 144, 1},
                {"unused bytes", 4080, 1}},
               parse_superblock);
  expect_named(encode(sample_region()),
               {{"unused bytes", 36, 1 + (12ULL << 32)},
                {"life", 40, 0},
                {"life", 40, UINT64_MAX},
                {"first entry's number", 48, 0},
                {"first entry's number", 48, kAtMax + 1},
                {"unused bytes", 56, 1}},
               parse_region_header);
  expect_named(encode(sample_image()),
               {{"number from which on it holds", 40, 1001},
                {"last entry's number", 48, kAtMax + 1},
                {"last life", 56, UINT64_MAX},
                {"last life", 56, (1ULL << 62) + 1},
                {"first life", 64, 0},
                {"first life", 64, 14},
                {"buckets", 72, 0},
                {"unused bytes", 92, 1}},
               parse_image_header);
}

TEST(DiskFormat, NumbersOfASegmentMustFitTogether) {
  using Change = std::pair<std::string, std::function<void(Bytes&)>>;
  const Change changes[] = {
      {"life", [](Bytes& b) { store_le(&b[32], std::uint64_t{0}); }},
      {"first entry's number", [](Bytes& b) { store_le(&b[48], std::uint64_t{0}); }},
      {"entries", [](Bytes& b) { store_le(&b[48], kAtMax - 4); }},
      {"durable number", [](Bytes& b) { store_le(&b[56], kAtMax + 1); }},
      {"place", [](Bytes& b) { store_le(&b[64], std::uint32_t{0}); }},
      {"place", [](Bytes& b) { store_le(&b[64], UINT32_MAX - 14); }},
      {"blocks", [](Bytes& b) { store_le(&b[68], std::uint32_t{0}); }},
      {"blocks", [](Bytes& b) { store_le(&b[72], UINT32_MAX); }},
      {"size", [](Bytes& b) { store_le(&b[68], 1U << 30), store_le(&b[72], 1U << 30); }},
      {"unused bytes", [](Bytes& b) { b[80] = std::byte{1}; }},
      {"unused bytes", [](Bytes& b) { b[128 + 6 * 64] = std::byte{1}; }},
      {"entry's place", [](Bytes& b) { store_le(&b[68], std::uint32_t{11}); }},
      {"entry's number", [](Bytes& b) { store_le(&b[48], std::uint64_t{99}); }},
  };
  for (const auto& [field, change] : changes) {
    Bytes bytes = sample_directory();
    change(bytes);
    reseal_directory(bytes, 6);
    EXPECT_EQ(wrong(parse_directory(bytes)), field);
  }
}

TEST(DiskFormat, NumbersOfAFooterMustFitTogether) {
  using Change = std::pair<std::string, std::function<void(std::byte*)>>;
  const Change changes[] = {
      {"unused bytes", [](std::byte* t) { store_le(t + 36, std::uint32_t{1}); }},
      {"life", [](std::byte* t) { store_le(t + 40, std::uint64_t{0}); }},
      {"first entry's number", [](std::byte* t) { store_le(t + 48, std::uint64_t{0}); }},
      {"last entry's number", [](std::byte* t) { store_le(t + 56, std::uint64_t{98}); }},
      {"last entry's number", [](std::byte* t) { store_le(t + 56, kAtMax + 1); }},
      {"entries", [](std::byte* t) { store_le(t + 56, std::uint64_t{104}); }},
      {"entries", [](std::byte* t) { store_le(t + 64, UINT32_MAX); }},
      {"size", [](std::byte* t) { store_le(t + 56, kAtMax), store_le(t + 64, UINT32_MAX); }},
      {"unused bytes", [](std::byte* t) { t[68] = std::byte{1}; }},
  };
  for (const auto& [field, change] : changes) {
    Bytes bytes = sample_footer_bytes();
    std::byte* const tail = &bytes[bytes.size() - 128];
    change(tail);
    const ByteView list = ByteView(bytes).first(std::size_t{6} * 64);
    store_le(tail + 124, crc32c(ByteView(tail, 124), crc32c(list)));
    EXPECT_EQ(wrong(parse_footer(bytes)), field);
  }
}

TEST(DiskFormat, AnEntryMustHaveWhatItsKindHasAndNoMore) {
  const auto kind_is = [](std::uint8_t kind) {
    return [kind](std::byte* d) { d[0] = static_cast<std::byte>(kind); };
  };
  const auto set32 = [](std::size_t at, std::uint32_t value) {
    return [at, value](std::byte* d) { store_le(d + at, value); };
  };
  const auto set64 = [](std::size_t at, std::uint64_t value) {
    return [at, value](std::byte* d) { store_le(d + at, value); };
  };
  using Change = std::tuple<std::size_t, std::string, std::function<void(std::byte*)>>;  // of which entry
  const Change changes[] = {
      {0, "entry's kind", kind_is(0)},
      {0, "entry's kind", kind_is(7)},
      {0, "entry's kind", kind_is(255)},
      {0, "entry", kind_is(2)},
      {0, "entry", kind_is(6)},
      {0, "entry's namespace", set32(4, 0)},
      {0, "entry's number", set64(40, 0)},
      {0, "entry's number", set64(40, 101)},
      {0, "entry's blocks", set32(60, 0)},
      {0, "entry's blocks", set32(60, 3)},
      {0, "entry's place", set32(56, 10)},
      {0, "entry's place", set32(56, UINT32_MAX)},
      {0, "entry's blocks", [](std::byte* d) { store_le(d + 2, std::uint16_t{0}); }},
      {1, "entry", [](std::byte* d) { d[1] = std::byte{1}; }},
      {1, "entry", [](std::byte* d) { store_le(d + 2, std::uint16_t{1}); }},
      {1, "entry", set64(24, 1)},
      {1, "entry", set64(48, 1)},
      {1, "entry", set32(60, 1)},
      {1, "entry's place without a payload", set32(56, 11)},
      {1, "entry's namespace", set32(4, 0)},
      {2, "entry", set64(8, 1)},
      {3, "entry's namespace", set32(4, 1)},
      {3, "entry", set32(60, 1)},
      {4, "entry's blocks", set32(60, 0)},
      {4, "entry", set64(48, 1)},
      {4, "entry's place", set32(56, 14)},
      {5, "entry's place", set32(60, 6)},
  };
  for (const auto& [entry, field, change] : changes) {
    Bytes bytes = sample_directory();
    change(&bytes[128 + 64 * entry]);
    reseal_directory(bytes, 6);
    EXPECT_EQ(wrong(parse_directory(bytes)), field) << entry;
  }
}

TEST(DiskFormat, AMarkNamesWhatIsLeftOutByItsPlace) {
  Descriptor out;
  out.kind = EntryKind::kLeftOut;
  out.space = 7;
  out.key.words = {1, 2};
  out.length = 9;
  out.born = 100;
  SegmentHead head = sample_segment();
  head.entries = head.blocks = 1;
  head.records_crc = 0;
  const Bytes bytes = encode_directory(head, {{out}});
  const auto parsed = parse_directory(bytes);
  ASSERT_TRUE(parsed);
  EXPECT_EQ(parsed->entries, std::vector<Descriptor>{out});
  for (const unsigned long long place : {0ULL, 10ULL, (1ULL << 32) + 9}) {
    Bytes elsewhere = bytes;
    store_le(&elsewhere[kSegmentHeadBytes + 48], std::uint64_t{place});  // before the mark, or nowhere
    reseal_directory(elsewhere, 1);
    EXPECT_EQ(wrong(parse_directory(elsewhere)), "place of what is left out") << place;
  }

  // A footer names nothing but what counts.
  Bytes footer = sample_footer_bytes();
  footer[0] = static_cast<std::byte>(EntryKind::kLeftOut);
  const ByteView all(footer);
  const std::uint32_t of_list = crc32c(all.first(sample_entries().size() * kDescriptorBytes));
  store_le(&footer[footer.size() - 4],
           crc32c(all.last(kFooterTailBytes).first(kFooterTailBytes - 4), of_list));
  EXPECT_EQ(wrong(parse_footer(footer)), "entry's kind");
}

TEST(DiskFormat, RandomBytesAreRefused) {
  Prng random(1);
  for (int round = 0; round < 200; ++round) {
    Bytes bytes(4096);
    for (std::byte& b : bytes) b = static_cast<std::byte>(random.next());
    for (const Case& each : every_kind()) EXPECT_EQ(each.wrong(bytes), "magic");
  }
}

TEST(DiskFormat, OnlyZerosAreBlank) {
  Bytes bytes(10000);
  EXPECT_TRUE(is_blank({}));
  EXPECT_TRUE(is_blank(bytes));
  for (const std::size_t at : {std::size_t{0}, std::size_t{1}, std::size_t{4096}, std::size_t{9999}}) {
    bytes[at] = std::byte{1};
    EXPECT_FALSE(is_blank(bytes)) << at;
    bytes[at] = std::byte{0};
  }
}

}  // namespace
}  // namespace tiercel::disk
