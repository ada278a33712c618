// A cache over a real file or drive for tests of what can happen to one, drives that fail, and file systems
// that are too small.
//
// Threads: one thread; the block device has its own.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <functional>
#include <iterator>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mount.h>
#include <unistd.h>

#include "disk/disk_log.h"
#include "node/test_world.h"
#include "os/block_open.h"
#include "os/test_machine.h"

namespace tiercel {

inline constexpr std::uint64_t kKiB = 1ULL << 10;
inline constexpr std::uint64_t kMiB = 1ULL << 20;
inline constexpr int kNotAllowed = 77;  // exit status of a child that may not do what it is for

// Between the log and its drive.
class DeviceAround : public BlockDevice {
 public:
  explicit DeviceAround(BlockDevice& inner) : inner_(inner) {}
  std::uint64_t size_bytes() const override { return inner_.size_bytes(); }
  bool submit(BlockRequest request) override { return inner_.submit(std::move(request)); }
  std::vector<BlockDone> drain() override {
    std::vector<BlockDone> ends = inner_.drain();
    std::move(ends_.begin(), ends_.end(), std::back_inserter(ends));
    ends_.clear();
    return ends;
  }
  void wait(Duration at_most) override {
    if (ends_.empty()) inner_.wait(at_most);
  }

 protected:
  // Written when it returns. What ended meanwhile is told by the next drain().
  bool write_now(std::uint64_t offset, const BlockPiece& piece) {
    BlockRequest request;
    request.id = UINT64_MAX;
    request.work = BlockWork::kWrite;
    request.offset = offset;
    request.pieces = {piece};
    for (bool begun = false;;) {
      if (!begun) begun = inner_.submit(request);
      inner_.wait(std::chrono::milliseconds(100));
      std::optional<bool> good;
      for (BlockDone& done : inner_.drain()) {
        if (done.id == UINT64_MAX)
          good = done.status.ok();
        else
          ends_.push_back(std::move(done));
      }
      if (good) return *good;
    }
  }
  BlockDevice& inner_;
  std::vector<BlockDone> ends_;  // to be told
};

// One that is gone, or says nothing at all, as long as the test says so.
class VanishingDevice final : public DeviceAround {
 public:
  enum class Mode : std::uint8_t { kWorks, kFails, kSilent };
  using DeviceAround::DeviceAround;

  bool submit(BlockRequest request) override {
    if (mode == Mode::kWorks) return DeviceAround::submit(std::move(request));
    (mode == Mode::kFails ? ends_ : silent_)
        .push_back({request.id, {Code::kUnavailable, "the test's drive is gone"}});
    return true;
  }
  std::vector<BlockDone> drain() override {
    std::vector<BlockDone> ends = DeviceAround::drain();
    if (mode != Mode::kSilent)  // what was not answered fails now
      std::move(silent_.begin(), silent_.end(), std::back_inserter(ends)), silent_.clear();
    return ends;
  }
  void wait(Duration at_most) override {
    if (mode == Mode::kWorks) return DeviceAround::wait(at_most);
    if (ends_.empty())
      ::usleep(
          static_cast<useconds_t>(std::min<Duration>(at_most, std::chrono::milliseconds(1)).count() / 1000));
  }
  Mode mode = Mode::kWorks;

 private:
  std::vector<BlockDone> silent_;
};

// Writes in steps, one after the other; `after` hears of each.
class SteppingDevice final : public DeviceAround {
 public:
  static constexpr std::uint64_t kStepBytes = 64 * kKiB;
  using DeviceAround::DeviceAround;

  bool submit(BlockRequest request) override {
    if (before && request.work == BlockWork::kWrite) before();
    if (whole || request.work != BlockWork::kWrite || request.bytes() <= kStepBytes)
      return DeviceAround::submit(std::move(request));
    std::vector<std::byte> bytes;
    for (const BlockPiece& piece : request.pieces) {
      if (piece.data != nullptr)
        bytes.insert(bytes.end(), piece.data, piece.data + piece.length);
      else
        bytes.resize(bytes.size() + piece.length);
    }
    int step = 0;
    for (std::uint64_t at = 0; at < bytes.size(); at += kStepBytes) {
      if (!write_now(request.offset + at, {bytes.data() + at, std::min(kStepBytes, bytes.size() - at)}))
        return ends_.push_back({request.id, {Code::kIoError, "a step"}}), true;
      if (after) after(++step);
    }
    ends_.push_back({request.id, {}});
    return true;
  }
  std::function<void()> before;  // a write
  std::function<void(int step)> after;
  bool whole = false;  // in one step, whatever their length
};

// A log of small regions on `path`, and a node over it. What it expects it expects in gtest's way, so that a
// child's failures are its parent's (in_child_of_test).
class FileBed {
 public:
  explicit FileBed(std::string path, std::uint64_t bytes, const TestModel& model = {}) {
    device_options.file.path = std::move(path);
    device_options.file.bytes = bytes;
    device_options.file.create = true;
    log_options.region_bytes = 1 * kMiB;
    log_options.segment_bytes = 64 * kKiB;
    log_options.index_entries = 1024;
    log_options.admission = DiskAdmission::kAll;
    log_options.stall_after = std::chrono::seconds(60);
    log_options.retry_after = std::chrono::milliseconds(2);
    log_options.retry_after_max = std::chrono::milliseconds(20);
    options.spec = test_spec(model);
  }
  ~FileBed() { end(); }

