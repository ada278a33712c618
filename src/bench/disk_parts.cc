#include "bench/disk_parts.h"

#include <array>
#include <cerrno>
#include <cstdio>
#include <deque>
#include <filesystem>
#include <system_error>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>
#include <liburing.h>
#include <nlohmann/json.hpp>
#include <sys/resource.h>
#include <unistd.h>

#include "base/check.h"

namespace tiercel {
namespace {

// Shares of memory, that which is free for longest first.
class Shares final {
 public:
  explicit Shares(const DriveWork& work) : work_(work), started_(work.memory.size() / work.length) {
    TIERCEL_CHECK(started_.size() >= work.depth);
    for (std::uint64_t i = 0; i < started_.size(); ++i) free_.push_back(i);
  }
  std::uint64_t take() {
    const std::uint64_t share = free_.front();
    free_.pop_front();
    started_[share] = now_nanoseconds();
    return share;
  }
  void give_back(std::uint64_t share, double now, Samples& samples) {
    samples.add(now - started_[share]);
    free_.push_back(share);
  }
  std::byte* memory(std::uint64_t share) const { return work_.memory.data() + share * work_.length; }

 private:
  const DriveWork& work_;
  std::vector<double> started_;
  std::deque<std::uint64_t> free_;
};

std::string error_text(int number) { return std::generic_category().message(number); }

double seconds_of(const timeval& time) {
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) / 1e6;
}

}  // namespace

Result<BenchFolder> BenchFolder::create(const std::string& inside) {
  std::string path = inside + "/tiercel_bench_XXXXXX";
  if (::mkdtemp(path.data()) == nullptr)
    return error(Code::kIoError,
                 fmt::format("{}: no folder can be made in it: {}", inside, error_text(errno)));
  return BenchFolder(std::move(path));
}

BenchFolder::BenchFolder(BenchFolder&& other) noexcept : path_(std::exchange(other.path_, {})) {}

BenchFolder::~BenchFolder() {
  std::error_code failed;
  if (!path_.empty()) std::filesystem::remove_all(path_, failed);
}

std::vector<std::uint64_t> random_places(const DriveWork& work, Prng& prng) {
  std::vector<std::uint64_t> places(work.operations);
  const std::uint64_t count = work.file_bytes / work.length;
  for (std::uint64_t& place : places) place = prng.below(count) * work.length;
  return places;
}

struct BareRing::Ring {
  io_uring ring{};
  bool made = false;
  ~Ring() {
    if (made) ::io_uring_queue_exit(&ring);
  }
};

Result<std::unique_ptr<BareRing>> BareRing::open(const std::string& path, MutableByteView memory,
                                                 unsigned depth) {
  std::unique_ptr<BareRing> bare(new BareRing);
  bare->fd_ = ::open(path.c_str(), O_RDWR | O_CLOEXEC | O_DIRECT);
  bare->direct_ = bare->fd_ >= 0;
  if (bare->fd_ < 0) bare->fd_ = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (bare->fd_ < 0) return error(Code::kIoError, fmt::format("{}: {}", path, error_text(errno)));
  bare->ring_ = std::make_unique<Ring>();
  io_uring* const ring = &bare->ring_->ring;
  int failed = ::io_uring_queue_init(depth, ring, IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN);
  if (failed == -EINVAL) failed = ::io_uring_queue_init(depth, ring, 0);
  if (failed < 0) return error(Code::kUnsupported, fmt::format("io_uring: {}", error_text(-failed)));
  bare->ring_->made = true;
  const iovec piece{memory.data(), memory.size()};
  if (failed = ::io_uring_register_files(ring, &bare->fd_, 1); failed == 0)
    failed = ::io_uring_register_buffers(ring, &piece, 1);
  if (failed < 0)
    return error(Code::kUnsupported,
                 fmt::format("io_uring: nothing can be registered: {}", error_text(-failed)));
  return bare;
}

BareRing::~BareRing() {
  ring_.reset();
  if (fd_ >= 0) ::close(fd_);
}

