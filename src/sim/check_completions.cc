#include <algorithm>
#include <map>

#include <fmt/format.h>

#include "sim/checkers.h"

namespace tiercel::sim {
namespace {

class CompletionsChecker final : public Checker {
 public:
  std::string_view name() const override { return "completions"; }

  std::optional<std::string> check(const Scene& scene) override {
    for (const Completion& completion : scene.view.completions) {
      if (completion.kind == CompletionKind::kSuspended) continue;
      // Lower tiers' own: check_below.cc, check_disk_tier.cc.
      if (scene.below != nullptr && completion.kind >= CompletionKind::kMatched) continue;
      const auto found = scene.operations.find(completion.operation);
      if (found == scene.operations.end())
        return fmt::format("a completion for operation {}, which nobody started",
                           completion.operation.value());
      if (auto wrong = take(found->second, completion))
        return fmt::format("operation {}: {}", completion.operation.value(), *wrong);
    }
    return compare_with_audit(scene);
  }

 private:
  struct Seen {
    bool answered = false;  // loaded or source free
    bool visible = false;
    bool quiescent = false;
    std::vector<std::uint32_t> layers;
    bool ended(const SimOperation& operation) const {
      return answered && quiescent && (operation.kind == SimOperation::Kind::kLoad || visible);
    }
  };

  std::optional<std::string> take(const SimOperation& operation, const Completion& completion) {
    Seen& seen = seen_[operation.id];
    const bool load = operation.kind == SimOperation::Kind::kLoad;
    switch (completion.kind) {
      case CompletionKind::kLoaded:
        if (!load) return "loaded, but it is a store";
        if (!completion.load) return "loaded without a result";
        [[fallthrough]];
      case CompletionKind::kSourceFree:
        if (completion.kind == CompletionKind::kSourceFree && load) return "source free, but it is a load";
        if (seen.answered) return "answered twice";
        seen.answered = true;
        seen.quiescent = completion.quiescent;
        return load ? wrong_result(operation, *completion.load) : wrong_outcomes(operation, completion.store);
      case CompletionKind::kLayerReady:
        return take_layer(operation, seen, completion.layer);
      case CompletionKind::kVisible:
        if (load) return "visible, but it is a load";
        if (!seen.answered) return "visible before its sources were free";
        if (seen.visible) return "visible twice";
        seen.visible = true;
        return std::nullopt;
      case CompletionKind::kQuiescent:
        if (!seen.answered) return "quiescent before it was answered";
        if (seen.quiescent) return "quiescent twice";
        seen.quiescent = true;
        return std::nullopt;
      case CompletionKind::kSuspended:
        return std::nullopt;
      case CompletionKind::kMatched:
      case CompletionKind::kPrefetched:
      case CompletionKind::kAccepted:
      case CompletionKind::kDurable:
      case CompletionKind::kFlushed:
        return "it tells of a lower tier, and there is none";
    }
    return std::nullopt;
  }

  static std::optional<std::string> take_layer(const SimOperation& operation, Seen& seen,
                                               std::uint32_t layer) {
    if (operation.kind != SimOperation::Kind::kLoad || operation.load.mode != LoadMode::kLayered)
      return "a layer is ready, but it is no layered load";
    if (seen.answered) return fmt::format("layer {} is ready after the load has ended", layer);
    const auto& order = operation.load.layers;
    if (!order.empty() && (seen.layers.size() >= order.size() || order[seen.layers.size()] != layer))
      return fmt::format("layer {} is ready out of the order asked for", layer);
    if (order.empty() && !seen.layers.empty() && seen.layers.back() >= layer)
      return fmt::format("layer {} is ready after layer {}", layer, seen.layers.back());
    seen.layers.push_back(layer);
    return std::nullopt;
  }

  static std::optional<std::string> wrong_result(const SimOperation& operation, const LoadResult& result) {
    if (result.outcomes.size() != operation.load.targets.size())
      return fmt::format("{} lists of outcomes for {} targets", result.outcomes.size(),
                         operation.load.targets.size());
    for (std::size_t i = 0; i < result.outcomes.size(); ++i)
      if (result.outcomes[i].size() != operation.load.targets[i].slots.size())
        return fmt::format("target {}: {} outcomes for {} slots", i, result.outcomes[i].size(),
                           operation.load.targets[i].slots.size());
    return std::nullopt;
  }

  static std::optional<std::string> wrong_outcomes(const SimOperation& operation,
                                                   const std::vector<StoreOutcome>& outcomes) {
    if (outcomes.size() != operation.items.size())
      return fmt::format("{} outcomes for {} items", outcomes.size(), operation.items.size());
    for (std::size_t i = 0; i < outcomes.size(); ++i) {
      const bool accepted = operation.first[i] == StoreOutcome::kAccepted;
      if (!accepted && outcomes[i] != operation.first[i])
        return fmt::format("item {} was answered {} and ends as {}", i, outcome_name(operation.first[i]),
                           outcome_name(outcomes[i]));
      if (accepted && outcomes[i] == StoreOutcome::kAccepted)
        return fmt::format("item {} ends as accepted", i);
    }
    return std::nullopt;
  }

  std::optional<std::string> compare_with_audit(const Scene& scene) {
    std::set<OperationId> under_way;
    for (const AuditOperation& each : scene.view.after.operations)
      if (!each.promotion) under_way.insert(each.operation);
    for (const auto& [id, operation] : scene.operations) {
      const Seen& seen = seen_[id];
      const bool ended = seen.ended(operation);
      if (!ended && !under_way.contains(id))
        return fmt::format("operation {} is gone and its completions are {}", id.value(),
                           seen.answered ? "not all there" : "missing");
      if (ended && under_way.contains(id))
        return fmt::format("operation {} has ended and is still kept", id.value());
    }
    for (const OperationId id : under_way)
      if (!scene.operations.contains(id))
        return fmt::format("operation {} was started by nobody", id.value());
    return std::nullopt;
  }

  std::map<OperationId, Seen> seen_;
};

}  // namespace

std::unique_ptr<Checker> completions_checker() { return std::make_unique<CompletionsChecker>(); }

}  // namespace tiercel::sim
