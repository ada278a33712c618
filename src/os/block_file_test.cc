// Claiming a file: what is made, what is refused, what is left behind.
#include "os/block_file.h"

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <filesystem>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "os/test_block_calls.h"
#include "os/test_machine.h"
#include "os/text_file.h"

namespace tiercel {
namespace {

constexpr std::uint64_t kBytes = 64 * kBlockBytes;

class BlockFileTest : public testing::Test {
 protected:
  std::string path(std::string_view name = "log") const { return tree_.root() + "/" + std::string(name); }
  BlockFileOptions fresh() const { return {.path = path(), .bytes = kBytes, .create = true}; }
  // Everything in the folder, hidden or not.
  std::size_t files() const {
    return static_cast<std::size_t>(std::distance(std::filesystem::directory_iterator(tree_.root()), {}));
  }
  static struct stat stat_of(const std::string& path) {
    struct stat found {};
    EXPECT_EQ(::stat(path.c_str(), &found), 0);
    return found;
  }
  void write(std::string_view text, const char* mode) const {
    std::FILE* const stream = std::fopen(path().c_str(), mode);
    ASSERT_NE(stream, nullptr);
    EXPECT_EQ(std::fwrite(text.data(), 1, text.size(), stream), text.size());
    std::fclose(stream);
  }
  void expect_refused(const BlockFileOptions& options, Code code, std::string_view words,
                      const BlockCalls& calls = linux_block_calls()) const {
    const auto file = BlockFile::open(options, calls);
    ASSERT_FALSE(file);
    EXPECT_EQ(file.error().code, code) << file.error().message;
    EXPECT_NE(file.error().message.find(words), std::string::npos) << file.error().message;
    EXPECT_EQ(file.error().message.find('\n'), std::string::npos);
  }

