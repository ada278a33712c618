// Request traces: JSON lines with arrival, lengths and the prefix-chained ids of 512-token prompt blocks, the
// form in which the Mooncake project publishes them. Nothing in a line is trusted: a damaged one gives its
// number and stops, or is counted and passed over.
//
// Threads: a reader is used by one thread; the rest are plain values and pure functions.
#pragma once

#include <cstdint>
#include <cstdio>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/status.h"

namespace tiercel {

inline constexpr std::uint64_t kTraceBlockTokens = 512;
inline constexpr std::uint64_t kTraceLineBytesMax = 16ULL << 20;
// Milliseconds whose nanoseconds still fit a signed 64-bit integer.
inline constexpr std::uint64_t kTraceTimestampMax = 9'000'000'000'000;

struct TraceRequest {
  std::uint64_t timestamp_ms = 0;
  std::uint64_t input_length = 0;  // tokens
  std::uint64_t output_length = 0;
  std::vector<std::uint64_t> blocks;  // one id per block; an id stands for the whole prefix it ends
  // Blocks without a partial last one: lengths at which a snapshot can exist.
  std::uint64_t full_blocks() const { return input_length / kTraceBlockTokens; }
  friend bool operator==(const TraceRequest&, const TraceRequest&) = default;
};

struct Trace {
  std::vector<TraceRequest> requests;
  std::uint64_t skipped_lines = 0;
};

// Where the reader's bytes come from.
class ByteSource {
 public:
  virtual ~ByteSource() = default;
  // Bytes written to the start of `into`; 0 at the end. Errors: io_error.
  virtual Result<std::size_t> read(std::span<char> into) = 0;
};

class FileSource final : public ByteSource {
 public:
  // "-" is standard input. Errors: not_found, io_error with the path and the system's reason.
  static Result<FileSource> open(const std::string& path);
  Result<std::size_t> read(std::span<char> into) override;

 private:
  struct Close {
    void operator()(std::FILE* file) const;
  };
  FileSource(std::string path, std::FILE* file) : path_(std::move(path)), file_(file) {}
  std::string path_;
  std::unique_ptr<std::FILE, Close> file_;
};

class TextSource final : public ByteSource {
 public:
  explicit TextSource(std::string_view text) : rest_(text) {}  // `text` must outlive it
  Result<std::size_t> read(std::span<char> into) override;

 private:
  std::string_view rest_;
};

// Reads line by line. Memory: one line, and one small entry per block id seen.
class TraceReader final {
 public:
  enum class OnDamage : std::uint8_t { kStop, kSkip };
  // `name` stands in messages. `source` must outlive the reader.
  TraceReader(ByteSource& source, std::string name, OnDamage on_damage);

  // The next request; nothing at the end. Lines end with "\n" or "\r\n", the last one need not; blank lines
  // are passed over. Errors: data_corrupt with name, line number and what is wrong; io_error from the source.
  Result<std::optional<TraceRequest>> next();
  std::uint64_t line() const { return line_; }  // number of the line last read, from 1
  std::uint64_t skipped() const { return skipped_; }

 private:
  enum class Line : std::uint8_t { kRead, kTooLong, kEnd };
  Result<Line> read_line();
  Result<TraceRequest> take(std::string_view text);
  Status check_chain(const std::vector<std::uint64_t>& blocks);

  ByteSource& source_;
  std::string name_;
  OnDamage on_damage_;
  std::vector<char> buffer_;
  std::size_t begin_ = 0, end_ = 0;  // unread part of buffer_
  std::string text_;                 // the current line
  std::uint64_t line_ = 0;
  std::uint64_t skipped_ = 0;
  // Each id's only predecessor; kNoPredecessor for first blocks.
  std::unordered_map<std::uint64_t, std::uint64_t> predecessor_;
};

// All of a file. Errors: those of FileSource and TraceReader.
Result<Trace> read_trace(const std::string& path, TraceReader::OnDamage on_damage);

// What a trace is like, with an infinite cache and full attention as the yardstick.
struct TraceStatistics {
  std::uint64_t requests = 0;
  std::uint64_t blocks = 0;  // references
  std::uint64_t unique_blocks = 0;
  std::uint64_t used_once = 0;   // of unique_blocks
  std::uint64_t ideal_hits = 0;  // blocks of the longest prefixes all of whose ids were seen before
  std::uint64_t full_hits = 0;   // requests all of whose blocks were
  std::uint64_t tokens = 0;
  std::uint64_t duration_ms = 0;
};
TraceStatistics statistics_of(std::span<const TraceRequest> requests);

}  // namespace tiercel
