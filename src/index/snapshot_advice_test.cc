#include "index/snapshot_advice.h"

#include <algorithm>

#include <gtest/gtest.h>

#include "base/prng.h"

namespace tiercel {
namespace {

using Lengths = std::vector<std::uint64_t>;

Forecast forecast_of(std::vector<Forecast::Stop> stops) {
  Forecast forecast;
  forecast.stops = std::move(stops);
  forecast.full = forecast.stops.back().length;
  return forecast;
}
AdviceLimits within(std::uint64_t pages) {
  AdviceLimits limits;
  limits.pages = pages;
  return limits;
}

// What a set of points saves: every visit resumes at the longest point that it reaches.
double saved(const Forecast& forecast, const Lengths& points, std::uint64_t restorable, double price) {
  double total = -price * static_cast<double>(points.size());
  for (const Forecast::Stop& stop : forecast.stops) {
    std::uint64_t from = restorable;
    for (const std::uint64_t point : points)
      if (point <= stop.length) from = std::max(from, point);
    total += stop.visits * static_cast<double>(from - restorable);
  }
  return total;
}

TEST(SnapshotAdvice, TakesOnlyWhatPaysForItself) {
  const Forecast forecast = forecast_of({{10, 0.2, 0}, {40, 0.01, 0}});
  EXPECT_EQ(advised_lengths(forecast, within(40), {0.5, 0}), (Lengths{10}));  // the rest saves 30 × 0.01
  EXPECT_EQ(advised_lengths(forecast, within(40), {0.2, 0}), (Lengths{10, 40}));
  EXPECT_EQ(advised_lengths(forecast, within(40), {3, 0}), Lengths{});
}

TEST(SnapshotAdvice, SavesAsMuchAsAnyOtherChoice) {
  Prng prng(11);
  for (int round = 0; round < 3000; ++round) {
    std::vector<Forecast::Stop> stops;
    std::uint64_t length = prng.below(4);
    for (std::uint64_t i = prng.between(1, 8); i > 0; --i)
      stops.push_back({length += prng.between(1, 20), prng.unit() * prng.unit(), 0});
    const Forecast forecast = forecast_of(stops);
    AdviceLimits limits = within(forecast.full);
    limits.at_most = prng.below(5);
    limits.restorable = prng.below(10);
    limits.from = prng.below(30);
    const double price = prng.unit() * 4;
    const Lengths advised = advised_lengths(forecast, limits, {price, 0});
    EXPECT_LE(advised.size(), limits.at_most);
    double best = 0;
    for (std::uint32_t bits = 0; bits < 1U << stops.size(); ++bits) {
      Lengths points;
      for (std::size_t i = 0; i < stops.size(); ++i)
        if ((bits >> i & 1) != 0) points.push_back(stops[i].length);
      const bool allowed = points.size() <= limits.at_most &&
                           (points.empty() || points.front() > std::max(limits.restorable, limits.from));
      Forecast beyond = forecast;
      std::erase_if(beyond.stops, [&](const auto& stop) { return stop.length <= limits.restorable; });
      if (allowed) best = std::max(best, saved(beyond, points, limits.restorable, price));
    }
    Forecast beyond = forecast;
    std::erase_if(beyond.stops, [&](const auto& stop) { return stop.length <= limits.restorable; });
    ASSERT_NEAR(saved(beyond, advised, limits.restorable, price), best, 1e-9) << "round " << round;
  }
}

TEST(SnapshotAdvice, KeepsWithinWhatWasAsked) {
  Prng prng(12);
  for (int round = 0; round < 3000; ++round) {
    std::vector<Forecast::Stop> stops;
    std::uint64_t length = 0;
    for (std::uint64_t i = prng.between(1, 20); i > 0; --i)
      stops.push_back({length += prng.between(1, 20), prng.unit(), 0});
    AdviceLimits limits;
    limits.pages = prng.below(length + 10);
    limits.multiple_of = prng.between(1, 16);
    limits.at_most = prng.below(8);
    limits.from = prng.below(length);
    limits.restorable = prng.below(length);
    const Lengths advised = advised_lengths(forecast_of(stops), limits, {0.1, 0});
    EXPECT_LE(advised.size(), limits.at_most);
    std::uint64_t last = std::max(limits.from, limits.restorable);
    for (const std::uint64_t each : advised) {
      ASSERT_GT(each, last);
      ASSERT_LE(each, limits.pages);
      ASSERT_EQ(each % limits.multiple_of, 0U);
      last = each;
    }
  }
}

TEST(SnapshotAdvice, RoundedDownALengthStillServesItsStop) {
  AdviceLimits limits = within(40);
  limits.multiple_of = 8;
  EXPECT_EQ(advised_lengths(forecast_of({{31, 0.2, 0}, {33, 0.5, 0}}), limits, {0.5, 0}), (Lengths{24, 32}));
  EXPECT_EQ(advised_lengths(forecast_of({{26, 0.2, 0}, {31, 0.5, 0}}), limits, {0.5, 0}), (Lengths{24}));
}

TEST(SnapshotAdvice, ThePriceRisesAtTheEndOfABudgetAndWithTheValueOfRoom) {
  EXPECT_EQ(advice_price(0, 0.01, std::nullopt, 1'000'000, false).point, 0.5);
  EXPECT_EQ(advice_price(0, 0.01, 1000, 950, false).point, 0.5);
  EXPECT_NEAR(advice_price(0, 0.01, 1000, 1000, false).point, 64, 1e-9);
  EXPECT_GT(advice_price(0, 0.01, 1000, 980, false).point, advice_price(0, 0.01, 1000, 970, false).point);
  EXPECT_EQ(advice_price(0, 0.01, std::nullopt, 0, false).rate_of_one, 0);
  const AdvicePrice scarce = advice_price(0.05, 0.01, std::nullopt, 0, false);
  EXPECT_NEAR(scarce.point, 5, 1e-12);
  EXPECT_EQ(scarce.rate_of_one, 0.01);
  EXPECT_EQ(advice_price(1e-9, 0.01, std::nullopt, 0, false).point, 0.01);  // what goes is worth nothing
}

TEST(SnapshotAdvice, WhereEvictionSortsOutLaterEndsAreTakenWhileThereIsRoom) {
  EXPECT_EQ(advice_price(0, 0.01, std::nullopt, 0, true).at_ends, 0.01);
  EXPECT_EQ(advice_price(0, 0.01, 1000, 0, true).at_ends, std::nullopt);
  EXPECT_EQ(advice_price(0.05, 0.01, std::nullopt, 0, true).at_ends, std::nullopt);
  EXPECT_EQ(advice_price(0, 0.01, std::nullopt, 0, false).at_ends, std::nullopt);
  Forecast forecast = forecast_of({{10, 0.01, 0, 0, true}, {20, 0.01, 0, 0, false}});
  EXPECT_EQ(advised_lengths(forecast, within(20), {0.5, 0}), Lengths{});
  EXPECT_EQ(advised_lengths(forecast, within(20), {0.5, 0, 0.01}), (Lengths{20}));
}

// Two ends, one of which is gone on from soon and one after long, if at all just as likely.
TEST(SnapshotAdvice, InScarceRoomWhatIsVisitedSoonCounts) {
  const Forecast forecast = forecast_of({{10, 0.3, 0, 0.03}, {100, 0.3, 0, 0.0001}});
  EXPECT_EQ(advised_lengths(forecast, within(100), {5, 0}), (Lengths{100}));
  EXPECT_EQ(advised_lengths(forecast, within(100), {5, 0.01}), (Lengths{10}));
}

TEST(SnapshotAdvice, InScarceRoomAPointMayTakeThePlaceOfTheOneResumedFrom) {
  const Forecast forecast = forecast_of({{10, 0.1, 0, 0.01}, {14, 0.1, 0, 0.01}});
  AdviceLimits limits = within(14);
  EXPECT_EQ(advised_lengths(forecast, limits, {50, 0.01}), Lengths{});
  limits.restorable = 5;
  EXPECT_EQ(advised_lengths(forecast, limits, {50, 0.01}), (Lengths{10}));
  EXPECT_EQ(advised_lengths(forecast, limits, {50, 0}), Lengths{});
}

TEST(SnapshotAdvice, StopsThatShareALengthShareItsPrice) {
  AdviceLimits limits = within(40);
  limits.multiple_of = 8;
  const Forecast forecast = forecast_of({{26, 0.02, 0}, {31, 0.02, 0}});
  EXPECT_EQ(advised_lengths(forecast, limits, {0.9, 0}), (Lengths{24}));  // 24 × 0.04
  EXPECT_EQ(advised_lengths(forecast, limits, {1.0, 0}), Lengths{});
}

TEST(SnapshotAdvice, AnEndThatWillShowItselfAgainIsBoughtForTheRestOfItsPrice) {
  EXPECT_EQ(advised_lengths(forecast_of({{4, 0.2, 0}}), within(4), {1, 0}), Lengths{});
  EXPECT_EQ(advised_lengths(forecast_of({{4, 0.2, 0.5}}), within(4), {1, 0}), (Lengths{4}));
}

}  // namespace
}  // namespace tiercel
