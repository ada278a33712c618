// This machine in tests: children that end by themselves, what they leave behind, a memory cgroup of their
// own.
//
// Threads: one thread; a child is forked from it.
#pragma once

#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <system_error>

#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

namespace tiercel {

// A folder of its own, gone at the end; with files in it, a machine made of files.
class FileTree {
 public:
  FileTree() {
    std::string name = testing::TempDir() + "tiercel_tree_XXXXXX";
    EXPECT_NE(::mkdtemp(name.data()), nullptr);
    root_ = name;
  }
  ~FileTree() { std::filesystem::remove_all(root_); }
  FileTree(const FileTree&) = delete;
  FileTree& operator=(const FileTree&) = delete;

  // `path` begins with a slash; folders are made as needed.
  void write(const std::string& path, std::string_view text) const {
    const std::filesystem::path whole = root_ + path;
    std::filesystem::create_directories(whole.parent_path());
    std::FILE* const stream = std::fopen(whole.c_str(), "wb");
    ASSERT_NE(stream, nullptr) << whole;
    EXPECT_EQ(std::fwrite(text.data(), 1, text.size(), stream), text.size());
    std::fclose(stream);
  }
  const std::string& root() const { return root_; }

 private:
  std::string root_;
};

// Of our own, in this process.
inline int open_memfds() {
  int found = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code failure;
    if (std::filesystem::read_symlink(entry.path(), failure).string().find("memfd:tiercel") !=
        std::string::npos)
      ++found;
  }
  return found;
}

// Runs `body` in a forked child; its exit status. 0 = it returned true.
inline int in_child(const std::function<bool()>& body) {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(body() ? 0 : 1);
  int status = 0;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

// A real memory cgroup, where this process may make one: a size beyond its limit is refused and not killed.
class OwnCgroup {
 public:
  OwnCgroup() : path_(fmt::format("/sys/fs/cgroup/memory/tiercel_test_{}", ::getpid())) {
    if (::mkdir(path_.c_str(), 0755) != 0) why_ = fmt::format("mkdir {}: errno {}", path_, errno);
    if (why_.empty() && !put("memory.limit_in_bytes", fmt::format("{}", 96ULL << 20)))
      why_ = "the limit cannot be set";
  }
  ~OwnCgroup() { ::rmdir(path_.c_str()); }
  OwnCgroup(const OwnCgroup&) = delete;
  OwnCgroup& operator=(const OwnCgroup&) = delete;
  bool put(const char* file, const std::string& text) const {
    const int fd = ::open((path_ + "/" + file).c_str(), O_WRONLY | O_CLOEXEC);
    if (fd < 0) return false;
    const bool whole = ::write(fd, text.data(), text.size()) == static_cast<ssize_t>(text.size());
    ::close(fd);
    return whole;
  }
  const std::string& path() const { return path_; }
  const std::string& why() const { return why_; }

 private:
  std::string path_, why_;
};

}  // namespace tiercel
