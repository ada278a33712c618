#include <algorithm>
#include <memory>

#include <gtest/gtest.h>

#include "model/resume.h"
#include "sim/chain_view.h"
#include "sim/checkers.h"
#include "sim/disk_checkers.h"
#include "sim/disk_scenario.h"
#include "sim/faults.h"
#include "sim/simulation.h"

namespace tiercel::sim {
namespace {

StorageForm form_of_spec(std::string_view spec) {
  auto form = make_storage_form(make_scenario(spec, 1).models.front().spec);
  EXPECT_TRUE(form.has_value());
  return *std::move(form);
}

Key key_of(std::uint64_t number) { return Key{{number, mix64(number)}}; }

class CountingTask final : public Task {
 public:
  explicit CountingTask(std::vector<int>& ran, int number) : ran_(ran), number_(number) {}
  void run() override { ran_.push_back(number_); }

 private:
  std::vector<int>& ran_;
  int number_;
};

TEST(Content, EveryByteOfARecordNamesItsComputation) {
  const StorageForm form = form_of_spec("hybrid");
  const RecordName name{7, key_of(1), ClassId(0), ShardId(1)};
  const auto payload = make_payload(form.classes[0], name, 42);
  EXPECT_EQ(whole_payload(form.classes[0], name, payload), Computation{42});
  for (std::size_t at = 0; at < payload.size(); ++at) {
    auto damaged = payload;
    damaged[at] ^= std::byte{1};
    EXPECT_NE(whole_payload(form.classes[0], name, damaged), Computation{42}) << at;
  }
}

TEST(Content, AnotherKeyClassShardOrNamespaceHasOtherBytes) {
  const StorageForm form = form_of_spec("hybrid");
  const ClassForm& cls = form.classes[0];
  const RecordName name{7, key_of(1), ClassId(0), ShardId(1)};
  const auto payload = make_payload(cls, name, 42);
  const RecordName others[] = {{8, key_of(1), ClassId(0), ShardId(1)},
                               {7, key_of(2), ClassId(0), ShardId(1)},
                               {7, key_of(1), ClassId(1), ShardId(1)},
                               {7, key_of(1), ClassId(0), ShardId(0)}};
  for (const RecordName& other : others) EXPECT_FALSE(whole_payload(cls, other, payload).has_value());
}

TEST(Content, LayersOfTwoComputationsAreNoRecord) {
  const StorageForm form = form_of_spec("full");
  const ClassForm& cls = form.classes[0];
  const RecordName name{7, key_of(1), ClassId(0), ShardId(0)};
  auto payload = make_payload(cls, name, 1);
  const auto other = make_payload(cls, name, 2);
  const LayerRun& last = cls.layers.back();
  std::copy_n(other.begin() + static_cast<std::ptrdiff_t>(last.offset), last.length,
              payload.begin() + static_cast<std::ptrdiff_t>(last.offset));
  EXPECT_FALSE(whole_payload(cls, name, payload).has_value());
}

TEST(SimExecutor, RunsEachTaskOnceInAnyOrder) {
  SimExecutor executor({.in_order = false, .at_once = false, .held_back = 0.5, .rounds_max = 20}, 3);
  std::vector<int> ran;
  for (int i = 0; i < 50; ++i) executor.submit(std::make_unique<CountingTask>(ran, i));
  while (executor.held() > 10) executor.run_some(4);
  executor.run_all();
  EXPECT_FALSE(std::is_sorted(ran.begin(), ran.end()));
  std::sort(ran.begin(), ran.end());
  EXPECT_EQ(ran.size(), 50U);
  EXPECT_EQ(std::unique(ran.begin(), ran.end()), ran.end());
  EXPECT_EQ(executor.ran(), 50U);
}

TEST(SimDevice, FailsTheAccessItIsToldToAndThenNoMore) {
  SimDevice device(64);
  std::vector<std::byte> bytes(8);
  device.fail_read(1);
  EXPECT_TRUE(device.read(0, bytes).ok());
  EXPECT_EQ(device.read(0, bytes).code, Code::kIoError);
  EXPECT_TRUE(device.read(0, bytes).ok());
  EXPECT_EQ(device.read_errors(), 1U);
}

TEST(SimArena, DamageChangesOneByteAndIsSeen) {
  SimArena arena(256, 1, false);
  const std::vector<ArenaSpan> spans{{128, 32}, {0, 32}};
  arena.write(spans, 0, std::vector<std::byte>(64, std::byte{1}));
  arena.damage(spans, 40);
  const auto bytes = arena.read(spans, 0, 64);
  EXPECT_EQ(std::count(bytes.begin(), bytes.end(), std::byte{1}), 63);
  EXPECT_NE(bytes[40], std::byte{1});
}

TEST(Engine, AWriteToAFreeSlotIsFound) {
  const StorageForm form = form_of_spec("hybrid");
  SimDevice device(Engine::bytes_needed(form));
  Engine engine(device);
  engine.add_form(FormId(1), form);
  const auto slot = engine.take(FormId(1), ClassId(0), ShardId(0));
  ASSERT_TRUE(slot.has_value());
  engine.write(*slot, make_payload(form.classes[0], {}, 1));
  EXPECT_FALSE(engine.stray_write().has_value());
  engine.give_back(*slot);
  EXPECT_FALSE(engine.stray_write().has_value());
  device.bytes()[device.size_bytes() / 3] = std::byte{0};
  EXPECT_TRUE(engine.stray_write().has_value());
}

TEST(Scenario, EverySpecHasValidModelsWhoseLayersCanCarryContent) {
  for (const SpecName& spec : spec_names())
    for (const ScenarioModel& model : make_scenario(spec.name, 1).models) {
      const auto form = make_storage_form(model.spec);
      ASSERT_TRUE(form.has_value()) << spec.name << ": " << form.error().to_string();
      for (const ClassForm& cls : form->classes)
        for (const LayerRun& layer : cls.layers) EXPECT_GE(layer.length, kLayerBytesMin) << spec.name;
    }
}

TEST(Scenario, FollowsFromTheSeedAlone) {
  for (std::uint64_t seed = 1; seed < 50; ++seed) {
    const std::string_view spec = spec_names()[seed % spec_names().size()].name;
    const Scenario a = make_scenario(spec, seed);
    const Scenario b = make_scenario(spec, seed);
    EXPECT_EQ(a.options.host_bytes, b.options.host_bytes);
    EXPECT_EQ(a.prompt_pages_max, b.prompt_pages_max);
    EXPECT_EQ(a.options.policy, b.options.policy);
  }
}

Event event_of(std::uint64_t sequence, EventKind kind, std::uint64_t key,
               std::optional<std::uint64_t> parent) {
  Event event;
  event.sequence = sequence;
  event.kind = kind;
  event.ns = NamespaceId(1);
  event.key = key_of(key);
  if (parent) event.parent = key_of(*parent);
  event.classes = 1;
  event.cause = Cause::kEvicted;
  return event;
}

TEST(Book, KnowsDescendantsThroughAnEvictedPage) {
  Book book;
  book.apply(event_of(1, EventKind::kStored, 1, std::nullopt));
  book.apply(event_of(2, EventKind::kStored, 2, 1));
  book.apply(event_of(3, EventKind::kStored, 3, 2));
  book.apply(event_of(4, EventKind::kRemoved, 2, 1));
  const NamespaceId ns(1);
  EXPECT_EQ(book.presence({ns, key_of(2)}), 0U);
  EXPECT_EQ(book.find({ns, key_of(2)})->past, std::set<Reason>{Reason::kEvicted});
  EXPECT_EQ(book.descendants({ns, key_of(1)}).size(), 2U);
  book.apply(event_of(5, EventKind::kRemoved, 3, 2));
  EXPECT_TRUE(book.descendants({ns, key_of(1)}).empty());
}

TEST(Book, EveryDepartureIsAnotherLife) {
  Book book;
  const PageId page{NamespaceId(1), key_of(1)};
  book.apply(event_of(1, EventKind::kStored, 1, std::nullopt));
  book.apply(event_of(2, EventKind::kRemoved, 1, std::nullopt));
  book.apply(event_of(3, EventKind::kStored, 1, std::nullopt));
  EXPECT_EQ(book.find(page)->life, 1U);
  book.removed(page);
  EXPECT_EQ(book.find(page)->life, 2U);
  EXPECT_EQ(book.find(page)->removals, 1U);
}

// The simulator's own statement of the resume rule, against src/model's.
TEST(ChainView, AgreesWithTheModelOnRandomQuestions) {
  Prng prng(5);
  for (const char* spec : {"full_window", "full_state", "hybrid", "window", "state", "window_state"}) {
    Scene scene(make_scenario(spec, 1), 1);
    scene.scenario.options.off = false;
    ASSERT_TRUE(open_scene(scene).ok());
    const StorageForm& form = scene.models.front().form;
    for (int round = 0; round < 400; ++round) {
      SimTicket ticket;
      ticket.first_page = prng.below(4);
      const std::uint64_t pages = prng.between(1, 7);
      std::vector<Presence> presence;
      for (std::uint64_t i = 0; i < pages; ++i) {
        const std::uint64_t number = static_cast<std::uint64_t>(round) * 100 + i;
        Presence bits = 0;
        for (std::size_t c = 0; c < form.classes.size(); ++c) bits |= Presence{prng.chance(0.7)} << c;
        Event event = event_of(number, EventKind::kStored, number, std::nullopt);
        event.ns = scene.spaces.front().id;
        event.classes = bits;
        if (bits != 0) scene.book.apply(event);
        presence.push_back(bits);
        ticket.keys.push_back(event.key);
      }
      for (std::size_t c = 0; c < form.classes.size(); ++c) ticket.held.push_back(prng.below(7));
      if (prng.chance(0.5)) ticket.query.limit_tokens = prng.below(8 * form.spec.page_tokens);
      const ChainView mine = view_chain(scene, ticket);
      const ResumeAnswer rule =
          restorable(form, {presence, ticket.first_page, ticket.held, ticket.query.limit_tokens});
      EXPECT_EQ(mine.lengths, rule.lengths) << spec << " round " << round;
      EXPECT_EQ(mine.gap, rule.gap) << spec << " round " << round;
    }
  }
}

TEST(EventsChecker, SeesAHoleThatNobodyReported) {
  Scene scene(make_scenario("full", 1), 1);
  ASSERT_TRUE(open_scene(scene).ok());
  const auto checker = events_checker();
  Event cleared = event_of(2, EventKind::kCleared, 0, std::nullopt);
  scene.view.events.events = {cleared};
  EXPECT_TRUE(checker->check(scene).has_value());
}

TEST(BudgetChecker, SeesAByteThatIsMissing) {
  Scene scene(make_scenario("full", 1), 1);
  ASSERT_TRUE(open_scene(scene).ok());
  scene.view.after = scene.node->audit();
  const auto checker = budget_checker();
  EXPECT_FALSE(checker->check(scene).has_value());
  scene.view.after.stats.payload_bytes = 1;
  EXPECT_TRUE(checker->check(scene).has_value());
}

TEST(Simulation, EachSpecRunsCleanAndTwiceTheSame) {
  for (const SpecName& spec : spec_names()) {
    const RunOptions options{.seed = 11, .steps = 120, .spec = std::string(spec.name), .trace = false};
    const RunResult one = run(options);
    EXPECT_FALSE(one.caught.has_value()) << spec.name << ": " << one.caught->message;
    EXPECT_EQ(one.coverage.to_string(), run(options).coverage.to_string());
  }
}

TEST(Simulation, TheDiskLogAloneRunsCleanAndTwiceTheSame) {
  for (const SpecName& spec : disk_spec_names()) {
    const RunOptions options{.seed = 5, .steps = 300, .spec = std::string(spec.name), .trace = false};
    const RunResult one = run(options);
    EXPECT_FALSE(one.caught.has_value()) << spec.name << ": " << one.caught->message;
    EXPECT_EQ(one.coverage.to_string(), run(options).coverage.to_string());
  }
}

TEST(Faults, AreAtLeastFifteenEachWithACheckerThatExists) {
  EXPECT_GE(faults().size(), 15U);
  const auto checkers = all_checkers();
  const auto disk = disk_checkers();
  for (const Fault& fault : faults())
    EXPECT_TRUE(std::any_of(checkers.begin(), checkers.end(),
                            [&](const auto& each) { return each->name() == fault.checker; }) ||
                std::any_of(disk.begin(), disk.end(),
                            [&](const DiskChecker& each) { return each.name == fault.checker; }))
        << fault.name;
}

}  // namespace
}  // namespace tiercel::sim
