// A node's end of the remote tier over a store twin: records whose bytes are a function of key, class and
// shard, memory to read into, and books of what has ended.
//
// Threads: one thread.
#pragma once

#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "model/test_specs.h"
#include "remote/remote_tier.h"
#include "remote/test_store_twin.h"

namespace tiercel {

struct TierModel {
  std::uint16_t tp = 1;
  bool required = true, state = false, window = false, index_keys = false;
};

inline std::shared_ptr<const StorageForm> tier_form(const TierModel& model) {
  ModelSpec spec;
  spec.model_type = "test";
  spec.page_tokens = 4;
  spec.topology = Topology{model.tp, 1, 1};
  if (model.required) spec.groups.push_back(group(FullKind{}, Need::kRequired, {0, 2}, kv()));
  if (model.window) spec.groups.push_back(group(WindowKind{9}, Need::kSparse, {1}, kv()));
  if (model.state)
    spec.groups.push_back(group(StateKind{}, Need::kSparse, {3}, {component("s", {96}, DType::kU8)}));
  if (model.index_keys)
    spec.groups.push_back(
        group(FollowerKind{0}, Need::kRequired, {0, 2}, {component("index_k", {4}, DType::kU8)}, true));
  return std::make_shared<const StorageForm>(make_storage_form(spec).value());
}

inline std::vector<Key> tier_chain(std::uint64_t pages, std::uint64_t name) {
  std::vector<Key> keys;
  for (std::uint64_t i = 0; i < pages; ++i) keys.push_back(Key{{mix64(name * 1000003 + i), name}});
  return keys;
}

// Tasks run when the test's node looks, some of them later.
class SlowExecutor final : public Executor {
 public:
  explicit SlowExecutor(std::uint64_t seed) : prng_(seed) {}
  void submit(std::unique_ptr<Task> task) override { tasks_.push_back(std::move(task)); }
  void run_some() {
    std::deque<std::unique_ptr<Task>> later;
    for (auto& task : tasks_) {
      if (prng_.chance(0.3))
        later.push_back(std::move(task));
      else
        task->run();
    }
    tasks_ = std::move(later);
  }
  bool idle() const { return tasks_.empty(); }
  std::size_t waiting() const { return tasks_.size(); }

 private:
  Prng prng_;
  std::deque<std::unique_ptr<Task>> tasks_;
};

struct TierNode {
  // One record's memory, in two pieces as it may lie in an arena.
  struct Memory {
    std::vector<std::vector<std::byte>> shards;
  };

  TierNode(TwinObjects& objects, ManualClock& node_clock, const TierModel& model, TwinNature nature = {},
           RemoteTierOptions options = {}, std::uint64_t seed = 1)
      : clock(node_clock), form(tier_form(model)), store(objects, node_clock, nature, seed), executor(seed) {
    Digest own{};
    own[0] = static_cast<std::byte>(seed);
    own[1] = static_cast<std::byte>(seed >> 8);
    tier = RemoteTier::open(options, store, clock, executor, own).value();
    RemoteSpaceName name;
    name.root = sha256(as_byte_view("root"));
    name.form = form;
    for (const ClassForm& cls : form->classes) name.record_bytes.push_back(64 + cls.record_bytes);
    record_bytes = name.record_bytes;
    space = tier->open_space(name);
  }

  static std::byte content(const Key& key, ClassId cls, std::size_t shard, std::uint64_t at,
                           std::uint64_t computation) {
    return static_cast<std::byte>(
        mix64(key.words[0] + cls.value() * 31ULL + shard * 77ULL + computation * 991ULL) + at);
  }

  RemoteEntry entry(const Key& key, ClassId cls, Memory& memory) const {
    RemoteEntry made;
    made.name = {space, key, cls};
    const std::uint64_t bytes = record_bytes[cls.value()];
    memory.shards.assign(form->classes[cls.value()].shards, std::vector<std::byte>(bytes));
    for (auto& shard : memory.shards)
      made.shards.push_back({{shard.data(), 40}, {shard.data() + 40, bytes - 40}});
    return made;
  }

