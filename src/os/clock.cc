#include "os/clock.h"

#include <algorithm>

namespace tiercel {

Time SteadyClock::now() const {
  return std::chrono::duration_cast<Time>(std::chrono::steady_clock::now().time_since_epoch());
}

void ManualClock::advance_to(Time to) { now_ = std::max(now_, to); }

}  // namespace tiercel
