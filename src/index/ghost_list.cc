#include "index/ghost_list.h"

namespace tiercel {

void GhostList::remember(const CandidateName& name, std::uint64_t units, std::uint64_t limit) {
  forget(name);
  ghosts_.push_back({name, units});
  by_name_.emplace(name, std::prev(ghosts_.end()));
  units_ += units;
  while (units_ > limit) {
    units_ -= ghosts_.front().units;
    by_name_.erase(ghosts_.front().name);
    ghosts_.pop_front();
  }
}

bool GhostList::forget(const CandidateName& name) {
  const auto found = by_name_.find(name);
  if (found == by_name_.end()) return false;
  units_ -= found->second->units;
  ghosts_.erase(found->second);
  by_name_.erase(found);
  return true;
}

}  // namespace tiercel
