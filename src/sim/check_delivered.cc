#include <algorithm>
#include <map>

#include <fmt/format.h>

#include "sim/checkers.h"
#include "sim/delivery.h"

namespace tiercel::sim {
namespace {

class DeliveredChecker final : public Checker {
 public:
  std::string_view name() const override { return "delivered"; }

  std::optional<std::string> check(const Scene& scene) override {
    for (const Completion& completion : scene.view.completions) {
      const auto found = scene.operations.find(completion.operation);
      if (found == scene.operations.end()) continue;
      std::optional<std::string> wrong;
      if (completion.kind == CompletionKind::kLayerReady) note_layer(scene, found->second, completion.layer);
      if (completion.kind == CompletionKind::kLoaded)
        wrong = check_result(scene, found->second, *completion.load);
      if (wrong) return fmt::format("operation {}: {}", completion.operation.value(), *wrong);
    }
    return std::nullopt;
  }

 private:
  struct Wrong {
    std::uint32_t layer = 0;
    std::size_t target = 0;
    std::size_t entry = 0;
  };
  struct Layers {
    std::vector<Wrong> wrong;                                // at the event of their layer
    std::set<std::pair<std::size_t, std::size_t>> at_first;  // wrong at the first event: behind the length
    bool first = true;
  };

  // A layer's event says that the layer of every page is in place: what is not?
  void note_layer(const Scene& scene, const SimOperation& operation, std::uint32_t layer) {
    Layers& layers = layers_[operation.id];
    const Space& space = scene.spaces[operation.space];
    LoadResult nothing;
    for (const LoadTarget& target : operation.load.targets)
      nothing.outcomes.emplace_back(target.slots.size(), ItemOutcome::kNotNeeded);
    for (const Delivery& each : deliveries(scene, operation, nothing)) {
      if (!each.slot) continue;
      const ClassForm& cls = scene.form_of(space).classes[each.cls.value()];
      const auto run = std::find_if(cls.layers.begin(), cls.layers.end(),
                                    [&](const LayerRun& r) { return r.layer == layer; });
      if (run == cls.layers.end()) continue;
      const auto payload = scene.engine->read(*each.slot);
      const RecordName name = scene.record_name(space, each.id.key, each.cls, each.shard);
      if (!cls.is_state() &&
          read_layer(*run, name, ByteView(payload).subspan(run->offset, run->length)).has_value())
        continue;
      // A snapshot may be of whatever length is delivered: it is judged when that is known.
      if (cls.is_state() && !untouched(ByteView(payload).subspan(run->offset, run->length))) continue;
      layers.wrong.push_back({layer, each.target, each.entry});
      if (layers.first) layers.at_first.insert({each.target, each.entry});
    }
    layers.first = false;
  }

  std::optional<std::string> check_result(const Scene& scene, const SimOperation& operation,
                                          const LoadResult& result) {
    const Layers layers = layers_[operation.id];
    layers_.erase(operation.id);
    if (result.length > operation.load.length)
      return fmt::format("{} pages were asked for, {} are said to be delivered", operation.load.length,
                         result.length);
    const std::vector<Delivery> all = deliveries(scene, operation, result);
    for (const Wrong& each : layers.wrong) {
      const ItemOutcome outcome = result.outcomes[each.target][each.entry];
      // Where the record is still wrong at the end, its bytes are judged and not the event.
      const bool said_delivered = result.status.ok() && outcome == ItemOutcome::kDelivered &&
                                  right_at_the_end(scene, operation, all, each);
      const bool said_damaged = !result.status.ok() && outcome == ItemOutcome::kDamaged;
      if (said_delivered || (said_damaged && !layers.at_first.contains({each.target, each.entry})))
        return fmt::format("layer {} was said to be ready, and entry {} of target {} was not in place",
                           each.layer, each.entry, each.target);
    }
    if (!result.status.ok()) return std::nullopt;
    for (const Delivery& each : all)
      if (auto wrong = check_entry(scene, operation, result, each)) return wrong;
    return std::nullopt;
  }

  static bool right_at_the_end(const Scene& scene, const SimOperation& operation,
                               const std::vector<Delivery>& all, const Wrong& wrong) {
    return std::any_of(all.begin(), all.end(), [&](const Delivery& each) {
      return each.target == wrong.target && each.entry == wrong.entry &&
             delivered_computation(scene, operation, each).has_value();
    });
  }

  static std::optional<std::string> check_entry(const Scene& scene, const SimOperation& operation,
                                                const LoadResult& result, const Delivery& each) {
    const SimTicket& ticket = scene.tickets.at(operation.ticket);
    const StorageForm& form = scene.form_of(scene.spaces[operation.space]);
    const ClassForm& cls = form.classes[each.cls.value()];
    const std::string where = fmt::format("class {} of page {}", cls.name, each.page);
    const bool delivered = each.outcome == ItemOutcome::kDelivered;
    if (!each.slot != (each.outcome == ItemOutcome::kSkipped)) return where + ": skipped and not skipped";
    if (delivered && each.page >= result.length)
      return where + " is behind the length and said to be delivered";
    const std::uint64_t held = ticket.held.empty() ? 0 : ticket.held[each.cls.value()];
    const bool held_here = cls.is_state() ? result.length == held : each.page < held;
    const bool needed = result.length > ticket.first_page && !held_here &&
                        needed_at(cls, form.spec.page_tokens, result.length, each.page);
    if (needed && each.slot && !delivered) return where + " is needed and was not delivered";
    if (!delivered) return std::nullopt;
    const PageRecord* record = scene.book.find(each.id);
    if (record != nullptr && record->ever_damaged.contains(each.cls) &&
        !delivered_computation(scene, operation, each))
      return where + " is damaged and counts as delivered";
    return std::nullopt;
  }

  std::map<OperationId, Layers> layers_;
};

}  // namespace

std::unique_ptr<Checker> delivered_checker() { return std::make_unique<DeliveredChecker>(); }

}  // namespace tiercel::sim
