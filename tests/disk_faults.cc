// What a machine may do to the file of a disk tier (scenario H06): too small, full, not ours, not writable,
// taken, gone. Each is an error in words with nothing changed, or a miss; the cache goes on.

#include <cstring>

#include <fcntl.h>
#include <linux/loop.h>
#include <sys/ioctl.h>

#include "base/sha256.h"
#include "disk/format.h"
#include "disk_faults_bed.h"

namespace tiercel {
namespace {

using testing::Test;

class DiskFaults : public Test {
 protected:
  std::string path() const { return tree_.root() + "/log"; }
  const std::string& folder() const { return tree_.root(); }
  void write(std::string_view text) const { tree_.write("/log", text); }
  // Neither the bytes nor the folder may differ afterwards.
  void expect_left_alone(FileBed& bed, std::string_view wanted) {
    const std::string before = contents(path());
    const std::vector<std::string> names = names_in(folder());
    const std::string why = bed.open();
    EXPECT_NE(why.find(wanted), std::string::npos) << why;
    EXPECT_EQ(why.find('\n'), std::string::npos);
    bed.end();
    EXPECT_TRUE(contents(path()) == before) << "it was changed";
    EXPECT_EQ(names_in(folder()), names);
  }

 private:
  FileTree tree_;
};

std::uint64_t missed_for(const TicketView& view, Reason reason) {
  std::uint64_t pages = 0;
  for (const Miss& miss : view.missed) pages += miss.reason == reason ? miss.pages : 0;
  return pages;
}

// ---- room ----

TEST_F(DiskFaults, AFileThatDoesNotFitItsFileSystemIsRefusedAndNothingIsLeft) {
  const int status = on_tmpfs(folder(), 8 * kMiB, [&] {
    FileBed bed(path(), 16 * kMiB);
    const std::string why = bed.open();
    EXPECT_NE(why.find("resource_exhausted"), std::string::npos) << why;
    EXPECT_NE(why.find("wanted 16 MiB, free on that file system are 8 MiB"), std::string::npos) << why;
    bed.end();
    EXPECT_TRUE(names_in(folder()).empty());
    FileBed fits(path(), 8 * kMiB);
    EXPECT_EQ(fits.open(), "");
  });
  TIERCEL_SKIP_WHERE_NOT_ALLOWED(status, "no file system can be mounted here");
  EXPECT_EQ(status, 0);
}

class DiskFaultsH06 : public DiskFaults, public testing::WithParamInterface<BlockEngine> {};

// All of the file is claimed when it is opened: a full file system is nobody's concern afterwards.
TEST_P(DiskFaultsH06, AClaimedFileOnAFullTmpfsTakesPagesForEver) {
  const int status = on_tmpfs(folder(), 8 * kMiB, [&] {
    FileBed bed(path(), 7 * kMiB, large_pages());
    make_room_for_large_pages(bed);
    bed.device_options.engine = GetParam();
    ASSERT_EQ(bed.open(), "");
    fill_up(folder() + "/filler", 2 * kMiB);
    std::vector<std::vector<Key>> chains, there;
    for (std::uint32_t branch = 0; branch < 40; ++branch) {
      chains.push_back(bed.world->keys(1, branch));
      bed.store(chains.back());
      EXPECT_TRUE(bed.flush());
    }
    EXPECT_EQ(bed.log->stats().io_errors, 0);
    EXPECT_GE(bed.log->stats().regions_evicted, 5);
    for (const std::vector<Key>& keys : chains)
      if (bed.on_disk(keys)) there.push_back(keys);
    EXPECT_GE(there.size(), 3);
    ASSERT_EQ(bed.reopen(), "");
    for (const std::vector<Key>& keys : there) EXPECT_EQ(bed.found(keys), 1);
  });
  TIERCEL_SKIP_WHERE_NOT_ALLOWED(status, "no file system can be mounted here");
  EXPECT_EQ(status, 0);
}

// A sparse file claims nothing: the drive is full in the middle of a write.
TEST_P(DiskFaultsH06, PagesThatFindNoSpaceAreNotStoredAndTheOthersStay) {
  const int status = on_tmpfs(folder(), 8 * kMiB, [&] {
    FileBed bed(path(), 32 * kMiB, large_pages());
    make_room_for_large_pages(bed);
    bed.device_options.engine = GetParam();
    bed.device_options.file.sparse = true;
    ASSERT_EQ(bed.open(), "");
    fill_up(folder() + "/filler", kMiB);
    std::vector<std::vector<Key>> chains;
    std::size_t durable = 0;
    for (std::uint32_t branch = 0; branch < 12; ++branch) {
      chains.push_back(bed.world->keys(1, branch));
      bed.store(chains.back());
      if (durable + 1 == chains.size() && bed.log->stats().io_errors == 0) {
        const auto operation = bed.world->node().flush(std::chrono::hours(1));
        ASSERT_TRUE(operation);
        EXPECT_TRUE(bed.wait_until(
            [&] { return bed.log->durable_at() == bed.log->last_at() || bed.log->stats().io_errors != 0; }));
        durable += bed.log->stats().io_errors == 0 ? 1 : 0;
      }
      EXPECT_EQ(bed.found(chains.back()), 1) << "the host tier goes on";
    }
    EXPECT_GE(durable, 3);
    EXPECT_LT(durable, 8);
    EXPECT_NE(bed.log->stats().io_errors, 0);
    std::filesystem::remove(folder() + "/filler");
    ASSERT_EQ(bed.reopen(), "");
    for (std::size_t i = 0; i < durable; ++i) EXPECT_EQ(bed.found(chains[i]), 1) << i;
  });
  TIERCEL_SKIP_WHERE_NOT_ALLOWED(status, "no file system can be mounted here");
  EXPECT_EQ(status, 0);
}

// When somebody makes room, the log takes pages again by itself.
TEST_F(DiskFaults, RoomThatComesBackIsUsed) {
  const int status = on_tmpfs(folder(), 8 * kMiB, [&] {
    FileBed bed(path(), 32 * kMiB, large_pages());
    make_room_for_large_pages(bed);
    bed.device_options.file.sparse = true;
    ASSERT_EQ(bed.open(), "");
    const std::string filler = folder() + "/filler";
    fill_up(filler, 9 * kMiB);
    bed.store(bed.world->keys(1, 1));
    EXPECT_TRUE(bed.wait_until([&] { return bed.log->stats().io_errors != 0; }));
    std::filesystem::remove(filler);
    std::vector<Key> keys;
    for (std::uint32_t branch = 2; branch < 500 && (keys.empty() || !bed.on_disk(keys)); ++branch) {
      keys = bed.world->keys(1, branch);
      bed.store(keys);
      EXPECT_TRUE(bed.flush());
    }
    ASSERT_EQ(bed.reopen(), "");
    EXPECT_EQ(bed.found(keys), 1);
  });
  TIERCEL_SKIP_WHERE_NOT_ALLOWED(status, "no file system can be mounted here");
  EXPECT_EQ(status, 0);
}

INSTANTIATE_TEST_SUITE_P(Engines, DiskFaultsH06, testing::Values(BlockEngine::kBest, BlockEngine::kThreads),
                         [](const auto& one) { return std::string(block_engine_name(one.param)); });

TEST_F(DiskFaults, AFileSmallerThanFourRegionsIsRefused) {
  FileBed bed(path(), 3 * kMiB);
  write(std::string(3 * kMiB, '\0'));
  expect_left_alone(bed, "size: wanted at least");
}

// ---- what is there already ----

TEST_F(DiskFaults, AFolderIsNoFile) {
  std::filesystem::create_directory(path());
  FileBed bed(path(), 8 * kMiB);
  const std::string why = bed.open();
  EXPECT_NE(why.find("wanted a file or a block device, got a folder"), std::string::npos) << why;
  EXPECT_TRUE(std::filesystem::is_directory(path()));
}

TEST_F(DiskFaults, AFileOfSomethingElseIsLeftAlone) {
  Prng random(3);
  std::string other(8 * kMiB, '\0');
  for (std::size_t i = 0; i < other.size(); i += 64) other[i] = static_cast<char>(random.next());
  write(other);
  FileBed bed(path(), 8 * kMiB);
  expect_left_alone(bed, "what is there is no log of ours");
  FileBed larger(path(), 16 * kMiB);
  expect_left_alone(larger, "wanted 16777216 bytes, got a file of 8388608");
}

TEST_F(DiskFaults, ALogOfAnotherVersionIsLeftAlone) {
  FileBed bed(path(), 8 * kMiB);
  ASSERT_EQ(bed.open(), "");
  bed.store(bed.world->keys(4));
  EXPECT_TRUE(bed.flush());
  bed.end();
  std::string log = contents(path());
  for (const std::size_t superblock : {std::size_t{0}, std::size_t{kBlockBytes}})
    if (log[superblock] != '\0') ++log[superblock + 8];
  write(log);
  expect_left_alone(bed, "superblock: format version: wanted 1, got 2");
}

TEST_F(DiskFaults, AFileThatMayNotBeWrittenIsRefusedAndMayBeRead) {
  FileBed bed(path(), 8 * kMiB);
  ASSERT_EQ(bed.open(), "");
  const std::vector<Key> keys = bed.world->keys(4);
  bed.store(keys);
  EXPECT_TRUE(bed.flush());
  bed.end();
  const int status = in_child_of_test([&] {
    if (::unshare(CLONE_NEWNS) != 0 || ::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
        ::mount(folder().c_str(), folder().c_str(), nullptr, MS_BIND, nullptr) != 0 ||
        ::mount(nullptr, folder().c_str(), nullptr, MS_BIND | MS_REMOUNT | MS_RDONLY, nullptr) != 0)
      ::_exit(kNotAllowed);
    expect_left_alone(bed, "cannot be opened for writing: Read-only file system");
    bed.device_options.file.create = false;
    bed.device_options.file.read_only = true;
    bed.log_options.read_only = true;
    auto drive = open_block_device(bed.device_options);
    ASSERT_TRUE(drive) << drive.error().to_string();
    const auto log = DiskLog::open(bed.log_options, *drive->device, bed.clock, {});
    ASSERT_TRUE(log) << log.error().to_string();
    std::vector<Presence> presence(keys.size());
    (*log)->find_chain((*log)->spaces().at(0).id, 0, keys, presence);
    EXPECT_EQ(presence, std::vector<Presence>(keys.size(), 1));
  });
  TIERCEL_SKIP_WHERE_NOT_ALLOWED(status, "nothing can be mounted here");
  EXPECT_EQ(status, 0);
}

TEST_F(DiskFaults, ASecondProcessIsToldTheNumberOfTheFirst) {
  FileBed bed(path(), 8 * kMiB);
  ASSERT_EQ(bed.open(), "");
  const std::string first = "in use by process " + std::to_string(::getpid());
  EXPECT_EQ(in_child_of_test([&] {
              FileBed second(path(), 8 * kMiB);
              const std::string why = second.open();
              EXPECT_NE(why.find(first), std::string::npos) << why;
            }),
            0);
  const std::vector<Key> keys = bed.world->keys(2);
  bed.store(keys);
  EXPECT_TRUE(bed.flush());
  bed.end();
  EXPECT_EQ(bed.open(), "") << "free as soon as it is closed";
  EXPECT_EQ(bed.found(keys), 2);
}

// ---- a drive that goes away ----

class DiskVanishes : public DiskFaults, public testing::WithParamInterface<VanishingDevice::Mode> {};

TEST_P(DiskVanishes, PagesAreMissedAsTierDownAndTheDriveComesBackByItself) {
  FileBed bed(path(), 8 * kMiB);
  // Only what never answers takes so long, on a busy machine too.
  bed.log_options.stall_after = std::chrono::seconds(2);
  bed.options.adjust = [](NodeOptions& options) {
    options.disk.record_deadline = std::chrono::milliseconds(200);
  };
  ASSERT_EQ(bed.open(), "");
  const std::vector<Key> keys = bed.world->keys(4), later_keys = bed.world->keys(3, 7);
  bed.store(keys);
  EXPECT_TRUE(bed.flush());
  ASSERT_EQ(bed.reopen(), "");

  bed.vanishing->mode = GetParam();
  // Who waits for an answer that does not come waits until its deadline, by the node's clock.
  bed.while_waiting = [&] {
    if (bed.log->down()) bed.world->clock().advance(std::chrono::milliseconds(100));
  };
  const TicketView lost = bed.match(keys);
  EXPECT_EQ(lost.length, 0);
  EXPECT_EQ(missed_for(lost, Reason::kTierDown) + missed_for(lost, Reason::kTooLate), 4);
  EXPECT_TRUE(bed.wait_until([&] { return bed.log->down(); }));
  const TicketView down = bed.match(keys);
  EXPECT_EQ(missed_for(down, Reason::kTierDown), 4) << "at once, and each for that reason";
  bed.store(later_keys);
  EXPECT_EQ(bed.found(later_keys), 3) << "the host tier goes on";
  const std::vector<Key> removed = {keys[3]};
  EXPECT_EQ(bed.world->node().remove(bed.world->ns(), removed).code, Code::kUnavailable);

  bed.vanishing->mode = VanishingDevice::Mode::kWorks;
  EXPECT_TRUE(bed.wait_until([&] { return !bed.log->down(); })) << "it does not come back";
  EXPECT_EQ(bed.found(keys), 3) << "what was removed meanwhile stays removed";
  EXPECT_TRUE(bed.flush());
  EXPECT_EQ(bed.world->node().stats().disk_reading_bytes + bed.world->node().stats().disk_writing_bytes, 0);
  EXPECT_GE(bed.log->stats().trips, 1);
  ASSERT_EQ(bed.reopen(), "");
  EXPECT_GE(bed.found(keys), 3);
}

INSTANTIATE_TEST_SUITE_P(Ways, DiskVanishes,
                         testing::Values(VanishingDevice::Mode::kFails, VanishingDevice::Mode::kSilent),
                         [](const auto& one) {
                           return one.param == VanishingDevice::Mode::kFails ? "Fails" : "SaysNothing";
                         });

// ---- a block device ----

// A file as a drive; detached at the end.
class LoopDrive {
 public:
  explicit LoopDrive(const std::string& file) {
    const int control = ::open("/dev/loop-control", O_RDWR | O_CLOEXEC);
    const int number = control < 0 ? -1 : ::ioctl(control, LOOP_CTL_GET_FREE);
    if (control >= 0) ::close(control);
    const int backing = ::open(file.c_str(), O_RDWR | O_CLOEXEC);
    if (number < 0 || backing < 0) return;
    path_ = "/dev/loop" + std::to_string(number);
    fd_ = ::open(path_.c_str(), O_RDWR | O_CLOEXEC);
    there_ = fd_ >= 0 && ::ioctl(fd_, LOOP_SET_FD, backing) == 0;
    ::close(backing);
  }
  ~LoopDrive() {
    if (there_) ::ioctl(fd_, LOOP_CLR_FD);
    if (fd_ >= 0) ::close(fd_);
  }
  LoopDrive(const LoopDrive&) = delete;
  LoopDrive& operator=(const LoopDrive&) = delete;
  bool there() const { return there_; }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
  int fd_ = -1;
  bool there_ = false;
};

TEST_F(DiskFaults, ABlockDeviceIsADriveAndItsEndIsAMiss) {
  write(std::string(8 * kMiB, '\0'));
  const LoopDrive loop(path());
  if (!loop.there()) GTEST_SKIP() << "skipped: 1 case, no loop device can be had here";
  FileBed bed(loop.path(), 0);
  bed.device_options.file.create = false;
  ASSERT_EQ(bed.open(), "");
  const std::vector<Key> keys = bed.world->keys(4);
  bed.store(keys);
  EXPECT_TRUE(bed.flush());
  FileBed second(loop.path(), 0);
  second.device_options.file.create = false;
  EXPECT_NE(second.open(), "") << "two on one drive";
  ASSERT_EQ(bed.reopen(), "");
  EXPECT_EQ(bed.found(keys), 4);
  ASSERT_EQ(bed.reopen(), "");
  std::filesystem::resize_file(path(), 0);  // from here on the drive has nothing and takes nothing
  const TicketView view = bed.match(keys);
  EXPECT_EQ(view.length, 0);
  EXPECT_EQ(view.missed_tokens, 4 * 16);
  bed.store(bed.world->keys(4, 2));
  EXPECT_EQ(bed.found(bed.world->keys(4, 2)), 4) << "the host tier goes on";
}

}  // namespace
}  // namespace tiercel
