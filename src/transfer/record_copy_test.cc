#include "transfer/record_copy.h"

#include <algorithm>
#include <map>
#include <set>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/prng.h"
#include "device/device_pool.h"

namespace tiercel {
namespace {

using testing::HasSubstr;

constexpr std::uint64_t kSlots = 3;

// Layers 2, 5 and 9 with k and v of 24 and 10 bytes a page: small enough to damage every byte.
std::shared_ptr<const StorageForm> small_form() {
  ModelSpec spec;
  spec.model_type = "test";
  spec.page_tokens = 2;
  spec.topology = {1, 1, 1};
  Group group;
  group.kind = FullKind{};
  group.layers = {2, 5, 9};
  group.components = {{"k", {12}, DType::kU8, 12}, {"v", {5}, DType::kU8, 5}};
  spec.groups = {group};
  return std::make_shared<const StorageForm>(make_storage_form(spec).value());
}

std::byte content(std::uint64_t slot, std::uint64_t position) {
  return static_cast<std::byte>(mix64(slot * 1000 + position + 1));
}

// Fails from the given access on (counting reads and writes), each time.
class FailingDevice final : public Device {
 public:
  FailingDevice(Device& inner, int good) : inner_(inner), good_(good) {}
  Status read(std::uint64_t address, MutableByteView into) override {
    return good_-- > 0 ? inner_.read(address, into) : Status{Code::kIoError, "the device failed"};
  }
  Status write(std::uint64_t address, ByteView from) override {
    return good_-- > 0 ? inner_.write(address, from) : Status{Code::kIoError, "the device failed"};
  }
  std::uint64_t size_bytes() const override { return inner_.size_bytes(); }

 private:
  Device& inner_;
  int good_;
};

// An engine with patterned slots and a record in three pieces of an arena.
struct Fixture {
  std::shared_ptr<const StorageForm> form = small_form();
  const ClassForm& cls = form->classes[0];
  std::uint64_t total = header_bytes(cls) + cls.record_bytes;
  std::vector<std::byte> memory = std::vector<std::byte>(4096, std::byte{0xEE});
  ByteArena arena{MutableByteView(memory)};
  HostDevice device{4096};
  std::shared_ptr<const DevicePool> engine =
      std::make_shared<const DevicePool>(layer_first_pool(cls, ShardId(0), 100, kSlots).value());
  RecordPlace place;

