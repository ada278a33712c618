#include "index/reuse_model.h"

#include <gtest/gtest.h>

#include "base/prng.h"

namespace tiercel {
namespace {

constexpr std::uint64_t kEntries = 1 << 16;

// Requests are lists of page hashes; `chain(n, name)` shares nothing with another name.
std::vector<std::uint64_t> chain(std::uint64_t pages, std::uint64_t name) {
  std::vector<std::uint64_t> hashes;
  for (std::uint64_t i = 0; i < pages; ++i) hashes.push_back(mix64(name << 20 | (i + 1)) | 1);
  return hashes;
}
std::vector<std::uint64_t> joined(std::vector<std::uint64_t> first, std::size_t pages,
                                  const std::vector<std::uint64_t>& rest) {
  first.resize(pages);
  first.insert(first.end(), rest.begin(), rest.end());
  return first;
}

Forecast learn(ReuseModel& model, const std::vector<std::uint64_t>& pages, std::uint64_t restorable = 0) {
  SeenRequest request;
  request.pages = pages;
  request.restorable = restorable;
  request.page_tokens = 512;
  return model.learn(request);
}

double visits_at(const Forecast& forecast, std::uint64_t length) {
  for (const Forecast::Stop& stop : forecast.stops)
    if (stop.length == length) return stop.visits;
  return 0;
}

TEST(ReuseModel, KnowsTheDeepestPageThatItHasSeen) {
  ReuseModel model(kEntries);
  const auto first = chain(20, 1);
  EXPECT_EQ(learn(model, first).known, 0U);
  EXPECT_EQ(learn(model, first).known, 20U);
  const Forecast branch = learn(model, joined(first, 7, chain(5, 2)));
  EXPECT_EQ(branch.known, 7U);
  EXPECT_EQ(branch.full, 12U);
  EXPECT_GT(visits_at(branch, 7), 0);
  EXPECT_GT(visits_at(branch, 12), 0);
}

TEST(ReuseModel, LearnsThatEndsAreNeverContinued) {
  ReuseModel model(kEntries);
  const double at_first = visits_at(learn(model, chain(10, 1)), 10);
  for (std::uint64_t i = 2; i < 2000; ++i) learn(model, chain(10, i));
  const double at_last = visits_at(learn(model, chain(10, 5000)), 10);
  EXPECT_NEAR(at_first, 0.3, 0.01);
  EXPECT_LT(at_last, 0.01);
}

TEST(ReuseModel, LearnsThatEndsAreContinued) {
  ReuseModel model(kEntries);
  for (std::uint64_t i = 1; i < 1000; ++i) {
    learn(model, chain(10, i));
    if (i > 20) learn(model, joined(chain(10, i - 20), 10, chain(4, 100'000 + i)));
  }
  EXPECT_GT(visits_at(learn(model, chain(10, 5000)), 10), 0.8);
}

// Every second conversation is edited three pages before its end.
TEST(ReuseModel, LearnsWhereRequestsAreLeft) {
  ReuseModel model(kEntries);
  for (std::uint64_t i = 1; i < 2000; ++i) {
    const auto pages = chain(40, i);
    learn(model, pages);
    if (i % 2 == 0) learn(model, joined(pages, 37, chain(3, 100'000 + i)));
  }
  const Forecast forecast = learn(model, chain(40, 7000));
  EXPECT_NEAR(visits_at(forecast, 36), 0.5, 0.1);  // of distances 3 and 4, the one that serves both
  EXPECT_LT(visits_at(forecast, 39), 0.05);
  EXPECT_LT(visits_at(forecast, 32), 0.05);
}

TEST(ReuseModel, YoungRequestsAreNoTrials) {
  ReuseModel model(kEntries);
  const double at_first = visits_at(learn(model, chain(10, 1)), 10);
  double last = 0;
  for (std::uint64_t i = 2; i < ReuseModel::kMaturity - 1; ++i)
    last = visits_at(learn(model, chain(10, i)), 10);
  EXPECT_EQ(last, at_first);
}

TEST(ReuseModel, ForecastsDoNotDependOnWhatComesLater) {
  const auto story = [](std::uint64_t requests) {
    ReuseModel model(kEntries);
    Prng prng(4);
    std::vector<Forecast> forecasts;
    for (std::uint64_t i = 0; i < requests; ++i) {
      const auto base = chain(20, prng.below(50));
      forecasts.push_back(learn(model, joined(base, prng.between(1, 20), chain(prng.below(10), 1000 + i))));
    }
    return forecasts;
  };
  const auto shorter = story(500);
  const auto longer = story(900);
  for (std::size_t i = 0; i < shorter.size(); ++i) {
    ASSERT_EQ(shorter[i].known, longer[i].known);
    ASSERT_EQ(shorter[i].stops.size(), longer[i].stops.size());
    for (std::size_t k = 0; k < shorter[i].stops.size(); ++k) {
      ASSERT_EQ(shorter[i].stops[k].length, longer[i].stops[k].length);
      ASSERT_EQ(shorter[i].stops[k].visits, longer[i].stops[k].visits);
    }
  }
}

TEST(ReuseModel, StopsAscendAreFewAndLieWithinTheRequest) {
  ReuseModel model(256);  // so few that most notes are overwritten
  Prng prng(9);
  for (std::uint64_t i = 0; i < 20'000; ++i) {
    const auto base = chain(300, prng.below(20));
    const std::uint64_t shared = prng.below(300);
    const auto pages = joined(base, shared, chain(prng.below(3) == 0 ? 0 : prng.below(700), 1000 + i));
    SeenRequest request;
    request.pages = pages;
    request.first_page = prng.below(2) * 5;
    request.restorable = prng.below(pages.size() + 1);
    request.tail_tokens = prng.below(64);
    request.page_tokens = 64;
    const Forecast forecast = model.learn(request);
    ASSERT_LE(forecast.stops.size(), ReuseModel::kStopsMax);
    std::uint64_t last = 0;
    for (const Forecast::Stop& stop : forecast.stops) {
      ASSERT_GE(stop.length, last);
      ASSERT_GT(stop.length, 0U);
      ASSERT_LE(stop.length, forecast.full);
      ASSERT_GE(stop.visits, 0);
      last = stop.length;
    }
    const double chance = forecast.point(forecast.full, 0).chance;
    ASSERT_TRUE(chance >= 0 && chance <= 1);
  }
  EXPECT_EQ(model.nominal_bytes(), 256 * ReuseModel::kNoteBytes);
  EXPECT_EQ(model.requests(), 20'000U);
}

// Some are asked again word for word, others are gone on from once and never again.
TEST(ReuseModel, TellsEndsThatAreAskedAgainFromThoseThatAreGoneOnFrom) {
  ReuseModel model(kEntries);
  const auto goes_on = [](std::uint64_t i) { return joined(chain(10, i), 10, chain(4, 100'000 + i)); };
  for (std::uint64_t i = 1; i < 1500; ++i) {
    learn(model, chain(10, i));
    if (i > 30) learn(model, i % 2 == 0 ? chain(10, i - 30) : goes_on(i - 30));
    if (i > 60 && i % 2 == 0) learn(model, chain(10, i - 60));
  }
  for (const std::uint64_t i : {5000U, 5001U}) learn(model, chain(10, i));
  learn(model, chain(10, 5000));
  learn(model, goes_on(5001));
  EXPECT_GT(model.used(chain(10, 5000).back()).chance, 0.7);
  EXPECT_LT(model.used(chain(10, 5001).back()).chance, 0.3);
}

TEST(ReuseModel, WhereWhatIsThereEndsIsAStopExceptForWhoAddsNothing) {
  ReuseModel model(kEntries);
  const auto pages = chain(20, 1);
  learn(model, pages);
  const auto branch = joined(pages, 12, chain(5, 2));
  SeenRequest request;
  request.pages = branch;
  request.resident = 11;
  Forecast forecast = model.learn(request);
  EXPECT_EQ(visits_at(forecast, 12), 0);
  EXPECT_GT(visits_at(forecast, 11), 0);
  EXPECT_EQ(forecast.there, 11U);
  request.resident = 12;
  const auto other = joined(pages, 12, chain(5, 3));
  request.pages = other;
  EXPECT_GT(visits_at(model.learn(request), 12), 0);
  request.pages = pages;
  request.resident = 0;
  EXPECT_GT(visits_at(model.learn(request), 20), 0);
}

TEST(ReuseModel, WhatLiesInTheCacheFromBeforeIsAPlaceWhereRequestsPart) {
  ReuseModel model(kEntries);
  SeenRequest request;
  const auto first = joined(chain(20, 1), 12, chain(5, 2));
  request.pages = first;
  request.resident = 12;
  request.restorable = 8;
  const Forecast forecast = model.learn(request);
  EXPECT_EQ(forecast.known, 12U);
  EXPECT_EQ(forecast.there, 12U);
  EXPECT_GT(visits_at(forecast, 12), 0);
  // From then on it is known by itself.
  const Forecast next = learn(model, joined(first, 12, chain(5, 3)));
  EXPECT_EQ(next.known, 12U);
  EXPECT_GT(visits_at(next, 12), 0);
  // Nothing beyond the request, and nothing when all that is there is known.
  ReuseModel other(kEntries);
  request.resident = 18;
  EXPECT_EQ(other.learn(request).known, 0U);
}

TEST(ReuseModel, APointThatWasThereServesWhatStopsBeyondItUpToTheNext) {
  Forecast forecast;
  forecast.known = forecast.there = 5;
  forecast.full = 20;
  forecast.stops = {{5, 1, 0, 0}, {8, 0.5, 0, 0}, {20, 0.2, 0, 0}};
  EXPECT_NEAR(forecast.beyond(5, 0).chance, 1 - 0.5 * 0.8, 1e-12);
  EXPECT_NEAR(forecast.beyond(5, 20).chance, 0.5, 1e-12);
  EXPECT_NEAR(forecast.beyond(3, 8).chance, 0.5, 1e-12);  // of what is known: 1 visit is 1 of 2
  EXPECT_EQ(forecast.beyond(5, 8).chance, 0);
}

TEST(ReuseModel, WithoutNotesEverythingIsNew) {
  ReuseModel model(0);
  EXPECT_EQ(model.nominal_bytes(), 0U);
  const auto pages = chain(5, 1);
  learn(model, pages);
  EXPECT_EQ(learn(model, pages).known, 0U);
}

TEST(ReuseModel, APrefixThatAllShareIsExpectedAgain) {
  ReuseModel model(kEntries);
  const auto hub = chain(4, 1);
  for (std::uint64_t i = 0; i < 600; ++i) learn(model, joined(hub, 4, chain(3, 100 + i)));
  const Forecast forecast = learn(model, joined(hub, 4, chain(3, 9000)));
  EXPECT_EQ(forecast.known, 4U);
  EXPECT_GT(visits_at(forecast, 4), 8);
  EXPECT_GT(model.used(hub[3]).chance, 0.9);
  EXPECT_GT(forecast.page(2).chance, 0.9);
}

TEST(ReuseModel, OverwritesWhatWasNotVisitedForLongest) {
  ReuseModel model(4);
  const auto kept = chain(1, 1);
  learn(model, kept);
  for (std::uint64_t i = 2; i < 100; ++i) {
    learn(model, chain(1, i));
    ASSERT_EQ(learn(model, kept).known, 1U) << i;
  }
}

TEST(ReuseModel, VisitsThatNobodyFollowedAreHeldAgainstTheirKindHoweverLongAgo) {
  ReuseModel model(kEntries);
  for (std::uint64_t i = 1; i < 200; ++i) {
    learn(model, chain(10, i));
    learn(model, joined(chain(10, i), 10, chain(4, 100'000 + i)));  // once, and never again
  }
  for (std::uint64_t i = 0; i < 3ULL * 4096; ++i) learn(model, chain(1, 1'000'000 + i));
  EXPECT_LT(model.used(chain(10, 150)[9]).chance, 0.05);
}

}  // namespace
}  // namespace tiercel
