#include "os/machine.h"

#include <algorithm>
#include <cerrno>
#include <string_view>
#include <system_error>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>
#include <sched.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "base/sizes.h"
#include "os/kernel_text.h"
#include "os/mapping.h"

namespace tiercel {
namespace {

constexpr std::string_view kThp = "/sys/kernel/mm/transparent_hugepage/";
constexpr std::string_view kPools = "/sys/kernel/mm/hugepages/";
constexpr std::string_view kNodes = "/sys/devices/system/node/";
constexpr std::uint64_t kIdsMax = 4096;
// A limit above it is not tried: locking it would claim too much of a small machine.
constexpr std::uint64_t kLockTrialBytesMax = 64ULL << 20;

enum class Rung : unsigned char { kHugetlb, kAdvice, kCollapse };

// The calls of a mapping for which the rungs above one are closed.
class FromRung final : public MappingCalls {
 public:
  FromRung(Rung rung, const MappingCalls& calls) : rung_(rung), calls_(calls) {}

  SystemResult<int> create_file(bool hugetlb) const override {
    if (hugetlb && rung_ != Rung::kHugetlb) return tl::unexpected(EOPNOTSUPP);
    return calls_.create_file(hugetlb);
  }
  int size_and_seal(int fd, std::uint64_t bytes) const override { return calls_.size_and_seal(fd, bytes); }
  SystemResult<MappedRange> map(const MapRequest& request) const override { return calls_.map(request); }
  int advise(std::byte* data, std::uint64_t bytes, Advice advice) const override {
    if (advice == Advice::kHugePages && rung_ == Rung::kCollapse) return EOPNOTSUPP;
    return calls_.advise(data, bytes, advice);
  }
  SystemResult<std::uint64_t> huge_bytes(const std::byte* data, std::uint64_t bytes) const override {
    return calls_.huge_bytes(data, bytes);
  }
  SystemResult<std::vector<std::uint32_t>> memory_nodes() const override { return calls_.memory_nodes(); }
  int set_nodes(std::byte* data, std::uint64_t bytes, NodeRule rule,
                std::span<const std::uint32_t> nodes) const override {
    return calls_.set_nodes(data, bytes, rule, nodes);
  }
  SystemResult<std::vector<int>> page_nodes(std::span<const std::byte* const> pages) const override {
    return calls_.page_nodes(pages);
  }

 private:
  Rung rung_;
  const MappingCalls& calls_;
};

// The kernel's files below a root.
class Files {
 public:
  explicit Files(const std::string& root) : root_(root) {}

  std::string text(std::string_view path) const {
    return read_kernel_text(fmt::format("{}{}", root_, path)).value_or("");
  }
  std::string word(std::string_view path) const { return std::string(trimmed(text(path))); }
  std::optional<std::uint64_t> number(std::string_view path) const { return decimal(word(path)); }

