#include "os/machine_calls.h"

#include <array>
#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <cstring>

#include <dlfcn.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/syscall.h>
#include <unistd.h>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace tiercel {
namespace {

// Younger than some C libraries that this is built with; the same number on every architecture.
constexpr long kCallIoUringSetup = 425;
constexpr long kCallPidfdOpen = 434;

constexpr std::uint64_t kBlockBytes = 4096;  // every file system of today takes it
constexpr std::uint64_t kTrialBytes = 2 * kBlockBytes;

int error_of(long result) { return result < 0 ? errno : 0; }

std::uint64_t limit_bytes(rlim_t limit) { return limit == RLIM_INFINITY ? UINT64_MAX : limit; }

// A file without a name where the file system has such, else one whose name is gone at once; −1 with errno.
int open_nameless(const std::string& folder, const char*& call) {
  constexpr int kFlags = O_RDWR | O_CLOEXEC | O_DIRECT;
  call = "open with O_DIRECT";
  const int nameless = ::open(folder.c_str(), kFlags | O_TMPFILE, 0600);
  if (nameless >= 0 || (errno != EOPNOTSUPP && errno != EISDIR && errno != ENOENT)) return nameless;
  std::string name = folder + "/.tiercel_doctor_XXXXXX";
  // Made without O_DIRECT, and switched over: a refused O_DIRECT must not leave the file that open() made.
  const int named = ::mkostemp(name.data(), O_CLOEXEC);
  if (named < 0) {
    call = "open";
    return named;
  }
  ::unlink(name.c_str());
  const int flags = ::fcntl(named, F_GETFL);
  if (::fcntl(named, F_SETFL, flags | O_DIRECT) == 0) return named;
  const int failure = errno;
  ::close(named);
  errno = failure;
  return -1;
}

void ask_alignment(int file, DirectTrial& trial) {
#if defined(STATX_DIOALIGN)
  struct statx told {};
  if (::statx(file, "", AT_EMPTY_PATH, STATX_DIOALIGN, &told) != 0) return;
  if ((told.stx_mask & STATX_DIOALIGN) == 0) return;
  trial.told_offset_bytes = told.stx_dio_offset_align;
  trial.told_memory_bytes = told.stx_dio_mem_align;
#else
  static_cast<void>(file);
  static_cast<void>(trial);
#endif
}

// One pattern, written in whole blocks, then read from offsets and to addresses that are less and less
// aligned. Only written data tells: a hole reads as zeros at any alignment.
void write_and_read(int file, std::byte* memory, DirectTrial& trial) {
  const auto fail = [&trial](const char* call, int failure) {
    trial.failed_call = call;
    trial.failure = failure;
  };
  std::byte* const source = memory;
  std::byte* const target = memory + kTrialBytes;
  for (std::uint64_t i = 0; i < kTrialBytes; ++i) source[i] = static_cast<std::byte>(i * 131 + i / 256);
  const ssize_t written = ::pwrite(file, source, kTrialBytes, 0);
  if (written < 0) return fail("write", errno);
  if (written != static_cast<ssize_t>(kTrialBytes)) return fail("write", EIO);
  for (const std::uint64_t alignment :
       {kBlockBytes, kBlockBytes / 2, kBlockBytes / 4, kBlockBytes / 8, std::uint64_t{1}}) {
    std::memset(target, 0, kTrialBytes);
    const ssize_t got = ::pread(file, target + alignment, alignment, static_cast<off_t>(alignment));
    if (got < 0 && errno == EINVAL && trial.alignment_bytes != 0) return;
    if (got < 0) return fail("read", errno);
    if (got != static_cast<ssize_t>(alignment)) return fail("read", EIO);
    if (std::memcmp(target + alignment, source + alignment, alignment) != 0) return fail("compare", 0);
    trial.alignment_bytes = alignment;
  }
}

struct KnownFileSystem {
  std::uint64_t type;
  const char* name;
};
// Of linux/magic.h and statfs(2).
constexpr KnownFileSystem kFileSystems[] = {
    {0xEF53, "ext4"},          {0x58465342, "xfs"},  {0x9123683E, "btrfs"},    {0x01021994, "tmpfs"},
    {0x794C7630, "overlayfs"}, {0x6969, "nfs"},      {0x65735546, "fuse"},     {0x858458F6, "ramfs"},
    {0x2FC12FC1, "zfs"},       {0xF2F52010, "f2fs"}, {0xCA451A4E, "bcachefs"}, {0x01021997, "9p"},
    {0xFF534D42, "cifs"},      {0xFE534D42, "smb2"}, {0x00C36400, "ceph"},     {0x0BD00BD0, "lustre"},
};

// The driver's entry points, by their documented signatures.
using CudaInit = int (*)(unsigned);
using CudaCount = int (*)(int*);

template <typename Function>
Function entry(void* library, const char* name) {
  return reinterpret_cast<Function>(::dlsym(library, name));
}

}  // namespace

