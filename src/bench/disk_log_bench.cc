// The disk tier's log on a drive: records read and verified beside a bare io_uring loop, records written for
// ever beside a plain appender.
#include <algorithm>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <unistd.h>

#include "base/check.h"
#include "base/sizes.h"
#include "bench/benches.h"
#include "bench/disk_parts.h"
#include "disk/disk_log.h"
#include "memory/record.h"
#include "model/storage_form.h"
#include "os/block_open.h"
#include "os/mapping.h"

namespace tiercel {
namespace {

constexpr std::uint64_t kLayers = 16;
constexpr std::uint64_t kPageTokens = 16;
constexpr std::uint64_t kSegment = 4U << 20;

// Records of one class that take `length` bytes of the drive: header, payload, and less than a block of rest.
class Records final {
 public:
  explicit Records(std::uint64_t length) : length_(length) {
    ModelSpec spec;
    spec.model_type = "bench";
    spec.page_tokens = kPageTokens;
    spec.topology = {1, 1, 1};
    Group group;
    group.kind = FullKind{};
    for (std::uint32_t layer = 0; layer < kLayers; ++layer) group.layers.push_back(layer);
    const std::uint64_t bytes = (length - kBlockBytes) / kLayers / kPageTokens;
    group.components = {{"kv", {bytes}, DType::kU8, bytes}};
    spec.groups = {group};
    form_ = std::make_unique<StorageForm>(make_storage_form(std::move(spec)).value());
    header_ = header_bytes(cls());
  }
  const ClassForm& cls() const { return form_->classes[0]; }
  std::uint64_t length() const { return length_; }  // on the drive
  std::uint64_t record_bytes() const { return header_ + cls().record_bytes; }
  DiskName name(DiskSpaceId space, std::uint64_t number) const {
    return {space, Key{{mix64(number), number}}, cls().id};
  }
  std::vector<std::uint32_t> checksums(const std::byte* memory) const {
    return run_checksums(cls(), {memory + header_, cls().record_bytes});
  }
  // The record of page `number` at `memory`, of which the payload is there already, with these checksums.
  void write_header(std::uint64_t number, std::byte* memory, std::vector<std::uint32_t> checksums) const {
    RecordLabel label;
    label.key = name(DiskSpaceId(1), number).key;
    label.cls = cls().id;
    label.generation = 1;
    encode_header(make_header(*form_, label, cls().record_bytes, std::move(checksums)), {memory, header_});
  }
  // Whether it is that record, every byte of it.
  Status verify(std::uint64_t number, const std::byte* memory) const {
    RecordLabel label;
    label.key = name(DiskSpaceId(1), number).key;
    label.cls = cls().id;
    const auto header = decode_header({memory, header_}, *form_, label, cls().record_bytes);
    if (!header) return header.error();
    const ByteView payload{memory + header_, cls().record_bytes};
    for (std::size_t run = 0; run < cls().layers.size(); ++run)
      if (Status status = check_run(*header, cls(), run, run_checksum(cls().layers[run], payload));
          !status.ok())
        return status;
    return {};
  }
  DiskEntry entry(DiskSpaceId space, std::uint64_t number, std::byte* memory) const {
    DiskEntry entry;
    entry.name = name(space, number);
    entry.record_bytes = record_bytes();
    entry.shards = {{{memory, record_bytes()}}};
    return entry;
  }

 private:
  std::uint64_t length_;
  std::unique_ptr<StorageForm> form_;
  std::uint64_t header_ = 0;
};

DiskSpaceName space_name() {
  DiskSpaceName name;
  name.text = "bench";
  name.root[0] = name.form[0] = std::byte{1};
  return name;
}

// A log on a file, and the memory of records that are under way.
class LogWorld final {
 public:
  static Result<std::unique_ptr<LogWorld>> open(const std::string& path, std::uint64_t bytes,
                                                std::uint64_t record_length, MutableByteView memory) {
    std::unique_ptr<LogWorld> world(new LogWorld(record_length, memory));
    BlockDeviceOptions options;
    options.file = {.path = path, .bytes = bytes, .create = true};
    options.tuning.memory = {memory};
    TIERCEL_ASSIGN_OR_RETURN(world->drive_, open_block_device(options));
    DiskLogOptions log_options;
    log_options.admission = DiskAdmission::kAll;
    log_options.stall_after = std::chrono::seconds(60);  // a busy machine is no broken drive
    TIERCEL_ASSIGN_OR_RETURN(world->log_,
                             DiskLog::open(log_options, *world->drive_.device, world->clock_, Digest{}));
    TIERCEL_ASSIGN_OR_RETURN(world->space_, world->log_->open_space(space_name()));
    for (std::uint64_t at = 0; at + record_length <= memory.size(); at += record_length) {
      world->free_.push_back(memory.data() + at);
      world->checksums_[memory.data() + at] = world->records_.checksums(memory.data() + at);
    }
    return world;
  }

