// The simulated outside of a node: an executor that runs tasks when and in which order the driver says, an
// arena whose stored bytes can be damaged, a device that fails on demand. Time is os/clock.h's ManualClock.
//
// Threads: one thread does everything; that is what makes a run repeat exactly.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "base/prng.h"
#include "device/device.h"
#include "memory/arena.h"
#include "memory/mapped_arena.h"
#include "os/executor.h"

namespace tiercel::sim {

// Holds tasks until they are told to run. Some are held back for long, like a copy on a slow stream.
class SimExecutor final : public Executor {
 public:
  struct Options {
    bool in_order = false;          // oldest ready task first; else any
    bool at_once = false;           // runs each task inside submit()
    double held_back = 0.05;        // share of tasks that wait for many rounds
    std::uint64_t rounds_max = 60;  // for at most so many
  };
  SimExecutor(Options options, std::uint64_t seed) : options_(options), prng_(seed) {}

  void submit(std::unique_ptr<Task> task) override;
  std::size_t held() const { return tasks_.size(); }
  // Runs at most `count` of the tasks that are ready. Returns how many ran.
  std::size_t run_some(std::size_t count);
  // Runs everything, also what is held back. Returns how many ran.
  std::size_t run_all();
  std::uint64_t ran() const { return ran_; }

 private:
  struct Held {
    std::unique_ptr<Task> task;
    std::uint64_t not_before = 0;
  };
  void run_at(std::size_t index);

  Options options_;
  Prng prng_;
  std::vector<Held> tasks_;
  std::uint64_t round_ = 0;
  std::uint64_t ran_ = 0;
};

// Bytes whose records can be read and damaged from outside: plain ones, or those of the arena of production.
class SimArena final : public Arena {
 public:
  SimArena(std::uint64_t extent_bytes, std::uint64_t extents, bool mapped);
  std::uint64_t size_bytes() const override { return bytes_.size_bytes(); }
  std::uint64_t payload_kept(std::uint64_t payload_bytes) const override { return payload_bytes; }
  MutableByteView view(std::span<const ArenaSpan> record, std::uint64_t position,
                       std::uint64_t length) override {
    return bytes_.view(record, position, length);
  }
  void discard(std::span<const ArenaSpan> record) override;

  std::vector<std::byte> read(std::span<const ArenaSpan> record, std::uint64_t position,
                              std::uint64_t length);
  void write(std::span<const ArenaSpan> record, std::uint64_t position, ByteView bytes);
  // Turns over bits of one byte.
  void damage(std::span<const ArenaSpan> record, std::uint64_t position);

 private:
  std::optional<MappedArena> mapped_;
  std::optional<ByteArena> plain_;
  Arena& bytes_;
};

// Host memory whose n-th access from now can be made to fail.
class SimDevice final : public Device {
 public:
  explicit SimDevice(std::uint64_t bytes) : memory_(bytes) {}
  Status read(std::uint64_t address, MutableByteView into) override;
  Status write(std::uint64_t address, ByteView from) override;
  std::uint64_t size_bytes() const override { return memory_.size_bytes(); }
  // While an access is to fail, every byte moves by read() and write().
  MutableByteView host_view(std::uint64_t address, std::uint64_t length) override {
    if (read_fails_in_ != 0 || write_fails_in_ != 0) return {};
    return memory_.host_view(address, length);
  }

  MutableByteView bytes() { return memory_.bytes(); }
  // The access after `after` more of its kind fails; once.
  void fail_read(std::uint64_t after) { read_fails_in_ = after + 1; }
  void fail_write(std::uint64_t after) { write_fails_in_ = after + 1; }
  void heal() { read_fails_in_ = write_fails_in_ = 0; }
  std::uint64_t read_errors() const { return read_errors_; }
  std::uint64_t write_errors() const { return write_errors_; }

 private:
  HostDevice memory_;
  std::uint64_t read_fails_in_ = 0;  // 0: does not
  std::uint64_t write_fails_in_ = 0;
  std::uint64_t read_errors_ = 0;
  std::uint64_t write_errors_ = 0;
};

}  // namespace tiercel::sim
