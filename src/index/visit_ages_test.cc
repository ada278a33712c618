#include "index/visit_ages.h"

#include <gtest/gtest.h>

namespace tiercel {
namespace {

constexpr std::uint16_t kNone = VisitAges::kLeansOnNone;

TEST(VisitAges, BeforeAnyVisitSpreadEvenlyOverHalfOctaves) {
  const VisitAges ages({kNone});
  EXPECT_EQ(ages.share_by(0, 0), 0);
  EXPECT_NEAR(ages.share_by(0, 2), 1.0 / 30, 1e-12);
  EXPECT_NEAR(ages.share_by(0, 4), 3.0 / 30, 1e-12);
  EXPECT_NEAR(ages.share_by(0, 1e9), 1, 1e-12);
}

TEST(VisitAges, RateFollowsWhatWasSeen) {
  VisitAges ages({kNone, kNone});
  for (int i = 0; i < 1000; ++i) {
    ages.count(0, 10);
    ages.count(1, 1000);
  }
  ages.refresh(10);
  EXPECT_GT(ages.rate({0, 0.5}, 0), 10 * ages.rate({1, 0.5}, 0));
  // Those that come after ten requests have come by a hundred; the others are still to come.
  EXPECT_LT(ages.rate({0, 0.5}, 100), ages.rate({1, 0.5}, 100));
  // By age 800 nearly all chance is left, and the wait is shorter.
  EXPECT_GT(ages.rate({1, 0.5}, 800), ages.rate({1, 0.5}, 0));
}

TEST(VisitAges, RateGrowsWithTheChance) {
  const VisitAges ages({kNone});
  EXPECT_EQ(ages.rate({0, 0}, 5), 0);
  for (const double age : {0.0, 7.0, 300.0, 1e5, 1e9}) {
    double last = -1;
    for (const double chance : {0.0, 0.1, 0.5, 0.9}) {
      const double rate = ages.rate({0, chance}, age);
      EXPECT_GE(rate, last);
      EXPECT_LE(rate, 1.96);  // at most one visit within a request, kept for about half of it
      last = rate;
    }
  }
}

TEST(VisitAges, APriorIsWorthAsManyVisitsAsSaid) {
  VisitAges ages({kNone, 0});
  for (int i = 0; i < 5000; ++i) ages.count(0, 1000);
  for (int i = 0; i < 20; ++i) ages.count(1, 5);
  ages.refresh(20);
  EXPECT_NEAR(ages.share_by(1, 100), 0.5, 0.01);
  ages.refresh(80);
  EXPECT_NEAR(ages.share_by(1, 100), 0.2, 0.01);
}

TEST(VisitAges, AClassWithoutVisitsIsAsTheOneItLeansOn) {
  VisitAges ages({kNone, 0, 1});
  for (int i = 0; i < 500; ++i) ages.count(1, 50);
  ages.refresh(10);
  EXPECT_NEAR(ages.share_by(2, 200), ages.share_by(1, 200), 1e-9);
  EXPECT_GT(ages.share_by(0, 200), 0.9);  // counted there too
}

}  // namespace
}  // namespace tiercel
