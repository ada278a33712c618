#include "index/visit_ages.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"

namespace tiercel {

VisitAges::VisitAges(std::vector<std::uint16_t> leans_on)
    : leans_on_(std::move(leans_on)), visits_(leans_on_.size()), shares_(leans_on_.size()) {
  edges_[0] = 0;
  double edge = 2;
  for (std::size_t i = 1; i <= kAges; ++i, edge *= std::sqrt(2.0)) edges_[i] = edge;
  refresh(1);
}

int VisitAges::bin_of(double age) const {
  const auto above = std::upper_bound(edges_.begin() + 1, edges_.end() - 1, age);
  return static_cast<int>(above - edges_.begin()) - 1;
}

void VisitAges::count(std::uint16_t shape, double age) {
  const auto bin = static_cast<std::size_t>(bin_of(age));
  for (std::uint16_t at = shape; at != kLeansOnNone; at = leans_on_[at]) visits_[at][bin] += 1;
}

void VisitAges::refresh(double prior_visits) {
  std::vector<PerAge> part(leans_on_.size());
  for (std::size_t shape = 0; shape < leans_on_.size(); ++shape) {
    const std::uint16_t up = leans_on_[shape];
    TIERCEL_CHECK(up == kLeansOnNone || up < shape);
    double sum = 0;
    for (std::size_t k = 0; k < kAges; ++k) {
      part[shape][k] = visits_[shape][k] + (up == kLeansOnNone ? kPriorPerAge : prior_visits * part[up][k]);
      sum += part[shape][k];
    }
    double below = 0;
    shares_[shape][0] = 0;
    for (std::size_t k = 0; k < kAges; ++k) {
      part[shape][k] /= sum;
      shares_[shape][k + 1] = below += part[shape][k];
    }
  }
}

double VisitAges::share_by(std::uint16_t shape, double age) const {
  const auto k = static_cast<std::size_t>(bin_of(age));
  const ByAge& shares = shares_[shape];
  const double into = std::min(1.0, (age - edges_[k]) / (edges_[k + 1] - edges_[k]));
  return shares[k] + (shares[k + 1] - shares[k]) * into;
}

double VisitAges::rate(const Prospect& prospect, double age) const {
  constexpr double kSurest = 0.98;
  const double chance = std::min(prospect.chance, kSurest);
  const ByAge& shares = shares_[prospect.shape];
  const double past = share_by(prospect.shape, age);
  const double still = chance / (1 - chance * past);
  double best = 0;
  for (auto k = static_cast<std::size_t>(bin_of(age)) + 1; k <= kAges; ++k) {
    const double wait = edges_[k] - age;
    if (wait < 1) continue;
    const double visited = still * (shares[k] - past);
    best = std::max(best, visited / (wait * (1 - 0.5 * visited)));
  }
  return best;
}

}  // namespace tiercel
