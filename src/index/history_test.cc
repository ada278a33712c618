#include "index/history.h"

#include <map>
#include <optional>

#include <gtest/gtest.h>

#include "base/prng.h"

namespace tiercel {
namespace {

constexpr NamespaceId kNs{1};

Key key_of(std::uint64_t n) { return Key{{mix64(n + 1), mix64(n ^ 0xABCDEF)}}; }

PastEvent evicted_at(std::int64_t when, NamespaceId by = {}) { return {Cause::kEvicted, Time{when}, by}; }

TEST(History, AnswersTheLastEventWithItsTimeAndWhoNeededTheRoom) {
  History history(4);
  history.stored(kNs, key_of(1), Time{1});
  history.left(kNs, key_of(1), evicted_at(2, NamespaceId{9}));
  const PastEvent event = history.why(kNs, key_of(1));
  EXPECT_EQ(event.cause, Cause::kEvicted);
  EXPECT_EQ(event.when, Time{2});
  EXPECT_EQ(event.by, NamespaceId{9});

  history.left(kNs, key_of(1), {Cause::kNoRoom, Time{3}, {}});
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
  history.stored(kNs, key_of(1), Time{2});
  history.left(kNs, key_of(2), evicted_at(3));
  history.left(kNs, key_of(3), evicted_at(4));
  EXPECT_EQ(history.forgotten(), 0u);  // the entry of page 1 had made room of itself
  history.left(kNs, key_of(1), {Cause::kDamaged, Time{5}, {}});
  EXPECT_EQ(history.forgotten(), 1u);
  EXPECT_EQ(history.why(kNs, key_of(1)).cause, Cause::kDamaged);
}

TEST(History, DropsTheOldestEventFirstAndAnEventRenewedIsTheYoungest) {
  History history(2);
  for (std::uint64_t n : {1u, 2u}) history.stored(kNs, key_of(n), Time{0});
  history.left(kNs, key_of(1), evicted_at(1));
  history.left(kNs, key_of(2), evicted_at(2));
  history.left(kNs, key_of(1), {Cause::kQuota, Time{3}, {}});
  history.left(kNs, key_of(3), evicted_at(4));
  EXPECT_EQ(history.why(kNs, key_of(1)).cause, Cause::kQuota);
  EXPECT_EQ(history.why(kNs, key_of(2)).cause, Cause::kUnknownPast);
  EXPECT_EQ(history.why(kNs, key_of(3)).cause, Cause::kEvicted);
}

TEST(History, NeverStoredIsCertainForEveryKeyWhileNothingWasForgotten) {
  constexpr std::uint64_t kEntries = 1000;
  History history(kEntries);
  for (std::uint64_t n = 0; n < kEntries; ++n) {
    history.stored(kNs, key_of(n), Time{1});
    history.left(kNs, key_of(n), evicted_at(2));
  }
  ASSERT_EQ(history.forgotten(), 0u);
  // Twenty thousand strangers: the filter alone would be wrong about some of them.
  for (std::uint64_t n = 0; n < 20'000; ++n) {
    ASSERT_EQ(history.why(kNs, key_of(1'000'000 + n)).cause, Cause::kNeverStored);
  }
}

TEST(History, ForgettingInOneNamespaceLeavesTheOthersCertain) {
  History history(1);
  for (std::uint64_t n = 0; n < 50; ++n) {
    history.stored(NamespaceId{1}, key_of(n), Time{1});
    history.left(NamespaceId{1}, key_of(n), evicted_at(2));
  }
  EXPECT_EQ(history.forgotten(), 49u);
  for (std::uint64_t n = 0; n < 20'000; ++n) {
    ASSERT_EQ(history.why(NamespaceId{2}, key_of(n)).cause, Cause::kNeverStored);
  }
}

TEST(History, ARefusedKeyThatIsForgottenWasStillNeverStored) {
  History history(1);
  history.left(kNs, key_of(1), {Cause::kNoRoom, Time{1}, {}});
  history.left(kNs, key_of(2), {Cause::kTooLarge, Time{2}, {}});
  EXPECT_EQ(history.why(kNs, key_of(1)).cause, Cause::kNeverStored);
  // But one that was here before it was refused keeps that past.
  history.left(kNs, key_of(3), evicted_at(3));
  history.left(kNs, key_of(3), {Cause::kNoRoom, Time{4}, {}});
  history.left(kNs, key_of(4), {Cause::kNoRoom, Time{5}, {}});
  EXPECT_EQ(history.why(kNs, key_of(3)).cause, Cause::kUnknownPast);
}

TEST(History, OfNoEntriesKnowsThatItKnowsNothing) {
  History history(0);
  EXPECT_EQ(history.nominal_bytes(), 0u);
  EXPECT_EQ(history.why(kNs, key_of(1)).cause, Cause::kNeverStored);
  history.stored(kNs, key_of(1), Time{1});
  history.left(kNs, key_of(1), evicted_at(2));
  EXPECT_EQ(history.why(kNs, key_of(1)).cause, Cause::kUnknownPast);
  EXPECT_EQ(history.forgotten(), 1u);
}

TEST(History, AForgottenNamespaceAnswersRemovedForOlderEventsAndForWhatWasResident) {
  History history(8);
  history.stored(kNs, key_of(1), Time{1});
  history.left(kNs, key_of(1), evicted_at(2));
  history.stored(kNs, key_of(2), Time{3});  // resident when the namespace goes
  history.stored(NamespaceId{2}, key_of(1), Time{3});
  history.left(NamespaceId{2}, key_of(1), evicted_at(4));
  history.forget_namespace(kNs);
  EXPECT_EQ(history.why(kNs, key_of(1)).cause, Cause::kRemoved);
  EXPECT_EQ(history.why(kNs, key_of(2)).cause, Cause::kRemoved);
  EXPECT_EQ(history.why(kNs, key_of(3)).cause, Cause::kNeverStored);
  EXPECT_EQ(history.why(NamespaceId{2}, key_of(1)).cause, Cause::kEvicted);

  // A new life after it has its own events.
  history.stored(kNs, key_of(1), Time{5});
  history.left(kNs, key_of(1), evicted_at(6));
  EXPECT_EQ(history.why(kNs, key_of(1)).cause, Cause::kEvicted);
}

TEST(History, AForgottenNamespaceStaysRemovedWhenItsOldEntriesAreDropped) {
  constexpr std::uint64_t kEntries = 4;
  const NamespaceId other{2};
  History history(kEntries);
  const auto refuse_others = [&] {  // pushes everything older out; refused keys never fill the filter
    for (std::uint64_t n = 0; n < kEntries; ++n)
      history.left(other, key_of(n), {Cause::kNoRoom, Time{9}, {}});
  };
  history.stored(kNs, key_of(1), Time{1});
  history.left(kNs, key_of(1), evicted_at(2));
  history.forget_namespace(kNs);
  refuse_others();
  EXPECT_EQ(history.forgotten(), 1u);
  EXPECT_EQ(history.why(kNs, key_of(1)).cause, Cause::kRemoved);
  // Once an event of the new life is dropped, nobody can tell any more.
  history.stored(kNs, key_of(5), Time{4});
  history.left(kNs, key_of(5), evicted_at(5));
  refuse_others();
  refuse_others();
  EXPECT_EQ(history.why(kNs, key_of(1)).cause, Cause::kUnknownPast);
  EXPECT_EQ(history.why(kNs, key_of(5)).cause, Cause::kUnknownPast);
  // Until the namespace is emptied once more.
  history.forget_namespace(kNs);
  EXPECT_EQ(history.why(kNs, key_of(5)).cause, Cause::kRemoved);
}

TEST(History, ChargesSixteenBytesAnEntryAndTwoHalvesOfFilter) {
  // 1000 entries: 16,000 bytes and twice ceil(12,000 bits / 64) words.
  EXPECT_EQ(History(1000).nominal_bytes(), 16'000u + 2u * 188u * 8u);
  EXPECT_EQ(History(1).nominal_bytes(), 16u + 2u * 8u);
  History history(64);
  const std::uint64_t before = history.nominal_bytes();
  for (std::uint64_t n = 0; n < 1000; ++n) history.left(kNs, key_of(n), evicted_at(1));
  EXPECT_EQ(history.nominal_bytes(), before);
}

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
    history.stored(kNs, key_of(n), Time{step});
    truth[n] = std::nullopt;
  }
  // 300 keys, about half of them gone: 200 entries suffice nearly always.
  EXPECT_LT(unknown, 400u);
}

}  // namespace
}  // namespace tiercel
