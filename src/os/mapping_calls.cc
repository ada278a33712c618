#include "os/mapping_calls.h"

#include <array>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <string>

#include <fcntl.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace tiercel {
namespace {

// Younger than some C libraries that this is built with.
constexpr int kAdvicePopulateRead = 22;
constexpr int kAdvicePopulateWrite = 23;
constexpr int kAdviceCollapse = 25;
constexpr unsigned kFileHugeTwoMiB = 21U << 26;
constexpr int kMapHugeTwoMiB = 21 << 26;
constexpr int kMapFixedNoReplace = 0x100000;
constexpr int kPlacesTried = 16;  // an aligned place that another thread took first

int protection(MappingAccess access) {
  return access == MappingAccess::kReadOnly ? PROT_READ : PROT_READ | PROT_WRITE;
}

// Address space without memory: bytes and one huge page more on both sides, in which `data` is aligned and
// has at least one small page before and behind it.
SystemResult<MappedRange> reserve(std::uint64_t bytes) {
  const std::uint64_t reserved_bytes = bytes + 2 * kHugePageBytes;
  void* at = ::mmap(nullptr, reserved_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (at == MAP_FAILED) return tl::unexpected(errno);
  auto* reserved = static_cast<std::byte*>(at);
  const std::uint64_t to_aligned = kHugePageBytes - reinterpret_cast<std::uintptr_t>(at) % kHugePageBytes;
  return MappedRange{reserved + to_aligned, reserved, reserved_bytes};
}

SystemResult<MappedRange> map_private(const MapRequest& request) {
  const auto range = reserve(request.bytes);
  if (!range) return range;
  // Made accessible in place: where this fails the address space is still ours to give back.
  if (::mprotect(range->data, request.bytes, protection(request.access)) == 0) return range;
  const int failure = errno;
  ::munmap(range->reserved, range->reserved_bytes);
  return tl::unexpected(failure);
}

// The kernel aligns hugetlb mappings itself.
SystemResult<MappedRange> map_hugetlb(const MapRequest& request) {
  const int kind = request.fd >= 0 ? MAP_SHARED : MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB | kMapHugeTwoMiB;
  void* at = ::mmap(nullptr, request.bytes, protection(request.access), kind, request.fd, 0);
  if (at == MAP_FAILED) return tl::unexpected(errno);
  return MappedRange{static_cast<std::byte*>(at), static_cast<std::byte*>(at), request.bytes};
}

// An aligned place is looked for, given up and taken again only if it is still free: mapping over a
// reservation could fail after the kernel has removed it, and then nobody knows whose the addresses are.
SystemResult<MappedRange> map_shared(const MapRequest& request) {
  int failure = 0;
  for (int tried = 0; tried < kPlacesTried; ++tried) {
    const auto place = reserve(request.bytes);
    if (!place) return place;
    ::munmap(place->reserved, place->reserved_bytes);
    void* at = ::mmap(place->data, request.bytes, protection(request.access), MAP_SHARED | kMapFixedNoReplace,
                      request.fd, 0);
    if (at == place->data) return MappedRange{place->data, place->data, request.bytes};
    failure = at == MAP_FAILED ? errno : EEXIST;
    if (at != MAP_FAILED) ::munmap(at, request.bytes);  // a kernel that takes the address as a hint
    if (failure != EEXIST) break;
  }
  return tl::unexpected(failure);
}

int advice_number(Advice advice) {
  switch (advice) {
    case Advice::kHugePages:
      return MADV_HUGEPAGE;
    case Advice::kPopulateRead:
      return kAdvicePopulateRead;
    case Advice::kPopulateWrite:
      return kAdvicePopulateWrite;
    case Advice::kCollapse:
      return kAdviceCollapse;
    case Advice::kDontFork:
      return MADV_DONTFORK;
    case Advice::kDontDump:
      return MADV_DONTDUMP;
  }
  return -1;
}

// "7f00-7f10 rw-p ..." begins a mapping.
bool mapping_line(std::string_view line, std::uint64_t& start, std::uint64_t& end) {
  const char* last = line.data() + line.size();
  const auto first = std::from_chars(line.data(), last, start, 16);
  if (first.ec != std::errc{} || first.ptr == last || *first.ptr != '-') return false;
  const auto second = std::from_chars(first.ptr + 1, last, end, 16);
  return second.ec == std::errc{} && second.ptr != last && *second.ptr == ' ';
}

// Bytes said by the line "Name:   12 kB", if it is that line.
std::uint64_t bytes_of(std::string_view line, std::string_view name) {
  if (!line.starts_with(name)) return 0;
  line.remove_prefix(name.size());
  const std::size_t digits = line.find_first_not_of(' ');
  if (digits == std::string_view::npos) return 0;
  std::uint64_t kib = 0;
  const auto read = std::from_chars(line.data() + digits, line.data() + line.size(), kib);
  return read.ec == std::errc{} && kib <= UINT64_MAX / 1024 ? kib * 1024 : 0;
}

// The kernel's PAGEMAP_SCAN (Linux 6.7), which the C library here does not know yet.
struct ScanRequest {
  std::uint64_t size, flags, start, end, walk_end, regions, regions_max, pages_max;
  std::uint64_t inverted, all_of, any_of, told;
};
struct ScanRegion {
  std::uint64_t start, end, categories;
};
constexpr std::uint64_t kPageIsHuge = 1ULL << 6;
constexpr unsigned long kPagemapScan = _IOWR('f', 16, ScanRequest);

// An errno where the kernel cannot do this.
SystemResult<std::uint64_t> scan_huge_bytes(std::uint64_t from, std::uint64_t to) {
  const int file = ::open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
  if (file < 0) return tl::unexpected(errno);
  std::array<ScanRegion, 64> regions{};
  std::uint64_t bytes = 0;
  int failure = 0;
  while (from < to && failure == 0) {
    ScanRequest request{.size = sizeof request,
                        .start = from,
                        .end = to,
                        .regions = reinterpret_cast<std::uintptr_t>(regions.data()),
                        .regions_max = regions.size(),
                        .all_of = kPageIsHuge,
                        .told = kPageIsHuge};
    const int found = ::ioctl(file, kPagemapScan, &request);
    if (found < 0)
      failure = errno;
    else if (request.walk_end <= from)
      failure = EIO;  // no way forward
    for (int i = 0; i < found; ++i) {
      const ScanRegion& region = regions[static_cast<std::size_t>(i)];
      bytes += region.end - region.start;
    }
    from = request.walk_end;
  }
  ::close(file);
  return failure != 0 ? SystemResult<std::uint64_t>(tl::unexpected(failure)) : bytes;
}

SystemResult<std::uint64_t> read_huge_bytes(std::uint64_t from, std::uint64_t to) {
  std::FILE* file = std::fopen("/proc/self/smaps", "re");
  if (file == nullptr) return tl::unexpected(errno);
  std::string text;
  char chunk[1 << 14];
  for (std::size_t got = 0; (got = std::fread(chunk, 1, sizeof chunk, file)) > 0;) text.append(chunk, got);
  const bool whole = std::ferror(file) == 0;
  std::fclose(file);
  if (!whole) return tl::unexpected(EIO);
  return huge_bytes_in(text, from, to);
}

// The kernel's names for placement (linux/mempolicy.h), and a set of nodes as it takes them: it wants to know
// one bit more than there are.
constexpr unsigned long kPolicyBind = 2;
constexpr unsigned long kPolicyInterleave = 3;
constexpr unsigned long kPolicyStaticNodes = 1UL
                                             << 15;  // these very nodes, also when a cpuset moves the process
constexpr unsigned long kPolicyOfAllowedNodes = 4;
constexpr std::size_t kNodesMax = 1024;
constexpr std::size_t kNodesPerWord = 8 * sizeof(unsigned long);
using NodeMask = std::array<unsigned long, kNodesMax / kNodesPerWord>;

}  // namespace

std::uint64_t huge_bytes_in(std::string_view smaps, std::uint64_t from, std::uint64_t to) {
  std::uint64_t bytes = 0;
  bool inside = false;
  while (!smaps.empty()) {
    const std::size_t newline = smaps.find('\n');
    const std::string_view line = smaps.substr(0, newline);
    smaps.remove_prefix(newline == std::string_view::npos ? smaps.size() : newline + 1);
    std::uint64_t start = 0, end = 0;
    if (mapping_line(line, start, end)) inside = start >= from && end <= to;
    if (!inside) continue;
    for (const std::string_view name :
         {"AnonHugePages:", "ShmemPmdMapped:", "FilePmdMapped:", "Shared_Hugetlb:", "Private_Hugetlb:"})
      bytes += bytes_of(line, name);
  }
  return bytes;
}

SystemResult<int> LinuxMappingCalls::create_file(bool hugetlb) const {
  const unsigned flags = MFD_CLOEXEC | MFD_ALLOW_SEALING | (hugetlb ? MFD_HUGETLB | kFileHugeTwoMiB : 0U);
  const int fd = ::memfd_create("tiercel", flags);
  return fd < 0 ? SystemResult<int>(tl::unexpected(errno)) : fd;
}

int LinuxMappingCalls::size_and_seal(int fd, std::uint64_t bytes) const {
  if (::ftruncate(fd, static_cast<off_t>(bytes)) != 0) return errno;
  return ::fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) == 0 ? 0 : errno;
}

