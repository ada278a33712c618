// Nothing older than a removal is found, nothing that has left, and nothing is missing.
#include <algorithm>

#include <fmt/format.h>

#include "sim/disk_checkers.h"

namespace tiercel::sim {
namespace {

std::string where(const DiskSet& set) { return fmt::format("page {} class {}", set.page, set.cls.value()); }

void judge_found(DiskScene& scene, const DiskSet& set) {
  const auto present = scene.book.present(set);
  if (!present)
    return scene.complain("disk_found", where(set) + " is found, and was never written, or has left");
  if (!scene.book.alive(*present))
    return scene.complain("disk_stale",
                          fmt::format("{} is found: append {} was removed", where(set), *present));
  const auto found = scene.log->find(scene.name_of(set), true);
  const DiskAppend& append = scene.book.append(*present);
  if (!found) return scene.complain("disk_found", where(set) + " is found in its chain, and not alone");
  if (found->born != append.at)
    scene.complain("disk_found", fmt::format("{} is found, born {}; append {} is the one, at {}", where(set),
                                             found->born, *present, append.at.value_or(0)));
}

void judge_missing(DiskScene& scene, const DiskSet& set) {
  const auto present = scene.book.present(set);
  if (!present || scene.scenario.lying || scene.log->down()) return;
  const DiskAppend& append = scene.book.append(*present);
  if (append.may_be_missing || !scene.book.surely_alive(*present)) return;
  scene.complain("disk_found",
                 fmt::format("{} is not found: append {} at {} was written, nothing removed or evicted it",
                             where(set), *present, append.at.value_or(0)));
}

// The path from its start; and from anywhere in the middle.
void look_at_path(DiskScene& scene, std::size_t page) {
  const DiskPage& last = scene.book.pages()[page];
  const DiskSpace& space = scene.spaces[last.space];
  if (space.id == DiskSpaceId{}) return;
  const std::vector<Presence> presence = find_disk_path(scene, page);
  const std::size_t classes = scene.scenario.forms[space.form].classes.size();
  const std::size_t middle = last.path.size() > 1 ? scene.prng.between(1, last.path.size() - 1) : 0;
  std::vector<Key> keys;
  for (std::size_t i = middle; i < last.path.size(); ++i)
    keys.push_back(scene.book.pages()[last.path[i]].key);
  std::vector<Presence> lower(keys.size(), 0);
  scene.log->find_chain(space.id, middle, keys, lower);
  for (std::size_t i = 0; i < presence.size(); ++i) {
    if (presence[i] >> classes != 0) scene.complain("disk_found", "a class is found that the form has not");
    for (std::uint16_t c = 0; c < classes; ++c) {
      const DiskSet set{last.path[i], ClassId(c)};
      if ((presence[i] >> c & 1) != 0)
        judge_found(scene, set);
      else
        judge_missing(scene, set);
      if (i < middle || (lower[i - middle] >> c & 1) == 0) continue;
      if ((presence[i] >> c & 1) == 0)
        scene.complain("disk_stale",
                       where(set) + " is found from the middle of its chain, and not from its start");
    }
  }
  if (scene.log->down()) return;  // then nothing is found in chains
  for (std::uint16_t c = 0; c < classes; ++c)
    if (scene.log->find(scene.name_of({page, ClassId(c)}), false) && (presence.back() >> c & 1) == 0)
      scene.complain("disk_stale", where({page, ClassId(c)}) + " is found alone, and not in its chain");
}

}  // namespace

void check_disk_found(DiskScene& scene) {
  const std::size_t pages = scene.book.pages().size();
  if (pages == 0 || scene.drive->power_is_off())
    return;  // what an opening has that was cut short is not known
  if (scene.view.all_pages) {
    for (std::size_t page = 0; page < pages; ++page) look_at_path(scene, page);
    return;
  }
  for (const std::size_t page : scene.view.touched) look_at_path(scene, page);
  for (int i = 0; i < 2; ++i) look_at_path(scene, scene.prng.below(pages));
}

}  // namespace tiercel::sim
