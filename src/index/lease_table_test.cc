#include "index/lease_table.h"

#include <array>
#include <atomic>
#include <csignal>
#include <cstring>
#include <set>
#include <thread>
#include <vector>

#include <gtest/gtest.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/prng.h"
#include "index/lease_orders.h"
#include "index/test_lease_world.h"

namespace tiercel {
namespace {

constexpr LeaseTableShape kSmall{.clients_max = 3, .words_per_client = 72, .touches_per_client = 4};

struct Fixture {
  explicit Fixture(const LeaseTableShape& shape = kSmall)
      : pages(LeaseTable::bytes(shape).value()), table(LeaseTable::format(pages.view(), shape).value()) {}
  LeaseClient attach(ClientPlace place) const { return LeaseClient::attach(pages.view(), place).value(); }
  std::vector<std::uint8_t> scan(const std::vector<LeaseName>& victims) {
    std::vector<std::uint8_t> named(victims.size(), 7);
    table.scan(victims, named);
    return named;
  }
  SharedPages pages;
  LeaseTable table;
  std::atomic<std::uint32_t> version{2};
};

using Named = std::vector<std::uint8_t>;

// ---- Names ----

TEST(LeaseTable, ALeaseNamesItsCellsAndNoOthers) {
  Fixture at;
  LeaseClient client = at.attach(at.table.add_client(1).value());
  for (std::uint8_t first = 0; first < kLeaseCellsMax; ++first)
    for (std::uint8_t last = first; last < kLeaseCellsMax; ++last) {
      const std::uint32_t slot = client.lease({0xFFFF'FFFF, first, last}, at.version, 2).value();
      for (std::uint8_t from = 0; from < kLeaseCellsMax; ++from)
        for (std::uint8_t to = from; to < kLeaseCellsMax; ++to) {
          const std::uint8_t meet = from <= last && first <= to ? 1 : 0;
          ASSERT_EQ(at.scan({{0xFFFF'FFFF, from, to}, {0, from, to}}), (Named{meet, 0}))
              << int{first} << "-" << int{last} << " against " << int{from} << "-" << int{to};
        }
      client.release(slot);
    }
}

TEST(LeaseTable, ABatchIsAnsweredForEachVictimAlsoOfOneStripAndTwice) {
  Fixture at;
  LeaseClient one = at.attach(at.table.add_client(1).value());
  LeaseClient two = at.attach(at.table.add_client(2).value());
  one.lease({7, 2, 4}, at.version, 2).value();
  two.lease({7, 9, 9}, at.version, 2).value();
  two.lease({0, 0, 0}, at.version, 2).value();
  EXPECT_EQ(at.scan({{7, 0, 1}, {7, 4, 8}, {7, 9, 9}, {7, 9, 9}, {0, 0, 15}, {8, 2, 4}, {7, 5, 8}}),
            (Named{0, 1, 1, 1, 1, 0, 0}));
  EXPECT_EQ(at.scan({}), Named{});
}

TEST(LeaseTable, AgreesWithASetOfNamesOnRandomBatches) {
  Fixture at;
  Prng prng(5);
  const std::array places{at.table.add_client(1).value(), at.table.add_client(2).value()};
  std::array clients{at.attach(places[0]), at.attach(places[1])};
  struct Lease {
    std::size_t client;
    std::uint32_t slot;
    LeaseName name;
  };
  std::vector<Lease> held;
  const auto any_name = [&] {
    const auto first = static_cast<std::uint8_t>(prng.below(16));
    return LeaseName{static_cast<std::uint32_t>(prng.below(40)), first,
                     static_cast<std::uint8_t>(prng.between(first, 15))};
  };
  for (int step = 0; step < 2000; ++step) {
    if (prng.chance(0.5)) {
      const std::size_t client = prng.below(2);
      const LeaseName name = any_name();
      if (const auto slot = clients[client].lease(name, at.version, 2)) held.push_back({client, *slot, name});
    } else if (!held.empty()) {
      const std::size_t which = prng.below(held.size());
      clients[held[which].client].release(held[which].slot);
      held[which] = held.back();
      held.pop_back();
    }
    std::vector<LeaseName> victims(prng.below(100));
    for (LeaseName& victim : victims) victim = any_name();
    Named wanted;
    for (const LeaseName& victim : victims)
      wanted.push_back(std::any_of(held.begin(), held.end(), [&](const Lease& each) {
        return each.name.strip == victim.strip && each.name.first <= victim.last &&
               victim.first <= each.name.last;
      }));
    ASSERT_EQ(at.scan(victims), wanted) << "step " << step;
    ASSERT_EQ(at.table.leases(places[0]).size() + at.table.leases(places[1]).size(), held.size());
  }
}

// ---- Getting a lease ----

TEST(LeaseClient, OfAnotherVersionThereIsNoLeaseAndNothingStays) {
  Fixture at;
  const ClientPlace place = at.table.add_client(1).value();
  LeaseClient client = at.attach(place);
  at.version = 4;
  EXPECT_FALSE(client.lease({1, 0, 0}, at.version, 2).has_value());
  EXPECT_TRUE(at.table.leases(place).empty());
  at.version = 5;
  EXPECT_FALSE(client.lease({1, 0, 0}, at.version, 5).has_value()) << "being written";
  at.version = 0;
  EXPECT_FALSE(client.lease({1, 0, 0}, at.version, 0).has_value()) << "0 is no generation";
  EXPECT_TRUE(at.table.leases(place).empty());
  at.version = 0xABCD'EF02;
  ASSERT_TRUE(client.lease({9, 3, 11}, at.version, 0xABCD'EF02).has_value());
  const auto held = at.table.leases(place);
  ASSERT_EQ(held.size(), 1U);
  EXPECT_EQ(held[0].name, (LeaseName{9, 3, 11}));
  EXPECT_EQ(held[0].version_low, 0xCD'EF02U);
}

TEST(LeaseClient, WhenAllSlotsAreInUseThereIsNoLeaseUntilOneIsGivenBack) {
  Fixture at;
  LeaseClient client = at.attach(at.table.add_client(1).value());
  std::set<std::uint32_t> slots;
  for (std::uint32_t i = 0; i < client.slots(); ++i)
    slots.insert(client.lease({i, 0, 0}, at.version, 2).value());
  EXPECT_EQ(slots.size(), kSmall.words_per_client);
  EXPECT_EQ(*slots.rbegin(), kSmall.words_per_client - 1) << "none beyond the block";
  EXPECT_FALSE(client.lease({99, 0, 0}, at.version, 2).has_value());
  client.release(70);
  EXPECT_EQ(client.lease({99, 0, 0}, at.version, 2), 70U);
}

TEST(LeaseTable, AScanReadsTheWordsThatWereEverUsedOncePerBatch) {
  Fixture at;
  LeaseClient client = at.attach(at.table.add_client(1).value());
  at.table.add_client(2).value();
  const std::vector<LeaseName> victims(200, LeaseName{1, 0, 15});
  at.scan(victims);
  EXPECT_EQ(at.table.counts().words_read, 0U);
  for (std::uint32_t i = 0; i < 3; ++i) client.lease({i, 0, 0}, at.version, 2).value();
  client.release(2);
  at.scan(victims);
  EXPECT_EQ(at.table.counts().words_read, 3U);
  EXPECT_EQ(at.table.counts().victims_named, 200U);
  EXPECT_EQ(at.table.counts().scans, 2U);
}

// ---- Clients come and go ----

TEST(LeaseTable, ARemovedClientLeavesNothingAndItsPlaceHasANewEpoch) {
  Fixture at;
  const ClientPlace gone = at.table.add_client(11).value();
  LeaseClient client = at.attach(gone);
  for (std::uint32_t i = 0; i < 20; ++i) client.lease({i, 0, 15}, at.version, 2).value();
  client.touch({1, 2, Time{3}});
  EXPECT_EQ(at.scan({{4, 0, 0}}), Named{1});
  at.table.remove_client(gone);
  EXPECT_EQ(at.scan({{4, 0, 0}}), Named{0});
  EXPECT_EQ(at.table.clients(), 0U);
  EXPECT_EQ(at.table.counts().touches_lost, 1U) << "nobody drained it";
  EXPECT_EQ(LeaseClient::attach(at.pages.view(), gone).error().code, Code::kFailedPrecondition);

  const ClientPlace next = at.table.add_client(12).value();
  EXPECT_EQ(next.place, gone.place);
  EXPECT_NE(next.epoch, gone.epoch);
  at.table.remove_client(gone);
  EXPECT_EQ(at.table.clients(), 1U) << "the one before was removed already";
  EXPECT_EQ(LeaseClient::attach(at.pages.view(), gone).error().code, Code::kFailedPrecondition);
  EXPECT_EQ(at.attach(next).lease({1, 0, 0}, at.version, 2), 0U);
}

TEST(LeaseTable, HasAsManyPlacesAsItSays) {
  Fixture at;
  for (std::uint32_t i = 0; i < kSmall.clients_max; ++i) at.table.add_client(i).value();
  EXPECT_EQ(at.table.add_client(9).error().code, Code::kResourceExhausted);
}

// ---- Touches ----

std::vector<Touch> drain(LeaseTable& table) {
  std::vector<Touch> all;
  table.drain_touches([&](ClientPlace, const Touch& touch) { all.push_back(touch); });
  return all;
}

TEST(LeaseTable, TouchesArriveInOrderAndWhatFindsTheRingFullIsCounted) {
  Fixture at;
  LeaseClient client = at.attach(at.table.add_client(1).value());
  std::uint32_t page = 0;
  for (std::uint32_t turn = 0; turn < 10; ++turn) {
    std::vector<Touch> wanted;
    for (std::uint32_t i = 0; i < 6; ++i) {
      const Touch touch{0xFFFF'FF00 + ++page, 0x8000'0000 + page, Time{page}};
      client.touch(touch);
      if (i < 4) wanted.push_back(touch);
    }
    EXPECT_EQ(drain(at.table), wanted);
    EXPECT_EQ(at.table.counts().touches_lost, 2 * (turn + 1));
  }
  EXPECT_EQ(at.table.counts().touches, 40U);
  EXPECT_TRUE(drain(at.table).empty());
}

// ---- Foreign memory ----

TEST(LeaseTable, RefusesSizesOutOfRange) {
  for (const LeaseTableShape& shape :
       {LeaseTableShape{.clients_max = 0}, LeaseTableShape{.clients_max = 5000},
        LeaseTableShape{.words_per_client = 0}, LeaseTableShape{.words_per_client = 9},
        LeaseTableShape{.words_per_client = 1U << 20}, LeaseTableShape{.touches_per_client = 3},
        LeaseTableShape{.touches_per_client = 1U << 21}, LeaseTableShape{.first_epoch = 0}})
    EXPECT_EQ(LeaseTable::bytes(shape).error().code, Code::kInvalidArgument);
  const SharedPages pages(LeaseTable::bytes(kSmall).value());
  EXPECT_FALSE(LeaseTable::format(pages.view().first(pages.view().size() - 4097), kSmall).has_value());
  EXPECT_FALSE(LeaseTable::format(pages.view().subspan(8), kSmall).has_value());
}

TEST(LeaseClient, BelievesNoHeaderWithoutLooking) {
  Fixture at;
  const ClientPlace place = at.table.add_client(1).value();
  const MutableByteView region = at.pages.view();
  for (std::size_t byte = 0; byte < 40; ++byte)
    for (const unsigned flip : {1U, 0x80U, 0xFFU}) {
      region[byte] ^= static_cast<std::byte>(flip);
      EXPECT_FALSE(LeaseClient::attach(region, place).has_value()) << byte;
      region[byte] ^= static_cast<std::byte>(flip);
    }
  EXPECT_FALSE(LeaseClient::attach(region.first(100), place).has_value());
  EXPECT_FALSE(LeaseClient::attach(region.first(region.size() - 1), place).has_value());
  EXPECT_FALSE(LeaseClient::attach(region.subspan(1), place).has_value());
  EXPECT_FALSE(LeaseClient::attach(region, {kSmall.clients_max, 1}).has_value());
  EXPECT_FALSE(LeaseClient::attach(region, {1, 0}).has_value()) << "nobody's place";
  EXPECT_TRUE(LeaseClient::attach(region, place).has_value());
}

TEST(LeaseTable, WhateverAClientWritesIntoItsBlockTheOwnerStaysWithinIt) {
  Fixture at;
  const ClientPlace bad = at.table.add_client(1).value();
  LeaseClient good = at.attach(at.table.add_client(2).value());
  good.lease({3, 3, 3}, at.version, 2).value();
  good.touch({5, 6, Time{7}});
  const std::size_t block = (at.pages.view().size() - 4096) / kSmall.clients_max;
  Prng prng(3);
  for (int turn = 0; turn < 200; ++turn) {
    for (std::size_t i = 64; i < block; i += 8) {
      auto* const word = reinterpret_cast<std::atomic<std::uint64_t>*>(at.pages.view().data() + 4096 + i);
      word->store(prng.chance(0.2) ? 0 : prng.next(), std::memory_order_relaxed);
    }
    const Named named = at.scan({{3, 3, 3}, {4, 0, 0}});
    EXPECT_EQ(named[0], 1) << "others' leases are seen all the same";
    EXPECT_LE(drain(at.table).size(), kSmall.touches_per_client + (turn == 0 ? 1 : 0));
    EXPECT_LE(at.table.leases(bad).size(), kSmall.words_per_client);
  }
  at.table.remove_client(bad);
  EXPECT_EQ(at.scan({{3, 3, 3}, {4, 0, 0}}), (Named{1, 0}));
}

// ---- Threads and processes at work ----

constexpr std::uint64_t kRoundsLeast = 2000, kRoundsMost = 400'000, kNamedLeast = 10, kGrantedLeast = 1000;

// Until enough has happened to mean something; the bound is for a machine on which nothing does.
void evict_until(LeaseWorld& world, LeaseEvictor& evictor, std::size_t readers) {
  for (std::uint64_t round = 0; round < kRoundsMost; ++round) {
    evictor.round();
    if (round % 16 == 0) std::this_thread::yield();
    bool enough = round >= kRoundsLeast && world.table.counts().victims_named >= kNamedLeast;
    for (std::size_t i = 0; i < readers; ++i) {
      const LeaseWorld::Tally& tally = world.tallies->each[i];
      enough = enough && tally.granted.load(std::memory_order_relaxed) >= kGrantedLeast;
      if (tally.wrong.load(std::memory_order_relaxed) != 0) return;
    }
    if (enough) return;
  }
}

void expect_all_was_well(const LeaseWorld& world, std::size_t readers) {
  for (std::size_t i = 0; i < readers; ++i) {
    EXPECT_EQ(world.tallies->each[i].wrong.load(), 0U);
    EXPECT_GE(world.tallies->each[i].granted.load(), kGrantedLeast);
  }
  EXPECT_GE(world.table.counts().victims_named, kNamedLeast)
      << "the evictor never met a lease: nothing was tested";
}

TEST(LeasesAtWork, ThreadsReadOnlyWhatTheyLeased) {
  LeaseWorld world({.clients_max = 2, .words_per_client = 8, .touches_per_client = 2});
  LeaseEvictor evictor(world, 1);
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < 2; ++i)
    threads.emplace_back([&world, i, place = world.table.add_client(1).value()] {
      LeaseReader reader(world, place, i, 10 + i);
      while (!reader.tally().stop.load(std::memory_order_acquire)) reader.round();
    });
  evict_until(world, evictor, 2);
  for (std::size_t i = 0; i < 2; ++i) world.tallies->each[i].stop.store(true, std::memory_order_release);
  for (std::thread& each : threads) each.join();
  expect_all_was_well(world, 2);
}

TEST(LeasesAtWork, ThreadsOfOneClientShareItsWords) {
  Fixture at;
  const ClientPlace place = at.table.add_client(1).value();
  LeaseClient client = at.attach(place);
  std::array<std::atomic<std::uint32_t>, 72> users{};
  std::atomic<std::uint32_t> twice{0};
  std::vector<std::thread> threads;
  for (std::uint32_t thread = 0; thread < 3; ++thread)
    threads.emplace_back([&, thread] {
      for (std::uint32_t i = 0; i < 4000; ++i) {
        const auto slot = client.lease({thread, 0, 0}, at.version, 2);
        if (!slot) continue;
        if (users[*slot].fetch_add(1) != 0) ++twice;
        users[*slot].fetch_sub(1);
        client.release(*slot);
      }
    });
  for (std::uint32_t i = 0; i < 100; ++i) at.scan({{0, 0, 0}, {1, 0, 0}, {2, 0, 0}});
  for (std::thread& each : threads) each.join();
  EXPECT_EQ(twice.load(), 0U);
  EXPECT_TRUE(at.table.leases(place).empty());
  EXPECT_EQ(at.scan({{0, 0, 0}}), Named{0});
}

// A child that runs `body` and never returns to the tests; it dies with this process.
template <typename Body>
pid_t spawn(Body body) {
  const pid_t pid = fork();
  if (pid != 0) return pid;
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  body();
  _exit(0);
}

TEST(LeasesAtWork, AnotherProcessReadsOnlyWhatItLeasedFromAnIndexItCannotWrite) {
  LeaseWorld world({.clients_max = 2, .words_per_client = 8, .touches_per_client = 2});
  LeaseEvictor evictor(world, 2);
  const ClientPlace place = world.table.add_client(1).value();
  const pid_t child = spawn([&] {
    world.index_pages.make_read_only();
    world.slot_pages.make_read_only();
    LeaseReader reader(world, place, 0, 20);
    while (!reader.tally().stop.load(std::memory_order_acquire)) reader.round();
  });
  ASSERT_GT(child, 0);
  evict_until(world, evictor, 1);
  world.tallies->each[0].stop.store(true, std::memory_order_release);
  int status = 1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  expect_all_was_well(world, 1);
}

TEST(LeasesAtWork, AProcessKilledInTheMiddleHoldsItsPagesUntilItIsRemovedAndNotLonger) {
  LeaseWorld world({.clients_max = 1, .words_per_client = 8, .touches_per_client = 2});
  LeaseEvictor evictor(world, 3);
  for (std::uint64_t life = 0; life < 20; ++life) {
    const ClientPlace place = world.table.add_client(1).value();
    LeaseWorld::Tally& tally = world.tallies->each[0];
    tally.granted = 0;
    const pid_t child = spawn([&] {
      LeaseReader reader(world, place, 0, life);
      reader.keep({1, 0, LeaseWorld::kCells - 1});
      for (;;) reader.round();
    });
    ASSERT_GT(child, 0);
    while (tally.granted.load(std::memory_order_relaxed) < 2 + 7 * life) {
      evictor.round();
      std::this_thread::yield();
      ASSERT_EQ(waitpid(child, nullptr, WNOHANG), 0) << "the reader ended by itself";
    }
    ASSERT_EQ(kill(child, SIGKILL), 0);
    ASSERT_EQ(waitpid(child, nullptr, 0), child);
    evictor.hide_all();
    EXPECT_GE(evictor.waiting(), 1U) << "dead, but not yet known to be";
    world.table.remove_client(place);
    evictor.collect();
    EXPECT_EQ(evictor.waiting(), 0U);
    evictor.round();
  }
  EXPECT_EQ(world.tallies->each[0].wrong.load(), 0U);
}

}  // namespace
}  // namespace tiercel