  // Before any read: memory still has the payloads that it began with. Appends records until so many bytes of
  // the drive are theirs, and waits until all is durable.
  Status append(std::uint64_t bytes) {
    for (std::uint64_t done = 0; done < bytes;) {
      if (!free_.empty()) {
        std::byte* const memory = free_.front();
        // A record's payload is what its memory has; its header is the page's own.
        records_.write_header(next_, memory, checksums_[memory]);
        const DiskAnswer answer = log_->append(records_.entry(space_, next_, memory), DiskOffer::kComputed);
        if (answer.verdict == DiskVerdict::kAccepted) {
          under_way_.emplace_back(answer.append, memory);
          free_.pop_front();
          ++next_;
          done += records_.length();
          continue;
        }
        if (answer.verdict != DiskVerdict::kRateLimited && answer.verdict != DiskVerdict::kQuota)
          return {Code::kInternal, fmt::format("append: {}", disk_verdict_name(answer.verdict))};
      }
      if (Status status = go_on(); !status.ok()) return status;
    }
    const std::uint64_t last = log_->last_at();
    log_->flush_soon();
    while (log_->durable_at() < last)
      if (Status status = go_on(); !status.ok()) return status;
    return {};
  }
  // Reads pages, `depth` at once, any of the newest `pages`.
  Status read(std::size_t operations, std::size_t depth, std::uint64_t pages, Prng& prng, Samples& samples) {
    struct Read {
      DiskReadId id;
      std::uint64_t number;
      std::byte* memory;
      double started;
    };
    std::vector<Read> reads;
    std::deque<Read> arrived;
    std::size_t started = 0, ended = 0;
    while (ended < operations) {
      while (reads.size() < depth && started < operations) {
        std::byte* const memory = free_.front();
        const std::uint64_t number = next_ - 1 - prng.below(pages);
        const auto id = log_->read(records_.entry(space_, number, memory), true);
        if (!id && log_->find(records_.name(space_, number), true)) break;  // as many as can be are under way
        const DiskStats& stats = log_->stats();
        if (!id && stats.lost == 0)
          return {Code::kInternal,
                  fmt::format("read: page {} of {} is not there; {} are, the drive is {}", number, next_ - 1,
                              stats.class_sets, stats.down ? "down" : "up")};
        if (!id) continue;  // one that was lost
        free_.pop_front();
        reads.push_back({*id, number, memory, now_nanoseconds()});
        ++started;
      }
      // One at a time, while others are read.
      if (!arrived.empty()) {
        const Read read = arrived.front();
        arrived.pop_front();
        if (Status status = records_.verify(read.number, read.memory); !status.ok()) return status;
        samples.add(now_nanoseconds() - read.started);
        free_.push_back(read.memory);
        ++ended;
      }
      if (reads.empty() && log_->down()) return {Code::kUnavailable, "read: the drive is down"};
      if (log_->poll() == 0 && arrived.empty() && !reads.empty())
        drive_.device->wait(std::chrono::milliseconds(100));
      for (const DiskEvent& event : log_->drain_events()) {
        if (event.kind != DiskEvent::Kind::kRead) continue;
        if (!event.status.ok()) return event.status;
        const auto read =
            std::find_if(reads.begin(), reads.end(), [&](const Read& each) { return each.id == event.read; });
        TIERCEL_CHECK(read != reads.end());
        arrived.push_back(*read);
        reads.erase(read);
      }
    }
    return {};
  }
  // Where any of the newest `pages` lie. The limit reads there, too: some drives are quicker at places that
  // are multiples of the length, which records are not.
  std::vector<std::uint64_t> places(std::size_t count, std::uint64_t pages, Prng& prng) const {
    std::vector<std::uint64_t> places;
    for (std::size_t tried = 0; places.size() < count && tried < 100 * count; ++tried)  // some were lost
      if (const auto found = log_->find(records_.name(space_, next_ - 1 - prng.below(pages)), true))
        places.push_back(found->offset);
    return places;
  }
  const DiskLog& log() const { return *log_; }
  std::string kind() const {
    return fmt::format("{}, {}", block_engine_name(drive_.engine), drive_.direct ? "O_DIRECT" : "page cache");
  }

