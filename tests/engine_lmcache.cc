// LMCache's six-method plug-in over the ABI: strings and bytes in, a future's number out, completions through
// one eventfd. submit_* is called with the caller's lock held, so it may not wait; one thread polls the
// descriptor and drains; a buffer must not be touched once its completion was posted.
#include <atomic>
#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <thread>

#include "engine_world.h"

namespace engines {
namespace {

constexpr std::uint64_t kChunkBytes = 12288;

struct View {  // as a memoryview: borrowed bytes
  unsigned char* data;
  std::uint64_t size;
};
struct Done {  // as the plug-in reports it
  std::uint64_t future = 0;
  bool ok = true;
  std::string error;
  std::vector<bool> each;
};

std::vector<unsigned char> from_hex(const std::string& hex) {
  const auto digit = [](char c) { return c <= '9' ? c - '0' : c - 'a' + 10; };
  std::vector<unsigned char> bytes(hex.size() / 2);
  for (std::size_t i = 0; i < bytes.size(); ++i)
    bytes[i] = static_cast<unsigned char>(digit(hex[2 * i]) * 16 + digit(hex[2 * i + 1]));
  return bytes;
}

// The adapter. A key is model@rank@group@hash[@salt]: the hash names the chunk, the salt the tenant (a
// session of its own), and the rest is the identity. Chunks are looked up one by one: each is the first page
// of a chain of its own.
class Plugin {
 public:
  explicit Plugin(tiercel::Node& node) : node_(node), queue_(must(node.create_queue())) {
    auto options = sized<tiercel_spec_options>();
    options.model_type = "opaque";
    options.page_tokens = 256;
    options.tp = options.pp = options.cp = 1;
    tiercel::SpecBuilder builder = must(tiercel::SpecBuilder::create(options));
    auto group = sized<tiercel_group_options>();
    group.kind = TIERCEL_GROUP_FULL;
    const std::uint32_t layer = 0;
    const std::uint32_t number = must(builder.group({&layer, 1}, group));
    auto chunk = sized<tiercel_component_options>();
    chunk.name = "chunk";
    chunk.opaque_bytes = kChunkBytes;
    must(builder.component(number, chunk));
    form_ = must(node.open_form(must(builder.finish()), tiercel::one_rank()));
  }

  int event_fd() const { return queue_.fd(); }

  std::uint64_t submit_batch_set(const std::vector<std::string>& keys, const std::vector<View>& views) {
    const std::uint64_t future = begin(keys.size());
    for (std::size_t i = 0; i < keys.size(); ++i) {
      const auto [ns, key] = find(keys[i]);
      const tiercel_segment bytes{views[i].data, views[i].size};
      const tiercel_object object{&bytes, 1, TIERCEL_WHOLE, 0};
      tiercel_store_item item{};
      item.key = key;
      item.length = 1;
      item.record = {&object, 1};
      auto options = sized<tiercel_store_options>();
      options.cq = queue_.get();
      options.user_data = future << 16 | i;
      tiercel::Result<tiercel::Stored> stored = ns->store({&item, 1}, options);
      if (!stored) {
        end(future, i, false, stored.status().to_string());
      } else {
        keep(future, std::move(stored->operation));
      }
    }
    return submitted(future);
  }

  std::uint64_t submit_batch_get(const std::vector<std::string>& keys, const std::vector<View>& views) {
    const std::uint64_t future = begin(keys.size());
    for (std::size_t i = 0; i < keys.size(); ++i) {
      const auto [ns, key] = find(keys[i]);
      tiercel::Ticket ticket = must(ns->match({&key, 1}, TIERCEL_NO_LIMIT));
      if (must(ticket.summary()).length == 0) {
        end(future, i, false, "");
        continue;
      }
      const tiercel_segment bytes{views[i].data, views[i].size};
      const tiercel_object object{&bytes, 1, TIERCEL_WHOLE, 0};
      const tiercel_record_memory record{&object, 1};
      const tiercel_load_target target{nullptr, &record, 1, 0, 0, 0};
      auto options = sized<tiercel_load_options>();
      options.cq = queue_.get();
      options.user_data = future << 16 | i;
      tiercel::Result<tiercel::Operation> load = ticket.load(1, {&target, 1}, options);
      if (!load) {
        end(future, i, false, load.status().to_string());
      } else {
        keep(future, *std::move(load));
      }
    }
    return submitted(future);
  }

  std::uint64_t submit_batch_exists(const std::vector<std::string>& keys) {
    const std::uint64_t future = begin(keys.size());
    for (std::size_t i = 0; i < keys.size(); ++i) {
      const auto [ns, key] = find(keys[i]);
      end(future, i, must(ns->exists(0, {&key, 1}))[0] == TIERCEL_OK, "");
    }
    return submitted(future);
  }

