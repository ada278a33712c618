// Engines that keep their own pools: described from the model, laid out as the engine wants, shared, copied
// layer by layer, and registered with a node, with no offset written by hand.
#include <array>
#include <map>
#include <set>

#include "engine_world.h"

namespace engines {
namespace {

using tiercel::HostPools;
using tiercel::HostPoolsBuilder;
using tiercel::Spec;

constexpr const char* kHybrid = R"({
  "tiercel_spec": 1, "model_type": "hybrid", "page_tokens": 4, "topology": {"tp": 1},
  "groups": [
    {"kind": "full", "layers": [3, 7], "components": [{"name": "k", "shape": [2, 8], "dtype": "bf16"},
                                                      {"name": "v", "shape": [2, 8], "dtype": "bf16"}]},
    {"kind": "window", "window_tokens": 8, "layers": [1, 5], "components": [{"name": "k", "shape": [2, 8], "dtype": "bf16"},
                                                                            {"name": "v", "shape": [2, 8], "dtype": "bf16"}]},
    {"kind": "state", "layers": [0, 2, 4, 6], "components": [{"name": "conv", "shape": [6, 3], "dtype": "bf16"},
                                                             {"name": "temporal", "shape": [2, 4, 4], "dtype": "f32"}]}
  ]})";
constexpr std::uint64_t kPages = 6;

Spec hybrid() { return must(Spec::from_json(kHybrid)); }

tiercel_host_pools_options options_of(const char* layout, const char* memory) {
  auto options = sized<tiercel_host_pools_options>();
  options.layout = layout;
  options.memory = memory;
  options.pages = kPages;
  return options;
}

// Every byte of every buffer of a group, each once, tells where it is.
void fill(const HostPools& pools, std::uint64_t seed) {
  for (const tiercel_segment& range : must(pools.ranges()))
    compute({static_cast<unsigned char*>(range.data), static_cast<std::size_t>(range.size)}, seed);
}

// The bytes of a page, component by component and in each layer by layer, as a copy into a page-by-page group
// gives them: the same for the same elements, whatever the layout they come from.
std::vector<unsigned char> page_of(HostPools& pools, std::uint32_t pool, std::uint64_t page) {
  const auto spec = hybrid();
  HostPools plain = must(HostPools::open(spec, options_of("record", "anonymous")));
  const std::uint64_t target = 0;
  const tiercel_copy_part part{&page, &target, 1, 0, pool, pool, {}};
  must(must(plain.copy_from(pools, {&part, 1})).wait());
  std::vector<unsigned char> bytes;
  for (const tiercel_pool_segment& segment : must(plain.segments(pool, 0))) {
    const auto* data = static_cast<const unsigned char*>(segment.data);
    bytes.insert(bytes.end(), data, data + segment.size);
  }
  return bytes;
}

TEST(HostPools, OneMemoryForAllPoolsOfAHybridModel) {
  auto options = options_of("page_first", nullptr);
  options.backend = "dynamic";
  options.allocator = "shm";
  HostPools pools = must(HostPools::open(hybrid(), options));
  const auto info = must(pools.describe());
  EXPECT_EQ(info.memory_kind, static_cast<tiercel_memory_kind>(TIERCEL_MEMORY_SHARED));
  EXPECT_GE(info.fd, 0);
  ASSERT_EQ(info.pools, 3U);
  EXPECT_EQ(info.ranges, 1U);
  EXPECT_EQ(info.layer_end, 8U);
  std::uint64_t bytes = 0;
  std::map<std::uint32_t, std::set<const void*>> seen;
  for (std::uint32_t pool = 0; pool < info.pools; ++pool) {
    const auto each = must(pools.pool(pool));
    bytes += each.pages * each.page_bytes;
    for (std::uint64_t page = 0; page < each.pages; ++page)
      for (const tiercel_pool_segment& segment : must(pools.segments(pool, page))) {
        const tiercel_segment range = must(pools.ranges()).at(segment.allocation);
        EXPECT_EQ(segment.data, static_cast<unsigned char*>(range.data) + segment.offset);
        EXPECT_LE(segment.offset + segment.size, range.size);
        EXPECT_TRUE(seen[pool].insert(segment.data).second);
      }
  }
  EXPECT_EQ(info.required_bytes, bytes);
  EXPECT_LE(info.required_bytes, info.mapped_bytes);
  EXPECT_STREQ(must(pools.pool(0)).name, "full");
  EXPECT_STREQ(must(pools.pool(1)).name, "window8");
  EXPECT_STREQ(must(pools.pool(2)).name, "state");
  EXPECT_EQ(must(pools.layers(1)), (std::vector<std::uint32_t>{1, 5}));
  EXPECT_NE(must(pools.text()).find("window8"), std::string::npos);
}

