// H12: past 2 and 4 GiB. A 32-bit sum reserved too little and the write destroyed what followed; results came
// back negative; one call delivered only about 2 GiB.
#include <cstdio>
#include <cstdlib>
#include <string>

#include <sys/mman.h>
#include <unistd.h>

#include "base/checked.h"
#include "memory/record.h"
#include "node/test_world.h"

namespace tiercel {
namespace {

// Engine memory of any size, computed: bytes that follow from their address, stamped once every 4 KiB (zero
// between, so that gigabytes stay quick), and a check of what is written back.
class ComputedDevice final : public Device {
 public:
  static std::byte at(std::uint64_t address) {
    return address % 4096 < 8 ? static_cast<std::byte>(mix64(address / 4096 + 1) >> (address % 8 * 8))
                              : std::byte{0};
  }
  Status read(std::uint64_t address, MutableByteView into) override {
    std::memset(into.data(), 0, into.size());
    for_stamps(address, into.size(), [&](std::uint64_t i) { into[i] = at(address + i); });
    return {};
  }
  Status write(std::uint64_t address, ByteView from) override {
    written += from.size();
    for_stamps(address, from.size(), [&](std::uint64_t i) { wrong += from[i] != at(address + i) ? 1 : 0; });
    for (std::uint64_t i = 2048; i < from.size(); i += 1 << 16)
      if ((address + i) % 4096 >= 8) wrong += from[i] != std::byte{0} ? 1 : 0;
    return {};
  }
  std::uint64_t size_bytes() const override { return std::uint64_t{1} << 50; }

  std::uint64_t written = 0;
  std::uint64_t wrong = 0;

 private:
  template <typename Each>
  static void for_stamps(std::uint64_t address, std::uint64_t length, const Each& each) {
    for (std::uint64_t page = address / 4096 * 4096; page < address + length; page += 4096)
      for (std::uint64_t b = 0; b < 8; ++b)
        if (page + b >= address && page + b < address + length) each(page + b - address);
  }
};

ModelSpec one_record(std::uint64_t bytes) {
  ModelSpec spec;
  spec.model_type = "large";
  spec.page_tokens = 1;
  spec.topology = Topology{1, 1, 1};
  spec.groups.push_back({FullKind{}, Need::kRequired, {0}, {{"kv", {}, {}, bytes}}, false, 1});
  return spec;
}

// Stores and loads three pages of one record each: the middle one and its neighbours.
struct Trip {
  Trip(std::uint64_t record_bytes, Arena& arena, std::uint64_t host_bytes) : bytes(record_bytes) {
    NodeOptions options;
    options.host_bytes = host_bytes;
    options.index_pages_max = 1024;
    options.client_share = 1.0;
    options.load_back_threshold_tokens = 0;
    node = std::move(*Node::open(options, World{clock, executor, arena, device, 1}));
    session = node->open_session({"large", "", {}}).value();
    form = node->open_form({one_record(bytes), 1}).value();
    ContentIdentity identity;
    identity.model = "large";
    identity.weights = "1";
    identity.dtype = "bf16";
    identity.page_tokens = 1;
    ns = node->open_namespace(session, form, {identity, 0, {}}).value();
    EXPECT_TRUE(
        node->register_memory(form, layer_first_pool(node->form(form).classes[0], ShardId(0), 0, 3).value())
            .ok());
  }

  std::vector<Key> keys(std::uint64_t pages) const {
    KeyChain chain = start_chain(node->root(ns));
    const std::vector<std::uint32_t> tokens(pages, 7);
    return extend_chain(chain, 1, tokens).value();
  }

  StoreOutcome store(const std::vector<Key>& chain, std::uint64_t page) {
    StoreItem item;
    item.key = chain[page];
    if (page != 0) item.parent = chain[page - 1];
    item.length = page + 1;
    item.slot = page;
    item.bytes = bytes;
    StoreRequest request;
    request.session = session;
    request.ns = ns;
    request.items = {item};
    const StoreOutcome outcome = node->store(request).value().outcomes.at(0);
    node->poll();
    return outcome;
  }

  LoadResult load(const std::vector<Key>& chain) {
    MatchQuery query;
    query.session = session;
    query.ns = ns;
    query.keys = chain;
    const TicketId ticket = node->match(query).value();
    LoadRequest request;
    request.ticket = ticket;
    request.length = node->ticket(ticket)->length;
    request.targets.emplace_back();
    for (std::uint64_t page = 0; page < chain.size(); ++page) request.targets[0].slots.push_back(page);
    const auto operation = node->load(request);
    EXPECT_TRUE(operation) << operation.error().to_string();
    for (int i = 0; i < 4; ++i) node->poll();
    LoadResult result;
    for (Completion& completion : node->drain_completions())
      if (completion.kind == CompletionKind::kLoaded) result = std::move(*completion.load);
    node->release(ticket);
    return result;
  }