  std::uint64_t submit_batch_delete(const std::vector<std::string>& keys) {
    const std::uint64_t future = begin(keys.size());
    for (std::size_t i = 0; i < keys.size(); ++i) {
      const auto [ns, key] = find(keys[i]);
      end(future, i, ns->remove({&key, 1}).ok(), "");
    }
    return submitted(future);
  }

  std::vector<Done> drain_completions() {
    std::vector<tiercel_completion> completions(64);
    for (;;) {
      const std::span<tiercel_completion> got = must(queue_.drain(completions));
      if (got.empty()) break;
      for (const tiercel_completion& completion : got) take(completion);
    }
    const std::lock_guard lock(mutex_);
    return std::exchange(ready_, {});
  }

  // Every buffer is its owner's again when this returns.
  void close() {
    const std::lock_guard lock(mutex_);
    for (auto& [future, batch] : batches_)
      for (tiercel::Operation& operation : batch.operations) must(operation.cancel());
    for (auto& [future, batch] : batches_)
      for (tiercel::Operation& operation : batch.operations)
        must(operation.wait(TIERCEL_COMPLETION_QUIESCENT, kLong));
    batches_.clear();
    namespaces_.clear();
    sessions_.clear();
  }

  // For damage from outside.
  std::pair<tiercel::Namespace*, tiercel_key> find(const std::string& text) {
    std::vector<std::string> parts{""};
    for (const char c : text) {
      if (c == '@') parts.emplace_back();
      if (c != '@') parts.back() += c;
    }
    const std::string salt = parts.size() > 4 ? parts[4] : "";
    const std::lock_guard lock(mutex_);
    tiercel::Namespace& ns = open(parts[0] + "@" + parts[1] + "@" + parts[2], salt);
    const std::vector<unsigned char> digest = from_hex(parts[3]);
    return {&ns, must(ns.keys_from_digests(digest, digest.size()))[0]};
  }

 private:
  struct Batch {
    Done done;
    std::size_t left = 1;  // items, and the submission itself
    std::vector<tiercel::Operation> operations;
  };

  tiercel::Namespace& open(const std::string& model, const std::string& salt) {
    const auto known = namespaces_.find({model, salt});
    if (known != namespaces_.end()) return known->second;
    auto session = sessions_.find(salt);
    if (session == sessions_.end()) {
      auto options = sized<tiercel_session_options>();
      options.tenant_salt = {salt.data(), salt.size()};
      session = sessions_.emplace(salt, must(node_.open_session(&options))).first;
    }
    auto identity = sized<tiercel_identity>();
    identity.model = model.c_str();
    identity.weights = "as the engine was started";
    identity.dtype = "opaque";
    identity.scheme = "lmcache-chunk";
    identity.scheme_algorithm = "sha256";
    tiercel::Namespace ns = must(session->second.open_namespace(form_, identity));
    return namespaces_.emplace(std::pair(model, salt), std::move(ns)).first->second;
  }

  std::uint64_t begin(std::size_t keys) {
    const std::lock_guard lock(mutex_);
    const std::uint64_t future = ++last_future_;
    Batch& batch = batches_[future];
    batch.done.future = future;
    batch.done.each.assign(keys, false);
    batch.left += keys;
    return future;
  }
  void keep(std::uint64_t future, tiercel::Operation operation) {
    const std::lock_guard lock(mutex_);
    if (const auto at = batches_.find(future); at != batches_.end())
      at->second.operations.push_back(std::move(operation));
  }
  void end(std::uint64_t future, std::size_t index, bool ok, const std::string& error) {
    const std::lock_guard lock(mutex_);
    Batch& batch = batches_.at(future);
    batch.done.each[index] = ok;
    if (!error.empty()) {
      batch.done.ok = false;
      batch.done.error = error;
    }
    count_down(future, batch);
  }
  void count_down(std::uint64_t future, Batch& batch) {
    if (--batch.left != 0) return;
    ready_.push_back(std::move(batch.done));
    batches_.erase(future);
  }
  // What is complete already has no operation that would make the descriptor readable: an empty store does.
  std::uint64_t submitted(std::uint64_t future) {
    bool at_once = false;
    {
      const std::lock_guard lock(mutex_);
      count_down(future, batches_.at(future));
      at_once = !ready_.empty();
    }
    if (at_once) {
      auto options = sized<tiercel_store_options>();
      options.cq = queue_.get();
      must(namespaces_.begin()->second.store({}, options));
    }
    return future;
  }