TEST(HostPools, AnotherMappingOfTheSameMemoryIsTheSamePools) {
  const auto options = options_of("layer_first", "shared");
  HostPools owner = must(HostPools::open(hybrid(), options));
  fill(owner, 5);
  const auto info = must(owner.describe());
  HostPools other = must(HostPools::attach(hybrid(), options, info.fd, info.fingerprint));
  const auto other_info = must(other.describe());
  EXPECT_TRUE(std::equal(std::begin(info.fingerprint), std::end(info.fingerprint), other_info.fingerprint));
  for (std::uint32_t pool = 0; pool < info.pools; ++pool)
    for (std::uint64_t page = 0; page < kPages; ++page) {
      const auto here = must(owner.segments(pool, page));
      const auto there = must(other.segments(pool, page));
      ASSERT_EQ(here.size(), there.size());
      for (std::size_t i = 0; i < here.size(); ++i) {
        EXPECT_NE(here[i].data, there[i].data);
        ASSERT_EQ(std::memcmp(here[i].data, there[i].data, static_cast<std::size_t>(here[i].size)), 0);
        std::memset(there[i].data, static_cast<int>(pool + 1), static_cast<std::size_t>(there[i].size));
        ASSERT_EQ(*static_cast<unsigned char*>(here[i].data), pool + 1);
      }
    }
  EXPECT_EQ(other.take(0, 1).status().code, TIERCEL_FAILED_PRECONDITION);
  auto wrong = options;
  wrong.pages = kPages * 100'000;
  EXPECT_NE(
      HostPools::attach(hybrid(), wrong, info.fd, info.fingerprint).status().message.find("give other pools"),
      std::string::npos);
  // Of the same size, in another order: every byte would be somebody else's.
  const auto other_layout =
      HostPools::attach(hybrid(), options_of("page_first", "shared"), info.fd, info.fingerprint);
  EXPECT_EQ(other_layout.status().code, TIERCEL_INVALID_ARGUMENT);
}

TEST(HostPools, CopiesBetweenAnyLayoutsKeepEveryElementAndWaitLayerByLayer) {
  for (const char* from : {"layer_first", "vllm_nhd", "vllm_block_hnd", "page_head", "llama_v_transposed"})
    for (const char* to : {"page_first", "page_first_direct;align=64", "page_first_kv_split"}) {
      HostPools engine = must(HostPools::open(hybrid(), options_of(from, "anonymous")));
      HostPools host = must(HostPools::open(hybrid(), options_of(to, "anonymous")));
      fill(engine, 9);
      const std::array<std::uint64_t, 3> source = {5, 0, 2};
      const std::array<std::uint64_t, 3> target = {1, 4, 3};
      std::vector<tiercel_copy_part> parts;
      for (std::uint32_t pool = 0; pool < 3; ++pool)
        parts.push_back({source.data(), target.data(), 3, 0, pool, pool, {}});
      auto copy_options = sized<tiercel_copy_options>();
      copy_options.sums = 1;
      tiercel::Copy copy = must(host.copy_from(engine, parts, copy_options));
      for (std::uint32_t layer = 0; layer < must(host.describe()).layer_end; ++layer)
        must(copy.wait_layer(layer, kLong));
      must(copy.wait(kLong));
      EXPECT_EQ(must(copy.layers()).size(), 8U);
      EXPECT_EQ(must(copy.sums(0, 7)).size(), 3U);
      EXPECT_EQ(copy.sums(0, 1).status().code, TIERCEL_NOT_FOUND);
      for (std::uint32_t pool = 0; pool < 3; ++pool)
        for (std::size_t i = 0; i < source.size(); ++i)
          ASSERT_EQ(page_of(engine, pool, source[i]), page_of(host, pool, target[i])) << from << " to " << to;
    }
}

