// SGLang's version 2 storage back end over the ABI: a thread asks, a thread reads, a thread backs up; side
// pools are written first and KV later, in batches of 128 page hashes that begin anywhere in a chain; each
// side pool is needed only for the last pages before the length.
#include <array>
#include <condition_variable>
#include <deque>
#include <functional>
#include <future>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <type_traits>

#include "engine_world.h"

namespace engines {
namespace {

constexpr std::uint64_t kBatch = 128, kSlots = 1024;
constexpr const char* kSpec = R"({"tiercel_spec": 1, "model_type": "hybrid", "page_tokens": 4,
  "topology": {"tp": 1}, "groups": [
    {"kind": "full", "layers": [1], "components": [{"name": "k", "shape": [2, 8], "dtype": "bf16"},
                                                   {"name": "v", "shape": [2, 8], "dtype": "bf16"}]},
    {"kind": "window", "window_tokens": 9, "layers": [0],
     "components": [{"name": "kv", "shape": [2, 8], "dtype": "bf16"}]},
    {"kind": "state", "layers": [2], "components": [{"name": "temporal", "shape": [4, 16], "dtype": "f32"},
                                                    {"name": "conv", "shape": [20, 3], "dtype": "bf16"}]}]})";
enum PoolName : std::uint32_t { kKv, kSwa, kMamba, kPools };  // classes, as the form numbers them
constexpr std::array<std::uint64_t, kPools> kTrailing = {0, 2, 1};

using PageHash = std::array<unsigned char, 32>;
using Hashes = std::vector<PageHash>;
using Slots = std::vector<std::uint64_t>;

// A host pool: one buffer for each component, page after page.
struct HostPool {
  std::vector<std::vector<unsigned char>> components;
  std::uint64_t bytes_of(std::size_t component) const { return components[component].size() / kSlots; }
  std::span<unsigned char> of(std::size_t component, std::uint64_t slot) {
    return std::span(components[component]).subspan(slot * bytes_of(component), bytes_of(component));
  }
};

struct PoolTransfer {  // hit policy trailing_pages: as many as there are keys
  PoolName name = kSwa;
  Hashes keys;
  Slots host_indices;
};
struct PoolTransferResult {
  std::uint64_t kv_hit_pages = 0;
  std::vector<std::uint64_t> restorable_prefix_pages;
};
using PoolResults = std::map<PoolName, std::vector<bool>>;

// The adapter. A page's place in its chain is not in the calls about side pools; it is known from the
// question that came before (all hashes of the request, hit or not), or from the prefix keys of a KV batch.
class Backend {
 public:
  explicit Backend(tiercel::Node& node) : session_(must(node.open_session())) {
    form_ = must(node.open_form(must(tiercel::Spec::from_json(kSpec)), tiercel::one_rank()));
    auto identity = sized<tiercel_identity>();
    identity.model = "hybrid";
    identity.weights = "revision";
    identity.dtype = "bf16";
    identity.scheme = "sglang-page";
    identity.scheme_algorithm = "sha256";
    ns_ = must(session_.open_namespace(form_, identity));
  }

  void register_mem_host_pool_v2(HostPool& pool, PoolName name) {
    std::vector<tiercel_memory_run> runs;
    const auto infos = must(form_.runs(name));
    for (const tiercel_run_info& info : infos) {
      pool.components.emplace_back(kSlots * info.length);
      tiercel_memory_run run{};
      run.slot_stride = info.length;
      run.component = info.component;
      run.layer = info.layer;
      runs.push_back(run);
    }
    for (std::size_t i = 0; i < runs.size(); ++i) runs[i].base = pool.components[i].data();
    auto options = sized<tiercel_memory_options>();
    options.class_id = name;
    options.slots = kSlots;
    must(form_.register_memory(runs, options));
  }

  std::uint64_t batch_exists(const Hashes& hashes) const {
    const auto there = must(ns_.exists(kKv, keys_of(hashes)));
    return static_cast<std::uint64_t>(std::find(there.begin(), there.end(), TIERCEL_NOT_FOUND) -
                                      there.begin());
  }