Status BareRing::run(const DriveWork& work, std::span<const std::uint64_t> places, Samples& samples) {
  io_uring* const ring = &ring_->ring;
  Shares shares(work);
  std::size_t next = 0, ended = 0;
  const auto issue = [&] {
    const std::uint64_t share = shares.take();
    io_uring_sqe* const sqe = ::io_uring_get_sqe(ring);
    TIERCEL_CHECK(sqe != nullptr);
    std::byte* const memory = shares.memory(share);
    const auto length = static_cast<unsigned>(work.length);
    if (work.work == BlockWork::kRead)
      ::io_uring_prep_read_fixed(sqe, 0, memory, length, places[next], 0);
    else
      ::io_uring_prep_write_fixed(sqe, 0, memory, length, places[next], 0);
    sqe->flags |= IOSQE_FIXED_FILE;
    ::io_uring_sqe_set_data64(sqe, share);
    ++next;
  };
  while (next < work.depth && next < places.size()) issue();
  while (ended < places.size()) {
    ::io_uring_submit_and_wait(ring, 1);
    io_uring_cqe* cqe = nullptr;
    unsigned head = 0, count = 0;
    std::array<std::uint64_t, 256> free{};
    io_uring_for_each_cqe(ring, head, cqe) {
      if (cqe->res != static_cast<int>(work.length))
        return {Code::kIoError, fmt::format("the bare loop: wanted {} bytes, got {}", work.length, cqe->res)};
      free[count++] = ::io_uring_cqe_get_data64(cqe);
    }
    ::io_uring_cq_advance(ring, count);
    const double now = now_nanoseconds();
    for (unsigned i = 0; i < count; ++i) {
      shares.give_back(free[i], now, samples);
      ++ended;
      if (next < places.size()) issue();
    }
  }
  return {};
}

Status BareRing::flush() const {
  if (::fdatasync(fd_) == 0) return {};
  return {Code::kIoError, fmt::format("the bare loop: flush: {}", error_text(errno))};
}

Status run_on_device(BlockDevice& device, const DriveWork& work, std::span<const std::uint64_t> places,
                     Samples& samples) {
  Shares shares(work);
  std::size_t next = 0, ended = 0;
  Status status;
  const auto issue = [&] {
    const std::uint64_t share = shares.take();
    const bool taken =
        device.submit({share, work.work, false, places[next], {{shares.memory(share), work.length}}});
    TIERCEL_CHECK(taken);
    ++next;
  };
  while (next < work.depth && next < places.size()) issue();
  while (ended < next) {
    device.wait(std::chrono::seconds(1));
    const std::vector<BlockDone> ends = device.drain();
    const double now = now_nanoseconds();
    for (const BlockDone& done : ends) {
      shares.give_back(done.id, now, samples);
      ++ended;
      if (status.ok()) status = done.status;
      if (status.ok() && next < places.size()) issue();
    }
  }
  return status;
}

void CpuMeter::start() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  started_ = seconds_of(usage.ru_utime) + seconds_of(usage.ru_stime);
}

void CpuMeter::stop(std::uint64_t bytes) {
  const double before = std::exchange(started_, 0);
  start();
  seconds_ += started_ - before;
  bytes_ += bytes;
}

double CpuMeter::seconds_per_gib() const {
  return bytes_ == 0 ? 0 : seconds_ / static_cast<double>(bytes_) * static_cast<double>(1ULL << 30);
}

std::optional<double> fio_bytes_per_second(const std::string& path, const DriveWork& work) {
  const std::string command = fmt::format(
      "fio --name=bench --filename='{}' --rw=randread --bs={} --iodepth={} --size={} --ioengine=io_uring "
      "--direct=1 --fixedbufs=1 --registerfiles=1 --runtime=2 --time_based --output-format=json 2>/dev/null",
      path, work.length, work.depth, work.file_bytes);
  std::FILE* const pipe = ::popen(command.c_str(), "r");
  if (pipe == nullptr) return std::nullopt;
  std::string text;
  std::array<char, 4096> part{};
  while (const std::size_t count = std::fread(part.data(), 1, part.size(), pipe))
    text.append(part.data(), count);
  if (::pclose(pipe) != 0) return std::nullopt;
  const auto json = nlohmann::json::parse(text, nullptr, false);
  const auto place = nlohmann::json::json_pointer("/jobs/0/read/bw_bytes");
  if (json.is_discarded() || !json.contains(place) || !json[place].is_number()) return std::nullopt;
  return json[place].get<double>();
}

}  // namespace tiercel