  Fixture() {
    place.form = form;
    place.cls = cls.id;
    place.spans = {{2000, 150}, {64, 77}, {1000, total - 227}};  // cuts header, and a component of a layer
    place.label.root[0] = std::byte{7};
    place.label.key.words = {11, 12};
    place.label.generation = 4;
    for (std::uint64_t slot = 0; slot < kSlots; ++slot) fill(*engine, slot, slot);
  }
  void fill(const DevicePool& pool, std::uint64_t slot, std::uint64_t pattern) {
    for (const DeviceRun& run : pool.runs)
      for (std::uint64_t i = 0; i < run.length; ++i)
        device.bytes()[run.base + slot * run.stride + i] = content(pattern, run.payload_offset + i);
  }
  // Whether the payload bytes [begin, end) of the engine's slot are those of `pattern`.
  bool holds(const DevicePool& pool, std::uint64_t slot, std::uint64_t pattern, std::uint64_t begin,
             std::uint64_t end) {
    for (const DeviceRun& run : pool.runs)
      for (std::uint64_t i = 0; i < run.length; ++i) {
        const std::uint64_t position = run.payload_offset + i;
        if (position >= begin && position < end &&
            device.bytes()[run.base + slot * run.stride + i] != content(pattern, position))
          return false;
      }
    return true;
  }
  bool holds(std::uint64_t slot, std::uint64_t pattern) {
    return holds(*engine, slot, pattern, 0, cls.record_bytes);
  }
  RecordCopy copy(CopyKind kind, std::uint64_t slot = 0) const {
    return {kind, place, engine, slot, {0, static_cast<std::uint32_t>(cls.layers.size())}, true};
  }
  Status run(const RecordCopy& copy) { return carry_out(copy, arena, device); }
  // Where byte number `position` of the record lies in the arena.
  std::byte& at(std::uint64_t position) { return arena.view(place.spans, position, 1)[0]; }
};

TEST(RecordCopy, AStoredRecordComesBackToAnotherSlotByteForByte) {
  Fixture f;
  ASSERT_EQ(f.run(f.copy(CopyKind::kStore, 0)), Status{});
  for (std::uint64_t i = 0; i < f.cls.record_bytes; ++i)
    ASSERT_EQ(f.at(header_bytes(f.cls) + i), content(0, i)) << "payload in record order";
  EXPECT_EQ(f.run(f.copy(CopyKind::kVerify)), Status{});
  ASSERT_EQ(f.run(f.copy(CopyKind::kLoad, 2)), Status{});
  EXPECT_TRUE(f.holds(2, 0));
  EXPECT_TRUE(f.holds(1, 1)) << "the neighbour is untouched";
  std::set<std::uint64_t> inside;
  for (const ArenaSpan& span : f.place.spans)
    for (std::uint64_t i = 0; i < span.length; ++i) inside.insert(span.offset + i);
  for (std::uint64_t i = 0; i < f.memory.size(); ++i)
    if (!inside.contains(i)) {
      ASSERT_EQ(f.memory[i], std::byte{0xEE}) << "nothing outside the spans, at " << i;
    }
}

TEST(RecordCopy, ARecordSealedInPlaceEqualsAStoredOne) {
  Fixture f;
  ASSERT_TRUE(f.run(f.copy(CopyKind::kStore, 1)).ok());
  const std::vector<std::byte> stored = f.memory;
  for (std::uint64_t i = 0; i < header_bytes(f.cls); ++i) f.at(i) = std::byte{0};
  EXPECT_EQ(f.run(f.copy(CopyKind::kVerify)).code, Code::kDataCorrupt) << "no header yet";
  ASSERT_TRUE(f.run(f.copy(CopyKind::kSeal)).ok());
  EXPECT_EQ(f.memory, stored);
}

TEST(RecordCopy, ASealComparesTheWritersChecksumsOrTakesThemUnread) {
  Fixture f;
  ASSERT_TRUE(f.run(f.copy(CopyKind::kStore, 1)).ok());
  std::vector<std::byte> payload;
  for (std::uint64_t i = 0; i < f.cls.record_bytes; ++i) payload.push_back(f.at(header_bytes(f.cls) + i));
  RecordCopy seal = f.copy(CopyKind::kSeal);
  seal.checksums = run_checksums(f.cls, payload);
  EXPECT_TRUE(f.run(seal).ok());
  EXPECT_TRUE(f.run(f.copy(CopyKind::kVerify)).ok());
  seal.checksums.back() ^= 1;
  const Status refused = f.run(seal);
  EXPECT_EQ(refused.code, Code::kDataCorrupt) << refused.to_string();
  EXPECT_EQ(f.run(f.copy(CopyKind::kVerify)).code, Code::kDataCorrupt) << "no header is left";
  seal.trusted = true;
  EXPECT_TRUE(f.run(seal).ok());
  EXPECT_EQ(f.run(f.copy(CopyKind::kVerify)).code, Code::kDataCorrupt) << "the first reader finds it";
}

TEST(RecordCopy, LayersCanBeLoadedOneByOneInAnyOrder) {
  Fixture f;
  ASSERT_TRUE(f.run(f.copy(CopyKind::kStore, 0)).ok());
  for (const std::uint32_t layer : {2U, 0U}) {
    RecordCopy load = f.copy(CopyKind::kLoad, 1);
    load.layers = {layer, layer + 1};
    ASSERT_TRUE(f.run(load).ok());
  }
  EXPECT_TRUE(f.holds(*f.engine, 1, 0, 0, 34));
  EXPECT_TRUE(f.holds(*f.engine, 1, 1, 34, 68)) << "the layer that was not asked for stays as it was";
  EXPECT_TRUE(f.holds(*f.engine, 1, 0, 68, 102));
  RecordCopy nothing = f.copy(CopyKind::kLoad, 2);
  nothing.layers = {1, 1};
  ASSERT_TRUE(f.run(nothing).ok());
  EXPECT_TRUE(f.holds(2, 2));
}

TEST(RecordCopy, AnyLayoutOfTheEngineWorks) {
  Fixture f;
  ASSERT_TRUE(f.run(f.copy(CopyKind::kStore, 0)).ok());
  DevicePool page_first{f.cls.id, ShardId(0), 2, {{0, 102, 2000, 128}}};
  DevicePool odd{f.cls.id, ShardId(0), 2, {{0, 7, 3000, 7}, {7, 60, 2500, 200}, {67, 35, 3100, 40}}};
  for (DevicePool* pool : {&page_first, &odd}) {
    ASSERT_TRUE(validate(*pool, f.cls, 4096).ok());
    RecordCopy load = f.copy(CopyKind::kLoad, 1);
    load.engine = std::make_shared<const DevicePool>(*pool);
    ASSERT_TRUE(f.run(load).ok());
    EXPECT_TRUE(f.holds(*pool, 1, 0, 0, 102));
    RecordCopy store = load;
    store.kind = CopyKind::kStore;
    ASSERT_TRUE(f.run(store).ok());
    EXPECT_EQ(f.run(f.copy(CopyKind::kVerify)), Status{});
  }
}

TEST(RecordCopy, DamageAtEveryByteIsFoundByVerifyAndByLoad) {
  Fixture f;
  ASSERT_TRUE(f.run(f.copy(CopyKind::kStore, 0)).ok());
  for (std::uint64_t position = 0; position < f.total; ++position)
    for (const unsigned flip : {0x01U, 0x80U, 0xFFU}) {
      f.at(position) ^= static_cast<std::byte>(flip);
      const Status verified = f.run(f.copy(CopyKind::kVerify));
      EXPECT_EQ(verified.code, Code::kDataCorrupt) << position;
      f.fill(*f.engine, 2, 2);
      const Status loaded = f.run(f.copy(CopyKind::kLoad, 2));
      EXPECT_EQ(loaded, verified) << position;
      if (position < header_bytes(f.cls)) {
        EXPECT_THAT(verified.message, HasSubstr("header")) << position;
        EXPECT_TRUE(f.holds(2, 2)) << "with a wrong header nothing is copied, byte " << position;
      } else {
        const std::uint64_t layer = (position - header_bytes(f.cls)) / 34;
        EXPECT_THAT(verified.message, HasSubstr("layer " + std::to_string(f.cls.layers[layer].layer)))
            << position;
      }
      f.at(position) ^= static_cast<std::byte>(flip);
    }
  EXPECT_EQ(f.run(f.copy(CopyKind::kVerify)), Status{});
}

TEST(RecordCopy, DamageIsFoundInTheLayersAskedForOnly) {
  Fixture f;
  ASSERT_TRUE(f.run(f.copy(CopyKind::kStore, 0)).ok());
  f.at(header_bytes(f.cls) + 40) ^= std::byte{1};  // layer number 1
  for (std::uint32_t layer = 0; layer < 3; ++layer) {
    RecordCopy load = f.copy(CopyKind::kLoad, 1);
    load.layers = {layer, layer + 1};
    EXPECT_EQ(f.run(load).ok(), layer != 1);
  }
  RecordCopy unverified = f.copy(CopyKind::kLoad, 1);
  unverified.verify = false;
  EXPECT_TRUE(f.run(unverified).ok()) << "asked not to look at the payload";
  f.at(50) ^= std::byte{1};
  EXPECT_EQ(f.run(unverified).code, Code::kDataCorrupt) << "the header is looked at always";
}

TEST(RecordCopy, ANeighboursRecordIsNotTaken) {
  Fixture f;
  ASSERT_TRUE(f.run(f.copy(CopyKind::kStore, 0)).ok());
  const auto complaint = [&](const std::function<void(RecordCopy&)>& change) {
    RecordCopy load = f.copy(CopyKind::kLoad, 2);
    change(load);
    return f.run(load).message;
  };
  EXPECT_THAT(complaint([](RecordCopy& c) { c.place.label.key.words[1] = 9; }), HasSubstr("key"));
  EXPECT_THAT(complaint([](RecordCopy& c) { c.place.label.root[3] = std::byte{1}; }), HasSubstr("namespace"));
  EXPECT_THAT(complaint([](RecordCopy& c) { c.place.label.generation = 5; }), HasSubstr("generation"));
  EXPECT_THAT(complaint([](RecordCopy& c) { c.place.label.shard = ShardId(1); }), HasSubstr("shard"));
  EXPECT_TRUE(f.holds(2, 2)) << "and nothing was copied";
}

TEST(RecordCopy, ADeviceErrorEndsTheCopyAndLeavesNoValidRecord) {
  for (int good = 0; good < 6; ++good) {  // one access a component
    Fixture f;
    ASSERT_TRUE(f.run(f.copy(CopyKind::kStore, 0)).ok());
    FailingDevice failing(f.device, good);
    EXPECT_EQ(carry_out(f.copy(CopyKind::kLoad, 1), f.arena, failing).code, Code::kIoError);
    EXPECT_TRUE(f.run(f.copy(CopyKind::kVerify)).ok()) << "a failed load does not harm the record";
    FailingDevice failing_again(f.device, good);
    EXPECT_EQ(carry_out(f.copy(CopyKind::kStore, 2), f.arena, failing_again).code, Code::kIoError);
    EXPECT_EQ(f.run(f.copy(CopyKind::kVerify)).code, Code::kDataCorrupt)
        << "half of another page is no record";
  }
}

TEST(RecordCopy, AMovedRecordIsTheSameRecord) {
  Fixture f;
  ASSERT_TRUE(f.run(f.copy(CopyKind::kStore, 0)).ok());
  const std::vector<ArenaSpan> to = {{3000, 10}, {500, 250}, {3500, f.total - 260}};
  move_record(f.place.spans, to, f.total, f.arena);
  for (std::uint64_t i = 0; i < f.total; ++i) f.at(i) = std::byte{0};
  f.place.spans = to;
  ASSERT_EQ(f.run(f.copy(CopyKind::kLoad, 1)), Status{});
  EXPECT_TRUE(f.holds(1, 0));
}

TEST(RecordCopy, AThinArenaKeepsChecksAndMovesTheFirstBytesOfRecordsBeyondFourGiB) {
  Fixture f;
  constexpr std::uint64_t kFar = 1ULL << 42;
  ThinArena thin(2 * kFar, 40);  // one layer and six bytes
  f.place.spans = {{kFar, 1 << 20}};
  ASSERT_TRUE(carry_out(f.copy(CopyKind::kStore, 0), thin, f.device).ok());
  EXPECT_TRUE(carry_out(f.copy(CopyKind::kVerify), thin, f.device).ok());
  ASSERT_TRUE(carry_out(f.copy(CopyKind::kLoad, 1), thin, f.device).ok());
  EXPECT_TRUE(f.holds(*f.engine, 1, 0, 0, 40));
  EXPECT_TRUE(f.holds(*f.engine, 1, 1, 40, 102)) << "what is not kept is not copied";
  const std::vector<ArenaSpan> to = {{kFar / 2, 200}, {5ULL << 30, 1 << 20}};
  move_record(f.place.spans, to, header_bytes(f.cls) + thin.payload_kept(f.cls.record_bytes), thin);
  thin.discard(f.place.spans);
  EXPECT_EQ(carry_out(f.copy(CopyKind::kVerify), thin, f.device).code, Code::kDataCorrupt) << "forgotten";
  f.place.spans = to;
  EXPECT_TRUE(carry_out(f.copy(CopyKind::kVerify), thin, f.device).ok());
  thin.view(to, header_bytes(f.cls) + 39, 1)[0] ^= std::byte{1};
  EXPECT_THAT(carry_out(f.copy(CopyKind::kVerify), thin, f.device).message, HasSubstr("layer 5"));
}

TEST(RecordCopy, TheSmallestPiecesAnArenaCanHaveWorkToo) {
  Fixture f;
  f.place.spans.clear();
  for (std::uint64_t i = 0; i < f.total; ++i) f.place.spans.push_back({4095 - 2 * i, 1});
  ASSERT_TRUE(f.run(f.copy(CopyKind::kStore, 0)).ok());
  ASSERT_TRUE(f.run(f.copy(CopyKind::kLoad, 1)).ok());
  EXPECT_TRUE(f.holds(1, 0));
}

// Hands out its memory, at most `longest` bytes at once; 0: none of it, every byte moves by read and write.
class PiecesDevice final : public Device {
 public:
  PiecesDevice(std::uint64_t bytes, std::uint64_t longest) : inner_(bytes), longest_(longest) {}
  Status read(std::uint64_t address, MutableByteView into) override {
    ++calls;
    return inner_.read(address, into);
  }
  Status write(std::uint64_t address, ByteView from) override {
    ++calls;
    return inner_.write(address, from);
  }
  std::uint64_t size_bytes() const override { return inner_.size_bytes(); }
  MutableByteView host_view(std::uint64_t address, std::uint64_t length) override {
    return longest_ == 0 ? MutableByteView() : inner_.host_view(address, std::min(length, longest_));
  }
  MutableByteView bytes() { return inner_.bytes(); }
  int calls = 0;

