// Scenarios of other caches' users, for an engine's own pools: what went wrong there, as the right values
// here.
#include <array>

#include "engine_world.h"

namespace engines {
namespace {

using tiercel::HostPools;
using tiercel::HostPoolsBuilder;
using tiercel::Spec;

// KV of 1 MiB a page, and index keys of 16 KiB beside it.
constexpr const char* kIndexed =
    R"({"tiercel_spec": 1, "model_type": "indexed", "page_tokens": 64, "topology": {"tp": 1},
  "groups": [{"kind": "full", "layers": [0, 1, 2, 3], "components": [{"name": "k", "shape": [8, 128], "dtype": "bf16"},
                                                                     {"name": "v", "shape": [8, 128], "dtype": "bf16"}]},
             {"kind": "follower", "layers": [1, 3], "components": [{"name": "index_k", "shape": [128], "dtype": "fp8"}]}]})";
// The same model as an older configuration had it.
constexpr const char* kPlain =
    R"({"tiercel_spec": 1, "model_type": "indexed", "page_tokens": 64, "topology": {"tp": 1},
  "groups": [{"kind": "full", "layers": [0, 1, 2, 3], "components": [{"name": "k", "shape": [8, 128], "dtype": "bf16"},
                                                                     {"name": "v", "shape": [8, 128], "dtype": "bf16"}]}]})";
constexpr std::uint64_t kPages = 4;

tiercel_host_pools_options options_of(const char* layout) {
  auto options = sized<tiercel_host_pools_options>();
  options.layout = layout;
  options.memory = "shared";
  options.pages = kPages;
  return options;
}

tiercel::Namespace open_namespace(tiercel::Session& session, tiercel::Form& form) {
  auto identity = sized<tiercel_identity>();
  identity.weights = "w";
  identity.dtype = "bf16";
  return must(session.open_namespace(form, identity));
}

std::vector<tiercel_key> keys_of(tiercel::Namespace& ns) {
  std::vector<std::uint32_t> tokens(kPages * 64, 5);
  tiercel_key_chain chain = must(ns.start_chain());
  return must(ns.keys_from_tokens(chain, tokens));
}

std::vector<tiercel_store_item> items_of(const std::vector<tiercel_key>& keys) {
  std::vector<tiercel_store_item> items(keys.size());
  for (std::size_t i = 0; i < keys.size(); ++i) {
    items[i].key = keys[i];
    if (i > 0) items[i].parent = keys[i - 1];
    items[i].length = i + 1;
    items[i].slot = i;
  }
  return items;
}

void set_all(HostPools& pools, int value) {
  for (const tiercel_segment& range : must(pools.ranges()))
    std::memset(range.data, value, static_cast<std::size_t>(range.size));
}

// Each page of each pool of its own bytes.
void fill(HostPools& pools, std::uint64_t seed) {
  for (std::uint32_t pool = 0; pool < must(pools.describe()).pools; ++pool)
    for (std::uint64_t page = 0; page < kPages; ++page)
      for (const tiercel_pool_segment& segment : must(pools.segments(pool, page)))
        compute({static_cast<unsigned char*>(segment.data), static_cast<std::size_t>(segment.size)},
                seed + 1000ULL * pool + page * 100 + 10ULL * segment.component);
}
bool filled(HostPools& pools, std::uint32_t pool, std::uint64_t page, std::uint64_t seed) {
  for (const tiercel_pool_segment& segment : must(pools.segments(pool, page)))
    if (!holds({static_cast<unsigned char*>(segment.data), static_cast<std::size_t>(segment.size)},
               seed + 1000ULL * pool + page * 100 + 10ULL * segment.component))
      return false;
  return true;
}