  std::uint64_t bytes;
  ManualClock clock;
  InlineExecutor executor;
  ComputedDevice device;
  std::unique_ptr<Node> node;
  SessionId session;
  FormId form;
  NamespaceId ns;
};

constexpr std::uint64_t k2GiB = std::uint64_t{1} << 31;
constexpr std::uint64_t k4GiB = std::uint64_t{1} << 32;

TEST(H12, EverySizeAndOffsetIsCountedIn64Bits) {
  for (const std::uint64_t bytes : {k2GiB - 1, k2GiB, k2GiB + 1, k4GiB - 1, k4GiB, k4GiB + 4096}) {
    ThinArena arena(std::uint64_t{64} << 30, 8192);
    Trip trip(bytes, arena, std::uint64_t{32} << 30);
    EXPECT_EQ(trip.node->form(trip.form).classes[0].record_bytes, bytes);
    const auto chain = trip.keys(3);
    for (std::uint64_t page = 0; page < 3; ++page)
      EXPECT_EQ(trip.store(chain, page), StoreOutcome::kAccepted) << bytes;
    EXPECT_EQ(trip.node->stats().payload_bytes, 3 * bytes);
    EXPECT_GE(trip.node->stats().arena_bytes_owned, 3 * bytes);
    const LoadResult result = trip.load(chain);
    EXPECT_EQ(result.length, 3U) << bytes;
    EXPECT_EQ(trip.device.written, std::uint64_t{3} * 8192) << "what a thin arena keeps of each record";
    EXPECT_EQ(trip.device.wrong, 0U) << bytes;
    EXPECT_EQ(trip.node->stats().verified_bytes, 3 * bytes);
    // No two records share a byte.
    std::vector<ArenaSpan> spans;
    for (const AuditResidence& set : trip.node->audit().residences)
      for (const auto& slot : set.spans) spans.insert(spans.end(), slot.begin(), slot.end());
    std::sort(spans.begin(), spans.end(),
              [](const ArenaSpan& a, const ArenaSpan& b) { return a.offset < b.offset; });
    for (std::size_t i = 1; i < spans.size(); ++i)
      EXPECT_LE(spans[i - 1].offset + spans[i - 1].length, spans[i].offset);
  }
}

TEST(H12, WhatCannotFitIsTooLargeBeforeAnythingIsReserved) {
  ThinArena arena(std::uint64_t{64} << 30, 8192);
  Trip trip(k4GiB + 4096, arena, k4GiB);
  const auto chain = trip.keys(1);
  EXPECT_EQ(trip.store(chain, 0), StoreOutcome::kTooLarge);
  EXPECT_EQ(trip.node->stats().payload_bytes, 0U);
}

TEST(H12, SizesBeyondTheLimitAreRefusedAtTheSpec) {
  const auto form = make_storage_form(one_record(kSizeMax));
  ASSERT_TRUE(form);
  ModelSpec wraps = one_record(kSizeMax);
  wraps.groups[0].layers = {0, 1};
  EXPECT_FALSE(make_storage_form(wraps));
}

// One real object of 5 GiB on a sparse file, patterned neighbours on both sides. TIERCEL_LARGE_TEST_BYTES
// makes it smaller where a sanitizer would make it slow.
TEST(H12, OneRealObjectOf5GiBOnASparseFile) {
  const char* wanted = std::getenv("TIERCEL_LARGE_TEST_BYTES");
  const std::uint64_t bytes = wanted != nullptr ? std::stoull(wanted) : std::uint64_t{5} << 30;
  std::FILE* file = std::tmpfile();
  ASSERT_NE(file, nullptr);
  const std::uint64_t guard = 1 << 20;
  const std::uint64_t arena_bytes = ((bytes >> 21) + 4) << 21;
  ASSERT_EQ(ftruncate(fileno(file), static_cast<off_t>(arena_bytes + 2 * guard)), 0);
  void* mapped = mmap(nullptr, arena_bytes + 2 * guard, PROT_READ | PROT_WRITE, MAP_SHARED, fileno(file), 0);
  ASSERT_NE(mapped, MAP_FAILED);
  auto* begin = static_cast<std::byte*>(mapped);
  std::memset(begin, 0x3C, guard);
  std::memset(begin + guard + arena_bytes, 0x3C, guard);
  {
    ByteArena arena(MutableByteView(begin + guard, arena_bytes));
    Trip trip(bytes, arena, arena_bytes);
    const auto chain = trip.keys(1);
    ASSERT_EQ(trip.store(chain, 0), StoreOutcome::kAccepted);
    EXPECT_EQ(trip.load(chain).length, 1U);
    EXPECT_EQ(trip.device.written, bytes);
    EXPECT_EQ(trip.device.wrong, 0U);
  }
  for (std::uint64_t i = 0; i < guard; ++i) {
    ASSERT_EQ(begin[i], std::byte{0x3C});
    ASSERT_EQ(begin[guard + arena_bytes + i], std::byte{0x3C});
  }
  munmap(mapped, arena_bytes + 2 * guard);
  std::fclose(file);
}

}  // namespace
}  // namespace tiercel
