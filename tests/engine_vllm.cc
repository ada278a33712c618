// vLLM's hybrid connector over the ABI: the scheduler asks and allocates, the worker loads asynchronously and
// saves in the step that computed; all groups' pages lie over the same bytes, block 0 is the null block, a
// request's load fails as a whole, and the scheduler then asks again for the same request.
#include <array>
#include <map>
#include <ostream>
#include <set>

#include "engine_world.h"

namespace engines {
namespace {

constexpr std::uint64_t kBlockTokens = 4, kBlockBytes = 256, kBlocks = 64, kLayers = 2, kChunkBlocks = 4;
constexpr std::uint64_t kNull = 0;

struct Model {
  const char* name;
  const char* spec;
  std::uint64_t sparse_bytes;  // of one layer of a page or snapshot; a block is padded to kBlockBytes
};
// As Gemma 3: sliding windows of 9 tokens (two blocks) in layers 0 and 2, full attention in 1 and 3.
constexpr Model kWindows = {"Windows", R"({"tiercel_spec": 1, "model_type": "windows", "page_tokens": 4,
  "topology": {"tp": 1}, "groups": [
    {"kind": "full", "layers": [1, 3], "components": [{"name": "kv", "shape": [2, 8], "dtype": "f32"}]},
    {"kind": "window", "window_tokens": 9, "layers": [0, 2],
     "components": [{"name": "kv", "shape": [2, 8], "dtype": "f32"}]}]})",
                            256};
// As Granite 4: a recurrent state in layers 0 and 2, whose page is padded up to that of attention.
constexpr Model kStates = {"States", R"({"tiercel_spec": 1, "model_type": "states", "page_tokens": 4,
  "topology": {"tp": 1}, "groups": [
    {"kind": "full", "layers": [1, 3], "components": [{"name": "kv", "shape": [2, 8], "dtype": "f32"}]},
    {"kind": "state", "layers": [0, 2], "components": [{"name": "row", "shape": [50], "dtype": "f32"}]}]})",
                           200};

void PrintTo(const Model& model, std::ostream* out) { *out << model.name; }

constexpr std::uint32_t kFull = 0, kSparse = 1, kGroups = 2;
using Table = std::vector<std::uint64_t>;  // block of each position; kNull: none
using Tables = std::array<Table, kGroups>;

struct Request {
  std::uint64_t id = 0;
  std::uint64_t prompt = 0;  // what its tokens begin with; equal prompts are equal
  std::vector<std::uint32_t> tokens;
  std::vector<tiercel_key> keys;  // of its full blocks
  Tables tables;
  std::uint64_t computed = 0;  // blocks
};

// The engine's memory: one storage; tensor i holds layer 2i of the sparse group and layer 2i + 1 of the full
// one, at the same offset. A block id belongs to one group at a time.
struct KvCache {
  std::vector<unsigned char> storage = std::vector<unsigned char>(kLayers * kBlocks * kBlockBytes);
  std::vector<std::uint64_t> free;
  KvCache() {
    for (std::uint64_t block = kBlocks - 1; block > kNull; --block) free.push_back(block);
  }
  std::uint64_t take() {
    EXPECT_FALSE(free.empty());
    const std::uint64_t block = free.back();
    free.pop_back();
    return block;
  }
  void give_back(Tables& tables) {
    for (Table& table : tables)
      for (std::uint64_t& block : table)
        if (block != kNull) free.insert(free.begin(), std::exchange(block, kNull));
  }
  std::span<unsigned char> of(std::uint64_t block, std::uint64_t layer, std::uint64_t bytes) {
    return std::span(storage).subspan((layer * kBlocks + block) * kBlockBytes, bytes);
  }
};

std::uint64_t content(const Request& request, std::uint32_t group, std::uint64_t page, std::uint64_t layer) {
  return ((request.prompt * kGroups + group) * 1024 + page) * kLayers + layer;
}

struct LoadPlan {  // what build_connector_meta sends to the worker
  std::uint64_t request = 0;
  std::vector<unsigned char> ticket;
  std::uint64_t length = 0;
  Tables tables;
};
struct Results {
  std::set<std::uint64_t> finished_recving, failed_recving;
};

