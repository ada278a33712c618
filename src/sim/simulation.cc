#include "sim/simulation.h"

#include <cstdio>

#include <fmt/format.h>

#include "base/check.h"
#include "sim/actions.h"
#include "sim/checkers.h"
#include "sim/disk_run.h"
#include "sim/disk_scenario.h"
#include "sim/scene_below.h"
#include "sim/scene_disk.h"
#include "sim/scene_remote.h"
#include "sim/trace.h"

namespace tiercel::sim {
namespace {

std::uint64_t step_now = 0;

class Run final {
 public:
  Run(const RunOptions& options, std::string_view spec)
      : options_(options),
        scene_(make_scenario(spec, options.seed), options.seed),
        checkers_(all_checkers()) {}

  std::optional<Caught> all() {
    step_now = 0;
    const Status opened = open_scene(scene_);
    if (!opened.ok()) return Caught{"open", 0, opened.to_string()};
    scene_.view.after = scene_.node->audit();
    while (scene_.view.step < options_.steps) {
      if (auto caught = step(StepView::Phase::kRunning, [&] { return act(scene_); })) return caught;
      if (scene_.view.step % kQuietEvery == 0)
        if (auto caught = be_quiet()) return caught;
      if (scene_.disk != nullptr)
        if (auto caught = die_now_and_then()) return caught;
    }
    return end();
  }
  const Coverage& coverage() const { return scene_.coverage; }

 private:
  static constexpr std::uint64_t kQuietEvery = 250;

  template <typename Action>
  std::optional<Caught> step(StepView::Phase phase, const Action& action) {
    StepView& view = scene_.view;
    const std::uint64_t number = view.step + 1;
    Audit before = std::move(view.after);
    view = StepView{};
    view.step = step_now = number;
    view.phase = phase;
    view.before = std::move(before);
    scene_.book.begin_step(number);
    view.action = action();
    view.completions = scene_.node->drain_completions();
    view.events = scene_.node->drain_events();
    view.after = scene_.node->audit();
    for (const Event& event : view.events.events) {
      scene_.book.apply(event);
      if (event.cause == Cause::kDamaged && event.classes != 0)  // else an entry that its last class left
        scene_.damage_found[{event.ns, event.key}].emplace_back(number, event.classes);
    }
    if (view.events.lost != 0) ++scene_.disturbances;  // whatever it was
    if (view.events.lost != 0) scene_.book.resync(view.after, scene_.cleared_generations);
    settle_below(scene_);
    settle_disk(scene_);
    note_match(scene_);
    if (options_.trace) fmt::print("{}", describe_step(scene_));
    for (const auto& checker : checkers_)
      if (auto wrong = checker->check(scene_))
        return Caught{std::string(checker->name()), number, fmt::format("{}: {}", view.action, *wrong)};
    settle(scene_);
    return std::nullopt;
  }

  std::optional<Caught> poll(StepView::Phase phase) {
    return step(phase, [&] {
      poll_node(scene_);
      return std::string("poll");
    });
  }

