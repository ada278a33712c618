// Writers in other processes: what they hold is never used again while they may write to it.

#include "base/crc32c.h"
#include "node/test_world.h"

namespace tiercel {
namespace {

constexpr std::uint32_t kPid = 4711;

// A world with one other process that writes.
class Outside {
 public:
  explicit Outside(ModelSpec spec = test_spec({}), std::function<void(NodeOptions&)> adjust = {})
      : world({.spec = std::move(spec), .processes = &processes, .adjust = std::move(adjust)}) {}

  // Every class and shard of page `page`, in one reservation.
  ReserveAnswer reserve(const std::vector<Key>& keys, std::uint64_t page, std::uint32_t pid = kPid) {
    request_ = {};
    for (const ClassForm& cls : world.form().classes) {
      StoreRequest one = world.store_request(keys, page, cls.id);
      request_.session = one.session;
      request_.ns = one.ns;
      request_.items.insert(request_.items.end(), one.items.begin(), one.items.end());
    }
    ReserveAnswer answer = world.node().reserve(request_, pid).value();
    for (std::size_t i = 0; i < answer.outcomes.size(); ++i)
      spans_[i] = world.node().reserved_spans(answer.reservation, i);
    return answer;
  }
  // What the other process does, whenever it likes.
  void write(std::size_t item, std::byte flip = std::byte{0}) {
    const StoreItem& what = request_.items[item];
    const ClassForm& cls = world.form().classes[what.cls.value()];
    const std::uint64_t header = header_bytes(cls);
    for (std::uint64_t b = 0; b < cls.record_bytes; ++b)
      world.arena().view(spans_[item], header + b, 1)[0] =
          TestWorld::content(what.key, what.cls, what.shard, b) ^ (b == 0 ? flip : std::byte{0});
  }
  std::vector<std::uint32_t> checksums(std::size_t item) {
    const StoreItem& what = request_.items[item];
    const ClassForm& cls = world.form().classes[what.cls.value()];
    std::vector<std::byte> payload;
    for (std::uint64_t b = 0; b < cls.record_bytes; ++b)
      payload.push_back(TestWorld::content(what.key, what.cls, what.shard, b));
    return run_checksums(cls, payload);
  }
  // Outcomes of a commit, once all has ended.
  std::vector<StoreOutcome> commit(ReservationId reservation, const CommitRequest& what = {}) {
    const auto operation = world.node().commit(reservation, what);
    EXPECT_TRUE(operation) << operation.error().to_string();
    if (!operation) return {};
    world.node().poll();
    for (const Completion& each : world.node().drain_completions())
      if (each.operation == *operation && each.kind == CompletionKind::kSourceFree) return each.store;
    return {};
  }
  void exit() {
    processes.gone.insert(kPid);
    world.node().poll();
  }
  Stats stats() { return world.node().stats(); }
  bool visible(const std::vector<Key>& keys, std::uint64_t page) {
    return world.node().why(world.ns(), keys[page]).resident;
  }

  TestProcesses processes;
  TestWorld world;

