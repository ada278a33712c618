// Opening a log of many pages, after it was closed and after its process was killed: the log's own image,
// footers and directories on a real drive, the pages themselves holes of a sparse file. Beside it the time to
// read as many bytes as the index image has.
#include <algorithm>
#include <csignal>
#include <cstdio>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/check.h"
#include "base/sizes.h"
#include "bench/benches.h"
#include "bench/disk_parts.h"
#include "disk/disk_log.h"
#include "os/block_open.h"
#include "os/mapping.h"

namespace tiercel {
namespace {

constexpr std::uint64_t kRecord = 64U << 10;
constexpr Duration kPatience = std::chrono::seconds(120);

// A drive that writes no page: whatever lies in `pages` stays a hole.
class HoleDrive final : public BlockDevice {
 public:
  HoleDrive(BlockDevice& drive, ByteView pages) : drive_(drive), pages_(pages) {}
  std::uint64_t size_bytes() const override { return drive_.size_bytes(); }
  bool submit(BlockRequest request) override {
    if (!waiting_.empty()) return false;
    const std::uint64_t id = request.id;
    std::vector<BlockRequest> parts;
    if (request.work == BlockWork::kWrite)
      parts = without_pages(request);
    else
      parts.push_back(std::move(request));
    const std::uint64_t whole = ++last_;
    wholes_[whole] = {id, parts.size(), {}};
    for (BlockRequest& part : parts) {
      part.id = ++last_;
      whole_of_[part.id] = whole;
      waiting_.push_back(std::move(part));
    }
    if (parts.empty()) tell(whole);
    pass_on();
    return true;
  }
  std::vector<BlockDone> drain() override {
    for (const BlockDone& done : drive_.drain()) {
      const auto part = whole_of_.find(done.id);
      TIERCEL_CHECK(part != whole_of_.end());
      Whole& whole = wholes_[part->second];
      if (whole.status.ok()) whole.status = done.status;
      if (--whole.left == 0) tell(part->second);
      whole_of_.erase(part);
    }
    pass_on();
    return std::exchange(told_, {});
  }
  void wait(Duration at_most) override {
    if (told_.empty()) drive_.wait(at_most);
  }

 private:
  struct Whole {
    std::uint64_t id = 0;
    std::size_t left = 0;  // parts that have not ended
    Status status;
  };
  bool is_page(const BlockPiece& piece) const {
    return piece.data >= pages_.data() && piece.data < pages_.data() + pages_.size();
  }
  std::vector<BlockRequest> without_pages(const BlockRequest& request) const {
    std::vector<BlockRequest> parts;
    bool goes_on = false;
    std::uint64_t offset = request.offset;
    for (const BlockPiece& piece : request.pieces) {
      if (is_page(piece)) {
        goes_on = false;
      } else if (goes_on) {
        parts.back().pieces.push_back(piece);
      } else {
        parts.push_back({0, request.work, request.background, offset, {piece}});
        goes_on = true;
      }
      offset += piece.length;
    }
    return parts;
  }
  void pass_on() {
    while (!waiting_.empty() && drive_.submit(waiting_.front())) waiting_.pop_front();
  }
  void tell(std::uint64_t whole) {
    const auto found = wholes_.find(whole);
    told_.push_back({found->second.id, found->second.status});
    wholes_.erase(found);
  }

  BlockDevice& drive_;
  ByteView pages_;
  std::uint64_t last_ = 0;
  std::map<std::uint64_t, Whole> wholes_;
  std::map<std::uint64_t, std::uint64_t> whole_of_;  // by the part's id
  std::deque<BlockRequest> waiting_;
  std::vector<BlockDone> told_;
};

DiskName page_name(DiskSpaceId space, std::uint64_t number) {
  return {space, Key{{mix64(number), number}}, ClassId(0)};
}

// Everything that an opened log stands on.
struct OpenLog {
  SteadyClock clock;
  OpenedBlockDevice drive;
  std::unique_ptr<HoleDrive> holes;
  std::unique_ptr<DiskLog> log;
  DiskSpaceId space;

