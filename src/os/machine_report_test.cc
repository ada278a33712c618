#include "os/machine_report.h"

#include <array>
#include <cerrno>
#include <set>
#include <string>
#include <utility>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/copy.h"
#include "base/crc32c.h"
#include "base/sha256.h"

namespace tiercel {
namespace {

using testing::HasSubstr;
using testing::Not;

constexpr std::uint64_t kMiB = 1ULL << 20;
constexpr std::uint64_t kGiB = 1ULL << 30;

RungTrials all_rungs() { return {{true, ""}, {true, ""}, {true, ""}}; }
RungTrials no_rungs() { return {{false, "empty"}, {false, "never"}, {false, "too old"}}; }

// A machine that lacks nothing.
Machine healthy() {
  Machine machine;
  machine.user = 1000;
  machine.room = MemoryRoom{64 * kGiB, "the memory", "free memory"};
  machine.memory_total_bytes = 128 * kGiB;
  machine.memory_available_bytes = 64 * kGiB;
  machine.pool_2mib = HugePool{100, 50, 10};
  machine.pool_1gib = HugePool{0, 0, 0};
  machine.thp_private = {"madvise", "/enabled"};
  machine.thp_shared = {"advise", "/shmem_enabled"};
  machine.huge_private = machine.huge_shared = all_rungs();
  machine.lock_limit = LockLimit{UINT64_MAX, UINT64_MAX};
  machine.dev_shm = FileSystem{64 * kGiB, 60 * kGiB, 0x01021994};
  machine.io_uring_disabled = "0";
  machine.direct_folder = "/disk";
  machine.direct.alignment_bytes = 512;
  machine.direct_file_system = FileSystem{100 * kGiB, 90 * kGiB, 0xEF53};
  machine.cpu = {true, true, true, true, true, true, true};
  machine.numa = {{0, 128 * kGiB, 64 * kGiB}};
  machine.cuda.devices = 2;
  machine.cuda.version = 12040;
  return machine;
}

const Check& find(const std::vector<Check>& checks, std::string_view name) {
  for (const Check& check : checks)
    if (check.name == name) return check;
  ADD_FAILURE() << "no check " << name;
  return checks.front();
}

const CheckValue& value(const Check& check, std::string_view name) {
  for (const auto& [of, is] : check.values)
    if (of == name) return is;
  ADD_FAILURE() << check.name << " has no value " << name;
  return check.values.front().second;
}
bool unknown(const Check& check, std::string_view name) {
  return std::holds_alternative<std::monostate>(value(check, name));
}

// The check `name` of a machine of which something else than of a healthy one is true. No other check may
// have changed its state.
Check changed(const Machine& machine, std::string_view name) {
  const std::vector<Check> were = check_machine(healthy());
  const std::vector<Check> are = check_machine(machine);
  for (std::size_t i = 0; i < are.size(); ++i) {
    EXPECT_EQ(are[i].name, were[i].name);
    EXPECT_TRUE(are[i].name == name || are[i].state == were[i].state) << are[i].name << ": " << are[i].text;
    const bool bad = are[i].state == CheckState::kLack || are[i].state == CheckState::kMissing;
    EXPECT_EQ(are[i].remedy.empty(), !bad) << are[i].name << ": " << are[i].remedy;
    EXPECT_THAT(are[i].text + are[i].remedy, Not(HasSubstr("\n")));
    EXPECT_FALSE(are[i].text.empty()) << are[i].name;
    EXPECT_EQ(are[i].values.size(), were[i].values.size()) << are[i].name;
  }
  return find(are, name);
}

TEST(MachineReport, AHealthyMachineLacksNothing) {
  const std::vector<Check> checks = check_machine(healthy());
  std::set<std::string_view> names;
  for (const Check& check : checks) {
    EXPECT_TRUE(names.insert(check.name).second) << check.name;
    const bool note = check.name == "hugetlb_1gib" || check.name == "dev_shm";
    EXPECT_EQ(check.state, note ? CheckState::kNote : CheckState::kOk) << check.name << ": " << check.text;
    EXPECT_EQ(check.remedy, "") << check.name;
    std::set<std::string_view> values{"state", "text", "remedy"};
    for (const auto& [name, is] : check.values) EXPECT_TRUE(values.insert(name).second) << check.name << name;
  }
  EXPECT_TRUE(is_ready(checks));
}

TEST(MachineReport, WithoutAMemfdNothingWorks) {
  Machine machine = healthy();
  machine.memfd = {"memfd_create", ENOSYS};
  EXPECT_EQ(changed(machine, "memfd").state, CheckState::kMissing);
  EXPECT_THAT(changed(machine, "memfd").text, HasSubstr("memfd_create: Function not implemented"));
  EXPECT_THAT(changed(machine, "memfd").remedy, HasSubstr("Linux"));
  EXPECT_FALSE(is_ready(check_machine(machine)));
  machine.seccomp_filter = true;
  EXPECT_THAT(changed(machine, "memfd").remedy, HasSubstr("seccomp"));
  machine.memfd.failure = EMFILE;
  EXPECT_THAT(changed(machine, "memfd").remedy, HasSubstr("ulimit -n"));
  machine.memfd.failure = EFBIG;
  EXPECT_THAT(changed(machine, "memfd").remedy, HasSubstr("ulimit -f"));
}

TEST(MachineReport, WithoutMemoryNothingWorks) {
  for (const bool shared : {false, true}) {
    Machine machine = healthy();
    (shared ? machine.mapped_shared : machine.mapped_private) = {Code::kResourceExhausted, "no room here"};
    const Check check = changed(machine, "memory");
    EXPECT_EQ(check.state, CheckState::kMissing);
    EXPECT_THAT(check.text, HasSubstr("no room here"));
    EXPECT_EQ(check.remedy, "free memory");
    EXPECT_FALSE(is_ready(check_machine(machine)));
    machine.room->bytes = kMiB;
    EXPECT_THAT(changed(machine, "memory").text, HasSubstr("had: the memory"));
  }
}

TEST(MachineReport, LittleRoomIsALackWithTheRemedyOfItsLimit) {
  Machine machine = healthy();
  machine.room = MemoryRoom{kGiB - 1, "the cgroup limit is 2 GiB", "raise that limit"};
  EXPECT_EQ(changed(machine, "memory").state, CheckState::kLack);
  EXPECT_EQ(changed(machine, "memory").remedy, "raise that limit");
  EXPECT_THAT(changed(machine, "memory").text, HasSubstr("the cgroup limit is 2 GiB"));
  machine.room->bytes = kGiB;
  EXPECT_EQ(changed(machine, "memory").state, CheckState::kOk);
  machine.room = MemoryRoom{};
  EXPECT_EQ(changed(machine, "memory").state, CheckState::kOk);
  EXPECT_TRUE(unknown(changed(machine, "memory"), "room_bytes"));
  machine.room = error(Code::kIoError, "a strange file");
  EXPECT_EQ(changed(machine, "memory").state, CheckState::kLack);
  EXPECT_THAT(changed(machine, "memory").text, HasSubstr("a strange file"));
  EXPECT_TRUE(is_ready(check_machine(machine)));
}

TEST(MachineReport, AnyRungIsEnoughForHugePages) {
  for (const bool shared : {false, true}) {
    const std::string_view name = shared ? "huge_shared" : "huge_private";
    Machine machine = healthy();
    RungTrials& trials = shared ? machine.huge_shared : machine.huge_private;
    trials = no_rungs();
    const Check none = changed(machine, name);
    EXPECT_EQ(none.state, CheckState::kLack);
    EXPECT_THAT(none.text, HasSubstr("hugetlb: empty; advice: never; collapse: too old"));
    EXPECT_THAT(none.remedy, HasSubstr("vm.nr_hugepages=2048"));
    EXPECT_EQ(value(none, "by_advice"), CheckValue(false));
    EXPECT_EQ(value(none, "advice_why"), CheckValue("never"));
    trials.collapse = {std::nullopt, "not needed"};
    EXPECT_EQ(changed(machine, name).state, CheckState::kLack);
    EXPECT_TRUE(unknown(changed(machine, name), "by_collapse"));
    trials.advice = {std::nullopt, "nobody can tell"};
    EXPECT_EQ(changed(machine, name).state, CheckState::kNote);
    EXPECT_THAT(changed(machine, name).text, HasSubstr("nobody can tell"));
    trials.advice = {false, "never"};
    trials.collapse = {true, ""};
    EXPECT_EQ(changed(machine, name).state, CheckState::kOk);
    EXPECT_THAT(changed(machine, name).text, HasSubstr("by collapse; not by hugetlb, advice"));
  }
}

TEST(MachineReport, APoolWithNothingLeftIsALack) {
  Machine machine = healthy();
  machine.pool_2mib = HugePool{100, 10, 10};  // all promised
  EXPECT_EQ(changed(machine, "hugetlb_2mib").state, CheckState::kLack);
  EXPECT_THAT(changed(machine, "hugetlb_2mib").remedy, HasSubstr("vm.nr_hugepages=2148"));
  machine.pool_2mib->reserved_pages = 9;
  EXPECT_EQ(changed(machine, "hugetlb_2mib").state, CheckState::kOk);
  machine.pool_2mib = std::nullopt;
  EXPECT_EQ(changed(machine, "hugetlb_2mib").state, CheckState::kLack);
  EXPECT_TRUE(unknown(changed(machine, "hugetlb_2mib"), "total_pages"));
  machine = healthy();
  machine.pool_1gib = std::nullopt;
  EXPECT_EQ(changed(machine, "hugetlb_1gib").state, CheckState::kNote);
}

TEST(MachineReport, SettingsThatGiveNoHugePagesAreLacks) {
  for (const bool shared : {false, true}) {
    const std::string_view name = shared ? "thp_shared" : "thp_private";
    Machine machine = healthy();
    HugePageSetting& setting = shared ? machine.thp_shared : machine.thp_private;
    for (const char* bad : {"never", "deny", ""}) {
      setting.word = bad;
      EXPECT_EQ(changed(machine, name).state, CheckState::kLack) << bad;
    }
    setting.word = "never";
    EXPECT_THAT(changed(machine, name).remedy,
                HasSubstr(shared ? "echo advise > /shmem_enabled" : "echo madvise > /enabled"));
    for (const char* good : {"always", "madvise", "advise", "within_size", "force"}) {
      setting.word = good;
      EXPECT_EQ(changed(machine, name).state, CheckState::kOk) << good;
    }
  }
}

TEST(MachineReport, ALimitOnLockedMemoryIsALackUnlessItIsPassed) {
  Machine machine = healthy();
  machine.lock_limit = LockLimit{8 * kMiB, 16 * kMiB};
  machine.beyond_lock_limit = ENOMEM;
  const Check check = changed(machine, "memlock");
  EXPECT_EQ(check.state, CheckState::kLack);
  EXPECT_THAT(check.text, HasSubstr("user 1000 may lock 8 MiB (hard limit 16 MiB)"));
  EXPECT_THAT(check.remedy, HasSubstr("ulimit -l"));
  EXPECT_EQ(value(check, "soft_bytes"), CheckValue(8 * kMiB));
  EXPECT_EQ(value(check, "passes_limit"), CheckValue(false));
  machine.beyond_lock_limit = 0;
  EXPECT_EQ(changed(machine, "memlock").state, CheckState::kOk);
  EXPECT_THAT(changed(machine, "memlock").text, HasSubstr("CAP_IPC_LOCK"));
  machine.beyond_lock_limit = std::nullopt;
  EXPECT_EQ(changed(machine, "memlock").state, CheckState::kLack);
  EXPECT_TRUE(unknown(changed(machine, "memlock"), "passes_limit"));
  machine.lock_limit = tl::unexpected(EPERM);
  EXPECT_EQ(changed(machine, "memlock").state, CheckState::kLack);
}

TEST(MachineReport, SmallDevShmIsALackOfOthersNotOurs) {
  Machine machine = healthy();
  machine.dev_shm = FileSystem{64 * kMiB, 64 * kMiB, 0};
  EXPECT_EQ(changed(machine, "dev_shm").state, CheckState::kLack);
  EXPECT_THAT(changed(machine, "dev_shm").text, HasSubstr("is a memfd, which this does not limit"));
  EXPECT_THAT(changed(machine, "dev_shm").remedy, HasSubstr("--shm-size"));
  machine.dev_shm = FileSystem{64 * kGiB, 0, 0};
  EXPECT_EQ(changed(machine, "dev_shm").state, CheckState::kLack);
  machine.dev_shm = tl::unexpected(ENOENT);
  EXPECT_EQ(changed(machine, "dev_shm").state, CheckState::kLack);
  EXPECT_TRUE(is_ready(check_machine(machine)));
}

TEST(MachineReport, WhatRefusesIoUringIsNamed) {
  struct Case {
    int failure;
    const char* disabled;
    bool seccomp;
    unsigned user;
    const char* by;
    const char* remedy;
  };
  const Case cases[] = {
      {EPERM, "2", false, 0, "sysctl", "kernel.io_uring_disabled=0"},
      {EPERM, "2", true, 1000, "sysctl", "kernel.io_uring_disabled=0"},
      {EPERM, "1", false, 1000, "sysctl", "kernel.io_uring_group"},
      {EPERM, "1", true, 0, "seccomp", "seccomp profile"},
      {EPERM, "0", true, 1000, "seccomp", "seccomp profile"},
      {EPERM, "", true, 1000, "seccomp", "seccomp profile"},
      {EPERM, "0", false, 1000, "other", "audit log"},
      {ENOSYS, "0", true, 1000, "seccomp", "seccomp profile"},
      {ENOSYS, "", true, 1000, "kernel", "CONFIG_IO_URING"},
      {ENOSYS, "", false, 1000, "kernel", "Linux 5.1"},
      {ENOMEM, "0", false, 1000, "memlock", "ulimit -l"},
      {EMFILE, "0", false, 1000, "other", "ulimit -n"},
      {EINVAL, "0", false, 1000, "other", "dmesg"},
  };
  for (const Case& each : cases) {
    Machine machine = healthy();
    machine.io_uring_failure = each.failure;
    machine.io_uring_disabled = each.disabled;
    machine.seccomp_filter = each.seccomp;
    machine.user = each.user;
    const Check check = changed(machine, "io_uring");
    EXPECT_EQ(check.state, CheckState::kLack);
    EXPECT_EQ(value(check, "refused_by"), CheckValue(each.by)) << each.failure << each.disabled << check.text;
    EXPECT_THAT(check.remedy, HasSubstr(each.remedy)) << check.text;
    EXPECT_EQ(value(check, "works"), CheckValue(false));
  }
  EXPECT_TRUE(unknown(find(check_machine(healthy()), "io_uring"), "refused_by"));
}

TEST(MachineReport, ADiskWithoutDirectAccessIsALack) {
  Machine machine = healthy();
  EXPECT_THAT(changed(machine, "o_direct").text, HasSubstr("/disk (ext4): works at 512 bytes"));
  machine.direct.alignment_bytes = 1;
  EXPECT_THAT(changed(machine, "o_direct").text, HasSubstr("any alignment"));
  const std::pair<int, const char*> failures[] = {{EINVAL, "local disk"}, {EACCES, "may write"},
                                                  {EROFS, "may write"},   {ENOSPC, "free space"},
                                                  {EFBIG, "ulimit -f"},   {0, "do not trust"}};
  for (const auto& [failure, remedy] : failures) {
    machine.direct = {.failed_call = "write", .failure = failure, .alignment_bytes = 4096};
    const Check check = changed(machine, "o_direct");
    EXPECT_EQ(check.state, CheckState::kLack);
    EXPECT_THAT(check.remedy, HasSubstr(remedy));
    EXPECT_EQ(value(check, "works"), CheckValue(false));
    EXPECT_TRUE(unknown(check, "alignment_bytes"));
  }
  machine = healthy();
  machine.direct_file_system->type = 0x01021994;
  EXPECT_EQ(changed(machine, "o_direct").state, CheckState::kLack);
  EXPECT_THAT(changed(machine, "o_direct").text, HasSubstr("memory, not a disk"));
  machine.direct_file_system = tl::unexpected(EIO);
  EXPECT_EQ(changed(machine, "o_direct").state, CheckState::kOk);
  EXPECT_TRUE(unknown(changed(machine, "o_direct"), "file_system"));
}

TEST(MachineReport, AProcessorThatComputesSlowlyIsALack) {
  const auto with = [](CpuFeatures cpu) {
    Machine machine = healthy();
    machine.cpu = cpu;
    return changed(machine, "cpu");
  };
  CpuFeatures cpu = healthy().cpu;
  cpu.avx512f = false;
  EXPECT_EQ(with(cpu).state, CheckState::kNote);
  EXPECT_THAT(with(cpu).text, HasSubstr("lacks avx512f"));
  EXPECT_EQ(value(with(cpu), "checksum_path"), CheckValue("vectors of 16 bytes"));
  EXPECT_EQ(value(with(cpu), "copy_path"), CheckValue("vectors of 32 bytes"));
  cpu.avx2 = false;
  EXPECT_EQ(value(with(cpu), "copy_path"), CheckValue("vectors of 16 bytes"));
  for (bool CpuFeatures::*feature : {&CpuFeatures::sse4_2, &CpuFeatures::pclmul, &CpuFeatures::sha_ni}) {
    cpu = healthy().cpu;
    cpu.*feature = false;
    EXPECT_EQ(with(cpu).state, CheckState::kLack);
    EXPECT_THAT(with(cpu).remedy, HasSubstr("-cpu host"));
  }
  EXPECT_EQ(value(with(cpu), "hash_path"), CheckValue("openssl"));
  EXPECT_EQ(with({}).state, CheckState::kNote);
  EXPECT_EQ(value(with({}), "checksum_path"), CheckValue("tables"));
  EXPECT_EQ(value(with({}), "copy_path"), CheckValue("memcpy"));
}

// What is said of this machine is what the code does on it.
TEST(MachineReport, ThePathsAreThoseThatAreTaken) {
  Machine machine = healthy();
  machine.cpu = LinuxMachineCalls().cpu();
  const Check check = find(check_machine(machine), "cpu");
  const char* checksum = "tables";
  if (detail::crc32c_has(detail::Crc32cBody::kWords)) checksum = "crc instruction";
  if (detail::crc32c_has(detail::Crc32cBody::kVectors128)) checksum = "vectors of 16 bytes";
  if (detail::crc32c_has(detail::Crc32cBody::kVectors512)) checksum = "vectors of 64 bytes";
  EXPECT_EQ(value(check, "checksum_path"), CheckValue(checksum));
  const std::pair<detail::CopyBody, const char*> copies[] = {
      {detail::CopyBody::kPlain, "memcpy"},
      {detail::CopyBody::kVectors128, "vectors of 16 bytes"},
      {detail::CopyBody::kVectors256, "vectors of 32 bytes"},
      {detail::CopyBody::kVectors512, "vectors of 64 bytes"}};
  for (const auto& [body, name] : copies)
    EXPECT_EQ(value(check, "copy_path") == CheckValue(name), body == detail::best_copy_body()) << name;
  std::array<std::byte, kSha256BlockBytes> block{};
  sha256_pad(block, 0);
  const std::byte* message = block.data();
  Digest digest;
  const bool hardware = detail::sha256_padded_hardware({&message, 1}, 0, {&digest, 1});
  EXPECT_EQ(value(check, "hash_path"), CheckValue(hardware ? "sha_ni" : "openssl"));
}

TEST(MachineReport, SeveralNodesAreANote) {
  Machine machine = healthy();
  machine.numa = {{0, kGiB, kMiB}, {3, 2 * kGiB, 0}};
  const Check check = changed(machine, "numa");
  EXPECT_EQ(check.state, CheckState::kNote);
  EXPECT_EQ(value(check, "nodes"), CheckValue(std::vector<std::uint64_t>{0, 3}));
  EXPECT_EQ(value(check, "total_bytes"), CheckValue(std::vector<std::uint64_t>{kGiB, 2 * kGiB}));
  machine.numa.clear();
  EXPECT_EQ(changed(machine, "numa").state, CheckState::kOk);
}

TEST(MachineReport, WithoutPidfdTheEndOfOthersIsSeenLate) {
  Machine machine = healthy();
  machine.pidfd_failure = ENOSYS;
  EXPECT_EQ(changed(machine, "pidfd").state, CheckState::kLack);
  EXPECT_THAT(changed(machine, "pidfd").remedy, HasSubstr("Linux 5.3"));
  machine.seccomp_filter = true;
  EXPECT_THAT(changed(machine, "pidfd").remedy, HasSubstr("seccomp"));
}

TEST(MachineReport, CudaIsDriverAndDevice) {
  Machine machine = healthy();
  EXPECT_EQ(changed(machine, "cuda").text, "2 devices, driver for CUDA 12.4");
  machine.cuda.devices = 0;
  EXPECT_EQ(changed(machine, "cuda").state, CheckState::kLack);
  EXPECT_THAT(changed(machine, "cuda").text, HasSubstr("no device"));
  machine.cuda.failed_call = "cuInit";
  machine.cuda.failure = 100;
  EXPECT_THAT(changed(machine, "cuda").text, HasSubstr("no device"));
  machine.cuda.failure = 803;
  EXPECT_THAT(changed(machine, "cuda").text, HasSubstr("cuInit fails with CUDA error 803"));
  EXPECT_THAT(changed(machine, "cuda").remedy, HasSubstr("nvidia-smi"));
  machine.cuda = {.load_failure = "no such file"};
  const Check check = changed(machine, "cuda");
  EXPECT_EQ(check.state, CheckState::kLack);
  EXPECT_THAT(check.text, HasSubstr("no driver: no such file"));
  EXPECT_EQ(value(check, "driver"), CheckValue(false));
  EXPECT_TRUE(unknown(check, "version"));
}

}  // namespace
}  // namespace tiercel