  PoolTransferResult batch_exists_v2(const Hashes& hashes, const Hashes& prefix) {
    auto asked = std::make_shared<Question>();
    asked->first_page = prefix.size();
    auto options = sized<tiercel_match_options>();
    options.first_page = asked->first_page;
    const std::array<std::uint64_t, kPools> held = {prefix.size(), prefix.size(), prefix.size()};
    options.held = held.data();
    options.held_count = held.size();
    asked->ticket = must(ns_.match(keys_of(hashes), TIERCEL_NO_LIMIT, options));
    PoolTransferResult result;
    for (const std::uint64_t length : must(asked->ticket.lengths()))
      if (length > asked->first_page) result.restorable_prefix_pages.push_back(length - asked->first_page);
    if (!result.restorable_prefix_pages.empty()) result.kv_hit_pages = result.restorable_prefix_pages.back();
    asked->length = asked->first_page + result.kv_hit_pages;
    learn(hashes, prefix, asked);
    return result;
  }

  std::vector<bool> batch_get_v1(const Hashes& hashes, const Slots& slots) {
    return std::move(get({{kKv, hashes, slots}})[kKv]);
  }
  PoolResults batch_get_v2(const std::vector<PoolTransfer>& transfers) { return get(transfers); }

  std::vector<bool> batch_set_v1(const Hashes& hashes, const Slots& slots, const Hashes& prefix) {
    learn(hashes, prefix, nullptr);
    return std::move(set({{kKv, hashes, slots}})[kKv]);
  }
  PoolResults batch_set_v2(const std::vector<PoolTransfer>& transfers) { return set(transfers); }

  // From outside of the engine: somebody removes a page.
  void remove(const PageHash& hash) { must(ns_.remove(keys_of({hash}))); }
  std::uint64_t trailing_pages(PoolName name) const { return must(form_.class_info(name)).window_pages; }

 private:
  struct Question {
    tiercel::Ticket ticket;
    std::uint64_t first_page = 0, length = 0;
  };
  struct Place {
    std::uint64_t length = 0;
    tiercel_key parent{};
    std::shared_ptr<Question> question;  // the last one that asked for it
  };

  std::vector<tiercel_key> keys_of(const Hashes& hashes) const {
    return must(ns_.keys_from_digests({hashes.empty() ? nullptr : hashes[0].data(), hashes.size() * 32}, 32));
  }

  void learn(const Hashes& hashes, const Hashes& prefix, const std::shared_ptr<Question>& question) {
    const std::vector<tiercel_key> keys = keys_of(hashes);
    tiercel_key parent = prefix.empty() ? tiercel_key{} : keys_of({prefix.back()})[0];
    const std::lock_guard lock(mutex_);
    for (std::size_t i = 0; i < hashes.size(); ++i) {
      Place& place = places_[hashes[i]];
      place.length = prefix.size() + i + 1;
      place.parent = std::exchange(parent, keys[i]);
      if (question != nullptr) place.question = question;
    }
  }
  Place place_of(const PageHash& hash) const {
    const std::lock_guard lock(mutex_);
    const auto at = places_.find(hash);
    return at == places_.end() ? Place{} : at->second;
  }