TEST(ScenarioH02, TheSecondRecordOfEveryPageComesBackWithTheFirst) {
  tiercel::Node node = open_node(32 << 20);
  tiercel::Session session = must(node.open_session());
  const Spec spec = must(Spec::from_json(kIndexed));
  tiercel::Form form = must(node.open_form(spec, tiercel::one_rank()));
  tiercel::Namespace ns = open_namespace(session, form);
  const auto keys = keys_of(ns);
  // The device's pools, the host's, and the node behind them: three places, each in a layout of its own.
  HostPools device = must(HostPools::open(spec, options_of("vllm_nhd")));
  HostPools host = must(HostPools::open(spec, options_of("page_first_direct")));
  fill(device, 7);
  const std::array<std::uint64_t, kPages> pages = {0, 1, 2, 3};
  std::vector<tiercel_copy_part> both;
  for (std::uint32_t pool = 0; pool < 2; ++pool)
    both.push_back({pages.data(), pages.data(), kPages, 0, pool, pool, {}});
  must(must(host.copy_from(device, both)).wait(kLong));
  must(host.register_with(form, 0));
  must(must(ns.store(items_of(keys))).operation.wait(TIERCEL_COMPLETION_VISIBLE, kLong));

  for (int from = 0; from < 2; ++from) {  // from the host's pools, then from the node alone
    set_all(device, 0xEE);
    if (from == 1) {
      set_all(host, 0xEE);
      tiercel::Ticket ticket = must(ns.match(keys, TIERCEL_NO_LIMIT));
      const tiercel_load_target target{pages.data(), nullptr, kPages, 0, 0, 0};
      const tiercel::Operation load = must(ticket.load(kPages, {&target, 1}));
      must(load.wait(0, kLong));
      ASSERT_EQ(must(load.result()).length, kPages);
    }
    must(must(device.copy_from(host, both)).wait(kLong));
    for (std::uint32_t pool = 0; pool < 2; ++pool)
      for (std::uint64_t page = 0; page < kPages; ++page)
        EXPECT_TRUE(filled(device, pool, page, 7)) << pool << " " << page;
  }
  must(form.unregister_memory(0, 0, kLong));
}

TEST(ScenarioH02, WhatAnOlderConfigurationWroteWithoutTheSecondRecordIsAMiss) {
  tiercel::Node node = open_node(32 << 20);
  tiercel::Session session = must(node.open_session());
  const Spec old = must(Spec::from_json(kPlain));
  tiercel::Form old_form = must(node.open_form(old, tiercel::one_rank()));
  tiercel::Namespace old_ns = open_namespace(session, old_form);
  HostPools pools = must(HostPools::open(old, options_of("layer_first")));
  must(pools.register_with(old_form, 0));
  must(must(old_ns.store(items_of(keys_of(old_ns)))).operation.wait(TIERCEL_COMPLETION_VISIBLE, kLong));
  must(old_form.unregister_memory(0, 0, kLong));

  const Spec spec = must(Spec::from_json(kIndexed));
  tiercel::Form form = must(node.open_form(spec, tiercel::one_rank()));
  tiercel::Namespace ns = open_namespace(session, form);
  EXPECT_EQ(must(must(ns.match(keys_of(ns), TIERCEL_NO_LIMIT)).summary()).length, 0U);
  EXPECT_EQ(must(must(old_ns.match(keys_of(old_ns), TIERCEL_NO_LIMIT)).summary()).length, kPages);
  // Pools that forget a group of the class are refused, whichever it is.
  const auto forgotten = pools.register_with(form, 0);
  EXPECT_EQ(forgotten.code, TIERCEL_INVALID_ARGUMENT);
  EXPECT_NE(forgotten.message.find("no pool of group 1: a record holds all groups of its class"),
            std::string::npos)
      << forgotten.message;
}

// ---- lists of pointers, as they arrived elsewhere ----

struct World {
  tiercel::Node node = open_node(32 << 20);
  tiercel::Session session = must(node.open_session());
  Spec spec = must(Spec::from_json(kIndexed));
  tiercel::Form form = must(node.open_form(spec, tiercel::one_rank()));
  tiercel::Namespace ns = open_namespace(session, form);
  std::vector<tiercel_key> keys = keys_of(ns);
  HostPools pools = must(HostPools::open(spec, options_of("page_first")));

  // The objects of one page, component by component, as the pools have them in record order.
  struct Record {
    std::vector<tiercel_segment> segments;
    tiercel_object object{};
    tiercel_record_memory memory{};
  };
  std::vector<unsigned char> bytes = std::vector<unsigned char>(must(form.class_info(0)).record_bytes);
  Record record(std::vector<tiercel_segment> segments) {
    Record made;
    made.segments = std::move(segments);
    made.object = {made.segments.data(), made.segments.size(), TIERCEL_WHOLE, 0};
    return made;
  }
};

