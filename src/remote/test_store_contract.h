// What every remote store does, whatever it is made of: the same suite for a folder, for a connector of
// whatever program, and for the simulated one. A test program instantiates StoreContract with the stores that
// it has, and includes this in one source only.
//
// Threads: those of the store.
#pragma once

#include <csignal>
#include <cstdlib>
#include <functional>
#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include <sys/syscall.h>
#include <unistd.h>

#include "base/bytes.h"
#include "remote/test_store_bed.h"

namespace tiercel {

struct StoreContractCase {
  std::string name;
  // A store over the same objects each time; used until the test ends. Empty: not on this machine, because of
  // `why_not`.
  std::function<std::unique_ptr<RemoteStore>(std::string& why_not)> make;
  bool shared = true;                    // two of them at once see each other's objects
  bool keeps = true;                     // what was put is there after its process was killed
  bool removes = true, replaces = true;  // where it cannot: cases are left out, and counted
  std::uint64_t object_bytes_max = 4U << 20;
  MutableByteView arena;  // region 1, if it has one
  // Damages what it holds under this name; false: nothing to damage.
  std::function<bool(const std::string& name)> damage;
};

inline void PrintTo(const StoreContractCase& one, std::ostream* out) { *out << one.name; }

class StoreContract : public testing::TestWithParam<StoreContractCase> {
 protected:
  void SetUp() override {
    std::string why_not;
    store_ = GetParam().make(why_not);
    if (!store_ && !why_not.empty()) GTEST_SKIP() << "skipped: 1 case, " << why_not;
    ASSERT_NE(store_, nullptr);
    bed_ = std::make_unique<StoreBed>(*store_);
    // One that does not get ready is waited for once, not in every case.
    static std::set<std::string> never_ready;
    if (never_ready.count(GetParam().name) == 0 && !bed_->until_ready()) never_ready.insert(GetParam().name);
    ASSERT_EQ(never_ready.count(GetParam().name), 0U) << "it is not ready: " << store_->health().why_not;
    ASSERT_GE(store_->exchange_bytes(), 16U << 20) << "the suite wants 16 MiB of exchange";
    // Of this run alone: what an earlier one left in the store is nobody's.
    SteadyClock clock;
    prefix_ = fmt::format("{:x}{:x}-", static_cast<std::uint64_t>(::getpid()),
                          mix64(static_cast<std::uint64_t>(clock.now().count())));
  }
  void TearDown() override {
    if (!bed_) return;
    EXPECT_TRUE(bed_->until_quiet()) << "a batch does not end, or not quietly";
    if (GetParam().removes && !names_.empty() && store_->health().ready) {
      RemoteBatch batch{RemoteVerb::kRemove, {}, bed_->soon()};
      for (const std::string& name : names_) batch.items.push_back({name, {}});
      bed_->end_of(bed_->submit(batch));
    }
    store_->close(std::chrono::seconds(10));
    bed_->collect();
  }