class Connector {
 public:
  Connector(tiercel::Node& node, const Model& model, KvCache& cache)
      : session_(must(node.open_session())), queue_(must(node.create_queue())) {
    form_ = must(node.open_form(must(tiercel::Spec::from_json(model.spec)), tiercel::one_rank()));
    auto identity = sized<tiercel_identity>();
    identity.model = model.name;  // vLLM's block hashes know nothing of the model
    identity.weights = "revision";
    identity.dtype = "f32";
    ns_ = must(session_.open_namespace(form_, identity));
    state_ = must(form_.class_info(kSparse)).retention == TIERCEL_CLASS_STATE;
    window_pages_ = must(form_.class_info(kSparse)).window_pages;
    register_kv_caches(cache);
  }

  // ---- scheduler ----

  // Tokens beyond what is computed, always to be loaded asynchronously.
  std::uint64_t get_num_new_matched_tokens(Request& request) {
    auto options = sized<tiercel_match_options>();
    options.request = request.id;
    options.prompt_tokens = request.tokens.size();
    const std::array<std::uint64_t, kGroups> held = {request.computed, request.computed};
    options.held = held.data();
    options.held_count = held.size();
    tiercel::Ticket ticket = must(ns_.match(request.keys, request.tokens.size() - 1, options));
    const std::uint64_t length = must(ticket.summary()).length;
    if (length <= request.computed) return 0;
    offers_[request.id] = {std::move(ticket), length};
    return (length - request.computed) * kBlockTokens;
  }

  void update_state_after_alloc(const Request& request, std::uint64_t external_tokens) {
    const auto offer = offers_.find(request.id);
    if (external_tokens == 0 || offer == offers_.end()) return;
    plans_.push_back(
        {request.id, must(offer->second.first.export_bytes()), offer->second.second, request.tables});
  }
  std::vector<LoadPlan> build_connector_meta() { return std::exchange(plans_, {}); }

  void request_finished_all_groups(const Request& request) {
    offers_.erase(request.id);
    must(session_.request_end(request.id));
  }

  // ---- worker ----

  void start_load_kv(const std::vector<LoadPlan>& plans) {
    for (const LoadPlan& plan : plans) {
      tiercel::Ticket ticket = must(session_.import_ticket(plan.ticket));
      Tables slots;
      for (std::uint32_t group = 0; group < kGroups; ++group)
        for (std::uint64_t page = 0; page < plan.length; ++page) {
          const std::uint64_t block = plan.tables[group][page];
          slots[group].push_back(block == kNull ? TIERCEL_SKIP : block);
        }
      if (state_) slots[kSparse] = {slots[kSparse].back()};
      std::array<tiercel_load_target, kGroups> targets{};
      for (std::uint32_t group = 0; group < kGroups; ++group) {
        targets[group].slots = slots[group].data();
        targets[group].count = slots[group].size();
        targets[group].class_id = group;
      }
      auto options = sized<tiercel_load_options>();
      options.cq = queue_.get();
      options.user_data = plan.request;
      options.after_event = after_event_;
      options.deadline_ns = load_deadline_ns_;
      asked_[plan.request] = plan.length;
      loads_.push_back(must(ticket.load(plan.length, targets, options)));
    }
  }

  // The blocks that became full in this step, of all requests. Snapshot blocks are used again in the next
  // one, so they are read before this returns.
  void wait_for_save(const std::vector<tiercel_store_item>& items, std::uint64_t request) {
    auto options = sized<tiercel_store_options>();
    options.request = request;
    const tiercel::Stored stored = must(ns_.store(items, options));
    must(stored.operation.wait(TIERCEL_COMPLETION_SOURCE_FREE, kLong));
  }

  Results get_transfer_results() {
    Results results;
    std::array<tiercel_completion, 16> completions;
    for (const tiercel_completion& completion : must(queue_.drain(completions))) {
      if ((completion.flags & TIERCEL_COMPLETION_QUIET) == 0) continue;
      const bool whole = completion.status == TIERCEL_OK && completion.length == asked_[completion.user_data];
      (whole ? results.finished_recving : results.failed_recving).insert(completion.user_data);
      offers_.erase(completion.user_data);
    }
    return results;
  }

