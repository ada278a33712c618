// What disk benches share: a file of their own, the barest io_uring loop as the limit, the work of a block
// device measured like it, and processor time.
//
// Threads: one.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/prng.h"
#include "base/status.h"
#include "bench/bench.h"
#include "os/block_device.h"

namespace tiercel {

// A folder of its own inside the one that a bench was given; gone with all in it.
class BenchFolder final {
 public:
  // Errors: io_error where none can be made.
  static Result<BenchFolder> create(const std::string& inside);
  BenchFolder(BenchFolder&& other) noexcept;
  BenchFolder& operator=(BenchFolder&&) = delete;
  ~BenchFolder();
  std::string file(std::string_view name) const { return path_ + "/" + std::string(name); }

 private:
  explicit BenchFolder(std::string path) : path_(std::move(path)) {}
  std::string path_;
};

// Equal shares of some memory and places of a file: what one operation reads or writes. All of the memory is
// used in turn, as an arena's is: what stays in a cache of the processor is read much faster.
struct DriveWork {
  BlockWork work = BlockWork::kRead;
  std::uint64_t length = 0;      // of an operation
  std::uint64_t file_bytes = 0;  // the file's beginning that is used
  MutableByteView memory;        // at least `depth` times `length`
  std::size_t depth = 0;         // operations under way
  std::size_t operations = 0;    // of one iteration
  std::uint64_t bytes() const { return operations * length; }
};

// Random places for each operation of an iteration, others each time.
std::vector<std::uint64_t> random_places(const DriveWork& work, Prng& prng);

// One thread, one ring, a registered file and registered memory, and no more than that: the limit.
class BareRing final {
 public:
  // Errors: unsupported without io_uring; io_error. `memory` outlives it.
  static Result<std::unique_ptr<BareRing>> open(const std::string& path, MutableByteView memory,
                                                unsigned depth);
  ~BareRing();
  BareRing(const BareRing&) = delete;
  BareRing& operator=(const BareRing&) = delete;
  // Errors: io_error.
  Status run(const DriveWork& work, std::span<const std::uint64_t> places, Samples& samples);
  // All that was written is behind the drive's cache. Errors: io_error.
  Status flush() const;
  bool direct() const { return direct_; }

 private:
  BareRing() = default;
  struct Ring;
  std::unique_ptr<Ring> ring_;
  int fd_ = -1;
  bool direct_ = false;
};

// The same through a block device. Errors: the first that an operation ended with.
Status run_on_device(BlockDevice& device, const DriveWork& work, std::span<const std::uint64_t> places,
                     Samples& samples);

// Processor time of this process, for as long as it stands still in `spent`.
class CpuMeter final {
 public:
  void start();
  void stop(std::uint64_t bytes);
  double seconds_per_gib() const;  // 0: nothing was measured

 private:
  double started_ = 0, seconds_ = 0;
  std::uint64_t bytes_ = 0;
};

// Lines of the disk tier's log (disk_log_bench.cc), of openings (disk_open_bench.cc): parts of disk_bench().
Status disk_log_lines(BenchRun& run);
Status disk_open_lines(BenchRun& run);

// Bytes each second of fio reading the file like this, where it is installed and does it; else nothing.
std::optional<double> fio_bytes_per_second(const std::string& path, const DriveWork& work);

}  // namespace tiercel
