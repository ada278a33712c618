// For tests: the lease protocol as small programs of loads and stores, in the memory orders of
// lease_orders.h. Two readers look up page 1, which lies in slot A, lease it and read its bytes; an evictor
// takes the page out of sight, scans, and writes over the slot. What a machine does with such a program is
// not said here (test_store_buffers.h, test_cxx_memory.h).
//
// Threads: plain values.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "index/lease_orders.h"

namespace tiercel::interleaving {

// Shared words. Each is written by one thread only, which both machines rely on.
enum Place : std::uint8_t {
  kVersion,  // of the strip: 2 at first
  kCell,     // 1: the page lies in slot A, 2: in slot B, 0: no page
  kHigh1,
  kHigh2,
  kLease1,
  kLease2,
  kA0,  // the bytes of slot A, in two halves: not atomic
  kA1,
  kB0,  // of slot B
  kPlaces,
};
inline constexpr std::array<std::string_view, kPlaces> kPlaceNames{
    "version", "cell", "high1", "high2", "lease1", "lease2", "A.first", "A.second", "B.first"};
constexpr bool is_bytes(Place place) { return place >= kA0; }
inline constexpr std::array<std::uint8_t, kPlaces> kAtFirst{2, 1, 0, 0, 0, 0, 1, 1, 0};

inline constexpr std::size_t kThreads = 3;
inline constexpr std::array<std::string_view, kThreads> kThreadNames{"reader 1", "reader 2", "evictor "};
inline constexpr std::size_t kEvictor = 2;

enum Register : std::uint8_t { kSeen, kWhere, kAgain, kOther, kRegisters };

enum class Act : std::uint8_t {
  kLoad,
  kStore,
  kJump,           // to `target` when `test` holds
  kGranted,        // from here on the reader holds its lease
  kExpectThePage,  // kOther must be the content of the page that was leased; `value`: that of later versions
  kEnd,
};
constexpr bool is_local(Act act) {
  return act == Act::kJump || act == Act::kGranted || act == Act::kExpectThePage;
}
enum class Test : std::uint8_t { kAlways, kOdd, kZero, kNotZero, kTwo, kDiffers };

struct Step {
  Act act = Act::kEnd;
  Place place = kVersion;
  std::memory_order order = std::memory_order_relaxed;
  Register reg = kSeen;  // loaded into, or tested
  std::uint8_t value = 0;
  Test test = Test::kAlways;
  std::uint8_t target = 0;
  std::string_view name;  // of its order in LeaseOrders; empty: a byte of a slot
};
using Program = std::vector<Step>;
using Programs = std::array<Program, kThreads>;

inline constexpr std::uint8_t kJunk = 9;

// What a reader must find: page 1 (content 1) at version 2; at later ones what the play says.
constexpr std::uint8_t content_of(std::uint8_t version, std::uint8_t later) {
  return version == 2 ? 1 : later;
}

inline bool holds(const Step& jump, const std::array<std::uint8_t, kRegisters>& regs) {
  const std::uint8_t value = regs[jump.reg];
  switch (jump.test) {
    case Test::kAlways:
      return true;
    case Test::kOdd:
      return value % 2 != 0;
    case Test::kZero:
      return value == 0;
    case Test::kNotZero:
      return value != 0;
    case Test::kTwo:
      return value == 2;
    case Test::kDiffers:
      return value != regs[kSeen];
  }
  return false;
}

// Appends steps; jumps name labels, which are put in at the end.
class Assembler final {
 public:
  void load(Place place, std::memory_order order, Register reg, std::string_view name) {
    steps_.push_back({.act = Act::kLoad, .place = place, .order = order, .reg = reg, .name = name});
  }
  void store(Place place, std::uint8_t value, std::memory_order order, std::string_view name) {
    steps_.push_back({.act = Act::kStore, .place = place, .order = order, .value = value, .name = name});
  }
  void load_bytes(Place place) { load(place, std::memory_order_relaxed, kOther, ""); }
  void store_bytes(Place place, std::uint8_t value) { store(place, value, std::memory_order_relaxed, ""); }
  void jump(Test test, Register reg, std::string label) {
    jumps_.emplace_back(steps_.size(), std::move(label));
    steps_.push_back({.act = Act::kJump, .reg = reg, .test = test});
  }
  void mark(Act act, std::uint8_t value = 0) { steps_.push_back({.act = act, .value = value}); }
  void label(std::string name) { labels_.emplace_back(std::move(name), steps_.size()); }
  Program finish() {
    label("end");
    mark(Act::kEnd);
    for (const auto& [at, wanted] : jumps_)
      for (const auto& [name, to] : labels_)
        if (name == wanted) steps_[at].target = static_cast<std::uint8_t>(to);
    return std::move(steps_);
  }

