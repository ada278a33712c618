// A store on a folder whose file system fails, hangs or whose writer is killed at every step.
#include "remote/posix_store.h"

#include <atomic>
#include <cerrno>
#include <condition_variable>
#include <csignal>
#include <filesystem>
#include <functional>
#include <mutex>

#include <fcntl.h>
#include <sys/stat.h>

#include "base/crc32c.h"
#include "os/child_process.h"
#include "remote/test_remote.h"
#include "remote/test_store_bed.h"

namespace tiercel {
namespace {

namespace files = std::filesystem;

constexpr std::uint64_t kPage = 1U << 20;

std::vector<std::byte> content(std::uint64_t bytes, std::uint64_t factor = 7) {
  std::vector<std::byte> made(bytes);
  for (std::uint64_t i = 0; i < bytes; ++i) made[i] = static_cast<std::byte>(i * factor + 3);
  return made;
}

// An object's bytes in private memory.
class OwnMemory final : public ObjectMemory {
 public:
  explicit OwnMemory(std::vector<std::byte> of) : bytes(std::move(of)) {}
  bool copy_from(std::uint64_t offset, MutableByteView to, std::uint32_t& crc) override {
    std::memcpy(to.data(), bytes.data() + offset, to.size());
    crc = crc32c(to, crc);
    return wanted;
  }
  bool copy_to(std::uint64_t offset, ByteView from, std::uint32_t& crc) override {
    std::memcpy(bytes.data() + offset, from.data(), from.size());
    crc = crc32c(from, crc);
    return wanted;
  }
  std::vector<std::byte> bytes;
  bool wanted = true;
};

RemoteOutcome put(const ObjectFiles& store, const std::string& name, const std::vector<std::byte>& bytes,
                  bool replace = false) {
  OwnMemory memory(bytes);
  std::vector<std::byte> buffer(64U << 10);
  return store.put(name, bytes.size(), replace, memory, buffer, 0);
}
// Its bytes; empty: absent. Any other outcome is a failure.
std::vector<std::byte> get(const ObjectFiles& store, const std::string& name, std::uint64_t bytes) {
  OwnMemory memory{std::vector<std::byte>(bytes)};
  std::vector<std::byte> buffer(64U << 10);
  const RemoteResult result = store.get(name, bytes, memory, buffer);
  EXPECT_TRUE(result.outcome == RemoteOutcome::kOk || result.outcome == RemoteOutcome::kAbsent)
      << remote_outcome_name(result.outcome);
  return result.outcome == RemoteOutcome::kOk ? memory.bytes : std::vector<std::byte>();
}
std::unique_ptr<ObjectFiles> open_files(const std::string& folder,
                                        const PosixCalls& calls = linux_posix_calls()) {
  auto opened = ObjectFiles::open(folder, calls);
  EXPECT_TRUE(opened) << (opened ? "" : opened.error().to_string());
  return opened ? std::move(*opened) : nullptr;
}
// What is in the folder besides objects, its mark and its places.
std::vector<std::string> strays(const std::string& folder) {
  std::vector<std::string> found;
  for (const auto& entry : files::recursive_directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    if (entry.is_regular_file() && !name.starts_with("o-") && !name.ends_with(".lock") &&
        name != "tiercel-posix-store")
      found.push_back(name);
  }
  return found;
}

TEST(ObjectFiles, FilesAreTheirOwnersAloneAndSpreadByName) {
  const TestFolder folder;
  const auto store = open_files(folder.path() + "/store");
  ASSERT_EQ(put(*store, "name", content(10)), RemoteOutcome::kOk);
  const std::string path = folder.path() + "/store/" + object_path("name");
  EXPECT_TRUE(object_path("name").ends_with("/o-name"));
  struct stat found {};
  ASSERT_EQ(::stat(path.c_str(), &found), 0);
  EXPECT_EQ(found.st_mode & 0777U, 0600U);
  EXPECT_EQ(static_cast<std::uint64_t>(found.st_size), 10 + kObjectTrailerBytes);
  ASSERT_EQ(::stat(files::path(path).parent_path().c_str(), &found), 0);
  EXPECT_EQ(found.st_mode & 0777U, 0700U);
  ASSERT_EQ(::stat((folder.path() + "/store").c_str(), &found), 0);
  EXPECT_EQ(found.st_mode & 0777U, 0700U);
  std::set<std::string> folders;
  for (int i = 0; i < 2000; ++i) folders.insert(object_path(fmt::format("page-{}", i)).substr(0, 2));
  EXPECT_EQ(folders.size(), 256U);
}

TEST(ObjectFiles, AFileThatIsDamagedTornOrAnothersIsAbsentAndGone) {
  const TestFolder folder;
  const std::string top = folder.path() + "/store";
  const auto store = open_files(top);
  const auto bytes = content(300);
  const std::string path = top + "/" + object_path("a");
  for (off_t at = 0; at < static_cast<off_t>(300 + kObjectTrailerBytes); ++at) {
    ASSERT_EQ(put(*store, "a", bytes), RemoteOutcome::kOk);
    ASSERT_TRUE(flip_byte(path, at));
    ASSERT_TRUE(get(*store, "a", 300).empty()) << at;
    ASSERT_FALSE(files::exists(path)) << at;
  }
  for (std::uintmax_t size = 0; size < 300 + kObjectTrailerBytes; size += 7) {
    ASSERT_EQ(put(*store, "a", bytes), RemoteOutcome::kOk);
    files::resize_file(path, size);
    ASSERT_EQ(store->exists("a").outcome, RemoteOutcome::kAbsent) << size;
    ASSERT_FALSE(files::exists(path)) << size;
  }
  ASSERT_EQ(put(*store, "a", bytes), RemoteOutcome::kOk);
  files::create_directories(files::path(top + "/" + object_path("b")).parent_path());
  files::copy_file(path, top + "/" + object_path("b"));
  EXPECT_EQ(store->exists("b").outcome, RemoteOutcome::kAbsent);
  ASSERT_EQ(put(*store, "b", content(50)), RemoteOutcome::kOk);
  EXPECT_EQ(get(*store, "b", 50), content(50));
}

TEST(ObjectFiles, AFolderOfSomethingElseIsRefused) {
  const TestFolder folder;
  const std::string top = folder.path() + "/store";
  open_files(top);
  EXPECT_TRUE(open_files(top));
  ASSERT_TRUE(flip_byte(top + "/tiercel-posix-store", 3));
  const auto refused = ObjectFiles::open(top, linux_posix_calls());
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Code::kInvalidArgument);
  files::resize_file(top + "/tiercel-posix-store", 0);  // its maker was killed
  EXPECT_TRUE(open_files(top));
  EXPECT_EQ(ObjectFiles::open(folder.path() + "/no/such", linux_posix_calls()).error().code,
            Code::kUnavailable);
}

TEST(ObjectFiles, WhatIsWantedNoMoreIsNotPublished) {
  const TestFolder folder;
  const auto store = open_files(folder.path() + "/store");
  for (const bool replace : {false, true}) {
    OwnMemory memory(content(1000));
    memory.wanted = false;
    std::vector<std::byte> buffer(100);
    EXPECT_EQ(store->put("a", 1000, replace, memory, buffer, 0), RemoteOutcome::kCancelled);
    EXPECT_EQ(store->exists("a").outcome, RemoteOutcome::kAbsent);
  }
  EXPECT_EQ(strays(folder.path()), std::vector<std::string>());
}

// As after a file system was mounted anew: what was opened leads nowhere, the path is right.
TEST(ObjectFiles, AFolderThatWasExchangedIsFoundAgainAndAnEmptyOneIsLeftAlone) {
  const TestFolder folder;
  const std::string top = folder.path() + "/store";
  open_files(folder.path() + "/other");
  const auto store = open_files(top);
  ASSERT_EQ(put(*store, "a", content(10)), RemoteOutcome::kOk);
  files::rename(top, folder.path() + "/gone");
  files::create_directory(top);  // nothing is mounted
  store->reopen();
  ASSERT_EQ(put(*store, "b", content(10)), RemoteOutcome::kOk);
  EXPECT_TRUE(files::is_empty(top));
  files::remove(top);
  files::rename(folder.path() + "/other", top);
  store->reopen();
  EXPECT_EQ(store->exists("a").outcome, RemoteOutcome::kAbsent);
  ASSERT_EQ(put(*store, "c", content(10)), RemoteOutcome::kOk);
  EXPECT_TRUE(files::exists(top + "/" + object_path("c")));
}

// While it is read from, `meanwhile` happens.
class InterruptedMemory final : public ObjectMemory {
 public:
  InterruptedMemory(OwnMemory& of, std::function<void()> meanwhile)
      : memory_(of), meanwhile_(std::move(meanwhile)) {}
  bool copy_from(std::uint64_t offset, MutableByteView to, std::uint32_t& crc) override {
    if (offset == 0) meanwhile_();
    return memory_.copy_from(offset, to, crc);
  }
  bool copy_to(std::uint64_t, ByteView, std::uint32_t&) override { return false; }

