#include "index/snapshot_advice.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "base/check.h"

namespace tiercel {
namespace {

constexpr double kFloorPages = 0.5;  // writing a snapshot costs about as much as half a page of recompute
constexpr double kFloorWhereSortedOut = 0.01;  // where eviction throws out first what is worth nothing
constexpr double kFreeShare = 0.95;            // of the budget: until then nothing is held back
constexpr double kDoublings = 7;               // of the price, over the rest of the budget
constexpr double kEndDiscountMost = 0.9;

struct Choice {
  double value = 0;
  std::size_t before = SIZE_MAX;  // index of the point before; none
};

// Stops that a snapshot may serve, each at the length where it would be taken.
std::vector<Forecast::Stop> eligible_stops(const Forecast& forecast, const AdviceLimits& limits) {
  std::vector<Forecast::Stop> stops;
  for (Forecast::Stop stop : forecast.stops) {
    stop.length = std::min(stop.length, limits.pages);
    stop.length -= stop.length % limits.multiple_of;
    if (stop.length <= std::max(limits.from, limits.restorable)) continue;
    if (stops.empty() || stops.back().length != stop.length) {
      stops.push_back(stop);
      continue;
    }
    stops.back().visits += stop.visits;
    stops.back().rate += stop.rate;
    stops.back().guess = stops.back().guess && stop.guess;
    stops.back().end_again = std::max(stops.back().end_again, stop.end_again);
  }
  return stops;
}

}  // namespace

AdvicePrice advice_price(double room, double rate_of_new, std::optional<std::uint64_t> budget,
                         std::uint64_t spent, bool sorted_out) {
  AdvicePrice price{kFloorPages, 0};
  if (sorted_out && room == 0 && !budget) price.at_ends = kFloorWhereSortedOut;
  if (room > 0 && rate_of_new > 0) price = {std::max(kFloorWhereSortedOut, room / rate_of_new), rate_of_new};
  if (budget && *budget != 0) {
    const double share = static_cast<double>(spent) / static_cast<double>(*budget);
    if (share > kFreeShare) price.point *= std::exp2(kDoublings * (share - kFreeShare) / (1 - kFreeShare));
  }
  return price;
}

// best[n][i]: the most that n + 1 points can save of which the last is at stop i. A point serves all stops
// from its length on, as far as the point after it; so moving the base of all those stops up is its worth.
std::vector<std::uint64_t> advised_lengths(const Forecast& forecast, const AdviceLimits& limits,
                                           const AdvicePrice& price) {
  TIERCEL_CHECK(limits.multiple_of != 0);
  const std::vector<Forecast::Stop> stops = eligible_stops(forecast, limits);
  const std::size_t points_most = std::min<std::uint64_t>(stops.size(), limits.at_most);
  std::vector<double> visits_beyond(stops.size());
  double visits = 0;
  for (std::size_t i = stops.size(); i-- > 0;)
    visits_beyond[i] = visits += price.rate_of_one > 0 ? stops[i].rate / price.rate_of_one : stops[i].visits;
  // In scarce room the first point takes the place of the one resumed from, which it leaves without a use.
  const double first_free = price.rate_of_one > 0 && limits.restorable > 0 ? price.point : 0;

  std::vector<std::vector<Choice>> best(points_most, std::vector<Choice>(stops.size()));
  double most = 0;
  std::size_t points = 0, last = SIZE_MAX;
  for (std::size_t n = 0; n < points_most; ++n) {
    for (std::size_t i = n; i < stops.size(); ++i) {
      const double worth = visits_beyond[i];
      Choice& choice = best[n][i];
      if (n == 0)
        choice.value = static_cast<double>(stops[i].length - limits.restorable) * worth + first_free;
      for (std::size_t j = n - 1; n != 0 && j < i; ++j) {
        const double value =
            best[n - 1][j].value + static_cast<double>(stops[i].length - stops[j].length) * worth;
        if (choice.before == SIZE_MAX || value > choice.value) choice = {value, j};
      }
      // An end that is left out and resumed all the same gets its snapshot then: of its price only the rest
      // is saved.
      const double mine = stops[i].guess ? price.point : price.at_ends.value_or(price.point);
      choice.value -= mine * (1 - std::min(kEndDiscountMost, stops[i].end_again));
      if (choice.value <= most) continue;
      most = choice.value;
      points = n;
      last = i;
    }
  }
  std::vector<std::uint64_t> lengths;
  for (std::size_t i = last, n = points; i != SIZE_MAX; i = best[n][i].before, --n)
    lengths.push_back(stops[i].length);
  std::reverse(lengths.begin(), lengths.end());
  return lengths;
}

}  // namespace tiercel