  // Side pools: one item for each key; the page stays out of sight until its KV is there, so nobody waits for
  // that.
  PoolResults set(const std::vector<PoolTransfer>& transfers) {
    PoolResults results;
    std::vector<tiercel_store_item> items;
    for (const PoolTransfer& transfer : transfers) {
      const std::vector<tiercel_key> keys = keys_of(transfer.keys);
      for (std::size_t i = 0; i < keys.size(); ++i) {
        const Place place = place_of(transfer.keys[i]);
        tiercel_store_item& item = items.emplace_back(tiercel_store_item{});
        item.key = keys[i];
        item.parent = place.parent;
        item.length = place.length;  // 0, not known: the item is refused as invalid
        item.slot = transfer.host_indices[i];
        item.class_id = transfer.name;
        item.external = {transfer.keys[i].data(), transfer.keys[i].size()};
      }
    }
    const tiercel::Stored stored = must(ns_.store(items));
    must(stored.operation.wait(TIERCEL_COMPLETION_SOURCE_FREE, kLong));
    const std::vector<tiercel_outcome> outcomes = must(stored.operation.store_outcomes());
    std::size_t item = 0;
    for (const PoolTransfer& transfer : transfers)
      for (std::size_t i = 0; i < transfer.keys.size(); ++i, ++item)
        results[transfer.name].push_back(is_stored(outcomes[item]));
    return results;
  }

  // What somebody else writes, or what waits for its page's KV since an earlier try, needs no second copy.
  // Should that one fail, it is a miss later.
  static bool is_stored(tiercel_outcome outcome) {
    return outcome == TIERCEL_ITEM_COMMITTED || outcome == TIERCEL_ITEM_ALREADY_PRESENT ||
           outcome == TIERCEL_ITEM_BEING_WRITTEN;
  }

  // A batch is a part of the length that the question found: the other pages are skipped.
  PoolResults get(const std::vector<PoolTransfer>& transfers) {
    PoolResults results;
    const std::shared_ptr<Question> asked = place_of(transfers.at(0).keys.at(0)).question;
    for (const PoolTransfer& transfer : transfers) results[transfer.name].resize(transfer.keys.size());
    if (asked == nullptr || asked->length <= asked->first_page) return results;
    std::vector<Slots> slots(transfers.size());
    std::vector<tiercel_load_target> targets(transfers.size());
    for (std::size_t t = 0; t < transfers.size(); ++t) {
      slots[t].assign(transfers[t].name == kMamba ? 1 : asked->length - asked->first_page, TIERCEL_SKIP);
      for (std::size_t i = 0; i < transfers[t].keys.size(); ++i)
        slots[t][entry_of(transfers[t], i, *asked)] = transfers[t].host_indices[i];
      targets[t].slots = slots[t].data();
      targets[t].count = slots[t].size();
      targets[t].class_id = transfers[t].name;
    }
    tiercel::Result<tiercel::Operation> load = asked->ticket.load(asked->length, targets);
    if (load.status().code == TIERCEL_NOT_FOUND) return results;  // the ticket has expired
    const tiercel::Operation operation = must(std::move(load));
    must(operation.wait(0, kLong));
    for (std::size_t t = 0; t < transfers.size(); ++t) {
      const auto outcomes = must(operation.load_outcomes(t));
      for (std::size_t i = 0; i < transfers[t].keys.size(); ++i)
        results[transfers[t].name][i] =
            outcomes[entry_of(transfers[t], i, *asked)] == TIERCEL_ENTRY_DELIVERED;
    }
    return results;
  }
  std::size_t entry_of(const PoolTransfer& transfer, std::size_t i, const Question& asked) const {
    if (transfer.name == kMamba) return 0;
    return static_cast<std::size_t>(place_of(transfer.keys[i]).length - 1 - asked.first_page);
  }

  tiercel::Session session_;
  tiercel::Form form_;
  tiercel::Namespace ns_;
  mutable std::mutex mutex_;
  std::map<PageHash, Place> places_;
};

// One of the controller's threads: does what is posted, in order.
class Worker {
 public:
  ~Worker() {
    post([this] { stop_ = true; });
    thread_.join();
  }
  template <typename Step>
  std::future<std::invoke_result_t<Step&>> post(Step step) {
    auto task = std::make_shared<std::packaged_task<std::invoke_result_t<Step&>()>>(std::move(step));
    auto future = task->get_future();
    {
      const std::lock_guard lock(mutex_);
      tasks_.push_back([task] { (*task)(); });
    }
    posted_.notify_one();
    return future;
  }