 private:
  LogWorld(std::uint64_t record_length, MutableByteView memory) : records_(record_length) {
    Prng prng(3);
    for (std::uint64_t at = 0; at + 8 <= memory.size(); at += 8) store_le(memory.data() + at, prng.next());
  }
  Status go_on() {
    if (log_->poll() == 0) drive_.device->wait(std::chrono::milliseconds(1));
    for (const DiskEvent& event : log_->drain_events()) {
      if (event.kind != DiskEvent::Kind::kWritten && event.kind != DiskEvent::Kind::kLost) continue;
      // Where its two buckets of the index are full a page is lost: the log's own rule, and counted.
      if (event.kind == DiskEvent::Kind::kLost && event.status.code != Code::kResourceExhausted)
        return event.status;
      const auto append = std::find_if(under_way_.begin(), under_way_.end(),
                                       [&](const auto& each) { return each.first == event.append; });
      TIERCEL_CHECK(append != under_way_.end());
      free_.push_back(append->second);
      under_way_.erase(append);
    }
    return {};
  }

  Records records_;
  SteadyClock clock_;
  OpenedBlockDevice drive_;
  std::unique_ptr<DiskLog> log_;  // before the drive goes
  DiskSpaceId space_;
  std::deque<std::byte*> free_;
  std::map<std::byte*, std::vector<std::uint32_t>> checksums_;  // of payloads: made when a page is stored
  std::deque<std::pair<DiskAppendId, std::byte*>> under_way_;
  std::uint64_t next_ = 1;
};

class LogBench final {
 public:
  LogBench(BenchRun& run, BenchFolder folder) : run_(run), folder_(std::move(folder)) {}
  Status open() {
    auto memory = Mapping::open({.bytes = 160U << 20});
    if (!memory) return memory.error();
    memory_ = std::move(*memory);
    return {};
  }

  Status read_line(std::uint64_t length, std::size_t depth) {
    const std::string path = folder_.file("log");
    const std::uint64_t bytes = run_.size(run_.disk_bytes() / 2, 64U << 20);
    run_.progress(fmt::format("filling a log of {}", format_size(bytes)));
    auto world = LogWorld::open(path, bytes, length, memory_.bytes());
    if (!world) return world.error();
    const std::uint64_t filled = run_.quick() ? bytes / 4 : bytes / 2;
    if (Status status = (*world)->append(filled); !status.ok()) return status;
    const std::uint64_t moved = run_.size(length < (1U << 20) ? 64U << 20 : 128U << 20, 8U << 20);
    const DriveWork work{BlockWork::kRead, length, filled, memory_.bytes(), depth, moved / length};
    auto bare = BareRing::open(path, memory_.bytes(), static_cast<unsigned>(depth));
    if (!bare) return bare.error();
    CpuMeter ours, limit;
    Status status;
    Prng prng(4);
    std::vector<std::uint64_t> places;
    const auto note = [&status](Status one) {
      if (status.ok()) status = std::move(one);
    };
    const Subject subjects[] = {
        {"log",
         [&](Samples& samples) {
           ours.start();
           note((*world)->read(work.operations, depth, filled / length, prng, samples));
           ours.stop(work.bytes());
         },
         {}},
        {"bare",
         [&](Samples& samples) {
           limit.start();
           note((*bare)->run(work, places, samples));
           limit.stop(work.bytes());
         },
         [&] { places = (*world)->places(work.operations, filled / length, prng); }}};
    const std::string name = fmt::format("log: read {} and verify, {} at once", format_size(length), depth);
    const Comparison result = run_.compare(name, work.operations, subjects);
    if (!status.ok()) return status;
    BenchLine line = line_of(result, name, 0, 1, BenchUnit::kGigabytes, "GB/s", work.bytes());
    line.limit_name = "bare io_uring loop, nothing verified";
    line.target = "ratio >= 0.95";
    line.page_kind = page_kind_name(memory_.pages().kind);
    line.note = fmt::format("{}; processor time for a GiB {:.3f} s, the bare loop {:.3f} s", (*world)->kind(),
                            ours.seconds_per_gib(), limit.seconds_per_gib());
    run_.add(std::move(line));
    world->reset();
    ::unlink(path.c_str());
    return {};
  }

