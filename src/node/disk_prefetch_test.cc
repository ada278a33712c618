// H14: prefetches that cannot finish, every policy in every situation; H08: a thousand that are given up in
// every way. Each ends once, says what is really there, and gives back what it had.

#include <map>
#include <set>

#include <gtest/gtest.h>

#include "base/prng.h"
#include "disk/test_block_device.h"
#include "node/test_world.h"

namespace tiercel {
namespace {

constexpr Duration kLimit = std::chrono::milliseconds(200);
constexpr std::array kPolicies = {PrefetchPolicy::kBestEffort, PrefetchPolicy::kWaitComplete,
                                  PrefetchPolicy::kTimeout};

// A node on a drive that has `pages` pages of a conversation, none of them in the host tier.
class Bed {
 public:
  explicit Bed(std::uint64_t pages, const TestModel& model = {}) {
    options_.spec = test_spec(model);
    options_.adjust = [](NodeOptions& node) {
      node.disk.prefetch_threshold_tokens = 1;
      node.disk.prefetch_base = kLimit;
      node.disk.prefetch_per_1024_tokens = Duration(0);
      node.load_back_threshold_tokens = 1;
    };
    open();
    keys = world->keys(pages);
    world->store_pages(keys, {});
    EXPECT_TRUE(world->node().flush());
    settle();
    world->node().drain_completions();
  }
  ~Bed() { close(); }
  // As after the end of its process. `adjust`: one more option.
  void reopen(const std::function<void(NodeOptions&)>& adjust = {}) {
    close();
    if (adjust)
      options_.adjust = [first = options_.adjust, adjust](NodeOptions& node) {
        first(node);
        adjust(node);
      };
    open();
  }

  OperationId prefetch(PrefetchPolicy policy, std::span<const Key> of, SessionId session = {},
                       RequestId request = {}) {
    PrefetchRequest wanted;
    wanted.session = session == SessionId{} ? world->session() : session;
    wanted.ns = world->ns();
    wanted.request = request;
    wanted.keys = of;
    wanted.policy = policy;
    const auto id = world->node().prefetch(wanted);
    EXPECT_TRUE(id) << id.error().to_string();
    return id.value_or(OperationId{});
  }
  void close_session(SessionId owner) { EXPECT_TRUE(world->node().close_session(owner).ok()); }
  void poll() {
    clock.advance(std::chrono::milliseconds(1));
    world->clock().advance(std::chrono::milliseconds(1));
    world->node().poll();
  }
  void settle() {
    for (int i = 0; i < 64; ++i) world->node().poll();
  }
  // The results since the last time, by operation; each may come once.
  std::map<OperationId, PrefetchResult> results() {
    std::map<OperationId, PrefetchResult> out;
    for (Completion& completion : world->node().drain_completions())
      if (completion.kind == CompletionKind::kPrefetched) {
        EXPECT_TRUE(out.emplace(completion.operation, std::move(*completion.prefetch)).second);
      }
    return out;
  }
  void hold_reads(bool held) {
    drive.held = {};
    if (held) drive.held = [](const BlockRequest& request) { return request.work == BlockWork::kRead; };
  }
  // Nothing that a prefetch had is left with it.
  void expect_nothing_kept(std::string_view after) {
    const Stats& stats = world->node().stats();
    EXPECT_EQ(stats.prefetch_bytes, 0) << after;
    EXPECT_EQ(stats.disk_reading_bytes, 0) << after;
    EXPECT_EQ(stats.leased_bytes, 0) << after;
    EXPECT_EQ(stats.pinned_pages, 0) << after;
    EXPECT_EQ(stats.reserved_bytes, 0) << after;
    const Audit audit = world->node().audit();
    EXPECT_EQ(audit.inconsistency.value_or(""), "") << after;
    for (const AuditResidence& set : audit.residences) EXPECT_FALSE(set.reading) << after;
    EXPECT_TRUE(audit.operations.empty()) << after;
  }

  ManualClock clock;  // of the drive; the world has its own
  TestBlockDevice drive{32 << 20, clock};
  std::unique_ptr<DiskLog> log;
  std::unique_ptr<TestWorld> world;
  std::vector<Key> keys;

