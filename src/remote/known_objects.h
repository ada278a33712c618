// What is known of objects without asking: where a class-set lies, and which objects are not there. Bounded,
// and forgotten after a while: others store and evict, too.
//
// Threads: one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <unordered_map>

#include "base/ids.h"
#include "base/prng.h"
#include "model/key_chain.h"
#include "os/clock.h"
#include "remote/object_format.h"

namespace tiercel {

using RemoteSpaceId = Id<struct RemoteSpaceTag, std::uint32_t>;  // a namespace in the tier; 0: none

namespace remote {

// A run of one bundle: all its shards' objects together.
struct RunName {
  RemoteSpaceId space;
  BundleId bundle;
  Key last;  // key of its last page
  std::uint32_t pages = 1;
  friend auto operator<=>(const RunName&, const RunName&) = default;
};
// One page's part of it.
struct Location {
  RunName run;
  std::uint32_t index = 0;  // of the page in the run
};
struct PageBundle {
  RemoteSpaceId space;
  BundleId bundle;
  Key key;
  friend bool operator==(const PageBundle&, const PageBundle&) = default;
};

struct HashRun {
  std::size_t operator()(const RunName& run) const noexcept {
    return mix64(run.last.words[0] + run.pages) ^ mix64(run.space.value() + run.bundle.value() * 0x10001ULL);
  }
};
struct HashPage {
  std::size_t operator()(const PageBundle& page) const noexcept {
    return mix64(page.key.words[0]) ^ mix64(page.space.value() + page.bundle.value() * 0x10001ULL);
  }
};

// Entries that grow old: the younger half is kept when there are too many.
template <typename Name, typename Value, typename Hash>
class AgeingMap final {
 public:
  explicit AgeingMap(std::size_t entries_max) : half_(entries_max / 2 + 1) {}
  void put(const Name& name, Value value) {
    older_.erase(name);
    younger_.insert_or_assign(name, std::move(value));
    if (younger_.size() < half_) return;
    older_ = std::move(younger_);
    younger_.clear();
  }
  const Value* find(const Name& name) const {
    if (const auto at = younger_.find(name); at != younger_.end()) return &at->second;
    const auto at = older_.find(name);
    return at != older_.end() ? &at->second : nullptr;
  }
  void erase(const Name& name) {
    younger_.erase(name);
    older_.erase(name);
  }

 private:
  std::size_t half_;
  std::unordered_map<Name, Value, Hash> younger_, older_;
};

class KnownObjects final {
 public:
  KnownObjects(const Clock& clock, std::size_t entries_max, Duration there_for, Duration absent_for)
      : clock_(clock),
        there_for_(there_for),
        absent_for_(absent_for),
        there_(entries_max),
        absent_(entries_max) {}

  void there(const PageBundle& page, const Location& location);
  std::optional<Location> find(const PageBundle& page) const;
  void forget(const PageBundle& page) { there_.erase(page); }

  void absent(const RunName& run) { absent_.put(run, term(run.space, absent_for_)); }
  bool is_absent(const RunName& run) const;
  void not_absent(const RunName& run) { absent_.erase(run); }

  // What is known of it counts no more. Cost: O(1); its entries go as they age.
  void forget_space(RemoteSpaceId space) { ++lives_[space]; }

 private:
  // Of an entry: until when it counts, and in which life of its space it was learnt.
  struct Term {
    Time until{0};
    std::uint32_t life = 0;
  };
  struct There {
    Location location;
    Term term;
  };
  Term term(RemoteSpaceId space, Duration length) const { return {later(clock_.now(), length), life(space)}; }
  bool counts(RemoteSpaceId space, const Term& term) const {
    return term.until > clock_.now() && term.life == life(space);
  }
  std::uint32_t life(RemoteSpaceId space) const {
    const auto at = lives_.find(space);
    return at == lives_.end() ? 0 : at->second;
  }
  const Clock& clock_;
  Duration there_for_, absent_for_;
  AgeingMap<PageBundle, There, HashPage> there_;
  AgeingMap<RunName, Term, HashRun> absent_;
  std::unordered_map<RemoteSpaceId, std::uint32_t> lives_;
};

}  // namespace remote
}  // namespace tiercel
