#include "remote/connector_message.h"

#include <algorithm>

#include <fmt/format.h>

#include "base/check.h"
#include "base/checked.h"

namespace tiercel {
namespace {

constexpr std::size_t kRequestBytes = sizeof(tiercel_connector_request);
constexpr std::size_t kItemBytes = sizeof(tiercel_connector_item);
constexpr std::size_t kSegmentBytes = sizeof(tiercel_connector_segment);
constexpr std::size_t kCompletionBytes = sizeof(tiercel_connector_completion);
constexpr std::size_t kResultBytes = sizeof(tiercel_connector_result);
static_assert(kRequestBytes == 32 && kItemBytes == 16 && kSegmentBytes == 24);
static_assert(kCompletionBytes == 32 && kResultBytes == 16);
static_assert(std::endian::native == std::endian::little,
              "the structs of connector.h are copied as they stand");

std::uint64_t rounded(std::uint64_t bytes) { return (bytes + 7) / 8 * 8; }

template <typename T>
void put(std::byte* to, const T& value) {
  std::memcpy(to, &value, sizeof value);
}
template <typename T>
T get(ByteView from, std::uint64_t at) {
  T value;
  std::memcpy(&value, from.data() + at, sizeof value);
  return value;
}

tl::unexpected<Status> wrong(std::string_view message, std::string_view what, std::uint64_t wanted,
                             std::uint64_t got) {
  return error(Code::kDataCorrupt,
               fmt::format("{}: {}: wanted at most {}, got {}", message, what, wanted, got));
}

Status item_error(const RemoteBatch& batch, std::size_t item, std::string_view what) {
  return {Code::kInvalidArgument, fmt::format("batch: item {} of {}: {}", item, batch.items.size(), what)};
}

Status check_piece(const RemotePiece& piece, std::span<const std::uint64_t> region_bytes) {
  const std::uint64_t room = piece.region < region_bytes.size() ? region_bytes[piece.region] : 0;
  if (piece.length != 0 && piece.length <= room && piece.offset <= room - piece.length) return {};
  return {Code::kInvalidArgument,
          fmt::format("a piece of {} bytes at {} of region {}: wanted 1 byte or more within its {}",
                      piece.length, piece.offset, piece.region, room)};
}

// The names of a request lie behind its segments.
Result<RemoteItem> parse_item(ByteView message, const tiercel_connector_item& wire, std::uint64_t segments_at,
                              std::uint64_t names_at) {
  if (wire.name_offset < names_at || wire.name_offset > message.size() ||
      wire.name_bytes > message.size() - wire.name_offset)
    return wrong("request", "end of a name", message.size(),
                 std::uint64_t{wire.name_offset} + wire.name_bytes);
  RemoteItem item;
  item.name.assign(reinterpret_cast<const char*>(message.data()) + wire.name_offset, wire.name_bytes);
  if (!remote_name_valid(item.name))
    return error(Code::kDataCorrupt,
                 fmt::format("request: a name of {} bytes: wanted 1 to {} of [0-9A-Za-z._-]", wire.name_bytes,
                             TIERCEL_CONNECTOR_NAME_BYTES_MAX));
  item.pieces.reserve(wire.segments);
  for (std::uint64_t i = 0; i < wire.segments; ++i) {
    const auto segment =
        get<tiercel_connector_segment>(message, segments_at + (wire.first_segment + i) * kSegmentBytes);
    if (segment.length == 0) return error(Code::kDataCorrupt, "request: a segment of no bytes");
    item.pieces.push_back({segment.region, segment.offset, segment.length});
  }
  return item;
}

}  // namespace

bool operator==(const ConnectorRequest& a, const ConnectorRequest& b) {
  return a.verb == b.verb && a.batch == b.batch && a.deadline_ns == b.deadline_ns &&
         std::ranges::equal(a.items, b.items, [](const RemoteItem& x, const RemoteItem& y) {
           return x.name == y.name && x.pieces == y.pieces;
         });
}

std::uint16_t connector_verb(RemoteVerb verb) {
  switch (verb) {
    case RemoteVerb::kExists:
      return TIERCEL_CONNECTOR_EXISTS;
    case RemoteVerb::kGet:
      return TIERCEL_CONNECTOR_GET;
    case RemoteVerb::kPut:
      return TIERCEL_CONNECTOR_PUT;
    case RemoteVerb::kReplace:
      return TIERCEL_CONNECTOR_REPLACE;
    case RemoteVerb::kRemove:
      return TIERCEL_CONNECTOR_REMOVE;
  }
  return TIERCEL_CONNECTOR_EXISTS;
}

bool remote_name_valid(std::string_view name) {
  return !name.empty() && name.size() <= TIERCEL_CONNECTOR_NAME_BYTES_MAX &&
         std::ranges::all_of(name, [](char c) {
           return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || c == '.' ||
                  c == '_' || c == '-';
         });
}

Status check_batch(const RemoteBatch& batch, std::span<const std::uint64_t> region_bytes) {
  if (batch.items.size() > TIERCEL_CONNECTOR_ITEMS_MAX)
    return {Code::kInvalidArgument, fmt::format("batch: wanted at most {} items, got {}; make it several",
                                                TIERCEL_CONNECTOR_ITEMS_MAX, batch.items.size())};
  const bool moves = batch.verb != RemoteVerb::kExists && batch.verb != RemoteVerb::kRemove;
  std::uint64_t pieces = 0;
  for (std::size_t i = 0; i < batch.items.size(); ++i) {
    const RemoteItem& item = batch.items[i];
    if (!remote_name_valid(item.name))
      return item_error(batch, i,
                        fmt::format("name '{}' of {} bytes: wanted 1 to {} of [0-9A-Za-z._-]",
                                    one_line(std::string_view(item.name).substr(0, 40)), item.name.size(),
                                    TIERCEL_CONNECTOR_NAME_BYTES_MAX));
    if (moves == item.pieces.empty())
      return item_error(
          batch, i,
          fmt::format("wanted {}, got {} pieces",
                      moves ? "at least one piece" : "no pieces for exists and remove", item.pieces.size()));
    std::uint64_t total = 0;
    for (const RemotePiece& piece : item.pieces) {
      if (const Status status = check_piece(piece, region_bytes); !status.ok())
        return item_error(batch, i, status.message);
      if (__builtin_add_overflow(total, piece.length, &total))
        return item_error(batch, i, "its pieces together are more bytes than can be counted");
    }
    pieces += item.pieces.size();
  }
  if (pieces > TIERCEL_CONNECTOR_SEGMENTS_MAX)
    return {Code::kInvalidArgument, fmt::format("batch: wanted at most {} pieces, got {}; make it several",
                                                TIERCEL_CONNECTOR_SEGMENTS_MAX, pieces)};
  return {};
}

std::uint64_t request_bytes(std::span<const RemoteItem> items) {
  std::uint64_t bytes = kRequestBytes;
  for (const RemoteItem& item : items)
    bytes += kItemBytes + item.pieces.size() * kSegmentBytes + item.name.size();
  return rounded(bytes);
}

std::vector<std::byte> encode_request(std::uint16_t verb, std::uint64_t batch, std::uint64_t deadline_ns,
                                      std::span<const RemoteItem> items) {
  std::vector<std::byte> message(request_bytes(items));
  std::uint32_t segments = 0;
  for (const RemoteItem& item : items) segments += static_cast<std::uint32_t>(item.pieces.size());
  put(message.data(), tiercel_connector_request{.bytes = static_cast<std::uint32_t>(message.size()),
                                                .verb = verb,
                                                .reserved = 0,
                                                .batch = batch,
                                                .deadline_ns = deadline_ns,
                                                .items = static_cast<std::uint32_t>(items.size()),
                                                .segments = segments});
  std::uint64_t item_at = kRequestBytes;
  std::uint64_t segment_at = item_at + items.size() * kItemBytes;
  std::uint64_t name_at = segment_at + segments * kSegmentBytes;
  std::uint32_t first = 0;
  for (const RemoteItem& item : items) {
    const auto count = static_cast<std::uint32_t>(item.pieces.size());
    put(message.data() + item_at,
        tiercel_connector_item{static_cast<std::uint32_t>(name_at),
                               static_cast<std::uint32_t>(item.name.size()), first, count});
    for (const RemotePiece& piece : item.pieces) {
      put(message.data() + segment_at,
          tiercel_connector_segment{piece.region, 0, piece.offset, piece.length});
      segment_at += kSegmentBytes;
    }
    std::memcpy(message.data() + name_at, item.name.data(), item.name.size());
    name_at += item.name.size();
    item_at += kItemBytes;
    first += count;
  }
  return message;
}

std::vector<std::byte> encode_completion(const ConnectorCompletion& completion) {
  const std::string_view text = std::string_view(completion.text).substr(0, kConnectorTextBytesMax);
  const std::size_t results_bytes = completion.results.size() * kResultBytes;
  std::vector<std::byte> message(rounded(kCompletionBytes + results_bytes + text.size()));
  put(message.data(),
      tiercel_connector_completion{.bytes = static_cast<std::uint32_t>(message.size()),
                                   .verb = completion.verb,
                                   .reserved = 0,
                                   .batch = completion.batch,
                                   .status = completion.status,
                                   .text_bytes = static_cast<std::uint32_t>(text.size()),
                                   .items = static_cast<std::uint32_t>(completion.results.size()),
                                   .reserved2 = 0});
  std::byte* at = message.data() + kCompletionBytes;
  for (const ConnectorResult& result : completion.results) {
    put(at, tiercel_connector_result{result.status, 0, result.bytes});
    at += kResultBytes;
  }
  if (!text.empty()) std::memcpy(at, text.data(), text.size());
  return message;
}

Result<ConnectorRequest> parse_request(ByteView message) {
  if (message.size() < kRequestBytes) return wrong("request", "header", message.size(), kRequestBytes);
  const auto head = get<tiercel_connector_request>(message, 0);
  if (head.bytes != message.size()) return wrong("request", "length", message.size(), head.bytes);
  if (head.verb < TIERCEL_CONNECTOR_EXISTS || head.verb > TIERCEL_CONNECTOR_REPLACE)
    return wrong("request", "verb", TIERCEL_CONNECTOR_REPLACE, head.verb);
  if (head.batch == 0) return error(Code::kDataCorrupt, "request: batch 0");
  if (head.items > TIERCEL_CONNECTOR_ITEMS_MAX)
    return wrong("request", "items", TIERCEL_CONNECTOR_ITEMS_MAX, head.items);
  if (head.segments > TIERCEL_CONNECTOR_SEGMENTS_MAX)
    return wrong("request", "segments", TIERCEL_CONNECTOR_SEGMENTS_MAX, head.segments);
  const std::uint64_t segments_at = kRequestBytes + head.items * kItemBytes;
  const std::uint64_t names_at = segments_at + head.segments * kSegmentBytes;
  if (names_at > message.size()) return wrong("request", "items and segments", message.size(), names_at);
  ConnectorRequest request{head.verb, head.batch, head.deadline_ns, {}};
  request.items.reserve(head.items);
  std::uint64_t next_segment = 0;
  for (std::uint64_t i = 0; i < head.items; ++i) {
    const auto wire = get<tiercel_connector_item>(message, kRequestBytes + i * kItemBytes);
    if (wire.first_segment != next_segment || wire.segments > head.segments - next_segment)
      return wrong("request", "segments of an item", head.segments - next_segment, wire.segments);
    next_segment += wire.segments;
    TIERCEL_ASSIGN_OR_RETURN(RemoteItem item, parse_item(message, wire, segments_at, names_at));
    request.items.push_back(std::move(item));
  }
  if (next_segment != head.segments)
    return wrong("request", "segments of no item", next_segment, head.segments);
  return request;
}

Result<ConnectorCompletion> parse_completion(ByteView message) {
  if (message.size() < kCompletionBytes)
    return wrong("completion", "header", message.size(), kCompletionBytes);
  const auto head = get<tiercel_connector_completion>(message, 0);
  if (head.bytes != message.size()) return wrong("completion", "length", message.size(), head.bytes);
  if (head.verb != TIERCEL_CONNECTOR_HELLO && head.verb != TIERCEL_CONNECTOR_DONE)
    return wrong("completion", "verb", TIERCEL_CONNECTOR_DONE, head.verb);
  if (head.items > TIERCEL_CONNECTOR_ITEMS_MAX)
    return wrong("completion", "items", TIERCEL_CONNECTOR_ITEMS_MAX, head.items);
  if (head.text_bytes > kConnectorTextBytesMax)
    return wrong("completion", "text", kConnectorTextBytesMax, head.text_bytes);
  const std::uint64_t text_at = kCompletionBytes + head.items * kResultBytes;
  if (text_at + head.text_bytes > message.size())
    return wrong("completion", "results and text", message.size(), text_at + head.text_bytes);
  ConnectorCompletion completion{head.verb, head.batch, head.status, {}, {}};
  completion.results.reserve(head.items);
  for (std::uint64_t i = 0; i < head.items; ++i) {
    const auto wire = get<tiercel_connector_result>(message, kCompletionBytes + i * kResultBytes);
    completion.results.push_back({wire.status, wire.bytes});
  }
  completion.text.assign(reinterpret_cast<const char*>(message.data()) + text_at, head.text_bytes);
  return completion;
}

std::string one_line(std::string_view text) {
  std::string line(text.substr(0, kConnectorTextBytesMax));
  for (char& c : line)
    if (c < ' ' || c > '~') c = '?';
  return line;
}

}  // namespace tiercel