  // ---- what the test needs to know ----
  // From now on loads wait for this event, as long as that.
  void delay_loads(std::uint64_t event, std::uint64_t deadline_ns) {
    after_event_ = event;
    load_deadline_ns_ = deadline_ns;
  }
  int fd() const { return queue_.fd(); }
  bool state() const { return state_; }
  std::uint64_t window_pages() const { return window_pages_; }
  tiercel::Namespace& ns() { return ns_; }

 private:
  void register_kv_caches(KvCache& cache) {
    for (std::uint32_t group = 0; group < kGroups; ++group) {
      tiercel_memory_run run{};
      run.base = cache.storage.data();
      run.slot_stride = kBlockBytes;
      run.layer_stride = kBlocks * kBlockBytes;
      run.layer = TIERCEL_WHOLE;
      auto options = sized<tiercel_memory_options>();
      options.class_id = group;
      options.slots = kBlocks;
      must(form_.register_memory({&run, 1}, options));
    }
  }

  tiercel::Session session_;
  tiercel::Form form_;
  tiercel::Namespace ns_;
  tiercel::CompletionQueue queue_;
  bool state_ = false;
  std::uint64_t window_pages_ = 0, after_event_ = 0, load_deadline_ns_ = 0;
  std::map<std::uint64_t, std::pair<tiercel::Ticket, std::uint64_t>> offers_;
  std::map<std::uint64_t, std::uint64_t> asked_;
  std::vector<LoadPlan> plans_;
  std::vector<tiercel::Operation> loads_;
};

// The engine: its scheduler and its worker take turns, as in one process.
class VllmCalls : public testing::TestWithParam<Model> {
 protected:
  static constexpr std::uint64_t kPages = 10, kDamagedPage = 7;

  Request request(std::uint64_t id, std::uint64_t prompt) {
    Request made;
    made.id = id;
    made.prompt = prompt;
    for (std::uint64_t i = 0; i < kPages * kBlockTokens + 2; ++i)
      made.tokens.push_back(static_cast<std::uint32_t>(prompt * 1000 + i));
    tiercel_key_chain chain = must(connector_.ns().start_chain());
    made.keys = must(connector_.ns().keys_from_tokens(chain, made.tokens));
    for (Table& table : made.tables) table.assign(kPages, kNull);
    return made;
  }

  // Which blocks a resume at `length` is given: all of full attention, the trailing ones of the other group.
  std::uint64_t first_needed(std::uint32_t group, std::uint64_t length) const {
    if (group == kFull) return 0;
    const std::uint64_t trailing = connector_.state() ? 1 : connector_.window_pages();
    return length - std::min(length, trailing);
  }

  // Asks, allocates, and starts the load. Tokens offered.
  std::uint64_t schedule(Request& request) {
    const std::uint64_t offered = connector_.get_num_new_matched_tokens(request);
    const std::uint64_t length = request.computed + offered / kBlockTokens;
    for (std::uint32_t group = 0; offered != 0 && group < kGroups; ++group)
      for (std::uint64_t page = first_needed(group, length); page < length; ++page)
        request.tables[group][page] = cache_.take();
    connector_.update_state_after_alloc(request, offered);
    connector_.start_load_kv(connector_.build_connector_meta());
    return offered;
  }

