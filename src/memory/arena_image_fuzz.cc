// Damaged arena headers: whatever the bytes, decoding neither crashes nor reads beyond them, and what it
// accepts is exactly what encoding writes, with every section inside the memory. Half of the inputs get their
// magic, version and checksum put right, so that what lies behind them is reached too.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/check.h"
#include "base/crc32c.h"
#include "memory/arena_image.h"

namespace {

using tiercel::ByteView;

constexpr std::size_t kTotalAt = 24;
constexpr std::size_t kChecksumAt = 124;

void check(ByteView bytes, std::uint64_t image_bytes) {
  const auto header = tiercel::decode_arena_header(bytes, image_bytes);
  if (!header) {
    TIERCEL_CHECK(header.error().code == tiercel::Code::kDataCorrupt ||
                  header.error().code == tiercel::Code::kUnsupported);
    TIERCEL_CHECK(header.error().message.find('\n') == std::string::npos);
    return;
  }
  const auto layout = tiercel::arena_layout(header->sizes);
  TIERCEL_CHECK(layout && layout->total_bytes == image_bytes);
  for (const tiercel::ArenaSection& section :
       {layout->header, layout->index, layout->leases, layout->extents})
    TIERCEL_CHECK(section.offset.value() <= image_bytes &&
                  section.bytes <= image_bytes - section.offset.value());
  std::vector<std::byte> again(tiercel::kArenaHeaderBytes);
  encode_arena_header(*header, again);
  TIERCEL_CHECK(again.size() <= bytes.size() && std::equal(again.begin(), again.end(), bytes.begin()));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  // A copy of exactly this size: a sanitizer sees the first byte read beyond it.
  std::vector<std::byte> bytes(size);
  std::transform(data, data + size, bytes.begin(), [](std::uint8_t b) { return static_cast<std::byte>(b); });
  check(bytes, size);
  if (size < tiercel::kArenaHeaderBytes) return 0;
  const tiercel::ArenaHeader example{.epoch = 1, .sizes = {.extents = 1}};
  std::vector<std::byte> right(tiercel::kArenaHeaderBytes);
  encode_arena_header(example, right);
  std::copy_n(right.begin(), 12, bytes.begin());
  tiercel::store_le(&bytes[kChecksumAt], tiercel::crc32c(ByteView(bytes).first(kChecksumAt)));
  check(bytes, tiercel::load_le<std::uint64_t>(&bytes[kTotalAt]));
  return 0;
}
