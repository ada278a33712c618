// Damaged record headers: whatever the bytes, parsing neither crashes nor reads beyond them, and what it
// accepts is exactly what encoding would have written. Half of the inputs get their checksum put right, so
// that what lies behind it is reached too.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/check.h"
#include "base/crc32c.h"
#include "memory/record.h"

namespace {

using tiercel::ByteView;

void check(ByteView bytes) {
  const auto header = tiercel::parse_header(bytes);
  if (!header) {
    TIERCEL_CHECK(header.error().code == tiercel::Code::kDataCorrupt);
    TIERCEL_CHECK(header.error().message.find('\n') == std::string::npos);
    return;
  }
  tiercel::ClassForm cls;
  cls.layers.resize(header->run_checksums.size());
  std::vector<std::byte> again(tiercel::header_bytes(cls));
  encode_header(*header, again);
  TIERCEL_CHECK(again.size() <= bytes.size() && std::equal(again.begin(), again.end(), bytes.begin()));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  // A copy of exactly this size: a sanitizer sees the first byte read beyond it.
  std::vector<std::byte> bytes(size);
  std::transform(data, data + size, bytes.begin(), [](std::uint8_t b) { return static_cast<std::byte>(b); });
  check(bytes);
  const std::size_t whole = size / tiercel::kRecordAlignment * tiercel::kRecordAlignment;
  if (whole == 0) return 0;
  bytes.resize(whole);
  tiercel::store_le(&bytes[whole - 4], tiercel::crc32c(ByteView(bytes).first(whole - 4)));
  check(bytes);
  return 0;
}
