#include "os/machine_report.h"

#include <algorithm>
#include <cerrno>
#include <system_error>

#include <fmt/format.h>

#include "base/sizes.h"

namespace tiercel {
namespace {

constexpr std::uint64_t kGiB = 1ULL << 30;
constexpr std::uint64_t kSmallRoomBytes = kGiB;            // below it a cache is hardly worth its while
constexpr std::uint64_t kContainerShmBytes = 64ULL << 20;  // what containers get unless asked
constexpr std::uint64_t kPoolAdviceBytes = 4 * kGiB;       // the size in the example of a remedy
constexpr std::uint64_t kPoolAdvicePages = kPoolAdviceBytes / kHugePageBytes;
constexpr int kCudaNoDevice = 100;  // CUDA_ERROR_NO_DEVICE

std::string error_text(int number) { return std::generic_category().message(number); }

template <typename T>
CheckValue known(const std::optional<T>& value) {
  if (value) return *value;
  return {};
}
CheckValue known(const std::string& text) {
  if (!text.empty()) return text;
  return {};
}
// A member of what may not be there.
template <typename Holder, typename Value>
CheckValue known(const Holder& holder, Value Holder::value_type::*member) {
  if (holder) return (*holder).*member;
  return {};
}
CheckValue nonzero(std::uint64_t value) {
  if (value != 0) return value;
  return {};
}
// A limit that is not there is not known as a number.
CheckValue limit_value(std::uint64_t bytes) {
  if (bytes != UINT64_MAX) return bytes;
  return {};
}

std::string limit_text(std::uint64_t bytes) { return bytes == UINT64_MAX ? "unlimited" : format_size(bytes); }

Check check_memfd(const Machine& machine) {
  const MemfdTrial& trial = machine.memfd;
  Check check{
      "memfd", CheckState::kOk, "shared memory can be made, and sealed so that nobody can shrink it", "", {}};
  check.tell("works", trial.ok());
  if (trial.ok()) return check;
  check.state = CheckState::kMissing;
  check.text =
      fmt::format("no shared memory can be made: {}: {}", trial.failed_call, error_text(trial.failure));
  if (trial.failure == EMFILE || trial.failure == ENFILE)
    check.remedy = "raise ulimit -n, or sysctl fs.file-max";
  else if (trial.failure == EFBIG)
    check.remedy = "raise ulimit -f";
  else if (machine.seccomp_filter)
    check.remedy = "allow memfd_create, ftruncate and fcntl in the container's seccomp profile";
  else
    check.remedy = "use Linux 5.1 or later, and let no security module forbid memfd_create";
  return check;
}

Check check_memory(const Machine& machine) {
  const bool mapped = machine.mapped_private.ok() && machine.mapped_shared.ok();
  Check check{"memory", CheckState::kOk, "", "", {}};
  const std::uint64_t room = machine.room ? machine.room->bytes : 0;
  check.tell("room_bytes", limit_value(machine.room ? room : UINT64_MAX));
  check.tell("limited_by", known(machine.room, &MemoryRoom::where));
  check.tell("total_bytes", known(machine.memory_total_bytes));
  check.tell("available_bytes", known(machine.memory_available_bytes));
  check.tell("trial_works", mapped);
  if (!mapped) {
    check.state = CheckState::kMissing;
    // Both have it from the same limits: the shorter sentence, where it is the room that is too small.
    const Status& failed = machine.mapped_private.ok() ? machine.mapped_shared : machine.mapped_private;
    const bool small = room < MemoryLimits::needed_bytes({.shared = true}, kTrialMappingBytes);
    check.text = fmt::format("not even {} can be had: {}", format_size(kTrialMappingBytes),
                             machine.room && small ? machine.room->where : failed.message);
    check.remedy = machine.room && !machine.room->remedy.empty()
                       ? machine.room->remedy
                       : std::string("raise the limit that is named");
    return check;
  }
  if (!machine.room) {
    check.state = CheckState::kLack;
    check.text = fmt::format("how much is left cannot be told: {}", machine.room.error().message);
    check.remedy = "name the size yourself (host_bytes) and keep it below what the container may take";
    return check;
  }
  check.text = room == UINT64_MAX
                   ? std::string("no limit is known")
                   : fmt::format("{} may be claimed: {}", format_size(room), machine.room->where);
  if (room >= kSmallRoomBytes) return check;
  check.state = CheckState::kLack;
  check.remedy = machine.room->remedy;
  return check;
}

// Names of the rungs that gave what was `wanted`.
std::string rungs(const RungTrials& trials, bool wanted) {
  std::string names;
  const std::pair<std::string_view, const RungTrial*> all[] = {
      {"hugetlb", &trials.hugetlb}, {"advice", &trials.advice}, {"collapse", &trials.collapse}};
  for (const auto& [name, trial] : all)
    if (trial->got == wanted) names += fmt::format("{}{}", names.empty() ? "" : ", ", name);
  return names;
}

Check check_huge(std::string_view name, const RungTrials& trials, bool shared) {
  Check check{name, CheckState::kOk, "", "", {}};
  check.tell("by_hugetlb", known(trials.hugetlb.got));
  check.tell("by_advice", known(trials.advice.got));
  check.tell("by_collapse", known(trials.collapse.got));
  check.tell("hugetlb_why", known(trials.hugetlb.why));
  check.tell("advice_why", known(trials.advice.why));
  check.tell("collapse_why", known(trials.collapse.why));
  const std::string_view what = shared ? "a memfd" : "private memory";
  if (trials.any()) {
    const std::string refused = rungs(trials, false);
    check.text = fmt::format("{} gets pages of 2 MiB by {}{}{}", what, rungs(trials, true),
                             refused.empty() ? "" : "; not by ", refused);
    return check;
  }
  if (!trials.advice.got && !trials.collapse.got) {
    check.state = CheckState::kNote;
    check.text = fmt::format("whether {} gets pages of 2 MiB is not known: {}", what, trials.advice.why);
    return check;
  }
  check.state = CheckState::kLack;
  check.text = fmt::format("{} gets none of 2 MiB: hugetlb: {}; advice: {}; collapse: {}", what,
                           trials.hugetlb.why, trials.advice.why, trials.collapse.why);
  check.remedy = fmt::format(
      "sysctl -w vm.nr_hugepages={} (for {}), or use Linux 6.1 or later, where it is collapsed "
      "without any privilege",
      kPoolAdvicePages, format_size(kPoolAdviceBytes));
  return check;
}

Check check_pool_2mib(const Machine& machine) {
  Check check{"hugetlb_2mib", CheckState::kOk, "", "", {}};
  const std::optional<HugePool>& pool = machine.pool_2mib;
  check.tell("total_pages", known(pool, &HugePool::total_pages));
  check.tell("free_pages", known(pool, &HugePool::free_pages));
  check.tell("reserved_pages", known(pool, &HugePool::reserved_pages));
  if (!pool) {
    check.state = CheckState::kLack;
    check.text = "the kernel has no pool of 2 MiB pages";
    check.remedy = "use a kernel built with CONFIG_HUGETLBFS; transparent huge pages do as well";
    return check;
  }
  const std::uint64_t left = pool->free_pages - std::min(pool->free_pages, pool->reserved_pages);
  check.text = fmt::format("{} pages, {} free", pool->total_pages, pool->free_pages);
  if (pool->reserved_pages > 0)
    check.text += fmt::format(", {} of those promised to others", pool->reserved_pages);
  if (left > 0) return check;
  check.state = CheckState::kLack;
  check.remedy =
      fmt::format("sysctl -w vm.nr_hugepages={} ({}; best at boot, while memory lies in one piece)",
                  pool->total_pages + kPoolAdvicePages,
                  format_size((pool->total_pages + kPoolAdvicePages) * kHugePageBytes));
  return check;
}

// Nothing is made of them: a note at most.
Check check_pool_1gib(const Machine& machine) {
  const std::optional<HugePool>& pool = machine.pool_1gib;
  Check check{
      "hugetlb_1gib", CheckState::kNote, "the processor or the kernel has none; Tiercel uses none", "", {}};
  check.tell("total_pages", known(pool, &HugePool::total_pages));
  check.tell("free_pages", known(pool, &HugePool::free_pages));
  if (pool)
    check.text = fmt::format("{} pages, {} free; Tiercel uses none", pool->total_pages, pool->free_pages);
  return check;
}

Check check_setting(std::string_view name, const HugePageSetting& setting, bool shared) {
  Check check{name, CheckState::kOk, "", "", {}};
  check.tell("setting", known(setting.word));
  check.tell("file", setting.file);
  if (setting.word.empty()) {
    check.state = CheckState::kLack;
    check.text =
        fmt::format("the kernel has no transparent huge pages for {}", shared ? "a memfd" : "private memory");
    check.remedy = fmt::format(
        "use a kernel with CONFIG_TRANSPARENT_HUGEPAGE, or sysctl -w vm.nr_hugepages={}", kPoolAdvicePages);
    return check;
  }
  check.text = fmt::format("{} is '{}'", setting.file, setting.word);
  if (setting.word != "never" && setting.word != "deny") return check;
  check.state = CheckState::kLack;
  check.text += setting.word == "deny"
                    ? ": a memfd gets no huge pages but hugetlb ones"
                    : ": huge pages only by hugetlb or collapse, which takes longer to open";
  check.remedy =
      fmt::format("echo {} > {} (as root; until the next boot)", shared ? "advise" : "madvise", setting.file);
  return check;
}

Check check_lock(const Machine& machine) {
  Check check{"memlock", CheckState::kOk, "", "", {}};
  const bool passes = machine.beyond_lock_limit == 0;
  const bool asked = machine.lock_limit.has_value();
  const auto limits = machine.lock_limit.value_or(LockLimit{UINT64_MAX, UINT64_MAX});
  check.tell("soft_bytes", limit_value(limits.soft_bytes));
  check.tell("hard_bytes", limit_value(limits.hard_bytes));
  check.tell("unlimited", asked && limits.soft_bytes == UINT64_MAX);
  check.tell("passes_limit", known(machine.beyond_lock_limit ? std::optional(passes) : std::nullopt));
  if (!asked) {
    check.state = CheckState::kLack;
    check.text = fmt::format("RLIMIT_MEMLOCK cannot be asked: {}", error_text(machine.lock_limit.error()));
    check.remedy = "let no seccomp profile forbid prlimit64";
    return check;
  }
  check.text = fmt::format("user {} may lock {} (hard limit {})", machine.user, limit_text(limits.soft_bytes),
                           limit_text(limits.hard_bytes));
  if (limits.soft_bytes == UINT64_MAX) return check;
  if (passes) {
    check.text += ", and passes that limit: it has CAP_IPC_LOCK";
    return check;
  }
  check.state = CheckState::kLack;
  check.text += machine.beyond_lock_limit
                    ? fmt::format(", and a page more is refused: {}", error_text(*machine.beyond_lock_limit))
                    : "; more was not tried";
  check.remedy =
      "ulimit -l unlimited (LimitMEMLOCK=infinity in a unit, --ulimit memlock=-1 for a container), or "
      "give it CAP_IPC_LOCK";
  return check;
}

Check check_dev_shm(const Machine& machine) {
  Check check{"dev_shm", CheckState::kNote, "", "", {}};
  const SystemResult<FileSystem>& system = machine.dev_shm;
  check.tell("total_bytes", known(system, &FileSystem::total_bytes));
  check.tell("free_bytes", known(system, &FileSystem::free_bytes));
  constexpr std::string_view kOurs = "Tiercel's own shared memory is a memfd, which this does not limit";
  constexpr std::string_view kRemedy =
      "for engines beside it (NCCL, worker processes): docker run --shm-size=16g, or "
      "mount -o remount,size=16G /dev/shm";
  if (!system) {
    check.state = CheckState::kLack;
    check.text = fmt::format("not there ({}); {}", error_text(system.error()), kOurs);
    check.remedy = kRemedy;
    return check;
  }
  check.text = fmt::format("{}, {} free; {}", format_size(system->total_bytes),
                           format_size(system->free_bytes), kOurs);
  if (system->free_bytes > kContainerShmBytes) return check;
  check.state = CheckState::kLack;
  check.remedy = kRemedy;
  return check;
}

struct Refusal {
  std::string_view by;  // "sysctl", "seccomp", "kernel", "memlock", "other"
  std::string text;
  std::string remedy;
};

Refusal refused_by_seccomp() {
  return {"seccomp", "a seccomp filter forbids it",
          "allow io_uring_setup, io_uring_enter and io_uring_register in the container's seccomp profile"};
}

Refusal io_uring_refusal(const Machine& machine) {
  const std::string& disabled = machine.io_uring_disabled;
  switch (machine.io_uring_failure) {
    case EPERM:
      if (disabled == "2")
        return {"sysctl", "kernel.io_uring_disabled is 2: for everybody",
                "sysctl -w kernel.io_uring_disabled=0"};
      if (disabled == "1" && machine.user != 0)
        return {"sysctl", "kernel.io_uring_disabled is 1: only for root and the group kernel.io_uring_group",
                "sysctl -w kernel.io_uring_disabled=0, or kernel.io_uring_group= a group of this user"};
      if (machine.seccomp_filter) return refused_by_seccomp();
      return {"other", "a security module forbids it",
              "look into the audit log (SELinux, AppArmor) and allow it"};
    case ENOSYS:
      // A kernel that has the switch has what it switches.
      if (!disabled.empty() && machine.seccomp_filter) return refused_by_seccomp();
      return {"kernel", "the kernel has none, or a seccomp filter says so",
              "use Linux 5.1 or later with CONFIG_IO_URING; in a container, allow it in the seccomp profile"};
    case ENOMEM:
      return {"memlock", "it takes more locked memory than this user may have", "raise ulimit -l"};
    case EMFILE:
    case ENFILE:
      return {"other", "too many open files", "raise ulimit -n, or sysctl fs.file-max"};
    default:
      return {"other", error_text(machine.io_uring_failure), "look into the kernel's log (dmesg)"};
  }
}

Check check_io_uring(const Machine& machine) {
  const bool works = machine.io_uring_failure == 0;
  const Refusal refusal = works ? Refusal{} : io_uring_refusal(machine);
  Check check{"io_uring", CheckState::kOk, "a ring can be set up", refusal.remedy, {}};
  check.tell("works", works);
  check.tell("refused_by", known(std::string(refusal.by)));
  if (works) return check;
  check.state = CheckState::kLack;
  check.text = fmt::format("no ring: {} ({})", refusal.text, error_text(machine.io_uring_failure));
  return check;
}

std::string direct_remedy(const DirectTrial& trial, const std::string& system) {
  if (trial.failure == EACCES || trial.failure == EPERM || trial.failure == EROFS)
    return "name a folder that this user may write with --path";
  if (trial.failure == ENOSPC || trial.failure == EDQUOT)
    return "free space there, or name another folder with --path";
  if (trial.failure == EFBIG) return "raise ulimit -f";
  if (*trial.failed_call != '\0' && trial.failure == 0) return "do not trust this file system; test the disk";
  return fmt::format("name a folder on a local disk with ext4 or xfs with --path; this one is {}", system);
}

Check check_direct(const Machine& machine) {
  const DirectTrial& trial = machine.direct;
  const SystemResult<FileSystem>& system = machine.direct_file_system;
  const std::string name = system ? file_system_name(system->type) : "of an unknown type";
  Check check{"o_direct", CheckState::kOk, "", "", {}};
  check.tell("path", machine.direct_folder);
  check.tell("file_system", known(system ? name : std::string{}));
  check.tell("free_bytes", known(system, &FileSystem::free_bytes));
  check.tell("works", trial.ok());
  check.tell("alignment_bytes", nonzero(trial.ok() ? trial.alignment_bytes : 0));
  check.tell("told_offset_bytes", nonzero(trial.told_offset_bytes));
  check.tell("told_memory_bytes", nonzero(trial.told_memory_bytes));
  const std::string where = fmt::format("{} ({})", machine.direct_folder, name);
  if (!trial.ok()) {
    check.state = CheckState::kLack;
    check.text = trial.failure != 0
                     ? fmt::format("{}: {}: {}", where, trial.failed_call, error_text(trial.failure))
                     : fmt::format("{}: other bytes were read than written", where);
    check.remedy = direct_remedy(trial, name);
    return check;
  }
  const std::string space =
      system ? fmt::format(", {} free", format_size(system->free_bytes)) : std::string{};
  check.text = trial.alignment_bytes <= 1 ? fmt::format("{}: works at any alignment{}", where, space)
                                          : fmt::format("{}: works at {} bytes (memory, offset and length){}",
                                                        where, trial.alignment_bytes, space);
  if (name == "tmpfs" || name == "ramfs") {
    check.state = CheckState::kLack;
    check.text += "; but this is memory, not a disk";
    check.remedy = "name a folder on a disk with --path";
  }
  return check;
}

// The bodies that run-time dispatch picks (base/copy.cc, base/crc32c_x86.cc, base/sha256_x86.cc).
std::string_view copy_path(const CpuFeatures& cpu) {
  if (!cpu.x86) return "memcpy";
  if (cpu.avx512f) return "vectors of 64 bytes";
  return cpu.avx2 ? "vectors of 32 bytes" : "vectors of 16 bytes";
}
std::string_view checksum_path(const CpuFeatures& cpu) {
  if (!cpu.sse4_2) return "tables";
  if (cpu.avx512f && cpu.vpclmulqdq) return "vectors of 64 bytes";
  return cpu.pclmul ? "vectors of 16 bytes" : "crc instruction";
}
std::string_view hash_path(const CpuFeatures& cpu) { return cpu.sha_ni ? "sha_ni" : "openssl"; }

Check check_cpu(const Machine& machine) {
  const CpuFeatures& cpu = machine.cpu;
  Check check{"cpu", CheckState::kOk, "", "", {}};
  const std::pair<std::string_view, bool> features[] = {
      {"sse4_2", cpu.sse4_2},   {"pclmul", cpu.pclmul},         {"avx2", cpu.avx2},
      {"avx512f", cpu.avx512f}, {"vpclmulqdq", cpu.vpclmulqdq}, {"sha_ni", cpu.sha_ni}};
  std::string has, lacks;
  for (const auto& [name, there] : features) {
    std::string& list = there ? has : lacks;
    list += fmt::format("{}{}", list.empty() ? "" : " ", name);
    check.tell(name, there);
  }
  check.tell("copy_path", std::string(copy_path(cpu)));
  check.tell("checksum_path", std::string(checksum_path(cpu)));
  check.tell("hash_path", std::string(hash_path(cpu)));
  check.text = fmt::format("{}{}copies by {}, checksums by {}, hashes by {}", has, has.empty() ? "" : "; ",
                           copy_path(cpu), checksum_path(cpu), hash_path(cpu));
  if (!cpu.x86) {
    check.state = CheckState::kNote;
    return check;
  }
  if (lacks.empty()) return check;
  check.text += fmt::format("; lacks {}", lacks);
  // Without the wide ones it is slower, not slow.
  const bool slow = !cpu.sse4_2 || !cpu.pclmul || !cpu.sha_ni;
  check.state = slow ? CheckState::kLack : CheckState::kNote;
  if (slow)
    check.remedy =
        "in a virtual machine, pass the host's processor through (-cpu host); else use a younger one";
  return check;
}

Check check_numa(const Machine& machine) {
  const std::vector<NumaNode>& nodes = machine.numa;
  std::vector<std::uint64_t> ids, total, left;
  std::string sizes;
  for (const NumaNode& node : nodes) {
    ids.push_back(node.id);
    total.push_back(node.total_bytes);
    left.push_back(node.free_bytes);
    sizes += fmt::format("{}node {}: {}, {} free", sizes.empty() ? "" : "; ", node.id,
                         format_size(node.total_bytes), format_size(node.free_bytes));
  }
  Check check{"numa", CheckState::kOk, "", "", {}};
  check.text = nodes.empty() ? std::string("the kernel tells of no nodes: all memory is equally far")
                             : std::move(sizes);
  if (nodes.size() > 1) {
    check.state = CheckState::kNote;
    check.text += "; place memory beside the device that uses it, or interleave it";
  }
  check.tell("nodes", std::move(ids));
  check.tell("total_bytes", std::move(total));
  check.tell("free_bytes", std::move(left));
  return check;
}

Check check_pidfd(const Machine& machine) {
  const bool works = machine.pidfd_failure == 0;
  Check check{"pidfd", CheckState::kOk, "the end of another process can be waited for", "", {}};
  check.tell("works", works);
  if (works) return check;
  check.state = CheckState::kLack;
  check.text = fmt::format("pidfd_open: {}: that another process ended is seen later, or not for sure",
                           error_text(machine.pidfd_failure));
  check.remedy = machine.seccomp_filter ? "allow pidfd_open in the container's seccomp profile"
                                        : "use Linux 5.3 or later";
  return check;
}

// 12040 -> "12.4".
std::string cuda_version(int version) {
  return version <= 0 ? std::string("of an unknown version")
                      : fmt::format("{}.{}", version / 1000, version % 1000 / 10);
}

Check check_cuda(const Machine& machine) {
  const CudaDriver& driver = machine.cuda;
  const bool loaded = driver.load_failure.empty();
  Check check{"cuda", CheckState::kOk, "", "", {}};
  check.tell("driver", loaded);
  check.tell("devices", std::uint64_t{driver.devices});
  check.tell("version", known(loaded && driver.version > 0 ? cuda_version(driver.version) : std::string{}));
  if (loaded && *driver.failed_call == '\0' && driver.devices > 0) {
    check.text = fmt::format("{} device{}, driver for CUDA {}", driver.devices,
                             driver.devices == 1 ? "" : "s", cuda_version(driver.version));
    return check;
  }
  check.state = CheckState::kLack;
  check.remedy = "install the NVIDIA driver, or hand the devices to the container (docker run --gpus all)";
  if (!loaded) {
    check.text = fmt::format("no driver: {}", driver.load_failure);
  } else if (*driver.failed_call == '\0' || driver.failure == kCudaNoDevice) {
    check.text = fmt::format("a driver for CUDA {}, but no device", cuda_version(driver.version));
    check.remedy =
        "hand the devices to the container (docker run --gpus all), or look at CUDA_VISIBLE_DEVICES";
  } else {
    check.text = fmt::format("a driver for CUDA {}, but {} fails with CUDA error {}",
                             cuda_version(driver.version), driver.failed_call, driver.failure);
    check.remedy = "see whether nvidia-smi works: the driver's two halves may be of different versions";
  }
  return check;
}

}  // namespace

std::string_view check_state_name(CheckState state) {
  switch (state) {
    case CheckState::kOk:
      return "ok";
    case CheckState::kNote:
      return "note";
    case CheckState::kLack:
      return "lack";
    case CheckState::kMissing:
      return "missing";
  }
  return "missing";
}

std::vector<Check> check_machine(const Machine& machine) {
  return {check_memfd(machine),
          check_memory(machine),
          check_huge("huge_private", machine.huge_private, false),
          check_huge("huge_shared", machine.huge_shared, true),
          check_pool_2mib(machine),
          check_pool_1gib(machine),
          check_setting("thp_private", machine.thp_private, false),
          check_setting("thp_shared", machine.thp_shared, true),
          check_lock(machine),
          check_dev_shm(machine),
          check_io_uring(machine),
          check_direct(machine),
          check_cpu(machine),
          check_numa(machine),
          check_pidfd(machine),
          check_cuda(machine)};
}

bool is_ready(const std::vector<Check>& checks) {
  return std::ranges::none_of(checks, [](const Check& check) { return check.state == CheckState::kMissing; });
}

}  // namespace tiercel