 private:
  const std::string& root_;
};

std::optional<std::uint64_t> kib_line(std::string_view text, std::string_view name) {
  const auto kib = decimal(word_after(text, name));
  return kib && *kib <= UINT64_MAX / 1024 ? std::optional(*kib * 1024) : std::nullopt;
}

std::optional<HugePool> pool(const Files& files, std::string_view size) {
  const auto number = [&](std::string_view name) {
    return files.number(fmt::format("{}hugepages-{}/{}", kPools, size, name));
  };
  const auto total = number("nr_hugepages");
  if (!total) return std::nullopt;
  return HugePool{*total, number("free_hugepages").value_or(0), number("resv_hugepages").value_or(0)};
}

// "always [madvise] never" says madvise.
std::string chosen(std::string_view words) {
  const std::size_t open = words.find('[');
  const std::size_t close = words.find(']', open == std::string_view::npos ? 0 : open);
  if (open == std::string_view::npos || close == std::string_view::npos) return {};
  return std::string(words.substr(open + 1, close - open - 1));
}

HugePageSetting setting(const Files& files, std::string_view name) {
  HugePageSetting all{{}, fmt::format("{}{}", kThp, name)};
  all.word = chosen(files.text(all.file));
  if (all.word == "deny" || all.word == "force") return all;  // of memfds, whatever their size's setting
  HugePageSetting sized{{}, fmt::format("{}hugepages-2048kB/{}", kThp, name)};
  sized.word = chosen(files.text(sized.file));
  return sized.word.empty() || sized.word == "inherit" ? all : sized;
}

std::string declined(const PageReport& pages, std::string_view rung) {
  for (const std::string& line : pages.declined)
    if (line.starts_with(rung) && line.substr(rung.size()).starts_with(": "))
      return line.substr(rung.size() + 2);
  return fmt::format("{} of {} came on huge pages", format_size(pages.huge_bytes),
                     format_size(kTrialMappingBytes));
}

// What a mapping says of the first rung that was open to it.
RungTrial judged(Rung rung, const PageReport& pages) {
  if (pages.kind == PageKind::kUnknown)
    return {std::nullopt,
            fmt::format("huge pages cannot be counted: {}", declined(pages, "counting huge pages"))};
  switch (rung) {
    case Rung::kHugetlb:
      return {pages.kind == PageKind::kHugetlb, declined(pages, "hugetlb")};
    case Rung::kAdvice:
      return {pages.kind == PageKind::kTransparent, declined(pages, "advice")};
    case Rung::kCollapse:
      // Pages that came huge by themselves leave nothing to collapse.
      if (pages.kind == PageKind::kTransparent)
        return {std::nullopt, "not needed: pages come huge without it"};
      return {pages.kind == PageKind::kCollapsed, declined(pages, "collapse")};
  }
  return {};
}

RungTrial try_rung(Rung rung, bool shared, const MemoryLimits& limits, const MappingCalls& calls) {
  MappingOptions options{.kind = shared ? MappingKind::kShared : MappingKind::kAnonymous,
                         .bytes = kTrialMappingBytes};
  options.touch.threads = 1;
  if (rung == Rung::kHugetlb) {
    // Asked first, since it says in one line what an open that goes on to other pages says in many.
    const auto room = limits.room({.shared = shared, .hugetlb = true});
    if (room && room->bytes < kTrialMappingBytes) return {false, room->where};
    if (!shared) options.kind = MappingKind::kHugepage;
  }
  // Where nothing fits, no rung can be blamed.
  if (!limits.check({.shared = shared}, kTrialMappingBytes).ok())
    return {std::nullopt, "not tried: too little memory may be claimed"};
  const FromRung from(rung, calls);
  const Result<Mapping> mapping = Mapping::open(options, limits, from);
  if (!mapping) return {false, mapping.error().message};
  RungTrial trial = judged(rung, mapping->pages());
  if (trial.got == true) trial.why.clear();
  return trial;
}

RungTrials try_rungs(bool shared, const MemoryLimits& limits, const MappingCalls& calls) {
  return {try_rung(Rung::kHugetlb, shared, limits, calls), try_rung(Rung::kAdvice, shared, limits, calls),
          try_rung(Rung::kCollapse, shared, limits, calls)};
}

Status try_mapping(MappingKind kind, const MemoryLimits& limits, const MappingCalls& calls) {
  MappingOptions options{.kind = kind, .bytes = kTrialMappingBytes};
  options.touch.threads = 1;
  return detail::status_of(Mapping::open(options, limits, calls));
}

MemfdTrial try_memfd(const MappingCalls& calls) {
  const SystemResult<int> file = calls.create_file(false);
  if (!file) return {"memfd_create", file.error()};
  const int failure = calls.size_and_seal(*file, kSmallPageBytes);
  ::close(*file);
  return failure == 0 ? MemfdTrial{} : MemfdTrial{"giving it a size and sealing it", failure};
}

// Nothing when there is no limit, or one that is too large to be tried.
std::optional<int> try_beyond(const SystemResult<LockLimit>& limit, const MachineCalls& calls) {
  if (!limit || limit->soft_bytes > kLockTrialBytesMax) return std::nullopt;
  return calls.try_lock(limit->soft_bytes / kSmallPageBytes * kSmallPageBytes + kSmallPageBytes);
}

std::vector<NumaNode> nodes(const Files& files) {
  std::vector<NumaNode> found;
  for (const std::uint64_t id : ids_in(files.word(fmt::format("{}has_memory", kNodes)))) {
    const std::string text = files.text(fmt::format("{}node{}/meminfo", kNodes, id));
    const auto bytes = [&](std::string_view name) {
      return kib_line(text, fmt::format("Node {} {}", id, name)).value_or(0);
    };
    found.push_back({id, bytes("MemTotal"), bytes("MemFree")});
  }
  return found;
}

unsigned processors() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (::sched_getaffinity(0, sizeof set, &set) == 0) return static_cast<unsigned>(CPU_COUNT(&set));
  const long online = ::sysconf(_SC_NPROCESSORS_ONLN);  // more of them than a cpu_set_t holds
  return online > 0 ? static_cast<unsigned>(online) : 1;
}

void look_at_names(const Files& files, Machine& machine) {
  utsname names{};
  machine.kernel = files.word("/proc/sys/kernel/osrelease");
  if (::uname(&names) == 0) machine.architecture = names.machine;
  const std::string cpus = files.text("/proc/cpuinfo");
  // "model name<tab>: ..."
  std::string_view name = line_after(cpus, "model name");
  if (name.starts_with(':')) name.remove_prefix(1);
  machine.processor = std::string(trimmed(name));
  machine.processors = processors();
  machine.user = ::geteuid();
}

}  // namespace