TEST(HostPools, TokenSlotsGoWhereTheListsSay) {
  HostPools engine = must(HostPools::open(hybrid(), options_of("vllm_nhd", "anonymous")));
  HostPools host = must(HostPools::open(hybrid(), options_of("page_first", "anonymous")));
  fill(engine, 11);
  std::vector<std::uint64_t> source;
  std::vector<std::uint64_t> target;
  for (std::uint64_t token = 0; token < kPages * 4; ++token) {
    source.push_back(token);
    target.push_back((token * 7) % (kPages * 4));
  }
  const tiercel_copy_part scatter{source.data(), target.data(), source.size(), 1, 0, 0, {}};
  must(must(host.copy_from(engine, {&scatter, 1})).wait(kLong));
  HostPools back = must(HostPools::open(hybrid(), options_of("vllm_nhd", "anonymous")));
  const tiercel_copy_part gather{target.data(), source.data(), source.size(), 1, 0, 0, {}};
  must(must(back.copy_from(host, {&gather, 1})).wait(kLong));
  for (std::uint64_t page = 0; page < kPages; ++page)
    EXPECT_EQ(page_of(engine, 0, page), page_of(back, 0, page));
  EXPECT_NE(page_of(engine, 0, 1), page_of(host, 0, 1));
}

TEST(HostPools, PagesOfTwoRanksBecomeThoseOfOneAndBack) {
  constexpr const char* kWhole =
      R"({"tiercel_spec": 1, "model_type": "t", "page_tokens": 4, "topology": {"tp": 1},
    "groups": [{"kind": "full", "layers": [0, 2], "components": [{"name": "k", "shape": [4, 8], "dtype": "bf16"},
                                                                  {"name": "v", "shape": [4, 8], "dtype": "bf16"}]}]})";
  constexpr const char* kHalf =
      R"({"tiercel_spec": 1, "model_type": "t", "page_tokens": 4, "topology": {"tp": 2},
    "groups": [{"kind": "full", "layers": [0, 2], "components": [{"name": "k", "shape": [2, 8], "dtype": "bf16"},
                                                                  {"name": "v", "shape": [2, 8], "dtype": "bf16"}]}]})";
  const Spec whole = must(Spec::from_json(kWhole));
  const Spec half = must(Spec::from_json(kHalf));
  HostPools one = must(HostPools::open(whole, options_of("layer_first", "anonymous")));
  fill(one, 3);
  const std::array<std::uint64_t, 2> pages = {4, 1};
  const tiercel_copy_part part{pages.data(), pages.data(), 2, 0, 0, 0, {}};
  std::vector<HostPools> ranks;
  for (std::uint32_t rank = 0; rank < 2; ++rank) {
    ranks.push_back(must(HostPools::open(half, options_of("page_head", "anonymous"))));
    auto options = sized<tiercel_copy_options>();
    options.whole = whole.get();
    options.target_ranks = 2;
    options.target_rank = rank;
    must(must(ranks[rank].copy_from(one, {&part, 1}, options)).wait(kLong));
  }
  HostPools merged = must(HostPools::open(whole, options_of("vllm_hnd", "anonymous")));
  auto options = sized<tiercel_copy_options>();
  options.whole = whole.get();
  must(must(merged.copy_from(ranks, {&part, 1}, options)).wait(kLong));
  HostPools back = must(HostPools::open(whole, options_of("layer_first", "anonymous")));
  must(must(back.copy_from(merged, {&part, 1})).wait(kLong));
  for (const std::uint64_t page : pages) {
    const auto was = must(one.segments(0, page));
    const auto is = must(back.segments(0, page));
    for (std::size_t i = 0; i < was.size(); ++i)
      ASSERT_EQ(std::memcmp(was[i].data, is[i].data, static_cast<std::size_t>(was[i].size)), 0);
  }
  options.whole = nullptr;
  const auto refused = merged.copy_from(ranks, {&part, 1}, options);
  EXPECT_EQ(refused.status().code, TIERCEL_INVALID_ARGUMENT);
  EXPECT_NE(refused.status().message.find("whole is NULL"), std::string::npos);
}

