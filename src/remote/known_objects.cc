#include "remote/known_objects.h"

namespace tiercel::remote {

void KnownObjects::there(const PageBundle& page, const Location& location) {
  there_.put(page, {location, term(page.space, there_for_)});
}

std::optional<Location> KnownObjects::find(const PageBundle& page) const {
  const There* known = there_.find(page);
  if (known == nullptr || !counts(page.space, known->term)) return std::nullopt;
  return known->location;
}

bool KnownObjects::is_absent(const RunName& run) const {
  const Term* term = absent_.find(run);
  return term != nullptr && counts(run.space, *term);
}

}  // namespace tiercel::remote
