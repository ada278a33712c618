#include "remote/connector_side.h"

#include <cerrno>
#include <charconv>
#include <cstring>
#include <utility>

#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tiercel/connector.h"

namespace tiercel {
namespace {

tl::unexpected<Status> bad(std::string_view what, std::string_view got) {
  return error(Code::kInvalidArgument,
               fmt::format("TIERCEL_CONNECTOR: {}: wanted what a node sets, got '{}'", what, one_line(got)));
}

// "name=" NUMBER [":" NUMBER]... of a text of such words; false where it is not there or is no number.
bool numbers_of(std::string_view text, std::string_view name, std::span<std::uint64_t> numbers) {
  while (!text.empty()) {
    std::string_view word = text.substr(0, text.find(' '));
    text.remove_prefix(std::min(text.size(), word.size() + 1));
    if (!word.starts_with(name) || word.size() == name.size() || word[name.size()] != '=') continue;
    word.remove_prefix(name.size());
    for (std::uint64_t& number : numbers) {
      if (word.empty()) return false;
      word.remove_prefix(1);
      const auto read = std::from_chars(word.data(), word.data() + word.size(), number);
      if (read.ec != std::errc{}) return false;
      word.remove_prefix(static_cast<std::size_t>(read.ptr - word.data()));
    }
    return word.empty();
  }
  return false;
}

Result<MutableByteView> map_file(int fd, std::uint64_t offset, std::uint64_t bytes) {
  const auto at_offset = static_cast<off_t>(offset);
  void* at = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, at_offset);
  if (at == MAP_FAILED)
    return error(
        Code::kResourceExhausted,
        fmt::format("exchange: {} bytes at {} of descriptor {} cannot be mapped: {}", bytes, offset, fd,
                    std::strerror(errno)));  // NOLINT(concurrency-mt-unsafe): one of fixed texts
  return MutableByteView(static_cast<std::byte*>(at), bytes);
}

std::uint64_t file_bytes(int fd) {
  struct stat found {};
  return ::fstat(fd, &found) == 0 && found.st_size > 0 ? static_cast<std::uint64_t>(found.st_size) : 0;
}

}  // namespace

Result<ConnectorSide> ConnectorSide::attach(std::string_view environment) {
  ConnectorSide side;
  const auto descriptor = [&](std::string_view name, int& fd) {
    std::uint64_t number[1] = {};
    if (!numbers_of(environment, name, number) || number[0] > 1'000'000) return false;
    fd = static_cast<int>(number[0]);
    return true;
  };
  std::uint64_t version[1] = {};
  if (!numbers_of(environment, "version", version) || version[0] != TIERCEL_CONNECTOR_VERSION)
    return bad("version", environment);
  if (!descriptor("exchange", side.exchange_fd_) || !descriptor("requests", side.request_event_) ||
      !descriptor("completions", side.completion_event_))
    return bad("descriptors", environment);
  const std::uint64_t bytes = file_bytes(side.exchange_fd_);
  if (bytes < sizeof(tiercel_connector_exchange)) return bad("exchange", environment);
  TIERCEL_ASSIGN_OR_RETURN(side.mapped_[0], map_file(side.exchange_fd_, 0, bytes));
  tiercel_connector_exchange header;
  std::memcpy(&header, side.mapped_[0].data(), sizeof header);
  if (header.magic != TIERCEL_CONNECTOR_MAGIC || header.version != TIERCEL_CONNECTOR_VERSION)
    return bad("exchange's header", environment);
  side.layout_ = {header.total_bytes,
                  header.request_ring_offset,
                  header.request_ring_bytes,
                  header.completion_ring_offset,
                  header.completion_ring_bytes,
                  header.data_offset,
                  header.data_bytes};
  TIERCEL_RETURN_IF_ERROR(check_layout(side.layout_, bytes));
  side.regions_[0] = side.mapped_[0].subspan(header.data_offset, header.data_bytes);
  std::uint64_t arena[3] = {};  // descriptor, bytes, offset
  if (numbers_of(environment, "arena", arena)) {
    side.arena_fd_ = static_cast<int>(arena[0]);
    const std::uint64_t size = file_bytes(side.arena_fd_);
    if (arena[1] == 0 || arena[1] > size || arena[2] > size - arena[1]) return bad("arena", environment);
    TIERCEL_ASSIGN_OR_RETURN(side.mapped_[1], map_file(side.arena_fd_, 0, size));
    side.regions_[1] = side.mapped_[1].subspan(arena[2], arena[1]);
  }
  side.requests_ = RingReader(request_ring(side.mapped_[0].data(), side.layout_));
  side.completions_ = RingWriter(completion_ring(side.mapped_[0].data(), side.layout_));
  return side;
}

ConnectorSide::ConnectorSide(ConnectorSide&& other) noexcept
    : layout_(other.layout_), requests_(other.requests_), completions_(other.completions_) {
  for (int i = 0; i < 2; ++i) {
    mapped_[i] = std::exchange(other.mapped_[i], {});
    regions_[i] = std::exchange(other.regions_[i], {});
  }
  exchange_fd_ = std::exchange(other.exchange_fd_, -1);
  arena_fd_ = std::exchange(other.arena_fd_, -1);
  request_event_ = std::exchange(other.request_event_, -1);
  completion_event_ = std::exchange(other.completion_event_, -1);
}

ConnectorSide::~ConnectorSide() {
  for (const MutableByteView& mapped : mapped_)
    if (!mapped.empty()) ::munmap(mapped.data(), mapped.size());
  for (const int fd : {exchange_fd_, arena_fd_, request_event_, completion_event_})
    if (fd >= 0) ::close(fd);
}

Result<std::optional<ConnectorRequest>> ConnectorSide::take() {
  std::vector<std::byte> message;
  RingReader::Take taken = requests_.take(message);
  if (taken == RingReader::Take::kEmpty) {  // the event first, then once more: see connector.h
    std::uint64_t count = 0;
    if (::read(request_event_, &count, sizeof count) > 0) taken = requests_.take(message);
  }
  if (taken == RingReader::Take::kEmpty) return std::optional<ConnectorRequest>();
  if (taken == RingReader::Take::kNonsense)
    return error(Code::kDataCorrupt, fmt::format("request ring: {}", requests_.nonsense()));
  TIERCEL_ASSIGN_OR_RETURN(ConnectorRequest request, parse_request(message));
  for (const RemoteItem& item : request.items)
    for (const RemotePiece& piece : item.pieces) {
      const std::uint64_t room = region_bytes(piece.region);
      if (piece.length > room || piece.offset > room - piece.length)
        return error(Code::kDataCorrupt, fmt::format("request: {} bytes at {} of region {}, which has {}",
                                                     piece.length, piece.offset, piece.region, room));
    }
  return std::optional<ConnectorRequest>(std::move(request));
}

bool ConnectorSide::complete(const ConnectorCompletion& completion) {
  return complete_raw(encode_completion(completion));
}

bool ConnectorSide::complete_raw(ByteView message) {
  if (completions_.put(message) != RingWriter::Put::kPut) return false;
  const std::uint64_t one = 1;
  return ::write(completion_event_, &one, sizeof one) == sizeof one;
}

MutableByteView ConnectorSide::memory(const RemotePiece& piece) const {
  return regions_[piece.region].subspan(piece.offset, piece.length);
}

}  // namespace tiercel
