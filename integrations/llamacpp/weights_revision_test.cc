#include "weights_revision.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string_view>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <openssl/evp.h>
#include <sys/stat.h>
#include <unistd.h>

namespace tiercel::llamacpp {
namespace {

constexpr std::int64_t kSecondNs = 1'000'000'000;
const char* const kOfAbc = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
const char* const kOfNothing = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
const char* const kFake = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

class Folder {
 public:
  Folder() {
    std::string name = testing::TempDir() + "tiercel_weights_XXXXXX";
    EXPECT_NE(::mkdtemp(name.data()), nullptr);
    path_ = name;
  }
  ~Folder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }
  std::vector<std::string> names() const {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(path_))
      names.push_back(entry.path().filename());
    std::sort(names.begin(), names.end());
    return names;
  }

 private:
  std::string path_;
};

void write_file(const std::string& path, std::string_view content, const char* mode = "wb") {
  std::FILE* const file = std::fopen(path.c_str(), mode);
  ASSERT_NE(file, nullptr) << path;
  EXPECT_EQ(std::fwrite(content.data(), 1, content.size(), file), content.size());
  EXPECT_EQ(std::fclose(file), 0);
}

std::string read_file(const std::string& path) {
  std::string content(4096, '\0');
  std::FILE* const file = std::fopen(path.c_str(), "rb");
  if (file == nullptr) return {};
  content.resize(std::fread(content.data(), 1, content.size(), file));
  EXPECT_EQ(std::fclose(file), 0);
  return content;
}

struct stat stat_of(const std::string& path) {
  struct stat is {};
  EXPECT_EQ(::stat(path.c_str(), &is), 0) << path;
  return is;
}
std::int64_t nanoseconds(const timespec& time) { return time.tv_sec * kSecondNs + time.tv_nsec; }

std::string sha256(std::string_view text) {
  unsigned char digest[EVP_MAX_MD_SIZE];
  unsigned int size = 0;
  EXPECT_EQ(EVP_Digest(text.data(), text.size(), digest, &size, EVP_sha256(), nullptr), 1);
  std::string digits;
  for (unsigned int i = 0; i < size; ++i) digits += fmt::format("{:02x}", digest[i]);
  return digits;
}

// The text beside a file, by what its file is now.
std::string text_of(const std::string& path, std::int64_t began_after_ctime_ns, const std::string& hash) {
  const struct stat is = stat_of(path);
  const std::int64_t ctime_ns = nanoseconds(is.st_ctim);
  return fmt::format(
      "tiercel-sha256 1\nsize {}\ninode {}\nmtime_ns {}\nctime_ns {}\nbegan_ns {}\nsha256 {}\n", is.st_size,
      is.st_ino, nanoseconds(is.st_mtim), ctime_ns, ctime_ns + began_after_ctime_ns, hash);
}

// What the call gives, and how often it read.
std::pair<std::string, int> revision(const std::vector<std::string>& paths) {
  int reads = 0;
  const auto result = weights_revision(paths, [&](const std::string&, std::uint64_t) { ++reads; });
  return {result.ok() ? *result : result.status().message, reads};
}
std::pair<std::string, int> revision(const std::string& path) { return revision(std::vector{path}); }

Status refusal(const std::vector<std::string>& paths) { return weights_revision(paths).status(); }

using Read = std::pair<std::string, int>;

// ---- the hash ----

TEST(WeightsRevision, OfOneFileIsItsPlainHash) {
  const Folder folder;
  write_file(folder / "abc", "abc");
  write_file(folder / "empty", "");
  EXPECT_EQ(revision(folder / "abc"), Read(kOfAbc, 1));
  EXPECT_EQ(revision(folder / "empty"), Read(kOfNothing, 0));
}

TEST(WeightsRevision, LargeFilesAreReadInPieces) {
  const Folder folder;
  std::string content((std::size_t{3} << 20) + 5, '\0');
  for (std::size_t i = 0; i < content.size(); ++i) content[i] = static_cast<char>(i * i >> 7);
  const std::string path = folder / "model.gguf";
  write_file(path, content);
  std::uint64_t last = 0;
  std::vector<std::uint64_t> pieces;
  const auto hash = weights_revision(std::span(&path, 1), [&](const std::string& of, std::uint64_t bytes) {
    EXPECT_EQ(of, path);
    pieces.push_back(bytes - last);
    last = bytes;
  });
  ASSERT_TRUE(hash.ok());
  EXPECT_EQ(*hash, sha256(content));
  EXPECT_EQ(last, content.size());
  for (const std::uint64_t piece : pieces) EXPECT_LE(piece, 1U << 20);
}