  FileTree tree_;
};

TEST_F(BlockFileTest, ANewFileHasItsRoomAndBelongsToItsOwnerAlone) {
  ::umask(022);
  const auto file = BlockFile::open(fresh());
  ASSERT_TRUE(file) << file.error().message;
  EXPECT_TRUE(file->created());
  EXPECT_EQ(file->size_bytes(), kBytes);
  const struct stat found = stat_of(path());
  EXPECT_EQ(static_cast<std::uint64_t>(found.st_size), kBytes);
  EXPECT_EQ(static_cast<std::uint64_t>(found.st_blocks) * 512, kBytes)
      << "all of it, and not more than was asked for";
  EXPECT_EQ(found.st_mode & 07777, 0600U);
  EXPECT_EQ(files(), 1U);
}

TEST_F(BlockFileTest, AnExistingFileIsTakenAsItIs) {
  { ASSERT_TRUE(BlockFile::open(fresh())); }
  write("kept", "r+b");
  BlockFileOptions options = fresh();
  for (const bool size_told : {true, false}) {
    options.create = size_told;
    options.bytes = size_told ? kBytes : 0;
    const auto file = BlockFile::open(options);
    ASSERT_TRUE(file) << file.error().message;
    EXPECT_FALSE(file->created());
    EXPECT_EQ(file->size_bytes(), kBytes);
    const auto text = read_text_file(path(), kBytes);
    ASSERT_TRUE(text);
    EXPECT_EQ(text->substr(0, 4), "kept");
  }
}

TEST_F(BlockFileTest, HolesOfAnExistingFileAreClaimed) {
  { ASSERT_TRUE(BlockFile::open({.path = path(), .bytes = kBytes, .create = true, .sparse = true})); }
  EXPECT_EQ(stat_of(path()).st_blocks, 0);
  { ASSERT_TRUE(BlockFile::open({.path = path(), .read_only = true})); }
  EXPECT_EQ(stat_of(path()).st_blocks, 0);
  const auto file = BlockFile::open(fresh());
  ASSERT_TRUE(file);
  EXPECT_EQ(static_cast<std::uint64_t>(stat_of(path()).st_blocks) * 512, kBytes);
}

TEST_F(BlockFileTest, AnotherSizeThanAskedForIsLeftAsItIs) {
  write(std::string(2 * kBlockBytes, 'x'), "wb");
  expect_refused(fresh(), Code::kFailedPrecondition, "wanted 262144 bytes, got a file of 8192");
  EXPECT_EQ(std::filesystem::file_size(path()), 2 * kBlockBytes);
  write("odd", "wb");
  expect_refused({.path = path()}, Code::kFailedPrecondition, "got 3");
}

TEST_F(BlockFileTest, WhatIsNoFileIsRefused) {
  std::filesystem::create_directory(path("folder"));
  ASSERT_EQ(::mkfifo(path("pipe").c_str(), 0600), 0);
  std::filesystem::create_symlink(path("pipe"), path("link_to_pipe"));
  std::filesystem::create_symlink(path("nothing"), path("link_to_nothing"));
  const auto at = [&](std::string_view name) {
    return BlockFileOptions{.path = path(name), .bytes = kBytes, .create = true};
  };
  expect_refused(at("folder"), Code::kInvalidArgument, "got a folder");
  expect_refused(at("pipe"), Code::kInvalidArgument, "got a pipe");
  expect_refused(at("link_to_pipe"), Code::kInvalidArgument, "got a pipe");
  expect_refused(at("link_to_nothing"), Code::kInvalidArgument, "a symbolic link to nothing");
  expect_refused(at("missing/log"), Code::kNotFound, "the folder " + path("missing") + " does not exist");
  expect_refused({.path = "/dev/null"}, Code::kInvalidArgument, "a character device");
  expect_refused({.path = ""}, Code::kInvalidArgument, "got none");
  EXPECT_EQ(files(), 4U);
}

TEST_F(BlockFileTest, OptionsThatMakeNoSenseAreRefused) {
  expect_refused({.path = path(), .bytes = 1000, .create = true}, Code::kInvalidArgument, "got 1000");
  expect_refused({.path = path(), .create = true}, Code::kInvalidArgument, "needs a size");
  expect_refused({.path = path(), .bytes = kBytes, .create = true, .read_only = true}, Code::kInvalidArgument,
                 "reading only");
  expect_refused({.path = path()}, Code::kNotFound, "does not exist");
  EXPECT_EQ(files(), 0U);
}

TEST_F(BlockFileTest, AFileLinkedToIsUsed) {
  { ASSERT_TRUE(BlockFile::open(fresh())); }
  std::filesystem::create_symlink(path(), path("link"));
  EXPECT_TRUE(BlockFile::open({.path = path("link")}));
}

TEST_F(BlockFileTest, WithoutPermissionTheReasonIsTold) {
  { ASSERT_TRUE(BlockFile::open(fresh())); }
  StagedBlockCalls calls;
  calls.open_refused = [](const std::string&) { return EACCES; };
  expect_refused(fresh(), Code::kUnavailable, "cannot be opened for writing: Permission denied", calls);
  std::filesystem::remove(path());
  expect_refused(fresh(), Code::kUnavailable, "cannot be created: Permission denied", calls);
}

TEST_F(BlockFileTest, AWriterExcludesEverybodyAndNamesItself) {
  const auto first = BlockFile::open(fresh());
  ASSERT_TRUE(first);
  expect_refused(fresh(), Code::kFailedPrecondition, "in use by this process already");
  expect_refused({.path = path(), .read_only = true}, Code::kFailedPrecondition, "in use by");
  const pid_t parent = ::getpid();
  EXPECT_EQ(in_child([&] {
              const auto second = BlockFile::open({.path = path()});
              return !second &&
                     second.error().message.find(fmt::format("process {}", parent)) != std::string::npos;
            }),
            0);
}

TEST_F(BlockFileTest, ReadersShareAndExcludeWriters) {
  { ASSERT_TRUE(BlockFile::open(fresh())); }
  {
    const auto one = BlockFile::open({.path = path(), .read_only = true});
    const auto two = BlockFile::open({.path = path(), .read_only = true});
    ASSERT_TRUE(one && two);
    expect_refused(fresh(), Code::kFailedPrecondition, "in use by");
  }
  EXPECT_TRUE(BlockFile::open(fresh())) << "a lock ends with the file's closing";
}

TEST_F(BlockFileTest, AnUnknownOwnerIsAnotherProcess) {
  { ASSERT_TRUE(BlockFile::open(fresh())); }
  StagedBlockCalls calls;
  calls.lock_refused = EWOULDBLOCK;
  expect_refused(fresh(), Code::kFailedPrecondition, "in use by another process", calls);
  calls.lock_refused = ENOLCK;
  expect_refused(fresh(), Code::kUnavailable, "cannot be locked", calls);
}

TEST(LockOwner, IsReadOutOfTheKernelsText) {
  constexpr std::string_view kText =
      "1: POSIX  ADVISORY  WRITE 11 fe:00:77 0 EOF\n"
      "2: FLOCK  ADVISORY  WRITE 0 fe:00:77 0 EOF\n"
      "broken\n"
      "3: FLOCK  ADVISORY  WRITE 4711 fe:00:77 0 EOF\n"
      "3: -> FLOCK  ADVISORY  WRITE 12 fe:00:78 0 EOF\n"
      "4: FLOCK  ADVISORY  READ  13 103:0a:79 0 EOF";
  EXPECT_EQ(lock_owner_in(kText, 0xfe, 0, 77), 4711);
  EXPECT_EQ(lock_owner_in(kText, 0xfe, 0, 78), 0);
  EXPECT_EQ(lock_owner_in(kText, 0x103, 0x0a, 79), 13);
  EXPECT_EQ(lock_owner_in("", 0, 0, 0), 0);
}

TEST_F(BlockFileTest, TooLittleRoomIsToldWithSizesAndLeavesNothing) {
  StagedBlockCalls calls;
  calls.free = 12 * kBlockBytes;
  expect_refused(fresh(), Code::kResourceExhausted, "wanted 256 KiB, free on that file system are 48 KiB",
                 calls);
  EXPECT_EQ(files(), 0U);
}

TEST_F(BlockFileTest, RoomThatIsTakenBySomebodyElseMeanwhileIsTold) {
  StagedBlockCalls calls;
  calls.allocate_refused = ENOSPC;
  expect_refused(fresh(), Code::kResourceExhausted, "No space left on device", calls);
  EXPECT_EQ(files(), 0U);
}

TEST_F(BlockFileTest, TooLargeForTheRealFileSystemLeavesNothing) {
  BlockFileOptions options = fresh();
  options.bytes = 1ULL << 53;
  const auto file = BlockFile::open(options);
  ASSERT_FALSE(file);
  EXPECT_EQ(file.error().code, Code::kResourceExhausted) << file.error().message;
  EXPECT_EQ(files(), 0U);
}

TEST_F(BlockFileTest, WithoutFallocateAllOfItIsWritten) {
  StagedBlockCalls calls;
  calls.allocate_refused = EOPNOTSUPP;
  BlockFileOptions options = fresh();
  std::uint64_t last = 0;
  options.progress = [&](std::uint64_t done, std::uint64_t total) {
    EXPECT_GT(done, last);
    EXPECT_EQ(total, kBytes);
    last = done;
  };
  const auto file = BlockFile::open(options, calls);
  ASSERT_TRUE(file) << file.error().message;
  EXPECT_EQ(last, kBytes);
  EXPECT_EQ(static_cast<std::uint64_t>(stat_of(path()).st_blocks) * 512, kBytes);
  ASSERT_FALSE(file->notes().empty());
  EXPECT_NE(file->notes()[0].find("all of the file was written"), std::string::npos);
}

TEST_F(BlockFileTest, WithoutFallocateAndRoomNothingIsLeft) {
  StagedBlockCalls calls;
  calls.allocate_refused = EOPNOTSUPP;
  calls.room = kBytes / 2 + 100;
  expect_refused(fresh(), Code::kResourceExhausted, "make room", calls);
  EXPECT_EQ(files(), 0U);
}

TEST_F(BlockFileTest, AProcessKilledWhileItMakesAFileLeavesNothingInTheWay) {
  for (const std::uint64_t killed_at : {std::uint64_t{1}, kBytes / 2, kBytes}) {
    StagedBlockCalls calls;
    calls.allocate_refused = EOPNOTSUPP;
    BlockFileOptions options = fresh();
    options.progress = [&](std::uint64_t done, std::uint64_t) {
      if (done >= killed_at) ::raise(SIGKILL);
    };
    EXPECT_EQ(in_child([&] { return BlockFile::open(options, calls).has_value(); }), 128 + SIGKILL);
    EXPECT_FALSE(std::filesystem::exists(path())) << "a file has its name when it is whole";
    const auto file = BlockFile::open(fresh());
    ASSERT_TRUE(file) << file.error().message;
    EXPECT_TRUE(file->created());
    EXPECT_EQ(files(), 1U);
    std::filesystem::remove(path());
  }
}

TEST_F(BlockFileTest, AFileThatIsBeingMadeIsNotTakenOver) {
  const int other = ::open((path() + ".unfinished").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  ASSERT_GE(other, 0);
  ASSERT_EQ(::flock(other, LOCK_EX | LOCK_NB), 0);
  expect_refused(fresh(), Code::kFailedPrecondition, "in use by");
  EXPECT_EQ(files(), 1U);
  ::close(other);
}

TEST_F(BlockFileTest, WhatSomebodyElseHasUnderThatNameIsLeftAlone) {
  const std::string unfinished = path() + ".unfinished";
  const int other = ::open(unfinished.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  ASSERT_GE(other, 0);
  ASSERT_EQ(::write(other, "mine", 4), 4);
  ::close(other);
  expect_refused(fresh(), Code::kFailedPrecondition, "somebody else's");
  EXPECT_EQ(files(), 1U);
  EXPECT_EQ(std::filesystem::file_size(unfinished), 4U);
}

TEST_F(BlockFileTest, RefusedDirectIsToldAndGoesThroughTheCache) {
  StagedBlockCalls calls;
  calls.absent.insert(BlockFeature::kDirect);
  const auto file = BlockFile::open(fresh(), calls);
  ASSERT_TRUE(file);
  EXPECT_FALSE(file->direct());
  EXPECT_EQ(file->memory_alignment(), 1U);
  ASSERT_EQ(file->notes().size(), 1U);
  EXPECT_NE(file->notes()[0].find("O_DIRECT is refused"), std::string::npos);
  EXPECT_EQ(::fcntl(file->fd(), F_GETFL) & O_DIRECT, 0);
}

TEST_F(BlockFileTest, DirectIsUsedWhereItCanBe) {
  const auto file = BlockFile::open(fresh());
  ASSERT_TRUE(file);
  if (!file->direct()) GTEST_SKIP() << "skipped: 1 case, " << file->notes()[0];
  EXPECT_NE(::fcntl(file->fd(), F_GETFL) & O_DIRECT, 0);
  EXPECT_GE(file->memory_alignment(), 1U);
  EXPECT_LE(file->memory_alignment(), kBlockBytes);
}

}  // namespace
}  // namespace tiercel
