#include "os/mapping.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <system_error>
#include <thread>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "base/check.h"
#include "base/checked.h"
#include "base/sizes.h"

namespace tiercel {
namespace {

// One step of a thread, between two looks at the stop token.
constexpr std::uint64_t kChunkBytes = 32ULL << 20;
constexpr unsigned kThreadsMax = 16;
constexpr std::uint64_t kBytesMax = 1ULL << 46;  // beyond what a process can address with room to spare
constexpr int kCollapseTries = 3;                // each EAGAIN is "try again for better results"
constexpr std::uint64_t kStatBlockBytes = 512;
constexpr unsigned long kHugetlbFileSystem = 0x958458f6;
constexpr int kSealsWanted = F_SEAL_SHRINK | F_SEAL_GROW;

std::string error_text(int number) { return std::generic_category().message(number); }

// Passes a total on that never falls, also when a rung of the ladder starts again.
class Progress {
 public:
  Progress(const TouchOptions& options, std::uint64_t total) : options_(options), total_(total) {}
  void reached(std::uint64_t done) {
    if (done <= told_ || !options_.progress) return;
    told_ = done;
    options_.progress(done, total_);
  }

 private:
  const TouchOptions& options_;
  std::uint64_t total_;
  std::uint64_t told_ = 0;
};

// The bytes of one mapping, claimed chunk by chunk by several threads.
class Touching {
 public:
  Touching(MutableByteView bytes, MappingAccess access, const MappingCalls& calls)
      : bytes_(bytes), access_(access), calls_(calls) {}

  // All of it once more from the start, with or without collapsing: what is claimed already costs little.
  void start_over(bool collapse) {
    next_ = done_ = 0;
    collapse_ = collapse;
  }

  // From where an earlier call ended up to `end`. Returns 0, or the errno of the first failure; a stop is no
  // failure.
  int run(std::uint64_t end, const TouchOptions& options, Progress& progress) {
    end_ = end;
    const std::uint64_t chunks = ceil_div(end - next_, kChunkBytes);
    const unsigned wanted = options.threads != 0 ? options.threads : std::thread::hardware_concurrency();
    const std::uint64_t threads = std::min<std::uint64_t>({std::max(wanted, 1U), kThreadsMax, chunks});
    std::vector<std::jthread> others;
    for (std::uint64_t i = 1; i < threads; ++i) {
      try {
        others.emplace_back([this, &options] { work(options, nullptr); });
      } catch (const std::system_error&) {
        break;  // no thread to be had: the others do the work
      }
    }
    work(options, &progress);
    others.clear();
    next_ = end_;  // whoever came last went beyond it
    if (failure_ == 0 && !options.stop.stop_requested()) progress.reached(done_);
    return failure_;
  }

  // Of the last chunk that could not be collapsed; 0 = none.
  int collapse_failure() const { return collapse_failure_; }

 private:
  void work(const TouchOptions& options, Progress* progress) {
    while (failure_ == 0 && !options.stop.stop_requested()) {
      const std::uint64_t at = next_.fetch_add(kChunkBytes);
      if (at >= end_) break;
      const std::uint64_t length = std::min(kChunkBytes, end_ - at);
      if (const int failed = claim(bytes_.data() + at, length); failed != 0) {
        failure_ = failed;
        break;
      }
      done_ += length;
      if (progress != nullptr) progress->reached(done_);
    }
  }

  int claim(std::byte* at, std::uint64_t bytes) {
    int collapsed = 0;
    if (collapse_) {
      // One small page in each huge one is enough for the kernel to build the rest around it, at the speed of
      // memory. Faulting all of them in first takes ten times as long.
      for (std::uint64_t i = 0; i < bytes; i += kHugePageBytes)
        if (const int failed = populate(at + i, kSmallPageBytes); failed != 0) return failed;
      collapsed = collapse(at, bytes);
    }
    if (const int failed = populate(at, bytes); failed != 0) return failed;
    if (collapsed != 0) collapsed = collapse(at, bytes);  // a kernel that wants every page there first
    if (collapsed != 0) collapse_failure_ = collapsed;
    return 0;
  }

  int collapse(std::byte* at, std::uint64_t bytes) const {
    int failed = EAGAIN;
    for (int tried = 0; tried < kCollapseTries && failed == EAGAIN; ++tried)
      failed = calls_.advise(at, bytes, Advice::kCollapse);
    return failed;
  }

