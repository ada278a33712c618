#include "os/block_uring.h"

#include <algorithm>
#include <cerrno>
#include <optional>
#include <system_error>
#include <thread>
#include <utility>

#include <fmt/format.h>
#include <liburing.h>

#include "base/check.h"
#include "base/sizes.h"
#include "os/block_queue.h"
#include "os/mapping.h"

#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define TIERCEL_TSAN
#endif
#elif defined(__SANITIZE_THREAD__)
#define TIERCEL_TSAN
#endif
#ifdef TIERCEL_TSAN
#include <sanitizer/tsan_interface.h>
#endif

namespace tiercel {
namespace {

// liburing maps and unmaps behind ThreadSanitizer's back: a ring at the addresses of an earlier one, of
// another thread, would look like a race.
[[maybe_unused]] char ring_epoch;
void ring_is_new() {
#ifdef TIERCEL_TSAN
  __tsan_acquire(&ring_epoch);
#endif
}
void ring_is_gone() {
#ifdef TIERCEL_TSAN
  __tsan_release(&ring_epoch);
#endif
}

// The engine's own memory: zeros, what is thrown away, and what bounces: for a few attempts many blocks, for
// many attempts a few, as the last block of a record.
constexpr std::uint64_t kRoomPart = 256U << 10;
constexpr std::uint64_t kFewBytes = 16U << 10;
constexpr std::uint64_t kRoomBytes = 4U << 20;
constexpr std::uint64_t kManyAt = 2 * kRoomPart, kFewAt = kRoomBytes - (1U << 20);

constexpr std::uint64_t kRegisteredMax = 1ULL << 30;  // the kernel takes no larger piece
constexpr std::size_t kRegisteredCountMax = 16384;

std::string error_text(int number) { return std::generic_category().message(number); }

// Memory known to the kernel, by address.
class Registered final {
 public:
  void add(MutableByteView bytes) {
    for (std::uint64_t at = 0; at < bytes.size(); at += kRegisteredMax)
      pieces_.push_back({bytes.data() + at, std::min(kRegisteredMax, bytes.size() - at)});
  }
  const std::vector<iovec>& pieces() const { return pieces_; }
  // Its number, when all of it lies in one piece.
  std::optional<int> find(const iovec& memory) const {
    const auto* const at = static_cast<const std::byte*>(memory.iov_base);
    for (std::size_t i = 0; i < pieces_.size(); ++i) {
      const auto* const from = static_cast<const std::byte*>(pieces_[i].iov_base);
      if (at >= from && at + memory.iov_len <= from + pieces_[i].iov_len) return static_cast<int>(i);
    }
    return std::nullopt;
  }

 private:
  std::vector<iovec> pieces_;
};

class UringDevice final : public BlockDevice {
 public:
  UringDevice(int fd, std::unique_ptr<BlockQueue> queue, Mapping room, const BlockCalls& calls)
      : fd_(fd), queue_(std::move(queue)), room_(std::move(room)), calls_(calls) {
    std::byte* const start = room_.bytes().data();
    for (std::uint64_t at = kManyAt; at < kFewAt; at += kRoomPart) many_.push_back(start + at);
    for (std::uint64_t at = kFewAt; at < kRoomBytes; at += kFewBytes) few_.push_back(start + at);
    slots_.resize(queue_->options().attempts_max);
    for (std::size_t i = 0; i < slots_.size(); ++i) free_.push_back(slots_.size() - 1 - i);
  }
  // What is under way goes on in memory that is the submitter's again afterwards: it is waited for.
  ~UringDevice() override {
    queue_->stop();
    if (!made_) return;
    while (under_way_ > 0) {
      advance();
      io_uring_cqe* cqe = nullptr;
      ::io_uring_wait_cqe(&ring_, &cqe);
      reap();
    }
    // The ring's end is worked off by the kernel later on; what it holds is given back now.
    if (fixed_file_) ::io_uring_unregister_files(&ring_);
    if (!registered_.pieces().empty()) ::io_uring_unregister_buffers(&ring_);
    ring_is_gone();
    ::io_uring_queue_exit(&ring_);
  }

  Status open(const std::vector<MutableByteView>& memory) {
    const auto entries = static_cast<unsigned>(slots_.size() + 1);
    const int failed = asked(BlockFeature::kRing, [&] {
      // No interrupt of whoever computes: ends are worked off when a system call is made anyway.
      const int calm = asked(BlockFeature::kCalmRing, [&] {
        return ::io_uring_queue_init(entries, &ring_, IORING_SETUP_COOP_TASKRUN);
      });
      return calm == -EINVAL ? ::io_uring_queue_init(entries, &ring_, 0) : calm;  // Linux before 5.19
    });
    if (failed < 0) return refused(Code::kUnsupported, "a ring", -failed);
    made_ = true;
    // Without it a wait with a time limit leaves an end of its own among ours.
    if ((ring_.features & IORING_FEAT_EXT_ARG) == 0)
      return refused(Code::kUnsupported, "a wait with a time limit (Linux 5.11)", EINVAL);
    ring_is_new();
    fixed_file_ =
        asked(BlockFeature::kRegisterFile, [&] { return ::io_uring_register_files(&ring_, &fd_, 1); }) == 0;
    if (!fixed_file_) notes_.push_back("io_uring: the file could not be registered: a little slower");
    register_memory(memory);
    return {};
  }
  void keep(BlockFile file) { file_ = std::move(file); }
  int end_fd() const { return ring_.ring_fd; }  // readable while ends are in the ring
  std::uint64_t host_bytes() const { return room_.size_bytes(); }
  std::vector<std::string> notes() const { return notes_; }

