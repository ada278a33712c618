#include "index/ghost_list.h"

namespace tiercel {

std::size_t GhostList::find(const CandidateName& name) {
  std::size_t place = name.hash() & (table_.size() - 1);
  for (; table_[place] != kNone && ghosts_[table_[place]].name != name; place = after(place)) ++looked_at_;
  ++looked_at_;
  return place;
}

void GhostList::grow() {
  table_.assign(2 * table_.size(), kNone);
  for (Number ghost = oldest_; ghost != kNone; ghost = ghosts_[ghost].younger) {
    std::size_t place = home(ghost);
    while (table_[place] != kNone) place = after(place);
    table_[place] = ghost;
  }
}

// Takes the ghost at this place out of the table and the list, and closes the gap: whoever stands behind it
// because its own place was taken moves up.
void GhostList::erase(std::size_t place) {
  const Number gone = table_[place];
  Ghost& ghost = ghosts_[gone];
  (ghost.older == kNone ? oldest_ : ghosts_[ghost.older].younger) = ghost.younger;
  (ghost.younger == kNone ? youngest_ : ghosts_[ghost.younger].older) = ghost.older;
  units_ -= ghost.units;
  --held_;
  ghost.younger = free_;
  free_ = gone;
  const std::size_t mask = table_.size() - 1;
  for (std::size_t next = after(place); table_[next] != kNone; next = after(next)) {
    ++looked_at_;
    if (((next - home(table_[next])) & mask) < ((next - place) & mask)) continue;
    table_[place] = table_[next];
    place = next;
  }
  table_[place] = kNone;
}

void GhostList::remember(const CandidateName& name, std::uint64_t units, std::uint64_t limit) {
  forget(name);
  if (2 * (held_ + 1) > table_.size()) grow();
  Number number = free_;
  if (number == kNone) {
    number = static_cast<Number>(ghosts_.size());
    ghosts_.emplace_back();
  } else {
    free_ = ghosts_[number].younger;
  }
  ghosts_[number] = {name, youngest_, kNone, units};
  (youngest_ == kNone ? oldest_ : ghosts_[youngest_].younger) = number;
  youngest_ = number;
  table_[find(name)] = number;
  ++held_;
  units_ += units;
  while (units_ > limit) erase(find(ghosts_[oldest_].name));
}

bool GhostList::forget(const CandidateName& name) {
  const std::size_t place = find(name);
  if (table_[place] == kNone) return false;
  erase(place);
  return true;
}

}  // namespace tiercel
