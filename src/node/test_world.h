// A small world for tests of the node: one model, one session, engine memory with a slot per page, contents
// that are a function of key, class, shard and offset.
//
// Threads: one thread.
#pragma once

#include <algorithm>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "base/prng.h"
#include "device/device_pool.h"
#include "memory/record.h"
#include "node/node.h"

namespace tiercel {

struct TestModel {
  std::uint64_t window_pages = 0;
  bool state = false;
  bool full = true;
  bool index_keys = false;  // a second required class
  bool draft = false;
  std::uint64_t page_tokens = 16;
  std::uint64_t token_bytes = 4;      // per layer and component
  std::uint64_t snapshot_bytes = 96;  // per layer
};

inline ModelSpec test_spec(TestModel model) {
  ModelSpec spec;
  spec.model_type = "test";
  spec.page_tokens = model.page_tokens;
  spec.topology = Topology{1, 1, 1};
  const auto component = [](std::string name, std::uint64_t bytes) {
    return Component{std::move(name), {}, {}, bytes};
  };
  if (model.full)
    spec.groups.push_back({FullKind{},
                           Need::kRequired,
                           {0, 2},
                           {component("k", model.token_bytes), component("v", model.token_bytes)},
                           false,
                           1});
  if (model.window_pages != 0)
    spec.groups.push_back({WindowKind{(model.window_pages - 1) * model.page_tokens + 2},
                           Need::kSparse,
                           {1},
                           {component("k", model.token_bytes)},
                           false,
                           1});
  if (model.state)
    spec.groups.push_back(
        {StateKind{}, Need::kSparse, {3, 4}, {component("temporal", model.snapshot_bytes)}, false, 1});
  if (model.index_keys)
    spec.groups.push_back({FollowerKind{0}, Need::kRequired, {0, 2}, {component("index_k", 2)}, true, 1});
  if (model.draft)
    spec.groups.push_back({FollowerKind{0}, Need::kOptional, {5}, {component("k", 2)}, false, 1});
  return spec;
}

// Holds tasks until the test runs them.
class HeldExecutor final : public Executor {
 public:
  void submit(std::unique_ptr<Task> task) override { tasks_.push_back(std::move(task)); }
  std::size_t held() const { return tasks_.size(); }
  void run_one() {
    std::unique_ptr<Task> task = std::move(tasks_.front());
    tasks_.erase(tasks_.begin());
    task->run();
  }
  void run_all() {
    while (!tasks_.empty()) run_one();
  }

 private:
  std::vector<std::unique_ptr<Task>> tasks_;
};

// Host memory whose reads or writes fail where the test says so.
class FailingDevice final : public Device {
 public:
  explicit FailingDevice(std::uint64_t bytes) : device_(bytes) {}
  Status read(std::uint64_t address, MutableByteView into) override {
    if (read_fails && read_fails(address)) return {Code::kIoError, "the test's device does not read here"};
    return device_.read(address, into);
  }
  Status write(std::uint64_t address, ByteView from) override {
    if (write_fails && write_fails(address)) return {Code::kIoError, "the test's device does not write here"};
    return device_.write(address, from);
  }
  std::uint64_t size_bytes() const override { return device_.size_bytes(); }
  MutableByteView bytes() { return device_.bytes(); }

  std::function<bool(std::uint64_t)> read_fails, write_fails;

 private:
  HostDevice device_;
};

// Processes that live until the test says otherwise.
class TestProcesses final : public Processes {
 public:
  Result<std::unique_ptr<WatchedProcess>> watch(std::uint32_t pid) override {
    if (gone.contains(pid)) return error(Code::kNotFound, "the test's process has exited");
    ++watches;
    return std::make_unique<One>(*this, pid);
  }
  std::set<std::uint32_t> gone;
  int watches = 0;

 private:
  class One final : public WatchedProcess {
   public:
    One(const TestProcesses& all, std::uint32_t pid) : all_(all), pid_(pid) {}
    bool exited() override { return all_.gone.contains(pid_); }

