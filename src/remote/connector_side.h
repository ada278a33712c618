// The connector's end of an exchange, for connectors in C++: finds the shared memory by its environment,
// takes requests whose pieces lie within their regions, sends completions.
//
// Threads: one takes, one completes; they may be the same.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "os/clock.h"
#include "remote/connector_message.h"
#include "remote/exchange.h"

namespace tiercel {

class ConnectorSide final {
 public:
  // `environment`: the value of TIERCEL_CONNECTOR. The descriptors that it names are this object's from then
  // on. Errors: invalid_argument, data_corrupt, resource_exhausted.
  static Result<ConnectorSide> attach(std::string_view environment);
  ConnectorSide(ConnectorSide&& other) noexcept;
  ConnectorSide& operator=(ConnectorSide&&) = delete;
  ~ConnectorSide();

  // The next request; nothing when there is none. Errors: data_corrupt: the node writes nonsense.
  Result<std::optional<ConnectorRequest>> take();
  // Readable when there may be requests; to poll together with standard input.
  int request_event() const { return request_event_; }
  // False: no room at the moment; try again a little later.
  bool complete(const ConnectorCompletion& completion);
  // A raw message on the completion ring, right or wrong.
  bool complete_raw(ByteView message);

  // The memory of a piece. Requires: of a request that was taken.
  MutableByteView memory(const RemotePiece& piece) const;
  std::uint64_t region_bytes(std::uint32_t region) const { return region < 2 ? regions_[region].size() : 0; }
  // The node's end, past all rules: for tests of what the node makes of it.
  std::byte* exchange() const { return mapped_[0].data(); }
  const ExchangeLayout& layout() const { return layout_; }

 private:
  ConnectorSide() = default;

  ExchangeLayout layout_;
  MutableByteView mapped_[2];
  MutableByteView regions_[2];
  int exchange_fd_ = -1, arena_fd_ = -1, request_event_ = -1, completion_event_ = -1;
  RingReader requests_;
  RingWriter completions_;
};

}  // namespace tiercel
