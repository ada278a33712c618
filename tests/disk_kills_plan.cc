#include "disk_kills_plan.h"

#include <chrono>

#include <fmt/format.h>

#include "base/prng.h"

namespace tiercel::kills {
namespace {

constexpr std::string_view kTargets[] = {"superblock", "image", "region header", "segment",
                                         "footer",     "read",  "flush"};

std::chrono::microseconds between(Prng& random, std::uint64_t first, std::uint64_t last) {
  return std::chrono::microseconds(random.between(first, last));
}

DiskLogOptions log_options(Prng& file, Prng& random) {
  DiskLogOptions log;
  log.region_bytes = (file.chance(0.5) ? 256ULL : 384ULL) << 10;
  log.index_entries = 4096;
  log.removals_max = file.chance(0.3) ? 16 : 256;
  log.segment_bytes = (random.chance(0.5) ? 64ULL : 192ULL) << 10;
  constexpr DiskAdmission kAdmissions[] = {DiskAdmission::kAll, DiskAdmission::kAll, DiskAdmission::kAuto,
                                           DiskAdmission::kSecondTouch};
  log.admission = kAdmissions[random.below(4)];
  log.reinsert_after = random.chance(0.4) ? 1 : 0;
  log.flush_bytes = (random.chance(0.5) ? 256ULL : 4096ULL) << 10;
  log.flush_after = std::chrono::milliseconds(random.between(1, 30));
  log.checkpoint_regions = static_cast<std::uint32_t>(random.between(1, 6));
  log.segments_in_flight = static_cast<std::uint32_t>(random.between(1, 4));
  // A busy machine is no stalled drive: nobody here waits for the circuit breaker.
  log.stall_after = std::chrono::seconds(60);
  return log;
}

// Every other process is aimed at a point, all of them in turn.
KillPlan kill_plan(Prng& random, bool power_cut, std::uint64_t turn) {
  KillPlan kill;
  const std::uint64_t way = random.below(10);
  if (turn % 2 == 0) {
    kill.point = turn / 2 % kPoints.size();
    kill.nth = random.between(1, kPoints[*kill.point].nth_max);
    kill.after = std::chrono::milliseconds(400);  // where the point was not met
    kill.from_work = true;
  } else if (way < 4) {
    kill.nth = random.between(1, random.chance(0.5) ? 40 : 400);
    kill.after = std::chrono::milliseconds(400);
    kill.from_work = true;
  } else if (way < 6) {
    kill.after = between(random, 0, 60'000);  // while it starts, recovers, audits
  } else {
    kill.after = between(random, 0, 150'000);
    kill.from_work = true;
  }
  kill.by_parent = !power_cut || random.chance(0.3);
  return kill;
}

}  // namespace

std::string point_name(std::size_t point) {
  if (point == kKilledByParent) return "at any moment, by the parent";
  if (point == kKilledByItself) return "at any moment, power cut";
  if (point == kKilledAtOperation) return "at any operation";
  const Point& at = kPoints[point];
  constexpr std::string_view kMoments[] = {"before it", "half of it done", "after it"};
  return fmt::format("{}, {}", kTargets[static_cast<std::size_t>(at.target)],
                     kMoments[static_cast<std::size_t>(at.moment)]);
}

Plan make_plan(std::uint64_t seed, std::uint32_t lane, std::uint64_t file, std::uint64_t round) {
  Prng of_file(mix64(seed ^ mix64(lane + 1) ^ mix64(file << 20)));
  Prng random(mix64(of_file.next() ^ mix64(round + 1)));
  Plan plan;
  plan.seed = random.next();
  plan.file_bytes = of_file.between(5, 12) << 20;
  plan.power_cut = random.chance(0.45);
  plan.engine = random.chance(0.5) ? BlockEngine::kBest : BlockEngine::kThreads;
  plan.direct = random.chance(0.7);
  plan.registered = random.chance(0.5);
  plan.log = log_options(of_file, random);
  constexpr WritePolicy kPolicies[] = {WritePolicy::kWriteThrough, WritePolicy::kWriteThrough,
                                       WritePolicy::kWriteThroughSelective, WritePolicy::kWriteBack};
  plan.tier.write_policy = kPolicies[random.below(4)];
  plan.tier.prefetch_threshold_tokens = 0;
  plan.kill = kill_plan(random, plan.power_cut, file * kRoundsPerFile + round + std::uint64_t{lane} * 14);
  return plan;
}

std::string describe(const Plan& plan) {
  constexpr std::string_view kPolicies[] = {"write_through", "write_through_selective", "write_back"};
  std::string how;
  if (plan.kill.point)
    how = fmt::format("{} no. {}", point_name(*plan.kill.point), plan.kill.nth);
  else if (plan.kill.nth != 0)
    how = fmt::format("at operation {}", plan.kill.nth);
  else
    how = fmt::format("{} ms after {}", static_cast<double>(plan.kill.after.count()) / 1e6,
                      plan.kill.from_work ? "its work began" : "its start");
  return fmt::format(
      "{}{}, {}, {}, admission {}, regions of {} KiB in {} MiB, {}", plan.power_cut ? "power cut, " : "",
      block_engine_name(plan.engine), plan.direct ? "direct" : "cached",
      kPolicies[static_cast<std::size_t>(plan.tier.write_policy)], disk_admission_name(plan.log.admission),
      plan.log.region_bytes >> 10, plan.file_bytes >> 20, how);
}

}  // namespace tiercel::kills