std::vector<std::uint64_t> ids_in(std::string_view list) {
  std::vector<std::uint64_t> ids;
  while (!list.empty()) {
    std::string_view range = take_until(list, ',');
    const bool single = range.find('-') == std::string_view::npos;
    const auto first = decimal(take_until(range, '-'));
    const auto last = single ? first : decimal(range);
    if (!first || !last || *last < *first || *last >= kIdsMax) return {};
    for (std::uint64_t id = *first; id <= *last; ++id) ids.push_back(id);
    if (ids.size() > kIdsMax) return {};
  }
  return ids;
}

Machine look_at_machine(const MachineSource& source, const std::string& folder) {
  const Files files(source.root);
  const MemoryLimits limits(source.root);
  Machine machine;
  look_at_names(files, machine);

  machine.memfd = try_memfd(source.mappings);
  machine.mapped_private = try_mapping(MappingKind::kAnonymous, limits, source.mappings);
  machine.mapped_shared = try_mapping(MappingKind::kShared, limits, source.mappings);
  machine.room = limits.room({.shared = true});
  const std::string memory = files.text("/proc/meminfo");
  machine.memory_total_bytes = kib_line(memory, "MemTotal");
  machine.memory_available_bytes = kib_line(memory, "MemAvailable");

  machine.pool_2mib = pool(files, "2048kB");
  machine.pool_1gib = pool(files, "1048576kB");
  machine.thp_private = setting(files, "enabled");
  machine.thp_shared = setting(files, "shmem_enabled");
  machine.huge_private = try_rungs(false, limits, source.mappings);
  machine.huge_shared = try_rungs(true, limits, source.mappings);

  machine.lock_limit = source.calls.lock_limit();
  machine.beyond_lock_limit = try_beyond(machine.lock_limit, source.calls);
  machine.dev_shm = source.calls.file_system("/dev/shm");

  machine.io_uring_failure = source.calls.try_io_uring();
  machine.io_uring_disabled = files.word("/proc/sys/kernel/io_uring_disabled");
  machine.seccomp_filter = word_after(files.text("/proc/self/status"), "Seccomp") == "2";
  machine.pidfd_failure = source.calls.try_pidfd();

  machine.direct_folder = folder;
  machine.direct = source.calls.try_direct(folder);
  machine.direct_file_system = source.calls.file_system(folder);

  machine.cpu = source.calls.cpu();
  machine.numa = nodes(files);
  machine.cuda = source.calls.cuda();
  return machine;
}

}  // namespace tiercel
