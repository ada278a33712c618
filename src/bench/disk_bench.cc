// A drive through the engine that a disk tier uses, beside the barest io_uring loop on the same huge-page
// memory; through threads instead; and pages in files of their own, the usual way.
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include "base/sizes.h"
#include "bench/benches.h"
#include "bench/disk_parts.h"
#include "os/block_open.h"
#include "os/mapping.h"

namespace tiercel {
namespace {

struct Size {
  std::uint64_t length;
  std::size_t depth;
};
constexpr Size kSizes[] = {{64U << 10, 32}, {1U << 20, 8}, {4U << 20, 8}};
constexpr std::uint64_t kSegment = 4U << 20;

// The file, what reads and writes it, and the memory for that.
class DriveBench final {
 public:
  DriveBench(BenchRun& run, BenchFolder folder)
      : run_(run),
        folder_(std::move(folder)),
        path_(folder_.file("drive")),
        bytes_(run.size(run.disk_bytes(), 64U << 20)) {}

  Status open() {
    run_.progress(fmt::format("making a file of {}", format_size(bytes_)));
    auto memory = Mapping::open({.bytes = 64U << 20});
    if (!memory) return memory.error();
    memory_ = std::move(*memory);
    Prng prng(1);
    for (std::uint64_t at = 0; at < memory_.size_bytes(); at += 8)
      store_le(memory_.bytes().data() + at, prng.next());
    BlockDeviceOptions options;
    options.file = {.path = path_, .bytes = bytes_, .create = true};
    options.tuning.memory = {memory_.bytes()};
    auto opened = open_block_device(options);
    if (!opened) return opened.error();
    device_ = std::move(*opened);
    return fill();
  }

  Status measure() {
    for (const Size& size : kSizes)
      if (Status status = read_lines(size); !status.ok()) return status;
    if (Status status = write_line(); !status.ok()) return status;
    return files_line();
  }

 private:
  // Real bytes everywhere: what was never written is not read from the drive.
  Status fill() {
    DriveWork work{BlockWork::kWrite, kSegment, bytes_, memory_.bytes(), 8, bytes_ / kSegment};
    std::vector<std::uint64_t> places(work.operations);
    for (std::size_t i = 0; i < places.size(); ++i) places[i] = i * kSegment;
    Samples samples;
    return run_on_device(*device_.device, work, places, samples);
  }
  // An iteration of one way; places are drawn before it.
  template <typename Run>
  Subject subject(std::string name, const DriveWork& work, CpuMeter& cpu, Run way) {
    return {std::move(name),
            [this, &work, &cpu, way](Samples& samples) {
              cpu.start();
              if (Status status = way(samples); !status.ok() && status_.ok()) status_ = std::move(status);
              cpu.stop(work.bytes());
            },
            [this, &work] { places_ = random_places(work, prng_); }};
  }
  Subject through(BlockDevice& device, std::string name, const DriveWork& work, CpuMeter& cpu) {
    return subject(std::move(name), work, cpu, [this, &device, &work](Samples& samples) {
      return run_on_device(device, work, places_, samples);
    });
  }
  std::string kind() const {
    return fmt::format("{}, {}", block_engine_name(device_.engine),
                       device_.direct ? "O_DIRECT" : "page cache");
  }

  Status read_lines(const Size& size) {
    const std::uint64_t bytes = run_.size(size.length < (1U << 20) ? 64U << 20 : 128U << 20, 8U << 20);
    const DriveWork work{BlockWork::kRead, size.length, bytes_,
                         memory_.bytes(),  size.depth,  bytes / size.length};
    auto bare = BareRing::open(path_, memory_.bytes(), static_cast<unsigned>(size.depth));
    if (!bare) return bare.error();
    CpuMeter ours, limit;
    const Subject subjects[] = {
        through(*device_.device, "engine", work, ours),
        subject("bare", work, limit, [&](Samples& samples) { return (*bare)->run(work, places_, samples); })};
    const std::string name = fmt::format("read {}, {} at once", format_size(size.length), size.depth);
    const Comparison result = run_.compare(name, work.operations, subjects);
    if (!status_.ok()) return status_;
    BenchLine line = line_of(result, name, 0, 1, BenchUnit::kGigabytes, "GB/s", work.bytes());
    line.limit_name = "bare io_uring loop";
    line.target = "ratio >= 0.95";
    line.page_kind = page_kind_name(memory_.pages().kind);
    line.note = fmt::format("{}; processor time for a GiB {:.3f} s, the bare loop {:.3f} s", kind(),
                            ours.seconds_per_gib(), limit.seconds_per_gib());
    if (const auto fio = run_.quick() ? std::nullopt : fio_bytes_per_second(path_, work)) {
      line.peer_name = "fio, its own memory in small pages";
      line.peer = *fio / 1e9;
      line.ratio_to_peer = line.ours / line.peer;
    }
    run_.add(std::move(line));
    return threads_line(work);
  }

