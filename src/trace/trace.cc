#include "trace/trace.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <system_error>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/checked.h"

namespace tiercel {
namespace {

constexpr std::size_t kBufferBytes = 64 << 10;
constexpr std::uint64_t kNoPredecessor = UINT64_MAX;  // no id: ids stay below 2^63

// Takes the four fields out of one object without building a tree: deep or wide nonsense costs nothing.
class RequestHandler final : public nlohmann::json_sax<nlohmann::json> {
 public:
  std::string failure;  // empty when the line is a request

  TraceRequest finish() {
    if (failure.empty())
      for (const Field& field : fields_)
        if (!field.seen) fail(fmt::format("field '{}' is missing", field.name));
    request_.timestamp_ms = fields_[kTimestamp].value;
    request_.input_length = fields_[kInput].value;
    request_.output_length = fields_[kOutput].value;
    return std::move(request_);
  }

  bool key(string_t& name) override {
    if (depth_ != 1) return true;
    current_ = kNone;
    for (std::size_t i = 0; i < kNone; ++i)
      if (fields_[i].name == name) current_ = static_cast<FieldIndex>(i);
    if (current_ == kNone) return true;
    if (fields_[current_].seen) return fail(fmt::format("field '{}' is given twice", name));
    fields_[current_].seen = true;
    return true;
  }
  bool number_unsigned(number_unsigned_t value) override {
    if (in_list()) {
      if (value > kSizeMax) return fail(fmt::format("hash_ids has {}, which is above 2^63 - 1", value));
      request_.blocks.push_back(value);
      return true;
    }
    if (wrong_here()) return refuse("a number");
    if (depth_ != 1 || current_ == kNone) return true;
    if (value > fields_[current_].max)
      return fail(fmt::format("{} is {}, above the most that is accepted ({})", fields_[current_].name, value,
                              fields_[current_].max));
    fields_[current_].value = value;
    return true;
  }
  bool number_integer(number_integer_t value) override {
    return known() ? refuse(fmt::format("{}", value)) : true;
  }
  bool number_float(number_float_t, const string_t& text) override { return known() ? refuse(text) : true; }
  bool null() override { return known() ? refuse("null") : true; }
  bool boolean(bool) override { return known() ? refuse("a truth value") : true; }
  bool string(string_t&) override { return known() ? refuse("a string") : true; }
  bool binary(binary_t&) override { return refuse("binary data"); }
  bool start_object(std::size_t) override {
    if (depth_ > 0 && known()) return refuse("an object");
    ++depth_;
    return true;
  }
  bool end_object() override { return --depth_, true; }
  bool start_array(std::size_t) override {
    if (depth_ == 1 && current_ == kList) {
      ++depth_;
      return true;
    }
    if (known()) return refuse("a list");
    ++depth_;
    return true;
  }
  bool end_array() override {
    if (--depth_ == 1) current_ = kNone;
    return true;
  }
  bool parse_error(std::size_t position, const std::string&, const nlohmann::detail::exception&) override {
    return fail(fmt::format("not a JSON object (at byte {})", position));
  }

 private:
  enum FieldIndex : std::uint8_t { kTimestamp, kInput, kOutput, kList, kNone };
  struct Field {
    std::string_view name;
    std::uint64_t max;
    std::uint64_t value = 0;
    bool seen = false;
  };

  bool in_list() const { return depth_ == 2 && current_ == kList; }
  // Whether a value here belongs to one of the four fields, or stands where the object should.
  bool known() const { return depth_ == 0 || in_list() || (depth_ == 1 && current_ != kNone); }
  bool wrong_here() const { return depth_ == 0 || (depth_ == 1 && current_ == kList); }
  bool fail(std::string what) {
    if (failure.empty()) failure = std::move(what);
    return false;
  }
  bool refuse(std::string_view got) {
    if (depth_ == 0) return fail(fmt::format("wanted one JSON object, got {}", got));
    if (in_list()) return fail(fmt::format("hash_ids must hold whole numbers from 0, got {}", got));
    if (current_ == kList) return fail(fmt::format("hash_ids must be a list of whole numbers, got {}", got));
    return fail(fmt::format("{} must be a whole number from 0, got {}", fields_[current_].name, got));
  }

