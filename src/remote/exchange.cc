#include "remote/exchange.h"

#include <bit>
#include <cerrno>
#include <cstddef>
#include <cstring>

#include <fmt/format.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/checked.h"
#include "tiercel/connector.h"

namespace tiercel {
namespace {

constexpr std::uint64_t kHeaderBytes = 4096;
constexpr std::uint64_t kRingBytesLeast = 4096;
constexpr std::uint64_t kRingBytesMost = 256U << 20;
constexpr std::uint64_t kDataBytesMost = 1ULL << 40;
using Header = tiercel_connector_exchange;
static_assert(sizeof(Header) == 384 && sizeof(Header) <= kHeaderBytes);
static_assert(offsetof(Header, request_tail) == 128 && offsetof(Header, completion_head) == 320);

// O_NONBLOCK belongs to what both sides have open, so that a connector which clears it for itself (a library
// that wants to wait in read()) does so for us, too.

// Waits at most for room in the counter, and nobody makes 2^64 requests.
void signal(int event) {
  const std::uint64_t one = 1;
  ssize_t written = 0;
  do written = ::write(event, &one, sizeof one);
  while (written < 0 && errno == EINTR);
}
// Reads only what is there: without that look a connector of that kind, silent, would hold us for ever.
void forget(int event) {
  pollfd asked{event, POLLIN, 0};
  std::uint64_t count = 0;
  ssize_t got = 0;
  do got = ::poll(&asked, 1, 0) <= 0 ? 0 : ::read(event, &count, sizeof count);
  while (got < 0 && errno == EINTR);
}

Status bad_layout(std::string_view what, std::uint64_t offset, std::uint64_t bytes, std::uint64_t mapped) {
  return {Code::kDataCorrupt,
          fmt::format("exchange: {}: {} bytes at {} of {} make no sense", what, bytes, offset, mapped)};
}

bool ring_bytes_valid(std::uint64_t bytes) {
  return std::has_single_bit(bytes) && bytes >= kRingBytesLeast && bytes <= kRingBytesMost;
}

}  // namespace

Status check_layout(const ExchangeLayout& layout, std::uint64_t mapped_bytes) {
  if (layout.total_bytes != mapped_bytes) return bad_layout("total", 0, layout.total_bytes, mapped_bytes);
  std::uint64_t free_from = kHeaderBytes;
  const auto next = [&](std::uint64_t offset, std::uint64_t bytes) {
    const auto end = checked_add(offset, bytes);
    if (!end || *end > mapped_bytes || offset % 8 != 0 || offset < free_from || bytes == 0) return false;
    free_from = *end;
    return true;
  };
  if (!ring_bytes_valid(layout.request_ring_bytes) ||
      !next(layout.request_ring_offset, layout.request_ring_bytes))
    return bad_layout("request ring", layout.request_ring_offset, layout.request_ring_bytes, mapped_bytes);
  if (!ring_bytes_valid(layout.completion_ring_bytes) ||
      !next(layout.completion_ring_offset, layout.completion_ring_bytes))
    return bad_layout("completion ring", layout.completion_ring_offset, layout.completion_ring_bytes,
                      mapped_bytes);
  if (!next(layout.data_offset, layout.data_bytes))
    return bad_layout("data", layout.data_offset, layout.data_bytes, mapped_bytes);
  return {};
}

RingPlace request_ring(std::byte* exchange, const ExchangeLayout& layout) {
  auto* header = reinterpret_cast<Header*>(exchange);
  return {exchange + layout.request_ring_offset, layout.request_ring_bytes, &header->request_tail,
          &header->request_head};
}
RingPlace completion_ring(std::byte* exchange, const ExchangeLayout& layout) {
  auto* header = reinterpret_cast<Header*>(exchange);
  return {exchange + layout.completion_ring_offset, layout.completion_ring_bytes, &header->completion_tail,
          &header->completion_head};
}

Result<Exchange> Exchange::open(const ExchangeOptions& options) {
  if (!ring_bytes_valid(options.ring_bytes))
    return error(Code::kInvalidArgument,
                 fmt::format("exchange: bytes of a ring: wanted a power of two from {} to {}, "
                             "got {}",
                             kRingBytesLeast, kRingBytesMost, options.ring_bytes));
  if (options.data_bytes == 0 || options.data_bytes > kDataBytesMost)
    return error(Code::kInvalidArgument, fmt::format("exchange: bytes of data: wanted 1 to {}, got {}",
                                                     kDataBytesMost, options.data_bytes));
  Exchange exchange;
  ExchangeLayout& layout = exchange.layout_;
  layout.request_ring_offset = kHeaderBytes;
  layout.request_ring_bytes = layout.completion_ring_bytes = options.ring_bytes;
  layout.completion_ring_offset = layout.request_ring_offset + options.ring_bytes;
  // On the border of a huge page: costs nothing where the whole is rounded up to one.
  const std::uint64_t rings_end = layout.completion_ring_offset + options.ring_bytes;
  layout.data_offset = (rings_end + kHugePageBytes - 1) / kHugePageBytes * kHugePageBytes;
  layout.data_bytes = options.data_bytes;
  TIERCEL_ASSIGN_OR_RETURN(exchange.memory_, Mapping::open({.kind = MappingKind::kShared,
                                                            .bytes = layout.data_offset + layout.data_bytes,
                                                            .touch = {},
                                                            .numa = {}}));
  layout.total_bytes = exchange.memory_.size_bytes();
  for (Fd* event : {&exchange.request_event_, &exchange.completion_event_}) {
    *event = Fd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    if (event->get() < 0)
      return error(Code::kResourceExhausted,
                   fmt::format("exchange: an eventfd: {}; raise the limit of open files",
                               std::strerror(errno)));  // NOLINT(concurrency-mt-unsafe): one of fixed texts
  }
  exchange.restart();
  return exchange;
}

void Exchange::restart() {
  std::byte* const start = memory_.bytes().data();
  auto* header = reinterpret_cast<Header*>(start);
  *header = Header{};
  header->magic = TIERCEL_CONNECTOR_MAGIC;
  header->version = TIERCEL_CONNECTOR_VERSION;
  header->header_bytes = kHeaderBytes;
  header->total_bytes = layout_.total_bytes;
  header->request_ring_offset = layout_.request_ring_offset;
  header->request_ring_bytes = layout_.request_ring_bytes;
  header->completion_ring_offset = layout_.completion_ring_offset;
  header->completion_ring_bytes = layout_.completion_ring_bytes;
  header->data_offset = layout_.data_offset;
  header->data_bytes = layout_.data_bytes;
  requests_ = RingWriter(request_ring(start, layout_));
  completions_ = RingReader(completion_ring(start, layout_));
  forget(request_event_.get());
  forget(completion_event_.get());
}

void Exchange::tell() const { signal(request_event_.get()); }
void Exchange::forget_completion() const { forget(completion_event_.get()); }

std::string Exchange::environment(const ArenaGrant& arena) {
  std::string text = fmt::format("version={} exchange=3 requests=4 completions=5", TIERCEL_CONNECTOR_VERSION);
  if (arena.fd >= 0) text += fmt::format(" arena=6:{}:{}", arena.bytes, arena.offset);
  return text;
}

}  // namespace tiercel
