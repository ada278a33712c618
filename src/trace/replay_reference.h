// A second statement of a replay under `lru` for tests, put together from the sentences of contract §9: one
// list of pages, a set of points on each page, bytes added up. No node, no bytes, no clock.
//
// Threads: plain values; tests only.
#pragma once

#include <algorithm>
#include <cstdint>
#include <list>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "trace/trace.h"

namespace tiercel::replay_reference {

struct Model {
  std::uint64_t page_bytes = 0;
  std::uint64_t window_bytes = 0, window_pages = 0;  // 0: no window
  std::uint64_t snapshot_bytes = 0;                  // 0: no state
};
struct Rules {
  bool end = true, branch = false, all = false;
  std::uint64_t every = 0;
};
struct Limits {
  std::optional<std::uint64_t> pages, bytes;
};
struct Counts {
  std::uint64_t hit_pages = 0, hit_tokens = 0, stored = 0, evicted = 0, resident = 0;
  std::uint64_t snapshots_made = 0, snapshots_evicted = 0, bytes = 0, peak_bytes = 0;
  std::map<std::string, std::uint64_t> missed;
  friend bool operator==(const Counts&, const Counts&) = default;
};

class Reference final {
 public:
  Reference(const Model& model, const Rules& rules, const Limits& limits)
      : model_(model), rules_(rules), limits_(limits) {}

  Counts run(const std::vector<TraceRequest>& requests) {
    for (const TraceRequest& request : requests) step(request);
    counts_.resident = pages_.size();
    return counts_;
  }

 private:
  using Id = std::uint64_t;
  struct Page {
    std::list<Id>::iterator place;  // in recency_, whose front is the most recent
    std::vector<Id> chain;          // itself last
    bool point = false;             // a resume point ends here
    bool snapshot = false;
    bool window = false;
    std::set<Id> points;  // resume points (their last pages) whose window this page lies in
  };

  bool windows_always() const { return model_.window_bytes != 0 && model_.snapshot_bytes == 0 && rules_.all; }
  std::uint64_t window_start(std::uint64_t length) const {
    return length - std::min(length, model_.window_pages);
  }

  bool restorable(const std::vector<Id>& ids, std::uint64_t length) const {
    for (std::uint64_t p = 0; p < length; ++p)
      if (!pages_.contains(ids[p])) return false;
    if (length == 0) return true;
    if (model_.snapshot_bytes != 0 && !pages_.at(ids[length - 1]).snapshot) return false;
    for (std::uint64_t p = window_start(length); model_.window_bytes != 0 && p < length; ++p)
      if (!pages_.at(ids[p]).window) return false;
    return true;
  }

  void step(const TraceRequest& request) {
    const std::vector<Id>& ids = request.blocks;
    std::uint64_t known = 0;
    while (known < ids.size() && pages_.contains(ids[known])) ++known;
    std::uint64_t hit = known;
    while (!restorable(ids, hit)) --hit;
    counts_.hit_pages += hit;
    counts_.hit_tokens += std::min(hit * kTraceBlockTokens, request.input_length);
    for (std::uint64_t p = hit; p < ids.size(); ++p) ++counts_.missed[reason(ids, p, known)];

    mine_ = std::set<Id>(ids.begin(), ids.end());
    for (std::uint64_t p = ids.size(); p-- > 0;)
      if (const auto at = pages_.find(ids[p]); at != pages_.end())
        recency_.splice(recency_.begin(), recency_, at->second.place);
    store(ids, hit, known, points(request, hit, known));
  }

  std::string reason(const std::vector<Id>& ids, std::uint64_t p, std::uint64_t known) const {
    if (!pages_.contains(ids[p])) {
      const auto past = past_.find(ids[p]);
      return past == past_.end() ? "never_stored" : past->second;
    }
    if (p > known) return "after_gap";
    for (std::uint64_t length = p + 1; length <= known && model_.snapshot_bytes != 0; ++length)
      if (pages_.at(ids[length - 1]).snapshot) return "window_missing";
    return model_.snapshot_bytes != 0 ? "state_missing" : "window_missing";
  }

  std::set<std::uint64_t> points(const TraceRequest& request, std::uint64_t hit, std::uint64_t known) const {
    std::set<std::uint64_t> lengths;
    if (model_.snapshot_bytes == 0 && model_.window_bytes == 0) return lengths;
    const std::uint64_t full = request.full_blocks();
    for (std::uint64_t length = 1; length <= full; ++length) {
      const bool is_end = (rules_.end || rules_.branch) && length == full;
      const bool is_branch = rules_.branch && length == known && known < request.blocks.size();
      const bool is_multiple = rules_.every != 0 && length % rules_.every == 0;
      if (length > hit && (is_end || is_branch || is_multiple || rules_.all)) lengths.insert(length);
    }
    return lengths;
  }