  int populate(std::byte* at, std::uint64_t bytes) const {
    const bool write = access_ == MappingAccess::kReadWrite;
    const int failed = calls_.advise(at, bytes, write ? Advice::kPopulateWrite : Advice::kPopulateRead);
    if (failed != EINVAL) return failed;
    // Linux before 5.14: one access a page. Replacing a byte by itself keeps what another process may be
    // writing there, and is not, like adding 0, made a mere read by a compiler.
    for (std::uint64_t i = 0; i < bytes; i += kSmallPageBytes) {
      auto* word = reinterpret_cast<volatile std::uint8_t*>(at + i);
      std::uint8_t is = __atomic_load_n(word, __ATOMIC_RELAXED);
      if (write) __atomic_compare_exchange_n(word, &is, is, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
    }
    return 0;
  }

  MutableByteView bytes_;
  MappingAccess access_;
  const MappingCalls& calls_;
  bool collapse_ = false;
  std::uint64_t end_ = 0;
  std::atomic<std::uint64_t> next_{0};
  std::atomic<std::uint64_t> done_{0};
  std::atomic<int> failure_{0};
  std::atomic<int> collapse_failure_{0};
};

}  // namespace

// One open or attach under way.
class MappingOpening {
 public:
  MappingOpening(std::uint64_t bytes, const TouchOptions& touch, const MappingCalls& calls)
      : bytes_(bytes), touch_(touch), calls_(calls), progress_(touch, bytes) {}

  // To be called first. Errors: invalid_argument, unsupported.
  Status place(const NumaPlacement& placement) {
    placement_ = placement;
    if (placement.mode == NumaMode::kSystem) return {};
    const auto available = calls_.memory_nodes();
    if (!available)
      return {Code::kUnsupported,
              fmt::format("numa: {}: this kernel has no memory nodes ({}); leave it 'system'",
                          numa_text(placement), error_text(available.error()))};
    Result<std::vector<std::uint32_t>> nodes = nodes_of(placement, *available);
    if (!nodes) return nodes.error();
    nodes_ = std::move(*nodes);
    return {};
  }
  const std::vector<std::uint32_t>& nodes() const { return nodes_; }

  // Rung 1.
  Result<Mapping> hugetlb(bool shared, const MemoryLimits& limits) {
    if (Status fits = limits.check({shared, true}, bytes_); !fits.ok())
      return tl::unexpected(std::move(fits));
    TIERCEL_ASSIGN_OR_RETURN(Mapping mapping, fresh(shared, true));
    Touching touching(mapping.bytes(), mapping.access_, calls_);
    TIERCEL_RETURN_IF_ERROR(touch(touching, bytes_));
    report(mapping, PageKind::kHugetlb);
    return mapping;
  }

  // Rungs 2 to 4. The first huge page tells what all others will be.
  Result<Mapping> pageable(bool shared) {
    TIERCEL_ASSIGN_OR_RETURN(Mapping mapping, fresh(shared, false));
    Touching touching(mapping.bytes(), mapping.access_, calls_);
    PageKind rung = PageKind::kTransparent;
    const int advised = calls_.advise(mapping.range_.data, bytes_, Advice::kHugePages);
    TIERCEL_RETURN_IF_ERROR(touch(touching, kHugePageBytes));
    if (huge_bytes(mapping) == 0) {
      decline("advice", advised != 0
                            ? error_text(advised)
                            : fmt::format("the kernel gave small pages (transparent_hugepage/{} allows no "
                                          "others, or no huge one is free)",
                                          shared ? "shmem_enabled" : "enabled"));
      rung = PageKind::kCollapsed;
      touching.start_over(true);
      TIERCEL_RETURN_IF_ERROR(touch(touching, kHugePageBytes));
      if (huge_bytes(mapping) == 0) touching.start_over(false);
    }
    TIERCEL_RETURN_IF_ERROR(touch(touching, bytes_));
    report(mapping, rung);
    const PageKind got = mapping.pages_.kind;
    if (const int failed = touching.collapse_failure(); failed != 0)
      decline("collapse", error_text(failed));
    else if (got == PageKind::kSmall || got == PageKind::kMixed)
      decline(rung == PageKind::kCollapsed ? "collapse" : "advice",
              fmt::format("the kernel gave small pages for {} of {}",
                          format_size(bytes_ - mapping.pages_.huge_bytes), format_size(bytes_)));
    mapping.pages_.declined = declined_;
    return mapping;
  }

  Result<Mapping> attached(int fd, bool hugetlb, MappingAccess access) {
    Mapping mapping;
    mapping.fd_ = ::fcntl(fd, F_DUPFD_CLOEXEC, 0);
    if (mapping.fd_ < 0) return refused("a copy of the file descriptor", errno);
    TIERCEL_RETURN_IF_ERROR(map(mapping, {bytes_, mapping.fd_, hugetlb, access}));
    Touching touching({mapping.range_.data, bytes_}, access, calls_);
    TIERCEL_RETURN_IF_ERROR(touch(touching, bytes_));
    report(mapping, hugetlb ? PageKind::kHugetlb : PageKind::kTransparent);
    return mapping;
  }

  void decline(std::string_view rung, std::string_view why) {
    declined_.push_back(fmt::format("{}: {}", rung, why));
  }