TEST(HostPools, ANodeStoresFromOneLayoutAndLoadsIntoAnother) {
  constexpr const char* kModel =
      R"({"tiercel_spec": 1, "model_type": "t", "page_tokens": 4, "topology": {"tp": 1},
    "groups": [{"kind": "full", "layers": [0, 2], "components": [{"name": "k", "shape": [2, 8], "dtype": "bf16"},
                                                                  {"name": "v", "shape": [2, 6], "dtype": "bf16"}]},
               {"kind": "follower", "layers": [2], "components": [{"name": "index_k", "shape": [4], "dtype": "u8"}]}]})";
  const Spec spec = must(Spec::from_json(kModel));
  tiercel::Node node = open_node(8 << 20);
  tiercel::Session session = must(node.open_session());
  tiercel::Form form = must(node.open_form(spec, tiercel::one_rank()));
  auto identity = sized<tiercel_identity>();
  identity.weights = "w";
  identity.dtype = "bf16";
  tiercel::Namespace ns = must(session.open_namespace(form, identity));
  std::vector<std::uint32_t> tokens(8, 3);
  tiercel_key_chain chain = must(ns.start_chain());
  const auto keys = must(ns.keys_from_tokens(chain, tokens));

  HostPools engine = must(HostPools::open(spec, options_of("vllm_block_hnd", "anonymous")));
  fill(engine, 21);
  must(engine.register_with(form, 0));
  std::vector<tiercel_store_item> items(2);
  for (std::size_t i = 0; i < 2; ++i) {
    items[i].key = keys[i];
    if (i > 0) items[i].parent = keys[i - 1];
    items[i].length = i + 1;
    items[i].slot = 5 - i;
  }
  must(must(ns.store(items)).operation.wait(TIERCEL_COMPLETION_VISIBLE, kLong));

  HostPools other = must(HostPools::open(spec, options_of("page_first", "anonymous")));
  must(other.register_with(form, 0));
  tiercel::Ticket ticket = must(ns.match(keys, TIERCEL_NO_LIMIT));
  const std::array<std::uint64_t, 2> slots = {2, 0};
  const tiercel_load_target target{slots.data(), nullptr, 2, 0, 0, 0};
  const tiercel::Operation load = must(ticket.load(2, {&target, 1}));
  must(load.wait(0, kLong));
  EXPECT_EQ(must(load.result()).length, 2U);

  // Both as the engine has it, to be compared byte by byte.
  HostPools back = must(HostPools::open(spec, options_of("vllm_block_hnd", "anonymous")));
  const std::array<std::uint64_t, 2> stored = {5, 4};
  std::vector<tiercel_copy_part> parts = {{slots.data(), stored.data(), 2, 0, 0, 0, {}},
                                          {slots.data(), stored.data(), 2, 0, 1, 1, {}}};
  must(must(back.copy_from(other, parts)).wait(kLong));
  for (std::uint32_t pool = 0; pool < 2; ++pool)
    for (const std::uint64_t page : stored) {
      const auto was = must(engine.segments(pool, page));
      const auto is = must(back.segments(pool, page));
      ASSERT_EQ(was.size(), is.size());
      for (std::size_t i = 0; i < was.size(); ++i)
        ASSERT_EQ(std::memcmp(was[i].data, is[i].data, static_cast<std::size_t>(was[i].size)), 0);
    }
  must(form.unregister_memory(0, 0, kLong));
}