   private:
    const TestProcesses& all_;
    std::uint32_t pid_;
  };
};

struct TestOptions {
  ModelSpec spec;
  std::uint64_t host_bytes = 4 << 20;
  std::uint64_t extent_bytes = 16 << 10;
  std::optional<std::uint64_t> pages_max;
  std::uint64_t engine_slots = 64;
  std::uint64_t device_bytes = 4 << 20;
  Executor* executor = nullptr;  // null: copies run at once
  LeaseTable* readers = nullptr;
  PageIndex* index = nullptr;
  Processes* processes = nullptr;
  DiskLog* disk = nullptr;
  RemoteTier* remote = nullptr;
  ManualClock* clock = nullptr;  // null: its own
  std::function<void(NodeOptions&)> adjust;
};

struct StorePlan {
  std::vector<std::uint64_t> snapshots;  // lengths
  bool windows = true;
  RequestId request;
};

class TestWorld {
 public:
  explicit TestWorld(const TestOptions& options)
      : engine_slots_(options.engine_slots),
        given_clock_(options.clock),
        arena_(options.host_bytes),
        device_(options.device_bytes) {
    NodeOptions node_options;
    node_options.host_bytes = options.host_bytes;
    node_options.extent_bytes = options.extent_bytes;
    node_options.pages_max = options.pages_max;
    node_options.client_share = 1.0;
    node_options.policy = PolicyKind::kLru;
    if (options.adjust) options.adjust(node_options);
    Executor& executor = options.executor != nullptr ? *options.executor : inline_;
    World world{clock(), executor, arena_, device_, 1, options.index};
    world.readers = options.readers;
    world.processes = options.processes;
    world.disk = options.disk;
    world.remote = options.remote;
    auto opened = Node::open(node_options, world);
    EXPECT_TRUE(opened) << opened.error().to_string();
    node_ = std::move(*opened);
    session_ = node_->open_session({"test", "salt", {}}).value();
    auto form = node_->open_form({options.spec, options.spec.topology.shards()});
    EXPECT_TRUE(form) << form.error().to_string();
    form_ = *form;
    ns_ = open("weights-1");
    register_memory();
  }

  void register_memory() {
    pools_.clear();
    std::uint64_t base = 0;
    for (const ClassForm& cls : node_->form(form_).classes)
      for (std::uint16_t shard = 0; shard < cls.shards; ++shard) {
        DevicePool pool = layer_first_pool(cls, ShardId(shard), base, engine_slots_).value();
        pools_.push_back(pool);
        base += engine_slots_ * cls.record_bytes;
        const Status status = node_->register_memory(form_, std::move(pool));
        EXPECT_TRUE(status.ok()) << status.to_string();
      }
  }

  NamespaceId open(const std::string& weights) {
    ContentIdentity identity;
    identity.model = "test";
    identity.weights = weights;
    identity.dtype = "bf16";
    identity.page_tokens = node_->form(form_).spec.page_tokens;
    return node_->open_namespace(session_, form_, {identity, 0, {}}).value();
  }

  Node& node() { return *node_; }
  void lose_node() { node_.reset(); }  // the memory that it worked on stays
  NamespaceId ns() const { return ns_; }
  SessionId session() const { return session_; }
  FormId form_id() const { return form_; }
  const StorageForm& form() const { return node_->form(form_); }
  ManualClock& clock() { return given_clock_ != nullptr ? *given_clock_ : clock_; }
  ByteArena& arena() { return arena_; }
  FailingDevice& device() { return device_; }
  const std::vector<DevicePool>& pools() const { return pools_; }

  // Turns one payload bit of a resident record.
  void damage(const Key& key, ClassId cls) {
    for (const AuditResidence& set : node_->audit().residences)
      if (set.key == key && set.cls == cls && set.state == ResidenceState::kResident)
        arena_.view(set.spans[0], header_bytes(form().classes[cls.value()]), 1)[0] ^= std::byte{1};
  }
  // Whether nothing but 0xEE stands in the engine's slots of pages ≥ `length` (and, at length 0, of the
  // snapshot).
  bool untouched_from(std::uint64_t length, std::uint64_t pages) {
    for (const DevicePool& pool : pools_) {
      const bool state = form().classes[pool.cls.value()].is_state();
      if (state && length != 0) continue;
      for (std::uint64_t slot = state ? 0 : length; slot < (state ? 1 : pages); ++slot)
        for (const DeviceRun& run : pool.runs)
          for (std::uint64_t b = 0; b < run.length; ++b)
            if (device_.bytes()[run.base + slot * run.stride + b] != std::byte{0xEE}) return false;
    }
    return true;
  }

  // Keys of a chain; chains of different `branch` share nothing.
  std::vector<Key> keys(std::uint64_t pages, std::uint32_t branch = 0) {
    KeyChain chain = start_chain(node_->root(ns_));
    const std::uint64_t page_tokens = form().spec.page_tokens;
    std::vector<std::uint32_t> tokens(pages * page_tokens);
    for (std::size_t i = 0; i < tokens.size(); ++i)
      tokens[i] = branch * 1000003 + static_cast<std::uint32_t>(i);
    return extend_chain(chain, page_tokens, tokens).value();
  }

  static std::byte content(const Key& key, ClassId cls, ShardId shard, std::uint64_t offset) {
    return static_cast<std::byte>(mix64(key.words[0] ^ (offset / 8 + 1) * 0x9E37 ^
                                        (std::uint64_t{cls.value()} << 32) ^
                                        (std::uint64_t{shard.value()} << 48)) >>
                                  (offset % 8 * 8));
  }