  // "" or why it does not open.
  std::string open() {
    auto opened = open_block_device(device_options);
    if (!opened) return opened.error().to_string();
    drive = std::make_unique<OpenedBlockDevice>(std::move(*opened));
    vanishing = std::make_unique<VanishingDevice>(*drive->device);
    if (around) outer = around(*vanishing);
    stepping = std::make_unique<SteppingDevice>(outer ? *outer : static_cast<BlockDevice&>(*vanishing));
    auto made = DiskLog::open(log_options, *stepping, clock, Digest{std::byte{7}});
    if (!made) return made.error().to_string();
    log = std::move(*made);
    options.disk = log.get();
    world = std::make_unique<TestWorld>(options);
    return "";
  }
  // As after the end of the process.
  void end() {
    world.reset();
    log.reset();
    stepping.reset();
    outer.reset();
    vanishing.reset();
    drive.reset();
  }
  std::string reopen() {
    end();
    return open();
  }

  // Until it holds; a minute at most, which nothing here takes.
  bool wait_until(const std::function<bool()>& holds) {
    const Time limit = later(clock.now(), std::chrono::minutes(1));
    while (!holds()) {
      if (while_waiting) while_waiting();
      if (world->node().poll() == 0) stepping->wait(std::chrono::microseconds(200));
      if (clock.now() > limit) return false;
    }
    return true;
  }
  // Whether everything is behind a flush.
  bool flush() {
    const auto operation = world->node().flush(std::chrono::seconds(30));
    EXPECT_TRUE(operation);
    bool durable = false;
    const bool ended = wait_until([&] {
      for (const Completion& completion : world->node().drain_completions()) {
        if (completion.kind != CompletionKind::kFlushed || completion.operation != *operation) continue;
        durable = completion.status.ok();
        return true;
      }
      return false;
    });
    return ended && durable;
  }
  void store(const std::vector<Key>& keys) {
    for (std::uint64_t page = 0; page < keys.size(); ++page) world->store(keys, page, ClassId(0));
  }
  // A chain of one page.
  bool on_disk(const std::vector<Key>& keys) const {
    return log->find({DiskSpaceId(1), keys[0], ClassId(0)}, true).has_value();
  }
  TicketView match(const std::vector<Key>& keys) {
    MatchQuery query;
    query.session = world->session();
    query.ns = world->ns();
    query.keys = keys;
    query.may_promote = true;
    const auto found = world->node().match(query);
    EXPECT_TRUE(found);
    if (!found) return {};
    ticket = *found;
    EXPECT_TRUE(wait_until([&] { return !world->view(ticket).pending; })) << "a match does not end";
    return world->view(ticket);
  }
  // How long a prefix is found, every byte of which was loaded and compared.
  std::uint64_t found(const std::vector<Key>& keys) {
    const std::uint64_t length = match(keys).length;
    if (length != 0) {
      EXPECT_EQ(world->load(ticket, length).length, length);
      EXPECT_EQ(world->wrong_bytes(keys, length), "");
    }
    world->node().release(ticket);
    return length;
  }

  BlockDeviceOptions device_options;
  DiskLogOptions log_options;
  TestOptions options;
  SteadyClock clock;
  std::unique_ptr<OpenedBlockDevice> drive;
  std::unique_ptr<VanishingDevice> vanishing;
  std::function<std::unique_ptr<BlockDevice>(BlockDevice& inner)> around;  // one more, if it is there
  std::unique_ptr<BlockDevice> outer;
  std::unique_ptr<SteppingDevice> stepping;
  std::unique_ptr<DiskLog> log;
  std::unique_ptr<TestWorld> world;
  TicketId ticket;
  std::function<void()> while_waiting;
};

// Pages of one mebibyte, few of them at once.
inline TestModel large_pages() {
  TestModel model;
  model.token_bytes = 256 * kKiB;  // of one component of one layer
  return model;
}
inline void make_room_for_large_pages(FileBed& bed) {
  bed.log_options.region_bytes = 1280 * kKiB;
  bed.log_options.segment_bytes = kMiB;
  bed.options.host_bytes = 12 * kMiB;
  bed.options.extent_bytes = 64 * kKiB;
  bed.options.engine_slots = 8;
  bed.options.device_bytes = 8 * kMiB;
}

inline std::string contents(const std::string& path) {
  std::string bytes;
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  std::string part(kMiB, '\0');
  for (ssize_t got = 0; (got = ::read(fd, part.data(), part.size())) > 0;)
    bytes.append(part, 0, static_cast<std::size_t>(got));
  ::close(fd);
  return bytes;
}
// As far as there is room.
inline void fill_up(const std::string& path, std::uint64_t bytes) {
  const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
  const std::string part(64 * kKiB, 'x');
  for (std::uint64_t done = 0; done < bytes; done += part.size())
    if (::write(fd, part.data(), part.size()) != static_cast<ssize_t>(part.size())) break;
  ::close(fd);
}
inline std::vector<std::string> names_in(const std::string& folder) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder))
    names.push_back(entry.path().filename());
  std::sort(names.begin(), names.end());
  return names;
}

// In a child whose expectations count as ours. 0: all held.
inline int in_child_of_test(const std::function<void()>& body) {
  return in_child([&] {
    body();
    std::fflush(stdout);
    return !testing::Test::HasFailure();
  });
}
// The same with a file system of so many bytes of its own at `folder`, gone with the child.
inline int on_tmpfs(const std::string& folder, std::uint64_t bytes, const std::function<void()>& body) {
  return in_child_of_test([&] {
    const std::string size = "size=" + std::to_string(bytes);
    if (::unshare(CLONE_NEWNS) != 0 || ::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
        ::mount("tiercel", folder.c_str(), "tmpfs", 0, size.c_str()) != 0)
      ::_exit(kNotAllowed);
    body();
  });
}
#define TIERCEL_SKIP_WHERE_NOT_ALLOWED(status, what) \
  if ((status) == kNotAllowed) GTEST_SKIP() << "skipped: 1 case, " << (what) << " (it takes CAP_SYS_ADMIN)"

}  // namespace tiercel
