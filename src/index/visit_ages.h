// After how long prefixes are visited again, by class of prefix; and from it how fast a prefix kept for some
// time may still be expected to be visited. Age is counted in requests, in half octaves; a class with few
// visits leans on a more general one.
//
// Threads: one thread. Cost: count O(depth of classes), refresh O(classes), rate O(kAges); memory is fixed
// at construction.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

namespace tiercel {

// What is expected of a prefix: how likely another visit is, and the class whose ages of visit apply.
struct Prospect {
  std::uint16_t shape = 0;
  double chance = 0;
};

class VisitAges final {
 public:
  static constexpr std::uint16_t kLeansOnNone = UINT16_MAX;
  // Shape i leans on leans_on[i], which is smaller than i, or on none.
  explicit VisitAges(std::vector<std::uint16_t> leans_on);

  // Counts for the shape and all that it leans on; rates see it after refresh().
  void count(std::uint16_t shape, double age);
  // `prior_visits`: how many visits of its own a shape needs to count as much as what it leans on.
  void refresh(double prior_visits);
  // Share of the visits of a shape that come by this age.
  double share_by(std::uint16_t shape, double age) const;
  // Visits to expect per request of keeping it from this age on, for the best time to keep it: the maximum
  // over w of P(visited within w) / E(time kept).
  double rate(const Prospect& prospect, double age) const;

 private:
  static constexpr int kAges = 30;
  static constexpr double kPriorPerAge = 0.5;  // weight of each age where it leans on none
  using PerAge = std::array<double, kAges>;
  using ByAge = std::array<double, kAges + 1>;

  int bin_of(double age) const;

  std::vector<std::uint16_t> leans_on_;
  ByAge edges_;  // bin k holds ages from edges_[k] up to edges_[k + 1]
  std::vector<PerAge> visits_;
  std::vector<ByAge> shares_;  // by the edges
};

}  // namespace tiercel