  std::string name(const std::string& text) {
    names_.insert(prefix_ + text);
    return prefix_ + text;
  }
  std::byte* memory(std::uint64_t offset) { return store_->exchange() + offset; }
  // Bytes that belong to this seed.
  static std::vector<std::byte> content(std::uint64_t bytes, std::uint64_t seed) {
    Prng prng(seed);
    std::vector<std::byte> filled((bytes + 7) / 8 * 8);
    for (std::uint64_t at = 0; at < filled.size(); at += 8) store_le(filled.data() + at, prng.next());
    filled.resize(bytes);
    return filled;
  }
  // The bytes from `offset` on.
  bool holds(std::uint64_t offset, const std::vector<std::byte>& bytes) {
    return std::memcmp(memory(offset), bytes.data(), bytes.size()) == 0;
  }
  void set(std::uint64_t offset, const std::vector<std::byte>& bytes) {
    std::memcpy(memory(offset), bytes.data(), bytes.size());
  }
  void clear(std::uint64_t bytes) { std::memset(memory(0), 0xEE, bytes); }
  RemoteItem item(const std::string& of, std::uint64_t offset, std::uint64_t bytes) {
    return {of, {{0, offset, bytes}}};
  }
  void put(const std::string& of, const std::vector<std::byte>& bytes) {
    set(kPutAt, bytes);
    ASSERT_EQ(bed_->run(RemoteVerb::kPut, {item(of, kPutAt, bytes.size())}), "ok") << of;
  }
  // Its bytes when it is asked for with this size; empty: it is not there.
  std::vector<std::byte> get(const std::string& of, std::uint64_t bytes) {
    std::memset(memory(kGetAt), 0xEE, bytes);
    const auto results = bed_->run_results(RemoteVerb::kGet, {item(of, kGetAt, bytes)});
    if (results[0].outcome != RemoteOutcome::kOk) return {};
    EXPECT_EQ(results[0].bytes, bytes);
    return {memory(kGetAt), memory(kGetAt) + bytes};
  }
  // Pieces of `bytes` together, with gaps, from `offset` on; at most twice as long.
  std::vector<RemotePiece> split(std::uint64_t offset, std::uint64_t bytes) {
    std::vector<RemotePiece> pieces;
    const std::uint64_t end = offset + 2 * bytes;
    while (bytes > 0) {
      std::uint64_t length = prng_.chance(0.2) ? 1 : prng_.between(1, bytes);
      if (pieces.size() > 60) length = bytes;
      const std::uint64_t gap = prng_.below(std::min<std::uint64_t>(end - offset - bytes, 100) + 1);
      pieces.push_back({0, offset + gap, length});
      offset += gap + length;
      bytes -= length;
    }
    return pieces;
  }