  // A log that is full: each region that is written evicts another.
  Status write_line(std::uint64_t length) {
    const std::string path = folder_.file("log"), plain_path = folder_.file("plain");
    const std::uint64_t bytes = run_.size(1U << 30, 64U << 20);
    run_.progress(fmt::format("filling a log of {}", format_size(bytes)));
    auto world = LogWorld::open(path, bytes, length, memory_.bytes().first(96U << 20));
    if (!world) return world.error();
    if (Status status = (*world)->append(bytes + bytes / 4); !status.ok()) return status;
    auto plain = plain_appender(plain_path, bytes);
    if (!plain) return plain.error();
    const std::uint64_t moved = run_.size(256U << 20, 16U << 20);
    const std::uint64_t flushed = std::min<std::uint64_t>(moved, 64U << 20);
    const DriveWork work{BlockWork::kWrite, kSegment, bytes, memory_.bytes(), 4, flushed / kSegment};
    CpuMeter ours, limit;
    Status status;
    std::uint64_t place = 0;
    const auto note = [&status](Status one) {
      if (status.ok()) status = std::move(one);
    };
    const Subject subjects[] = {{"log",
                                 [&](Samples&) {
                                   ours.start();
                                   note((*world)->append(moved));
                                   ours.stop(moved);
                                 },
                                 {}},
                                {"plain",
                                 [&](Samples&) {
                                   limit.start();
                                   for (std::uint64_t done = 0; done < moved; done += flushed)
                                     note(append_plain(**plain, work, place));
                                   limit.stop(moved);
                                 },
                                 {}}};
    const std::string name = fmt::format("log: write {} for ever, durable", format_size(length));
    const DiskStats before = (*world)->log().stats();
    const Comparison result = run_.compare(name, moved / length, subjects);
    if (!status.ok()) return status;
    const DiskStats after = (*world)->log().stats();
    BenchLine line = line_of(result, name, 0, 1, BenchUnit::kGigabytes, "GB/s", moved);
    line.limit_name =
        fmt::format("{} O_DIRECT appender, a flush each {}", format_size(kSegment), format_size(flushed));
    line.target = "ratio >= 0.95";
    line.page_kind = page_kind_name(memory_.pages().kind);
    const auto per = [&](std::uint64_t to, std::uint64_t from) {
      return static_cast<double>(to - from) /
             static_cast<double>(after.appended_bytes - before.appended_bytes);
    };
    line.note = fmt::format(
        "written per byte appended {:.4f} (records {:.4f}), {} regions evicted, {} records lost; processor "
        "time for a GiB "
        "{:.3f} s, "
        "the appender {:.3f} s",
        per(after.written_bytes, before.written_bytes), per(after.record_bytes, before.record_bytes),
        after.regions_evicted - before.regions_evicted, after.lost - before.lost, ours.seconds_per_gib(),
        limit.seconds_per_gib());
    run_.add(std::move(line));
    world->reset();
    ::unlink(path.c_str());
    ::unlink(plain_path.c_str());
    return {};
  }

 private:
  // Its file is claimed and written once, as the log's is.
  Result<std::unique_ptr<BareRing>> plain_appender(const std::string& path, std::uint64_t bytes) const {
    TIERCEL_RETURN_IF_ERROR(BlockFile::open({.path = path, .bytes = bytes, .create = true}));
    TIERCEL_ASSIGN_OR_RETURN(auto plain, BareRing::open(path, memory_.bytes(), 4));
    const DriveWork all{BlockWork::kWrite, kSegment, bytes, memory_.bytes(), 4, bytes / kSegment};
    std::uint64_t place = 0;
    if (Status status = append_plain(*plain, all, place); !status.ok())
      return tl::unexpected(std::move(status));
    return plain;
  }
  static Status append_plain(BareRing& plain, const DriveWork& work, std::uint64_t& place) {
    std::vector<std::uint64_t> places(work.operations);
    for (std::uint64_t& each : places) {
      if (place + kSegment > work.file_bytes) place = 0;
      each = std::exchange(place, place + kSegment);
    }
    Samples none;
    Status status = plain.run(work, places, none);
    return status.ok() ? plain.flush() : status;
  }

  BenchRun& run_;
  BenchFolder folder_;
  Mapping memory_;
};

}  // namespace

Status disk_log_lines(BenchRun& run) {
  auto folder = BenchFolder::create(run.folder());
  if (!folder) return folder.error();
  LogBench bench(run, std::move(*folder));
  if (Status status = bench.open(); !status.ok()) return status;
  constexpr std::pair<std::uint64_t, std::size_t> kReads[] = {{64U << 10, 32}, {1U << 20, 8}, {4U << 20, 8}};
  for (const auto& [length, depth] : kReads)
    if (Status status = bench.read_line(length, depth); !status.ok()) return status;
  for (const std::uint64_t length : {64U << 10, 1U << 20})
    if (Status status = bench.write_line(length); !status.ok()) return status;
  return {};
}

}  // namespace tiercel
