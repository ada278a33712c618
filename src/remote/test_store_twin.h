// A remote store in memory, on a clock that is moved by hand: batches end late and in any order, fail item by
// item, hang, come back, die; objects are lost, damaged, refused. For tests and the simulator.
//
// Threads: one thread.
#pragma once

#include <algorithm>
#include <cstring>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "base/check.h"
#include "base/prng.h"
#include "remote/remote_store.h"

namespace tiercel {

struct TwinNature {
  std::uint64_t exchange_bytes = 1U << 20;
  std::uint32_t batches_max = 64;
  std::uint64_t objects_bytes_max = UINT64_MAX;  // more is refused: no_room
  Duration latency_max = std::chrono::milliseconds(2);
  std::uint64_t bytes_per_second = 0;  // of the link, which gets and puts share; 0: no limit
  double slow = 0;                     // batches that take up to slow_max
  Duration slow_max = std::chrono::milliseconds(1500);
  double item_failed = 0;    // an item fails by itself
  double batch_down = 0;     // a batch fails as a whole
  double forgets = 0;        // at each put, another object goes
  double damages = 0;        // at each get, a byte of what is delivered is wrong
  double misreads = 0;       // a get brings another object of this size: the same page's from before a clear
  double sizes_unknown = 0;  // exists answers without a size
  double tears_late = 0;     // a late get writes nonsense into its memory before it is quiet
  bool reaches = false;      // all memory of the process, as region 1; an offset there is an address
};

// What outlives a store: objects, shared by all nodes that use it.
using TwinObjects = std::map<std::string, std::vector<std::byte>>;

class StoreTwin final : public RemoteStore {
 public:
  StoreTwin(TwinObjects& objects, ManualClock& clock, TwinNature nature, std::uint64_t seed)
      : objects_(objects), clock_(clock), nature_(nature), prng_(seed), exchange_(nature.exchange_bytes) {}

