// Enumerates every small case instead of sampling: the body of a loop asks for choices, and the loop runs
// once for each combination.
//
//   Exhaustive every;
//   while (every.next()) {
//     const auto pages = every.choose(6);      // 0 .. 5
//     const bool present = every.coin();
//     ...
//   }
//
// Choices may depend on earlier ones. Threads: one thread. Cost: memory = number of choices in one run.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/check.h"

namespace tiercel {

class Exhaustive final {
 public:
  // False when every combination has been seen. Call once before each run of the body.
  bool next() {
    if (!started_) return started_ = true;
    while (!choices_.empty() && choices_.back().taken + 1 == choices_.back().bound) choices_.pop_back();
    if (choices_.empty()) return false;
    ++choices_.back().taken;
    position_ = 0;
    return true;
  }
  // A value in [0, bound). Requires: bound > 0, and the same bound after the same earlier choices.
  std::uint64_t choose(std::uint64_t bound) {
    TIERCEL_CHECK(bound > 0);
    if (position_ == choices_.size()) choices_.push_back({0, bound});
    TIERCEL_CHECK(choices_[position_].bound == bound);
    return choices_[position_++].taken;
  }
  bool coin() { return choose(2) == 1; }

 private:
  struct Choice {
    std::uint64_t taken;
    std::uint64_t bound;
  };
  std::vector<Choice> choices_;
  std::size_t position_ = 0;
  bool started_ = false;
};

}  // namespace tiercel
