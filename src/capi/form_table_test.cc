#include "capi/form_table.h"

#include <cstring>

#include <gtest/gtest.h>

#include "capi/test_program.h"
#include "model/spec_json.h"

namespace tiercel::capi {
namespace {

// Two layers of k (8 bytes a token) and v (4 bytes a token), two tokens a page: record k0 v0 k1 v1 of 48
// bytes.
std::shared_ptr<const FormTable> two_layers() {
  constexpr std::string_view kSpec = R"({"tiercel_spec": 1, "model_type": "t", "page_tokens": 2,
    "topology": {"tp": 1}, "groups": [{"kind": "full", "layers": [4, 9],
      "components": [{"name": "k", "shape": [4], "dtype": "bf16"}, {"name": "v", "shape": [2], "dtype": "bf16"}]}]})";
  return std::make_shared<const FormTable>(FormId(1),
                                           make_storage_form(read_spec_json(kSpec, "t").value()).value());
}

tiercel_memory_run run_at(std::uint64_t base, std::uint32_t component, std::uint32_t layer) {
  tiercel_memory_run run{};
  run.base = reinterpret_cast<void*>(base);  // NOLINT(performance-no-int-to-ptr): never followed
  run.slot_stride = 100;
  run.component = component;
  run.layer = layer;
  return run;
}

tiercel_memory_options memory_of(const std::vector<tiercel_memory_run>& runs) {
  auto options = sized<tiercel_memory_options>();
  options.runs = runs.data();
  options.run_count = runs.size();
  options.slots = 3;
  return options;
}

TEST(CapiFormTable, ComponentsAreNumberedAndRunsStandInRecordOrder) {
  const auto table = two_layers();
  const ClassTable& cls = table->classes.at(0);
  EXPECT_EQ(cls.components, (std::vector<std::string>{"k", "v"}));
  ASSERT_EQ(cls.runs.size(), 4U);
  EXPECT_EQ(cls.runs[2].offset, 24U);
  EXPECT_EQ(cls.runs[2].length, 16U);
  EXPECT_EQ(cls.runs[2].layer, 9U);
  EXPECT_EQ(cls.runs[3].component, 1U);
  EXPECT_EQ(cls.runs[3].entries, 2U);
  EXPECT_STREQ(cls.runs[3].name, "v");
}

TEST(CapiFormTable, RunsByLayerAndForAllLayersGiveTheSamePool) {
  const auto table = two_layers();
  auto every_k = run_at(1000, 0, TIERCEL_WHOLE);
  every_k.layer_stride = 5000;
  const std::vector<tiercel_memory_run> a = {every_k, run_at(2000, 1, 4), run_at(7000, 1, 9)};
  const std::vector<tiercel_memory_run> b = {run_at(6000, 0, 9), run_at(7000, 1, 9), run_at(1000, 0, 4),
                                             run_at(2000, 1, 4)};
  const auto pool_a = make_device_pool(*table, memory_of(a)), pool_b = make_device_pool(*table, memory_of(b));
  ASSERT_TRUE(pool_a) << pool_a.error().message;
  ASSERT_TRUE(pool_b) << pool_b.error().message;
  ASSERT_EQ(pool_a->runs.size(), 4U);
  for (std::size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(pool_a->runs[i].base, pool_b->runs[i].base) << i;
    EXPECT_EQ(pool_a->runs[i].payload_offset, pool_b->runs[i].payload_offset) << i;
  }
  EXPECT_EQ(pool_a->runs[2].base, 6000U);
}