  static constexpr std::uint64_t kPutAt = 0, kGetAt = 8U << 20;
  std::unique_ptr<RemoteStore> store_;
  std::unique_ptr<StoreBed> bed_;
  std::string prefix_;
  std::set<std::string> names_;
  Prng prng_{1};
};

TEST_P(StoreContract, WhatWasPutIsFoundWithItsBytesWhateverItsSize) {
  const std::uint64_t largest = std::min<std::uint64_t>(GetParam().object_bytes_max, 6U << 20);
  for (const std::uint64_t bytes : {1ULL, 2ULL, 7ULL, 4095ULL, 4096ULL, 4097ULL, 65'537ULL, 1'048'576ULL,
                                    3'145'733ULL, static_cast<unsigned long long>(largest)}) {
    if (bytes > largest) continue;
    const std::string of = name(fmt::format("size-{}", bytes));
    const auto bytes_put = content(bytes, bytes);
    put(of, bytes_put);
    EXPECT_EQ(get(of, bytes), bytes_put) << bytes;
    const auto exists = bed_->run_results(RemoteVerb::kExists, {{of, {}}});
    EXPECT_EQ(outcomes_text(exists), "ok") << bytes;
    EXPECT_TRUE(exists[0].bytes == bytes || exists[0].bytes == 0) << exists[0].bytes;
  }
}

TEST_P(StoreContract, WhatNobodyPutIsAbsent) {
  clear(64);
  EXPECT_EQ(bed_->run(RemoteVerb::kExists, {{name("a"), {}}, {name("b"), {}}}), "absent absent");
  EXPECT_EQ(bed_->run(RemoteVerb::kGet, {item(name("a"), 0, 16), item(name("b"), 16, 1)}), "absent absent");
  if (GetParam().removes) {
    EXPECT_EQ(bed_->run(RemoteVerb::kRemove, {{name("a"), {}}}), "absent");
  }
}

TEST_P(StoreContract, ABatchOfNothingEndsWellAtOnce) {
  for (const RemoteVerb verb :
       {RemoteVerb::kExists, RemoteVerb::kGet, RemoteVerb::kPut, RemoteVerb::kReplace, RemoteVerb::kRemove})
    EXPECT_EQ(bed_->run(verb, {}), "");
  EXPECT_EQ(store_->health().batches_in_flight, 0U);
}

TEST_P(StoreContract, PutLeavesWhatIsThere) {
  const auto first = content(5000, 1);
  put(name("a"), first);
  set(kPutAt, content(5000, 2));
  EXPECT_EQ(bed_->run(RemoteVerb::kPut, {item(name("a"), kPutAt, 5000)}), "ok");
  EXPECT_EQ(get(name("a"), 5000), first);
  EXPECT_EQ(bed_->run(RemoteVerb::kPut, {item(name("a"), kPutAt, 77)}), "ok");  // of another size, too
  EXPECT_EQ(get(name("a"), 5000), first);
}

TEST_P(StoreContract, ReplaceGivesNewBytesOfAnySize) {
  if (!GetParam().replaces) GTEST_SKIP() << "skipped: 1 case, this store has no replace";
  const std::string of = name("a");
  for (const std::uint64_t bytes : {1000ULL, 1000ULL, 10ULL, 70'000ULL}) {
    const auto fresh = content(bytes, bytes + 9);
    set(kPutAt, fresh);
    ASSERT_EQ(bed_->run(RemoteVerb::kReplace, {item(of, kPutAt, bytes)}), "ok");
    EXPECT_EQ(get(of, bytes), fresh);
  }
}

TEST_P(StoreContract, WhatIsRemovedIsGoneAndMayBePutAgain) {
  if (!GetParam().removes) GTEST_SKIP() << "skipped: 1 case, this store has no remove";
  put(name("a"), content(300, 1));
  put(name("b"), content(300, 2));
  EXPECT_EQ(bed_->run(RemoteVerb::kRemove, {{name("a"), {}}}), "ok");
  EXPECT_EQ(bed_->run(RemoteVerb::kExists, {{name("a"), {}}, {name("b"), {}}}), "absent ok");
  EXPECT_TRUE(get(name("a"), 300).empty());
  put(name("a"), content(400, 3));
  EXPECT_EQ(get(name("a"), 400), content(400, 3));
}

TEST_P(StoreContract, AGetOfAnotherSizeSaysSoAndStaysWithinItsPieces) {
  const auto bytes = content(5000, 1);
  put(name("a"), bytes);
  for (const std::uint64_t asked : {1ULL, 4999ULL, 5001ULL, 10'000ULL}) {
    clear(20'000);
    EXPECT_EQ(bed_->run(RemoteVerb::kGet, {item(name("a"), 100, asked)}), "wrong_size") << asked;
    for (std::uint64_t i = 0; i < 100; ++i) ASSERT_EQ(*memory(i), std::byte{0xEE});
    for (std::uint64_t i = 100 + asked; i < 20'000; ++i) ASSERT_EQ(*memory(i), std::byte{0xEE}) << i;
  }
  EXPECT_EQ(get(name("a"), 5000), bytes);
}

TEST_P(StoreContract, PiecesMayBeSplitInAnyWayAndNothingBesideThemIsTouched) {
  for (int round = 0; round < 20; ++round) {
    const std::string of = name(fmt::format("round-{}", round));
    const std::uint64_t bytes = prng_.between(1, 100'000);
    const std::vector<RemotePiece> from = split(kPutAt, bytes), to = split(kGetAt, bytes);
    const auto all = content(2 * bytes, static_cast<std::uint64_t>(round) + 1);
    set(kPutAt, all);
    ASSERT_EQ(bed_->run(RemoteVerb::kPut, {{of, from}}), "ok");
    std::vector<std::byte> object, expected(2 * bytes, std::byte{0xEE});
    for (const RemotePiece& piece : from)
      object.insert(object.end(), memory(piece.offset), memory(piece.offset) + piece.length);
    std::memset(memory(kGetAt), 0xEE, 2 * bytes);
    ASSERT_EQ(bed_->run(RemoteVerb::kGet, {{of, to}}), "ok");
    std::uint64_t at = 0;
    for (const RemotePiece& piece : to) {
      std::memcpy(expected.data() + (piece.offset - kGetAt), object.data() + at, piece.length);
      at += piece.length;
    }
    ASSERT_TRUE(holds(kGetAt, expected)) << "round " << round;
    ASSERT_TRUE(holds(kPutAt, all)) << "a put changed its source";
  }
}

// H13.
TEST_P(StoreContract, TheSameNameTwiceInABatchOfGetsFillsEachPosition) {
  const auto one = content(3000, 1), two = content(500, 2);
  put(name("1"), one);
  put(name("2"), two);
  clear(16'384);
  EXPECT_EQ(bed_->run(RemoteVerb::kGet,
                      {item(name("1"), 0, 3000), item(name("2"), 4000, 500), item(name("1"), 8000, 3000)}),
            "ok ok ok");
  EXPECT_TRUE(holds(0, one) && holds(4000, two) && holds(8000, one));
  clear(16'384);
  EXPECT_EQ(bed_->run(RemoteVerb::kGet,
                      {item(name("1"), 0, 3000), item(name("2"), 4000, 500), item(name("1"), 8000, 2000)}),
            "ok ok wrong_size");
  EXPECT_TRUE(holds(0, one) && holds(4000, two));
  for (std::uint64_t i = 10'000; i < 16'384; ++i) ASSERT_EQ(*memory(i), std::byte{0xEE}) << i;
}

// H13.
TEST_P(StoreContract, TheSameNameTwiceInABatchActsLikeTwoInARow) {
  const auto first = content(2000, 1), second = content(2000, 2);
  set(0, first);
  set(2000, second);
  EXPECT_EQ(bed_->run(RemoteVerb::kPut, {item(name("same"), 0, 2000), item(name("same"), 0, 2000)}), "ok ok");
  EXPECT_EQ(get(name("same"), 2000), first);
  set(0, first);
  EXPECT_EQ(bed_->run(RemoteVerb::kPut, {item(name("other"), 0, 2000), item(name("other"), 2000, 2000)}),
            "ok ok");
  EXPECT_EQ(get(name("other"), 2000), first);
  if (GetParam().replaces) {
    EXPECT_EQ(
        bed_->run(RemoteVerb::kReplace, {item(name("other"), 0, 2000), item(name("other"), 2000, 2000)}),
        "ok ok");
    EXPECT_EQ(get(name("other"), 2000), second);
  }
  if (GetParam().removes) {
    EXPECT_EQ(bed_->run(RemoteVerb::kRemove, {{name("other"), {}}, {name("other"), {}}}), "ok absent");
  }
}

// H13.
TEST_P(StoreContract, NewPresentNewAreAllStored) {
  put(name("present"), content(100, 9));
  set(0, content(300, 1));
  EXPECT_EQ(bed_->run(RemoteVerb::kPut, {item(name("new1"), 0, 100), item(name("present"), 100, 100),
                                         item(name("new2"), 200, 100)}),
            "ok ok ok");
  EXPECT_EQ(get(name("present"), 100), content(100, 9));
  const auto all = content(300, 1);
  EXPECT_EQ(get(name("new1"), 100), std::vector<std::byte>(all.begin(), all.begin() + 100));
  EXPECT_EQ(get(name("new2"), 100), std::vector<std::byte>(all.begin() + 200, all.end()));
}

TEST_P(StoreContract, OneBadItemDoesNotTouchTheOthers) {
  const auto a = content(1000, 1), b = content(2000, 2);
  put(name("a"), a);
  put(name("b"), b);
  clear(32'768);
  EXPECT_EQ(bed_->run(RemoteVerb::kGet, {item(name("a"), 0, 1000), item(name("no"), 4096, 50),
                                         item(name("a"), 8192, 999), item(name("b"), 16'384, 2000)}),
            "ok absent wrong_size ok");
  EXPECT_TRUE(holds(0, a) && holds(16'384, b));
  EXPECT_EQ(bed_->run(RemoteVerb::kExists, {{name("no"), {}}, {name("b"), {}}}), "absent ok");
}

TEST_P(StoreContract, NamesOfEveryShapeAreDifferentObjects) {
  std::vector<std::string> names;
  for (const char* text :
       {"a", "A", ".", "..", "-", "_", "...", ".a", "a.", "a.a", "aa", "CON", "-rf", "a-", "Z9"})
    names.push_back(name(text));
  const std::string longest(120 - prefix_.size(), 'n');
  for (const char last : {'x', 'y', 'X'}) names.push_back(name(longest.substr(1) + last));
  names.push_back(name(longest.substr(1)));
  for (std::size_t i = 0; i < names.size(); ++i) put(names[i], content(100 + i, i + 1));
  for (std::size_t i = 0; i < names.size(); ++i)
    EXPECT_EQ(get(names[i], 100 + i), content(100 + i, i + 1)) << names[i];
  for (const char* text : {".", "..", "_", "..."})  // alone, without a prefix
    EXPECT_EQ(bed_->run(RemoteVerb::kExists, {{text, {}}}), "absent") << text;
}

TEST_P(StoreContract, NamesOfAnotherNamespaceAreNotServed) {
  for (std::uint64_t space = 0; space < 3; ++space)
    if (space != 1) put(name(fmt::format("ns{}.{:032x}", space, 7)), content(64, space + 1));
  EXPECT_EQ(bed_->run(RemoteVerb::kExists,
                      {{name(fmt::format("ns1.{:032x}", 7)), {}}, {name("ns0."), {}}, {name("ns0"), {}}}),
            "absent absent absent");
  EXPECT_TRUE(get(name(fmt::format("ns1.{:032x}", 7)), 64).empty());
  EXPECT_EQ(get(name(fmt::format("ns2.{:032x}", 7)), 64), content(64, 3));
}

TEST_P(StoreContract, BatchesThatMakeNoSenseAreRefusedBeforeAnythingIsTouched) {
  const std::uint64_t size = store_->exchange_bytes();
  set(0, content(64, 1));
  const std::vector<RemoteItem> bad = {item("", 0, 8),
                                       item(std::string(121, 'n'), 0, 8),
                                       item("a/b", 0, 8),
                                       item("a b", 0, 8),
                                       item("a\n", 0, 8),
                                       item(std::string("a\0b", 3), 0, 8),
                                       item("\xC3\xA4", 0, 8),
                                       {name("none"), {}},
                                       item(name("empty"), 0, 0),
                                       item(name("end"), size, 1),
                                       item(name("over"), size - 7, 8),
                                       item(name("wrap"), UINT64_MAX - 3, 8),
                                       item(name("wraps"), 8, UINT64_MAX),
                                       {name("region"), {{7, 0, 8}}},
                                       {name("second"), {{0, 0, 8}, {0, size, 8}}}};
  for (const RemoteVerb verb : {RemoteVerb::kPut, RemoteVerb::kGet, RemoteVerb::kReplace})
    for (const RemoteItem& wrong : bad) {
      const auto refused = store_->submit({verb, {item(name("good"), 0, 64), wrong}, bed_->soon()});
      ASSERT_FALSE(refused) << wrong.name << " of " << wrong.pieces.size() << " pieces";
      EXPECT_EQ(refused.error().code, Code::kInvalidArgument) << refused.error().to_string();
      EXPECT_EQ(refused.error().message.find('\n'), std::string::npos);
    }
  EXPECT_FALSE(store_->submit({RemoteVerb::kExists, {item(name("good"), 0, 8)}, bed_->soon()}));
  EXPECT_FALSE(store_->submit({RemoteVerb::kRemove, {item(name("good"), 0, 8)}, bed_->soon()}));
  EXPECT_EQ(bed_->run(RemoteVerb::kExists, {{name("good"), {}}}), "absent");
  EXPECT_TRUE(holds(0, content(64, 1)));
}

TEST_P(StoreContract, ADeadlineThatHasPassedIsLateAndNothingHappens) {
  set(0, content(64, 1));
  const auto id = bed_->submit({RemoteVerb::kPut, {item(name("a"), 0, 64), item(name("b"), 0, 64)}, Time(0)});
  EXPECT_EQ(outcomes_text(bed_->end_of(id)), "late late");
  EXPECT_TRUE(bed_->quiet(id));
  EXPECT_EQ(bed_->run(RemoteVerb::kExists, {{name("a"), {}}}), "absent");
}

// Some are in time and some are not; whatever they say, what is there is whole, and memory that is quiet
// again stays as it is.
TEST_P(StoreContract, BatchesWithLittleTimeEndOnceAndGiveTheirMemoryBack) {
  constexpr std::uint64_t kBytes = 200'000;
  const auto bytes = content(kBytes, 5);
  put(name("a"), bytes);
  for (std::uint64_t round = 0; round < 60; ++round) {
    const std::string of = name(fmt::format("put-{}", round));
    set(kPutAt, bytes);
    const Time deadline = later(bed_->now(), std::chrono::microseconds(prng_.below(3000)));
    const auto written = bed_->submit({RemoteVerb::kPut, {item(of, kPutAt, kBytes)}, deadline});
    std::memset(memory(kGetAt), 0xEE, kBytes);
    const auto read = bed_->submit({RemoteVerb::kGet, {item(name("a"), kGetAt, kBytes)}, deadline});
    const std::string put_end = outcomes_text(bed_->end_of(written)),
                      get_end = outcomes_text(bed_->end_of(read));
    ASSERT_TRUE(put_end == "ok" || put_end == "late") << put_end;
    ASSERT_TRUE(get_end == "ok" || get_end == "late") << get_end;
    ASSERT_TRUE(get_end == "late" || holds(kGetAt, bytes)) << round;
    ASSERT_TRUE(bed_->until_quiet());
    const auto found = get(of, kBytes);
    ASSERT_TRUE(found == bytes || (found.empty() && put_end == "late")) << round;
  }
}

TEST_P(StoreContract, CancelledBatchesEndOnceAndLeaveNoPlaceTaken) {
  constexpr std::uint64_t kBytes = 4096;
  put(name("a"), content(kBytes, 1));
  for (std::uint64_t round = 0; round < 400; ++round) {
    const RemoteVerb verb = round % 2 == 0 ? RemoteVerb::kGet : RemoteVerb::kPut;
    const auto id =
        bed_->submit({verb,
                      {item(name(verb == RemoteVerb::kGet ? "a" : "b"), (round % 64) * kBytes, kBytes)},
                      bed_->soon()});
    store_->cancel(id);
    if (round % 3 == 0) store_->cancel(id);
    if (round % 50 == 0) {
      const std::string end = outcomes_text(bed_->end_of(id));
      EXPECT_TRUE(end == "ok" || end == "cancelled") << end;
    }
  }
  ASSERT_TRUE(bed_->until_quiet());
  store_->cancel(RemoteBatchId(1));  // long ended
  store_->cancel(RemoteBatchId(UINT64_MAX));
  const RemoteHealth health = store_->health();
  EXPECT_EQ(health.batches_in_flight + health.unquiet_batches + health.unquiet_bytes, 0U);
  EXPECT_EQ(get(name("a"), kBytes), content(kBytes, 1));
}

TEST_P(StoreContract, TooManyAtOnceAreRefusedUntilSomeHaveEnded) {
  put(name("a"), content(1U << 16, 1));
  std::uint64_t taken = 0;
  Status refused;
  for (; taken < 20'000 && refused.ok(); ++taken) {
    const auto id =
        store_->submit({RemoteVerb::kGet, {item(name("a"), (taken % 64) << 16, 1U << 16)}, bed_->soon()});
    if (id)
      bed_->add(*id, 1);
    else
      refused = id.error();
  }
  EXPECT_EQ(refused.code, Code::kResourceExhausted) << taken << " were taken; " << refused.to_string();
  ASSERT_TRUE(bed_->until_quiet());
  EXPECT_EQ(get(name("a"), 1U << 16), content(1U << 16, 1));
}

TEST_P(StoreContract, ABatchMayHaveManyItems) {
  constexpr std::uint64_t kItems = 1000, kBytes = 1024;
  std::vector<RemoteItem> puts, gets, asks;
  set(0, content(kItems * kBytes, 1));
  for (std::uint64_t i = 0; i < kItems; ++i) {
    puts.push_back(item(name(fmt::format("many-{}", i)), i * kBytes, kBytes - i % 7));
    gets.push_back(item(puts.back().name, kGetAt + i * kBytes, kBytes - i % 7));
    asks.push_back({puts.back().name, {}});
  }
  std::string all_ok = "ok";
  for (std::uint64_t i = 1; i < kItems; ++i) all_ok += " ok";
  EXPECT_EQ(bed_->run(RemoteVerb::kPut, puts), all_ok);
  EXPECT_EQ(bed_->run(RemoteVerb::kExists, asks), all_ok);
  EXPECT_EQ(bed_->run(RemoteVerb::kGet, gets), all_ok);
  for (std::uint64_t i = 0; i < kItems; ++i)
    ASSERT_EQ(std::memcmp(memory(i * kBytes), memory(kGetAt + i * kBytes), kBytes - i % 7), 0) << i;
}

TEST_P(StoreContract, ABatchMayHaveManyBytes) {
  const std::uint64_t bytes = std::min<std::uint64_t>(GetParam().object_bytes_max, 1U << 20);
  const std::uint64_t count = std::min<std::uint64_t>(store_->exchange_bytes() / bytes / 2, 24);
  std::vector<RemoteItem> puts, gets;
  set(0, content(count * bytes, 1));
  for (std::uint64_t i = 0; i < count; ++i) {
    puts.push_back(item(name(fmt::format("large-{}", i)), i * bytes, bytes));
    gets.push_back(item(puts.back().name, (count + i) * bytes, bytes));
  }
  for (const RemoteResult& result : bed_->run_results(RemoteVerb::kPut, puts))
    EXPECT_EQ(result.outcome, RemoteOutcome::kOk);
  for (const RemoteResult& result : bed_->run_results(RemoteVerb::kGet, gets))
    EXPECT_EQ(result.outcome, RemoteOutcome::kOk);
  EXPECT_EQ(std::memcmp(memory(0), memory(count * bytes), count * bytes), 0);
}

TEST_P(StoreContract, AnotherStoreOverTheSameObjectsSeesThem) {
  if (!GetParam().shared) GTEST_SKIP() << "skipped: 1 case, this store's objects are its own";
  std::string why_not;
  const std::unique_ptr<RemoteStore> other = GetParam().make(why_not);
  ASSERT_NE(other, nullptr) << why_not;
  StoreBed bed(*other);
  ASSERT_TRUE(bed.until_ready()) << other->health().why_not;
  const auto bytes = content(70'000, 1);
  put(name("a"), bytes);
  const auto results = bed.run_results(RemoteVerb::kGet, {item(name("a"), 4096, 70'000)});
  EXPECT_EQ(outcomes_text(results), "ok");
  EXPECT_EQ(std::memcmp(other->exchange() + 4096, bytes.data(), bytes.size()), 0);
  if (GetParam().removes) {
    EXPECT_EQ(bed.run(RemoteVerb::kRemove, {{name("a"), {}}}), "ok");
    EXPECT_TRUE(get(name("a"), 70'000).empty());
  }
  other->close(std::chrono::seconds(10));
}

// Killed with batches under way; served again afterwards, by itself.
TEST_P(StoreContract, AStoreWhoseProcessIsKilledServesAgain) {
  const std::uint32_t pid = store_->health().pid;
  if (pid == 0) GTEST_SKIP() << "skipped: 1 case, this store has no process of its own";
  const auto bytes = content(50'000, 1);
  put(name("a"), bytes);
  std::vector<RemoteBatchId> under_way;
  for (std::uint64_t i = 0; i < 20; ++i)
    under_way.push_back(
        bed_->submit({RemoteVerb::kGet, {item(name("a"), kGetAt + i * 50'000, 50'000)}, bed_->soon()}));
  const int process = static_cast<int>(::syscall(SYS_pidfd_open, pid, 0U));
  ASSERT_GE(process, 0);
  ASSERT_EQ(::syscall(SYS_pidfd_send_signal, process, SIGKILL, nullptr, 0U), 0);
  ::close(process);
  for (const RemoteBatchId id : under_way) {
    const std::string end = outcomes_text(bed_->end_of(id));
    EXPECT_TRUE(end == "ok" || end == "down") << end;
  }
  ASSERT_TRUE(bed_->until_quiet());
  ASSERT_TRUE(bed_->until([&] { return store_->health().ready && store_->health().pid != pid; }))
      << store_->health().why_not;
  EXPECT_GE(store_->health().starts, 2U);
  const auto found = get(name("a"), 50'000);
  EXPECT_TRUE(found == bytes || (found.empty() && !GetParam().keeps)) << found.size();
  put(name("b"), bytes);
  EXPECT_EQ(get(name("b"), 50'000), bytes);
}

TEST_P(StoreContract, TheArenaIsARegionOfItsOwn) {
  const MutableByteView arena = GetParam().arena;
  if (arena.empty()) GTEST_SKIP() << "skipped: 1 case, this store was given no arena";
  ASSERT_GE(arena.size(), 65'536U);
  const auto bytes = content(20'000, 1);
  std::memset(arena.data(), 0xEE, 65'536);
  std::memcpy(arena.data() + 4096, bytes.data(), bytes.size());
  ASSERT_EQ(bed_->run(RemoteVerb::kPut, {{name("a"), {{1, 4096, 20'000}}}}), "ok");
  EXPECT_EQ(get(name("a"), 20'000), bytes);
  std::memset(arena.data(), 0xEE, 65'536);
  ASSERT_EQ(
      bed_->run(RemoteVerb::kGet, {{name("a"), {{1, 30'000, 5000}, {0, 0, 10'000}, {1, 40'000, 5000}}}}),
      "ok");
  EXPECT_EQ(std::memcmp(arena.data() + 30'000, bytes.data(), 5000), 0);
  EXPECT_TRUE(holds(0, {bytes.begin() + 5000, bytes.begin() + 15'000}));
  EXPECT_EQ(std::memcmp(arena.data() + 40'000, bytes.data() + 15'000, 5000), 0);
  EXPECT_FALSE(store_->submit({RemoteVerb::kGet, {{name("a"), {{1, arena.size(), 1}}}}, bed_->soon()}));
}

TEST_P(StoreContract, WhatIsDamagedIsNeverServed) {
  if (!GetParam().damage) GTEST_SKIP() << "skipped: 1 case, nobody here can damage what this store holds";
  const auto bytes = content(10'000, 1);
  put(name("a"), bytes);
  ASSERT_TRUE(GetParam().damage(name("a")));
  const std::string end = bed_->run(RemoteVerb::kGet, {item(name("a"), 0, 10'000)});
  EXPECT_TRUE(end == "absent" || end == "failed" || end == "wrong_size") << end;
  put(name("a"), bytes);  // and does not stand in the way
  EXPECT_EQ(get(name("a"), 10'000), bytes);
}

TEST_P(StoreContract, CloseEndsWhatIsUnderWayAndTakesNothingMore) {
  put(name("a"), content(1U << 20, 1));
  std::vector<RemoteBatchId> under_way;
  for (std::uint64_t i = 0; i < 8; ++i)
    under_way.push_back(bed_->submit(
        {RemoteVerb::kGet, {item(name("a"), kGetAt + (i % 4) * (1U << 20), 1U << 20)}, bed_->soon()}));
  store_->close(std::chrono::seconds(10));
  bed_->collect();
  for (const RemoteBatchId id : under_way) {
    EXPECT_TRUE(bed_->ended(id) && bed_->quiet(id));
    const std::string end = outcomes_text(bed_->end_of(id));
    EXPECT_TRUE(end == "ok" || end == "cancelled") << end;
  }
  const auto refused = store_->submit({RemoteVerb::kExists, {{name("a"), {}}}, bed_->soon()});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Code::kUnavailable);
  EXPECT_FALSE(store_->health().ready);
  EXPECT_NE(store_->health().why_not, "");
  store_->close(Duration(0));
}

TEST_P(StoreContract, AnObjectOfAGibibyteGoesRound) {
  constexpr std::uint64_t kBytes = 1U << 30;
  const char* wanted = std::getenv("TIERCEL_LONG_TESTS");  // NOLINT(concurrency-mt-unsafe): nobody sets it
  if (wanted == nullptr) GTEST_SKIP() << "skipped: 1 case, it takes long; set TIERCEL_LONG_TESTS";
  if (GetParam().object_bytes_max < kBytes || store_->exchange_bytes() < kBytes)
    GTEST_SKIP() << "skipped: 1 case, wanted an exchange and objects of 1 GiB";
  const auto bytes = content(kBytes, 1);
  set(0, bytes);
  ASSERT_EQ(bed_->run(RemoteVerb::kPut, {item(name("a"), 0, kBytes)}), "ok");
  std::memset(memory(0), 0xEE, kBytes);
  ASSERT_EQ(bed_->run(RemoteVerb::kGet, {item(name("a"), 0, kBytes)}), "ok");
  EXPECT_TRUE(holds(0, bytes));
}

}  // namespace tiercel
