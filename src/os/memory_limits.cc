#include "os/memory_limits.h"

#include <algorithm>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "base/sizes.h"
#include "os/kernel_text.h"

namespace tiercel {
namespace {

constexpr std::uint64_t kUnlimited = UINT64_MAX;
constexpr std::uint64_t kHugetlbPageBytes = 2ULL << 20;
constexpr std::uint64_t kBytesPerPageTableByte = 512;  // 8 bytes for each 4 KiB
constexpr std::uint64_t kReserveBytes = 16ULL << 20;
constexpr std::string_view kHugetlbPool = "/sys/kernel/mm/hugepages/hugepages-2048kB/";

std::uint64_t saturating_add(std::uint64_t a, std::uint64_t b) {
  return a > kUnlimited - b ? kUnlimited : a + b;
}
std::uint64_t saturating_mul(std::uint64_t a, std::uint64_t b) {
  return b != 0 && a > kUnlimited / b ? kUnlimited : a * b;
}
std::uint64_t left_of(std::uint64_t limit, std::uint64_t used) { return limit > used ? limit - used : 0; }

bool names(std::string_view comma_list, std::string_view name) {
  while (!comma_list.empty())
    if (take_until(comma_list, ',') == name) return true;
  return false;
}

// Part of a file's text, fit for one line of an error message.
std::string quoted(std::string_view text) {
  std::string out(text.substr(0, 40));
  for (char& c : out)
    if (c < ' ' || c > '~') c = '?';
  return out;
}

// How one controller of one cgroup version says its limit and use. Names are empty where there is none.
struct CgroupRule {
  bool v2;
  std::string_view controller;
  std::string_view limit;
  std::string_view usage;
  std::string_view cache_cold;  // in memory.stat: page cache not used lately, and used lately
  std::string_view cache_warm;
  std::string_view inherited;  // in memory.stat: the least limit of all ancestors, also of hidden ones
};
constexpr CgroupRule kMemoryRules[] = {
    {false, "memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file",
     "total_active_file", "hierarchical_memory_limit"},
    {true, "", "memory.max", "memory.current", "inactive_file", "active_file", ""},
    // Beyond it nobody is killed, but memory that cannot be swapped out is slowed down for ever.
    {true, "", "memory.high", "memory.current", "inactive_file", "active_file", ""},
};
constexpr CgroupRule kHugetlbRules[] = {
    {false, "hugetlb", "hugetlb.2MB.limit_in_bytes", "hugetlb.2MB.usage_in_bytes", "", "", ""},
    {false, "hugetlb", "hugetlb.2MB.rsvd.limit_in_bytes", "hugetlb.2MB.rsvd.usage_in_bytes", "", "", ""},
    {true, "", "hugetlb.2MB.max", "hugetlb.2MB.current", "", "", ""},
    {true, "", "hugetlb.2MB.rsvd.max", "hugetlb.2MB.rsvd.current", "", "", ""},
};

struct CgroupMount {
  bool v2 = false;
  std::string controllers;  // of v1, with other mount options between
  std::string root;         // the cgroup that is seen at `point`
  std::string point;
};

// \040 and the like, as mountinfo writes spaces in paths.
std::string unescaped(std::string_view text) {
  const auto octal = [](char c) { return c >= '0' && c <= '7'; };
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\\' && i + 3 < text.size() && text[i + 1] <= '3' && octal(text[i + 1]) &&
        octal(text[i + 2]) && octal(text[i + 3])) {
      out += static_cast<char>((text[i + 1] - '0') * 64 + (text[i + 2] - '0') * 8 + (text[i + 3] - '0'));
      i += 3;
    } else {
      out += text[i];
    }
  }
  return out;
}

std::vector<CgroupMount> cgroup_mounts(std::string_view mountinfo) {
  std::vector<CgroupMount> mounts;
  while (!mountinfo.empty()) {
    std::string_view line = take_until(mountinfo, '\n');
    const std::size_t dash = line.find(" - ");
    if (dash == std::string_view::npos) continue;
    std::string_view behind = line.substr(dash + 3);
    const std::string_view type = take_until(behind, ' ');
    if (type != "cgroup" && type != "cgroup2") continue;
    take_until(behind, ' ');                                     // the device
    for (int skip = 0; skip < 3; ++skip) take_until(line, ' ');  // id, parent, device number
    const std::string_view root = take_until(line, ' ');
    const std::string_view point = take_until(line, ' ');
    mounts.push_back({type == "cgroup2", std::string(behind), unescaped(root), unescaped(point)});
  }
  return mounts;
}

// This process's group under the hierarchy of `controller` (v1) or the one of v2, as /proc/self/cgroup says
// it.
std::optional<std::string> own_group(std::string_view cgroups, bool v2, std::string_view controller) {
  while (!cgroups.empty()) {
    std::string_view line = take_until(cgroups, '\n');
    const std::string_view hierarchy = take_until(line, ':');
    const std::string_view controllers = take_until(line, ':');
    if (v2 ? hierarchy == "0" && controllers.empty() : names(controllers, controller))
      return std::string(line);
  }
  return std::nullopt;
}