 private:
  Program steps_;
  std::vector<std::pair<std::size_t, std::string>> jumps_;
  std::vector<std::pair<std::string, std::size_t>> labels_;
};

enum class Deed : std::uint8_t {
  kReuse,    // page 1 goes; page 2 comes into slot A when that is free
  kReplace,  // page 1 goes; page 2 is in slot B at the same moment
  kMove,     // page 1 goes to slot B when nobody reads it; else everything stays as it was
};

// What the evictor does, and with whom.
struct Play {
  Deed deed = Deed::kReuse;
  bool one_client = false;  // the readers are two threads of one client: the first raises high1 for both
  std::uint8_t readers = 2;
  std::uint8_t turns = 1;  // leases that each reader takes, one after the other, in the same word
  std::uint8_t scans = 2;  // how often the evictor looks before it gives up
};

inline Program reader_program(const LeaseOrders& orders, const Play& play, std::size_t reader) {
  Assembler to;
  const Place lease = reader == 0 ? kLease1 : kLease2;
  const std::uint8_t later = play.deed == Deed::kMove ? 1 : 2;
  const Place high = reader == 0 || play.one_client ? kHigh1 : kHigh2;
  for (std::uint8_t turn = 0; turn < play.turns; ++turn) {
    const std::string next = "turn" + std::to_string(turn + 1);
    const std::string mine = std::to_string(turn);
    to.label("turn" + mine);
    to.load(kVersion, orders.look, kSeen, "look");
    to.jump(Test::kOdd, kSeen, next);
    to.load(kCell, orders.read, kWhere, "read");
    to.jump(Test::kZero, kWhere, next);
    if (!orders.validate_after_publish) to.load(kVersion, orders.validate, kAgain, "validate");
    to.load(high, orders.known, kOther, "known");
    if (play.one_client && reader == 1) {
      to.jump(Test::kZero, kOther, next);  // it would raise high1 itself: that is what reader 1 does
    } else {
      to.jump(Test::kNotZero, kOther, "publish" + mine);
      to.store(high, 1, orders.raise, "raise");
    }
    to.label("publish" + mine);
    to.store(lease, 1, orders.publish, "publish");
    if (orders.validate_after_publish) to.load(kVersion, orders.validate, kAgain, "validate");
    to.jump(Test::kDiffers, kAgain, "clear" + mine);
    to.mark(Act::kGranted);
    to.jump(Test::kTwo, kWhere, "b" + mine);
    for (const Place bytes : {kA0, kA1, kA0}) {
      to.load_bytes(bytes);
      to.mark(Act::kExpectThePage, later);
    }
    to.jump(Test::kAlways, kSeen, "clear" + mine);
    to.label("b" + mine);
    to.load_bytes(kB0);
    to.mark(Act::kExpectThePage, later);
    to.label("clear" + mine);
    to.store(lease, 0, orders.clear, "clear");
  }
  to.label("turn" + std::to_string(play.turns));
  return to.finish();
}

inline void scan_program(Assembler& to, const LeaseOrders& orders, const Play& play) {
  for (std::uint8_t round = 0; round < play.scans; ++round) {
    const std::string named = round + 1 == play.scans ? "named" : "scan" + std::to_string(round + 1);
    to.label("scan" + std::to_string(round));
    for (std::uint8_t reader = 0; reader < play.readers; ++reader) {
      const std::string after = "after" + std::to_string(round) + std::to_string(reader);
      if (reader == 0 || !play.one_client) {
        to.load(reader == 0 ? kHigh1 : kHigh2, orders.count, kOther, "count");
        to.jump(Test::kZero, kOther, play.one_client ? "free" : after);
      }
      to.load(reader == 0 ? kLease1 : kLease2, orders.scan, kOther, "scan");
      to.jump(Test::kNotZero, kOther, named);
      to.label(after);
    }
    to.jump(Test::kAlways, kSeen, "free");
  }
}

inline void hide_program(Assembler& to, const LeaseOrders& orders, const Play& play) {
  to.store(kVersion, 3, orders.hide, "hide");
  if (play.deed == Deed::kMove) return;
  to.store(kCell, play.deed == Deed::kReplace ? 2 : 0, orders.write, "write");
  to.store(kVersion, 4, orders.settle, "settle");
}

// Nobody reads slot A any more.
inline void free_program(Assembler& to, const LeaseOrders& orders, const Play& play) {
  if (play.deed == Deed::kMove) {
    to.load_bytes(kA0);
    to.store_bytes(kB0, 1);
    to.store(kCell, 2, orders.write, "write");
    to.store(kVersion, 4, orders.settle, "settle");
  }
  to.store_bytes(kA0, play.deed == Deed::kReuse ? 2 : kJunk);
  to.store_bytes(kA1, play.deed == Deed::kReuse ? 2 : kJunk);
  if (play.deed != Deed::kReuse) return;
  to.store(kVersion, 5, orders.open, "open");
  to.store(kCell, 1, orders.write, "write");
  to.store(kVersion, 6, orders.settle, "settle");
}

inline Program evictor_program(const LeaseOrders& orders, const Play& play) {
  Assembler to;
  if (play.deed == Deed::kReplace) to.store_bytes(kB0, 2);
  if (orders.scan_after_hide) hide_program(to, orders, play);
  scan_program(to, orders, play);
  to.label("free");
  if (!orders.scan_after_hide) hide_program(to, orders, play);
  free_program(to, orders, play);
  to.jump(Test::kAlways, kSeen, "end");
  to.label("named");
  if (play.deed == Deed::kMove && orders.scan_after_hide) to.store(kVersion, 4, orders.settle, "settle");
  return to.finish();
}

inline Programs programs(const LeaseOrders& orders, const Play& play) {
  return {reader_program(orders, play, 0),
          play.readers == 2 ? reader_program(orders, play, 1) : Program{Step{}},
          evictor_program(orders, play)};
}

}  // namespace tiercel::interleaving
