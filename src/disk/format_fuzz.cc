// Damaged bytes of a log: whatever they are, no parser crashes, reads beyond them or believes a number in
// them, and what one accepts is exactly what encoding would have written. The first byte chooses the parser;
// each input is tried a second time with its checksum put right, so that what lies behind it is reached, too.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/crc32c.h"
#include "disk/catalogue.h"
#include "disk/disk_index.h"
#include "disk/format.h"
#include "disk/removals.h"
#include "os/block_device.h"

namespace {

using namespace tiercel;        // NOLINT: a program of one file
using namespace tiercel::disk;  // NOLINT
using Bytes = std::vector<std::byte>;

bool refused(const Status& status) {
  TIERCEL_CHECK(status.code == Code::kDataCorrupt || status.code == Code::kFailedPrecondition);
  TIERCEL_CHECK(status.message.find('\n') == std::string::npos);
  return true;
}

void expect_same(ByteView a, ByteView b) {
  TIERCEL_CHECK(std::equal(a.begin(), a.end(), b.begin(), b.end()));
}

std::size_t ceil_blocks(std::size_t bytes) {
  return (std::max<std::size_t>(bytes, 1) + kBlockBytes - 1) / kBlockBytes * kBlockBytes;
}

void put_crc(Bytes& bytes, std::size_t at, std::uint32_t crc) { store_le(&bytes[at], crc); }

template <typename Parse>
void check_block(Bytes bytes, const Parse& parse) {
  bytes.resize(kBlockBytes);
  for (const bool sealed : {false, true}) {
    if (sealed) put_crc(bytes, kBlockBytes - 4, crc32c(ByteView(bytes).first(kBlockBytes - 4)));
    const auto value = parse(bytes);
    if (!value && refused(value.error())) continue;
    expect_same(encode(*value), bytes);
  }
}

// Whole blocks, so that heads are seen at all.
void check_directory(Bytes bytes) {
  bytes.resize(ceil_blocks(bytes.size()));
  for (const bool sealed : {false, true}) {
    const auto head = parse_segment_head(ByteView(bytes).first(kBlockBytes));
    const auto directory = parse_directory(bytes);
    if (directory) {
      TIERCEL_CHECK(head && *head == directory->head);
      const Bytes again = encode_directory(directory->head, directory->entries);
      TIERCEL_CHECK(again.size() <= bytes.size());
      expect_same(again, ByteView(bytes).first(again.size()));
    } else {
      refused(directory.error());
    }
    if (sealed || !head || directory_bytes(head->entries) > bytes.size()) continue;
    const ByteView list = ByteView(bytes).subspan(kSegmentHeadBytes, head->entries * kDescriptorBytes);
    put_crc(bytes, kSegmentHeadBytes - 4, crc32c(list, crc32c(ByteView(bytes).first(kSegmentHeadBytes - 4))));
  }
}

void check_footer(Bytes bytes) {
  bytes.insert(bytes.begin(), ceil_blocks(bytes.size()) - bytes.size(), std::byte{0});
  for (const bool sealed : {false, true}) {
    const auto tail = parse_footer_tail(ByteView(bytes).last(kBlockBytes));
    const auto footer = parse_footer(bytes);
    if (footer) {
      TIERCEL_CHECK(tail && *tail == footer->tail);
      const Bytes again = encode_footer(footer->tail, footer->entries);
      TIERCEL_CHECK(again.size() <= bytes.size());
      expect_same(again, ByteView(bytes).last(again.size()));
    } else {
      refused(footer.error());
    }
    if (sealed || !tail || footer_bytes(tail->entries) > bytes.size()) continue;
    const ByteView whole = ByteView(bytes).last(footer_bytes(tail->entries));
    const ByteView last = whole.last(kFooterTailBytes);
    put_crc(bytes, bytes.size() - 4,
            crc32c(last.first(kFooterTailBytes - 4), crc32c(whole.first(tail->entries * kDescriptorBytes))));
  }
}

template <typename T>
void check_image(const Bytes& bytes, T loaded) {
  const auto used = loaded.load_from(bytes);
  if (!used && refused(used.error())) return;
  Bytes again;
  loaded.append_to(again);
  TIERCEL_CHECK(*used <= bytes.size());
  expect_same(again, ByteView(bytes).first(*used));
}

void check_name(Bytes bytes) {
  for (const bool sealed : {false, true}) {
    if (sealed && bytes.size() < 4) return;
    if (sealed) put_crc(bytes, bytes.size() - 4, crc32c(ByteView(bytes).first(bytes.size() - 4)));
    const auto name = Catalogue::parse_name(bytes);
    if (!name && refused(name.error())) continue;
    const Bytes again = Catalogue::encode_name(name->first, name->second);
    TIERCEL_CHECK(again.size() <= bytes.size());
    expect_same(again, ByteView(bytes).first(again.size()));
  }
}

// A table of a few buckets: after take() every entry is found by its name, or stands there twice.
void check_table(const Bytes& bytes) {
  constexpr std::uint64_t kBuckets = 8;
  static DiskIndex index = DiskIndex::create(kBuckets).value();
  const MutableByteView table = index.image_for_load(0, kBuckets * kBucketBytes);
  std::fill(table.begin(), table.end(), std::byte{0});
  std::copy_n(bytes.begin(), std::min(bytes.size(), table.size()), table.begin());
  index.take(0, index.buckets(), [](const IndexEntry&) { return true; });
  std::vector<IndexEntry> entries;
  index.for_each([&](const IndexEntry& entry) { entries.push_back(entry); });
  TIERCEL_CHECK(entries.size() == index.size());
  for (const IndexEntry& entry : entries) {
    TIERCEL_CHECK(index.find(DiskSpaceId(entry.space), entry.key, entry.cls).has_value());
    TIERCEL_CHECK(index.put(entry));
    TIERCEL_CHECK(index.find(DiskSpaceId(entry.space), entry.key, entry.cls) == entry);
  }
  for (const IndexEntry& entry : entries) index.erase(DiskSpaceId(entry.space), entry.key, entry.cls);
  TIERCEL_CHECK(index.size() == 0);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  // A copy of exactly this size: a sanitizer sees the first byte read beyond it.
  Bytes bytes(size - 1);
  std::transform(data + 1, data + size, bytes.begin(),
                 [](std::uint8_t b) { return static_cast<std::byte>(b); });
  switch (data[0] % 9) {
    case 0:
      check_block(std::move(bytes), parse_superblock);
      break;
    case 1:
      check_block(std::move(bytes), parse_region_header);
      break;
    case 2:
      check_block(std::move(bytes), parse_image_header);
      break;
    case 3:
      check_directory(std::move(bytes));
      break;
    case 4:
      check_footer(std::move(bytes));
      break;
    case 5:
      check_image(bytes, Removals(64));
      break;
    case 6:
      check_image(bytes, Catalogue(8192));
      break;
    case 7:
      check_name(std::move(bytes));
      break;
    default:
      check_table(bytes);
  }
  return 0;
}