TEST(HostPools, AreBuiltPieceByPieceAndSealedOnce) {
  HostPoolsBuilder builder = must(HostPoolsBuilder::create(hybrid(), options_of("page_first", "shared")));
  auto anchor = sized<tiercel_host_pool_options>();
  anchor.group = TIERCEL_NO_GROUP;
  EXPECT_EQ(must(builder.add(anchor)), 0U);
  auto full = sized<tiercel_host_pool_options>();
  full.slots_of = "anchor";
  EXPECT_EQ(must(builder.add(full)), 1U);
  auto state = sized<tiercel_host_pool_options>();
  state.group = 2;
  state.pages = 2;
  state.layout = "page_first_direct";
  EXPECT_EQ(must(builder.add(state)), 2U);
  auto twice = sized<tiercel_host_pool_options>();
  EXPECT_EQ(builder.add(twice).status().code, TIERCEL_INVALID_ARGUMENT) << "a pool named full is there";
  auto none = sized<tiercel_host_pool_options>();
  none.group = 9;
  EXPECT_NE(builder.add(none).status().message.find("group 9: the spec has 3"), std::string::npos);
  auto lost = sized<tiercel_host_pool_options>();
  lost.group = 1;
  lost.slots_of = "nowhere";
  EXPECT_FALSE(builder.add(lost).ok());
  HostPools pools = must(builder.seal());
  EXPECT_EQ(builder.add(lost).status().code, TIERCEL_FAILED_PRECONDITION);
  EXPECT_EQ(builder.seal().status().code, TIERCEL_FAILED_PRECONDITION);
  EXPECT_EQ(must(pools.describe()).pools, 3U);
  EXPECT_EQ(must(pools.pool(0)).page_bytes, 0U);
  EXPECT_EQ(must(pools.pool(0)).group, TIERCEL_NO_GROUP);
  EXPECT_TRUE(must(pools.segments(0, 3)).empty());
  EXPECT_EQ(must(pools.pool(1)).slots_of, 0U);
  EXPECT_EQ(must(pools.pool(2)).pages, 2U);
  EXPECT_TRUE(must(pools.is_aligned(1, 8)));
  EXPECT_FALSE(must(pools.is_aligned(1, 4096)));
}

TEST(HostPools, TheCallersOwnMemoryIsNeverAPoolsOfAnotherKind) {
  std::vector<unsigned char> memory(1 << 16);
  const tiercel_segment allocation{memory.data(), memory.size()};
  auto options = options_of("layer_first", "external");
  options.allocations = &allocation;
  options.allocation_count = 1;
  HostPoolsBuilder builder = must(HostPoolsBuilder::create(hybrid(), options));
  auto full = sized<tiercel_host_pool_options>();
  EXPECT_FALSE(builder.add(full).ok()) << "nobody said where its buffer is";
  tiercel_buffer_place place{
      memory.data() + 64, kPages * 4 * 2 * 8 * 2 * 2 * 2, nullptr, 0, 0, TIERCEL_BUFFER_AT, 0};
  full.buffers = &place;
  full.buffer_count = 1;
  EXPECT_EQ(must(builder.add(full)), 0U);
  HostPools pools = must(builder.seal());
  EXPECT_EQ(must(pools.segments(0, 0)).front().data, memory.data() + 64);
  EXPECT_EQ(must(pools.describe()).required_bytes, place.size);
  EXPECT_EQ(must(pools.ranges()).front().data, memory.data());

  HostPoolsBuilder shared = must(HostPoolsBuilder::create(hybrid(), options_of("layer_first", "shared")));
  const auto mixed = shared.add(full);
  EXPECT_EQ(mixed.status().code, TIERCEL_INVALID_ARGUMENT);
  place.data = nullptr;
  EXPECT_NE(shared.add(full).status().message.find("NULL with"), std::string::npos);
}

