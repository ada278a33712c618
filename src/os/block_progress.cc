#include "os/block_progress.h"

#include <algorithm>
#include <cerrno>
#include <system_error>
#include <utility>

#include <fmt/format.h>

#include "base/check.h"

namespace tiercel {
namespace {

constexpr BlockRange kFlushRange{0, 0};

std::string error_text(int number) { return std::generic_category().message(number); }

// The kernel says "not now": nothing is wrong yet.
bool passing(int number) { return number == EINTR || number == EAGAIN; }

Code code_of(int number) {
  switch (number) {
    case ENOSPC:
    case EDQUOT:
    case EFBIG:
      return Code::kResourceExhausted;
    case ENODEV:
    case ENXIO:
    case ENOMEDIUM:
    case ESHUTDOWN:
    case EBADF:
      return Code::kUnavailable;
    default:
      return Code::kIoError;
  }
}

}  // namespace

BlockProgress::BlockProgress(BlockWork work, std::uint64_t offset, std::uint64_t bytes)
    : work_(work), offset_(offset), bytes_(work == BlockWork::kFlush ? 1 : bytes) {}

std::optional<BlockRange> BlockProgress::next() const {
  if (failed()) return std::nullopt;
  if (!again_.empty()) return again_.back().range;
  if (fresh_ == bytes_) return std::nullopt;
  return work_ == BlockWork::kFlush ? kFlushRange : BlockRange{fresh_, bytes_};
}

void BlockProgress::started(BlockRange range) {
  const std::optional<BlockRange> pending = next();
  TIERCEL_CHECK(pending && range.from == pending->from && range.to <= pending->to);
  TIERCEL_CHECK(work_ == BlockWork::kFlush || (range.length() > 0 && range.length() % kBlockBytes == 0));
  under_way_.push_back({range, again_.empty() ? 0 : again_.back().fruitless});
  if (again_.empty()) {
    fresh_ = work_ == BlockWork::kFlush ? bytes_ : range.to;
    return;
  }
  again_.back().range.from = range.to;
  if (again_.back().range.length() == 0) again_.pop_back();
}

void BlockProgress::ended(BlockRange range, int result) {
  const auto found = std::find_if(under_way_.begin(), under_way_.end(),
                                  [&](const Try& each) { return each.range == range; });
  TIERCEL_CHECK(found != under_way_.end());
  const Try attempt = *found;
  under_way_.erase(found);
  if (result < 0) {
    if (passing(-result))
      fruitless(attempt, result);
    else
      fail(range, -result);
    return;
  }
  if (work_ == BlockWork::kFlush) {
    done_ = bytes_;
    return;
  }
  const auto moved = static_cast<std::uint64_t>(result);
  if (moved > range.length()) {
    if (!failed())
      status_ = {Code::kIoError, fmt::format("{}: the system said {} bytes, more than were asked for; the "
                                             "driver of this drive cannot be trusted",
                                             what(range), moved)};
    return;
  }
  const std::uint64_t whole = moved / kBlockBytes * kBlockBytes;
  done_ += whole;
  if (whole == 0) return fruitless(attempt, result);
  if (whole < range.length()) again_.push_back({{range.from + whole, range.to}, 0});
}

void BlockProgress::fruitless(Try attempt, int result) {
  if (++attempt.fruitless < kFruitlessMax) {
    again_.push_back(attempt);
    return;
  }
  const BlockRange range = attempt.range;
  if (result < 0) return fail(range, -result);
  if (!failed())
    status_ = {Code::kIoError, fmt::format("{}: wanted {} bytes, got {} in each of {} attempts; was the file "
                                           "made shorter?",
                                           what(range), range.length(), result, kFruitlessMax)};
}

void BlockProgress::fail(BlockRange range, int number) {
  if (!failed()) status_ = {code_of(number), fmt::format("{}: {}", what(range), error_text(number))};
}

std::string BlockProgress::what(BlockRange range) const {
  if (work_ == BlockWork::kFlush) return "flush";
  return fmt::format("{} of {} bytes at {}", work_ == BlockWork::kRead ? "read" : "write", range.length(),
                     offset_ + range.from);
}

}  // namespace tiercel
