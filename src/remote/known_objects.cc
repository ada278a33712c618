#include "remote/known_objects.h"

namespace tiercel::remote {

void KnownObjects::there(const PageBundle& page, const Location& location) {
  there_.put(page, {location, later(clock_.now(), there_for_)});
}

std::optional<Location> KnownObjects::find(const PageBundle& page) const {
  const There* known = there_.find(page);
  if (known == nullptr || known->until <= clock_.now()) return std::nullopt;
  return known->location;
}

bool KnownObjects::is_absent(const RunName& run) const {
  const Time* until = absent_.find(run);
  return until != nullptr && *until > clock_.now();
}

void KnownObjects::forget_space(RemoteSpaceId space) {
  there_.erase_if([&](const auto& entry) { return entry.first.space == space; });
  absent_.erase_if([&](const auto& entry) { return entry.first.space == space; });
}

}  // namespace tiercel::remote