TEST(HostPools, SeveralPoolsOfTheCallersMemoryHavePagesOfTheirOwn) {
  std::vector<unsigned char> memory(1 << 16);
  const tiercel_segment allocation{memory.data(), memory.size()};
  auto options = options_of("layer_first", "external");
  options.allocations = &allocation;
  options.allocation_count = 1;
  HostPoolsBuilder builder = must(HostPoolsBuilder::create(hybrid(), options));
  std::uint64_t end = 0;
  for (std::uint32_t group = 0; group < 2; ++group) {
    auto pool = sized<tiercel_host_pool_options>();
    pool.group = group;
    pool.pages = kPages + 1 + group;  // each another number, and none the group's
    tiercel_buffer_place place{
        memory.data() + end, pool.pages * 4 * 2 * 8 * 2 * 2 * 2, nullptr, 0, 0, TIERCEL_BUFFER_AT, 0};
    end += place.size;
    pool.buffers = &place;
    pool.buffer_count = 1;
    EXPECT_EQ(must(builder.add(pool)), group);
  }
  HostPools pools = must(builder.seal());
  EXPECT_EQ(must(pools.describe()).required_bytes, end);
  EXPECT_EQ(must(pools.pool(0)).pages, kPages + 1);
  EXPECT_EQ(must(pools.pool(1)).pages, kPages + 2);
}

TEST(HostPools, SlotsAndSequencesAreGivenOutAndTakenBack) {
  HostPools pools = must(HostPools::open(hybrid(), options_of("layer_first", "anonymous")));
  auto taken = must(pools.take(2, 2));
  EXPECT_EQ(taken, (std::vector<std::uint64_t>{0, 1}));
  EXPECT_EQ(pools.take(2, kPages).status().code, TIERCEL_RESOURCE_EXHAUSTED);
  must(pools.give(2, taken));
  EXPECT_EQ(pools.give(2, taken).code, TIERCEL_FAILED_PRECONDITION);
  {
    tiercel::Sequence sequence = must(pools.open_sequence(0));
    EXPECT_EQ(must(sequence.append(3)), (std::vector<std::uint64_t>{0, 1, 2}));
    const auto before = must(sequence.entry(0, 1, 7, 2));
    EXPECT_EQ(must(sequence.append(6)).size(), 6U);
    EXPECT_EQ(must(sequence.pages()), (std::vector<std::uint64_t>{0, 1, 2}));
    EXPECT_EQ(must(sequence.entry(0, 1, 7, 2)).front().data, before.front().data)
        << "what was appended stays";
    EXPECT_EQ(sequence.entry(0, 1, 7, 9).status().code, TIERCEL_NOT_FOUND);
    EXPECT_EQ(sequence.entry(0, 1, 0, 2).status().code, TIERCEL_NOT_FOUND) << "the pool has no layer 0";
    EXPECT_EQ(sequence.entry(2, 0, 0, 2).status().code, TIERCEL_INVALID_ARGUMENT);
    EXPECT_EQ(sequence.append(100).status().code, TIERCEL_RESOURCE_EXHAUSTED);
    EXPECT_EQ(pools.take(0, 4).status().code, TIERCEL_RESOURCE_EXHAUSTED);
    EXPECT_FALSE(pools.open_sequence(2).ok()) << "snapshots have no tokens";
  }
  EXPECT_EQ(must(pools.take(0, kPages)).size(), kPages);
}