 private:
  HostDevice inner_;
  std::uint64_t longest_;
};

// Five layers of 17 KiB and a bit: long enough to go past the caches, with no end on any boundary.
struct LongRecords {
  std::shared_ptr<const StorageForm> form = [] {
    ModelSpec spec;
    spec.page_tokens = 1;
    spec.topology = {1, 1, 1};
    Group group;
    group.kind = FullKind{};
    group.layers = {0, 1, 2, 3, 4};
    group.components = {{"k", {9001}, DType::kU8, 9001}, {"v", {8407}, DType::kU8, 8407}};
    spec.groups = {group};
    return std::make_shared<const StorageForm>(make_storage_form(spec).value());
  }();
  const ClassForm& cls = form->classes[0];
  std::uint64_t total = header_bytes(cls) + cls.record_bytes;
  std::uint64_t slots = 2;

  RecordCopy copy(CopyKind kind, const DevicePool& pool, std::uint64_t slot, bool verify) const {
    RecordCopy copy;
    copy.kind = kind;
    copy.place = {form, cls.id, {{70'003, 20'011}, {1, 40'000}, {100'001, total - 60'011}}, {}};
    copy.place.label.generation = 1;
    copy.engine = std::make_shared<const DevicePool>(pool);
    copy.slot = slot;
    copy.layers = {0, 5};
    copy.verify = verify;
    return copy;
  }
  std::vector<DevicePool> pools() const {
    return {layer_first_pool(cls, ShardId(0), 5, slots).value(),
            DevicePool{cls.id, ShardId(0), slots, {DeviceRun{0, cls.record_bytes, 3, cls.record_bytes + 7}}}};
  }
};

TEST(RecordCopy, LongRecordsMoveAlikeThroughMemoryPiecesAndCalls) {
  const LongRecords records;
  for (const DevicePool& pool : records.pools()) {
    std::vector<std::byte> first_arena;
    for (const std::uint64_t longest : {UINT64_MAX, std::uint64_t{1}, std::uint64_t{701}, std::uint64_t{0}}) {
      std::vector<std::byte> memory(200'000, std::byte{0xEE});
      ByteArena arena{MutableByteView(memory)};
      PiecesDevice device(end_address(pool) + 9, longest);
      Prng prng(6);
      for (std::byte& b : device.bytes()) b = static_cast<std::byte>(prng.next());
      ASSERT_TRUE(carry_out(records.copy(CopyKind::kStore, pool, 0, true), arena, device).ok());
      ASSERT_TRUE(carry_out(records.copy(CopyKind::kVerify, pool, 0, true), arena, device).ok());
      if (first_arena.empty()) first_arena = memory;
      EXPECT_EQ(memory, first_arena) << "pieces of " << longest;
      std::vector<std::byte> wanted(device.bytes().begin(), device.bytes().end());
      for (const DeviceRun& run : pool.runs)
        std::copy_n(wanted.begin() + static_cast<std::ptrdiff_t>(run.base), run.length,
                    wanted.begin() + static_cast<std::ptrdiff_t>(run.base + run.stride));
      for (const bool verify : {true, false}) {
        for (const DeviceRun& run : pool.runs)
          std::fill_n(device.bytes().data() + run.base + run.stride, run.length, std::byte{0xDD});
        ASSERT_TRUE(carry_out(records.copy(CopyKind::kLoad, pool, 1, verify), arena, device).ok());
        EXPECT_TRUE(std::ranges::equal(device.bytes(), wanted)) << longest << ", verified: " << verify;
      }
      EXPECT_EQ(device.calls > 0, longest == 0);
    }
  }
}

TEST(RecordCopy, DamageInALongRecordIsNamedByItsLayer) {
  const LongRecords records;
  const DevicePool pool = records.pools()[1];
  std::vector<std::byte> memory(200'000);
  ByteArena arena{MutableByteView(memory)};
  PiecesDevice device(end_address(pool), UINT64_MAX);
  const RecordCopy load = records.copy(CopyKind::kLoad, pool, 1, true);
  ASSERT_TRUE(carry_out(records.copy(CopyKind::kStore, pool, 0, true), arena, device).ok());
  const std::uint64_t layer_bytes = records.cls.layers[0].length;
  for (std::uint64_t position = 0; position < records.cls.record_bytes; position += 499) {
    std::byte& at = arena.view(load.place.spans, header_bytes(records.cls) + position, 1)[0];
    at ^= std::byte{0x10};
    EXPECT_THAT(carry_out(load, arena, device).message,
                HasSubstr("layer " + std::to_string(position / layer_bytes)));
    at ^= std::byte{0x10};
  }
  EXPECT_TRUE(carry_out(load, arena, device).ok());
}

TEST(CopyDoneQueue, GivesEachEndOnceInOrder) {
  CopyDoneQueue queue;
  EXPECT_TRUE(queue.drain().empty());
  queue.push({OperationId(1), 0, {}});
  queue.push({OperationId(1), 1, {Code::kIoError, "no"}});
  const auto done = queue.drain();
  ASSERT_EQ(done.size(), 2U);
  EXPECT_EQ(done[1].index, 1U);
  EXPECT_EQ(done[1].status.code, Code::kIoError);
  EXPECT_TRUE(queue.drain().empty());
}

TEST(CopyTask, ManyCopiesOnWorkerThreadsEachEndOnce) {
  constexpr std::uint64_t kRecords = 200;
  const auto form = small_form();
  const ClassForm& cls = form->classes[0];
  const std::uint64_t slot_bytes = header_bytes(cls) + cls.record_bytes;
  ByteArena arena(kRecords * slot_bytes);
  HostDevice device(2 * kRecords * cls.record_bytes);
  const auto engine =
      std::make_shared<const DevicePool>(layer_first_pool(cls, ShardId(0), 0, 2 * kRecords).value());
  Prng prng(5);
  for (std::byte& b : device.bytes()) b = static_cast<std::byte>(prng.next());
  const auto queue = std::make_shared<CopyDoneQueue>();
  const auto run_all = [&](CopyKind kind, std::uint64_t first_slot) {
    ThreadExecutor executor(3);
    for (std::uint64_t i = 0; i < kRecords; ++i) {
      RecordCopy copy{
          kind, {form, cls.id, {{i * slot_bytes, slot_bytes}}, {}}, engine, first_slot + i, {0, 3}, true};
      copy.place.label.key.words = {i, 0};
      copy.place.label.generation = 1;
      executor.submit(make_copy_task(OperationId(7), i, std::move(copy), arena, device, queue));
    }
    std::map<std::uint64_t, int> ends;
    while (ends.size() < kRecords) {
      for (const CopyDone& done : queue->drain()) {
        EXPECT_EQ(done.status, Status{});
        EXPECT_EQ(done.operation, OperationId(7));
        ++ends[done.index];
      }
      std::this_thread::yield();
    }
    for (const auto& [index, count] : ends) EXPECT_EQ(count, 1) << index;
  };
  run_all(CopyKind::kStore, 0);
  run_all(CopyKind::kLoad, kRecords);
  for (const DeviceRun& run : engine->runs)
    EXPECT_TRUE(
        std::ranges::equal(device.bytes().subspan(run.base, kRecords * run.stride),
                           device.bytes().subspan(run.base + kRecords * run.stride, kRecords * run.stride)));
}

}  // namespace
}  // namespace tiercel