  void take(const tiercel_completion& completion) {
    if (completion.user_data == 0 || (completion.flags & TIERCEL_COMPLETION_LAST) == 0) return;
    EXPECT_NE(completion.flags & TIERCEL_COMPLETION_QUIET, 0U);
    const bool load = completion.kind == TIERCEL_COMPLETION_LOADED;
    const bool ok = load ? completion.length == 1 : completion.items_ok == completion.items;
    end(completion.user_data >> 16, completion.user_data & 0xffff, ok,
        ok     ? ""
        : load ? "the chunk was damaged"
               : "the chunk was refused");
  }

  tiercel::Node& node_;
  tiercel::CompletionQueue queue_;
  tiercel::Form form_;
  std::mutex mutex_;
  std::map<std::string, tiercel::Session> sessions_;
  std::map<std::pair<std::string, std::string>, tiercel::Namespace> namespaces_;
  std::map<std::uint64_t, Batch> batches_;
  std::vector<Done> ready_;
  std::uint64_t last_future_ = 0;
};

// LMCache's side: one thread that polls the descriptor, level-triggered, and never reads it.
class Demultiplexer {
 public:
  explicit Demultiplexer(Plugin& plugin) : plugin_(plugin), thread_([this] { run(); }) {}
  ~Demultiplexer() { join(); }
  Demultiplexer(const Demultiplexer&) = delete;
  Demultiplexer& operator=(const Demultiplexer&) = delete;

  Done wait(std::uint64_t future) {
    std::unique_lock lock(mutex_);
    const bool came =
        changed_.wait_for(lock, std::chrono::seconds(30), [&] { return done_.contains(future); });
    EXPECT_TRUE(came) << "no completion of future " << future;
    return came ? done_.extract(future).mapped() : Done{};
  }
  void join() {
    stop_ = true;
    if (thread_.joinable()) thread_.join();
  }

 private:
  void run() {
    while (!stop_) {
      if (!readable(plugin_.event_fd(), 5)) continue;
      for (Done& done : plugin_.drain_completions()) {
        const std::lock_guard lock(mutex_);
        done_[done.future] = std::move(done);
        changed_.notify_all();
      }
    }
  }
  Plugin& plugin_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::uint64_t, Done> done_;
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

std::string key_of(std::uint64_t chunk, const std::string& salt = "") {
  std::string hash;
  for (std::uint64_t i = 0; i < 32; ++i) {
    const std::uint64_t byte = (chunk + 1) * 37 * (i + 1) % 251;
    hash += "0123456789abcdef"[byte / 16];
    hash += "0123456789abcdef"[byte % 16];
  }
  return "m/x@00000000@0@" + hash + (salt.empty() ? "" : "@" + salt);
}

using Buffer = std::unique_ptr<unsigned char[]>;
constexpr unsigned char kUntouched = 0xee;

struct Buffers {
  explicit Buffers(std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) {
      owned.push_back(std::make_unique<unsigned char[]>(kChunkBytes));
      std::memset(owned.back().get(), kUntouched, kChunkBytes);
      views.push_back({owned.back().get(), kChunkBytes});
    }
  }
  std::span<unsigned char> of(std::size_t i) { return {owned[i].get(), kChunkBytes}; }
  std::vector<Buffer> owned;
  std::vector<View> views;
};

class LmcacheCalls : public testing::Test {
 protected:
  tiercel::Node node_ = open_node(16 << 20);
  Plugin plugin_{node_};
  Demultiplexer demux_{plugin_};