  // Engine slot of page `i`; the content is written (or compared) where the registration says.
  void fill(const Key& key, std::uint64_t slot, const DevicePool& pool) {
    for (const DeviceRun& run : pool.runs)
      for (std::uint64_t b = 0; b < run.length; ++b)
        device_.bytes()[run.base + slot * run.stride + b] =
            content(key, pool.cls, pool.shard, run.payload_offset + b);
  }
  void wipe() { std::fill(device_.bytes().begin(), device_.bytes().end(), std::byte{0xEE}); }

  StoreRequest store_request(const std::vector<Key>& keys, std::uint64_t page, ClassId cls,
                             RequestId request = {}) {
    StoreRequest store;
    store.session = session_;
    store.ns = ns_;
    store.request = request;
    for (const DevicePool& pool : pools_) {
      if (pool.cls != cls) continue;
      const std::uint64_t slot = page % engine_slots_;
      fill(keys[page], slot, pool);
      StoreItem item;
      item.key = keys[page];
      if (page != 0) item.parent = keys[page - 1];
      item.length = page + 1;
      item.cls = cls;
      item.shard = pool.shard;
      item.slot = slot;
      store.items.push_back(item);
    }
    return store;
  }

  std::vector<StoreOutcome> store(const std::vector<Key>& keys, std::uint64_t page, ClassId cls,
                                  RequestId request = {}) {
    const StoreAnswer answer = node_->store(store_request(keys, page, cls, request)).value();
    node_->poll();
    return answer.outcomes;
  }

  void store_pages(const std::vector<Key>& keys, const StorePlan& plan) {
    for (std::uint64_t page = 0; page < keys.size(); ++page)
      for (const ClassForm& cls : form().classes) {
        if (cls.is_window() && !plan.windows) continue;
        if (cls.is_state() &&
            std::find(plan.snapshots.begin(), plan.snapshots.end(), page + 1) == plan.snapshots.end())
          continue;
        store(keys, page, cls.id, plan.request);
      }
    node_->drain_completions();
  }

  TicketId match(const std::vector<Key>& keys, RequestId request = {}) {
    MatchQuery query;
    query.session = session_;
    query.ns = ns_;
    query.request = request;
    query.keys = keys;
    return node_->match(query).value();
  }
  TicketView view(TicketId ticket) { return *node_->ticket(ticket); }

  LoadRequest load_request(TicketId ticket, std::uint64_t length) {
    LoadRequest request;
    request.ticket = ticket;
    request.length = length;
    for (const DevicePool& pool : pools_) {
      LoadTarget target;
      target.cls = pool.cls;
      target.shard = pool.shard;
      if (form().classes[pool.cls.value()].is_state())
        target.slots = {0};
      else
        for (std::uint64_t page = 0; page < length; ++page) target.slots.push_back(page);
      request.targets.push_back(std::move(target));
    }
    return request;
  }

  LoadResult load(TicketId ticket, std::uint64_t length) {
    wipe();
    const auto operation = node_->load(load_request(ticket, length));
    EXPECT_TRUE(operation) << operation.error().to_string();
    for (int i = 0; i < 16; ++i) node_->poll();
    for (Completion& completion : node_->drain_completions())
      if (completion.kind == CompletionKind::kLoaded && completion.operation == *operation)
        return *completion.load;
    return LoadResult{Status{Code::kInternal, "no completion"}, 0, {}};
  }

  // What differs from the content after a load of `length` pages; "" when nothing does.
  std::string wrong_bytes(const std::vector<Key>& keys, std::uint64_t length) {
    for (const DevicePool& pool : pools_) {
      const ClassForm& cls = form().classes[pool.cls.value()];
      for (std::uint64_t page = 0; page < length; ++page) {
        if (!needs(cls, length, page)) continue;
        const std::uint64_t slot = cls.is_state() ? 0 : page;
        for (const DeviceRun& run : pool.runs)
          for (std::uint64_t b = 0; b < run.length; ++b)
            if (device_.bytes()[run.base + slot * run.stride + b] !=
                content(keys[page], pool.cls, pool.shard, run.payload_offset + b))
              return "page " + std::to_string(page) + " class " + cls.name;
      }
    }
    return "";
  }

 private:
  std::uint64_t engine_slots_;
  ManualClock* given_clock_;
  ManualClock clock_;
  InlineExecutor inline_;
  ByteArena arena_;
  FailingDevice device_;
  std::unique_ptr<Node> node_;
  SessionId session_;
  FormId form_;
  NamespaceId ns_;
  std::vector<DevicePool> pools_;
};

}  // namespace tiercel
