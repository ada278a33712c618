// H15: keep within the budget. The entry was stored first and others evicted afterwards, checkpoints were not
// counted, eviction always kept one entry, and the process was killed for memory.

#include <sys/mman.h>

#include "node/test_world.h"

namespace tiercel {
namespace {

constexpr std::uint64_t kMiB = 1 << 20;
constexpr std::uint64_t kBudget = 12 * kMiB;

// Resident bytes of the mapping that starts at `begin`, as the operating system counts them.
std::uint64_t os_resident_bytes(const std::byte* begin, std::uint64_t bytes) {
  std::vector<unsigned char> pages((bytes + 4095) / 4096);
  EXPECT_EQ(mincore(const_cast<std::byte*>(begin), bytes, pages.data()), 0);
  std::uint64_t resident = 0;
  for (const unsigned char page : pages) resident += (page & 1) != 0 ? 4096 : 0;
  return resident;
}

// Engine memory of any size that reads as one pattern.
class EndlessDevice final : public Device {
 public:
  Status read(std::uint64_t, MutableByteView into) override {
    std::fill(into.begin(), into.end(), std::byte{0x5A});
    return {};
  }
  Status write(std::uint64_t, ByteView) override { return {}; }
  std::uint64_t size_bytes() const override { return std::uint64_t{1} << 40; }
};

// One page = an entry of `bytes` with a side record of 30 % of it.
ModelSpec entry_spec(std::uint64_t bytes) {
  ModelSpec spec;
  spec.model_type = "entry";
  spec.page_tokens = 1;
  spec.topology = Topology{1, 1, 1};
  spec.groups.push_back({FullKind{}, Need::kRequired, {0}, {{"kv", {}, {}, bytes}}, false, 1});
  spec.groups.push_back({FollowerKind{0}, Need::kRequired, {0}, {{"side", {}, {}, bytes * 3 / 10}}, true, 1});
  return spec;
}

class Entries {
 public:
  Entries() {
    void* mapped = mmap(nullptr, kBudget, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    EXPECT_NE(mapped, MAP_FAILED);
    begin_ = static_cast<std::byte*>(mapped);
    arena_ = std::make_unique<ByteArena>(MutableByteView(begin_, kBudget));
    NodeOptions options;
    options.host_bytes = kBudget;
    options.index_pages_max = 1024;
    options.history_entries = 1024;
    options.client_share = 1.0;
    options.extent_bytes = 256 << 10;
    node_ = std::move(*Node::open(options, World{clock_, executor_, *arena_, device_, 1}));
    session_ = node_->open_session({"entries", "", {}}).value();
  }
  ~Entries() {
    node_.reset();
    munmap(begin_, kBudget);
  }

  std::vector<StoreOutcome> store(std::uint64_t bytes, std::uint32_t which) {
    const FormId form = node_->open_form({entry_spec(bytes), 1}).value();
    ContentIdentity identity;
    identity.model = "entry";
    identity.weights = "1";
    identity.dtype = "bf16";
    identity.page_tokens = 1;
    const NamespaceId ns = node_->open_namespace(session_, form, {identity, 0, {}}).value();
    KeyChain chain = start_chain(node_->root(ns));
    const std::vector<std::uint32_t> tokens{which};
    StoreRequest request;
    request.session = session_;
    request.ns = ns;
    std::uint64_t base = 0;
    const Key key = extend_chain(chain, 1, tokens).value().at(0);
    for (const ClassForm& cls : node_->form(form).classes) {
      EXPECT_TRUE(node_->register_memory(form, layer_first_pool(cls, ShardId(0), base, 1).value()).ok());
      base += cls.record_bytes;
      StoreItem item;
      item.key = key;
      item.length = 1;
      item.cls = cls.id;
      request.items.push_back(item);
    }
    const auto outcomes = node_->store(request).value().outcomes;
    sample();
    node_->poll();
    sample();
    return outcomes;
  }

  // Reported usage against the grant, and what the operating system shows against what is reported.
  void sample() {
    const Stats& stats = node_->stats();
    const std::uint64_t reported = stats.arena_bytes_owned + stats.index_bytes + stats.history_bytes;
    EXPECT_LE(reported, kBudget);
    EXPECT_LE(stats.payload_bytes, stats.arena_bytes_owned);
    EXPECT_EQ(stats.arena_bytes_owned, stats.payload_bytes + headers() + stats.fragmentation_bytes);
    const std::uint64_t resident = os_resident_bytes(begin_, kBudget);
    EXPECT_LE(resident, stats.arena_bytes) << "nothing outside the granted extents was ever touched";
    os_peak_ = std::max(os_peak_, resident);
  }
  std::uint64_t headers() const {
    std::uint64_t slots = 0, payload = 0;
    for (const AuditResidence& set : node_->audit().residences) {
      for (const auto& spans : set.spans)
        for (const ArenaSpan& span : spans) slots += span.length;
      payload += set.payload_bytes;
    }
    return slots - payload;
  }

  Node& node() { return *node_; }
  std::uint64_t os_peak() const { return os_peak_; }

 private:
  ManualClock clock_;
  InlineExecutor executor_;
  EndlessDevice device_;
  std::byte* begin_ = nullptr;
  std::unique_ptr<ByteArena> arena_;
  std::unique_ptr<Node> node_;
  SessionId session_;
  std::uint64_t os_peak_ = 0;
};

TEST(H15, ThePeakNeverExceedsTheBudgetAndWhatCanNeverFitEvictsNothing) {
  Entries entries;
  const std::vector<StoreOutcome> accepted(2, StoreOutcome::kAccepted);
  const std::vector<StoreOutcome> too_large(2, StoreOutcome::kTooLarge);
  EXPECT_EQ(entries.store(5 * kMiB, 1), accepted);
  EXPECT_EQ(entries.node().stats().pages_visible, 1U);
  EXPECT_EQ(entries.store(5 * kMiB, 2), accepted) << "the first one makes room";
  EXPECT_EQ(entries.node().stats().pages_evicted, 1U);
  EXPECT_EQ(entries.store(5 * kMiB, 3), accepted);
  EXPECT_EQ(entries.node().stats().pages_evicted, 2U);
  EXPECT_EQ(entries.store(13 * kMiB, 4).at(0), too_large.at(0));
  EXPECT_EQ(entries.store(25 * kMiB, 5), too_large);
  EXPECT_EQ(entries.store(10 * kMiB, 6).at(0), StoreOutcome::kTooLarge)
      << "with its side record it can never fit";
  EXPECT_EQ(entries.node().stats().pages_evicted, 2U) << "refused before anything was evicted";
  EXPECT_EQ(entries.node().stats().pages_visible, 1U);
  EXPECT_GE(entries.os_peak(), entries.node().stats().payload_bytes) << "the bytes are really there";
}

}  // namespace
}  // namespace tiercel
