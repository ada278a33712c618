#include "sim/world.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace tiercel::sim {

void SimExecutor::submit(std::unique_ptr<Task> task) {
  if (options_.at_once) {
    ++ran_;
    task->run();
    return;
  }
  const bool late = prng_.chance(options_.held_back);
  tasks_.push_back({std::move(task), late ? round_ + prng_.between(5, options_.rounds_max) : round_});
}

void SimExecutor::run_at(std::size_t index) {
  const std::unique_ptr<Task> task = std::move(tasks_[index].task);
  tasks_.erase(tasks_.begin() + static_cast<std::ptrdiff_t>(index));
  ++ran_;
  task->run();
}

std::size_t SimExecutor::run_some(std::size_t count) {
  ++round_;
  std::size_t done = 0;
  while (done < count) {
    std::vector<std::size_t> ready;
    for (std::size_t i = 0; i < tasks_.size(); ++i)
      if (tasks_[i].not_before <= round_) ready.push_back(i);
    if (ready.empty()) break;
    run_at(options_.in_order ? ready.front() : ready[prng_.below(ready.size())]);
    ++done;
  }
  return done;
}

std::size_t SimExecutor::run_all() {
  const std::size_t before = tasks_.size();
  while (!tasks_.empty()) run_at(options_.in_order ? 0 : prng_.below(tasks_.size()));
  return before;
}

namespace {

std::optional<MappedArena> map(std::uint64_t extent_bytes, std::uint64_t extents) {
  MappedArenaOptions options;
  options.kind = MappingKind::kShared;
  options.sizes.extent_bytes = extent_bytes;
  options.sizes.extents = extents;
  options.epoch = 1;
  options.touch.threads = 1;
  auto arena = MappedArena::open(options);
  TIERCEL_CHECK(arena.has_value());
  return std::move(*arena);
}

}  // namespace

SimArena::SimArena(std::uint64_t extent_bytes, std::uint64_t extents, bool mapped)
    : mapped_(mapped ? map(extent_bytes, extents) : std::nullopt),
      plain_(mapped ? std::nullopt : std::optional<ByteArena>(std::in_place, extent_bytes * extents)),
      bytes_(mapped ? mapped_->extents() : *plain_) {}

void SimArena::discard(std::span<const ArenaSpan> record) {
  // Whoever still reads a record that was given back sees this instead of its bytes.
  std::uint64_t length = 0;
  for (const ArenaSpan& span : record) length += span.length;
  const std::vector<std::byte> gone(length, std::byte{0xDD});
  write(record, 0, gone);
}

std::vector<std::byte> SimArena::read(std::span<const ArenaSpan> record, std::uint64_t position,
                                      std::uint64_t length) {
  std::vector<std::byte> bytes;
  bytes.reserve(length);
  while (bytes.size() < length) {
    const MutableByteView part = bytes_.view(record, position + bytes.size(), length - bytes.size());
    bytes.insert(bytes.end(), part.begin(), part.end());
  }
  return bytes;
}

void SimArena::write(std::span<const ArenaSpan> record, std::uint64_t position, ByteView bytes) {
  std::uint64_t done = 0;
  while (done < bytes.size()) {
    const MutableByteView part = bytes_.view(record, position + done, bytes.size() - done);
    std::copy_n(bytes.begin() + static_cast<std::ptrdiff_t>(done), part.size(), part.begin());
    done += part.size();
  }
}

void SimArena::damage(std::span<const ArenaSpan> record, std::uint64_t position) {
  bytes_.view(record, position, 1)[0] ^= std::byte{0x5A};
}

Status SimDevice::read(std::uint64_t address, MutableByteView into) {
  if (read_fails_in_ != 0 && --read_fails_in_ == 0) {
    ++read_errors_;
    return {Code::kIoError, "simulated device: read failed"};
  }
  return memory_.read(address, into);
}

Status SimDevice::write(std::uint64_t address, ByteView from) {
  if (write_fails_in_ != 0 && --write_fails_in_ == 0) {
    ++write_errors_;
    return {Code::kIoError, "simulated device: write failed"};
  }
  return memory_.write(address, from);
}

}  // namespace tiercel::sim
