// What the simulator itself knows of a disk log: every class-set ever appended, every removal, what was
// promised durable, from calls and events only, never from the log's own books.
//
// Threads: one thread.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/sha256.h"
#include "disk/disk_log.h"
#include "sim/content.h"

namespace tiercel::sim {

// A page of a tree of prompts in one namespace.
struct DiskPage {
  std::size_t space = 0;
  std::optional<std::size_t> parent;
  Key key;
  std::uint64_t length = 0;       // pages of the prefix that ends here
  std::vector<std::size_t> path;  // from the first page to this one
};

struct DiskSet {  // a class-set
  std::size_t page = 0;
  ClassId cls;
  friend auto operator<=>(const DiskSet&, const DiskSet&) = default;
};

enum class Fate : std::uint8_t {
  kQueued,
  kWritten,
  kLost,     // the log said so
  kUnknown,  // its log ended before it did
  kGone,     // was not there at an opening: must not come back
};

// One append that was accepted. Its computation is its number in the book plus one: bytes name it.
struct DiskAppend {
  DiskSet set;
  std::uint64_t order = 0;  // among all appends and removals
  DiskAppendId id;
  std::uint64_t bytes = 0;  // of its records, all shards
  Fate fate = Fate::kQueued;
  std::optional<std::uint64_t> at;
  bool durable = false;
  bool evicted = false;  // in this or the last opening
  bool dropped = false;
  // Removals became a clear since, or the index had no place for it: it may be missing, and be back.
  bool may_be_missing = false;
};

struct DiskRemoval {
  enum class Scope : std::uint8_t { kPage, kSpace, kForm };
  enum class Hold : std::uint8_t { kSure, kUnsure, kLost };
  Scope scope = Scope::kPage;
  std::size_t what = 0;  // page, space or form
  std::uint64_t order = 0;
  std::optional<std::uint64_t> number;
  bool durable = false;
  Hold hold = Hold::kSure;
};

class DiskBook final {
 public:
  // -- the world --
  std::size_t add_space(std::size_t form);
  std::size_t add_page(std::size_t space, std::optional<std::size_t> parent, const Key& key);
  const std::vector<DiskPage>& pages() const { return pages_; }
  std::size_t form_of_space(std::size_t space) const { return space_form_[space]; }

  // -- calls and events --
  std::size_t accepted(const DiskSet& set, std::uint64_t bytes);  // its number
  DiskAppend& append(std::size_t number) { return appends_[number]; }
  const DiskAppend& append(std::size_t number) const { return appends_[number]; }
  std::size_t appends() const { return appends_.size(); }
  void written(std::size_t number, std::uint64_t at);
  // `no_place`: it is in the log, whole, and the index did not take it.
  void lost(std::size_t number, bool no_place) {
    appends_[number].fate = Fate::kLost;
    appends_[number].may_be_missing = no_place;
  }
  void durable(std::uint64_t at);
  void evicted(const DiskSet& set);
  void dropped(const DiskSet& set);
  void removed(DiskRemoval::Scope scope, std::size_t what, std::optional<std::uint64_t> number);
  // It left before anybody could look at it: at this opening nobody knows. Until that is durable it may be
  // back.
  void excuse(const DiskSet& set);
  void folded();  // removals became a clear of some namespace: what is there may be missing

  // -- questions --
  // The append that is in the log now, as far as events say.
  std::optional<std::size_t> present(const DiskSet& set) const;
  bool queued(const DiskSet& set) const;
  const std::map<DiskSet, std::vector<std::size_t>>& sets() const { return sets_; }
  // Not removed since it was accepted, for all that is sure.
  bool alive(std::size_t number) const {
    return removed_order(appends_[number].set.page, false) < appends_[number].order;
  }
  // Nor by any removal that may have been lost.
  bool surely_alive(std::size_t number) const {
    return removed_order(appends_[number].set.page, true) < appends_[number].order;
  }
  const std::vector<DiskRemoval>& removals() const { return removals_; }
  bool was_removed_from() const { return !removals_.empty(); }

  // -- an opening ends, another begins --
  // `clean`: closed in order: everything written is durable, every removal holds.
  void ended(bool clean);
  // A lying drive: nothing that was promised holds any more.
  void trust_nothing();
  // What the next opening has, by the bytes. Returns what is wrong with it, if anything: checker and words.
  struct Wrong {
    std::string checker;
    std::string message;
  };
  using Found = std::map<DiskSet, std::size_t>;
  // `judge` false: after trust_nothing(). `durable_at`: what the log says.
  std::optional<Wrong> opened(const Found& found, bool judge, std::uint64_t durable_at);
  // The same of one that only looked: it flushed nothing, so a power failure may still undo what it saw.
  std::optional<Wrong> looked(const Found& found, bool judge);

 private:
  std::uint64_t removed_order(std::size_t page, bool unsure_too) const;
  bool covers(const DiskRemoval& removal, std::size_t page) const;
  void hold(const DiskRemoval& removal);
  std::optional<Wrong> judge_found(const Found& found) const;
  void settle_removals(const Found& found);
  // `unsure`: removals that were in effect before and may have been lost. What they reached may have left
  // with its region unseen.
  std::optional<Wrong> judge_missing(const Found& found, const std::vector<std::size_t>& unsure) const;
  // The newest append that must be found unless a removal says otherwise; nothing: none must.
  std::optional<std::size_t> owed(const std::vector<std::size_t>& numbers) const;

  std::vector<DiskPage> pages_;
  std::vector<std::size_t> space_form_;
  std::vector<DiskAppend> appends_;
  std::vector<DiskRemoval> removals_;
  std::map<DiskSet, std::vector<std::size_t>> sets_;
  std::map<DiskSet, std::size_t> present_;
  std::set<DiskSet> unseen_;  // at the opening that is judged
  // Highest order of a removal that is sure, by page, space, form.
  std::vector<std::uint64_t> page_removed_, space_cleared_;
  std::map<std::size_t, std::uint64_t> form_cleared_;
  std::vector<std::size_t> unsure_;           // into removals_
  std::vector<std::size_t> not_yet_durable_;  // appends written, not durable
  std::uint64_t order_ = 0;
};

}  // namespace tiercel::sim
