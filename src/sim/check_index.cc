#include <algorithm>
#include <map>
#include <tuple>

#include <fmt/format.h>

#include "sim/checkers.h"

namespace tiercel::sim {
namespace {

class IndexChecker final : public Checker {
 public:
  std::string_view name() const override { return "index"; }

  std::optional<std::string> check(const Scene& scene) override {
    const Audit& now = scene.view.after;
    if (auto wrong = check_slots(now)) return wrong;
    if (auto wrong = check_spans(now, scene.scenario.arena_bytes)) return wrong;
    if (auto wrong = check_presence(scene)) return wrong;
    if (auto wrong = check_exists(scene)) return wrong;
    return check_match(scene);
  }

 private:
  static std::optional<std::string> check_slots(const Audit& now) {
    std::map<std::pair<PoolId, SlotId>, std::uint32_t> owners;
    for (const AuditResidence& each : now.residences)
      for (const SlotId slot : each.slots) ++owners[{each.pool, slot}];
    for (const auto& [slot, count] : owners)
      if (count != 1)
        return fmt::format("slot {} of pool {} belongs to {} class-sets", slot.second.value(),
                           slot.first.value(), count);
    std::set<std::pair<PoolId, SlotId>> used;
    for (const auto& slot : now.slots_in_use) {
      if (!used.insert(slot).second)
        return fmt::format("slot {} of pool {} is in use twice", slot.second.value(), slot.first.value());
      if (!owners.contains(slot))
        return fmt::format("slot {} of pool {} is in use and belongs to nobody", slot.second.value(),
                           slot.first.value());
    }
    if (used.size() != owners.size()) return "a class-set has a slot that is free";
    return std::nullopt;
  }

  static std::optional<std::string> check_spans(const Audit& now, std::uint64_t arena_bytes) {
    std::vector<std::pair<std::uint64_t, std::uint64_t>> spans;
    for (const AuditResidence& each : now.residences)
      for (const auto& shard : each.spans)
        for (const ArenaSpan& span : shard) spans.emplace_back(span.offset, span.offset + span.length);
    std::sort(spans.begin(), spans.end());
    for (std::size_t i = 0; i < spans.size(); ++i) {
      if (spans[i].second > arena_bytes) return "a record lies beyond the arena";
      if (i > 0 && spans[i].first < spans[i - 1].second)
        return fmt::format("two records share the byte at {} of the arena", spans[i].first);
    }
    return std::nullopt;
  }

  // Two class-sets of one class and page may be there only while one of them is on its way out.
  static std::optional<std::string> check_presence(const Scene& scene) {
    std::map<PageId, Presence> resident;
    std::set<std::tuple<NamespaceId, Key, ClassId>> seen;
    for (const AuditResidence& each : scene.view.after.residences) {
      if (each.state == ResidenceState::kHidden || each.state == ResidenceState::kQuarantined) continue;
      if (scene.cleared_generations.contains(each.generation)) continue;
      if (!seen.insert({each.ns, each.key, each.cls}).second)
        return fmt::format("class {} of page {} is there twice", each.cls.value(), to_hex(each.key));
      if (each.state == ResidenceState::kResident && each.page_visible)
        resident[{each.ns, each.key}] |= Presence{1} << each.cls.value();
    }
    for (const auto& [page, presence] : resident)
      if (presence != scene.book.presence(page))
        return fmt::format("page {} has classes {:#x}, events and calls say {:#x}", to_hex(page.key),
                           presence, scene.book.presence(page));
    for (const auto& [page, record] : scene.book.pages())
      if (record.visible && !resident.contains(page))
        return fmt::format("page {} is gone, events and calls say that it is there", to_hex(page.key));
    return std::nullopt;
  }

  std::optional<std::string> check_exists(const Scene& scene) {
    if (scene.scenario.options.off || scene.prompts.empty()) return std::nullopt;
    for (std::size_t i = 0; i < 12; ++i) {
      const Prompt& prompt = scene.prompts[next_++ % scene.prompts.size()];
      const Space& space = scene.spaces[prompt.ns];
      const Presence known = scene.book.presence({space.id, prompt.key});
      if (scene.node->why(space.id, prompt.key).presence != known)
        return fmt::format("page {} has classes {:#x}, and why() says otherwise", to_hex(prompt.key), known);
      for (const ClassForm& cls : scene.form_of(space).classes) {
        const bool there = (known >> cls.id.value() & 1) != 0;
        if (scene.below != nullptr && !there) continue;  // a lower tier may have it
        if (scene.node->exists(space.id, cls.id, prompt.key) != there)
          return fmt::format("class {} of page {} {}, and exists() says otherwise", cls.name,
                             to_hex(prompt.key), there ? "is there" : "is not there");
      }
    }
    return std::nullopt;
  }

  static std::optional<std::string> check_match(const Scene& scene) {
    if (!scene.view.matched || scene.scenario.options.off) return std::nullopt;
    const SimTicket& ticket = scene.tickets.at(*scene.view.matched);
    if (scene.failed_loads.contains(ticket.request)) return std::nullopt;
    const Space& space = scene.spaces[ticket.space];
    for (std::size_t c = 0; c < ticket.view.resident.size(); ++c) {
      std::uint64_t there = 0;
      for (const Key& key : ticket.keys) there += scene.book.presence({space.id, key}) >> c & 1;
      if (ticket.view.resident[c] != there)
        return fmt::format("ticket {} finds {} pages of class {}, {} are there", ticket.id.value(),
                           ticket.view.resident[c], c, there);
    }
    return std::nullopt;
  }

  std::size_t next_ = 0;  // prompts are asked about in turn
};

}  // namespace

std::unique_ptr<Checker> index_checker() { return std::make_unique<IndexChecker>(); }

}  // namespace tiercel::sim