  std::uint64_t size_bytes() const override { return queue_->options().size_bytes; }
  bool submit(BlockRequest request) override {
    if (!queue_->submit(std::move(request))) return false;
    if (queue_->end_waits() && !ringing_) ring_bell();
    advance();
    return true;
  }
  std::vector<BlockDone> drain() override {
    reap();
    advance();
    return queue_->drain();
  }
  void wait(Duration at_most) override {
    if (queue_->nothing_to_wait_for()) return;
    const auto left = std::max(at_most, Duration{0});
    const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(left);
    __kernel_timespec time{seconds.count(), (left - seconds).count()};
    io_uring_cqe* cqe = nullptr;
    ::io_uring_wait_cqe_timeout(&ring_, &cqe, &time);  // a signal ends it early: the caller asks again
  }

 private:
  static constexpr std::uint64_t kBell = 0;  // user data; else slot + 1
  struct Slot {
    std::optional<BlockQueue::Attempt> attempt;
    std::byte* bounce = nullptr;
  };

  Status refused(Code code, std::string_view what, int number) const {
    return {code, fmt::format("{}: io_uring: {} is refused ({})", queue_->options().name, what,
                              error_text(number))};
  }
  // What was asked for, unless a test refuses it.
  template <typename Call>
  int asked(BlockFeature feature, Call call) const {
    const int no = calls_.refused(feature);
    return no != 0 ? -no : call();
  }

  void register_memory(const std::vector<MutableByteView>& memory) {
    Registered all;
    all.add(room_.bytes());
    Registered own = all;
    for (const MutableByteView bytes : memory) all.add(bytes);
    int failed = EINVAL;
    for (const Registered* each : {&all, &own}) {
      if (each->pieces().size() > kRegisteredCountMax) continue;
      const int result = asked(BlockFeature::kRegisterMemory, [&] {
        return ::io_uring_register_buffers(&ring_, each->pieces().data(),
                                           static_cast<unsigned>(each->pieces().size()));
      });
      if (result == 0) {
        registered_ = *each;
        if (each == &all) return;
        break;
      }
      failed = -result;
    }
    if (memory.empty()) return;
    std::uint64_t sum = 0;
    for (const MutableByteView bytes : memory) sum += bytes.size();
    notes_.push_back(
        fmt::format("io_uring: {} of memory could not be registered ({}): reads and writes cost a "
                    "little more; look at ulimit -l",
                    format_size(sum), error_text(failed)));
  }

  // All that can be under way is.
  void advance() {
    fill();
    if (::io_uring_sq_ready(&ring_) == 0) return;
    const int failed = ::io_uring_submit(&ring_);
    // What the kernel does not take now it will take when the next end is drained.
    TIERCEL_CHECK(failed >= 0 || failed == -EINTR || failed == -EAGAIN || failed == -EBUSY ||
                  failed == -ENOMEM);
  }

  void fill() {
    while (!free_.empty()) {
      auto attempt = queue_->take(!many_.empty() ? kRoomPart : !few_.empty() ? kFewBytes : 0);
      if (!attempt) return;
      Slot& slot = slots_[free_.back()];
      slot.attempt = std::move(attempt);
      issue(slot, free_.back() + 1);
      free_.pop_back();
      ++under_way_;
    }
  }

  io_uring_sqe* entry() {
    io_uring_sqe* const entry = ::io_uring_get_sqe(&ring_);
    TIERCEL_CHECK(entry != nullptr);  // there is one for each slot
    return entry;
  }

  // An end that never went through the ring: the ring's descriptor is to be readable all the same.
  void ring_bell() {
    io_uring_sqe* const sqe = entry();
    ::io_uring_prep_nop(sqe);
    ::io_uring_sqe_set_data64(sqe, kBell);
    ringing_ = true;
  }

  void issue(Slot& slot, std::uint64_t tag) {
    BlockQueue::Attempt& attempt = *slot.attempt;
    const BlockCall& call = attempt.call;
    if (const std::uint64_t bounced = attempt.vectors.bounced(); bounced != 0) {
      std::vector<std::byte*>& free = bounced <= kFewBytes && !few_.empty() ? few_ : many_;
      slot.bounce = free.back();
      free.pop_back();
    }
    std::byte* const room = room_.bytes().data();
    attempt.vectors.place(slot.bounce, call.work == BlockWork::kWrite ? room : room + kRoomPart);
    if (call.work == BlockWork::kWrite) attempt.vectors.gather(attempt.memory());
    if (const std::uint64_t allowed = calls_.allowed(call); allowed < call.length)
      attempt.vectors.cut(allowed);
    io_uring_sqe* const sqe = entry();
    prepare(sqe, attempt);
    ::io_uring_sqe_set_data64(sqe, tag);
  }

