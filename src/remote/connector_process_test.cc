// A connector that dies, hangs, lies and is late, in a process of its own. Time is moved by hand wherever the
// node's patience is what is tested.
#include "remote/connector_process.h"

#include <csignal>
#include <functional>

#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "remote/test_remote.h"
#include "remote/test_store_bed.h"

namespace tiercel {
namespace {

using std::chrono::hours;
using std::chrono::milliseconds;
using std::chrono::seconds;

class ConnectorProcessTest : public testing::Test {
 protected:
  void open(const ConnectorOptions& options) {
    auto opened = ConnectorProcess::open(options, clock_, processes_);
    ASSERT_TRUE(opened) << opened.error().to_string();
    store_ = std::move(*opened);
    bed_ = std::make_unique<StoreBed>(*store_, clock_);
  }
  void open_ready(const ConnectorOptions& options = test_connector()) {
    open(options);
    ASSERT_TRUE(bed_->until_ready()) << store_->health().why_not;
  }
  RemoteBatchId ask(const std::string& name) {
    return bed_->submit({RemoteVerb::kExists, {{name, {}}}, later(clock_.now(), hours(1))});
  }
  RemoteItem item(const std::string& name, std::uint64_t offset, std::uint64_t bytes) {
    return {name, {{0, offset, bytes}}};
  }
  void signal(int number) {
    const int process = static_cast<int>(::syscall(SYS_pidfd_open, store_->health().pid, 0U));
    ASSERT_GE(process, 0);
    ASSERT_EQ(::syscall(SYS_pidfd_send_signal, process, number, nullptr, 0U), 0);
    ::close(process);
  }
  // Started anew, with time running as far as that needs.
  void expect_serves_again(std::uint64_t starts = 2) {
    ASSERT_TRUE(bed_->until([&] {
      if (!store_->health().ready) clock_.advance(milliseconds(5));
      return store_->health().ready && store_->health().starts >= starts;
    })) << store_->health().why_not;
    EXPECT_EQ(store_->health().why_not, "");
    EXPECT_EQ(bed_->run(RemoteVerb::kPut, {item("again", 0, 100)}), "ok");
    EXPECT_EQ(bed_->run(RemoteVerb::kExists, {{"again", {}}}), "ok");
  }