// The folder of that group below the mount. A group that the mount does not show (a container with its own
// view) is taken for the mount itself.
std::string group_folder(const CgroupMount& mount, std::string_view group) {
  const std::string_view root = mount.root == "/" ? std::string_view{} : std::string_view(mount.root);
  std::string_view below;
  if (group.starts_with(root) && (group.size() == root.size() || group[root.size()] == '/'))
    below = group.substr(root.size());
  if (below == "/" || below.find("/..") != std::string_view::npos) below = {};
  return mount.point + std::string(below);
}

// One question, and the tightest limit found so far.
class Search {
 public:
  explicit Search(const std::string& root) : root_(root) {}

  // Nothing when it is not there or may not be read.
  std::optional<std::string> file(const std::string& path) const { return read_kernel_text(root_ + path); }

  // The number in a file that holds nothing else; "max" and the like are kUnlimited.
  std::optional<std::uint64_t> value(const std::string& path) {
    const std::optional<std::string> text = file(path);
    return text ? value(path, trimmed(*text)) : std::nullopt;
  }
  std::optional<std::uint64_t> value(const std::string& path, std::string_view word) {
    if (word == "max" || word == "unlimited" || word == "-1") return kUnlimited;
    const std::optional<std::uint64_t> found = decimal(word);
    if (!found && failure.ok())
      failure = {Code::kIoError,
                 fmt::format("memory limits: {}: wanted a number of bytes or 'max', got '{}'; this "
                             "kernel says it in a way that is not known here",
                             path, quoted(word))};
    return found;
  }
  // The number of a named line ("name: 12 kB" counts in KiB); nothing when there is none.
  std::optional<std::uint64_t> line(const std::string& path, std::string_view text, std::string_view name) {
    const std::string_view word = word_after(text, name);
    return word.empty() ? std::nullopt : value(path, word);
  }

  // Keeps it when it is tighter than what was found before.
  void found(std::uint64_t bytes, std::string where, std::string_view remedy) {
    if (bytes < room.bytes) room = {bytes, std::move(where), std::string(remedy)};
  }

  MemoryRoom room;
  Status failure;  // the first

 private:
  const std::string& root_;
};

void look_at_group(Search& search, const CgroupRule& rule, const std::string& folder) {
  std::string path = fmt::format("{}/{}", folder, rule.limit);
  std::optional<std::uint64_t> limit = search.value(path);
  if (!limit) return;
  const std::string stat_path = folder + "/memory.stat";
  const std::string stat = rule.cache_cold.empty() ? std::string{} : search.file(stat_path).value_or("");
  if (!rule.inherited.empty()) {
    const std::uint64_t inherited = search.line(stat_path, stat, rule.inherited).value_or(kUnlimited);
    if (inherited < *limit) {
      limit = inherited;
      path = fmt::format("{} ({})", stat_path, rule.inherited);
    }
  }
  if (*limit == kUnlimited) return;
  const std::uint64_t used = search.value(fmt::format("{}/{}", folder, rule.usage)).value_or(0);
  std::uint64_t cache = 0;
  if (!stat.empty())
    cache = saturating_add(search.line(stat_path, stat, rule.cache_cold).value_or(0),
                           search.line(stat_path, stat, rule.cache_warm).value_or(0) / 2);
  cache = std::min(cache, used);
  search.found(left_of(*limit, used - cache),
               fmt::format("the cgroup limit {} is {}, of which {} are in use", path, format_size(*limit),
                           format_size(used - cache)),
               "raise that limit");
}

// At the group and each of its ancestors that the mount shows.
void look_up_from(Search& search, const CgroupRule& rule, const CgroupMount& mount, std::string folder) {
  while (true) {
    look_at_group(search, rule, folder);
    const std::size_t slash = folder.rfind('/');
    if (folder.size() <= mount.point.size() || slash == std::string::npos) return;
    folder.resize(std::max(slash, mount.point.size()));
  }
}

template <std::size_t count>
void look_at_cgroups(Search& search, const CgroupRule (&rules)[count]) {
  const std::string groups = search.file("/proc/self/cgroup").value_or("");
  const std::vector<CgroupMount> mounts = cgroup_mounts(search.file("/proc/self/mountinfo").value_or(""));
  for (const CgroupRule& rule : rules) {
    const std::optional<std::string> group = own_group(groups, rule.v2, rule.controller);
    if (!group) continue;
    for (const CgroupMount& mount : mounts) {
      if (mount.v2 != rule.v2 || (!rule.v2 && !names(mount.controllers, rule.controller))) continue;
      look_up_from(search, rule, mount, group_folder(mount, *group));
    }
  }
}

// KiB in a line of /proc/meminfo or /proc/self/status, in bytes.
std::optional<std::uint64_t> kib_line(Search& search, const std::string& path, std::string_view text,
                                      std::string_view name) {
  const auto kib = search.line(path, text, name);
  return kib ? std::optional(saturating_mul(*kib, 1024)) : std::nullopt;
}