  // The same file by the engine for systems without io_uring. It is locked: one device after the other.
  Status threads_line(const DriveWork& work) {
    device_.device.reset();
    BlockDeviceOptions options;
    options.file = {.path = path_};
    options.engine = BlockEngine::kThreads;
    auto threads = open_block_device(options);
    if (!threads) return threads.error();
    auto bare = BareRing::open(path_, memory_.bytes(), static_cast<unsigned>(work.depth));
    if (!bare) return bare.error();
    CpuMeter ours, limit;
    const Subject subjects[] = {
        through(*threads->device, "threads", work, ours),
        subject("bare", work, limit, [&](Samples& samples) { return (*bare)->run(work, places_, samples); })};
    const std::string name = fmt::format("read {}, by threads", format_size(work.length));
    const Comparison result = run_.compare(name, work.operations, subjects);
    if (!status_.ok()) return status_;
    BenchLine line = line_of(result, name, 0, 1, BenchUnit::kGigabytes, "GB/s", work.bytes());
    line.limit_name = "bare io_uring loop";
    line.page_kind = page_kind_name(memory_.pages().kind);
    line.note = fmt::format("processor time for a GiB {:.3f} s", ours.seconds_per_gib());
    run_.add(std::move(line));
    threads->device.reset();
    options.engine = BlockEngine::kBest;
    options.tuning.memory = {memory_.bytes()};
    auto again = open_block_device(options);
    if (!again) return again.error();
    device_ = std::move(*again);
    return {};
  }

  // Segments one behind the other, flushed at the end of each iteration.
  Status write_line() {
    const DriveWork work{BlockWork::kWrite, kSegment, bytes_,
                         memory_.bytes(),   4,        run_.size(64U << 20, 8U << 20) / kSegment};
    auto bare = BareRing::open(path_, memory_.bytes(), 4);
    if (!bare) return bare.error();
    CpuMeter ours, limit;
    Samples none;
    Subject subjects[] = {subject("engine", work, ours,
                                  [&](Samples& samples) {
                                    Status status = run_on_device(*device_.device, work, places_, samples);
                                    if (!status.ok()) return status;
                                    device_.device->submit({0, BlockWork::kFlush, false, 0, {}});
                                    std::vector<BlockDone> ends;
                                    while (ends.empty()) {
                                      device_.device->wait(std::chrono::seconds(1));
                                      ends = device_.device->drain();
                                    }
                                    return ends[0].status;
                                  }),
                          subject("bare", work, limit, [&](Samples& samples) {
                            Status status = (*bare)->run(work, places_, samples);
                            return status.ok() ? (*bare)->flush() : status;
                          })};
    for (Subject& each : subjects)
      each.prepare = [this, &work] {
        places_.resize(work.operations);
        if (next_ + work.bytes() > bytes_) next_ = 0;
        for (std::uint64_t& place : places_) place = std::exchange(next_, next_ + kSegment);
      };
    const std::string name = fmt::format("write {} segments, flushed", format_size(kSegment));
    const Comparison result = run_.compare(name, work.operations, subjects);
    if (!status_.ok()) return status_;
    BenchLine line = line_of(result, name, 0, 1, BenchUnit::kGigabytes, "GB/s", work.bytes());
    line.limit_name = "bare io_uring loop, fdatasync";
    line.page_kind = page_kind_name(memory_.pages().kind);
    line.note = fmt::format("{}; processor time for a GiB {:.3f} s, the bare loop {:.3f} s", kind(),
                            ours.seconds_per_gib(), limit.seconds_per_gib());
    run_.add(std::move(line));
    return {};
  }