 private:
  void run() {
    while (!stop_) {
      std::function<void()> task;
      {
        std::unique_lock lock(mutex_);
        posted_.wait(lock, [this] { return !tasks_.empty(); });
        task = std::move(tasks_.front());
        tasks_.pop_front();
      }
      task();
    }
  }
  std::mutex mutex_;
  std::condition_variable posted_;
  std::deque<std::function<void()>> tasks_;
  bool stop_ = false;  // read and written by the worker
  std::thread thread_{[this] { run(); }};
};

template <typename T>
T in_time(std::future<T> future) {
  if (future.wait_for(std::chrono::seconds(30)) == std::future_status::ready) return future.get();
  std::fprintf(stderr, "a worker did not answer\n");
  std::abort();
}

Hashes part(const Hashes& of, std::size_t first, std::size_t last) {
  return {of.begin() + static_cast<std::ptrdiff_t>(first), of.begin() + static_cast<std::ptrdiff_t>(last)};
}
Slots run_of(std::uint64_t first, std::uint64_t count) {
  Slots slots(count);
  for (std::uint64_t i = 0; i < count; ++i) slots[i] = first + i;
  return slots;
}
// Of a conversation that is `number`: any hashes, as long as they differ.
Hashes hashes_of(std::uint64_t number, std::uint64_t pages) {
  Hashes hashes(pages);
  for (std::uint64_t page = 0; page < pages; ++page) compute(hashes[page], number * 100000 + page);
  return hashes;
}

class SglangCalls : public testing::Test {
 protected:
  static constexpr std::uint64_t kPages = 400;

  SglangCalls() {
    for (std::uint32_t pool = 0; pool < kPools; ++pool)
      backend_.register_mem_host_pool_v2(pools_[pool], static_cast<PoolName>(pool));
  }

  static std::uint64_t content(std::uint64_t conversation, PoolName pool, std::uint64_t page,
                               std::size_t component) {
    return ((conversation * kPools + pool) * 10000 + page) * 2 + component;
  }
  // The last of `pages` pages that a side pool needs, in slots from `slot` on.
  static PoolTransfer trailing(PoolName pool, const Hashes& chain, std::uint64_t slot) {
    return {pool, part(chain, chain.size() - kTrailing[pool], chain.size()), run_of(slot, kTrailing[pool])};
  }
  void fill(std::uint64_t conversation, PoolName pool, std::uint64_t slot, std::uint64_t page,
            std::uint64_t count) {
    for (std::uint64_t i = 0; i < count; ++i)
      for (std::size_t c = 0; c < pools_[pool].components.size(); ++c)
        compute(pools_[pool].of(c, slot + i), content(conversation, pool, page + i, c));
  }
  void expect_bytes(std::uint64_t conversation, PoolName pool, std::uint64_t slot, std::uint64_t page,
                    std::uint64_t count) {
    for (std::uint64_t i = 0; i < count; ++i)
      for (std::size_t c = 0; c < pools_[pool].components.size(); ++c)
        ASSERT_TRUE(holds(pools_[pool].of(c, slot + i), content(conversation, pool, page + i, c)))
            << "pool " << pool << " page " << page + i;
  }

  // ---- the controller ----

  // Side pools, then KV from page `first` on: what the scheduler computed into host slots from `slot` on.
  std::future<std::uint64_t> backup(std::uint64_t conversation, const Hashes& chain, std::uint64_t first,
                                    std::uint64_t slot) {
    fill(conversation, kKv, slot, first, chain.size() - first);
    fill(conversation, kSwa, slot, chain.size() - kTrailing[kSwa], kTrailing[kSwa]);
    fill(conversation, kMamba, slot, chain.size() - 1, 1);
    return backup_.post([this, chain, first, slot] {
      for (const auto& [pool, stored] :
           backend_.batch_set_v2({trailing(kSwa, chain, slot), trailing(kMamba, chain, slot)}))
        EXPECT_EQ(stored, std::vector<bool>(kTrailing[pool], true));
      std::uint64_t completed = 0;
      for (std::uint64_t at = first; at < chain.size(); at += kBatch) {
        const std::uint64_t count = std::min(kBatch, chain.size() - at);
        const auto stored = backend_.batch_set_v1(part(chain, at, at + count),
                                                  run_of(slot + at - first, count), part(chain, 0, at));
        if (std::find(stored.begin(), stored.end(), false) != stored.end()) break;
        completed += count;
      }
      return completed;
    });
  }

