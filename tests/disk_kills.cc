// Kills processes that work on a log, at random instants and at chosen points, one after the other on the
// same file; each one begins by comparing what it finds with what the ones before were promised.
//
//   disk_kills [--kills N] [--seed S] [--lanes L] [--folder PATH]
//   disk_kills audit FOLDER SEED LANE FILE ROUND     looks once more at what a failure left
//   disk_kills victim FOLDER SEED LANE FILE ROUND    one process of it, not killed by anybody else
//   disk_kills work FOLDER SEED LANE FILE ROUND      the same, killed by nobody at all
//   disk_kills plan FOLDER SEED LANE FILE ROUND      how its processes up to this one are to die

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <mutex>
#include <optional>
#include <random>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include <fmt/format.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include "disk_kills_victim.h"

extern char** environ;

namespace tiercel::kills {
namespace {

constexpr Duration kGivenUp = std::chrono::seconds(150);  // longer than a victim's own patience

struct Options {
  std::uint64_t kills = 300;
  std::uint64_t seed = 0;
  std::uint32_t lanes = 2;
  std::string folder;
};

// What all lanes share.
struct Total {
  std::mutex mutex;
  std::atomic<std::uint64_t> kills{0};
  std::atomic<bool> failed{false};
  std::array<std::uint64_t, static_cast<std::size_t>(Count::kNumber)> counts{};
  std::array<std::uint64_t, kPointCount> kills_at{};
  std::uint64_t power_cuts = 0, files = 0;
};

struct Place {
  std::uint64_t seed = 0;
  std::uint32_t lane = 0;
  std::uint64_t file = 0, round = 0;
  std::vector<std::string> arguments(const std::string& role, const std::string& folder) const {
    return {role,
            folder,
            fmt::format("{}", seed),
            fmt::format("{}", lane),
            fmt::format("{}", file),
            fmt::format("{}", round)};
  }
};

pid_t start(const std::vector<std::string>& arguments) {
  std::vector<std::string> texts{"disk_kills"};
  texts.insert(texts.end(), arguments.begin(), arguments.end());
  std::vector<char*> pointers;
  pointers.reserve(texts.size() + 1);
  for (std::string& text : texts) pointers.push_back(text.data());
  pointers.push_back(nullptr);
  pid_t pid = 0;
  return ::posix_spawn(&pid, "/proc/self/exe", nullptr, nullptr, pointers.data(), environ) == 0 ? pid : -1;
}

// Conversations on one file after the other, until all lanes together have killed enough.
class Lane {
 public:
  Lane(const Options& options, std::uint32_t number, Total& total)
      : options_(options), total_(total), folder_(fmt::format("{}/lane{}", options.folder, number)) {
    place_.seed = options.seed;
    place_.lane = number;
  }

  void run() {
    while (!over()) {
      std::filesystem::remove_all(folder_);
      std::filesystem::create_directories(folder_);
      auto book = OpenBook::open(folder_ + "/book");
      if (!book) return fail(book.error().to_string());
      for (place_.round = 0; place_.round < kRoundsPerFile && !over(); ++place_.round)
        if (!round(**book)) return;
      sum(**book);
      ++place_.file;
    }
    if (!total_.failed) std::filesystem::remove_all(folder_);
  }

 private:
  bool over() const { return total_.failed || total_.kills >= options_.kills; }

  void fail(const std::string& what) {
    const std::lock_guard lock(total_.mutex);
    if (total_.failed.exchange(true)) return;
    fmt::print("disk_kills: seed {}, lane {}, file {}, round {}: {}\n", place_.seed, place_.lane, place_.file,
               place_.round, what);
    fmt::print("  this process: {}\n",
               describe(make_plan(place_.seed, place_.lane, place_.file, place_.round)));
    fmt::print("  again, from what the one before it left: disk_kills");
    for (const std::string& text : place_.arguments("audit", folder_)) fmt::print(" {}", text);
    fmt::print("\n  all of it: disk_kills --seed {} --lanes {} --kills {}\n", place_.seed, options_.lanes,
               options_.kills);
    std::fflush(stdout);
  }

