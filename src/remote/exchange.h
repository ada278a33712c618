// The memory that a node and one connector process share, by the layout of tiercel/connector.h: header, two
// rings, data. Made by the node; the other side finds it by what its environment says (connector_side.h).
// All of it is claimed when it is made and sealed against shrinking: no access can fail.
//
// Threads: one. The data is as thread-safe as any memory.
#pragma once

#include <cstdint>
#include <string>

#include "base/status.h"
#include "os/fd.h"
#include "os/mapping.h"
#include "remote/message_ring.h"
#include "remote/remote_store.h"

namespace tiercel {

struct ExchangeOptions {
  std::uint64_t data_bytes = 64U << 20;
  std::uint64_t ring_bytes = 1U << 20;  // of each; a power of two, at least 4096
};

// Where the parts lie, in the order of the header's fields; the same for both sides.
struct ExchangeLayout {
  std::uint64_t total_bytes = 0;
  std::uint64_t request_ring_offset = 0, request_ring_bytes = 0;
  std::uint64_t completion_ring_offset = 0, completion_ring_bytes = 0;
  std::uint64_t data_offset = 0, data_bytes = 0;
  friend bool operator==(const ExchangeLayout&, const ExchangeLayout&) = default;
};
// Whether the parts are in order, apart from each other and within `mapped_bytes`. Errors: data_corrupt.
Status check_layout(const ExchangeLayout& layout, std::uint64_t mapped_bytes);
RingPlace request_ring(std::byte* exchange, const ExchangeLayout& layout);
RingPlace completion_ring(std::byte* exchange, const ExchangeLayout& layout);

class Exchange final {
 public:
  // Errors: invalid_argument: sizes that make no sense; resource_exhausted: memory or descriptors.
  static Result<Exchange> open(const ExchangeOptions& options);

  // As at the start: empty rings, no event, a header as it must be; the data stays. For the next connector.
  // Requires: no process writes to it any more.
  void restart();

  std::byte* data() { return memory_.bytes().data() + layout_.data_offset; }
  std::uint64_t data_bytes() const { return layout_.data_bytes; }
  const ExchangeLayout& layout() const { return layout_; }
  RingWriter& requests() { return requests_; }
  RingReader& completions() { return completions_; }

  int fd() const { return memory_.fd(); }
  int request_event() const { return request_event_.get(); }
  int completion_event() const { return completion_event_.get(); }
  void tell() const;               // the connector, of what was put
  void forget_completion() const;  // that there was an event; before the ring is looked at
  // The value of TIERCEL_CONNECTOR for descriptors 3, 4, 5 and, for an arena, 6.
  static std::string environment(const ArenaGrant& arena);

 private:
  Exchange() = default;

  Mapping memory_;
  ExchangeLayout layout_;
  Fd request_event_, completion_event_;
  RingWriter requests_;
  RingReader completions_;
};

}  // namespace tiercel
