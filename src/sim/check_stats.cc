#include <numeric>

#include <fmt/format.h>

#include "sim/checkers.h"
#include "sim/scene_below.h"

namespace tiercel::sim {
namespace {

struct Counter {
  std::string_view name;
  std::uint64_t Stats::*value;
};
constexpr Counter kCounters[] = {
    {"matches", &Stats::matches},
    {"hit_tokens", &Stats::hit_tokens},
    {"missed_tokens", &Stats::missed_tokens},
    {"tail_tokens", &Stats::tail_tokens},
    {"pages_stored", &Stats::pages_stored},
    {"pages_evicted", &Stats::pages_evicted},
    {"pages_removed", &Stats::pages_removed},
    {"snapshots_stored", &Stats::snapshots_stored},
    {"snapshots_evicted", &Stats::snapshots_evicted},
    {"windows_dropped", &Stats::windows_dropped},
    {"stores_refused", &Stats::stores_refused},
    {"stale_commits", &Stats::stale_commits},
    {"expired_reservations", &Stats::expired_reservations},
    {"quarantines", &Stats::quarantines},
    {"damaged_records", &Stats::damaged_records},
    {"verified_bytes", &Stats::verified_bytes},
    {"unverified_bytes", &Stats::unverified_bytes},
    {"loads", &Stats::loads},
    {"loads_shortened", &Stats::loads_shortened},
    {"loads_failed", &Stats::loads_failed},
    {"loads_cancelled", &Stats::loads_cancelled},
    {"loads_timed_out", &Stats::loads_timed_out},
    {"records_moved", &Stats::records_moved},
    {"bytes_moved", &Stats::bytes_moved},
    {"events_lost", &Stats::events_lost},
    {"resident_bytes_peak", &Stats::resident_bytes_peak},
    {"records_copied_in", &Stats::records_copied_in},
    {"records_written_in_place", &Stats::records_written_in_place},
};

class StatsChecker final : public Checker {
 public:
  std::string_view name() const override { return "stats"; }

  std::optional<std::string> check(const Scene& scene) override {
    const Stats& now = scene.view.after.stats;
    const Stats& before = scene.view.before.stats;
    for (const Counter& each : kCounters)
      if (now.*each.value < before.*each.value)
        return fmt::format("{} went from {} to {}", each.name, before.*each.value, now.*each.value);
    take(scene);
    if (auto wrong = check_matches(scene, now)) return wrong;
    if (auto wrong = check_loads(now)) return wrong;
    return check_pages(scene, now);
  }

 private:
  void take(const Scene& scene) {
    if (scene.view.matched) take_answer(scene.tickets.at(*scene.view.matched));
    if (scene.below != nullptr)
      for (const auto& [id, waiting] : scene.below->answered) take_answer(scene.tickets.at(id));
    for (const Completion& completion : scene.view.completions)
      if (completion.kind == CompletionKind::kLoaded) {
        ++ended_loads_;
        const SimOperation& operation = scene.operations.at(completion.operation);
        if (!completion.load->status.ok())
          ++failed_loads_;
        else if (completion.load->length < operation.load.length)
          ++shortened_loads_;
      }
    events_lost_ += scene.view.events.lost;
  }

  void take_answer(const SimTicket& ticket) {
    ++matches_;
    hit_tokens_ += ticket.view.hit_tokens;
    missed_tokens_ += ticket.view.missed_tokens;
    for (const Miss& miss : ticket.view.missed)
      missed_pages_[static_cast<std::size_t>(miss.reason)] += miss.pages;
  }

  std::optional<std::string> check_matches(const Scene& scene, const Stats& now) const {
    if (now.matches != matches_) return fmt::format("{} matches, {} were answered", now.matches, matches_);
    if (now.hit_tokens != hit_tokens_ || now.missed_tokens != missed_tokens_)
      return fmt::format("{} hit and {} missed tokens, tickets say {} and {}", now.hit_tokens,
                         now.missed_tokens, hit_tokens_, missed_tokens_);
    if (now.missed_pages != missed_pages_) return "missed pages per reason are not those of the tickets";
    if (now.events_lost != events_lost_ && scene.view.phase == StepView::Phase::kEmptied)
      return fmt::format("{} events lost, {} were reported", now.events_lost, events_lost_);
    return std::nullopt;
  }

  std::optional<std::string> check_loads(const Stats& now) const {
    if (now.loads < ended_loads_) return fmt::format("{} loads, {} have ended", now.loads, ended_loads_);
    const std::uint64_t failed = now.loads_failed + now.loads_cancelled + now.loads_timed_out;
    if (failed != failed_loads_ || now.loads_shortened != shortened_loads_)
      return fmt::format("{} failed and {} shortened loads, answers say {} and {}", failed,
                         now.loads_shortened, failed_loads_, shortened_loads_);
    return std::nullopt;
  }

  static std::optional<std::string> check_pages(const Scene& scene, const Stats& now) {
    if (now.pages_stored != now.pages_evicted + now.pages_removed + now.pages_visible)
      return fmt::format("{} pages stored, {} evicted, {} removed, {} there", now.pages_stored,
                         now.pages_evicted, now.pages_removed, now.pages_visible);
    std::set<PageId> visible;
    std::uint64_t snapshots = 0;
    for (const AuditResidence& each : scene.view.after.residences) {
      if (!each.page_visible) continue;
      visible.insert({each.ns, each.key});
      const Space& space = scene.spaces[scene.space_of.at(each.ns)];
      if (each.state == ResidenceState::kResident &&
          scene.form_of(space).classes[each.cls.value()].is_state())
        ++snapshots;
    }
    if (now.pages_visible != visible.size())
      return fmt::format("pages_visible is {}, {} are", now.pages_visible, visible.size());
    if (now.snapshots_resident != snapshots)
      return fmt::format("snapshots_resident is {}, {} are", now.snapshots_resident, snapshots);
    return std::nullopt;
  }

  std::uint64_t matches_ = 0;
  std::uint64_t hit_tokens_ = 0;
  std::uint64_t missed_tokens_ = 0;
  std::array<std::uint64_t, kReasonCount> missed_pages_{};
  std::uint64_t ended_loads_ = 0;
  std::uint64_t failed_loads_ = 0;
  std::uint64_t shortened_loads_ = 0;
  std::uint64_t events_lost_ = 0;
};

}  // namespace

std::unique_ptr<Checker> stats_checker() { return std::make_unique<StatsChecker>(); }

}  // namespace tiercel::sim
