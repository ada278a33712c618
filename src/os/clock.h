// Time as an argument: the control plane reads no clock of its own.
//
// Threads: now() may be called from any thread; ManualClock is moved by one.
#pragma once

#include <chrono>

namespace tiercel {

using Time = std::chrono::nanoseconds;  // since the clock's own start; never wall time
using Duration = std::chrono::nanoseconds;

// `now` + `by`, at most the end of time: "for ever" must not wrap into the past.
constexpr Time later(Time now, Duration by) { return by > Time::max() - now ? Time::max() : now + by; }

class Clock {
 public:
  virtual ~Clock() = default;
  virtual Time now() const = 0;  // never goes backwards
};

class SteadyClock final : public Clock {
 public:
  Time now() const override;
};

// Moves only when its owner says so: simulation, replay, tests.
class ManualClock final : public Clock {
 public:
  Time now() const override { return now_; }
  void advance(Duration by) { now_ += by; }
  void advance_to(Time to);  // earlier than now: stays

 private:
  Time now_{0};
};

}  // namespace tiercel