TEST(WeightsRevision, OfSeveralFilesCountsOrderAndBorders) {
  const Folder folder;
  const std::string a = folder / "a", b = folder / "b", ab = folder / "ab", none = folder / "none";
  write_file(a, "abc");
  write_file(b, "d");
  write_file(ab, "abcd");
  write_file(none, "");
  EXPECT_EQ(revision({a, b}).first,
            sha256(fmt::format("tiercel-weights-1\n3 {}\n1 {}\n", kOfAbc, sha256("d"))));
  EXPECT_NE(revision({a, b}).first, revision({b, a}).first);
  EXPECT_NE(revision({a, b}).first, revision(ab).first);
  EXPECT_NE(revision({a, none}).first, revision(a).first);
}

// ---- what is remembered ----

TEST(WeightsRevision, RemembersBesideTheFile) {
  const Folder folder;
  const std::string path = folder / "model.gguf";
  write_file(path, "abc");
  const mode_t before = ::umask(0077);
  EXPECT_EQ(revision(path), Read(kOfAbc, 1));
  ::umask(before);
  EXPECT_EQ(folder.names(), (std::vector<std::string>{"model.gguf", "model.gguf.tiercel-sha256"}));
  EXPECT_EQ(stat_of(path + ".tiercel-sha256").st_mode & 07777, 0644U);
  // All but the clock.
  const std::string text = read_file(path + ".tiercel-sha256"), wanted = text_of(path, 0, kOfAbc);
  EXPECT_EQ(text.substr(0, text.find("began_ns ")), wanted.substr(0, wanted.find("began_ns ")));
  EXPECT_TRUE(text.ends_with(fmt::format("\nsha256 {}\n", kOfAbc))) << text;
}

TEST(WeightsRevision, WhatIsRememberedIsNotReadAgain) {
  const Folder folder;
  const std::string path = folder / "model.gguf";
  write_file(path, "abc");
  const std::string text = text_of(path, 2 * kSecondNs, kFake);
  write_file(path + ".tiercel-sha256", text);
  EXPECT_EQ(revision(path), Read(kFake, 0));
  EXPECT_EQ(read_file(path + ".tiercel-sha256"), text);
  const std::string other = folder / "other";
  write_file(other, "d");
  EXPECT_EQ(revision({path, other}).first,
            sha256(fmt::format("tiercel-weights-1\n3 {}\n1 {}\n", kFake, sha256("d"))));
}

// Where the file had changed just before, another change during the reading may have left its times as they
// are.
TEST(WeightsRevision, WhatWasReadRightAfterAChangeIsReadAgain) {
  const Folder folder;
  const std::string path = folder / "model.gguf";
  write_file(path, "abc");
  for (const std::int64_t after : {2 * kSecondNs - 1, std::int64_t{0}, -kSecondNs}) {
    write_file(path + ".tiercel-sha256", text_of(path, after, kFake));
    EXPECT_EQ(revision(path), Read(kOfAbc, 1)) << after;
  }
}

TEST(WeightsRevision, AChangedFileIsReadAgain) {
  const Folder folder;
  const std::string path = folder / "model.gguf", beside = path + ".tiercel-sha256";
  write_file(path, "abc");
  const std::string text = text_of(path, 2 * kSecondNs, kFake);
  // Each number by itself, as if the file had another.
  for (const char* name : {"\nsize ", "\ninode ", "\nmtime_ns ", "\nctime_ns "}) {
    std::string changed = text;
    changed.insert(changed.find(name) + std::string_view(name).size(), "1");
    write_file(beside, changed);
    EXPECT_EQ(revision(path), Read(kOfAbc, 1)) << name;
    EXPECT_NE(read_file(beside), changed) << "replaced";
  }
  write_file(beside, text);
  write_file(path, "abcd");
  EXPECT_EQ(revision(path), Read(sha256("abcd"), 1));
  EXPECT_EQ(folder.names().size(), 2U);
}

TEST(WeightsRevision, ADamagedTextIsReplaced) {
  const Folder folder;
  const std::string path = folder / "model.gguf", beside = path + ".tiercel-sha256";
  write_file(path, "abc");
  const std::string text = text_of(path, 2 * kSecondNs, kFake);
  std::vector<std::string> damaged = {
      "",
      "\n",
      std::string(5000, 'a'),
      text + "\n",
      text + text,
      text.substr(0, text.size() - 2) + "A\n",
      text.substr(0, text.find("began_ns ")) + "began_ns -5\nsha256 " + kFake + "\n",
      text.substr(0, text.find("began_ns ")) + "began_ns -9223372036854775808\nsha256 " + kFake + "\n",
      text.substr(0, text.find("began_ns ")) + "began_ns 99999999999999999999999\nsha256 " + kFake + "\n"};
  for (std::size_t i = 0; i < text.size(); i += 3) {
    damaged.push_back(text.substr(0, i));
    damaged.push_back(text);
    damaged.back()[i] = '\x01';
    damaged.push_back(text.substr(0, i) + text.substr(i + 1));
  }
  for (const std::string& bad : damaged) {
    write_file(beside, bad);
    ASSERT_EQ(revision(path), Read(kOfAbc, 1)) << bad;
    ASSERT_EQ(read_file(beside).substr(0, 17), "tiercel-sha256 1\n");
    ASSERT_NE(read_file(beside), bad);
  }
  EXPECT_EQ(folder.names().size(), 2U);
}