 private:
  void open() {
    DiskLogOptions log_options;
    log_options.region_bytes = 1 << 20;
    log_options.segment_bytes = 64 << 10;
    log_options.index_entries = 8192;
    log_options.admission = DiskAdmission::kAll;
    log_options.errors_to_trip = 1'000'000;  // one bad place is not a bad drive
    log_options.stall_after = std::chrono::hours(1);
    Digest uuid{};
    uuid[0] = std::byte{7};
    auto opened = DiskLog::open(log_options, drive, clock, uuid);
    EXPECT_TRUE(opened) << opened.error().to_string();
    log = std::move(*opened);
    options_.disk = log.get();
    world = std::make_unique<TestWorld>(options_);
  }
  void close() {
    hold_reads(false);
    world.reset();
    log.reset();
  }
  TestOptions options_;
};

std::uint64_t missed_for(const PrefetchResult& result, Reason reason) {
  std::uint64_t pages = 0;
  for (const Miss& miss : result.missed) pages += miss.reason == reason ? miss.pages : 0;
  return pages;
}

// ---- H14 ----

TEST(H14Disk, AReadErrorInTheMiddleEndsWithWhatIsBeforeIt) {
  for (const PrefetchPolicy policy : kPolicies) {
    Bed bed(8);
    bed.reopen();
    std::uint64_t bad = UINT64_MAX, reads = 0;
    bed.drive.failure = [&](const BlockRequest& request) -> Status {
      if (request.work != BlockWork::kRead) return {};
      if (reads++ == 3) bad = request.offset;  // page 3, whenever it is asked for
      return request.offset == bad ? Status{Code::kIoError, "a bad place"} : Status{};
    };
    const OperationId id = bed.prefetch(policy, bed.keys);
    bed.settle();
    const auto results = bed.results();
    ASSERT_EQ(results.count(id), 1U);
    EXPECT_EQ(results.at(id).length, 3U);
    EXPECT_EQ(missed_for(results.at(id), Reason::kTierDown), 1U);
    bed.expect_nothing_kept("a read error");
    EXPECT_EQ(bed.world->view(bed.world->match(bed.keys)).length, 3U);
  }
}

TEST(H14Disk, WithNothingInStorageItEndsWithNothing) {
  for (const PrefetchPolicy policy : kPolicies) {
    Bed bed(8);
    bed.reopen();
    const std::vector<Key> unknown = bed.world->keys(8, 5);
    const OperationId id = bed.prefetch(policy, unknown);
    bed.poll();
    const auto results = bed.results();
    ASSERT_EQ(results.count(id), 1U) << "there is nothing to wait for";
    EXPECT_TRUE(results.at(id).status.ok());
    EXPECT_EQ(results.at(id).length, 0U);
    EXPECT_EQ(results.at(id).wanted_pages, 0U);
    bed.expect_nothing_kept("nothing there");
  }
}

TEST(H14Disk, BelowTheThresholdItIsNotBegunAndSaysSo) {
  for (const PrefetchPolicy policy : kPolicies) {
    Bed bed(8);
    bed.reopen([](NodeOptions& node) { node.disk.prefetch_threshold_tokens = 8 * 16 + 1; });
    const OperationId id = bed.prefetch(policy, bed.keys);
    bed.poll();
    const auto results = bed.results();
    ASSERT_EQ(results.count(id), 1U);
    EXPECT_EQ(results.at(id).length, 0U);
    EXPECT_EQ(missed_for(results.at(id), Reason::kBelowThreshold), 8U);
    EXPECT_EQ(bed.world->node().stats().promoted, 0U);
    bed.expect_nothing_kept("too little");
  }
}

// A drive that does not answer: also for one class alone, as a side pool whose read sleeps for ever.
TEST(H14Disk, WhatSleepsForEverEndsAtItsLimitOrWhenItIsCancelled) {
  for (const bool side_pool : {false, true})
    for (const PrefetchPolicy policy : kPolicies) {
      Bed bed(8, {.index_keys = true});
      bed.reopen();
      std::set<std::uint64_t> sleepers;  // where the side pool's records lie
      for (const Key& key : bed.keys)
        sleepers.insert(bed.log->find({bed.log->spaces().at(0).id, key, ClassId(1)}, true).value().offset);
      bool held = true;
      bed.drive.held = [&](const BlockRequest& request) {
        return held && request.work == BlockWork::kRead && (!side_pool || sleepers.contains(request.offset));
      };
      const OperationId id = bed.prefetch(policy, bed.keys);
      const Time limit = bed.world->clock().now() + kLimit;
      while (bed.world->clock().now() < limit - std::chrono::milliseconds(1)) {
        bed.poll();
        ASSERT_TRUE(bed.results().empty()) << "not all of it has come";
      }
      if (policy == PrefetchPolicy::kTimeout)
        bed.poll();
      else
        bed.world->node().cancel(id);
      bed.poll();
      const auto results = bed.results();
      ASSERT_EQ(results.count(id), 1U);
      EXPECT_EQ(results.at(id).status.code,
                policy == PrefetchPolicy::kTimeout ? Code::kDeadlineExceeded : Code::kCancelled);
      EXPECT_EQ(results.at(id).length, 0U);
      held = false;
      bed.settle();
      EXPECT_TRUE(bed.results().empty()) << "once";
      bed.expect_nothing_kept("late reads");
      // What came late is there all the same.
      const TicketId ticket = bed.world->match(bed.keys);
      EXPECT_EQ(bed.world->view(ticket).length, 8U);
      EXPECT_EQ(bed.world->load(ticket, 8).length, 8U);
      EXPECT_EQ(bed.world->wrong_bytes(bed.keys, 8), "");
    }
}

TEST(H14Disk, PolledBeforeAnythingWasReadItIsNotDone) {
  for (const PrefetchPolicy policy : kPolicies) {
    Bed bed(8);
    bed.reopen();
    bed.drive.room = 0;  // the drive takes nothing at all yet
    const OperationId id = bed.prefetch(policy, bed.keys);
    for (int i = 0; i < 10; ++i) {
      bed.poll();
      ASSERT_TRUE(bed.results().empty()) << "not started is not done";
    }
    bed.drive.room = SIZE_MAX;
    bed.settle();
    const auto results = bed.results();
    ASSERT_EQ(results.count(id), 1U);
    EXPECT_TRUE(results.at(id).status.ok());
    EXPECT_EQ(results.at(id).length, 8U);
    EXPECT_EQ(results.at(id).brought_pages, 8U);
    bed.expect_nothing_kept("a late start");
  }
}

TEST(H14Disk, ABestEffortPrefetchEndsWhenItsRequestAsks) {
  Bed bed(8);
  bed.reopen();
  bed.hold_reads(true);
  const RequestId request(9);
  const OperationId id = bed.prefetch(PrefetchPolicy::kBestEffort, bed.keys, {}, request);
  bed.poll();
  MatchQuery query;
  query.session = bed.world->session();
  query.ns = bed.world->ns();
  query.request = request;
  query.keys = bed.keys;
  const TicketId ticket = bed.world->node().match(query).value();
  bed.poll();
  EXPECT_EQ(bed.results().count(id), 1U);
  bed.hold_reads(false);
  bed.settle();
  bed.world->node().release(ticket);
  bed.expect_nothing_kept("its request asked");
}

// ---- H08 ----

TEST(H08Disk, AThousandGivenUpPrefetchesLeaveTheBudgetWhole) {
  constexpr std::uint64_t kPages = 64, kEach = 4;
  Bed bed(kPages);
  bed.reopen([](NodeOptions& node) { node.pages_max = 32; });  // so that most are read again
  Prng random(8);
  std::uint64_t reads_that_fail = 0;
  bed.drive.failure = [&](const BlockRequest& request) -> Status {
    if (request.work != BlockWork::kRead || reads_that_fail == 0) return {};
    --reads_that_fail;
    return {Code::kIoError, "the test's drive does not read here"};
  };
  enum Way { kCancelBefore, kCancelWhileReading, kNeverUsed, kReadError, kTimeOut, kOwnerGone, kWays };
  std::array<int, kWays> done{};
  for (int round = 0; round < 1000; ++round) {
    const auto way = static_cast<Way>(random.below(kWays));
    ++done[way];
    const std::uint64_t pages = kEach * (1 + random.below(kPages / kEach));
    const std::span<const Key> keys(bed.keys.data(), pages);
    const SessionId owner = bed.world->node().open_session({"owner", "salt", {}}).value();
    bed.hold_reads(way == kCancelWhileReading || way == kTimeOut || way == kOwnerGone);
    if (way == kCancelBefore) bed.drive.room = 0;
    if (way == kReadError) reads_that_fail = 1 + random.below(kEach);
    const PrefetchPolicy policy = way == kTimeOut ? PrefetchPolicy::kTimeout : kPolicies[random.below(2)];
    const OperationId id = bed.prefetch(policy, keys, owner);
    if (way != kCancelBefore) bed.poll();
    if (way == kCancelBefore || way == kCancelWhileReading) bed.world->node().cancel(id);
    if (way == kTimeOut) bed.world->clock().advance(kLimit);
    if (way == kOwnerGone) bed.close_session(owner);
    bed.poll();
    bed.drive.room = SIZE_MAX;
    bed.hold_reads(false);
    bed.settle();
    reads_that_fail = 0;
    ASSERT_EQ(bed.results().count(id), 1U) << "round " << round << " way " << way;
    if (way != kOwnerGone) bed.close_session(owner);
    bed.settle();
    bed.expect_nothing_kept("round " + std::to_string(round));
    ASSERT_FALSE(HasFailure()) << "way " << way;
  }
  for (const int times : done) EXPECT_GT(times, 100);
  // One at full size: half of what there is.
  const OperationId id = bed.prefetch(PrefetchPolicy::kWaitComplete, std::span(bed.keys).first(32));
  bed.settle();
  const auto results = bed.results();
  ASSERT_EQ(results.count(id), 1U);
  EXPECT_EQ(results.at(id).length, 32U);
  bed.expect_nothing_kept("the last one");
}

// ---- a full index ----

TEST(NodeDiskRoom, WhatComesUpTakesTheRoomOfWhatWasUsedLongAgoInTheIndexToo) {
  Bed bed(4);
  std::vector<std::vector<Key>> chains;
  for (std::uint32_t branch = 1; branch <= 80; ++branch) {
    chains.push_back(bed.world->keys(2, branch));
    bed.world->store_pages(chains.back(), {});
  }
  EXPECT_TRUE(bed.world->node().flush());
  bed.settle();
  bed.reopen([](NodeOptions& node) {
    node.index_pages_max = 40;
    node.index_strips_max = 20;
  });
  for (const std::vector<Key>& keys : chains) {
    const OperationId id = bed.prefetch(PrefetchPolicy::kWaitComplete, keys);
    bed.settle();
    const auto results = bed.results();
    ASSERT_EQ(results.count(id), 1U);
    ASSERT_EQ(results.at(id).length, 2U);
  }
  bed.expect_nothing_kept("a full index");
}

}  // namespace
}  // namespace tiercel