TEST(PointerLists, AnEmptyListIsNoRecordAndTouchesNothing) {
  World world;
  auto record = world.record({});
  record.memory = {&record.object, 1};
  auto items = items_of({world.keys[0]});
  items[0].record = record.memory;
  const tiercel::Stored stored = must(world.ns.store(items));
  EXPECT_EQ(stored.outcomes[0], static_cast<tiercel_outcome>(TIERCEL_ITEM_INVALID));
  const auto nothing = must(world.ns.store({}));
  EXPECT_TRUE(nothing.outcomes.empty());
  tiercel::Copy copy =
      must(world.pools.copy_from(must(HostPools::open(world.spec, options_of("layer_first"))), {}));
  must(copy.wait(kLong));
}

TEST(PointerLists, FewerPointersThanKeysIsAnErrorBeforeAnyByteMoves) {
  World world;
  fill(world.pools, 3);
  must(world.pools.register_with(world.form, 0));
  must(must(world.ns.store(items_of(world.keys))).operation.wait(TIERCEL_COMPLETION_VISIBLE, kLong));
  set_all(world.pools, 0xEE);
  tiercel::Ticket ticket = must(world.ns.match(world.keys, TIERCEL_NO_LIMIT));
  const std::array<std::uint64_t, kPages> slots = {0, 1, 2, 3};
  const tiercel_load_target target{slots.data(), nullptr, kPages - 1, 0, 0, 0};
  EXPECT_EQ(ticket.load(kPages, {&target, 1}).status().code, TIERCEL_INVALID_ARGUMENT);
  for (const tiercel_segment& range : must(world.pools.ranges()))
    EXPECT_TRUE(
        all_are({static_cast<unsigned char*>(range.data), static_cast<std::size_t>(range.size)}, 0xEE));
  must(world.form.unregister_memory(0, 0, kLong));
}

TEST(PointerLists, PiecesThatDoNotDivideEvenlyAreAsGoodAsAny) {
  World world;
  compute(world.bytes, 77);
  const std::uint64_t size = world.bytes.size();
  // 3 pieces for one page, 2 for the next: nothing is recovered by dividing counts.
  auto first = world.record(
      {{world.bytes.data(), 5}, {world.bytes.data() + 5, 1000}, {world.bytes.data() + 1005, size - 1005}});
  auto second = world.record({{world.bytes.data(), size - 1}, {world.bytes.data() + size - 1, 1}});
  auto items = items_of({world.keys[0], world.keys[1]});
  items[0].record = {&first.object, 1};
  items[1].record = {&second.object, 1};
  must(must(world.ns.store(items)).operation.wait(TIERCEL_COMPLETION_VISIBLE, kLong));
  std::vector<unsigned char> back(2 * size, 0xEE);
  auto into_first = world.record({{back.data(), size}});
  auto into_second = world.record({{back.data() + size, size}});
  const std::array<tiercel_record_memory, 2> records = {{{&into_first.object, 1}, {&into_second.object, 1}}};
  const tiercel_load_target target{nullptr, records.data(), 2, 0, 0, 0};
  const std::vector<tiercel_key> keys = {world.keys[0], world.keys[1]};
  tiercel::Ticket ticket = must(world.ns.match(keys, TIERCEL_NO_LIMIT));
  must(must(ticket.load(2, {&target, 1})).wait(0, kLong));
  EXPECT_TRUE(holds({back.data(), size}, 77));
  EXPECT_TRUE(holds({back.data() + size, size}, 77));
  // One byte short is not a record.
  auto lacking = world.record({{world.bytes.data(), size - 1}});
  auto item = items_of({world.keys[0], world.keys[1], world.keys[2]});
  item.erase(item.begin(), item.begin() + 2);
  item[0].record = {&lacking.object, 1};
  EXPECT_EQ(must(world.ns.store(item)).outcomes[0], static_cast<tiercel_outcome>(TIERCEL_ITEM_INVALID));
}

