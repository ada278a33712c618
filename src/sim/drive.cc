#include "sim/drive.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "base/check.h"

// A log lets memory go for ever where a drive that does not answer may still write into it. That is no leak.
extern "C" const char* __lsan_default_suppressions();  // NOLINT: its name is the sanitizer's
extern "C" const char* __lsan_default_suppressions() { return "leak:tiercel::DiskLog::open\n"; }  // NOLINT

namespace tiercel::sim {
namespace {

constexpr double kErrorShareInTrouble = 0.8;
constexpr Duration kIdleTurn = std::chrono::microseconds(20);

std::vector<std::byte> gather(const BlockRequest& request) {
  std::vector<std::byte> bytes;
  bytes.reserve(request.bytes());
  for (const BlockPiece& piece : request.pieces) {
    if (piece.data != nullptr)
      bytes.insert(bytes.end(), piece.data, piece.data + piece.length);
    else
      bytes.resize(bytes.size() + piece.length);
  }
  return bytes;
}

bool overlap(const BlockRequest& a, const BlockRequest& b) {
  return a.offset < b.offset + b.bytes() && b.offset < a.offset + a.bytes();
}

}  // namespace

SimDrive::SimDrive(DriveContent content, ManualClock& clock, DriveNature nature, std::uint64_t seed)
    : content_(std::move(content.bytes)),
      clock_(clock),
      nature_(nature),
      prng_(mix64(seed ^ 0xD15C)),
      unflushed_(std::move(content.unflushed)),
      ended_writes_(unflushed_.size()) {
  for (std::size_t i = 0; i < unflushed_.size(); ++i) unflushed_[i].id = i;
}

void SimDrive::note_misuse(std::string text) {
  if (!misuse_) misuse_ = std::move(text);
}

void SimDrive::check_overlap(const BlockRequest& request) {
  for (const Operation& other : operations_)
    if (request.work == BlockWork::kWrite && other.request.work == BlockWork::kWrite && !other.cut &&
        overlap(request, other.request))
      note_misuse(fmt::format("a write at {} of {} bytes while one at {} of {} bytes is under way",
                              request.offset, request.bytes(), other.request.offset, other.request.bytes()));
}

bool SimDrive::submit(BlockRequest request) {
  if (operations_.size() >= nature_.depth) return false;
  const std::uint64_t bytes = request.bytes();
  Operation operation;
  if (request.work == BlockWork::kFlush) {
    ++counts_.flushes;
    operation.covers = ended_writes_;
    if (bytes != 0 || request.offset != 0) note_misuse("a flush with an offset or pieces");
  } else if (bytes == 0 || bytes % kBlockBytes != 0 || request.offset % kBlockBytes != 0 ||
             request.offset > size_bytes() || bytes > size_bytes() - request.offset) {
    note_misuse(fmt::format("{} bytes at {} of a drive of {} bytes", bytes, request.offset, size_bytes()));
    request.pieces.clear();
  }
  if (writes_forbidden_ && request.work != BlockWork::kRead)
    note_misuse("a write or flush where only reading is allowed");
  check_overlap(request);
  if (request.work == BlockWork::kRead) ++counts_.reads;
  if (request.work == BlockWork::kWrite) {
    ++counts_.writes;
    counts_.written_bytes += bytes;
    operation.bytes = gather(request);
    if (trap_ && (trap_->one_block ? bytes == kBlockBytes && request.offset >= trap_->offset
                                   : request.offset < trap_->offset)) {
      power_fails_in_ = trap_->operations;
      trap_.reset();
    }
  }
  operation.request = std::move(request);
  choose_end(operation);
  operations_.push_back(std::move(operation));
  return true;
}

Status SimDrive::error_of(BlockWork work) {
  if (power_off_ || troubled(Trouble::kGone)) return {Code::kUnavailable, "simulated drive: gone"};
  if (calm_) return {};
  const auto failing = [&](double share, Trouble kind) {
    return prng_.chance(troubled(kind) ? kErrorShareInTrouble : share);
  };
  switch (work) {
    case BlockWork::kRead:
      if (failing(nature_.read_error, Trouble::kReadErrors))
        return {Code::kIoError, "simulated drive: read failed"};
      return {};
    case BlockWork::kFlush:
      if (failing(nature_.flush_error, Trouble::kFlushErrors))
        return {Code::kIoError, "simulated drive: flush failed"};
      return {};
    case BlockWork::kWrite:
      if (failing(nature_.write_error, Trouble::kWriteErrors))
        return {Code::kIoError, "simulated drive: write failed"};
      if (failing(nature_.no_space, Trouble::kNoSpace))
        return {Code::kResourceExhausted, "simulated drive: no space"};
      return {};
  }
  return {};
}

void SimDrive::choose_end(Operation& operation) {
  const auto within = [&](Duration most) {
    return Duration(static_cast<Duration::rep>(prng_.below(static_cast<std::uint64_t>(most.count()) + 1)));
  };
  operation.ends = clock_.now() + within(nature_.latency_max);
  if (prng_.chance(nature_.late)) operation.ends += within(nature_.late_max);
  operation.fails = error_of(operation.request.work);
  if (power_off_) {
    operation.cut = true;
    operation.ends = clock_.now();
  }
  if (calm_ || power_off_) return;
  if (troubled(Trouble::kStall)) {
    operation.ends += trouble_until_[static_cast<std::size_t>(Trouble::kStall)] - clock_.now();
    ++counts_.stalled;
  } else if (prng_.chance(nature_.stall)) {
    operation.ends += within(nature_.stall_max);
    ++counts_.stalled;
  }
}

void SimDrive::wait(Duration at_most) {
  const auto next = next_end();
  if (!next)
    clock_.advance(std::min(at_most, kIdleTurn));
  else
    clock_.advance_to(std::min(*next, later(clock_.now(), at_most)));
}

std::optional<Time> SimDrive::next_end() const {
  std::optional<Time> next;
  for (const Operation& each : operations_)
    if (!next || each.ends < *next) next = each.ends;
  return next;
}

std::vector<BlockDone> SimDrive::drain() {
  std::vector<BlockDone> done;
  for (;;) {
    std::vector<std::size_t> ready;
    for (std::size_t i = 0; i < operations_.size(); ++i)
      if (operations_[i].ends <= clock_.now()) ready.push_back(i);
    if (ready.empty()) return done;
    const std::size_t at = ready[prng_.below(ready.size())];
    if (power_fails_in_ && !power_off_) {
      if (*power_fails_in_ == 0) {
        cut_all(false);
        continue;
      }
      --*power_fails_in_;
    }
    Operation operation = std::move(operations_[at]);
    operations_.erase(operations_.begin() + static_cast<std::ptrdiff_t>(at));
    done.push_back(end(operation));
  }
}

BlockDone SimDrive::end(Operation& operation) {
  BlockDone done{operation.request.id, operation.fails};
  if (!operation.fails.ok()) ++counts_.failed;
  if (!operation.cut) {
    if (operation.request.work == BlockWork::kRead) end_read(operation);
    if (operation.request.work == BlockWork::kWrite) end_write(operation);
    if (operation.request.work == BlockWork::kFlush && operation.fails.ok())
      std::erase_if(unflushed_, [&](const UnflushedWrite& each) { return each.id < operation.covers; });
    if (!power_off_ && prng_.chance(nature_.rot)) rot();
  }
  // Writes that ended together with this one, but before it in drain()'s answer, count as drained: nobody can
  // submit between.
  if (operation.request.work == BlockWork::kWrite) ++ended_writes_;
  return done;
}

void SimDrive::end_read(const Operation& operation) {
  std::uint64_t from = operation.request.offset;
  const std::uint64_t bytes = operation.request.bytes();
  if (prng_.chance(nature_.misread)) {
    from = random_offset(bytes);
    ++counts_.lies;
  }
  // A failed one leaves the memory in any state.
  const std::uint64_t length = operation.fails.ok() ? bytes : prng_.below(bytes + 1);
  std::uint64_t done = 0;
  for (const BlockPiece& piece : operation.request.pieces) {
    const std::uint64_t part = std::min(piece.length, length - done);
    if (piece.data != nullptr) {
      std::copy_n(content_.begin() + static_cast<std::ptrdiff_t>(from + done), part, piece.data);
      if (part != 0 && nature_.flip > 0 && prng_.chance(nature_.flip)) {
        piece.data[prng_.below(part)] ^= std::byte{1};
        ++counts_.lies;
      }
    }
    done += part;
  }
}

void SimDrive::end_write(const Operation& operation) {
  const BlockRequest& request = operation.request;
  if (request.pieces.empty()) return;  // misuse
  if (gather(request) != operation.bytes)
    note_misuse(
        fmt::format("memory of a write of {} bytes at {} changed under it", request.bytes(), request.offset));
  if (!operation.fails.ok()) {
    const ByteView before = ByteView(content_).subspan(request.offset, request.bytes());
    put(request.offset, part_of(before, operation.bytes));
    return;
  }
  counts_.written_ok_bytes += request.bytes();
  if (prng_.chance(nature_.lost)) {
    ++counts_.lies;
    return;
  }
  const bool astray = prng_.chance(nature_.misdirected);
  if (astray) ++counts_.lies;
  put(astray ? random_offset(request.bytes()) : request.offset, operation.bytes);
}

void SimDrive::put(std::uint64_t offset, ByteView bytes) {
  const auto at = content_.begin() + static_cast<std::ptrdiff_t>(offset);
  UnflushedWrite kept;
  kept.id = ended_writes_;
  kept.offset = offset;
  kept.before.assign(at, at + static_cast<std::ptrdiff_t>(bytes.size()));
  kept.after.assign(bytes.begin(), bytes.end());
  std::copy(bytes.begin(), bytes.end(), at);
  unflushed_.push_back(std::move(kept));
}

std::vector<std::byte> SimDrive::part_of(ByteView before, ByteView bytes) {
  std::vector<std::byte> part(before.begin(), before.end());
  const std::uint64_t sector = prng_.chance(0.5) ? 512 : kBlockBytes;
  const std::uint64_t sectors = bytes.size() / sector;
  const std::uint64_t way = prng_.below(10);
  std::uint64_t cut = way < 3 ? 0 : sectors;                // nothing; all
  if (way >= 6 && way < 8) cut = prng_.below(sectors + 1);  // a first part
  for (std::uint64_t i = 0; i < cut; ++i)
    if (way < 8 || prng_.chance(0.5))  // any sectors
      std::copy_n(bytes.begin() + static_cast<std::ptrdiff_t>(i * sector), sector,
                  part.begin() + static_cast<std::ptrdiff_t>(i * sector));
  if (way >= 6) ++counts_.torn;
  return part;
}

std::uint64_t SimDrive::random_offset(std::uint64_t length) {
  return prng_.below((size_bytes() - length) / kBlockBytes + 1) * kBlockBytes;
}

void SimDrive::rot() {
  ++counts_.lies;
  const std::uint64_t at = prng_.below(size_bytes());
  if (prng_.chance(0.3)) {  // a sector is nothing but zeros
    const auto sector = content_.begin() + static_cast<std::ptrdiff_t>(at / 512 * 512);
    std::fill_n(sector, 512, std::byte{0});
  } else {
    content_[at] ^= std::byte{static_cast<unsigned char>(1 + prng_.below(255))};
  }
}

void SimDrive::trouble(Trouble kind, Time until) {
  Time& end = trouble_until_[static_cast<std::size_t>(kind)];
  end = std::max(end, until);
  if (kind != Trouble::kGone) return;
  for (Operation& each : operations_) {
    each.ends = clock_.now();
    each.fails = {Code::kUnavailable, "simulated drive: gone"};
  }
}

void SimDrive::calm() {
  calm_ = true;
  std::fill(std::begin(trouble_until_), std::end(trouble_until_), Time{0});
  for (Operation& each : operations_) {
    each.ends = std::min(each.ends, clock_.now() + nature_.latency_max);
    if (!each.cut && each.fails.code != Code::kUnavailable) each.fails = {};
  }
}

void SimDrive::power_fails_in(std::uint64_t operations) {
  power_fails_in_ = operations;
  if (operations == 0 && !power_off_) cut_all(false);
}

void SimDrive::process_dies() {
  if (!power_off_) cut_all(true);
}

void SimDrive::cut_all(bool keep_ended) {
  power_off_ = true;
  if (!keep_ended) {
    for (auto each = unflushed_.rbegin(); each != unflushed_.rend(); ++each)
      std::copy(each->before.begin(), each->before.end(),
                content_.begin() + static_cast<std::ptrdiff_t>(each->offset));
    for (const UnflushedWrite& each : unflushed_) {
      const ByteView now = ByteView(content_).subspan(each.offset, each.after.size());
      const std::vector<std::byte> left = part_of(now, each.after);
      std::copy(left.begin(), left.end(), content_.begin() + static_cast<std::ptrdiff_t>(each.offset));
    }
  }
  for (Operation& each : operations_) {
    if (each.request.work == BlockWork::kWrite && !each.request.pieces.empty() && !each.cut) {
      if (gather(each.request) != each.bytes)
        note_misuse(fmt::format("memory of a write of {} bytes at {} changed under it", each.request.bytes(),
                                each.request.offset));
      const ByteView now = ByteView(content_).subspan(each.request.offset, each.bytes.size());
      put(each.request.offset, part_of(now, each.bytes));
    }
    each.cut = true;
    each.ends = clock_.now();
    each.fails = {Code::kUnavailable, "simulated drive: gone"};
  }
  if (!keep_ended) unflushed_.clear();
}

DriveContent SimDrive::take_content() {
  TIERCEL_CHECK(operations_.empty());
  return {std::exchange(content_, {}), std::exchange(unflushed_, {})};
}

}  // namespace tiercel::sim