TEST(CapiFormTable, EntriesThatLieApartBecomePieces) {
  const auto table = two_layers();
  auto k = run_at(1000, 0, TIERCEL_WHOLE);
  k.entry_stride = 24;  // token by token: k0 v0 of one token side by side, as page-first pools lay them
  k.layer_stride = 12;
  auto v = run_at(1008, 1, TIERCEL_WHOLE);
  v.entry_stride = 24;
  v.layer_stride = 12;
  const std::vector<tiercel_memory_run> runs = {k, v};
  const auto pool = make_device_pool(*table, memory_of(runs));
  ASSERT_TRUE(pool) << pool.error().message;
  ASSERT_EQ(pool->runs.size(), 8U);
  EXPECT_EQ(pool->runs[1].base, 1024U);  // k of layer 4, second token
  EXPECT_EQ(pool->runs[1].length, 8U);
  EXPECT_EQ(pool->runs[7].base, 1008U + 12 + 24);
}

TEST(CapiFormTable, MemoryThatDoesNotFitTheClassIsNamed) {
  const auto table = two_layers();
  const std::vector<std::vector<tiercel_memory_run>> wrong = {
      {},
      {run_at(1000, 0, TIERCEL_WHOLE)},                                                // v is missing
      {run_at(1000, 0, TIERCEL_WHOLE), run_at(1, 1, TIERCEL_WHOLE), run_at(9, 0, 4)},  // k twice
      {run_at(1000, 0, TIERCEL_WHOLE), run_at(1, 1, TIERCEL_WHOLE), run_at(9, 2, 4)},  // no such component
      {run_at(1000, 0, TIERCEL_WHOLE), run_at(1, 1, TIERCEL_WHOLE), run_at(9, 0, 5)},  // no such layer
      {run_at(0, TIERCEL_WHOLE, TIERCEL_WHOLE)},                                       // NULL
      {run_at(1000, TIERCEL_WHOLE, 4)},                                                // whole, of one layer
      {run_at(EngineMemory::kBroughtBase - 100, TIERCEL_WHOLE, TIERCEL_WHOLE)},        // beyond any address
      {run_at(UINT64_MAX - 1, TIERCEL_WHOLE, TIERCEL_WHOLE)},
  };
  for (std::size_t i = 0; i < wrong.size(); ++i) {
    const auto pool = make_device_pool(*table, memory_of(wrong[i]));
    ASSERT_FALSE(pool) << i;
    EXPECT_EQ(pool.error().code, Code::kInvalidArgument) << i;
  }
  auto overlapping = run_at(1000, TIERCEL_WHOLE, TIERCEL_WHOLE);
  overlapping.slot_stride = 40;
  EXPECT_FALSE(make_device_pool(*table, memory_of({overlapping})));
}

TEST(CapiFormTable, MemoryThatLiesHeadByHeadIsNotBuiltAndReservedIsChecked) {
  const auto table = two_layers();
  const auto code = [&](auto&& change) {
    auto run = run_at(1000, TIERCEL_WHOLE, TIERCEL_WHOLE);
    change(run);
    const std::vector<tiercel_memory_run> runs = {run};
    const auto pool = make_device_pool(*table, memory_of(runs));
    return pool ? Code::kOk : pool.error().code;
  };
  EXPECT_EQ(code([](auto&) {}), Code::kOk);
  EXPECT_EQ(code([](auto& run) { run.head_count = 8; }), Code::kUnsupported);
  EXPECT_EQ(code([](auto& run) { run.head_stride = 8; }), Code::kUnsupported);
  EXPECT_EQ(code([](auto& run) { run.reserved[1] = 1; }), Code::kInvalidArgument);
}

TEST(CapiFormTable, ObjectsBecomePiecesInRecordOrder) {
  const auto table = two_layers();
  std::vector<std::byte> k(32), v(16);
  const tiercel_segment k_parts[] = {{k.data(), 20}, {nullptr, 0}, {k.data() + 20, 12}};
  const tiercel_segment v_part = {v.data(), 16};
  const tiercel_object objects[] = {{&v_part, 1, 1, 0}, {k_parts, 3, 0, 0}};  // any order
  bool fits = false;
  const auto pieces = make_pieces(*table, 0, {objects, 2}, &fits);
  ASSERT_TRUE(pieces) << pieces.error().message;
  ASSERT_TRUE(fits);
  std::uint64_t at = 0;
  for (const Piece& piece : *pieces) {
    EXPECT_EQ(piece.offset, at);
    at += piece.size;
  }
  EXPECT_EQ(at, 48U);
  ASSERT_EQ(pieces->size(), 5U);
  EXPECT_EQ((*pieces)[2].data, k.data() + 16);  // k of the second layer, cut at 20
  EXPECT_EQ((*pieces)[2].size, 4U);
}