  RemoteVerdict append(const std::vector<Key>& chain, std::uint64_t page, ClassId cls,
                       std::uint64_t computation = 0) {
    auto memory = std::make_unique<Memory>();
    RemoteEntry made = entry(chain[page], cls, *memory);
    for (std::size_t shard = 0; shard < memory->shards.size(); ++shard)
      for (std::uint64_t at = 0; at < memory->shards[shard].size(); ++at)
        memory->shards[shard][at] = content(chain[page], cls, shard, at, computation);
    if (page != 0) made.parent = chain[page - 1];
    made.length = page + 1;
    const RemoteAnswer answer = tier->append(std::move(made));
    if (answer.verdict == RemoteVerdict::kAccepted) appends.emplace(answer.append, std::move(memory));
    return answer.verdict;
  }
  // Required classes of pages [from, to).
  void append_pages(const std::vector<Key>& chain, std::uint64_t from, std::uint64_t to) {
    for (std::uint64_t page = from; page < to; ++page)
      for (const ClassForm& cls : form->classes)
        if (cls.required()) append(chain, page, cls.id);
  }

  bool look(const std::vector<Key>& keys, std::vector<Presence> have = {}, std::uint64_t first_page = 0) {
    const auto id = tier->look_up({space, first_page, keys, have});
    if (id) lookups.insert(*id);
    return id.has_value();
  }
  bool read(const Key& key, ClassId cls) {
    auto memory = std::make_unique<Memory>();
    const auto id = tier->read(entry(key, cls, *memory));
    if (!id) return false;
    reads.emplace(*id, Read{key, cls, std::move(memory), clears});
    return true;
  }
  std::vector<Presence> there(const std::vector<Key>& keys) const {
    std::vector<Presence> presence(keys.size());
    tier->find_chain(space, keys, presence);
    return presence;
  }

  void poll() {
    executor.run_some();
    tier->poll();
    for (const RemoteTierEvent& event : tier->drain_events()) take(event);
  }
  void take(const RemoteTierEvent& event) {
    switch (event.kind) {
      case RemoteTierEvent::Kind::kLookedUp:
        EXPECT_EQ(lookups.erase(event.lookup), 1U);
        look_status = event.status;
        break;
      case RemoteTierEvent::Kind::kRead: {
        const auto at = reads.find(event.read);
        ASSERT_NE(at, reads.end());
        read_status[{at->second.key, at->second.cls}] = event.status;
        if (event.status.ok()) delivered.push_back(std::move(at->second));
        reads.erase(at);
        break;
      }
      case RemoteTierEvent::Kind::kWritten:
      case RemoteTierEvent::Kind::kLost:
        EXPECT_EQ(appends.erase(event.append), 1U);
        (event.kind == RemoteTierEvent::Kind::kWritten ? written : lost) += 1;
        if (event.kind == RemoteTierEvent::Kind::kLost) lost_status = event.status;
        break;
    }
  }
  // Until nothing is under way, or so long.
  void settle(Duration at_most = std::chrono::seconds(60)) {
    const Time until = later(clock.now(), at_most);
    while (clock.now() < until) {
      poll();
      if (lookups.empty() && reads.empty() && appends.empty() && !tier->clearing() &&
          store.under_way() == 0 && executor.idle()) {
        poll();
        return;
      }
      tier->wait(std::min<Duration>(std::chrono::milliseconds(5), until - clock.now()));
    }
  }

  bool right(const std::vector<std::vector<std::byte>>& shards, const Key& key, ClassId cls,
             std::uint64_t computation = 0) const {
    for (std::size_t shard = 0; shard < shards.size(); ++shard)
      for (std::uint64_t at = 0; at < shards[shard].size(); ++at)
        if (shards[shard][at] != content(key, cls, shard, at, computation)) return false;
    return true;
  }
  void expect_delivered(std::size_t count) {
    EXPECT_EQ(delivered.size(), count);
    for (const Read& read : delivered) EXPECT_TRUE(right(read.memory->shards, read.key, read.cls));
  }

  struct Read {
    Key key;
    ClassId cls;
    std::unique_ptr<Memory> memory;
    std::uint64_t clears = 0;  // of this node, when it was asked for
  };
  ManualClock& clock;
  std::shared_ptr<const StorageForm> form;
  StoreTwin store;
  SlowExecutor executor;
  std::unique_ptr<RemoteTier> tier;
  RemoteSpaceId space;
  std::vector<std::uint64_t> record_bytes;
  std::map<RemoteAppendId, std::unique_ptr<Memory>> appends;
  std::map<RemoteReadId, Read> reads;
  std::set<RemoteLookupId> lookups;
  std::vector<Read> delivered;
  std::map<std::pair<Key, ClassId>, Status> read_status;
  Status look_status, lost_status;
  std::uint64_t written = 0, lost = 0;
  std::uint64_t clears = 0;
};

}  // namespace tiercel