  static Result<std::unique_ptr<OpenLog>> open(const std::string& path, std::uint64_t bytes, ByteView pages,
                                               bool read_only) {
    auto opened = std::make_unique<OpenLog>();
    BlockDeviceOptions options;
    options.file = {
        .path = path, .bytes = bytes, .create = !read_only, .read_only = read_only, .sparse = true};
    TIERCEL_ASSIGN_OR_RETURN(opened->drive, open_block_device(options));
    opened->holes = std::make_unique<HoleDrive>(*opened->drive.device, pages);
    DiskLogOptions log_options;
    log_options.admission = DiskAdmission::kAll;
    log_options.stall_after = std::chrono::seconds(60);  // a busy machine is no broken drive
    log_options.read_only = read_only;
    TIERCEL_ASSIGN_OR_RETURN(opened->log,
                             DiskLog::open(log_options, *opened->holes, opened->clock, Digest{}));
    DiskSpaceName name;
    name.text = "bench";
    name.root[0] = name.form[0] = std::byte{1};
    TIERCEL_ASSIGN_OR_RETURN(opened->space, opened->log->open_space(name));
    return opened;
  }
  DiskEntry entry(std::uint64_t number, std::byte* memory) const {
    DiskEntry entry;
    entry.name = page_name(space, number);
    entry.record_bytes = kRecord;
    entry.shards = {{{memory, kRecord}}};
    return entry;
  }
};

class OpenBench final {
 public:
  OpenBench(BenchRun& run, std::uint64_t pages, std::string path)
      : run_(run), pages_(pages), path_(std::move(path)) {
    // Pages and their directories and footers, two images, and regions that stay free.
    bytes_ = (pages * (kRecord + 256) / 100 * 104 + pages * 160 + (512ULL << 20)) >> 20 << 20;
  }
  Status measure() {
    auto memory = Mapping::open({.bytes = 64U << 20});
    if (!memory) return memory.error();
    memory_ = std::move(*memory);
    run_.progress(fmt::format("a log of {} pages, by a process that is killed", pages_));
    if (Status status = fill_and_die(); !status.ok()) return status;
    if (Status status = line("killed"); !status.ok()) return status;
    auto log = OpenLog::open(path_, bytes_, memory_.view(), false);
    if (!log) return log.error();
    if (Status status = (*log)->log->close(kPatience); !status.ok()) return status;
    log->reset();
    return line("closed");
  }

 private:
  Status fill_and_die() {
    const pid_t child = ::fork();
    if (child < 0) return {Code::kUnavailable, "no process can be made"};
    if (child == 0) {
      const Status status = fill();
      if (status.ok()) ::raise(SIGKILL);
      std::fputs((status.to_string() + "\n").c_str(), stderr);
      ::_exit(1);
    }
    int status = 0;
    ::waitpid(child, &status, 0);
    if (WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) return {};
    return {Code::kInternal, "the log could not be filled"};
  }
  Status fill() {
    Mapping own;  // what was mapped before the fork is not here
    if (auto memory = Mapping::open({.bytes = 2U << 20}); memory)
      own = std::move(*memory);
    else
      return memory.error();
    auto opened = OpenLog::open(path_, bytes_, own.view(), false);
    if (!opened) return opened.error();
    DiskLog& log = *(*opened)->log;
    for (std::uint64_t number = 1; number <= pages_;) {
      const DiskAnswer answer =
          log.append((*opened)->entry(number, own.bytes().data()), DiskOffer::kComputed);
      if (answer.verdict == DiskVerdict::kAccepted) {
        ++number;
        continue;
      }
      if (answer.verdict != DiskVerdict::kRateLimited && answer.verdict != DiskVerdict::kQuota)
        return {Code::kInternal, fmt::format("append: {}", disk_verdict_name(answer.verdict))};
      if (log.poll() == 0) (*opened)->holes->wait(std::chrono::milliseconds(1));
      log.drain_events();
    }
    return log.settle(log.last_at(), kPatience);
  }