TEST(CapiFormTable, ObjectsOfOtherSizesDoNotFit) {
  const auto table = two_layers();
  std::vector<std::byte> bytes(64);
  for (const std::uint64_t size : {0U, 47U, 49U}) {
    const tiercel_segment part = {bytes.data(), size};
    const tiercel_object whole = {&part, 1, TIERCEL_WHOLE, 0};
    bool fits = true;
    ASSERT_TRUE(make_pieces(*table, 0, {&whole, 1}, &fits)) << size;
    EXPECT_FALSE(fits) << size;
  }
  const tiercel_segment part = {bytes.data(), 32};
  const tiercel_object only_k = {&part, 1, 0, 0};
  bool fits = true;
  ASSERT_TRUE(make_pieces(*table, 0, {&only_k, 1}, &fits));
  EXPECT_FALSE(fits);
  const tiercel_object twice[] = {only_k, only_k};
  EXPECT_FALSE(make_pieces(*table, 0, {twice, 2}, &fits));
  const tiercel_object unknown = {&part, 1, 2, 0};
  EXPECT_FALSE(make_pieces(*table, 0, {&unknown, 1}, &fits));
  const tiercel_object absurd = {&part, UINT64_MAX, 0, 0};
  EXPECT_FALSE(make_pieces(*table, 0, {&absurd, 1}, &fits));
}

TEST(CapiEngineMemory, BroughtMemoryIsReadAndWrittenThroughItsPieces) {
  EngineMemory memory;
  const auto pool = memory.add_pool(10);
  ASSERT_TRUE(pool);
  std::vector<std::byte> a(6, std::byte{1}), b(4, std::byte{2});
  const auto other = memory.take(*pool, {{0, 6, b.data()}, {6, 4, b.data()}});
  const auto slot = memory.take(*pool, {{0, 6, a.data()}, {6, 4, b.data()}});
  ASSERT_TRUE(other && slot);
  const DevicePool device = memory.device_pool(*pool, ClassId(0), ShardId(0));
  const std::uint64_t at = device.runs[0].base + *slot * device.runs[0].stride;
  std::vector<std::byte> out(5);
  ASSERT_TRUE(memory.read(at + 3, out).ok());
  EXPECT_EQ(out,
            (std::vector<std::byte>{std::byte{1}, std::byte{1}, std::byte{1}, std::byte{2}, std::byte{2}}));
  const std::vector<std::byte> in(3, std::byte{7});
  ASSERT_TRUE(memory.write(at + 5, in).ok());
  EXPECT_EQ(a[5], std::byte{7});
  EXPECT_EQ(b[1], std::byte{7});
  EXPECT_EQ(b[2], std::byte{2});
  EXPECT_EQ(memory.host_view(at + 3, 7).size(), 3U) << "up to the end of the piece";
  EXPECT_EQ(memory.host_view(at + 3, 7).data(), a.data() + 3);
  EXPECT_EQ(memory.host_view(at + 6, 4).data(), b.data());
  EXPECT_EQ(memory.host_view(at + 6, 2).size(), 2U);
  EXPECT_EQ(memory.host_view(reinterpret_cast<std::uintptr_t>(a.data()), 6).data(), a.data());
  memory.give_back({*pool, *slot});
  EXPECT_EQ(memory.take(*pool, {{0, 10, a.data()}}), slot) << "a slot given back comes again";
  EXPECT_FALSE(memory.add_pool(0));
  EXPECT_FALSE(memory.add_pool(std::uint64_t{1} << 50));
}

}  // namespace
}  // namespace tiercel::capi
