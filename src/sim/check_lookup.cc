#include <map>
#include <set>

#include <fmt/format.h>

#include "memory/space.h"
#include "sim/checkers.h"

namespace tiercel::sim {
namespace {

class LookupChecker final : public Checker {
 public:
  std::string_view name() const override { return "lookup"; }

  std::optional<std::string> check(const Scene& scene) override {
    if (auto wrong = scene.index->compare_all()) return wrong;
    std::map<SpaceId, std::uint64_t> shown;  // sets of visible pages
    for (const PageNumber page : scene.index->all_pages()) {
      const IndexedPage each = scene.index->read(page);
      if (each.visible) shown[each.space] += each.sets.size();
    }
    std::map<SpaceId, std::uint64_t> resident;
    std::map<std::pair<SpaceId, Key>, std::set<ClassId>> seen;
    const Audit& now = scene.view.after;
    for (const AuditResidence& each : now.residences) {
      if (each.state != ResidenceState::kResident || !each.page_visible) continue;
      if (scene.cleared_generations.contains(each.generation)) continue;
      const ReaderSpace space = scene.node->reader_space(each.ns);
      resident[space.space] += each.slots.size();
      if (auto wrong = check_set(scene, each, space)) return wrong;
    }
    for (const auto& [id, position] : scene.space_of) {
      const SpaceId space = scene.node->reader_space(id).space;
      if (shown[space] != resident[space])
        return fmt::format("the index shows {} records of namespace {}, {} are resident", shown[space],
                           id.value(), resident[space]);
    }
    return std::nullopt;
  }

 private:
  static std::optional<std::string> check_set(const Scene& scene, const AuditResidence& set,
                                              const ReaderSpace& space) {
    const Audit& now = scene.view.after;
    const auto page = scene.index->find(space.space, set.key);
    if (!page) return fmt::format("page {} is resident and not in the index", to_hex(set.key));
    const auto address = scene.index->compact().view().address(*page, space.first_sets[set.cls.value()]);
    if (!address)
      return fmt::format("class {} of page {} is resident and not in the index", set.cls.value(),
                         to_hex(set.key));
    std::uint64_t slot_bytes = 0;
    for (const ArenaSpan& span : set.spans[0]) slot_bytes += span.length;
    const std::uint64_t offset = slot_offset(*address, slot_bytes, now.extent_bytes, now.extents_total);
    if (offset != set.spans[0][0].offset)
      return fmt::format("class {} of page {} lies at {}, the index says {}", set.cls.value(),
                         to_hex(set.key), set.spans[0][0].offset, offset);
    return std::nullopt;
  }
};

}  // namespace

std::unique_ptr<Checker> lookup_checker() { return std::make_unique<LookupChecker>(); }

}  // namespace tiercel::sim