  // What the audit finds must be there to be found again.
  void keep_copy() const {
    std::error_code ignored;
    for (const char* name : {"log", "book"})
      std::filesystem::copy_file(folder_ + "/" + name, folder_ + "/" + name + ".before",
                                 std::filesystem::copy_options::overwrite_existing, ignored);
  }

  bool round(Book& book) {
    const Plan plan = make_plan(place_.seed, place_.lane, place_.file, place_.round);
    book.phase = kStarting;
    keep_copy();
    const pid_t pid = start(place_.arguments("victim", folder_));
    if (pid < 0) return fail("a process cannot be started"), false;
    const bool killed = wait_and_kill(pid, book, plan.kill);
    int status = 0;
    ::waitpid(pid, &status, 0);
    if (WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL && book.failure[0] == 0) {
      if (killed) ++book.kills_at[kKilledByParent];
      report(plan);
      return true;
    }
    if (book.failure[0] != 0)
      fail(book.failure.data());
    else if (WIFSIGNALED(status))
      fail(fmt::format("it ended by signal {}, in phase {}", WTERMSIG(status), book.phase.load()));
    else
      fail(fmt::format("it ended with status {}, in phase {}", WEXITSTATUS(status), book.phase.load()));
    return false;
  }

  // True: it was us.
  bool wait_and_kill(pid_t pid, Book& book, const KillPlan& kill) {
    const auto started = std::chrono::steady_clock::now();
    auto from = started;
    bool counting = !kill.from_work;
    for (;;) {
      siginfo_t ended{};
      if (::waitid(P_PID, static_cast<id_t>(pid), &ended, WEXITED | WNOHANG | WNOWAIT) == 0 &&
          ended.si_pid == pid)
        return false;
      const auto now = std::chrono::steady_clock::now();
      if (!counting && (book.phase == kWorking || book.phase == kClosing)) {
        counting = true;
        from = now;
      }
      if (kill.by_parent && counting && now - from >= kill.after && book.phase != kWaiting) break;
      if (now - started > kGivenUp) {
        std::string hang = fmt::format("it hangs in phase {}", book.phase.load());
        std::copy(hang.begin(), hang.end(), book.failure.begin());
        break;
      }
      ::usleep(200);
    }
    ::kill(pid, SIGKILL);
    return true;
  }

  void report(const Plan& plan) {
    const std::lock_guard lock(total_.mutex);
    const std::uint64_t kills = ++total_.kills;
    total_.power_cuts += plan.power_cut ? 1 : 0;
    const std::uint64_t every = std::max<std::uint64_t>(options_.kills / 20, 1);
    if (kills % every == 0) {
      fmt::print("disk_kills: {} of {} kills, seed {}\n", kills, options_.kills, options_.seed);
      std::fflush(stdout);
    }
  }

  void sum(const Book& book) {
    const std::lock_guard lock(total_.mutex);
    for (std::size_t i = 0; i < total_.counts.size(); ++i) total_.counts[i] += book.counts[i];
    for (std::size_t i = 0; i < kPointCount; ++i) total_.kills_at[i] += book.kills_at[i];
    ++total_.files;
  }

