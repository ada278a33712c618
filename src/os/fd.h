// A file descriptor that closes itself.
//
// Threads: as an int.
#pragma once

#include <utility>

#include <unistd.h>

namespace tiercel {

class Fd final {
 public:
  Fd() = default;                   // none
  explicit Fd(int fd) : fd_(fd) {}  // is this object's from now on; negative: none
  Fd(Fd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Fd& operator=(Fd&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~Fd() { reset(); }
  int get() const { return fd_; }
  void reset() {
    if (fd_ >= 0) ::close(fd_);
    fd_ = -1;
  }

 private:
  int fd_ = -1;
};

}  // namespace tiercel
