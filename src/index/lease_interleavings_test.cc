// The lease protocol in the orders that the program runs with, through all interleavings, on two machines:
// store buffers (x86) and the C++ memory model. And with each order one step weaker: docs/decisions/0007 has
// the table that stands here as expectations.
#include <algorithm>
#include <array>
#include <atomic>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "index/lease_orders.h"
#include "index/test_cxx_memory.h"
#include "index/test_interleavings.h"
#include "index/test_lease_steps.h"
#include "index/test_store_buffers.h"

namespace tiercel::interleaving {
namespace {

using enum std::memory_order;

constexpr std::array kPlays{
    Play{},
    Play{.deed = Deed::kReplace},
    Play{.deed = Deed::kMove},
    Play{.one_client = true},
    Play{.deed = Deed::kReplace, .one_client = true},
    Play{.readers = 1, .turns = 2},
    Play{.deed = Deed::kReplace, .readers = 1, .turns = 2},
    Play{.deed = Deed::kMove, .readers = 1, .turns = 2},
};
// Enough to show what a weaker order breaks.
constexpr std::array kShortPlays{Play{.scans = 1}, Play{.deed = Deed::kReplace, .scans = 1},
                                 Play{.one_client = true, .scans = 1}};

std::string name_of(const Play& play) {
  constexpr std::array kDeeds{"page 2 in slot A", "page 2 in slot B", "page 1 moved to slot B"};
  return fmt::format("{}{}{}", kDeeds[static_cast<std::size_t>(play.deed)],
                     play.one_client ? ", two threads of one client" : "",
                     play.turns == 2 ? ", one reader, two leases" : "");
}

// What is found first in any of the short plays.
template <typename Machine>
Findings first_broken(const LeaseOrders& orders) {
  for (const Play& play : kShortPlays) {
    Findings found = explore(Machine(programs(orders, play)));
    if (!found.broken.empty()) return found;
  }
  return {};
}

template <typename Machine>
class Interleavings : public testing::Test {};
using Machines = testing::Types<StoreBuffers, CxxMemory>;
TYPED_TEST_SUITE(Interleavings, Machines);

TYPED_TEST(Interleavings, NoLeaseIsBrokenAndSomeAreGrantedAndSomeSlotsAreReused) {
  for (const Play& play : kPlays) {
    const Findings found = explore(TypeParam(programs(lease_orders(), play)));
    EXPECT_EQ(found.broken, "") << name_of(play) << "\n" << fmt::format("{}", fmt::join(found.run, "\n"));
    EXPECT_GT(found.grants, 0U) << name_of(play);
    EXPECT_GT(found.overwrites, 0U) << name_of(play);
    fmt::print("{}: {} states, a lease granted in {} moves, the slot written over in {}\n", name_of(play),
               found.states, found.grants, found.overwrites);
  }
}

TYPED_TEST(Interleavings, BothDeliberateFaultsAreFound) {
  for (const LeaseOrders& orders : {kWeakLeaseOrders, kScanFirstLeaseOrders}) {
    const Findings found = first_broken<TypeParam>(orders);
    EXPECT_NE(found.broken, "");
    EXPECT_FALSE(found.run.empty());
  }
}

struct Weaker {
  std::string_view change;
  LeaseOrders orders;
  bool store_buffers = false;  // whether x86 shows it; the C++ machine shows each
};
constexpr std::array kWeaker{
    Weaker{"look: acquire → relaxed", {.look = relaxed}},
    Weaker{"read: acquire → relaxed", {.read = relaxed}},
    Weaker{"known: seq_cst → acquire", {.known = acquire}},
    Weaker{"raise: seq_cst → release", {.raise = release}},
    Weaker{"publish: seq_cst → release", {.publish = release}, true},
    Weaker{"validate: seq_cst → acquire", {.validate = acquire}},
    Weaker{"clear: release → relaxed", {.clear = relaxed}},
    Weaker{"hide: seq_cst → release", {.hide = release}, true},
    Weaker{"write: release → relaxed", {.write = relaxed}},
    Weaker{"settle: release → relaxed", {.settle = relaxed}},
    Weaker{"count: seq_cst → acquire", {.count = acquire}},
    Weaker{"scan: seq_cst → acquire", {.scan = acquire}},
    Weaker{"the scan before the hiding", {.scan_after_hide = false}, true},
    Weaker{"the second look before the publishing", {.validate_after_publish = false}, true},
};

TEST(LeaseOrders, EachOneIsNeeded) {
  for (const Weaker& weaker : kWeaker) {
    const Findings buffers = first_broken<StoreBuffers>(weaker.orders);
    const Findings cxx = first_broken<CxxMemory>(weaker.orders);
    EXPECT_EQ(!buffers.broken.empty(), weaker.store_buffers) << weaker.change;
    EXPECT_FALSE(cxx.broken.empty()) << weaker.change;
    const Findings& shown = buffers.broken.empty() ? cxx : buffers;
    fmt::print("\n{} ({}): {}\n", weaker.change,
               buffers.broken.empty() ? "C++ only" : "store buffers and C++", shown.broken);
    for (const std::string& line : shown.run) fmt::print("    {}\n", line);
  }
}

// ---- The machines themselves, on programs whose outcomes are known ----

// Thread 0 and 1 as given; what their registers kSeen and kAgain may be at the end: {0: seen, 0: again, 1:
// …}.
template <typename Machine>
bool ends_with(const Program& first, const Program& second, std::array<std::uint8_t, 4> wanted) {
  const Findings found = explore(Machine({first, second, Program{Step{}}}));
  return std::any_of(found.ends.begin(), found.ends.end(), [&](const auto& regs) {
    return std::array{regs[kSeen], regs[kAgain], regs[kRegisters + kSeen], regs[kRegisters + kAgain]} ==
           wanted;
  });
}

// Both store to their own word and load the other's.
template <typename Machine>
bool store_buffering(std::memory_order stores, std::memory_order loads) {
  Assembler one, two;
  one.store(kHigh1, 1, stores, "");
  one.load(kHigh2, loads, kSeen, "");
  two.store(kHigh2, 1, stores, "");
  two.load(kHigh1, loads, kSeen, "");
  return ends_with<Machine>(one.finish(), two.finish(), {0, 0, 0, 0});
}

// The first stores twice, the second sees the later store and not the earlier one.
template <typename Machine>
bool message_passing(std::memory_order stores, std::memory_order loads) {
  Assembler one, two;
  one.store(kHigh1, 1, relaxed, "");
  one.store(kLease1, 1, stores, "");
  two.load(kLease1, loads, kSeen, "");
  two.load(kHigh1, relaxed, kAgain, "");
  return ends_with<Machine>(one.finish(), two.finish(), {0, 0, 1, 0});
}

template <typename Machine>
bool reads_backwards() {
  Assembler one, two;
  one.store(kHigh1, 1, relaxed, "");
  two.load(kHigh1, relaxed, kSeen, "");
  two.load(kHigh1, relaxed, kAgain, "");
  return ends_with<Machine>(one.finish(), two.finish(), {0, 0, 1, 0});
}

TYPED_TEST(Interleavings, BothMachinesAnswerTheWellKnownSmallPrograms) {
  EXPECT_TRUE(store_buffering<TypeParam>(release, acquire));
  EXPECT_FALSE(store_buffering<TypeParam>(seq_cst, seq_cst));
  EXPECT_FALSE(message_passing<TypeParam>(release, acquire));
  EXPECT_FALSE(message_passing<TypeParam>(seq_cst, seq_cst));
  EXPECT_FALSE(reads_backwards<TypeParam>());
}

TEST(CxxMachine, IsWeakerThanStoreBuffersWhereTheLanguageIs) {
  EXPECT_TRUE(store_buffering<CxxMemory>(seq_cst, acquire));
  EXPECT_TRUE(store_buffering<CxxMemory>(release, seq_cst));
  EXPECT_TRUE(message_passing<CxxMemory>(relaxed, acquire));
  EXPECT_TRUE(message_passing<CxxMemory>(release, relaxed));
  EXPECT_FALSE(store_buffering<StoreBuffers>(seq_cst, acquire));
  EXPECT_FALSE(message_passing<StoreBuffers>(relaxed, relaxed));
}

}  // namespace
}  // namespace tiercel::interleaving
