#include "disk/drive_io.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "base/check.h"

namespace tiercel::disk {
namespace {

// Read at once while opening.
constexpr std::size_t kReadsAtOnce = 64;
constexpr int kReadTries = 4;

Status no_answer() { return {Code::kIoError, "disk: the drive does not answer: open again when it does"}; }

}  // namespace

std::vector<BlockDone> DriveIo::wait_for_ends() {
  const Time since = clock_.now();
  Time last = since;
  for (int vain = 0; vain < kVainWaitsMax;) {
    std::vector<BlockDone> ends = drive_.drain();
    if (!ends.empty()) return ends;
    const Time until = later(since, stall_after_);
    if (clock_.now() >= until) break;
    drive_.wait(until - clock_.now());
    vain = clock_.now() == last ? vain + 1 : 0;
    last = clock_.now();
  }
  gave_up_ = true;
  return {};
}

void DriveIo::read_all(std::span<Range> ranges) {
  std::vector<Range*> left;
  for (Range& range : ranges) left.push_back(&range);
  for (int tries = 0; tries < kReadTries && !left.empty() && !gave_up_; ++tries) {
    read_once(left);
    std::erase_if(left, [](const Range* range) { return range->status.ok(); });
  }
  if (gave_up_)
    for (Range& range : ranges) range.status = no_answer();
  else if (!left.empty() && unreadable_.ok())
    unreadable_ = {Code::kIoError, fmt::format("disk: cannot be read at offset {}: {}", left.front()->offset,
                                               left.front()->status.message)};
}

void DriveIo::read_once(std::span<Range*> ranges) {
  const std::uint64_t first_id = last_id_ + 1;
  last_id_ += ranges.size();
  kept_.assign(ranges.size(), {});
  std::size_t begun = 0, ended = 0;
  while (ended < ranges.size()) {
    if (gave_up_) return;
    while (begun < ranges.size() && begun - ended < kReadsAtOnce) {
      const Range& range = *ranges[begun];
      MutableByteView into = range.into;
      if (!range.stays) {
        kept_[begun].resize(into.size());
        into = kept_[begun];
      }
      BlockRequest request;
      request.id = first_id + begun;
      request.offset = range.offset;
      request.pieces = {{into.data(), into.size()}};
      if (!drive_.submit(std::move(request))) break;
      read_bytes_ += into.size();
      ++begun;
    }
    for (BlockDone& done : wait_for_ends()) {
      if (done.id < first_id || done.id > last_id_) continue;  // of an earlier user, who gave up
      const std::size_t i = done.id - first_id;
      std::copy(kept_[i].begin(), kept_[i].end(), ranges[i]->into.begin());
      kept_[i] = {};
      ranges[i]->status = std::move(done.status);
      ++ended;
      if (ranges[i]->status.ok() && ranges[i]->arrived) ranges[i]->arrived();
    }
  }
}

Status DriveIo::run(BlockRequest request) {
  if (gave_up_) return no_answer();
  request.id = ++last_id_;
  while (!drive_.submit(request))
    if (wait_for_ends().empty()) return no_answer();
  for (;;) {
    const std::vector<BlockDone> ends = wait_for_ends();
    if (ends.empty()) return no_answer();
    for (const BlockDone& done : ends)
      if (done.id == last_id_) return done.status;
  }
}

Status DriveIo::read(std::uint64_t offset, MutableByteView into) {
  Range range{offset, into, {}, false};
  read_all({&range, 1});
  return range.status;
}

Status DriveIo::write(std::uint64_t offset, ByteView bytes) {
  if (gave_up_) return no_answer();  // what is kept may still be read into
  BlockRequest request;
  request.work = BlockWork::kWrite;
  request.offset = offset;
  kept_.assign(1, std::vector<std::byte>(bytes.begin(), bytes.end()));
  request.pieces = {{kept_.front().data(), kept_.front().size()}};
  written_bytes_ += bytes.size();
  return run(std::move(request));
}

Status DriveIo::flush() {
  BlockRequest request;
  request.work = BlockWork::kFlush;
  return run(std::move(request));
}

}  // namespace tiercel::disk
