#include "sim/disk_run.h"

#include <fmt/format.h>

#include "sim/disk_checkers.h"
#include "sim/disk_scene.h"

namespace tiercel::sim {
namespace {

constexpr std::uint64_t kQuietEvery = 250;
constexpr std::uint64_t kAllPagesEvery = 25;

class DiskRun final {
 public:
  DiskRun(const RunOptions& options, std::uint64_t& step_now)
      : options_(options),
        step_now_(step_now),
        scene_(make_disk_scenario(options.spec, options.seed), options.seed) {}

  std::optional<Caught> all() {
    step_now_ = 0;
    while (scene_.view.step < options_.steps) {
      const bool first = scene_.log == nullptr;
      if (auto caught = step([&] { return first ? open_disk_log(scene_) : act_on_disk(scene_); }))
        return caught;
      if (scene_.view.step % kQuietEvery == 0)
        if (auto caught = be_quiet()) return caught;
    }
    if (options_.steps == 0) return std::nullopt;
    if (auto caught = be_quiet()) return caught;
    return step([&] { return reopen_disk_log(scene_, DiskEnd::kClosed); });
  }
  const Coverage& coverage() const { return scene_.coverage; }

 private:
  template <typename Action>
  std::optional<Caught> step(const Action& action,
                             DiskStepView::Phase phase = DiskStepView::Phase::kRunning) {
    const std::uint64_t number = scene_.view.step + 1;
    scene_.view = DiskStepView{};
    scene_.view.step = step_now_ = number;
    scene_.view.phase = phase;
    scene_.view.all_pages = phase == DiskStepView::Phase::kQuiet || number % kAllPagesEvery == 0;
    const std::uint64_t opening = scene_.openings;
    scene_.view.action = action();
    if (scene_.openings != opening) scene_.view.all_pages = true;
    collect_disk_events(scene_);
    if (options_.trace)
      fmt::print("{} {}:{} (at {} us)\n", number, scene_.view.action, scene_.view.note,
                 scene_.clock.now() / std::chrono::microseconds(1));
    if (options_.trace)
      for (const auto& [set, of] : scene_.view.found)
        fmt::print("  found page {} class {} append {}\n", set.page, set.cls.value(), of);
    return ask_disk_checkers(scene_);
  }

  std::optional<Caught> be_quiet() {
    if (scene_.log == nullptr || scene_.drive->power_is_off()) return std::nullopt;
    return step([&] { return be_quiet_on_disk(scene_); }, DiskStepView::Phase::kQuiet);
  }

  RunOptions options_;
  std::uint64_t& step_now_;
  DiskScene scene_;
};

}  // namespace

RunResult run_disk(const RunOptions& options, std::uint64_t& step_now) {
  RunResult result;
  result.spec = options.spec;
  DiskRun one(options, step_now);
  result.caught = one.all();
  result.coverage = one.coverage();
  return result;
}

}  // namespace tiercel::sim