std::string file_system_name(std::uint64_t type) {
  for (const KnownFileSystem& known : kFileSystems)
    if (known.type == type) return known.name;
  return fmt::format("type {:#x}", type);
}

SystemResult<LockLimit> LinuxMachineCalls::lock_limit() const {
  rlimit limit{};
  if (::getrlimit(RLIMIT_MEMLOCK, &limit) != 0) return tl::unexpected(errno);
  return LockLimit{limit_bytes(limit.rlim_cur), limit_bytes(limit.rlim_max)};
}

int LinuxMachineCalls::try_lock(std::uint64_t bytes) const {
  void* at = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (at == MAP_FAILED) return errno;
  // Not by mlock(), of which the address sanitizer makes nothing.
  const int failure = error_of(::syscall(SYS_mlock, at, bytes));
  ::munmap(at, bytes);
  return failure;
}

SystemResult<FileSystem> LinuxMachineCalls::file_system(const std::string& folder) const {
  struct statfs found {};
  if (::statfs(folder.c_str(), &found) != 0) return tl::unexpected(errno);
  const auto unit = static_cast<std::uint64_t>(found.f_frsize != 0 ? found.f_frsize : found.f_bsize);
  return FileSystem{found.f_blocks * unit, found.f_bavail * unit,
                    static_cast<std::uint64_t>(found.f_type) & 0xFFFFFFFFU};
}

int LinuxMachineCalls::try_io_uring() const {
  // struct io_uring_params, of which nothing is set: 120 bytes.
  std::array<std::uint64_t, 15> parameters{};
  const long ring = ::syscall(kCallIoUringSetup, 4, parameters.data());
  const int failure = error_of(ring);
  if (ring >= 0) ::close(static_cast<int>(ring));
  return failure;
}

int LinuxMachineCalls::try_pidfd() const {
  const long process = ::syscall(kCallPidfdOpen, ::getpid(), 0);
  const int failure = error_of(process);
  if (process >= 0) ::close(static_cast<int>(process));
  return failure;
}

DirectTrial LinuxMachineCalls::try_direct(const std::string& folder) const {
  DirectTrial trial;
  const char* call = "";
  const int file = open_nameless(folder, call);
  if (file < 0) {
    trial.failure = errno;
    trial.failed_call = call;
    return trial;
  }
  ask_alignment(file, trial);
  void* memory = ::mmap(nullptr, 2 * kTrialBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) {
    trial.failure = errno;
    trial.failed_call = "mmap";
  } else {
    write_and_read(file, static_cast<std::byte*>(memory), trial);
    ::munmap(memory, 2 * kTrialBytes);
  }
  ::close(file);
  return trial;
}

CpuFeatures LinuxMachineCalls::cpu() const {
  CpuFeatures features;
#if defined(__x86_64__)
  features.x86 = true;
  features.sse4_2 = __builtin_cpu_supports("sse4.2") != 0;
  features.pclmul = __builtin_cpu_supports("pclmul") != 0;
  features.avx2 = __builtin_cpu_supports("avx2") != 0;
  features.avx512f = __builtin_cpu_supports("avx512f") != 0;
  features.vpclmulqdq = __builtin_cpu_supports("vpclmulqdq") != 0;
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;  // leaf 7, EBX bit 29: g++ 12 has no name for it
  features.sha_ni = __builtin_cpu_supports("sse4.1") != 0 &&
                    __get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) != 0 && (ebx & (1U << 29)) != 0;
#endif
  return features;
}

CudaDriver LinuxMachineCalls::cuda() const {
  CudaDriver driver;
  void* library = ::dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    const char* why = ::dlerror();  // NOLINT(concurrency-mt-unsafe): one string for each thread in glibc
    driver.load_failure = why != nullptr ? why : "it cannot be loaded";
    return driver;
  }
  const auto init = entry<CudaInit>(library, "cuInit");
  const auto version = entry<CudaCount>(library, "cuDriverGetVersion");
  const auto count = entry<CudaCount>(library, "cuDeviceGetCount");
  if (init == nullptr || version == nullptr || count == nullptr) {
    driver.load_failure = "it lacks cuInit, cuDriverGetVersion or cuDeviceGetCount";
    return driver;
  }
  if (version(&driver.version) != 0) driver.version = 0;
  int devices = 0;
  driver.failed_call = "cuInit";
  driver.failure = init(0);
  if (driver.failure != 0) return driver;
  driver.failed_call = "cuDeviceGetCount";
  driver.failure = count(&devices);
  if (driver.failure != 0) return driver;
  driver.failed_call = "";
  driver.devices = devices > 0 ? static_cast<unsigned>(devices) : 0;
  return driver;
}

}  // namespace tiercel