  // A page of 1 MiB in a file of its own: looked for, opened, read through the page cache, closed; written
  // and renamed. What is read was not written by this run's reads: dropped from the cache first.
  Status files_line() {
    constexpr std::uint64_t kPage = 1U << 20;
    const std::uint64_t count = run_.size(1U << 30, 8U << 20) / kPage;
    run_.progress("a file for each page");
    for (std::uint64_t i = 0; i < count; ++i)
      if (Status status = write_file(i, kPage); !status.ok()) return status;
    ::sync();
    const DriveWork work{BlockWork::kRead, kPage, bytes_,
                         memory_.bytes(),  8,     run_.size(64U << 20, 8U << 20) / kPage};
    CpuMeter ours, files;
    const Subject subjects[] = {through(*device_.device, "engine", work, ours),
                                subject("files", work, files, [&](Samples& samples) {
                                  return read_files(count, kPage, work.operations, samples);
                                })};
    const std::string name = fmt::format("read {}, beside a file for each page", format_size(kPage));
    const Comparison result = run_.compare(name, work.operations, subjects);
    if (!status_.ok()) return status_;
    BenchLine line = line_of(result, name, 0, 0, BenchUnit::kGigabytes, "GB/s", work.bytes());
    line.limit = line.ratio = 0;
    line.limit_name.clear();
    add_peer(line, result, 0, 1, BenchUnit::kGigabytes, "stat, open, read, close, cold");
    line.page_kind = page_kind_name(memory_.pages().kind);
    line.note = fmt::format("processor time for a GiB {:.3f} s, a file for each page {:.3f} s",
                            ours.seconds_per_gib(), files.seconds_per_gib());
    run_.add(std::move(line));
    return {};
  }
  std::string page_file(std::uint64_t number) const {
    return folder_.file(fmt::format("page_{:016x}", number));
  }
  Status write_file(std::uint64_t number, std::uint64_t length) const {
    const int fd = ::open(page_file(number).c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    const bool whole = fd >= 0 && ::write(fd, memory_.view().data(), length) == static_cast<ssize_t>(length);
    if (fd >= 0) ::close(fd);
    return whole ? Status{} : Status{Code::kIoError, "a file for each page cannot be written"};
  }
  Status read_files(std::uint64_t count, std::uint64_t length, std::size_t operations, Samples& samples) {
    for (std::size_t i = 0; i < operations; ++i) {
      const std::string path = page_file(prng_.below(count));
      const double start = now_nanoseconds();
      bool whole = ::access(path.c_str(), R_OK) == 0;
      const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
      whole = whole && fd >= 0 && ::read(fd, memory_.bytes().data(), length) == static_cast<ssize_t>(length);
      samples.add(now_nanoseconds() - start);
      // Cold again for whoever comes next; also what a cache far larger than memory meets.
      if (fd >= 0) ::posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
      if (fd >= 0) ::close(fd);
      if (!whole) return {Code::kIoError, path + " cannot be read"};
    }
    return {};
  }

  BenchRun& run_;
  BenchFolder folder_;
  std::string path_;
  std::uint64_t bytes_;
  Mapping memory_;
  OpenedBlockDevice device_;
  Prng prng_{2};
  std::vector<std::uint64_t> places_;
  std::uint64_t next_ = 0;
  Status status_;
};

}  // namespace

Status disk_bench(BenchRun& run) {
  {
    auto folder = BenchFolder::create(run.folder());
    if (!folder) return folder.error();
    DriveBench bench(run, std::move(*folder));
    if (Status status = bench.open(); !status.ok()) return status;
    if (Status status = bench.measure(); !status.ok()) return status;
  }
  if (Status status = disk_log_lines(run); !status.ok()) return status;
  return disk_open_lines(run);
}

}  // namespace tiercel
