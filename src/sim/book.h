// What the simulator itself knows of every page, from its own calls and from the node's events, never from
// the node's books: the second opinion that the checkers compare with.
//
// Threads: one thread.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include "model/key_chain.h"
#include "model/resume.h"
#include "node/audit.h"
#include "node/node.h"
#include "sim/content.h"

namespace tiercel::sim {

struct PageId {
  NamespaceId ns;
  Key key;
  friend auto operator<=>(const PageId&, const PageId&) = default;
};

// One record that the node accepted to write.
struct Written {
  Computation computation = 0;
  std::uint64_t life = 0;      // of its page when it was accepted
  std::uint64_t removals = 0;  // of its page when it was accepted
  std::uint64_t step = 0;
};

struct PageRecord {
  std::uint64_t length = 0;  // pages of the prefix that ends here
  bool visible = false;
  Presence presence = 0;
  std::uint64_t life = 0;      // grows when the page leaves for whatever cause
  std::uint64_t removals = 0;  // grows when it is removed, cleared, or its weights become old
  std::set<Reason> past{Reason::kNeverStored};  // what a miss may be said to come from
  Time past_when{0};
  bool ever_visible = false;
  std::uint64_t refused_step = UINT64_MAX;  // of the last refusal
  std::uint64_t accepted_step = 0;          // of the last record accepted
  std::map<std::pair<ClassId, ShardId>, std::vector<Written>> written;
  std::set<ClassId> damaged;       // visible class-sets whose bytes the simulator has changed
  std::set<ClassId> ever_damaged;  // in any life
};

class Book final {
 public:
  const PageRecord* find(const PageId& page) const;
  Presence presence(const PageId& page) const;
  std::optional<PageId> parent(const PageId& page) const;  // as stores said
  const std::map<PageId, PageRecord>& pages() const { return pages_; }
  // Pages that must go with `top`: all below it whose line of parents the node has seen unbroken.
  std::vector<PageId> descendants(const PageId& top) const;

  // -- from calls --
  void accepted(const PageId& page, const StoreItem& item, Computation computation);
  // `alone`: nothing of the page was there or being written, so that the refusal is what is remembered of it.
  void refused(const PageId& page, StoreOutcome outcome, bool alone);
  void not_wanted(const PageId& page);  // an offer under write_through_selective declined it
  void removed(const PageId& page);     // it alone
  void cleared(NamespaceId ns);
  void damaged(const PageId& page, ClassId cls);
  // Everything but a disk was lost, and namespaces have new ids: nothing is visible, and what was known of
  // causes is forgotten.
  void restarted(const std::map<NamespaceId, NamespaceId>& now_called);
  void begin_step(std::uint64_t step) { step_ = step; }
  void forgotten_possible() { history_complete_ = false; }
  bool history_complete() const { return history_complete_; }

  // -- from events --
  void apply(const Event& event);
  // Events were lost: what is visible is taken from the audit, causes are unknown.
  // `swept_later`: generations that were cleared and are still in the audit.
  void resync(const Audit& audit, const std::set<std::uint32_t>& swept_later);

 private:
  // Which lines of parents the node can know: an entry lives while its page is visible or has entries below.
  struct Link {
    std::optional<PageId> parent;
    std::set<PageId> children;
    bool visible = false;
  };
  void link(const PageId& page, const std::optional<Key>& parent);
  void unlink(PageId page);
  void leave(const PageId& page, PageRecord& record, std::set<Reason> past);

  std::map<PageId, PageRecord> pages_;
  std::map<PageId, Link> links_;
  std::map<PageId, Key> parents_;  // as the last accepted item said
  bool history_complete_ = true;
  std::uint64_t step_ = 0;
};

Reason reason_of(StoreOutcome refusal);

}  // namespace tiercel::sim