 private:
  StoreRequest request_;
  std::map<std::size_t, std::vector<ArenaSpan>> spans_;
};

CommitRequest arrived(std::vector<Arrival> items) {
  CommitRequest what;
  what.arrived = std::move(items);
  return what;
}

TEST(OutsideWriter, WhatItWroteIsCommittedWithoutMovingAByte) {
  Outside outside(test_spec({.window_pages = 2, .state = true}));
  const auto keys = outside.world.keys(1);
  const auto reserved = outside.reserve(keys, 0);
  for (std::size_t i = 0; i < reserved.outcomes.size(); ++i) {
    ASSERT_EQ(reserved.outcomes[i], StoreOutcome::kAccepted);
    outside.write(i);
  }
  for (const StoreOutcome outcome : outside.commit(reserved.reservation))
    EXPECT_EQ(outcome, StoreOutcome::kCommitted);
  EXPECT_EQ(outside.stats().records_copied_in, 0U);
  EXPECT_EQ(outside.stats().records_moved, 0U);
  EXPECT_EQ(outside.stats().records_written_in_place, reserved.outcomes.size());
  const TicketId ticket = outside.world.match(keys);
  ASSERT_EQ(outside.world.view(ticket).length, 1U);
  EXPECT_TRUE(outside.world.load(ticket, 1).status.ok());
  EXPECT_EQ(outside.world.wrong_bytes(keys, 1), "");
}

TEST(OutsideWriter, AbortQuarantinesUntilItHasExited) {
  Outside outside;
  const auto keys = outside.world.keys(1);
  const auto reserved = outside.reserve(keys, 0);
  const std::uint64_t bytes = outside.stats().reserved_bytes;
  outside.world.node().abort(reserved.reservation);
  EXPECT_EQ(outside.stats().quarantined_bytes, bytes);
  EXPECT_EQ(outside.stats().reserved_bytes, bytes) << "still charged";
  outside.world.clock().advance(std::chrono::hours(24));
  outside.world.node().poll();
  EXPECT_EQ(outside.stats().quarantined_bytes, bytes) << "no time is long enough";
  EXPECT_EQ(outside.world.node().commit(reserved.reservation).error().code, Code::kNotFound);
  outside.exit();
  EXPECT_EQ(outside.stats().quarantined_bytes, 0U);
  EXPECT_EQ(outside.stats().reserved_bytes, 0U);
  EXPECT_EQ(outside.stats().payload_bytes, 0U);
}

TEST(OutsideWriter, PastItsDeadlineTheSlotsReturnWithItsExitAndNobodyNeedsToAsk) {
  Outside outside;
  const auto keys = outside.world.keys(1);
  const auto reserved = outside.reserve(keys, 0);
  outside.world.clock().advance(std::chrono::seconds(31));
  outside.world.node().poll();
  EXPECT_GT(outside.stats().quarantined_bytes, 0U);
  outside.write(0);  // late, and harmless
  outside.exit();
  EXPECT_EQ(outside.stats().payload_bytes, 0U);
  EXPECT_EQ(outside.world.node().commit(reserved.reservation).error().code, Code::kFailedPrecondition);
  EXPECT_FALSE(outside.visible(keys, 0));
}

TEST(OutsideWriter, ACommitAfterTheDeadlineDoesNotFreeWhatItMayStillWriteTo) {
  Outside outside;
  const auto keys = outside.world.keys(1);
  const auto reserved = outside.reserve(keys, 0);
  outside.world.clock().advance(std::chrono::seconds(31));
  outside.world.node().poll();
  EXPECT_EQ(outside.world.node().commit(reserved.reservation).error().code, Code::kFailedPrecondition);
  EXPECT_GT(outside.stats().quarantined_bytes, 0U);
  outside.exit();
  EXPECT_EQ(outside.stats().quarantined_bytes, 0U);
}

TEST(OutsideWriter, ItsExitBringsTheDeadlineNearAndWhatArrivedMayStillBeCommittedUntilThen) {
  Outside outside(test_spec({}),
                  [](NodeOptions& options) { options.writer_grace = std::chrono::seconds(1); });
  const auto keys = outside.world.keys(2);
  const auto first = outside.reserve(keys, 0);
  outside.write(0);
  const auto second = outside.reserve(keys, 1);
  outside.exit();
  EXPECT_EQ(outside.commit(first.reservation).front(), StoreOutcome::kCommitted);
  EXPECT_TRUE(outside.visible(keys, 0));
  outside.world.clock().advance(std::chrono::milliseconds(999));
  outside.world.node().poll();
  EXPECT_GT(outside.stats().reserved_bytes, 0U);
  outside.world.clock().advance(std::chrono::milliseconds(1));
  outside.world.node().poll();
  EXPECT_EQ(outside.stats().reserved_bytes, 0U);
  EXPECT_EQ(outside.stats().quarantined_bytes, 0U) << "nobody is left who could write";
  EXPECT_EQ(outside.world.node().commit(second.reservation).error().code, Code::kFailedPrecondition);
}

TEST(OutsideWriter, OnlyWhatIsNamedIsCommittedAndTheRestIsQuarantinedWithAnOutcomeOfItsOwn) {
  Outside outside(test_spec({.state = true}));
  const auto keys = outside.world.keys(1);
  const auto reserved = outside.reserve(keys, 0);
  outside.write(0);
  outside.write(1);  // all of it, and nobody said so
  const auto outcomes = outside.commit(reserved.reservation, arrived({{0, {}}}));
  EXPECT_EQ(outcomes, (std::vector{StoreOutcome::kCommitted, StoreOutcome::kNotArrived}));
  EXPECT_TRUE(outside.visible(keys, 0));
  EXPECT_FALSE(outside.world.node().exists(outside.world.ns(), ClassId(1), keys[0]));
  EXPECT_EQ(outside.stats().quarantined_bytes, outside.world.form().classes[1].record_bytes);
  outside.exit();
  EXPECT_EQ(outside.stats().quarantined_bytes, 0U);
}

TEST(OutsideWriter, APageIsInvisibleWithoutItsRequiredClassSetWhole) {
  ModelSpec spec = test_spec({.index_keys = true});
  spec.topology.tp = 2;
  Outside outside(std::move(spec));
  const auto keys = outside.world.keys(1);
  const auto reserved = outside.reserve(keys, 0);
  ASSERT_EQ(reserved.outcomes.size(), 3U) << "two shards of k and v, and one of the index keys";
  for (std::size_t i = 0; i < 3; ++i) outside.write(i);
  const auto outcomes = outside.commit(reserved.reservation, arrived({{0, {}}, {2, {}}}));
  EXPECT_EQ(outcomes[0], StoreOutcome::kAborted) << "the other shard has not arrived";
  EXPECT_EQ(outcomes[1], StoreOutcome::kNotArrived);
  EXPECT_FALSE(outside.visible(keys, 0));
  EXPECT_GT(outside.stats().quarantined_bytes, 0U);
  outside.exit();
  EXPECT_EQ(outside.stats().quarantined_bytes, 0U);
  // The page can be had again, all of it.
  outside.processes.gone.clear();
  const auto again = outside.reserve(keys, 0);
  EXPECT_EQ(again.outcomes[0], StoreOutcome::kAccepted);
}

TEST(OutsideWriter, AnAbsentItemOfThisProcessReturnsAtOnce) {
  Outside outside(test_spec({.state = true}));
  const auto keys = outside.world.keys(1);
  const auto reserved = outside.reserve(keys, 0, 0);
  outside.write(0);
  EXPECT_EQ(outside.commit(reserved.reservation, arrived({{0, {}}}))[1], StoreOutcome::kNotArrived);
  EXPECT_EQ(outside.stats().quarantined_bytes, 0U);
  EXPECT_EQ(outside.stats().payload_bytes, outside.world.form().classes[0].record_bytes);
}

TEST(OutsideWriter, ChecksumsAreComparedAndAWrongOneKeepsTheItemOut) {
  Outside outside(test_spec({.state = true}));
  const auto keys = outside.world.keys(2);
  auto reserved = outside.reserve(keys, 0);
  outside.write(0);
  outside.write(1);
  EXPECT_EQ(
      outside.commit(reserved.reservation, arrived({{0, outside.checksums(0)}, {1, outside.checksums(1)}})),
      (std::vector{StoreOutcome::kCommitted, StoreOutcome::kCommitted}));
  reserved = outside.reserve(keys, 1);
  outside.write(0, std::byte{1});
  outside.write(1);
  EXPECT_EQ(outside.commit(reserved.reservation,
                           arrived({{0, outside.checksums(0)}, {1, outside.checksums(1)}}))[0],
            StoreOutcome::kDamaged);
  EXPECT_FALSE(outside.visible(keys, 1));
  EXPECT_EQ(outside.stats().damaged_records, 1U);
}

TEST(OutsideWriter, ACommitThatMakesNoSenseTouchesNothing) {
  Outside outside(test_spec({.state = true}));
  const auto keys = outside.world.keys(1);
  const auto reserved = outside.reserve(keys, 0);
  outside.write(0);
  outside.write(1);
  auto short_of_one = outside.checksums(0);
  short_of_one.pop_back();
  const CommitRequest senseless[] = {arrived({{0, {}}, {0, {}}}), arrived({{2, {}}}),
                                     arrived({{0, short_of_one}})};
  for (const CommitRequest& what : senseless) {
    const auto refused = outside.world.node().commit(reserved.reservation, what);
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code, Code::kInvalidArgument) << refused.error().to_string();
  }
  EXPECT_EQ(outside.commit(reserved.reservation)[0], StoreOutcome::kCommitted);
}

class LessVerified : public testing::TestWithParam<Verification> {};

// The policy of the case; of samples, practically none.
void set_policy(NodeOptions& options) {
  options.verification = LessVerified::GetParam();
  options.sampled_one_in = 1'000'000;
}

TEST_P(LessVerified, TrustedChecksumsOfOtherBytesAreNeverDelivered) {
  Outside outside(test_spec({}), set_policy);
  const auto keys = outside.world.keys(1);
  const auto reserved = outside.reserve(keys, 0);
  CommitRequest what = arrived({{0, outside.checksums(0)}});
  what.trust_checksums = true;  // of bytes that never came
  EXPECT_EQ(outside.commit(reserved.reservation, what)[0], StoreOutcome::kCommitted);
  outside.exit();
  const TicketId ticket = outside.world.match(keys);
  ASSERT_EQ(outside.world.view(ticket).length, 1U);
  EXPECT_EQ(outside.world.load(ticket, 1).length, 0U);
  EXPECT_TRUE(outside.world.untouched_from(0, 1));
  EXPECT_EQ(outside.stats().damaged_records, 1U);
}

TEST_P(LessVerified, AWriteAfterTheCommitIsSeenWhileItsWriterLives) {
  Outside outside(test_spec({}), set_policy);
  const auto keys = outside.world.keys(1);
  const auto reserved = outside.reserve(keys, 0);
  outside.write(0);
  EXPECT_EQ(outside.commit(reserved.reservation)[0], StoreOutcome::kCommitted);
  EXPECT_EQ(outside.world.load(outside.world.match(keys), 1).length, 1U);
  outside.write(0, std::byte{1});  // against its word
  EXPECT_EQ(outside.world.load(outside.world.match(keys), 1).length, 0U);
  EXPECT_TRUE(outside.world.untouched_from(0, 1));
}

TEST_P(LessVerified, AfterItsExitOneVerifiedReadIsEnough) {
  Outside outside(test_spec({}), set_policy);
  const auto keys = outside.world.keys(1);
  const auto reserved = outside.reserve(keys, 0);
  outside.write(0);
  EXPECT_EQ(outside.commit(reserved.reservation)[0], StoreOutcome::kCommitted);
  EXPECT_EQ(outside.world.load(outside.world.match(keys), 1).length, 1U);
  outside.exit();
  EXPECT_EQ(outside.stats().unverified_bytes, 0U);
  for (int i = 0; i < 2; ++i) EXPECT_EQ(outside.world.load(outside.world.match(keys), 1).length, 1U);
  EXPECT_GT(outside.stats().unverified_bytes, 0U);
}

INSTANTIATE_TEST_SUITE_P(Policies, LessVerified,
                         testing::Values(Verification::kOncePerResidency, Verification::kSampled));

TEST(OutsideWriter, OneThatHasStoppedIsAsIfThisProcessWrote) {
  Outside outside;
  const auto keys = outside.world.keys(3);
  const auto aborted = outside.reserve(keys, 0);
  outside.world.node().abort(aborted.reservation);
  EXPECT_GT(outside.stats().quarantined_bytes, 0U);
  outside.world.node().writer_stopped(aborted.reservation);
  outside.world.node().writer_stopped(aborted.reservation);
  EXPECT_EQ(outside.stats().payload_bytes, 0U);

  const auto open = outside.reserve(keys, 0);
  outside.world.node().writer_stopped(open.reservation);
  outside.world.node().abort(open.reservation);
  EXPECT_EQ(outside.stats().payload_bytes, 0U);

  const auto expired = outside.reserve(keys, 0);
  outside.world.clock().advance(std::chrono::seconds(31));
  outside.world.node().poll();
  outside.world.node().writer_stopped(expired.reservation);
  EXPECT_EQ(outside.stats().payload_bytes, 0U);
}

TEST(OutsideWriter, EndsOfRequestAndSessionQuarantineToo) {
  Outside outside;
  const auto keys = outside.world.keys(2);
  StoreRequest request = outside.world.store_request(keys, 0, ClassId(0), RequestId(7));
  ASSERT_TRUE(outside.world.node().reserve(request, kPid));
  outside.world.node().request_abort(RequestId(7));
  const std::uint64_t one = outside.stats().quarantined_bytes;
  EXPECT_GT(one, 0U);
  ASSERT_TRUE(outside.world.node().reserve(outside.world.store_request(keys, 1, ClassId(0)), kPid));
  ASSERT_TRUE(outside.world.node().close_session(outside.world.session()).ok());
  EXPECT_EQ(outside.stats().quarantined_bytes, 2 * one);
  outside.exit();
  EXPECT_EQ(outside.stats().payload_bytes, 0U);
}

TEST(OutsideWriter, SlotsUnderALivingWriterAreNoRoomForAnybody) {
  const std::uint64_t page_bytes = make_storage_form(test_spec({})).value().classes[0].record_bytes;
  Outside outside(test_spec({}), [&](NodeOptions& options) { options.record_bytes_max = 4 * page_bytes; });
  const auto keys = outside.world.keys(4);
  for (std::uint64_t page = 0; page < 4; ++page) {
    const auto reserved = outside.reserve(keys, page);
    ASSERT_EQ(reserved.outcomes[0], StoreOutcome::kAccepted);
    outside.world.node().abort(reserved.reservation);
  }
  EXPECT_EQ(outside.world.store(keys, 0, ClassId(0))[0], StoreOutcome::kNoRoom);
  outside.exit();
  EXPECT_EQ(outside.world.store(keys, 0, ClassId(0))[0], StoreOutcome::kAccepted);
}

TEST(OutsideWriter, OneThatHasExitedOrCannotBeKnownIsAnErrorAndReservesNothing) {
  Outside outside;
  const auto keys = outside.world.keys(1);
  outside.processes.gone.insert(kPid);
  const auto late = outside.world.node().reserve(outside.world.store_request(keys, 0, ClassId(0)), kPid);
  ASSERT_FALSE(late);
  EXPECT_EQ(late.error().code, Code::kNotFound);
  TestWorld alone({.spec = test_spec({})});
  const auto unknown = alone.node().reserve(alone.store_request(keys, 0, ClassId(0)), kPid);
  ASSERT_FALSE(unknown);
  EXPECT_EQ(unknown.error().code, Code::kUnsupported);
  EXPECT_EQ(outside.stats().payload_bytes + alone.node().stats().payload_bytes, 0U);
}

TEST(OutsideWriter, OneWatchServesAllItsReservationsAndItsBytesAreToldByPid) {
  Outside outside;
  const auto keys = outside.world.keys(3);
  const auto first = outside.reserve(keys, 0);
  outside.reserve(keys, 1);
  outside.reserve(keys, 2, kPid + 1);
  EXPECT_EQ(outside.processes.watches, 2);
  outside.world.node().abort(first.reservation);
  const std::uint64_t page = outside.world.form().classes[0].record_bytes;
  const auto writers = outside.world.node().writers();
  ASSERT_EQ(writers.size(), 2U);
  EXPECT_EQ(writers[0].pid, kPid);
  EXPECT_EQ(writers[0].reservations, 1U);
  EXPECT_EQ(writers[0].reserved_bytes, page);
  EXPECT_EQ(writers[0].quarantined_bytes, page);
  EXPECT_EQ(writers[1].pid, kPid + 1);
  outside.exit();
  EXPECT_EQ(outside.world.node().writers().size(), 1U);
  // The number is given to another process now.
  outside.processes.gone.clear();
  outside.reserve(keys, 0);
  EXPECT_EQ(outside.processes.watches, 3);
}

}  // namespace
}  // namespace tiercel