  // The world behaves, everything that was held back runs, every deadline passes.
  std::optional<Caught> drain() {
    using Phase = StepView::Phase;
    scene_.calm = true;
    scene_.device->heal();
    const auto fire = [&] {
      fire_all_events(scene_);
      return std::string("fire_all_events");
    };
    if (auto caught = step(Phase::kRunning, fire)) return caught;
    for (std::size_t rounds = 0; rounds < kRoundsMax; ++rounds) {
      if (auto caught = step(Phase::kRunning, [&] { return run_all(); })) return caught;
      if (auto caught = poll(Phase::kRunning)) return caught;
      if (scene_.executor->held() == 0 && scene_.executor->ran() == scene_.ran_before_poll) break;
    }
    if (auto caught = drain_below()) return caught;
    const NodeOptions& node = scene_.scenario.options;
    scene_.clock.advance(std::max({node.reservation_ttl, node.operation_deadline, node.ticket_ttl}) +
                         std::chrono::seconds(60));
    if (auto caught = poll(Phase::kRunning)) return caught;
    return drain_below();  // what the deadlines set going
  }
  // Everything but the drive is lost; the checkers of the new life know nothing of the old one but what the
  // scene has kept of it.
  std::optional<Caught> die_now_and_then() {
    if (!scene_.scenario.disk->crashes || scene_.disk->unrecorded || !scene_.prng.chance(0.004))
      return std::nullopt;
    // A clear that the store has not confirmed may be forgotten.
    if (scene_.remote != nullptr && scene_.remote->tier->clearing()) return std::nullopt;
    const Status opened = restart_scene(scene_, scene_.prng.chance(0.5));
    if (!opened.ok()) return Caught{"open", scene_.view.step, opened.to_string()};
    checkers_ = all_checkers();
    scene_.view.after = scene_.node->audit();
    return std::nullopt;
  }
  // What drive and store have under way ends, and what waits for that.
  std::optional<Caught> drain_below() {
    if (scene_.below == nullptr) return std::nullopt;
    if (scene_.disk != nullptr) scene_.disk->drive->calm();
    if (scene_.remote != nullptr) calm_store(scene_);
    for (std::size_t rounds = 0; rounds < kRoundsMax && !below_is_idle(scene_); ++rounds) {
      const auto advance = [&] {
        scene_.executor->run_all();
        advance_below(scene_);
        return std::string("advance_below");
      };
      if (auto caught = step(StepView::Phase::kRunning, advance)) return caught;
    }
    return std::nullopt;
  }
  std::string run_all() {
    scene_.executor->run_all();
    return "run_all";
  }

  std::optional<Caught> be_quiet() {
    if (auto caught = drain()) return caught;
    if (auto caught = poll(StepView::Phase::kQuiet)) return caught;
    scene_.calm = false;
    if (scene_.disk != nullptr) scene_.disk->drive->restless();
    if (scene_.remote != nullptr) restless_store(scene_);
    return std::nullopt;
  }

  std::optional<Caught> end() {
    using Phase = StepView::Phase;
    if (auto caught = drain()) return caught;
    scene_.readers->end_all();
    for (std::size_t i = 0; i < scene_.clients.size(); ++i) {
      const auto close = [&] {
        TIERCEL_CHECK(close_client(scene_, i).ok());
        return std::string("close_client");
      };
      if (auto caught = step(Phase::kRunning, close)) return caught;
    }
    scene_.writers->end_all();
    if (auto caught = poll(Phase::kRunning)) return caught;
    if (auto caught = poll(Phase::kEnded)) return caught;
    for (const Model& model : scene_.models) {
      const auto clear = [&] {
        clear_form(scene_, model);
        return std::string("clear_form");
      };
      if (auto caught = step(Phase::kRunning, clear)) return caught;
    }
    for (std::size_t rounds = 0; rounds < kRoundsMax && scene_.view.after.stats.payload_bytes != 0; ++rounds)
      if (auto caught = poll(Phase::kRunning)) return caught;
    if (auto caught = drain_below()) return caught;
    return poll(Phase::kEmptied);
  }

  static constexpr std::size_t kRoundsMax = 2000;

  RunOptions options_;
  Scene scene_;
  std::vector<std::unique_ptr<Checker>> checkers_;
};

}  // namespace

std::uint64_t current_step() { return step_now; }

RunResult run(const RunOptions& options) {
  RunResult result;
  result.spec = options.spec.empty() ? std::string(spec_of_seed(options.seed)) : options.spec;
  if (is_disk_spec(result.spec)) {
    RunOptions of_disk = options;
    of_disk.spec = result.spec;
    return run_disk(of_disk, step_now);
  }
  Run one(options, result.spec);
  result.caught = one.all();
  result.coverage = one.coverage();
  return result;
}

}  // namespace tiercel::sim