  Field fields_[4] = {{"timestamp", kTraceTimestampMax},
                      {"input_length", kTraceLineBytesMax* kTraceBlockTokens},
                      {"output_length", kTraceLineBytesMax* kTraceBlockTokens},
                      {"hash_ids", 0}};
  FieldIndex current_ = kNone;
  std::uint64_t depth_ = 0;
  TraceRequest request_;
};

std::string reason_of(int number) { return std::error_code(number, std::generic_category()).message(); }

bool blank(std::string_view text) { return text.find_first_not_of(" \t\r") == std::string_view::npos; }

}  // namespace

Result<FileSource> FileSource::open(const std::string& path) {
  if (path == "-") return FileSource("standard input", stdin);
  std::FILE* file = std::fopen(path.c_str(), "rb");
  if (file == nullptr)
    return error(errno == ENOENT ? Code::kNotFound : Code::kIoError,
                 fmt::format("trace {}: cannot be opened: {}", path, reason_of(errno)));
  return FileSource(path, file);
}

void FileSource::Close::operator()(std::FILE* file) const {
  if (file != stdin) std::fclose(file);
}

Result<std::size_t> FileSource::read(std::span<char> into) {
  const std::size_t count = std::fread(into.data(), 1, into.size(), file_.get());
  if (count == 0 && std::ferror(file_.get()) != 0)
    return error(Code::kIoError, fmt::format("trace {}: cannot be read: {}", path_, reason_of(errno)));
  return count;
}

Result<std::size_t> TextSource::read(std::span<char> into) {
  const std::size_t count = std::min(into.size(), rest_.size());
  std::copy_n(rest_.begin(), count, into.begin());
  rest_.remove_prefix(count);
  return count;
}

TraceReader::TraceReader(ByteSource& source, std::string name, OnDamage on_damage)
    : source_(source), name_(std::move(name)), on_damage_(on_damage), buffer_(kBufferBytes) {}

// Leaves the next line, without its "\n", in text_. Of a line that is too long the rest is passed over.
Result<TraceReader::Line> TraceReader::read_line() {
  text_.clear();
  bool too_long = false;
  bool any = false;
  for (;;) {
    if (begin_ == end_) {
      TIERCEL_ASSIGN_OR_RETURN(end_, source_.read(buffer_));
      begin_ = 0;
      if (end_ == 0) break;
    }
    any = true;
    const char* from = buffer_.data() + begin_;
    const auto* newline = static_cast<const char*>(std::memchr(from, '\n', end_ - begin_));
    const std::size_t count = newline != nullptr ? static_cast<std::size_t>(newline - from) : end_ - begin_;
    if (text_.size() + count > kTraceLineBytesMax)
      too_long = true;
    else
      text_.append(from, count);
    begin_ += count;
    if (newline == nullptr) continue;
    ++begin_;
    break;
  }
  if (!any) return Line::kEnd;
  ++line_;
  return too_long ? Line::kTooLong : Line::kRead;
}

Result<TraceRequest> TraceReader::take(std::string_view text) {
  // The JSON reader would take a NUL for the end of its input.
  if (const auto nul = text.find('\0'); nul != std::string_view::npos)
    return error(Code::kDataCorrupt, fmt::format("a NUL byte at position {}", nul));
  RequestHandler handler;
  nlohmann::json::sax_parse(text.begin(), text.end(), &handler);
  TraceRequest request = handler.finish();
  if (!handler.failure.empty()) return error(Code::kDataCorrupt, std::move(handler.failure));
  const std::uint64_t wanted = ceil_div(request.input_length, kTraceBlockTokens);
  if (request.blocks.size() != wanted)
    return error(Code::kDataCorrupt,
                 fmt::format("input_length {} needs {} hash_ids (one per {} tokens), got {}",
                             request.input_length, wanted, kTraceBlockTokens, request.blocks.size()));
  TIERCEL_RETURN_IF_ERROR(check_chain(request.blocks));
  return request;
}

// An id stands for a whole prefix, so it has the same predecessor wherever it occurs. One that has two would
// make prefixes that do not exist, even cycles. A line that breaks this leaves no trace in the table.
Status TraceReader::check_chain(const std::vector<std::uint64_t>& blocks) {
  std::uint64_t before = kNoPredecessor;
  std::vector<std::uint64_t> added;
  for (const std::uint64_t block : blocks) {
    const auto [entry, is_new] = predecessor_.try_emplace(block, before);
    if (is_new) added.push_back(block);
    if (entry->second != before) {
      const auto name = [](std::uint64_t id) {
        return id == kNoPredecessor ? std::string("nothing") : fmt::format("{}", id);
      };
      Status status{Code::kDataCorrupt,
                    fmt::format("hash_ids has {} after {}, elsewhere after {}: ids must be prefix-chained",
                                block, name(before), name(entry->second))};
      for (const std::uint64_t id : added) predecessor_.erase(id);
      return status;
    }
    before = block;
  }
  return {};
}

Result<std::optional<TraceRequest>> TraceReader::next() {
  for (;;) {
    TIERCEL_ASSIGN_OR_RETURN(const Line line, read_line());
    if (line == Line::kEnd) return std::optional<TraceRequest>();
    if (line == Line::kRead && blank(text_)) continue;
    Result<TraceRequest> request =
        line == Line::kTooLong
            ? error(Code::kDataCorrupt, fmt::format("the line is longer than {} bytes", kTraceLineBytesMax))
            : take(text_);
    if (request) return std::optional<TraceRequest>(std::move(*request));
    if (on_damage_ == OnDamage::kStop)
      return error(request.error().code,
                   fmt::format("trace {} line {}: {}", name_, line_, request.error().message));
    ++skipped_;
  }
}

Result<Trace> read_trace(const std::string& path, TraceReader::OnDamage on_damage) {
  TIERCEL_ASSIGN_OR_RETURN(FileSource source, FileSource::open(path));
  TraceReader reader(source, path == "-" ? "standard input" : path, on_damage);
  Trace trace;
  for (;;) {
    TIERCEL_ASSIGN_OR_RETURN(std::optional<TraceRequest> request, reader.next());
    if (!request) break;
    trace.requests.push_back(std::move(*request));
  }
  trace.skipped_lines = reader.skipped();
  return trace;
}

TraceStatistics statistics_of(std::span<const TraceRequest> requests) {
  TraceStatistics statistics;
  std::unordered_map<std::uint64_t, std::uint64_t> uses;
  for (const TraceRequest& request : requests) {
    std::size_t hits = 0;
    while (hits < request.blocks.size() && uses.contains(request.blocks[hits])) ++hits;
    for (const std::uint64_t block : request.blocks) ++uses[block];
    ++statistics.requests;
    statistics.blocks += request.blocks.size();
    statistics.ideal_hits += hits;
    if (hits > 0 && hits == request.blocks.size()) ++statistics.full_hits;
    statistics.tokens += request.input_length;
    statistics.duration_ms = std::max(statistics.duration_ms, request.timestamp_ms);
  }
  statistics.unique_blocks = uses.size();
  for (const auto& [block, count] : uses) statistics.used_once += count == 1 ? 1 : 0;
  return statistics;
}

}  // namespace tiercel