 private:
  OwnMemory& memory_;
  std::function<void()> meanwhile_;
};

// A place in the folder that was is none in the one that is: there it may be another store's.
TEST(ObjectFiles, AFolderThatWasMadeAnewIsWrittenToInAPlaceOfItsOwn) {
  const TestFolder folder;
  const std::string top = folder.path() + "/store";
  const auto bytes = content(1000);
  const auto moved = open_files(top);
  files::remove_all(top);
  const auto there = open_files(top);  // has the place in it that the other one had in the old one
  for (const bool replace : {false, true}) EXPECT_EQ(put(*moved, "a", bytes, replace), RemoteOutcome::kDown);
  moved->reopen();
  EXPECT_TRUE(files::exists(top + "/writing/w1.lock"));
  OwnMemory own(bytes);
  InterruptedMemory memory(own, [&] { ASSERT_EQ(put(*there, "b", bytes, true), RemoteOutcome::kOk); });
  std::vector<std::byte> buffer(100);
  EXPECT_EQ(moved->put("a", 1000, true, memory, buffer, 0), RemoteOutcome::kOk);
  EXPECT_EQ(get(*there, "a", 1000), bytes);
  EXPECT_EQ(get(*moved, "b", 1000), bytes);
  EXPECT_EQ(strays(folder.path()), std::vector<std::string>());
}

// What is under way in a folder keeps its place there until it has ended.
TEST(ObjectFiles, APlaceIsNobodyElsesWhileSomethingIsWrittenInIt) {
  const TestFolder folder;
  const std::string top = folder.path() + "/store";
  const auto store = open_files(top);
  const auto bytes = content(1000);
  std::unique_ptr<ObjectFiles> other;
  OwnMemory own(bytes);
  InterruptedMemory memory(own, [&] {
    store->reopen();
    other = open_files(top);
    ASSERT_EQ(put(*other, "b", bytes, true), RemoteOutcome::kOk);
    ASSERT_EQ(put(*store, "c", bytes, true), RemoteOutcome::kOk);
  });
  std::vector<std::byte> buffer(100);
  EXPECT_EQ(store->put("a", 1000, true, memory, buffer, 0), RemoteOutcome::kOk);
  for (const char* name : {"a", "b", "c"}) EXPECT_EQ(get(*other, name, 1000), bytes) << name;
  for (int i = 0; i < 10; ++i) store->reopen();
  EXPECT_FALSE(files::exists(top + "/writing/w3.lock")) << "places that it has left are taken again";
}

// H05: a writer that is killed before each of its file calls, under the eyes of a reader; in every way that a
// file system offers to publish a file.
TEST(PosixStoreH05, AWriterKilledAtAnyStepLeavesAWholeObjectOrNone) {
  LinuxChildProcesses processes;
  std::uint64_t kills = 0;
  for (const std::string form : {"unnamed", "named", "renamed"})
    for (const std::string verb : {"put", "replace"}) {
      const auto before = verb == "replace" ? content(kPage, 5) : std::vector<std::byte>();
      const auto after = content(kPage);
      for (std::uint64_t step = 0;; ++step) {
        const TestFolder folder;
        const std::string top = folder.path() + "/store";
        const auto reader = open_files(top);
        ASSERT_TRUE(before.empty() || put(*reader, "page", before) == RemoteOutcome::kOk);
        ChildOptions victim;
        victim.argv = {(files::path(test_connector_path()).parent_path() / "remote_test_victim").string(),
                       top,
                       "page",
                       std::to_string(kPage),
                       std::to_string(step),
                       form,
                       verb};
        auto child = processes.start(victim);
        ASSERT_TRUE(child) << child.error().to_string();
        while (!(*child)->wait(std::chrono::milliseconds(2))) {
          const auto seen = get(*reader, "page", kPage);
          ASSERT_TRUE(seen == before || seen == after) << form << ", " << verb << ", step " << step;
        }
        const auto seen = get(*reader, "page", kPage);
        ASSERT_TRUE(seen == before || seen == after) << form << ", " << verb << ", step " << step;
        const auto reopened = open_files(top);
        ASSERT_EQ(strays(top), std::vector<std::string>()) << form << ", " << verb << ", step " << step;
        ASSERT_EQ(get(*reopened, "page", kPage), seen);
        ASSERT_EQ(put(*reopened, "page", after, true), RemoteOutcome::kOk);
        ASSERT_EQ(get(*reopened, "page", kPage), after);
        if ((*child)->end() == "exited with 0") {
          ASSERT_EQ(seen, after);
          ASSERT_GT(step, 20U) << "it was killed at too few places";
          break;
        }
        ASSERT_EQ((*child)->end(), "killed by signal 9 (Killed)")
            << form << ", " << verb << ", step " << step;
        ++kills;
      }
    }
  EXPECT_GT(kills, 150U);
}

// The file system under test: one call fails, or calls of a kind hang until they are let go.
class ToughCalls final : public PosixCalls {
 public:
  SystemResult<int> open(int folder, const std::string& path, int flags, unsigned mode) const override {
    if (unnamed_missing && (flags & O_TMPFILE) == O_TMPFILE) return tl::unexpected(EOPNOTSUPP);
    if (const int failed = fails(); failed != 0) return tl::unexpected(failed);
    return calls_.open(folder, path, flags, mode);
  }
  void close(int fd) const override { calls_.close(fd); }
  int make_folder(int folder, const std::string& path) const override {
    const int failed = fails();
    return failed != 0 ? failed : calls_.make_folder(folder, path);
  }
  SystemResult<std::uint64_t> size(int fd) const override {
    if (const int failed = fails(); failed != 0) return tl::unexpected(failed);
    return calls_.size(fd);
  }
  SystemResult<std::uint64_t> read(int fd, std::uint64_t offset, MutableByteView to) const override {
    hang();
    if (const int failed = fails(); failed != 0) return tl::unexpected(failed);
    return calls_.read(fd, offset, to);
  }
  int write(int fd, std::uint64_t offset, ByteView from) const override {
    hang();
    const int failed = fails();
    if (failed != 0) calls_.write(fd, offset, from.first(from.size() / 2));  // a part of it all the same
    return failed != 0 ? failed : calls_.write(fd, offset, from);
  }
  int link_unnamed(int fd, int folder, const std::string& path) const override {
    const int failed = fails();
    return failed != 0 ? failed : calls_.link_unnamed(fd, folder, path);
  }
  int link(int folder, const std::string& from, const std::string& to) const override {
    const int failed = fails();
    return failed != 0 ? failed : calls_.link(folder, from, to);
  }
  int rename(int folder, const std::string& from, const std::string& to) const override {
    const int failed = fails();
    return failed != 0 ? failed : calls_.rename(folder, from, to);
  }
  int remove(int folder, const std::string& path) const override { return calls_.remove(folder, path); }
  int lock(int fd) const override { return calls_.lock(fd); }