  ManualClock clock_;
  LinuxChildProcesses processes_;
  std::unique_ptr<ConnectorProcess> store_;
  std::unique_ptr<StoreBed> bed_;
};

TEST_F(ConnectorProcessTest, HasTheDescriptorsThatItWasGrantedAndNoOthers) {
  const int stray =
      ::open("/dev/null", O_RDONLY);  // NOLINT(android-cloexec-open): inherited, if nobody takes care
  auto arena = Mapping::open({.kind = MappingKind::kShared, .bytes = 2U << 20, .touch = {}, .numa = {}});
  ASSERT_TRUE(arena);
  for (const bool with_arena : {false, true}) {
    ConnectorOptions options = test_connector();
    options.environment = {"TIERCEL_TEST_EXTRA=as said"};
    if (with_arena) options.arena = {arena->fd(), 4096, 8192};
    open_ready(options);
    store_->ask_stats();
    ASSERT_TRUE(bed_->until([&] { return !store_->stats().empty(); }));
    EXPECT_EQ(store_->stats(),
              fmt::format(R"({{"descriptors":[0,1,2,3,4,5{}],"extra":"as said","own_group":true}})",
                          with_arena ? ",6" : ""));
  }
  ::close(stray);
}

TEST_F(ConnectorProcessTest, TakesNothingBeforeItsHello) {
  open(test_connector(R"({"hello": "never"})"));
  EXPECT_FALSE(store_->health().ready);
  EXPECT_NE(store_->health().why_not.find("starting"), std::string::npos);
  const auto refused = store_->submit({RemoteVerb::kExists, {{"a", {}}}, hours(1)});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Code::kUnavailable);
  EXPECT_EQ(store_->submit({RemoteVerb::kExists, {{"/", {}}}, hours(1)}).error().code,
            Code::kInvalidArgument);
}

// A wait that doubles, to a limit.
TEST_F(ConnectorProcessTest, WithoutAHelloIsKilledAndStartedAgainLaterAndLater) {
  ConnectorOptions options = test_connector(R"({"hello": "never"})");
  options.start_timeout = seconds(10);
  options.restart_wait = milliseconds(100);
  options.restart_wait_max = milliseconds(400);
  open(options);
  std::uint64_t starts = 1;
  for (const int wait : {100, 200, 400, 400}) {
    clock_.advance(seconds(10) - milliseconds(1));
    bed_->collect();
    EXPECT_EQ(store_->health().kills, starts - 1);
    clock_.advance(milliseconds(1));
    ASSERT_TRUE(bed_->until([&] { return store_->health().pid == 0; }));
    EXPECT_EQ(store_->health().kills, starts);
    EXPECT_NE(store_->health().why_not.find("no hello within 10 s"), std::string::npos)
        << store_->health().why_not;
    EXPECT_EQ(store_->next_due(), clock_.now() + milliseconds(wait));
    clock_.advance(milliseconds(wait - 1));
    bed_->collect();
    EXPECT_EQ(store_->health().starts, starts);
    clock_.advance(milliseconds(1));
    bed_->collect();
    EXPECT_EQ(store_->health().starts, ++starts);
  }
}

TEST_F(ConnectorProcessTest, WhyItCannotServeIsTold) {
  ConnectorOptions options =
      test_connector(R"({"hello": "fail", "say": "no master at\n127.0.0.1:1 \u00e4"})");
  open(options);
  ASSERT_TRUE(bed_->until([&] { return store_->health().pid == 0; }));
  const std::string why = store_->health().why_not;
  EXPECT_NE(why.find("no master at?127.0.0.1:1 ??; started again in"), std::string::npos) << why;
  clock_.advance(hours(1));
  bed_->collect();
  EXPECT_EQ(store_->health().starts, 2U);
}

TEST_F(ConnectorProcessTest, StrangeBeginningsAreNoHello) {
  for (const char* how : {"twice", "wrong", "exit"}) {
    open(test_connector(fmt::format(R"({{"hello": "{}"}})", how)));
    ASSERT_TRUE(bed_->until([&] { return store_->health().pid == 0; })) << how;
    EXPECT_NE(store_->health().why_not.find(std::string_view(how) == "exit" ? "exited with 5" : "nonsense"),
              std::string::npos)
        << store_->health().why_not;
  }
}

TEST_F(ConnectorProcessTest, AProgramThatIsNotThereIsToldAndTriedAgain) {
  ConnectorOptions options = test_connector();
  options.argv = {"no/such/connector"};
  open(options);
  EXPECT_NE(store_->health().why_not.find("no/such/connector"), std::string::npos)
      << store_->health().why_not;
  EXPECT_EQ(store_->health().starts, 0U);
  EXPECT_LT(store_->next_due(), hours(1));
  store_->close(Duration(0));
}

TEST_F(ConnectorProcessTest, OptionsThatMakeNoSenseAreRefused) {
  const auto code = [&](const std::function<void(ConnectorOptions&)>& spoil) {
    ConnectorOptions options = test_connector();
    spoil(options);
    const auto opened = ConnectorProcess::open(options, clock_, processes_);
    return opened ? Code::kOk : opened.error().code;
  };
  EXPECT_EQ(code([](auto& options) { options.argv.clear(); }), Code::kInvalidArgument);
  EXPECT_EQ(code([](auto& options) { options.config = "{\n}"; }), Code::kInvalidArgument);
  EXPECT_EQ(code([](auto& options) { options.config = std::string(1U << 20, ' '); }), Code::kInvalidArgument);
  EXPECT_EQ(code([](auto& options) { options.exchange.ring_bytes = 5000; }), Code::kInvalidArgument);
  EXPECT_EQ(code([](auto& options) { options.exchange.data_bytes = 0; }), Code::kInvalidArgument);
}

TEST_F(ConnectorProcessTest, WhenItIsKilledBatchesUnderWayAreDownAndItServesAgain) {
  open_ready();
  const auto one = ask("hold.1"), two = ask("hold.2");
  signal(SIGKILL);
  EXPECT_EQ(outcomes_text(bed_->end_of(one)), "down");
  EXPECT_EQ(outcomes_text(bed_->end_of(two)), "down");
  EXPECT_TRUE(bed_->quiet(one) && bed_->quiet(two));  // told only once its exit was known
  EXPECT_NE(store_->health().why_not.find("killed by signal 9"), std::string::npos)
      << store_->health().why_not;
  expect_serves_again();
  EXPECT_EQ(store_->health().kills, 0U);
}

TEST_F(ConnectorProcessTest, WhenItExitsByItselfItServesAgain) {
  open_ready();
  EXPECT_EQ(outcomes_text(bed_->end_of(ask("do.exit"))), "down");
  EXPECT_NE(store_->health().why_not.find("exited with 7"), std::string::npos) << store_->health().why_not;
  expect_serves_again();
}

TEST_F(ConnectorProcessTest, WhenItIsStoppedItIsKilledForWantOfAnAnswer) {
  ConnectorOptions options = test_connector();
  options.ping_every = seconds(1);
  options.ping_answer = seconds(2);
  open_ready(options);
  for (int i = 0; i < 20; ++i) {  // while it answers nothing happens
    clock_.advance(seconds(1));
    bed_->collect();
    ASSERT_TRUE(bed_->until([&] { return store_->next_due() == clock_.now() + seconds(1); }))
        << "no answer is seen";
  }
  const auto id = ask("do.stop");
  clock_.advance(seconds(1));
  bed_->collect();
  clock_.advance(seconds(2) - milliseconds(1));
  bed_->collect();
  EXPECT_EQ(store_->health().kills, 0U);
  EXPECT_FALSE(bed_->ended(id));
  clock_.advance(milliseconds(1));
  bed_->collect();
  EXPECT_EQ(store_->health().kills, 1U);
  EXPECT_EQ(outcomes_text(bed_->end_of(id)), "down");
  EXPECT_TRUE(bed_->quiet(id));
  expect_serves_again();
}

TEST_F(ConnectorProcessTest, ABatchBeyondItsDeadlineIsLateAndQuietWhenItsCompletionComes) {
  open_ready();
  const auto id = bed_->submit(
      {RemoteVerb::kGet, {item("hold", 0, 4096), item("b", 4096, 100)}, clock_.now() + seconds(5)});
  clock_.advance(seconds(5) - milliseconds(1));
  bed_->collect();
  EXPECT_FALSE(bed_->ended(id));
  EXPECT_EQ(store_->next_due(), clock_.now() + milliseconds(1));
  clock_.advance(milliseconds(1));
  bed_->collect();
  ASSERT_TRUE(bed_->ended(id));
  EXPECT_EQ(outcomes_text(bed_->end_of(id)), "late late");
  EXPECT_FALSE(bed_->quiet(id));
  EXPECT_EQ(store_->health().unquiet_batches, 1U);
  EXPECT_EQ(store_->health().unquiet_bytes, 4196U);
  EXPECT_EQ(outcomes_text(bed_->end_of(ask("do.release"))), "absent");
  ASSERT_TRUE(bed_->until([&] { return bed_->quiet(id); }));
  EXPECT_EQ(store_->health().unquiet_bytes, 0U);
  EXPECT_EQ(store_->health().starts, 1U);
  EXPECT_EQ(store_->health().kills, 0U);
}

TEST_F(ConnectorProcessTest, ABatchWithoutACompletionLongAfterItsDeadlineCostsTheProcess) {
  ConnectorOptions options = test_connector();
  options.kill_after = seconds(2);
  open_ready(options);
  const auto id = bed_->submit({RemoteVerb::kGet, {item("firm", 0, 4096)}, clock_.now() + seconds(1)});
  const auto other = ask("hold");
  clock_.advance(seconds(1));
  EXPECT_EQ(outcomes_text(bed_->end_of(id)), "late");
  clock_.advance(seconds(2) - milliseconds(1));
  bed_->collect();
  EXPECT_FALSE(bed_->quiet(id));
  EXPECT_EQ(store_->health().kills, 0U);
  clock_.advance(milliseconds(1));
  ASSERT_TRUE(bed_->until([&] { return bed_->quiet(id); }));
  EXPECT_EQ(store_->health().kills, 1U);
  EXPECT_EQ(outcomes_text(bed_->end_of(other)), "down");
  expect_serves_again();
}

TEST_F(ConnectorProcessTest, NonsenseCostsTheProcess) {
  for (const char* what : {"do.twice", "do.unknown", "do.items", "do.status", "do.tail", "do.noise"}) {
    open_ready();
    ask(what);
    ASSERT_TRUE(bed_->until([&] { return store_->health().pid == 0 || store_->health().starts > 1; }))
        << what;
    EXPECT_EQ(store_->health().kills, 1U);
    EXPECT_NE(store_->health().why_not.find("nonsense on its completion ring"), std::string::npos)
        << what << ": " << store_->health().why_not;
    ASSERT_TRUE(bed_->until_quiet()) << what;
    expect_serves_again();
  }
}

TEST_F(ConnectorProcessTest, APositionThatCannotBeCostsTheProcess) {
  open_ready();
  ask("do.head");
  ASSERT_TRUE(bed_->until([&] {
    if (store_->health().kills > 0) return true;
    auto id = store_->submit({RemoteVerb::kExists, {{"a", {}}}, hours(1)});
    if (id) bed_->add(*id, 1);
    return false;
  }));
  ASSERT_TRUE(bed_->until_quiet());
  expect_serves_again();
}

TEST_F(ConnectorProcessTest, BytesThatWereNotAskedForCostTheProcess) {
  open_ready();
  ASSERT_EQ(bed_->run(RemoteVerb::kPut, {item("liar", 0, 100)}), "ok");
  EXPECT_EQ(bed_->run(RemoteVerb::kGet, {item("liar", 0, 100)}), "down");
  EXPECT_EQ(store_->health().kills, 1U);
}

TEST_F(ConnectorProcessTest, OneItemMayFail) {
  open_ready(test_connector(R"({"capacity_bytes": 2000, "object_bytes_max": 1500})"));
  EXPECT_EQ(bed_->run(RemoteVerb::kPut, {item("a", 0, 1000), item("fail", 0, 10), item("b", 0, 1600),
                                         item("c", 0, 1400), item("d", 0, 1000)}),
            "ok failed too_large no_room ok");
}

TEST_F(ConnectorProcessTest, ThousandsOfCancelledBatchesLeaveNoPlaceTaken) {
  ConnectorOptions options = test_connector();
  options.batches_max = 16;
  options.exchange.ring_bytes = 4096;  // so that cancels find no room, too
  open_ready(options);
  for (int round = 0; round < 3000; ++round) store_->cancel(ask(round % 2 == 0 ? "hold" : "a"));
  ASSERT_TRUE(bed_->until_quiet());
  const RemoteHealth health = store_->health();
  EXPECT_EQ(health.batches_in_flight + health.unquiet_batches + health.unquiet_bytes, 0U);
  EXPECT_EQ(health.kills, 0U);
  EXPECT_EQ(bed_->run(RemoteVerb::kExists, {{"a", {}}}), "absent");
}

TEST_F(ConnectorProcessTest, ACancelledBatchEndsByItsOwnEnd) {
  open_ready();
  const auto soft = ask("hold"), firm = ask("firm");
  store_->cancel(soft);
  store_->cancel(firm);
  EXPECT_EQ(outcomes_text(bed_->end_of(soft)), "cancelled");
  EXPECT_FALSE(bed_->ended(firm));
  ask("do.release");
  EXPECT_EQ(outcomes_text(bed_->end_of(firm)), "absent");
}

TEST_F(ConnectorProcessTest, AFullRingRefusesAndTheKillEndsAllOfIt) {
  ConnectorOptions options = test_connector();
  options.exchange.ring_bytes = 4096;
  options.ping_answer = seconds(2);
  open_ready(options);
  ask("do.stop");
  Status refused;
  std::uint64_t taken = 0;
  for (; refused.ok() && taken < 1000; ++taken) {
    const auto id = store_->submit({RemoteVerb::kExists, {{std::string(100, 'n'), {}}}, hours(1)});
    if (id)
      bed_->add(*id, 1);
    else
      refused = id.error();
  }
  EXPECT_EQ(refused.code, Code::kResourceExhausted) << refused.to_string();
  EXPECT_LT(taken, 40U);
  EXPECT_EQ(
      store_
          ->submit({RemoteVerb::kExists, std::vector<RemoteItem>(20, {std::string(100, 'n'), {}}), hours(1)})
          .error()
          .code,
      Code::kInvalidArgument);   // never fits
  for (int i = 0; i < 2; ++i) {  // the question stands, though it found no room
    clock_.advance(seconds(2));
    bed_->collect();
  }
  EXPECT_EQ(store_->health().kills, 1U);
  ASSERT_TRUE(bed_->until_quiet());
  expect_serves_again();
}

TEST_F(ConnectorProcessTest, CloseEndsBatchesAndAProcessThatDoesNotListen) {
  open_ready();
  const auto held = ask("hold"), firm = ask("firm"), stop = ask("do.stop");
  store_->close(milliseconds(20));
  bed_->collect();
  for (const auto id : {held, firm, stop}) {
    ASSERT_TRUE(bed_->quiet(id));
    EXPECT_EQ(outcomes_text(bed_->end_of(id)), "cancelled");
  }
  EXPECT_EQ(store_->health().pid, 0U);
  EXPECT_EQ(store_->health().kills, 1U);
  EXPECT_EQ(store_->next_due(), Time::max());
  EXPECT_NE(store_->health().why_not.find(": closed"), std::string::npos) << store_->health().why_not;
}

TEST_F(ConnectorProcessTest, AProcessThatListensEndsByTheEndOfItsInput) {
  open_ready();
  store_->close(store_patience);
  EXPECT_EQ(store_->health().pid, 0U);
  EXPECT_EQ(store_->health().kills, 0U);
  EXPECT_NE(store_->health().why_not.find(": closed"), std::string::npos) << store_->health().why_not;
}

}  // namespace
}  // namespace tiercel
