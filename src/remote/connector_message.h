// The messages of tiercel/connector.h as values: encoded, and parsed with every length checked. Both
// directions of both, so that a connector in C++ and the tests use the same code as the node.
//
// Threads: pure functions.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "base/status.h"
#include "remote/remote_store.h"
#include "tiercel/connector.h"

namespace tiercel {

struct ConnectorRequest {
  std::uint16_t verb = 0;  // tiercel_connector_verb, one of requests
  std::uint64_t batch = 0;
  std::uint64_t deadline_ns = 0;
  std::vector<RemoteItem> items;
  friend bool operator==(const ConnectorRequest& a, const ConnectorRequest& b);
};

struct ConnectorResult {
  std::int32_t status = 0;
  std::uint64_t bytes = 0;
  friend bool operator==(const ConnectorResult&, const ConnectorResult&) = default;
};

struct ConnectorCompletion {
  std::uint16_t verb = 0;  // TIERCEL_CONNECTOR_HELLO or TIERCEL_CONNECTOR_DONE
  std::uint64_t batch = 0;
  std::int32_t status = 0;
  std::string text;  // as it came: whoever shows it uses one_line()
  std::vector<ConnectorResult> results;
  friend bool operator==(const ConnectorCompletion&, const ConnectorCompletion&) = default;
};

inline constexpr std::size_t kConnectorTextBytesMax = 4096;

std::uint16_t connector_verb(RemoteVerb verb);

// Whether it is 1 to 120 bytes of [0-9A-Za-z._-].
bool remote_name_valid(std::string_view name);

// What submit() asks of every batch before anything is touched; the size of each region by its number.
// Errors: invalid_argument, naming the item, what was wanted and what it has.
Status check_batch(const RemoteBatch& batch, std::span<const std::uint64_t> region_bytes);

// The bytes of a request before it is encoded.
std::uint64_t request_bytes(std::span<const RemoteItem> items);
std::vector<std::byte> encode_request(std::uint16_t verb, std::uint64_t batch, std::uint64_t deadline_ns,
                                      std::span<const RemoteItem> items);
// Longer texts are cut.
std::vector<std::byte> encode_completion(const ConnectorCompletion& completion);

// Errors: data_corrupt, saying what was wanted and what is there. Pieces are not compared with regions here.
Result<ConnectorRequest> parse_request(ByteView message);
Result<ConnectorCompletion> parse_completion(ByteView message);

// Somebody else's text as one line of printable ASCII: it goes into logs, statistics and JSON.
std::string one_line(std::string_view text);

}  // namespace tiercel
