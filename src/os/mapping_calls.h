// The system calls that a memory mapping is made with (os/mapping.h), so that a test can let any one of them
// fail; what they do on Linux; and how a mapping's huge pages are counted.
//
// Threads: const calls from any thread.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include <tl/expected.hpp>

namespace tiercel {

inline constexpr std::uint64_t kHugePageBytes = 2ULL << 20;
inline constexpr std::uint64_t kSmallPageBytes = 4096;

// A value, or an errno. Plain int results are 0 or an errno.
template <typename T>
using SystemResult = tl::expected<T, int>;

enum class MappingAccess : unsigned char { kReadOnly, kReadWrite };

enum class Advice : unsigned char {
  kHugePages,      // give huge pages where they can be had
  kPopulateRead,   // fault every page in
  kPopulateWrite,  // the same, writable: claims memory; an error where a plain write would be SIGBUS
  kCollapse,       // rebuild out of huge pages, now
  kDontFork,       // absent in a forked child
  kDontDump,       // absent in a core file
};

// How pages are dealt out to memory nodes (NUMA).
enum class NodeRule : unsigned char {
  kInterleave,  // in turns over the nodes
  kBind,        // on these nodes and no others
};

struct MapRequest {
  std::uint64_t bytes = 0;  // a multiple of kHugePageBytes
  int fd = -1;              // a memfd, mapped shared from its start; -1 = private memory
  bool hugetlb = false;
  MappingAccess access = MappingAccess::kReadWrite;
};

// Address space that was taken: `data` is aligned to kHugePageBytes; around private memory stand pages that
// nobody may touch, so that the kernel does not join two mappings into one.
struct MappedRange {
  std::byte* data = nullptr;
  std::byte* reserved = nullptr;
  std::uint64_t reserved_bytes = 0;
};

class MappingCalls {
 public:
  virtual ~MappingCalls() = default;
  // A memfd that takes seals, closed on exec. The caller closes it.
  virtual SystemResult<int> create_file(bool hugetlb) const = 0;
  // The file has this size for ever: sealed against shrinking, growing and other seals.
  virtual int size_and_seal(int fd, std::uint64_t bytes) const = 0;
  // Claims no memory (but reserves pages of a hugetlb pool). The caller unmaps what was reserved.
  virtual SystemResult<MappedRange> map(const MapRequest& request) const = 0;
  virtual int advise(std::byte* data, std::uint64_t bytes, Advice advice) const = 0;
  // Of the mapping [data, data + bytes) of this process, how many bytes really stand on huge pages at this
  // moment.
  virtual SystemResult<std::uint64_t> huge_bytes(const std::byte* data, std::uint64_t bytes) const = 0;
  // The memory nodes that this process may use, ascending.
  virtual SystemResult<std::vector<std::uint32_t>> memory_nodes() const = 0;
  // Where pages go that are touched from now on; of a memfd, whoever touches them. Requires: nodes not empty.
  virtual int set_nodes(std::byte* data, std::uint64_t bytes, NodeRule rule,
                        std::span<const std::uint32_t> nodes) const = 0;
  // On which node each page lies, one answer per address; below 0 where the kernel does not say.
  virtual SystemResult<std::vector<int>> page_nodes(std::span<const std::byte* const> pages) const = 0;
};

class LinuxMappingCalls final : public MappingCalls {
 public:
  SystemResult<int> create_file(bool hugetlb) const override;
  int size_and_seal(int fd, std::uint64_t bytes) const override;
  SystemResult<MappedRange> map(const MapRequest& request) const override;
  int advise(std::byte* data, std::uint64_t bytes, Advice advice) const override;
  // Cost: from Linux 6.7 on, a look at each page-table entry; before, what /proc/self/smaps takes: some 50 ms
  // for 10 GiB that several processes have mapped.
  SystemResult<std::uint64_t> huge_bytes(const std::byte* data, std::uint64_t bytes) const override;
  SystemResult<std::vector<std::uint32_t>> memory_nodes() const override;
  int set_nodes(std::byte* data, std::uint64_t bytes, NodeRule rule,
                std::span<const std::uint32_t> nodes) const override;
  SystemResult<std::vector<int>> page_nodes(std::span<const std::byte* const> pages) const override;
};

// Bytes on huge pages of the mappings that lie wholly in [from, to), out of the text of /proc/PID/smaps.
std::uint64_t huge_bytes_in(std::string_view smaps, std::uint64_t from, std::uint64_t to);

}  // namespace tiercel