TEST(PointerLists, APoolThatIsNullIsRefused) {
  World world;
  tiercel_error error{};
  EXPECT_EQ(tiercel_register_host_pools(world.form.get(), 0, 0, nullptr, &error),
            static_cast<tiercel_status>(TIERCEL_INVALID_ARGUMENT));
  EXPECT_NE(std::string(error.message).find("host pools is NULL"), std::string::npos) << error.message;
  const tiercel_host_pools* const none = nullptr;
  auto options = sized<tiercel_copy_options>();
  options.sources = &none;
  options.source_count = 1;
  options.target = world.pools.get();
  tiercel_copy* copy = nullptr;
  EXPECT_EQ(tiercel_copy_start(&options, &copy, &error),
            static_cast<tiercel_status>(TIERCEL_INVALID_ARGUMENT));
  EXPECT_EQ(copy, nullptr);
  EXPECT_EQ(HostPools().describe().status().code, TIERCEL_INVALID_ARGUMENT);
}

TEST(PointerLists, BuffersThatAreViewsOfOneAllocationCountAndRegisterOnce) {
  constexpr const char* kModel =
      R"({"tiercel_spec": 1, "model_type": "t", "page_tokens": 2, "topology": {"tp": 1},
    "groups": [{"kind": "full", "layers": [0], "components": [{"name": "k", "shape": [1, 8], "dtype": "bf16"},
                                                              {"name": "v", "shape": [1, 8], "dtype": "bf16"}]}]})";
  std::vector<unsigned char> memory(4096);
  const tiercel_segment allocation{memory.data(), memory.size()};
  auto options = sized<tiercel_host_pools_options>();
  options.layout = "page_first_kv_split";  // K and V are buffers
  options.memory = "external";
  options.pages = 4;
  options.allocations = &allocation;
  options.allocation_count = 1;
  HostPoolsBuilder builder = must(HostPoolsBuilder::create(must(Spec::from_json(kModel)), options));
  const std::uint64_t half = 128;  // pages × tokens × bytes
  std::array<tiercel_buffer_place, 2> views = {
      {{memory.data(), half, nullptr, 0, 0, TIERCEL_BUFFER_AT, 0},
       {memory.data() + half, half, nullptr, 0, 0, TIERCEL_BUFFER_AT, 0}}};
  auto pool = sized<tiercel_host_pool_options>();
  pool.buffers = views.data();
  pool.buffer_count = 2;
  must(builder.add(pool));
  pool.name = "the same again";  // a side pool, added later, of the very same bytes
  pool.slots_of = "full";
  must(builder.add(pool));
  HostPools pools = must(builder.seal());
  EXPECT_EQ(must(pools.describe()).required_bytes, 2 * half);
  const auto ranges = must(pools.ranges());
  ASSERT_EQ(ranges.size(), 1U) << "by allocation, never by view";
  EXPECT_EQ(ranges[0].data, memory.data());
  EXPECT_EQ(must(pools.buffers()).size(), 4U);
}

TEST(PointerLists, ASidePoolAddedLaterThanTheMainOneIsInsideOfTheSameMemory) {
  auto options = options_of("page_first");
  HostPoolsBuilder builder = must(HostPoolsBuilder::create(must(Spec::from_json(kIndexed)), options));
  auto pool = sized<tiercel_host_pool_options>();
  must(builder.add(pool));
  pool.group = 1;
  pool.slots_of = "full";
  must(builder.add(pool));
  HostPools pools = must(builder.seal());
  const auto info = must(pools.describe());
  EXPECT_EQ(info.required_bytes, kPages * ((1 << 20) + (16 << 10)));
  const tiercel_segment range = must(pools.ranges()).at(0);
  const auto* begin = static_cast<unsigned char*>(range.data);
  for (const tiercel_pool_segment& segment : must(pools.segments(1, kPages - 1))) {
    EXPECT_GE(static_cast<unsigned char*>(segment.data), begin);
    EXPECT_LE(static_cast<unsigned char*>(segment.data) + segment.size, begin + range.size);
  }
  EXPECT_EQ(builder.add(pool).status().code, TIERCEL_FAILED_PRECONDITION);
}

}  // namespace
}  // namespace engines