 private:
  tl::unexpected<Status> refused(std::string_view what, int number) const {
    return error(
        Code::kResourceExhausted,
        fmt::format("memory mapping: the kernel refused {} ({}): wanted {}; ask for less, or look at ulimit "
                    "-v, -n and sysctl vm.max_map_count",
                    what, error_text(number), format_size(bytes_)));
  }

  // Mapped and sealed, not claimed.
  Result<Mapping> fresh(bool shared, bool hugetlb) const {
    Mapping mapping;
    if (shared) {
      const SystemResult<int> file = calls_.create_file(hugetlb);
      if (!file) return refused("a memfd", file.error());
      mapping.fd_ = *file;
      if (const int failed = calls_.size_and_seal(*file, bytes_); failed != 0)
        return refused("the size or the seals of a memfd", failed);
    }
    TIERCEL_RETURN_IF_ERROR(map(mapping, {bytes_, mapping.fd_, hugetlb, MappingAccess::kReadWrite}));
    if (nodes_.empty()) return mapping;
    const NodeRule rule = placement_.mode == NumaMode::kInterleave ? NodeRule::kInterleave : NodeRule::kBind;
    if (const int failed = calls_.set_nodes(mapping.range_.data, bytes_, rule, nodes_); failed != 0)
      return refused(fmt::format("to place it by nodes ({})", numa_text(placement_)), failed);
    return mapping;
  }

  Result<void> map(Mapping& mapping, const MapRequest& request) const {
    const SystemResult<MappedRange> range = calls_.map(request);
    if (!range) return refused("address space", range.error());
    mapping.range_ = *range;
    mapping.bytes_ = bytes_;
    mapping.access_ = request.access;
    mapping.owner_ = ::getpid();
    for (const Advice advice : {Advice::kDontFork, Advice::kDontDump})
      if (const int failed = calls_.advise(range->data, bytes_, advice); failed != 0)
        return refused("memory that no child inherits", failed);
    return {};
  }

  Result<void> touch(Touching& touching, std::uint64_t end) {
    const int failed = touching.run(end, touch_, progress_);
    if (failed != 0) return refused("memory behind the mapping", failed);
    if (touch_.stop.stop_requested())
      return error(Code::kCancelled, "memory mapping: cancelled while its memory was being claimed");
    return {};
  }

  std::uint64_t huge_bytes(const Mapping& mapping) const {
    return calls_.huge_bytes(mapping.range_.data, bytes_).value_or(0);
  }

  // `huge`: what it is when all of it stands on huge pages.
  void report(Mapping& mapping, PageKind huge) {
    PageReport& pages = mapping.pages_;
    const SystemResult<std::uint64_t> counted = calls_.huge_bytes(mapping.range_.data, bytes_);
    if (!counted) {
      decline("counting huge pages", error_text(counted.error()));
    } else {
      pages.huge_bytes = *counted;
      const PageKind partly = *counted == 0 ? PageKind::kSmall : PageKind::kMixed;
      pages.kind = *counted == bytes_ ? huge : partly;
    }
    pages.declined = declined_;
    if (!nodes_.empty()) mapping.numa_ = verify_placement(mapping.view(), placement_, nodes_, calls_);
  }

