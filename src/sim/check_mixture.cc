#include <algorithm>
#include <map>

#include <fmt/format.h>

#include "memory/record.h"
#include "sim/checkers.h"
#include "sim/delivery.h"

namespace tiercel::sim {
namespace {

class MixtureChecker final : public Checker {
 public:
  std::string_view name() const override { return "mixture"; }

  std::optional<std::string> check(const Scene& scene) override {
    if (auto wrong = check_pages_whole(scene)) return wrong;
    for (const Publication& each : publications(scene)) {
      if (auto wrong = check_shards(scene, each))
        return fmt::format("class {} of page {} became visible: {}", each.residence->cls.value(),
                           to_hex(each.page.key), *wrong);
      if (auto wrong = check_life(scene, each))
        return fmt::format("class {} of page {} became visible: {}", each.residence->cls.value(),
                           to_hex(each.page.key), *wrong);
    }
    return check_loads(scene);
  }

 private:
  // Visible pages have all their required class-sets, resident.
  static std::optional<std::string> check_pages_whole(const Scene& scene) {
    std::map<PageId, Presence> resident;
    std::map<PageId, bool> visible;
    for (const AuditResidence& each : scene.view.after.residences) {
      const PageId page{each.ns, each.key};
      if (each.page_visible) visible[page] = true;
      if (each.page_visible && each.state == ResidenceState::kResident)
        resident[page] |= Presence{1} << each.cls.value();
    }
    for (const auto& [page, is_visible] : visible)
      for (const ClassForm& cls : scene.form_of(scene.spaces[scene.space_of.at(page.ns)]).classes)
        if (cls.required() && (resident[page] >> cls.id.value() & 1) == 0)
          return fmt::format("page {} is visible without its required class {}", to_hex(page.key), cls.name);
    for (const Event& event : scene.view.events.events) {
      if (event.kind != EventKind::kStored) continue;
      for (const ClassForm& cls : scene.form_of(scene.spaces[scene.space_of.at(event.ns)]).classes)
        if (cls.required() && (event.classes >> cls.id.value() & 1) == 0)
          return fmt::format("page {} was stored without its required class {}", to_hex(event.key), cls.name);
    }
    return std::nullopt;
  }

  // All shards written, by one computation. A record that is written in part is the byte checker's business.
  static std::optional<std::string> check_shards(const Scene& scene, const Publication& publication) {
    const AuditResidence& residence = *publication.residence;
    const Space& space = scene.spaces[scene.space_of.at(residence.ns)];
    const ClassForm& cls = scene.form_of(space).classes[residence.cls.value()];
    std::optional<Computation> first;
    for (std::size_t shard = 0; shard < residence.spans.size(); ++shard) {
      const auto payload = scene.arena->read(residence.spans[shard], header_bytes(cls), cls.record_bytes);
      const auto layers = read_payload(
          cls,
          scene.record_name(space, residence.key, residence.cls, ShardId(static_cast<std::uint16_t>(shard))),
          payload);
      const auto written =
          std::find_if(layers.begin(), layers.end(), [](const auto& each) { return each.has_value(); });
      if (written == layers.end()) return fmt::format("shard {} is not written", shard);
      if (first && *first != **written)
        return fmt::format("shard {} is of another computation than shard 0", shard);
      first = *written;
    }
    return std::nullopt;
  }

  // The record was accepted in the life of the page that it now belongs to.
  static std::optional<std::string> check_life(const Scene& scene, const Publication& publication) {
    const Space& space = scene.spaces[scene.space_of.at(publication.page.ns)];
    if (scene.scenario.weather.lost_events || !scene.form_of(space).has_required()) return std::nullopt;
    const auto computation = scene.stored_computation(space, *publication.residence);
    const PageRecord* record = scene.book.find(publication.page);
    if (!computation || record == nullptr) return std::nullopt;
    const auto written = record->written.find({publication.residence->cls, ShardId(0)});
    if (written == record->written.end()) return "nobody stored it";
    bool known = false;
    for (const Written& each : written->second) {
      if (each.computation != *computation) continue;
      if (each.life == record->life) return std::nullopt;
      // From below a page comes back into another life; only what was removed never does.
      if (scene.below != nullptr && each.removals == record->removals) return std::nullopt;
      known = true;
    }
    return known ? "it was meant for an earlier life of the page"
                 : "no computation of this page was accepted";
  }

  // Shards that one load delivered of one class-set are of one computation.
  static std::optional<std::string> check_loads(const Scene& scene) {
    for (const Completion& completion : scene.view.completions) {
      if (completion.kind != CompletionKind::kLoaded || !completion.load->status.ok()) continue;
      const SimOperation& operation = scene.operations.at(completion.operation);
      std::map<std::pair<std::uint64_t, ClassId>, Computation> first;
      for (const Delivery& each : deliveries(scene, operation, *completion.load)) {
        if (each.outcome != ItemOutcome::kDelivered) continue;
        const auto computation = delivered_computation(scene, operation, each);
        if (!computation) continue;
        const auto [at, fresh] = first.try_emplace({each.page, each.cls}, *computation);
        if (!fresh && at->second != *computation)
          return fmt::format("operation {}: shards of class {} of page {} are of two computations",
                             operation.id.value(), each.cls.value(), each.page);
      }
    }
    return std::nullopt;
  }
};

}  // namespace

std::unique_ptr<Checker> mixture_checker() { return std::make_unique<MixtureChecker>(); }

}  // namespace tiercel::sim
