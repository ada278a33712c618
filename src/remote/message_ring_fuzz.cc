// What the other side of an exchange may write: whatever it is, no reader leaves its ring, no parser its
// message, and what one accepts is what encoding writes. Input: byte 0 chooses; 1: a ring's content, its tail
// first (8 bytes); else one message, a request or a completion.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/check.h"
#include "remote/connector_message.h"
#include "remote/message_ring.h"

namespace {

using namespace tiercel;  // NOLINT: a program of one file
using Bytes = std::vector<std::byte>;

void check_request(const Bytes& bytes) {
  const auto request = parse_request(bytes);
  if (!request) {
    TIERCEL_CHECK(request.error().code == Code::kDataCorrupt);
    return;
  }
  const auto again =
      parse_request(encode_request(request->verb, request->batch, request->deadline_ns, request->items));
  TIERCEL_CHECK(again && *again == *request);
}

void check_completion(const Bytes& bytes) {
  const auto completion = parse_completion(bytes);
  if (!completion) {
    TIERCEL_CHECK(completion.error().code == Code::kDataCorrupt);
    return;
  }
  const auto again = parse_completion(encode_completion(*completion));
  TIERCEL_CHECK(again && *again == *completion);
  TIERCEL_CHECK(one_line(completion->text).size() == completion->text.size());
}

void check_ring(const Bytes& bytes) {
  constexpr std::uint64_t kRing = 512;
  if (bytes.size() < 8) return;
  Bytes ring(kRing);  // of its own: a sanitizer sees every step out of it
  std::copy_n(bytes.begin() + 8, std::min<std::size_t>(bytes.size() - 8, kRing), ring.begin());
  auto tail = load_le<std::uint64_t>(bytes.data());
  std::uint64_t head = 0;
  RingReader reader({ring.data(), kRing, &tail, &head});
  Bytes message;
  std::uint64_t taken = 0;
  RingReader::Take take = RingReader::Take::kTaken;
  while (take == RingReader::Take::kTaken) {
    take = reader.take(message);
    if (take != RingReader::Take::kTaken) break;
    TIERCEL_CHECK(message.size() <= kRing && message.size() % 8 == 0 && ++taken <= kRing / 8);
    check_request(message);
    check_completion(message);
  }
  TIERCEL_CHECK(head <= kRing);
  TIERCEL_CHECK((take == RingReader::Take::kNonsense) == !reader.nonsense().empty());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  // A copy of exactly this size: a sanitizer sees the first byte read beyond it.
  Bytes bytes(size - 1);
  std::transform(data + 1, data + size, bytes.begin(),
                 [](std::uint8_t b) { return static_cast<std::byte>(b); });
  if (data[0] == 1) {
    check_ring(bytes);
    return 0;
  }
  for (const bool sealed : {false, true}) {  // once more with a length that is right
    if (sealed && bytes.size() < 4) break;
    if (sealed) store_le(bytes.data(), static_cast<std::uint32_t>(bytes.size()));
    check_request(bytes);
    check_completion(bytes);
  }
  return 0;
}