  // False: the load failed, as a whole; its blocks are given back and the request is to be scheduled again.
  bool receive(Request& request, std::uint64_t offered) {
    Results results;
    while (results.finished_recving.empty() && results.failed_recving.empty()) {
      EXPECT_TRUE(readable(connector_.fd(), 30'000));
      if (HasFailure()) return false;
      results = connector_.get_transfer_results();
    }
    if (results.failed_recving.contains(request.id)) {
      cache_.give_back(request.tables);
      return false;
    }
    EXPECT_TRUE(results.finished_recving.contains(request.id));
    request.computed += offered / kBlockTokens;
    return true;
  }

  void expect_bytes(const Request& request) {
    for (std::uint32_t group = 0; group < kGroups; ++group)
      for (std::uint64_t page = first_needed(group, request.computed); page < request.computed; ++page)
        for (std::uint64_t layer = 0; layer < kLayers; ++layer)
          EXPECT_TRUE(holds(cache_.of(request.tables[group][page], layer, record_bytes(group)),
                            content(request, group, page, layer)))
              << "group " << group << " page " << page << " layer " << layer;
  }
  std::uint64_t record_bytes(std::uint32_t group) const {
    return group == kFull ? kBlockBytes : GetParam().sparse_bytes;
  }

  // One step of prefill: up to four blocks are computed and saved. `broken`: the full record of the page that
  // will be damaged is stored in place.
  void step(Request& request, DamagedRecord* broken = nullptr) {
    const std::uint64_t end = std::min(kPages, request.computed + kChunkBlocks);
    std::vector<tiercel_store_item> items;
    for (std::uint64_t page = request.computed; page < end; ++page)
      for (std::uint32_t group = 0; group < kGroups; ++group) {
        if (group == kSparse && connector_.state() && page + 1 != end) continue;
        const tiercel_store_item item = computed_item(request, group, page, end);
        if (broken != nullptr && group == kFull && page == kDamagedPage)
          store_in_place(request, item, *broken);
        else
          items.push_back(item);
      }
    connector_.wait_for_save(items, request.id);
    if (connector_.state()) {  // the next step writes its running state over this one
      const std::uint64_t block = request.tables[kSparse][end - 1];
      for (std::uint64_t layer = 0; layer < kLayers; ++layer) compute(cache_.of(block, layer, 200), 12345);
    }
    request.computed = end;
  }

  tiercel_store_item computed_item(Request& request, std::uint32_t group, std::uint64_t page,
                                   std::uint64_t end) {
    std::uint64_t& block = request.tables[group][page];
    if (group == kSparse && connector_.state() && page >= kChunkBlocks) {
      std::uint64_t& before = request.tables[group][(page / kChunkBlocks) * kChunkBlocks - 1];
      if (before != kNull) block = std::exchange(before, kNull);
    }
    if (block == kNull) block = cache_.take();
    for (std::uint64_t layer = 0; layer < kLayers; ++layer)
      compute(cache_.of(block, layer, record_bytes(group)), content(request, group, page, layer));
    tiercel_store_item item{};
    item.key = request.keys[page];
    if (page > 0) item.parent = request.keys[page - 1];
    item.length = page + 1;
    item.slot = block;
    item.class_id = group;
    item.resume_point = !connector_.state() && page + 1 == end ? 1 : 0;
    return item;
  }

  void store_in_place(const Request& request, const tiercel_store_item& item, DamagedRecord& broken) {
    std::vector<unsigned char> record;
    for (std::uint64_t layer = 0; layer < kLayers; ++layer) {
      const auto bytes = cache_.of(request.tables[kFull][kDamagedPage], layer, kBlockBytes);
      record.insert(record.end(), bytes.begin(), bytes.end());
    }
    broken.store(connector_.ns(), item, record);
  }

  void finish(Request& request) {
    connector_.request_finished_all_groups(request);
    cache_.give_back(request.tables);
  }
  // Computes a prompt from nothing.
  void run_cold(Request& request, DamagedRecord* broken = nullptr) {
    EXPECT_EQ(schedule(request), 0U);
    while (request.computed < kPages) step(request, broken);
    finish(request);
  }
  void forget() { std::fill(cache_.storage.begin(), cache_.storage.end(), static_cast<unsigned char>(0)); }

  tiercel::Node node_ = open_node(16 << 20);
  KvCache cache_;
  Connector connector_{node_, GetParam(), cache_};
};

TEST_P(VllmCalls, ARestoredRequestHasEveryByteWhileAnotherOneIsSaved) {
  Request first = request(1, 1);
  run_cold(first);
  forget();
  Request again = request(2, 1), other = request(3, 2);
  const std::uint64_t offered = schedule(again);
  EXPECT_EQ(offered, kPages * kBlockTokens);
  EXPECT_EQ(again.tables[kSparse][0], kNull);
  EXPECT_EQ(schedule(other), 0U);
  step(other);
  ASSERT_TRUE(receive(again, offered));
  expect_bytes(again);
  EXPECT_EQ(schedule(again), 0U) << "all that the limit allows is computed";
  finish(again);
  finish(other);
  EXPECT_EQ(cache_.free.size(), kBlocks - 1);
}

TEST_P(VllmCalls, APageWhoseLoadFailedIsNotOfferedToThatRequestAgainButToOthers) {
  DamagedRecord broken;
  Request first = request(1, 1);
  run_cold(first, &broken);
  forget();
  broken.strike();

  Request unlucky = request(2, 1);
  const std::uint64_t offered = schedule(unlucky);
  EXPECT_EQ(offered, kPages * kBlockTokens);
  EXPECT_FALSE(receive(unlucky, offered)) << "the whole request fails: its blocks were meant for ten pages";

  // Before the lost page: at the snapshot there is, or wherever the windows before it are still kept.
  const std::uint64_t rest = schedule(unlucky);
  ASSERT_GT(rest, 0U);
  ASSERT_LE(rest, (connector_.state() ? kChunkBlocks : kDamagedPage) * kBlockTokens)
      << "the same pages again would go on for ever";
  ASSERT_TRUE(receive(unlucky, rest));
  expect_bytes(unlucky);
  while (unlucky.computed < kPages) step(unlucky);  // stores the lost page anew

  Request fresh = request(3, 1);
  forget();
  const std::uint64_t all = schedule(fresh);
  EXPECT_EQ(all, kPages * kBlockTokens);
  ASSERT_TRUE(receive(fresh, all));
  expect_bytes(fresh);

  // Preempted: it lost its blocks and asks once more.
  cache_.give_back(unlucky.tables);
  unlucky.computed = 0;
  const std::uint64_t once_more = schedule(unlucky);
  EXPECT_LE(once_more, kDamagedPage * kBlockTokens);
  ASSERT_TRUE(once_more == 0 || receive(unlucky, once_more));
  expect_bytes(unlucky);
  finish(unlucky);
  finish(fresh);
}

TEST_P(VllmCalls, AnAbortedRequestHasItsBlocksBackWhenItsLastCompletionCame) {
  Request first = request(1, 1);
  run_cold(first);
  forget();
  Request leaving = request(2, 1);
  const std::uint64_t offered = schedule(leaving);
  ASSERT_EQ(offered, kPages * kBlockTokens);
  connector_.request_finished_all_groups(leaving);  // while the load runs: it goes on
  receive(leaving, offered);
  cache_.give_back(leaving.tables);
  forget();
  EXPECT_TRUE(all_are(cache_.storage, 0));
  Request fresh = request(3, 1);
  const std::uint64_t all = schedule(fresh);
  ASSERT_TRUE(receive(fresh, all));
  expect_bytes(fresh);
  finish(fresh);
}

TEST_P(VllmCalls, ALoadThatCameTooLateIsNotOfferedAgainEither) {
  Request first = request(1, 1);
  run_cold(first);
  forget();
  connector_.delay_loads(must(node_.create_event()), 1'000'000);  // it never fires
  Request late = request(2, 1);
  const std::uint64_t offered = schedule(late);
  ASSERT_EQ(offered, kPages * kBlockTokens);
  EXPECT_FALSE(receive(late, offered));
  EXPECT_TRUE(all_are(cache_.storage, 0)) << "a load wrote before its event";
  EXPECT_EQ(schedule(late), 0U);
  connector_.delay_loads(0, 0);
  Request fresh = request(3, 1);
  const std::uint64_t all = schedule(fresh);
  ASSERT_TRUE(receive(fresh, all));
  expect_bytes(fresh);
  finish(late);
  finish(fresh);
}

INSTANTIATE_TEST_SUITE_P(Hybrids, VllmCalls, testing::Values(kWindows, kStates),
                         [](const testing::TestParamInfo<Model>& model) { return model.param.name; });

}  // namespace
}  // namespace engines
