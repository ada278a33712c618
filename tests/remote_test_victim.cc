// A writer of a store on a folder that is killed in the middle, for tests (H05):
//   remote_test_victim FOLDER NAME BYTES STEP FORM VERB
// kills itself before its file call number STEP; exits with 0 where it has fewer. FORM: unnamed, named,
// renamed. VERB: put, replace. The object's byte i is (i * 7 + 3) mod 256, in pieces of 64 KiB.
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include <fcntl.h>
#include <fmt/format.h>

#include "base/crc32c.h"
#include "remote/object_files.h"

namespace {

using namespace tiercel;  // NOLINT: a program of one file

class KillingCalls final : public PosixCalls {
 public:
  KillingCalls(std::uint64_t step, std::string_view form)
      : step_(step), unnamed_(form == "unnamed"), links_(form != "renamed") {}
  SystemResult<int> open(int folder, const std::string& path, int flags, unsigned mode) const override {
    count();
    if (!unnamed_ && (flags & O_TMPFILE) == O_TMPFILE) return tl::unexpected(EOPNOTSUPP);
    return calls_.open(folder, path, flags, mode);
  }
  void close(int fd) const override { return count(), calls_.close(fd); }
  int make_folder(int folder, const std::string& path) const override {
    return count(), calls_.make_folder(folder, path);
  }
  SystemResult<std::uint64_t> size(int fd) const override { return count(), calls_.size(fd); }
  SystemResult<std::uint64_t> read(int fd, std::uint64_t offset, MutableByteView to) const override {
    return count(), calls_.read(fd, offset, to);
  }
  int write(int fd, std::uint64_t offset, ByteView from) const override {
    return count(), calls_.write(fd, offset, from);
  }
  int link_unnamed(int fd, int folder, const std::string& path) const override {
    return count(), calls_.link_unnamed(fd, folder, path);
  }
  int link(int folder, const std::string& from, const std::string& to) const override {
    return count(), links_ ? calls_.link(folder, from, to) : EPERM;
  }
  int rename(int folder, const std::string& from, const std::string& to) const override {
    return count(), calls_.rename(folder, from, to);
  }
  int remove(int folder, const std::string& path) const override {
    return count(), calls_.remove(folder, path);
  }
  int lock(int fd) const override { return count(), calls_.lock(fd); }

 private:
  void count() const {
    if (done_++ == step_) ::raise(SIGKILL);
  }

  LinuxPosixCalls calls_;
  std::uint64_t step_;
  bool unnamed_, links_;
  mutable std::atomic<std::uint64_t> done_{0};
};

class Content final : public ObjectMemory {
 public:
  bool copy_from(std::uint64_t offset, MutableByteView to, std::uint32_t& crc) override {
    for (std::uint64_t i = 0; i < to.size(); ++i) to[i] = static_cast<std::byte>((offset + i) * 7 + 3);
    crc = crc32c(to, crc);
    return true;
  }
  bool copy_to(std::uint64_t, ByteView, std::uint32_t&) override { return false; }
};

}  // namespace

int main(int count, char** arguments) {
  if (count != 7) {
    std::fputs("remote_test_victim: started by remote_test; it kills itself\n", stderr);
    return 64;
  }
  const KillingCalls calls(std::strtoull(arguments[4], nullptr, 10), arguments[5]);
  auto files = ObjectFiles::open(arguments[1], calls);
  if (!files) {
    fmt::print(stderr, "remote_test_victim: {}\n", files.error().to_string());
    return 1;
  }
  Content content;
  std::vector<std::byte> buffer(64U << 10);
  const RemoteOutcome outcome =
      (*files)->put(arguments[2], std::strtoull(arguments[3], nullptr, 10),
                    std::string_view(arguments[6]) == "replace", content, buffer, 0);
  return outcome == RemoteOutcome::kOk ? 0 : 2;
}