void look_at_machine(Search& search) {
  const std::string path = "/proc/meminfo";
  const std::string text = search.file(path).value_or("");
  auto available = kib_line(search, path, text, "MemAvailable");
  if (!available) available = kib_line(search, path, text, "MemFree");
  if (available)
    search.found(*available, fmt::format("{} says that {} are available", path, format_size(*available)),
                 "free memory on this machine");
  const auto overcommit = search.file("/proc/sys/vm/overcommit_memory");
  if (!overcommit || trimmed(*overcommit) != "2") return;
  const auto limit = kib_line(search, path, text, "CommitLimit");
  const auto used = kib_line(search, path, text, "Committed_AS");
  if (limit && used)
    search.found(left_of(*limit, *used),
                 fmt::format("vm.overcommit_memory is 2 and CommitLimit in {} is {}, of which {} are in use",
                             path, format_size(*limit), format_size(*used)),
                 "raise vm.overcommit_ratio");
}

void look_at_process(Search& search, MemorySource source) {
  const std::string path = "/proc/self/limits";
  const std::string text = search.file(path).value_or("");
  if (source.shared) {
    const std::uint64_t file_size = search.line(path, text, "Max file size").value_or(kUnlimited);
    search.found(file_size, fmt::format("Max file size in {} is {}", path, format_size(file_size)),
                 "raise ulimit -f");
  }
  const std::uint64_t space = search.line(path, text, "Max address space").value_or(kUnlimited);
  if (space == kUnlimited) return;
  const std::string status = "/proc/self/status";
  const std::uint64_t used = kib_line(search, status, search.file(status).value_or(""), "VmSize").value_or(0);
  search.found(left_of(space, used),
               fmt::format("Max address space in {} is {}, of which {} are in use", path, format_size(space),
                           format_size(used)),
               "raise ulimit -v");
}

void look_at_hugetlb_pool(Search& search) {
  const std::string pool(kHugetlbPool);
  const std::uint64_t free_pages = search.value(pool + "free_hugepages").value_or(0);
  const std::uint64_t promised = search.value(pool + "resv_hugepages").value_or(0);
  const std::uint64_t pages = left_of(free_pages, promised);
  search.found(saturating_mul(pages, kHugetlbPageBytes),
               fmt::format("the pool {} has {} free pages of 2 MiB", pool, pages),
               "raise sysctl vm.nr_hugepages");
}

}  // namespace

MemoryLimits::MemoryLimits(std::string root) : root_(std::move(root)) {}

Result<MemoryRoom> MemoryLimits::room(MemorySource source) const {
  Search search(root_);
  look_at_process(search, source);
  if (source.hugetlb) {
    look_at_hugetlb_pool(search);
    look_at_cgroups(search, kHugetlbRules);
  } else {
    look_at_machine(search);
    look_at_cgroups(search, kMemoryRules);
  }
  if (!search.failure.ok()) return tl::unexpected(search.failure);
  return search.room;
}

Status MemoryLimits::check(MemorySource source, std::uint64_t bytes) const {
  const Result<MemoryRoom> found = room(source);
  if (!found) return found.error();
  const std::uint64_t needed = needed_bytes(source, bytes);
  if (needed <= found->bytes) return {};
  const std::string extra = needed == bytes
                                ? std::string{}
                                : fmt::format(" ({} with page tables and reserve)", format_size(needed));
  return {Code::kResourceExhausted,
          fmt::format("memory: {}: wanted {}{}, got {}; ask for less, or {}", found->where,
                      format_size(bytes), extra, format_size(found->bytes), found->remedy)};
}

Status MemoryLimits::check_node(std::uint32_t node, std::uint64_t bytes) const {
  Search search(root_);
  const std::string path = fmt::format("/sys/devices/system/node/node{}/meminfo", node);
  const std::string text = search.file(path).value_or("");
  const auto kib = [&](std::string_view name) {
    return kib_line(search, path, text, fmt::format("Node {} {}", node, name));
  };
  const std::optional<std::uint64_t> free = kib("MemFree");
  // What the kernel gives up without hurting anybody, by half where it was used lately.
  const std::uint64_t cache =
      saturating_add(kib("Inactive(file)").value_or(0), kib("Active(file)").value_or(0) / 2);
  if (!search.failure.ok()) return search.failure;
  if (!free) return {};
  const std::uint64_t room = saturating_add(*free, cache);
  const std::uint64_t needed = needed_bytes({}, bytes);
  if (needed <= room) return {};
  return {Code::kResourceExhausted,
          fmt::format(
              "memory: {} says that {} are free: wanted {} on node {}, got {}; ask for less, take another "
              "node, or 'interleave'",
              path, format_size(room), format_size(needed), node, format_size(room))};
}

std::uint64_t MemoryLimits::needed_bytes(MemorySource source, std::uint64_t bytes) {
  if (source.hugetlb) return bytes;
  return saturating_add(bytes, saturating_add(bytes / kBytesPerPageTableByte, kReserveBytes));
}

}  // namespace tiercel