  const Options& options_;
  Total& total_;
  const std::string folder_;
  Place place_;
};

int run(const Options& options) {
  Total total;
  fmt::print("disk_kills: {} kills in {} lanes, seed {}, in {}\n", options.kills, options.lanes, options.seed,
             options.folder);
  std::fflush(stdout);
  const auto started = std::chrono::steady_clock::now();
  std::vector<std::jthread> threads;
  std::vector<Lane> lanes;
  lanes.reserve(options.lanes);
  threads.reserve(options.lanes);
  for (std::uint32_t i = 0; i < options.lanes; ++i) lanes.emplace_back(options, i, total);
  for (Lane& lane : lanes) threads.emplace_back([&lane] { lane.run(); });
  threads.clear();
  if (total.failed) return 1;
  std::filesystem::remove_all(options.folder);
  for (std::size_t i = 0; i < total.counts.size(); ++i)
    fmt::print("{}{} {}", i == 0 ? "  " : ", ", total.counts[i], count_name(static_cast<Count>(i)));
  fmt::print("\n");
  for (std::size_t i = 0; i < kPointCount; ++i)
    fmt::print("  {:>5} kills: {}\n", total.kills_at[i], point_name(i));
  // So many that each point has been aimed at dozens of times.
  constexpr std::uint64_t kEnough = 1000;
  for (std::size_t i = 0; total.kills >= kEnough && i < kPointCount; ++i) {
    if (total.kills_at[i] != 0) continue;
    fmt::print("disk_kills: nobody was killed here, seed {}: {}\n", options.seed, point_name(i));
    return 1;
  }
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - started).count();
  fmt::print(
      "disk_kills: {} kills ({} of them power cuts) of processes on {} files in {:.0f} s, seed {}: "
      "nothing lost, nothing wrong\n",
      total.kills.load(), total.power_cuts, total.files, seconds, options.seed);
  return 0;
}

std::optional<std::uint64_t> number(const char* text) {
  char* end = nullptr;
  errno = 0;
  const std::uint64_t value = std::strtoull(text, &end, 10);
  if (errno != 0 || end == text || *end != 0) return {};
  return value;
}

int usage() {
  fmt::print(stderr,
             "disk_kills [--kills N] [--seed S] [--lanes L] [--folder PATH]\n"
             "disk_kills audit|victim|work|plan FOLDER SEED LANE FILE ROUND\n");
  return 2;
}

int one_process(std::string_view role, char** arguments) {
  std::array<std::uint64_t, 4> place{};
  for (std::size_t i = 0; i < place.size(); ++i) {
    const auto value = number(arguments[i + 1]);
    if (!value) return usage();
    place[i] = *value;
  }
  std::string folder = arguments[0];
  if (role == "plan")
    for (std::uint64_t round = 0; round <= place[3]; ++round)
      fmt::print("{}: {}\n", round,
                 describe(make_plan(place[0], static_cast<std::uint32_t>(place[1]), place[2], round)));
  if (role == "plan") return 0;
  Plan plan = make_plan(place[0], static_cast<std::uint32_t>(place[1]), place[2], place[3]);
  if (role == "audit") {  // on a copy, so that it can be repeated
    const std::string copy = folder + "/again";
    std::filesystem::remove_all(copy);
    std::filesystem::create_directories(copy);
    for (const char* name : {"log", "book"})
      if (std::filesystem::exists(folder + "/" + name + ".before"))
        std::filesystem::copy_file(folder + "/" + name + ".before", copy + "/" + name);
    folder = copy;
  }
  if (role == "audit" || role == "work") plan.kill = {};
  auto book = OpenBook::open(folder + "/book");
  if (!book) return fmt::print(stderr, "{}\n", book.error().to_string()), 1;
  (*book)->failure[0] = 0;
  Victim victim(folder, plan, **book);
  if (role == "victim" || role == "work") victim.work_until_killed();
  victim.audit_only();
  fmt::print("disk_kills: nothing lost, nothing wrong\n");
  return 0;
}

}  // namespace
}  // namespace tiercel::kills

int main(int argc, char** argv) {
  using namespace tiercel::kills;
  const std::string_view role = argc > 1 ? argv[1] : "";
  if (role == "audit" || role == "victim" || role == "work" || role == "plan")
    return argc == 7 ? one_process(role, argv + 2) : usage();
  Options options;
  std::random_device entropy;
  options.seed = entropy();
  std::string parent = std::filesystem::temp_directory_path();
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string_view name = argv[i];
    const auto value = number(argv[i + 1]);
    if (name == "--folder")
      parent = argv[i + 1];
    else if (value && name == "--kills")
      options.kills = *value;
    else if (value && name == "--seed")
      options.seed = *value;
    else if (value && name == "--lanes")
      options.lanes = static_cast<std::uint32_t>(*value);
    else
      return usage();
  }
  if (argc % 2 == 0) return usage();
  std::string folder = parent + "/tiercel_kills_XXXXXX";
  if (::mkdtemp(folder.data()) == nullptr) return usage();
  options.folder = folder;
  return run(options);
}
