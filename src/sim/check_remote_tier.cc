#include <algorithm>

#include <fmt/format.h>

#include "memory/record.h"
#include "sim/checkers.h"
#include "sim/scene_remote.h"

namespace tiercel::sim {
namespace {

// The tier over its store: memory that a late batch may still write to is nobody's, queues are bounded, and
// at rest nothing is left of anything.
class RemoteTierChecker final : public Checker {
 public:
  std::string_view name() const override { return "remote_tier"; }

  std::optional<std::string> check(const Scene& scene) override {
    if (scene.remote == nullptr) return std::nullopt;
    const SceneRemote& remote = *scene.remote;
    if (const auto& misuse = remote.store->misuse()) return *misuse;
    if (const auto& misuse = remote.neighbour->twin().misuse()) return "the other node: " + *misuse;
    if (auto wrong = check_bounds(scene, remote.tier->stats())) return wrong;
    return scene.view.phase == StepView::Phase::kRunning ? std::nullopt : check_quiet(remote);
  }

 private:
  static std::optional<std::string> check_bounds(const Scene& scene, const RemoteStats& stats) {
    std::uint64_t largest = 0;
    for (const Model& model : scene.models)
      for (const ClassForm& cls : model.form.classes)
        largest = std::max(largest, cls.shards * (header_bytes(cls) + cls.record_bytes));
    if (stats.queued_bytes > std::max(stats.exchange_bytes, largest))
      return fmt::format("{} bytes wait to be stored, the exchange has {}", stats.queued_bytes,
                         stats.exchange_bytes);
    if (scene.view.polled && stats.exchange_used_bytes < stats.unquiet_bytes)
      return fmt::format("{} bytes of the exchange are in use, {} may still be written to",
                         stats.exchange_used_bytes, stats.unquiet_bytes);
    return std::nullopt;
  }

  static std::optional<std::string> check_quiet(const SceneRemote& remote) {
    const RemoteStats& stats = remote.tier->stats();
    if (remote.store->under_way() != 0) return "batches are under way when all is quiet";
    if (remote.tier->writing() || remote.tier->clearing())
      return "something is still being stored or cleared when all is quiet";
    if (stats.queued_bytes + stats.unquiet_bytes + stats.exchange_used_bytes != 0)
      return fmt::format("{} bytes queued, {} not quiet, {} of the exchange in use when all is quiet",
                         stats.queued_bytes, stats.unquiet_bytes, stats.exchange_used_bytes);
    return std::nullopt;
  }
};

}  // namespace

std::unique_ptr<Checker> remote_tier_checker() { return std::make_unique<RemoteTierChecker>(); }

}  // namespace tiercel::sim
