#include "remote/message_ring.h"

#include <algorithm>
#include <atomic>
#include <cstring>

#include <fmt/format.h>

#include "base/check.h"
#include "tiercel/connector.h"

namespace tiercel {
namespace {

constexpr std::uint64_t kStep = 8;
// Of every message: `bytes` and `verb`.
constexpr std::uint64_t kLeastBytes = 8;
constexpr std::size_t kVerbAt = 4;

std::uint64_t load(std::uint64_t* position) {
  return std::atomic_ref<std::uint64_t>(*position).load(std::memory_order_acquire);
}
void store(std::uint64_t* position, std::uint64_t value) {
  std::atomic_ref<std::uint64_t>(*position).store(value, std::memory_order_release);
}

}  // namespace

RingWriter::Put RingWriter::put(ByteView message) {
  TIERCEL_CHECK(message.size() % kStep == 0 && message.size() >= kLeastBytes);
  TIERCEL_CHECK(message.size() <= message_bytes_max());
  const std::uint64_t head = load(place_.head);
  // Between where it was and what has been written.
  if (head % kStep != 0 || head - head_ > tail_ - head_) return Put::kNonsense;
  head_ = head;
  const std::uint64_t at = tail_ % place_.size;
  const std::uint64_t to_end = place_.size - at;
  const std::uint64_t filler = message.size() > to_end ? to_end : 0;
  if (filler + message.size() > place_.size - (tail_ - head_)) return Put::kFull;
  if (filler != 0) {
    store_le(place_.bytes + at, static_cast<std::uint32_t>(filler));
    store_le(place_.bytes + at + kVerbAt, std::uint32_t{TIERCEL_CONNECTOR_FILLER});
  }
  std::memcpy(place_.bytes + (tail_ + filler) % place_.size, message.data(), message.size());
  tail_ += filler + message.size();
  store(place_.tail, tail_);
  return Put::kPut;
}

RingReader::Take RingReader::wrong(std::string what) {
  nonsense_ = std::move(what);
  return Take::kNonsense;
}

RingReader::Take RingReader::take(std::vector<std::byte>& message) {
  if (!nonsense_.empty()) return Take::kNonsense;
  for (;;) {
    const std::uint64_t tail = load(place_.tail);
    if (tail % kStep != 0 || tail - head_ > place_.size || tail - head_ < tail_ - head_)
      return wrong(fmt::format("the writer's position {} with the reader's at {} of a ring of {} bytes", tail,
                               head_, place_.size));
    tail_ = tail;
    if (tail_ == head_) return Take::kEmpty;
    const std::uint64_t at = head_ % place_.size;
    const std::uint64_t there = std::min(tail_ - head_, place_.size - at);
    std::byte head[kLeastBytes];  // read once: what is checked is what is used
    std::memcpy(head, place_.bytes + at, sizeof head);
    const auto bytes = load_le<std::uint32_t>(head);
    const auto verb = load_le<std::uint16_t>(head + kVerbAt);
    if (bytes % kStep != 0 || bytes < kLeastBytes || bytes > there)
      return wrong(fmt::format("a message of {} bytes where {} were written", bytes, there));
    if (verb == TIERCEL_CONNECTOR_FILLER) {
      // One in a row: a writer that went on with them would keep us here for ever.
      if (bytes != place_.size - at || after_filler_)
        return wrong(fmt::format("a filler of {} bytes, {} before the ring's end", bytes, place_.size - at));
    } else {
      message.resize(bytes);
      std::memcpy(message.data(), head, sizeof head);
      std::memcpy(message.data() + sizeof head, place_.bytes + at + sizeof head, bytes - sizeof head);
    }
    head_ += bytes;
    store(place_.head, head_);
    after_filler_ = verb == TIERCEL_CONNECTOR_FILLER;
    if (verb != TIERCEL_CONNECTOR_FILLER) return Take::kTaken;
  }
}

}  // namespace tiercel