SystemResult<MappedRange> LinuxMappingCalls::map(const MapRequest& request) const {
  if (request.hugetlb) return map_hugetlb(request);
  return request.fd >= 0 ? map_shared(request) : map_private(request);
}

int LinuxMappingCalls::advise(std::byte* data, std::uint64_t bytes, Advice advice) const {
  return ::madvise(data, bytes, advice_number(advice)) == 0 ? 0 : errno;
}

SystemResult<std::uint64_t> LinuxMappingCalls::huge_bytes(const std::byte* data, std::uint64_t bytes) const {
  const std::uint64_t from = reinterpret_cast<std::uintptr_t>(data);
  const auto scanned = scan_huge_bytes(from, from + bytes);
  return scanned ? scanned : read_huge_bytes(from, from + bytes);
}

SystemResult<std::vector<std::uint32_t>> LinuxMappingCalls::memory_nodes() const {
  NodeMask mask{};
  if (::syscall(SYS_get_mempolicy, nullptr, mask.data(), kNodesMax + 1, nullptr, kPolicyOfAllowedNodes) != 0)
    return tl::unexpected(errno);
  std::vector<std::uint32_t> nodes;
  for (std::uint32_t node = 0; node < kNodesMax; ++node)
    if ((mask[node / kNodesPerWord] >> (node % kNodesPerWord) & 1) != 0) nodes.push_back(node);
  return nodes;
}

int LinuxMappingCalls::set_nodes(std::byte* data, std::uint64_t bytes, NodeRule rule,
                                 std::span<const std::uint32_t> nodes) const {
  NodeMask mask{};
  for (const std::uint32_t node : nodes) {
    if (node >= kNodesMax) return EINVAL;
    mask[node / kNodesPerWord] |= 1UL << (node % kNodesPerWord);
  }
  const unsigned long policy =
      (rule == NodeRule::kBind ? kPolicyBind : kPolicyInterleave) | kPolicyStaticNodes;
  return ::syscall(SYS_mbind, data, bytes, policy, mask.data(), kNodesMax + 1, 0) == 0 ? 0 : errno;
}

SystemResult<std::vector<int>> LinuxMappingCalls::page_nodes(std::span<const std::byte* const> pages) const {
  std::vector<int> nodes(pages.size(), -1);
  // Without target nodes nothing is moved: the kernel only says where each page is.
  if (::syscall(SYS_move_pages, 0, pages.size(), pages.data(), nullptr, nodes.data(), 0) != 0)
    return tl::unexpected(errno);
  return nodes;
}

}  // namespace tiercel