  std::future<PoolTransferResult> ask(const Hashes& chain, std::uint64_t held) {
    return prefetch_.post([this, chain, held] {
      return backend_.batch_exists_v2(part(chain, held, chain.size()), part(chain, 0, held));
    });
  }

  struct Fetched {
    std::uint64_t kv_pages = 0;
    bool side_pools = false;
  };
  // What ask() found, into slots from `slot` on. `between` runs after the first batch.
  std::future<Fetched> fetch(
      const Hashes& chain, std::uint64_t held, std::uint64_t slot,
      const std::function<void()>& between = [] {}) {
    return io_.post([this, chain, held, slot, between] {
      Fetched fetched;
      for (std::uint64_t at = held; at < chain.size(); at += kBatch) {
        const std::uint64_t count = std::min(kBatch, chain.size() - at);
        const auto loaded =
            backend_.batch_get_v1(part(chain, at, at + count), run_of(slot + at - held, count));
        const auto run = std::find(loaded.begin(), loaded.end(), false) - loaded.begin();
        fetched.kv_pages += static_cast<std::uint64_t>(run);
        if (static_cast<std::uint64_t>(run) != count) return fetched;
        if (at == held) between();
      }
      fetched.side_pools = true;
      for (const auto& [pool, loaded] :
           backend_.batch_get_v2({trailing(kSwa, chain, slot), trailing(kMamba, chain, slot)}))
        fetched.side_pools = fetched.side_pools && loaded == std::vector<bool>(kTrailing[pool], true);
      return fetched;
    });
  }
  void forget() {
    for (HostPool& pool : pools_)
      for (auto& component : pool.components) std::fill(component.begin(), component.end(), 0xee);
  }

  tiercel::Node node_ = open_node(32 << 20);
  std::array<HostPool, kPools> pools_;
  Backend backend_{node_};
  Worker prefetch_, io_, backup_;
};

TEST_F(SglangCalls, SidePoolsThatCameFirstAppearWithTheirPages) {
  EXPECT_EQ(backend_.trailing_pages(kSwa), kTrailing[kSwa]) << "the rule is the model's, not a list's length";
  const Hashes chain = hashes_of(1, kPages);
  EXPECT_EQ(in_time(ask(chain, 0)).kv_hit_pages, 0U);
  fill(1, kSwa, 0, kPages - 2, 2);
  fill(1, kMamba, 0, kPages - 1, 1);
  const auto first = in_time(backup_.post([&] {
    return backend_.batch_set_v2({trailing(kSwa, chain, 0), trailing(kMamba, chain, 0)});
  }));
  EXPECT_EQ(first.at(kMamba), std::vector<bool>{true});
  EXPECT_EQ(in_time(prefetch_.post([&] { return backend_.batch_exists(chain); })), 0U);
  EXPECT_EQ(in_time(ask(chain, 0)).kv_hit_pages, 0U) << "an unfinished page is seen by nobody";

  EXPECT_EQ(in_time(backup(1, chain, 0, 0)), kPages);
  EXPECT_EQ(in_time(prefetch_.post([&] { return backend_.batch_exists(chain); })), kPages);
  const PoolTransferResult found = in_time(ask(chain, 0));
  EXPECT_EQ(found.restorable_prefix_pages, std::vector<std::uint64_t>{kPages}) << "one snapshot, one length";
}