TEST(WeightsRevision, WhereNothingCanBeWrittenItIsReadEachTime) {
  const Folder folder;
  const std::string long_name(250, 'm'), other = folder / "other";
  write_file(folder / long_name, "abc");  // too long for what is added
  write_file(other, "abc");
  ASSERT_EQ(::mkdir((other + ".tiercel-sha256").c_str(), 0700), 0);
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(revision(folder / long_name), Read(kOfAbc, 1));
    EXPECT_EQ(revision(other), Read(kOfAbc, 1));
  }
  EXPECT_EQ(folder.names(), (std::vector<std::string>{long_name, "other", "other.tiercel-sha256"}));
}

TEST(WeightsRevision, ALinkIsFollowedAndRememberedUnderItsOwnName) {
  const Folder folder;
  write_file(folder / "blob", "abc");
  ASSERT_EQ(::symlink("blob", (folder / "model.gguf").c_str()), 0);
  EXPECT_EQ(revision(folder / "model.gguf"), Read(kOfAbc, 1));
  EXPECT_EQ(folder.names(), (std::vector<std::string>{"blob", "model.gguf", "model.gguf.tiercel-sha256"}));
}

// ---- what is refused ----

TEST(WeightsRevision, AMissingFileIsNamed) {
  const Folder folder;
  const std::string there = folder / "there", missing = folder / "missing", below = there + "/below";
  write_file(there, "abc");
  EXPECT_EQ(refusal({missing}).code, TIERCEL_NOT_FOUND);
  EXPECT_EQ(refusal({missing}).message, "model file " + missing + ": No such file or directory");
  EXPECT_EQ(refusal({below}).code, TIERCEL_NOT_FOUND);
  EXPECT_EQ(refusal({there, missing}).message, refusal({missing}).message);
  EXPECT_EQ(refusal({""}).code, TIERCEL_NOT_FOUND);
  EXPECT_EQ(refusal({}).code, TIERCEL_INVALID_ARGUMENT);
}

TEST(WeightsRevision, OnlyRegularFilesAreRead) {
  const Folder folder;
  ASSERT_EQ(::mkfifo((folder / "pipe").c_str(), 0600), 0);
  ASSERT_EQ(::mkdir((folder / "below").c_str(), 0700), 0);
  for (const char* name : {"pipe", "below"}) {
    EXPECT_EQ(refusal({folder / name}).code, TIERCEL_IO_ERROR);
    EXPECT_EQ(refusal({folder / name}).message,
              "model file " + (folder / name) + ": wanted a regular file, got something else");
  }
}

// As one that grows while it is read.
TEST(WeightsRevision, AFileThatHasMoreThanItsSizeIsRefused) {
  const std::string path = "/proc/self/status";
  ASSERT_EQ(stat_of(path).st_size, 0);
  EXPECT_EQ(refusal({path}).code, TIERCEL_IO_ERROR);
}

TEST(WeightsRevision, AFileThatChangesWhileItIsReadIsRefused) {
  const Folder folder;
  const std::string path = folder / "model.gguf";
  const auto while_read = [&](const ReadProgress& change) {
    write_file(path, "abc");
    const Status status = weights_revision(std::span(&path, 1), change).status();
    EXPECT_EQ(status.code, TIERCEL_IO_ERROR);
    EXPECT_EQ(status.message,
              "model file " + path + ": changes while it is read; try again when nobody writes to it");
    EXPECT_EQ(folder.names(), std::vector<std::string>{"model.gguf"}) << "nothing is remembered";
  };
  bool once = true;
  while_read([&](const std::string&, std::uint64_t) {
    if (std::exchange(once, false)) write_file(path, "d", "ab");
  });
  while_read([&](const std::string&, std::uint64_t) { ASSERT_EQ(::truncate(path.c_str(), 2), 0); });
  // Another content of the same size, told by its time only.
  while_read([&](const std::string&, std::uint64_t) {
    write_file(path, "xyz");
    const timespec times[2] = {{1, 0}, {12345, 678}};
    ASSERT_EQ(::utimensat(AT_FDCWD, path.c_str(), times, 0), 0);
  });
}

}  // namespace
}  // namespace tiercel::llamacpp