  // Opening it to look only, over and over: nothing of what is there changes.
  Status line(std::string_view how) {
    Status status;
    DiskStats stats;
    DiskGeometry geometry;
    std::unique_ptr<OpenLog> log;
    std::vector<double> first_hits;
    Prng prng(5);
    {
      auto once = OpenLog::open(path_, 0, memory_.view(), true);
      if (!once) return once.error();
      geometry = (*once)->log->geometry();
    }
    auto bare = BareRing::open(path_, memory_.bytes(), 8);
    if (!bare) return bare.error();
    const DriveWork image{BlockWork::kRead, 1U << 20, geometry.image_bytes,
                          memory_.bytes(),  8,        std::max<std::size_t>(geometry.image_bytes >> 20, 1)};
    std::vector<std::uint64_t> places(image.operations);
    for (std::size_t i = 0; i < places.size(); ++i) places[i] = geometry.image_offset[0] + (i << 20);
    const auto open = [&](Samples&) {
      const double start = now_nanoseconds();
      auto opened = OpenLog::open(path_, 0, memory_.view(), true);
      if (!opened) {
        status = opened.error();
        return;
      }
      log = std::move(*opened);
      stats = log->log->stats();
      if (Status hit = first_hit(*log, 1 + prng.below(pages_)); !hit.ok()) status = hit;
      first_hits.push_back(now_nanoseconds() - start);
    };
    const Subject subjects[] = {{"open", open, [&] { log.reset(); }},
                                {"image",
                                 [&](Samples& samples) {
                                   if (Status read = (*bare)->run(image, places, samples); !read.ok())
                                     status = read;
                                 },
                                 {}}};
    const std::string name = fmt::format("log: open {} pages, {}", pages_, how);
    const Comparison result = run_.compare(name, 1, subjects);
    if (!status.ok()) return status;
    BenchLine line = line_of(result, name, 0, 1, BenchUnit::kNanoseconds, "ms", stats.recovery_read_bytes);
    line.p50 = line.p99 = std::nullopt;
    line.ours /= 1e6;
    line.limit /= 1e6;
    line.limit_name =
        fmt::format("its image of {} read, bare io_uring loop", format_size(geometry.image_bytes));
    line.note =
        fmt::format("with the first hit; {} found ({} by the image, {} by footers, {} by the tail), {} read",
                    stats.class_sets, stats.recovered_from_image, stats.recovered_from_footers,
                    stats.recovered_from_tail, format_size(stats.recovery_read_bytes));
    run_.add(std::move(line));
    return {};
  }
  Status first_hit(OpenLog& opened, std::uint64_t number) {
    for (std::uint64_t tried = 0; tried < 16; ++tried, ++number) {
      if (!opened.log->read(opened.entry(number, memory_.bytes().data()), true))
        continue;  // one that was lost
      while (true) {
        if (opened.log->poll() == 0) opened.holes->wait(std::chrono::milliseconds(100));
        for (const DiskEvent& event : opened.log->drain_events())
          if (event.kind == DiskEvent::Kind::kRead) return event.status;
      }
    }
    return {Code::kInternal, "no page is found in a log that was opened"};
  }

  BenchRun& run_;
  std::uint64_t pages_;
  std::string path_;
  std::uint64_t bytes_ = 0;
  Mapping memory_;
};

}  // namespace

Status disk_open_lines(BenchRun& run) {
  for (const std::uint64_t pages : {1'000'000U, 10'000'000U}) {
    auto folder = BenchFolder::create(run.folder());
    if (!folder) return folder.error();
    OpenBench bench(run, run.size(pages, 4000), folder->file("log"));
    if (Status status = bench.measure(); !status.ok()) return status;
    if (run.quick()) break;
  }
  return {};
}

}  // namespace tiercel