  std::uint64_t bytes_;
  NumaPlacement placement_;
  std::vector<std::uint32_t> nodes_;  // empty: wherever the kernel puts it
  const TouchOptions& touch_;
  const MappingCalls& calls_;
  Progress progress_;
  std::vector<std::string> declined_;
};

namespace {

// What must be right with a file before any of it is mapped.
Status check_file(int fd, const AttachOptions& options) {
  const auto wrong = [](std::string_view what, const auto& wanted, const auto& got) {
    return Status{
        Code::kInvalidArgument,
        fmt::format("attach: {}: wanted {}, got {}; hand over the file descriptor and the size of a mapping "
                    "of kind 'shared'",
                    what, wanted, got)};
  };
  struct stat found {};
  if (::fstat(fd, &found) != 0) return wrong("file descriptor", "an open memfd", error_text(errno));
  const int seals = ::fcntl(fd, F_GET_SEALS);
  if (seals < 0) return wrong("file", "a memfd", error_text(errno));
  if ((seals & kSealsWanted) != kSealsWanted)
    return wrong("seals", fmt::format("at least {:#x} (shrink, grow)", kSealsWanted),
                 fmt::format("{:#x}", seals));
  if (options.bytes == 0 || options.bytes % kHugePageBytes != 0 || options.bytes > kBytesMax)
    return wrong("size asked for", "a multiple of 2 MiB", options.bytes);
  if (found.st_size < 0 || static_cast<std::uint64_t>(found.st_size) != options.bytes)
    return wrong("size of the file", options.bytes, found.st_size);
  // What nobody has claimed yet could be refused when it is read: SIGBUS.
  const auto claimed = static_cast<std::uint64_t>(found.st_blocks) * kStatBlockBytes;
  if (claimed < options.bytes) return wrong("bytes claimed by its owner", options.bytes, claimed);
  const int may = ::fcntl(fd, F_GETFL) & O_ACCMODE;
  if (may == O_WRONLY)
    return {Code::kFailedPrecondition,
            "attach: the file descriptor may only write; ask for one that reads too"};
  if (options.access == MappingAccess::kReadWrite &&
      (may == O_RDONLY || (seals & (F_SEAL_WRITE | F_SEAL_FUTURE_WRITE)) != 0))
    return {Code::kFailedPrecondition,
            "attach: the file descriptor may only read, or is sealed so; ask for read-only access, or for "
            "another descriptor"};
  return {};
}

}  // namespace

std::string_view page_kind_name(PageKind kind) {
  switch (kind) {
    case PageKind::kUnknown:
      return "unknown";
    case PageKind::kSmall:
      return "4 KiB";
    case PageKind::kMixed:
      return "4 KiB and 2 MiB";
    case PageKind::kCollapsed:
      return "2 MiB collapsed";
    case PageKind::kTransparent:
      return "2 MiB transparent";
    case PageKind::kHugetlb:
      return "2 MiB hugetlb";
  }
  return "unknown";
}

Mapping::Mapping(Mapping&& other) noexcept { swap(other); }

Mapping& Mapping::operator=(Mapping&& other) noexcept {
  Mapping now(std::move(other));
  swap(now);
  return *this;
}

void Mapping::swap(Mapping& other) noexcept {
  std::swap(range_, other.range_);
  std::swap(bytes_, other.bytes_);
  std::swap(access_, other.access_);
  std::swap(fd_, other.fd_);
  std::swap(owner_, other.owner_);
  std::swap(pages_, other.pages_);
  std::swap(numa_, other.numa_);
}

Mapping::~Mapping() {
  // In a forked child these addresses are free or somebody else's.
  if (range_.reserved != nullptr && owner_ == ::getpid()) ::munmap(range_.reserved, range_.reserved_bytes);
  if (fd_ >= 0) ::close(fd_);
}

MutableByteView Mapping::bytes() const {
  TIERCEL_CHECK(access_ == MappingAccess::kReadWrite);
  return {range_.data, bytes_};
}

Result<Mapping> Mapping::open(const MappingOptions& options, const MemoryLimits& limits,
                              const MappingCalls& calls) {
  if (options.bytes == 0 || options.bytes > kBytesMax)
    return error(Code::kInvalidArgument,
                 fmt::format("memory mapping: size: wanted 1 to {} bytes, got {}", kBytesMax, options.bytes));
  const std::uint64_t bytes = ceil_div(options.bytes, kHugePageBytes) * kHugePageBytes;
  const bool shared = options.kind == MappingKind::kShared;
  MappingOpening opening(bytes, options.touch, calls);
  if (Status placed = opening.place(options.numa); !placed.ok()) return tl::unexpected(std::move(placed));
  if (options.numa.mode == NumaMode::kBind || options.numa.mode == NumaMode::kPerShard)
    if (Status fits = limits.check_node(opening.nodes().front(), bytes); !fits.ok())
      return tl::unexpected(std::move(fits));
  if (options.kind != MappingKind::kAnonymous) {
    Result<Mapping> mapping = opening.hugetlb(shared, limits);
    if (mapping || mapping.error().code == Code::kCancelled) return mapping;
    opening.decline("hugetlb", mapping.error().message);
  }
  TIERCEL_RETURN_IF_ERROR(limits.check({shared, false}, bytes));
  TIERCEL_ASSIGN_OR_RETURN(Mapping mapping, opening.pageable(shared));
  const PageReport& pages = mapping.pages();
  if (options.kind == MappingKind::kHugepage && pages.huge_bytes != bytes)
    return error(
        Code::kResourceExhausted,
        fmt::format("memory mapping of kind 'hugepage': wanted {} on huge pages, got {} ({}); raise sysctl "
                    "vm.nr_hugepages, or ask for the kind 'anonymous', which takes small pages too",
                    format_size(bytes), format_size(pages.huge_bytes), fmt::join(pages.declined, "; ")));
  return mapping;
}

Result<Mapping> Mapping::attach(int fd, const AttachOptions& options, const MappingCalls& calls) {
  if (Status right = check_file(fd, options); !right.ok()) return tl::unexpected(std::move(right));
  struct statfs system {};
  const bool hugetlb =
      ::fstatfs(fd, &system) == 0 && static_cast<unsigned long>(system.f_type) == kHugetlbFileSystem;
  MappingOpening opening(options.bytes, options.touch, calls);
  return opening.attached(fd, hugetlb, options.access);
}

}  // namespace tiercel