TEST_F(SglangCalls, BatchesInTheMiddleOfAChainAreReadWhileAnotherConversationIsBackedUp) {
  const Hashes chain = hashes_of(1, kPages), other = hashes_of(2, 300);
  in_time(ask(chain, 0));
  ASSERT_EQ(in_time(backup(1, chain, 0, 0)), kPages);
  forget();
  constexpr std::uint64_t kHeld = 44;  // in the engine's own tree
  const PoolTransferResult found = in_time(ask(chain, kHeld));
  ASSERT_EQ(found.kv_hit_pages, kPages - kHeld);
  in_time(ask(other, 0));
  auto storing = backup(2, other, 0, 600);
  const Fetched fetched = in_time(fetch(chain, kHeld, 0));
  EXPECT_EQ(in_time(std::move(storing)), 300U);
  EXPECT_EQ(fetched.kv_pages, kPages - kHeld);
  EXPECT_TRUE(fetched.side_pools);
  expect_bytes(1, kKv, 0, kHeld, kPages - kHeld);
  expect_bytes(1, kSwa, 0, kPages - 2, 2);
  expect_bytes(1, kMamba, 0, kPages - 1, 1);
  EXPECT_EQ(in_time(ask(other, 0)).kv_hit_pages, 300U);
}

TEST_F(SglangCalls, APageThatVanishesBetweenTwoBatchesIsFalseAndItsSlotUntouched) {
  const Hashes chain = hashes_of(1, kPages);
  constexpr std::uint64_t kLost = 200;
  in_time(ask(chain, 0));
  ASSERT_EQ(in_time(backup(1, chain, 0, 0)), kPages);
  forget();
  ASSERT_EQ(in_time(ask(chain, 0)).kv_hit_pages, kPages);
  const Fetched fetched = in_time(fetch(chain, 0, 0, [&] { backend_.remove(chain[kLost]); }));
  EXPECT_EQ(fetched.kv_pages, kBatch);
  EXPECT_FALSE(fetched.side_pools);
  expect_bytes(1, kKv, 0, 0, kBatch);
  for (std::uint64_t slot = kBatch; slot < kSlots; ++slot)
    ASSERT_TRUE(all_are(pools_[kKv].of(0, slot), 0xee) && all_are(pools_[kKv].of(1, slot), 0xee));
  EXPECT_EQ(in_time(prefetch_.post([&] { return backend_.batch_exists(chain); })), kLost);
  EXPECT_EQ(in_time(ask(chain, 0)).kv_hit_pages, 0U) << "the only snapshot has gone with its page";

  // Computed again behind what is still there, and backed up from the middle of the chain on.
  ASSERT_EQ(in_time(backup(1, chain, kLost, 0)), kPages - kLost);
  forget();
  ASSERT_EQ(in_time(ask(chain, 0)).kv_hit_pages, kPages);
  const Fetched again = in_time(fetch(chain, 0, 0));
  EXPECT_EQ(again.kv_pages, kPages);
  EXPECT_TRUE(again.side_pools);
  expect_bytes(1, kKv, 0, 0, kPages);
  expect_bytes(1, kSwa, 0, kPages - 2, 2);
  expect_bytes(1, kMamba, 0, kPages - 1, 1);
}

TEST_F(SglangCalls, ASidePoolWhosePlaceNobodyToldIsRefusedAndItsKvIsNot) {
  const Hashes chain = hashes_of(3, kBatch);
  fill(3, kKv, 0, 0, kBatch);
  const auto refused =
      in_time(backup_.post([&] { return backend_.batch_set_v2({trailing(kMamba, chain, 0)}); }));
  EXPECT_EQ(refused.at(kMamba), std::vector<bool>{false});
  const auto stored =
      in_time(backup_.post([&] { return backend_.batch_set_v1(chain, run_of(0, kBatch), {}); }));
  EXPECT_EQ(stored, std::vector<bool>(kBatch, true));
  EXPECT_EQ(in_time(prefetch_.post([&] { return backend_.batch_exists(chain); })), kBatch);
}

}  // namespace
}  // namespace engines