  void prepare(io_uring_sqe* sqe, const BlockQueue::Attempt& attempt) const {
    const int fd = fixed_file_ ? 0 : fd_;
    const BlockCall& call = attempt.call;
    const std::vector<iovec>& vectors = attempt.vectors.vectors();
    const auto count = static_cast<unsigned>(vectors.size());
    if (call.work == BlockWork::kFlush) {
      ::io_uring_prep_fsync(sqe, fd, IORING_FSYNC_DATASYNC);
    } else if (count == 0) {
      ::io_uring_prep_nop(sqe);  // a test allows nothing of it
      return;
    } else if (const auto known = count == 1 ? registered_.find(vectors[0]) : std::nullopt) {
      const auto length = static_cast<unsigned>(vectors[0].iov_len);
      if (call.work == BlockWork::kRead)
        ::io_uring_prep_read_fixed(sqe, fd, vectors[0].iov_base, length, call.offset, *known);
      else
        ::io_uring_prep_write_fixed(sqe, fd, vectors[0].iov_base, length, call.offset, *known);
    } else if (call.work == BlockWork::kRead) {
      ::io_uring_prep_readv(sqe, fd, vectors.data(), count, call.offset);
    } else {
      ::io_uring_prep_writev(sqe, fd, vectors.data(), count, call.offset);
    }
    if (fixed_file_) sqe->flags |= IOSQE_FIXED_FILE;
    // Through the page cache bytes are copied: by the kernel's own threads, not by whoever submits.
    if (queue_->options().cached) sqe->flags |= IOSQE_ASYNC;
  }

  void reap() {
    unsigned head = 0, count = 0;
    io_uring_cqe* cqe = nullptr;
    io_uring_for_each_cqe(&ring_, head, cqe) {
      ++count;
      const std::uint64_t tag = ::io_uring_cqe_get_data64(cqe);
      if (tag == kBell)
        ringing_ = false;
      else
        end(static_cast<std::size_t>(tag - 1), cqe->res);
    }
    ::io_uring_cq_advance(&ring_, count);
  }

  void end(std::size_t number, int result) {
    Slot& slot = slots_[number];
    const BlockQueue::Attempt& attempt = *slot.attempt;
    const int heard = calls_.result(attempt.call, result);
    if (attempt.call.work == BlockWork::kRead && heard > 0)
      attempt.vectors.scatter(attempt.memory(), static_cast<std::uint64_t>(heard));
    queue_->ended(attempt, heard);
    if (std::byte* const bounce = std::exchange(slot.bounce, nullptr); bounce != nullptr)
      (bounce >= room_.bytes().data() + kFewAt ? few_ : many_).push_back(bounce);
    slot.attempt.reset();
    free_.push_back(number);
    --under_way_;
  }

  // Constant once it is open.
  const int fd_;
  BlockFile file_;
  const std::unique_ptr<BlockQueue> queue_;
  const Mapping room_;
  const BlockCalls& calls_;
  std::vector<std::string> notes_;
  Registered registered_;
  bool made_ = false, fixed_file_ = false;
  // Of the submitter's thread.
  io_uring ring_{};
  std::vector<Slot> slots_;
  std::vector<std::size_t> free_;
  std::vector<std::byte*> many_, few_;  // where an attempt may bounce
  std::size_t under_way_ = 0;
  bool ringing_ = false;
};

}  // namespace

Result<BlockEngineDevice> open_block_uring(BlockFile& file, const BlockEngineOptions& options,
                                           const BlockCalls& calls) {
  BlockQueueOptions queue_options{.name = fmt::format("disk file {}", file.path()),
                                  .size_bytes = file.size_bytes(),
                                  .cached = !file.direct(),
                                  .operations_max = options.operations_max,
                                  .attempts_max = std::clamp<std::size_t>(options.attempts_max, 2, 1024)};
  queue_options.limits = {.alignment = file.memory_alignment(),
                          .bytes = options.attempt_bytes,
                          .bounced = kRoomPart,
                          .blank = kRoomPart};
  TIERCEL_ASSIGN_OR_RETURN(auto queue, BlockQueue::create(std::move(queue_options)));
  TIERCEL_ASSIGN_OR_RETURN(Mapping room, Mapping::open({.bytes = kRoomBytes}));
  auto device = std::make_unique<UringDevice>(file.fd(), std::move(queue), std::move(room), calls);
  TIERCEL_RETURN_IF_ERROR(device->open(options.memory));
  device->keep(std::move(file));
  BlockEngineDevice opened{
      .end_fd = device->end_fd(), .host_bytes = device->host_bytes(), .notes = device->notes()};
  opened.device = std::move(device);
  return opened;
}

}  // namespace tiercel