  Result<RemoteBatchId> submit(RemoteBatch batch) override {
    if (!ready()) return error(Code::kUnavailable, "the test's store is not ready");
    if (running_.size() >= nature_.batches_max)
      return error(Code::kResourceExhausted, "the test's store has enough to do");
    for (const RemoteItem& item : batch.items)
      if (Status status = check(batch.verb, item); !status.ok()) return tl::unexpected(std::move(status));
    if (Status status = check_size(batch); !status.ok()) return tl::unexpected(std::move(status));
    Running running;
    running.id = RemoteBatchId(++last_id_);
    const bool slow = prng_.chance(nature_.slow);
    running.ends =
        later(clock_.now(),
              Duration(static_cast<std::int64_t>(prng_.below(
                  static_cast<std::uint64_t>((slow ? nature_.slow_max : nature_.latency_max).count()) + 1))));
    if (nature_.bytes_per_second != 0) {
      std::uint64_t bytes = 0;
      for (const RemoteItem& item : batch.items)
        for (const RemotePiece& piece : item.pieces) bytes += piece.length;
      link_free_ =
          later(std::max(link_free_, clock_.now()),
                Duration(static_cast<std::int64_t>(bytes * 1'000'000'000 / nature_.bytes_per_second)));
      running.ends = std::max(running.ends, link_free_);
    }
    running.fails = prng_.chance(nature_.batch_down);
    note_reuse(batch);
    ++batches;
    for (const RemoteItem& item : batch.items)
      names_asked += batch.verb == RemoteVerb::kExists && !item.name.empty();
    running.batch = std::move(batch);
    running_.push_back(std::move(running));
    return running_.back().id;
  }

  void cancel(RemoteBatchId batch) override {
    for (Running& running : running_)
      if (running.id == batch) running.cancelled = true;
  }

  std::vector<RemoteEvent> drain() override {
    std::vector<RemoteEvent> events = std::exchange(ended_, {});
    for (std::size_t i = 0; i < running_.size();) {
      Running& running = running_[i];
      const bool over = !hung_ && running.ends <= clock_.now();
      const bool late =
          running.batch.deadline <= clock_.now() && (!over || running.ends > running.batch.deadline);
      if (over && !running.told && !late) {
        events.push_back(end(running));
      } else if (!running.told && late) {
        RemoteEvent event{RemoteEvent::Kind::kDone, running.id, over, {}};
        ++late_batches;
        event.results.assign(running.batch.items.size(), RemoteResult{RemoteOutcome::kLate, 0});
        if (over && prng_.chance(0.5)) land(running);
        events.push_back(event);
        running.told = true;
        if (!over) {
          ++i;
          continue;
        }
      } else if (over && running.told) {
        land(running);
        events.push_back({RemoteEvent::Kind::kQuiet, running.id, true, {}});
      } else {
        ++i;
        continue;
      }
      running_.erase(running_.begin() + static_cast<std::ptrdiff_t>(i));
    }
    return events;
  }

  void wait(Duration at_most) override {
    Time until = later(clock_.now(), at_most);
    for (const Running& running : running_) {
      if (!hung_) until = std::min(until, running.ends);
      if (!running.told) until = std::min(until, running.batch.deadline);
    }
    clock_.advance_to(std::max(until, later(clock_.now(), std::chrono::microseconds(10))));
  }

  Time next_due() const override {
    Time due = Time::max();
    for (const Running& running : running_) {
      if (!hung_) due = std::min(due, running.ends);
      if (!running.told) due = std::min(due, running.batch.deadline);
    }
    return due;
  }

  RemoteHealth health() const override {
    RemoteHealth health;
    health.ready = ready();
    if (!health.ready) health.why_not = "the test's store was killed";
    health.batches_in_flight = running_.size();
    for (const Running& running : running_) {
      if (!running.told) continue;
      ++health.unquiet_batches;
      for (const RemoteItem& item : running.batch.items)
        for (const RemotePiece& piece : item.pieces) health.unquiet_bytes += piece.length;
    }
    return health;
  }
  std::byte* exchange() override { return exchange_.data(); }
  std::uint64_t exchange_bytes() const override { return exchange_.size(); }
  std::optional<RemotePiece> reach(const std::byte* data, std::uint64_t length) const override {
    if (!nature_.reaches) return std::nullopt;
    return RemotePiece{1, reinterpret_cast<std::uintptr_t>(data), length};
  }
  void close(Duration) override {
    kill();
    closed_ = true;
  }

  // -- trouble ----
  void hang(bool hung) { hung_ = hung; }  // nothing ends but by its deadline
  bool hung() const { return hung_; }
  // All that is under way is down and quiet at once, some of it done; nothing is taken until revive().
  void kill() {
    for (Running& running : running_) {
      const bool writes = running.batch.verb != RemoteVerb::kGet && running.batch.verb != RemoteVerb::kExists;
      if (writes && prng_.chance(0.3)) land(running);
      if (running.told)
        ended_.push_back({RemoteEvent::Kind::kQuiet, running.id, true, {}});
      else
        ended_.push_back(
            {RemoteEvent::Kind::kDone, running.id, true,
             std::vector<RemoteResult>(running.batch.items.size(), RemoteResult{RemoteOutcome::kDown, 0})});
    }
    running_.clear();
    dead_ = true;
    hung_ = false;
  }
  void revive() { dead_ = false; }
  void calm() {
    nature_.slow = nature_.item_failed = nature_.batch_down = nature_.forgets = nature_.damages = 0;
    nature_.tears_late = nature_.misreads = 0;
    dead_ = hung_ = false;
  }
  TwinNature& nature() { return nature_; }
  std::size_t under_way() const { return running_.size(); }

  // Memory was given to a batch that an earlier one may still touch.
  const std::optional<std::string>& misuse() const { return misuse_; }

  std::uint64_t batches = 0, names_asked = 0, gets = 0, puts = 0;
  std::uint64_t late_batches = 0, misread = 0, full = 0;
  std::vector<std::string> recent = std::vector<std::string>(32);  // names of objects that were put last

 private:
  struct Running {
    RemoteBatchId id;
    RemoteBatch batch;
    Time ends{0};
    bool fails = false, cancelled = false;
    bool told = false;  // late
  };

  bool ready() const { return !dead_ && !closed_; }

  void note_reuse(const RemoteBatch& batch) {
    const auto meet = [](const RemotePiece& a, const RemotePiece& b) {
      return a.region == b.region && a.offset < b.offset + b.length && b.offset < a.offset + a.length;
    };
    for (const Running& running : running_)
      for (const RemoteItem& old : running.batch.items)
        for (const RemotePiece& held : old.pieces)
          for (const RemoteItem& item : batch.items)
            for (const RemotePiece& piece : item.pieces)
              if (meet(held, piece))
                misuse_ = fmt::format("the bytes at {} of {} are given to two batches, and {}",
                                      piece.region == 0 ? piece.offset : 0,
                                      piece.region == 0 ? "the exchange" : "a record",
                                      running.told ? "one is late" : "both run");
  }

  // An object of this size of the same page, bundle and shard, under another space's name.
  TwinObjects::const_iterator another(const std::string& name, std::size_t size) {
    const std::size_t after = name.find('.', name.find('.') + 1);
    if (after == std::string::npos || !prng_.chance(nature_.misreads)) return objects_.end();
    return std::find_if(objects_.begin(), objects_.end(), [&](const auto& each) {
      return each.first != name && each.second.size() == size && each.first.size() == name.size() &&
             each.first.compare(after, std::string::npos, name, after) == 0;
    });
  }

  Status check(RemoteVerb verb, const RemoteItem& item) const {
    const bool pieces = verb != RemoteVerb::kExists && verb != RemoteVerb::kRemove;
    if (item.name.empty() || item.name.size() > 120 || pieces == item.pieces.empty())
      return {Code::kInvalidArgument, "the test's store: a name or pieces that make no sense"};
    for (const RemotePiece& piece : item.pieces)
      if (piece.length == 0 || piece.region > (nature_.reaches ? 1U : 0U) ||
          (piece.region == 0 &&
           (piece.offset > exchange_.size() || piece.length > exchange_.size() - piece.offset)))
        return {Code::kInvalidArgument, "the test's store: a piece outside of its region"};
    return {};
  }

  std::byte* memory(const RemotePiece& piece) {
    // NOLINTNEXTLINE(performance-no-int-to-ptr): it was one
    return piece.region == 1 ? reinterpret_cast<std::byte*>(piece.offset) : exchange_.data() + piece.offset;
  }

  // As a connector's request has to fit its ring of 1 MiB.
  static Status check_size(const RemoteBatch& batch) {
    std::size_t bytes = 0;
    for (const RemoteItem& item : batch.items) bytes += 16 + item.name.size() + 24 * item.pieces.size();
    if (batch.items.size() <= 4096 && bytes <= 500'000) return {};
    return {Code::kInvalidArgument, "the test's store: a request that no ring takes"};
  }

  RemoteEvent end(Running& running) {
    RemoteEvent event{RemoteEvent::Kind::kDone, running.id, true, {}};
    for (const RemoteItem& item : running.batch.items) {
      if (running.fails)
        event.results.push_back({RemoteOutcome::kDown, 0});
      else if (running.cancelled)
        event.results.push_back({RemoteOutcome::kCancelled, 0});
      else if (prng_.chance(nature_.item_failed))
        event.results.push_back({RemoteOutcome::kFailed, 0});
      else
        event.results.push_back(act(running.batch.verb, item));
    }
    return event;
  }

  // A late batch does its work after all, or a part of it, or leaves nonsense in its memory.
  void land(Running& running) {
    for (const RemoteItem& item : running.batch.items) {
      if (running.batch.verb == RemoteVerb::kGet && prng_.chance(nature_.tears_late)) {
        for (const RemotePiece& piece : item.pieces)
          std::memset(memory(piece), 0xE5, static_cast<std::size_t>(piece.length));
        continue;
      }
      if (prng_.chance(0.7)) act(running.batch.verb, item);
    }
  }

  RemoteResult act(RemoteVerb verb, const RemoteItem& item) {
    const auto at = objects_.find(item.name);
    switch (verb) {
      case RemoteVerb::kExists:
        if (at == objects_.end()) return {RemoteOutcome::kAbsent, 0};
        return {RemoteOutcome::kOk, prng_.chance(nature_.sizes_unknown) ? 0 : at->second.size()};
      case RemoteVerb::kRemove:
        if (at == objects_.end()) return {RemoteOutcome::kAbsent, 0};
        objects_.erase(at);
        return {RemoteOutcome::kOk, 0};
      case RemoteVerb::kGet:
        return get(item);
      case RemoteVerb::kPut:
        if (at != objects_.end()) return {RemoteOutcome::kOk, 0};
        return put(item);
      case RemoteVerb::kReplace:
        return put(item);
    }
    return {RemoteOutcome::kInvalid, 0};
  }

  RemoteResult get(const RemoteItem& item) {
    ++gets;
    TwinObjects::const_iterator at = objects_.find(item.name);
    if (at == objects_.end()) return {RemoteOutcome::kAbsent, 0};
    std::uint64_t wanted = 0;
    for (const RemotePiece& piece : item.pieces) wanted += piece.length;
    if (wanted != at->second.size()) return {RemoteOutcome::kWrongSize, 0};
    if (const auto other = another(item.name, wanted); other != objects_.end()) {
      at = other;
      ++misread;
    }
    std::uint64_t position = 0;
    for (const RemotePiece& piece : item.pieces) {
      std::memcpy(memory(piece), at->second.data() + position, static_cast<std::size_t>(piece.length));
      position += piece.length;
    }
    if (prng_.chance(nature_.damages)) {
      const RemotePiece& piece = item.pieces[prng_.below(item.pieces.size())];
      memory(piece)[prng_.below(piece.length)] ^= std::byte{0x10};
    }
    return {RemoteOutcome::kOk, wanted};
  }

  RemoteResult put(const RemoteItem& item) {
    ++puts;
    std::vector<std::byte> bytes;
    for (const RemotePiece& piece : item.pieces)
      bytes.insert(bytes.end(), memory(piece), memory(piece) + piece.length);
    std::uint64_t held = 0;
    if (nature_.objects_bytes_max != UINT64_MAX)
      for (const auto& [name, object] : objects_) held += object.size();
    if (held + bytes.size() > nature_.objects_bytes_max) {
      ++full;
      return {RemoteOutcome::kNoRoom, 0};
    }
    if (!objects_.empty() && prng_.chance(nature_.forgets)) {
      auto victim = objects_.begin();
      std::advance(victim, static_cast<std::ptrdiff_t>(prng_.below(objects_.size())));
      objects_.erase(victim);
    }
    objects_.insert_or_assign(item.name, std::move(bytes));
    recent[puts % recent.size()] = item.name;
    return {RemoteOutcome::kOk, 0};
  }

  TwinObjects& objects_;
  ManualClock& clock_;
  TwinNature nature_;
  Prng prng_;
  std::vector<std::byte> exchange_;
  std::vector<Running> running_;
  std::vector<RemoteEvent> ended_;
  Time link_free_{0};
  std::uint64_t last_id_ = 0;
  std::optional<std::string> misuse_;
  bool hung_ = false, dead_ = false, closed_ = false;
};

}  // namespace tiercel
