// What tests of stores need of the machine: a folder of their own, the connector for tests, files that are
// damaged.
//
// Threads: one.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <string>

#include <fcntl.h>
#include <unistd.h>

#include "remote/connector_process.h"
#include "remote/object_files.h"

namespace tiercel {

// Removed at the end with all that is in it.
class TestFolder {
 public:
  TestFolder() {
    std::string pattern = (std::filesystem::temp_directory_path() / "tiercel-remote-XXXXXX").string();
    path_ = ::mkdtemp(pattern.data()) != nullptr ? pattern : "";
  }
  ~TestFolder() {
    std::error_code ignored;
    if (!path_.empty()) std::filesystem::remove_all(path_, ignored);
  }
  TestFolder(const TestFolder&) = delete;
  TestFolder& operator=(const TestFolder&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

// The program stands beside the test's own.
inline std::string test_connector_path() {
  return (std::filesystem::read_symlink("/proc/self/exe").parent_path() / "remote_test_connector").string();
}

// Patient: what a test does not ask about must not happen on a slow machine.
inline ConnectorOptions test_connector(const std::string& config = "{}") {
  ConnectorOptions options;
  options.argv = {test_connector_path()};
  options.config = config;
  options.exchange.data_bytes = 32U << 20;
  options.start_timeout = options.ping_answer = options.kill_after = std::chrono::seconds(60);
  options.restart_wait = std::chrono::milliseconds(1);
  return options;
}

inline bool flip_byte(const std::string& path, off_t at) {
  const int file = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
  char byte = 0;
  bool done = file >= 0 && ::pread(file, &byte, 1, at) == 1;
  byte = static_cast<char>(byte ^ 0x10);
  done = done && ::pwrite(file, &byte, 1, at) == 1;
  if (file >= 0) ::close(file);
  return done;
}

}  // namespace tiercel