  void store(const std::vector<std::uint64_t>& chunks, const std::string& salt = "") {
    Buffers sources(chunks.size());
    std::vector<std::string> keys;
    for (std::size_t i = 0; i < chunks.size(); ++i) {
      compute(sources.of(i), chunks[i]);
      keys.push_back(key_of(chunks[i], salt));
    }
    const Done done = demux_.wait(plugin_.submit_batch_set(keys, sources.views));
    EXPECT_TRUE(done.ok) << done.error;
    EXPECT_EQ(done.each, std::vector<bool>(chunks.size(), true));
  }  // the sources are freed as soon as the completion was seen
};

TEST_F(LmcacheCalls, StoresFindsAndLoadsByStringsWithHolesInTheBatch) {
  EXPECT_FALSE(readable(plugin_.event_fd(), 0));
  store({0, 1, 2, 3});
  const std::vector<std::string> asked = {key_of(0), key_of(7), key_of(1), key_of(3)};
  const Done found = demux_.wait(plugin_.submit_batch_exists(asked));
  EXPECT_EQ(found.each, (std::vector<bool>{true, false, true, true}));

  Buffers into(4);
  const Done loaded = demux_.wait(plugin_.submit_batch_get(asked, into.views));
  EXPECT_TRUE(loaded.ok);
  EXPECT_EQ(loaded.each, (std::vector<bool>{true, false, true, true}));
  EXPECT_TRUE(holds(into.of(0), 0) && holds(into.of(2), 1) && holds(into.of(3), 3));
  EXPECT_TRUE(all_are(into.of(1), kUntouched)) << "a miss wrote into its buffer";

  const Done gone = demux_.wait(plugin_.submit_batch_delete({key_of(1)}));
  EXPECT_TRUE(gone.ok);
  EXPECT_EQ(demux_.wait(plugin_.submit_batch_exists({key_of(0), key_of(1)})).each,
            (std::vector<bool>{true, false}));
  EXPECT_EQ(demux_.wait(plugin_.submit_batch_get({}, {})).each, std::vector<bool>{}) << "an empty batch";
}

TEST_F(LmcacheCalls, ADamagedChunkIsOneFalseInABatchAndIsNeverFoundAgain) {
  store({0, 1});
  const auto [ns, key] = plugin_.find(key_of(2));
  tiercel_store_item item{};
  item.key = key;
  item.length = 1;
  std::vector<unsigned char> bytes(kChunkBytes);
  compute(bytes, 2);
  DamagedRecord damaged;
  damaged.store(*ns, item, bytes);
  damaged.strike();

  const std::vector<std::string> asked = {key_of(0), key_of(2), key_of(1)};
  EXPECT_EQ(demux_.wait(plugin_.submit_batch_exists(asked)).each, (std::vector<bool>{true, true, true}));
  Buffers into(3);
  const Done loaded = demux_.wait(plugin_.submit_batch_get(asked, into.views));
  EXPECT_FALSE(loaded.ok);
  EXPECT_EQ(loaded.each, (std::vector<bool>{true, false, true}));
  EXPECT_TRUE(holds(into.of(0), 0) && holds(into.of(2), 1));
  EXPECT_TRUE(all_are(into.of(1), kUntouched)) << "damaged bytes reached the engine";
  EXPECT_EQ(demux_.wait(plugin_.submit_batch_exists(asked)).each, (std::vector<bool>{true, false, true}));
}

TEST_F(LmcacheCalls, BuffersOfAnotherSizeAreRefusedAndOthersOfTheBatchAreNot) {
  Buffers sources(2);
  compute(sources.of(0), 0);
  sources.views[1].size = 100;
  const Done stored = demux_.wait(plugin_.submit_batch_set({key_of(0), key_of(1)}, sources.views));
  EXPECT_FALSE(stored.ok);
  EXPECT_EQ(stored.each, (std::vector<bool>{true, false}));
  store({1});
  Buffers into(2);
  into.views[1].size = 100;
  const Done loaded = demux_.wait(plugin_.submit_batch_get({key_of(0), key_of(1)}, into.views));
  EXPECT_FALSE(loaded.ok);
  EXPECT_NE(loaded.error.find("invalid_argument"), std::string::npos) << loaded.error;
  EXPECT_EQ(loaded.each, (std::vector<bool>{true, false}));
  EXPECT_TRUE(holds(into.of(0), 0) && all_are(into.of(1), kUntouched));
}

TEST_F(LmcacheCalls, AnotherSaltIsAnotherTenant) {
  store({0}, "alice");
  EXPECT_EQ(demux_.wait(plugin_.submit_batch_exists({key_of(0, "alice"), key_of(0, "bob"), key_of(0)})).each,
            (std::vector<bool>{true, false, false}));
}

TEST_F(LmcacheCalls, DrainingResetsTheDescriptor) {
  store({0, 1});
  demux_.join();
  plugin_.submit_batch_exists({key_of(0)});
  EXPECT_TRUE(readable(plugin_.event_fd(), 0));
  EXPECT_EQ(plugin_.drain_completions().size(), 1U);
  EXPECT_FALSE(readable(plugin_.event_fd(), 0)) << "the demultiplexer would spin";
}

TEST_F(LmcacheCalls, ClosingInTheMiddleGivesEveryBufferBack) {
  std::vector<std::uint64_t> chunks(64);
  for (std::size_t i = 0; i < chunks.size(); ++i) chunks[i] = i;
  store(chunks);
  std::vector<std::string> keys(chunks.size());
  for (std::size_t i = 0; i < chunks.size(); ++i) keys[i] = key_of(i);
  auto into = std::make_unique<Buffers>(chunks.size());
  demux_.join();  // as LMCache does: its thread first
  plugin_.submit_batch_get(keys, into->views);
  plugin_.close();
  for (std::size_t i = 0; i < chunks.size(); ++i) {
    const std::span<unsigned char> bytes = into->of(i);
    EXPECT_TRUE(holds(bytes, i) || all_are(bytes, kUntouched)) << "a record is torn, chunk " << i;
    std::memset(bytes.data(), 1, bytes.size());
  }
  into.reset();  // whoever still wrote there would be seen by a sanitizer
}

}  // namespace
}  // namespace engines
