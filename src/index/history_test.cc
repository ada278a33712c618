#include "index/history.h"

#include <algorithm>
#include <map>
#include <optional>

#include <gtest/gtest.h>

#include "base/prng.h"
#include "index/history_model.h"

namespace tiercel {
namespace {

constexpr NamespaceId kNs{1};

Key key_of(std::uint64_t n) { return Key{{mix64(n + 1), mix64(n ^ 0xABCDEF)}}; }

Time tick(std::int64_t n) { return n * kHistoryTick; }

PastEvent evicted_at(std::int64_t when, NamespaceId by = {}) { return {Cause::kEvicted, tick(when), by}; }

TEST(History, AnswersTheLastEventWithItsTimeAndWhoNeededTheRoom) {
  History history(4);
  history.stored(kNs, key_of(1), tick(1));
  history.left(kNs, key_of(1), evicted_at(2, NamespaceId{9}));
  const PastEvent event = history.why(kNs, key_of(1));
  EXPECT_EQ(event.cause, Cause::kEvicted);
  EXPECT_EQ(event.when, tick(2));
  EXPECT_EQ(event.by, NamespaceId{9});

  history.left(kNs, key_of(1), {Cause::kNoRoom, tick(3), {}});
  EXPECT_EQ(history.why(kNs, key_of(1)).cause, Cause::kNoRoom);
}

TEST(History, KeepsNamespacesApart) {
  History history(4);
  history.left(NamespaceId{1}, key_of(1), evicted_at(1));
  EXPECT_EQ(history.why(NamespaceId{2}, key_of(1)).cause, Cause::kNeverStored);
}

TEST(History, ForgetsThePastOfAPageThatIsStoredAgain) {
  History history(2);
  history.left(kNs, key_of(1), evicted_at(1));
  history.stored(kNs, key_of(1), tick(2));
  history.left(kNs, key_of(2), evicted_at(3));
  history.left(kNs, key_of(3), evicted_at(4));
  EXPECT_EQ(history.forgotten(), 0u);  // the entry of page 1 had made room of itself
  history.left(kNs, key_of(1), {Cause::kDamaged, tick(5), {}});
  EXPECT_EQ(history.forgotten(), 1u);
  EXPECT_EQ(history.why(kNs, key_of(1)).cause, Cause::kDamaged);
}

TEST(History, DropsTheOldestEventFirstAndAnEventRenewedIsTheYoungest) {
  History history(2);
  for (std::uint64_t n : {1u, 2u}) history.stored(kNs, key_of(n), tick(0));
  history.left(kNs, key_of(1), evicted_at(1));
  history.left(kNs, key_of(2), evicted_at(2));
  history.left(kNs, key_of(1), {Cause::kQuota, tick(3), {}});
  history.left(kNs, key_of(3), evicted_at(4));
  EXPECT_EQ(history.why(kNs, key_of(1)).cause, Cause::kQuota);
  EXPECT_EQ(history.why(kNs, key_of(2)).cause, Cause::kUnknownPast);
  EXPECT_EQ(history.why(kNs, key_of(3)).cause, Cause::kEvicted);
}

TEST(History, NeverStoredIsCertainForEveryKeyWhileNothingWasForgotten) {
  constexpr std::uint64_t kEntries = 1 << 17;  // 14 bits of a mark in a place
  History history(kEntries);
  for (std::uint64_t n = 0; n < kEntries; ++n) {
    history.stored(kNs, key_of(n), tick(1));
    history.left(kNs, key_of(n), evicted_at(2));
  }
  ASSERT_EQ(history.forgotten(), 0u);
  // So many strangers: the filter alone would be wrong about some of them, and the places alone too.
  for (std::uint64_t n = 0; n < 200'000; ++n) {
    ASSERT_EQ(history.why(kNs, key_of(1'000'000 + n)).cause, Cause::kNeverStored);
  }
}

TEST(History, ForgettingInOneNamespaceLeavesTheOthersCertain) {
  History history(1);
  for (std::uint64_t n = 0; n < 50; ++n) {
    history.stored(NamespaceId{1}, key_of(n), tick(1));
    history.left(NamespaceId{1}, key_of(n), evicted_at(2));
  }
  EXPECT_EQ(history.forgotten(), 49u);
  for (std::uint64_t n = 0; n < 20'000; ++n) {
    ASSERT_EQ(history.why(NamespaceId{2}, key_of(n)).cause, Cause::kNeverStored);
  }
}

TEST(History, ARefusedKeyThatIsForgottenWasStillNeverStored) {
  History history(1);
  history.left(kNs, key_of(1), {Cause::kNoRoom, tick(1), {}});
  history.left(kNs, key_of(2), {Cause::kTooLarge, tick(2), {}});
  EXPECT_EQ(history.why(kNs, key_of(1)).cause, Cause::kNeverStored);
  // But one that was here before it was refused keeps that past.
  history.left(kNs, key_of(3), evicted_at(3));
  history.left(kNs, key_of(3), {Cause::kNoRoom, tick(4), {}});
  history.left(kNs, key_of(4), {Cause::kNoRoom, tick(5), {}});
  EXPECT_EQ(history.why(kNs, key_of(3)).cause, Cause::kUnknownPast);
}

TEST(History, OfNoEntriesKnowsThatItKnowsNothing) {
  History history(0);
  EXPECT_EQ(history.nominal_bytes(), 0u);
  EXPECT_EQ(history.why(kNs, key_of(1)).cause, Cause::kNeverStored);
  history.stored(kNs, key_of(1), tick(1));
  history.left(kNs, key_of(1), evicted_at(2));
  EXPECT_EQ(history.why(kNs, key_of(1)).cause, Cause::kUnknownPast);
  EXPECT_EQ(history.forgotten(), 1u);
}

TEST(History, AForgottenNamespaceAnswersRemovedForOlderEventsAndForWhatWasResident) {
  History history(8);
  history.stored(kNs, key_of(1), tick(1));
  history.left(kNs, key_of(1), evicted_at(2));
  history.stored(kNs, key_of(2), tick(3));  // resident when the namespace goes
  history.stored(NamespaceId{2}, key_of(1), tick(3));
  history.left(NamespaceId{2}, key_of(1), evicted_at(4));
  history.forget_namespace(kNs);
  EXPECT_EQ(history.why(kNs, key_of(1)).cause, Cause::kRemoved);
  EXPECT_EQ(history.why(kNs, key_of(2)).cause, Cause::kRemoved);
  EXPECT_EQ(history.why(kNs, key_of(3)).cause, Cause::kNeverStored);
  EXPECT_EQ(history.why(NamespaceId{2}, key_of(1)).cause, Cause::kEvicted);

  // A new life after it has its own events.
  history.stored(kNs, key_of(1), tick(5));
  history.left(kNs, key_of(1), evicted_at(6));
  EXPECT_EQ(history.why(kNs, key_of(1)).cause, Cause::kEvicted);
}

TEST(History, AForgottenNamespaceStaysRemovedWhenItsOldEntriesAreDropped) {
  constexpr std::uint64_t kEntries = 4;
  const NamespaceId other{2};
  History history(kEntries);
  const auto refuse_others = [&] {  // pushes everything older out; refused keys never fill the filter
    for (std::uint64_t n = 0; n < kEntries; ++n)
      history.left(other, key_of(n), {Cause::kNoRoom, tick(9), {}});
  };
  history.stored(kNs, key_of(1), tick(1));
  history.left(kNs, key_of(1), evicted_at(2));
  history.forget_namespace(kNs);
  refuse_others();
  EXPECT_EQ(history.forgotten(), 1u);
  EXPECT_EQ(history.why(kNs, key_of(1)).cause, Cause::kRemoved);
  // Once an event of the new life is dropped, nobody can tell any more.
  history.stored(kNs, key_of(5), tick(4));
  history.left(kNs, key_of(5), evicted_at(5));
  refuse_others();
  refuse_others();
  EXPECT_EQ(history.why(kNs, key_of(1)).cause, Cause::kUnknownPast);
  EXPECT_EQ(history.why(kNs, key_of(5)).cause, Cause::kUnknownPast);
  // Until the namespace is emptied once more.
  history.forget_namespace(kNs);
  EXPECT_EQ(history.why(kNs, key_of(5)).cause, Cause::kRemoved);
}

TEST(History, KeepsTimesToATickRoundedDown) {
  History history(4);
  const auto answer = [&](Time when) {
    history.left(kNs, key_of(1), {Cause::kRemoved, when, {}});
    return history.why(kNs, key_of(1)).when;
  };
  EXPECT_EQ(answer(tick(7)), tick(7));
  EXPECT_EQ(answer(tick(8) - Time{1}), tick(7));
  const Time years = std::chrono::hours(24 * 365) * 27;
  EXPECT_EQ(answer(years), years);
  EXPECT_LT(answer(Time::max()), Time::max());  // the last time that fits
  EXPECT_GT(answer(Time::max()), years);
  EXPECT_EQ(answer(Time{-1}), Time{0});
}

TEST(History, ChargesWhatItAllocates) {
  // 1000 entries of 32 bytes, 1000 origins of 22, and twice ceil(14,000 bits / 512) lines of filter.
  EXPECT_EQ(History(1000).nominal_bytes(), 32'000u + 22'000u + 2u * 28u * 64u);
  EXPECT_EQ(History(1).nominal_bytes(), 32u + 22u + 2u * 64u);
  // Origins have a bound of their own.
  EXPECT_EQ(History::nominal_bytes(1 << 20), (32u << 20) + 65'535u * 22u + 2u * 28'672u * 64u);
  History history(64);
  const std::uint64_t before = history.nominal_bytes();
  for (std::uint64_t n = 0; n < 1000; ++n) history.left(kNs, key_of(n), evicted_at(1));
  EXPECT_EQ(history.nominal_bytes(), before);
}

TEST(History, ForgetsTheOldestWhenItsOriginsRunOut) {
  constexpr std::uint64_t kOrigins = HistoryOrigins::kMost;
  History history(2 * kOrigins);
  const auto ns = [](std::uint64_t n) { return NamespaceId{static_cast<std::uint32_t>(n + 1)}; };
  for (std::uint64_t n = 0; n < kOrigins; ++n) {
    history.stored(ns(n), key_of(n), tick(1));
    history.left(ns(n), key_of(n), evicted_at(2));
  }
  EXPECT_EQ(history.forgotten(), 0u);
  history.left(ns(7), key_of(1'000'000), evicted_at(3));  // an origin that is there
  EXPECT_EQ(history.forgotten(), 0u);
  history.left(ns(kOrigins), key_of(kOrigins), evicted_at(4));
  EXPECT_EQ(history.forgotten(), 1u);
  EXPECT_EQ(history.why(ns(0), key_of(0)).cause, Cause::kUnknownPast);
  EXPECT_EQ(history.why(ns(1), key_of(1)).cause, Cause::kEvicted);
  EXPECT_EQ(history.why(ns(kOrigins), key_of(kOrigins)).when, tick(4));
}

// Every answer after every step, of histories of every size, from one entry to more than all keys.
class HistoryAgainstItsModel : public ::testing::TestWithParam<std::uint64_t> {};

TEST_P(HistoryAgainstItsModel, GivesTheSameAnswers) {
  const std::uint64_t entries = GetParam();
  constexpr std::uint64_t kNamespaces = 4;
  constexpr std::uint64_t kKeys = 60;
  Prng prng(entries + 1);
  History history(entries);
  HistoryModel model(entries);
  Time now{0};
  const auto ns_of = [&] { return NamespaceId{static_cast<std::uint32_t>(prng.below(kNamespaces) + 1)}; };
  for (int step = 0; step < 30'000; ++step) {
    if (prng.chance(0.5)) now += Time{static_cast<std::int64_t>(prng.below(300'000))};
    const NamespaceId ns = ns_of();
    const Key key = key_of(prng.below(kKeys));
    if (prng.chance(0.002)) {
      history.forget_namespace(ns);
      model.forget_namespace(ns);
    } else if (prng.chance(0.4)) {
      history.stored(ns, key, now);
      model.stored(ns, key, now);
    } else {
      const auto cause = static_cast<Cause>(prng.below(static_cast<std::uint64_t>(Cause::kRateLimited) + 1));
      const PastEvent event{cause, now, prng.chance(0.5) ? ns_of() : NamespaceId{}};
      history.left(ns, key, event);
      model.left(ns, key, event);
    }
    ASSERT_EQ(history.forgotten(), model.forgotten()) << step;
    ASSERT_EQ(history.filter_since(), model.filter_since()) << step;
    for (int look = 0; look < 8; ++look) {
      const NamespaceId asked_ns = ns_of();
      const Key asked = key_of(prng.below(kKeys + 10));
      const PastEvent got = history.why(asked_ns, asked);
      const PastEvent want = model.why(asked_ns, asked);
      ASSERT_EQ(got.cause, want.cause) << step;
      ASSERT_EQ(got.when, want.when / kHistoryTick * kHistoryTick) << step;
      ASSERT_EQ(got.by, want.by) << step;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(OfEverySize, HistoryAgainstItsModel,
                         ::testing::Values(0, 1, 2, 3, 7, 30, 100, 239, 10'000));

TEST(History, AgreesWithAMapThatForgetsNothingExceptWhereItSaysUnknown) {
  Prng prng(11);
  History history(200);
  std::map<std::uint64_t, std::optional<PastEvent>> truth;  // nullopt: resident
  std::uint64_t unknown = 0;
  for (std::int64_t step = 1; step < 40'000; ++step) {
    const std::uint64_t n = prng.below(300);
    const auto known = truth.find(n);
    const bool resident = known != truth.end() && !known->second;
    if (resident) {
      const PastEvent event = evicted_at(step, NamespaceId{static_cast<std::uint32_t>(prng.below(5))});
      history.left(kNs, key_of(n), event);
      truth[n] = event;
      continue;
    }
    const PastEvent answer = history.why(kNs, key_of(n));
    if (known == truth.end()) {
      ASSERT_TRUE(answer.cause == Cause::kNeverStored || answer.cause == Cause::kUnknownPast);
    } else if (answer.cause == Cause::kUnknownPast) {
      ++unknown;
    } else if (answer.cause == Cause::kNeverStored) {
      ASSERT_LT(known->second->when, history.filter_since());  // before the stated moment
    } else {
      ASSERT_EQ(answer.cause, known->second->cause);
      ASSERT_EQ(answer.when, known->second->when);
      ASSERT_EQ(answer.by, known->second->by);
    }
    history.stored(kNs, key_of(n), tick(step));
    truth[n] = std::nullopt;
  }
  // 300 keys, about half of them gone: 200 entries suffice nearly always.
  EXPECT_LT(unknown, 400u);
}

}  // namespace
}  // namespace tiercel