  // Call number `step` from now on ends with `error`.
  void fail_at(std::uint64_t step, int error) {
    step_ = step;
    error_ = error;
    done_ = 0;
  }
  bool failed() const { return done_ > step_; }
  void hold() { set_held(true); }
  void let_go() { set_held(false); }
  unsigned hanging() const {
    const std::lock_guard lock(mutex_);
    return hanging_;
  }
  bool unnamed_missing = false;

 private:
  int fails() const { return done_++ == step_ ? error_.load() : 0; }
  void set_held(bool held) {
    {
      const std::lock_guard lock(mutex_);
      held_ = held;
    }
    changed_.notify_all();
  }
  void hang() const {
    std::unique_lock lock(mutex_);
    ++hanging_;
    changed_.wait(lock, [&] { return !held_; });
    --hanging_;
  }

  LinuxPosixCalls calls_;
  mutable std::atomic<std::uint64_t> done_{0};
  std::atomic<std::uint64_t> step_{~0ULL};
  std::atomic<int> error_{0};
  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  mutable unsigned hanging_ = 0;
  bool held_ = false;
};

TEST(ObjectFiles, ACallThatFailsIsNeverASuccessAndHealsByItself) {
  struct Error {
    int number;
    RemoteOutcome outcome;
  };
  const Error errors[] = {{ENOSPC, RemoteOutcome::kNoRoom}, {EDQUOT, RemoteOutcome::kNoRoom},
                          {EIO, RemoteOutcome::kFailed},    {ESTALE, RemoteOutcome::kDown},
                          {ENOTCONN, RemoteOutcome::kDown}, {EFBIG, RemoteOutcome::kTooLarge}};
  const auto bytes = content(100'000);
  for (const Error& error : errors)
    for (const bool unnamed : {true, false})
      for (const bool replace : {false, true}) {
        const TestFolder folder;
        ToughCalls calls;
        calls.unnamed_missing = !unnamed;
        const auto store = open_files(folder.path() + "/store", calls);
        bool failed = true;
        for (std::uint64_t step = 0; failed; ++step) {
          calls.fail_at(step, error.number);
          const RemoteOutcome outcome = put(*store, "a", bytes, replace);
          failed = calls.failed();
          ASSERT_EQ(outcome, failed ? error.outcome : RemoteOutcome::kOk)
              << step << ", errno " << error.number;
          calls.fail_at(~0ULL, 0);
          const auto seen = get(*store, "a", bytes.size());
          ASSERT_TRUE(failed ? seen.empty() : seen == bytes) << step;
        }
        failed = true;
        for (std::uint64_t step = 0; failed; ++step) {
          calls.fail_at(step, error.number);
          OwnMemory memory{std::vector<std::byte>(bytes.size())};
          std::vector<std::byte> buffer(64U << 10);
          const RemoteResult result = store->get("a", bytes.size(), memory, buffer);
          failed = calls.failed();
          ASSERT_EQ(result.outcome, failed ? error.outcome : RemoteOutcome::kOk) << step;
          calls.fail_at(~0ULL, 0);
          ASSERT_EQ(get(*store, "a", bytes.size()), bytes) << "an error of the device is no damage";
        }
        EXPECT_EQ(strays(folder.path()), std::vector<std::string>());
      }
}

// A clock that other threads may read while it is moved.
class SharedClock final : public Clock {
 public:
  Time now() const override { return Time(now_.load()); }
  void advance(Duration by) { now_ += by.count(); }

 private:
  std::atomic<Duration::rep> now_{0};
};

class PosixStoreTest : public testing::Test {
 protected:
  void SetUp() override {
    auto opened = PosixStore::open(
        {.folder = folder_.path() + "/store", .threads = 2, .exchange_bytes = 16U << 20}, clock_, calls_);
    ASSERT_TRUE(opened) << opened.error().to_string();
    store_ = std::move(*opened);
    bed_ = std::make_unique<StoreBed>(*store_, clock_);
    ASSERT_EQ(bed_->run(RemoteVerb::kPut, {item("a", 0, kPage)}), "ok");
  }
  void TearDown() override { calls_.let_go(); }
  static RemoteItem item(const std::string& name, std::uint64_t offset, std::uint64_t bytes) {
    return {name, {{0, offset, bytes}}};
  }
  RemoteBatchId start(RemoteVerb verb, std::vector<RemoteItem> items) {
    return bed_->submit({verb, std::move(items), clock_.now() + std::chrono::seconds(1)});
  }

  const TestFolder folder_;
  SharedClock clock_;
  ToughCalls calls_;  // outlives the store
  std::unique_ptr<PosixStore> store_;
  std::unique_ptr<StoreBed> bed_;
};

TEST_F(PosixStoreTest, AFileSystemThatHangsCostsTheDeadlineAndNothingElse) {
  calls_.hold();
  std::memset(store_->exchange(), 0xEE, 8 * kPage);
  std::vector<RemoteBatchId> under_way;
  for (std::uint64_t i = 0; i < 5; ++i)
    under_way.push_back(start(RemoteVerb::kGet, {item("a", i * kPage, kPage)}));
  ASSERT_TRUE(bed_->until([&] { return calls_.hanging() == 2; }));
  EXPECT_TRUE(store_->health().ready);
  EXPECT_EQ(store_->next_due(), clock_.now() + std::chrono::seconds(1));
  clock_.advance(std::chrono::seconds(1));
  bed_->collect();  // at once, whatever hangs
  for (const RemoteBatchId id : under_way) {
    ASSERT_TRUE(bed_->quiet(id));
    EXPECT_EQ(outcomes_text(bed_->end_of(id)), "late");
  }
  EXPECT_EQ(store_->health().batches_in_flight, 0U);
  EXPECT_FALSE(store_->health().ready);
  EXPECT_NE(store_->health().why_not.find("all 2 threads wait"), std::string::npos)
      << store_->health().why_not;
  EXPECT_EQ(store_->submit({RemoteVerb::kExists, {{"a", {}}}, Time::max()}).error().code, Code::kUnavailable);
  calls_.let_go();
  ASSERT_TRUE(bed_->until_ready());
  EXPECT_EQ(bed_->run(RemoteVerb::kExists, {{"a", {}}}), "ok");
  for (std::uint64_t i = 0; i < 8 * kPage; ++i)
    ASSERT_EQ(store_->exchange()[i], std::byte{0xEE}) << "memory of a batch that has ended was touched";
}

// A thread that was just done with a batch's last item has not hung.
TEST_F(PosixStoreTest, AStoreWhoseThreadsAreDoneIsReadyAtOnce) {
  auto opened =
      PosixStore::open({.folder = folder_.path() + "/one", .threads = 1, .exchange_bytes = 1U << 20}, clock_);
  ASSERT_TRUE(opened) << opened.error().to_string();
  StoreBed bed(**opened, clock_);
  for (int i = 0; i < 3000; ++i) {
    ASSERT_EQ(bed.run(RemoteVerb::kExists, {{"a", {}}}), "absent");
    ASSERT_TRUE((*opened)->health().ready) << i << ": " << (*opened)->health().why_not;
  }
}

TEST_F(PosixStoreTest, ACancelOfWhatHangsEndsIt) {
  calls_.hold();
  const auto read = start(RemoteVerb::kGet, {item("a", 0, kPage), item("no", 0, 1)});
  const auto write = start(RemoteVerb::kPut, {item("b", 0, kPage)});
  ASSERT_TRUE(bed_->until([&] { return calls_.hanging() == 2; }));
  store_->cancel(read);
  store_->cancel(write);
  EXPECT_EQ(outcomes_text(bed_->end_of(write)), "cancelled");
  bed_->end_of(read);
  calls_.let_go();
  ASSERT_TRUE(bed_->until_ready());
  EXPECT_EQ(bed_->run(RemoteVerb::kExists, {{"a", {}}}), "ok");
}

TEST_F(PosixStoreTest, ClosesWhileItsFileSystemHangs) {
  calls_.hold();
  const auto id = start(RemoteVerb::kGet, {item("a", 0, kPage)});
  ASSERT_TRUE(bed_->until([&] { return calls_.hanging() == 1; }));
  store_->close(Duration(0));
  bed_->collect();
  EXPECT_EQ(outcomes_text(bed_->end_of(id)), "cancelled");
  EXPECT_TRUE(bed_->quiet(id));
  calls_.let_go();
  store_->close(store_patience);
}

TEST_F(PosixStoreTest, ItemsInTimeKeepTheirResultsWhenTheRestIsLate) {
  EXPECT_EQ(bed_->run(RemoteVerb::kExists, {{"no", {}}}), "absent");
  calls_.hold();
  const auto id = start(RemoteVerb::kExists, {{"no", {}}, {"a", {}}, {"nothing", {}}});
  ASSERT_TRUE(bed_->until([&] { return calls_.hanging() == 1; }));
  // The other thread does what can be done.
  const auto other = start(RemoteVerb::kExists, {{"none", {}}});
  EXPECT_EQ(outcomes_text(bed_->end_of(other)), "absent");
  clock_.advance(std::chrono::seconds(1));
  EXPECT_EQ(outcomes_text(bed_->end_of(id)), "absent late absent");
}

TEST_F(PosixStoreTest, OptionsThatMakeNoSenseAreRefused) {
  const auto code = [&](const PosixStoreOptions& options) {
    const auto opened = PosixStore::open(options, clock_);
    return opened ? Code::kOk : opened.error().code;
  };
  EXPECT_EQ(code({}), Code::kInvalidArgument);
  EXPECT_EQ(code({.folder = folder_.path() + "/x", .threads = 0}), Code::kInvalidArgument);
  EXPECT_EQ(code({.folder = folder_.path() + "/x", .threads = kObjectThreadsMax + 1}),
            Code::kInvalidArgument);
  EXPECT_EQ(code({.folder = folder_.path() + "/x", .exchange_bytes = 0}), Code::kInvalidArgument);
  EXPECT_EQ(code({.folder = folder_.path() + "/no/x"}), Code::kUnavailable);
}

}  // namespace
}  // namespace tiercel