TEST(HostPools, WhatMakesNoSenseIsRefusedInWords) {
  const Spec spec = hybrid();
  const auto refused = [&](auto change, const char* words) {
    auto options = options_of("page_first", "anonymous");
    change(options);
    const auto pools = HostPools::open(spec, options);
    ASSERT_FALSE(pools.ok()) << words;
    EXPECT_NE(pools.status().message.find(words), std::string::npos) << pools.status().message;
  };
  refused([](auto& o) { o.layout = nullptr; }, "layout is NULL");
  refused([](auto& o) { o.layout = "pages"; }, "\"pages\" is none of");
  refused([](auto& o) { o.memory = nullptr; }, "memory");
  refused([](auto& o) { o.memory = "mooncake"; }, "mooncake");
  refused([](auto& o) { o.allocator = "shm"; }, "allocator");
  refused([](auto& o) { o.memory = nullptr, o.backend = "shm"; }, "memory");
  refused([](auto& o) { o.extra_config = "{"; }, "extra_config");
  refused([](auto& o) { o.extra_config = "@/no/such/file.json"; }, "/no/such/file.json");
  refused([](auto& o) { o.pages = 0; }, "give exactly one of them");
  refused([](auto& o) { o.total_bytes = 1 << 20; }, "give exactly one of them");
  refused([](auto& o) { o.pages = UINT64_MAX / 2; }, "2^63");
  refused([](auto& o) { o.pages = 1ULL << 40; }, "wanted");
  refused([](auto& o) { o.memory = "pinned", o.device = 999; }, "memory pinned: ");
  refused([](auto& o) { o.on_device = 1; }, "on_device: only external memory");
  refused([](auto& o) { o.numa = "bind 77"; }, "77");
  refused([](auto& o) { o.numa = "near"; }, "near");
  refused([](auto& o) { o.first_layer = 8, o.end_layer = 8; }, "at least one");
  refused([](auto& o) { o.memory = "external"; }, "external");
  refused([](auto& o) { o.copy_threads = 100'000; }, "copy_threads");
  refused([](auto& o) { o.progress = [](void*, std::uint64_t, std::uint64_t) { return 1; }; }, "");
  tiercel_error error{};
  tiercel_host_pools* none = nullptr;
  EXPECT_EQ(tiercel_host_pools_open(spec.get(), nullptr, &none, &error),
            static_cast<tiercel_status>(TIERCEL_INVALID_ARGUMENT));
  EXPECT_EQ(tiercel_host_pools_describe(nullptr, nullptr, &error),
            static_cast<tiercel_status>(TIERCEL_INVALID_ARGUMENT));
  HostPools pools = must(HostPools::open(spec, options_of("page_first", "anonymous")));
  EXPECT_EQ(pools.segments(0, kPages).status().code, TIERCEL_INVALID_ARGUMENT);
  EXPECT_EQ(pools.segments(3, 0).status().code, TIERCEL_INVALID_ARGUMENT);
  EXPECT_EQ(pools.is_aligned(0, 3).status().code, TIERCEL_INVALID_ARGUMENT);
  const std::uint64_t page = 0;
  const std::uint64_t beyond = kPages;
  HostPools other = must(HostPools::open(spec, options_of("page_first", "anonymous")));
  const tiercel_copy_part wrong[] = {
      {&page, &beyond, 1, 0, 0, 0, {}}, {&beyond, &page, 1, 0, 0, 0, {}}, {nullptr, &page, 1, 0, 0, 0, {}},
      {&page, &page, 1, 0, 0, 2, {}},   {&page, &page, 1, 0, 7, 0, {}},   {&page, &page, 1, 3, 0, 0, {}},
  };
  for (const tiercel_copy_part& part : wrong)
    EXPECT_EQ(other.copy_from(pools, {&part, 1}).status().code, TIERCEL_INVALID_ARGUMENT);
  const std::array<std::uint64_t, 2> both = {0, 1};
  const std::array<std::uint64_t, 2> same = {3, 3};
  const tiercel_copy_part duplicate{both.data(), same.data(), 2, 0, 0, 0, {}};
  EXPECT_EQ(other.copy_from(pools, {&duplicate, 1}).status().code, TIERCEL_INVALID_ARGUMENT);
  tiercel::Copy nothing = must(other.copy_from(pools, {}));
  must(nothing.wait_layer(3, kLong));
  must(nothing.wait(kLong));
}

}  // namespace
}  // namespace engines