  void store(const std::vector<Id>& ids, std::uint64_t hit, std::uint64_t known,
             const std::set<std::uint64_t>& points) {
    for (std::uint64_t p = hit; p < ids.size(); ++p)
      if (const std::string refusal = store_page(ids, p, p >= known, points.contains(p + 1));
          !refusal.empty()) {
        for (std::uint64_t rest = p; rest < ids.size(); ++rest)
          if (!pages_.contains(ids[rest])) past_[ids[rest]] = refusal;
        return;
      }
  }

  std::string store_page(const std::vector<Id>& ids, std::uint64_t p, bool is_new, bool point) {
    if (is_new) {
      if (std::string refusal = room(model_.page_bytes, true); !refusal.empty()) return refusal;
      add_page(ids, p);
    }
    if (windows_always())
      if (std::string refusal = add_window(ids[p]); !refusal.empty()) return refusal;
    if (!point || windows_always()) return {};
    Page& page = pages_.at(ids[p]);
    if (model_.snapshot_bytes != 0 && !page.snapshot) {
      if (std::string refusal = room(model_.snapshot_bytes, false); !refusal.empty()) return refusal;
      page.snapshot = true;
      ++counts_.snapshots_made;
      add_bytes(model_.snapshot_bytes);
    }
    page.point = true;
    if (model_.window_bytes == 0) return {};
    for (std::uint64_t q = window_start(p + 1); q <= p; ++q) pages_.at(ids[q]).points.insert(ids[p]);
    for (std::uint64_t q = p + 1; q-- > window_start(p + 1);)
      if (std::string refusal = add_window(ids[q]); !refusal.empty()) return refusal;
    return {};
  }

  void add_page(const std::vector<Id>& ids, std::uint64_t p) {
    auto before = recency_.begin();
    if (p > 0) before = std::next(pages_.at(ids[p - 1]).place);
    Page page;
    page.place = recency_.insert(before, ids[p]);
    page.chain.assign(ids.begin(), ids.begin() + static_cast<std::ptrdiff_t>(p + 1));
    pages_.emplace(ids[p], std::move(page));
    past_.erase(ids[p]);
    ++counts_.stored;
    add_bytes(model_.page_bytes);
  }
  std::string add_window(Id id) {
    Page& page = pages_.at(id);
    if (page.window) return {};
    if (std::string refusal = room(model_.window_bytes, false); !refusal.empty()) return refusal;
    page.window = true;
    add_bytes(model_.window_bytes);
    return {};
  }
  void add_bytes(std::uint64_t bytes) {
    counts_.bytes += bytes;
    counts_.peak_bytes = std::max(counts_.peak_bytes, counts_.bytes);
  }

  // Empty when there is room, else why not.
  std::string room(std::uint64_t bytes, bool new_page) {
    if (limits_.bytes && bytes > *limits_.bytes) return "not_admitted(too_large)";
    while ((limits_.bytes && counts_.bytes + bytes > *limits_.bytes) ||
           (new_page && limits_.pages && pages_.size() + 1 > *limits_.pages)) {
      if (recency_.empty() || mine_.contains(recency_.back())) return "not_admitted(no_room)";
      evict(recency_.back());
    }
    return {};
  }
  void evict(Id id) {
    Page& page = pages_.at(id);
    counts_.bytes -= model_.page_bytes;
    if (page.window) counts_.bytes -= model_.window_bytes;
    page.window = false;
    if (page.snapshot) {
      counts_.bytes -= model_.snapshot_bytes;
      ++counts_.snapshots_evicted;
    }
    if (page.point) {
      for (std::uint64_t q = window_start(page.chain.size()); q < page.chain.size(); ++q) {
        Page& covered = pages_.at(page.chain[q]);
        covered.points.erase(id);
        if (!covered.points.empty() || !covered.window) continue;
        covered.window = false;
        counts_.bytes -= model_.window_bytes;
      }
    }
    recency_.erase(page.place);
    pages_.erase(id);
    past_[id] = "evicted";
    ++counts_.evicted;
  }

  Model model_;
  Rules rules_;
  Limits limits_;
  std::list<Id> recency_;
  std::map<Id, Page> pages_;
  std::map<Id, std::string> past_;
  std::set<Id> mine_;  // pages of the request under way
  Counts counts_;
};

}  // namespace tiercel::replay_reference
