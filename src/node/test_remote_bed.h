// A store that outlives the machines that use it, for tests of the node over a remote tier.
//
// Threads: one thread.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "node/test_disk_bed.h"
#include "remote/test_store_twin.h"

namespace tiercel {

// One store, and machines that use it.
struct RemoteBed {
  struct Machine {
    std::unique_ptr<StoreTwin> store;
    std::unique_ptr<InlineExecutor> executor;
    std::unique_ptr<RemoteTier> tier;
    std::unique_ptr<TestWorld> world;
    ~Machine() {
      world.reset();
      tier.reset();
    }
    Node& node() { return world->node(); }
  };

  explicit RemoteBed(const TestModel& model = {}) { options.spec = test_spec(model); }

  Machine& machine(DiskLog* disk = nullptr) {
    auto made = std::make_unique<Machine>();
    made->store = std::make_unique<StoreTwin>(objects, clock, nature, ++seed);
    made->executor = std::make_unique<InlineExecutor>();
    Digest own{};
    own[0] = static_cast<std::byte>(seed);
    made->tier = RemoteTier::open(tier_options, *made->store, clock, *made->executor, own).value();
    TestOptions world = options;
    world.clock = &clock;
    world.remote = made->tier.get();
    world.disk = disk;
    made->world = std::make_unique<TestWorld>(world);
    machines.push_back(std::move(made));
    settle(*machines.back());
    return *machines.back();
  }

  void settle(Machine& machine, Duration at_most = std::chrono::milliseconds(200)) {
    const Time until = later(clock.now(), at_most);
    while (clock.now() < until) {
      machine.node().poll();
      machine.tier->wait(std::chrono::milliseconds(1));
    }
    machine.node().poll();
  }

  MatchQuery query(Machine& machine, const std::vector<Key>& keys) {
    MatchQuery query;
    query.session = machine.world->session();
    query.ns = machine.world->ns();
    query.keys = keys;
    query.may_promote = true;
    query.deadline = std::chrono::seconds(5);
    return query;
  }
  TicketId promoted(Machine& machine, const std::vector<Key>& keys) {
    const TicketId ticket = machine.node().match(query(machine, keys)).value();
    const Time until = later(clock.now(), std::chrono::seconds(20));
    while (machine.world->view(ticket).pending && clock.now() < until) {
      machine.node().poll();
      machine.tier->wait(std::chrono::milliseconds(1));
    }
    EXPECT_FALSE(machine.world->view(ticket).pending);
    return ticket;
  }
  void expect_served(Machine& machine, const std::vector<Key>& keys, std::uint64_t length) {
    const TicketId ticket = promoted(machine, keys);
    ASSERT_EQ(machine.world->view(ticket).length, length);
    const LoadResult result = machine.world->load(ticket, length);
    EXPECT_TRUE(result.status.ok()) << result.status.to_string();
    EXPECT_EQ(result.length, length);
    EXPECT_EQ(machine.world->wrong_bytes(keys, length), "");
    machine.node().release(ticket);
  }
  // Objects of one page of this chain, not those of a run.
  void lose(const Key& key) {
    std::erase_if(objects,
                  [&](const auto& object) { return object.first.find(to_hex(key)) != std::string::npos; });
  }

  TwinObjects objects;
  ManualClock clock;
  TwinNature nature;
  RemoteTierOptions tier_options;
  TestOptions options;
  std::uint64_t seed = 0;
  std::vector<std::unique_ptr<Machine>> machines;
};

}  // namespace tiercel
