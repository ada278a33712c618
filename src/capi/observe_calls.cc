// Calls of the ABI: events, stats, why.
#include <algorithm>
#include <cstring>

#include <tiercel/tiercel.h>

#include "capi/handles.h"
#include "capi/options.h"

using namespace tiercel;        // NOLINT(google-build-using-namespace): the ABI's functions stand outside
using namespace tiercel::capi;  // NOLINT(google-build-using-namespace)

namespace {

static_assert(static_cast<int>(EventKind::kCleared) == TIERCEL_EVENT_CLEARED - 1);
static_assert(kReasonCount <= TIERCEL_REASONS_MAX);

tiercel_cache_event event_of(const Live& live, const Event& event) {
  tiercel_cache_event out{};
  out.sequence = event.sequence;
  out.length = event.length;
  if (event.ns != NamespaceId{})
    out.page_tokens = live.node->form_of(event.ns).spec.page_tokens;
  else if (const auto form = live.forms.find(event.form); form != live.forms.end())
    out.page_tokens = form->second->form.spec.page_tokens;
  out.namespace_id = event.ns.value();
  out.key = key_of(event.key);
  if (event.parent) out.parent = key_of(*event.parent);
  out.has_parent = event.parent ? 1 : 0;
  out.kind = static_cast<tiercel_cache_event_kind>(event.kind) + 1;
  out.classes = event.classes;
  out.cause = static_cast<tiercel_reason>(reason_from(event.cause));
  out.medium = TIERCEL_TIER_HOST;
  out.external_size = event.external.size;
  std::memcpy(out.external, event.external.bytes.data(), sizeof out.external);
  return out;
}

}  // namespace

tiercel_page_kind tiercel::capi::page_kind_of(PageKind kind) {
  switch (kind) {
    case PageKind::kUnknown:
      return TIERCEL_PAGES_UNKNOWN;
    case PageKind::kSmall:
      return TIERCEL_PAGES_SMALL;
    case PageKind::kMixed:
      return TIERCEL_PAGES_MIXED;
    case PageKind::kCollapsed:
    case PageKind::kTransparent:
      return TIERCEL_PAGES_TRANSPARENT_HUGE;
    case PageKind::kHugetlb:
      return TIERCEL_PAGES_HUGETLB;
  }
  return TIERCEL_PAGES_UNKNOWN;
}

tiercel_status tiercel_events_drain(tiercel_node* node, tiercel_cache_event* events, uint64_t capacity,
                                    uint64_t* count, uint64_t* lost, tiercel_error* error) {
  return locked_call(node, error, [&](Live& live) -> Answer {
    TIERCEL_RETURN_UNLESS_OK(check_out("events_drain: count", count));
    TIERCEL_RETURN_UNLESS_OK(check_out("events_drain: lost", lost));
    if (events == nullptr && capacity != 0) return invalid("events_drain: events is NULL");
    if (live.cache_events.size() < capacity) {
      Events taken = live.node->drain_events();
      live.cache_events.insert(live.cache_events.end(), std::make_move_iterator(taken.events.begin()),
                               std::make_move_iterator(taken.events.end()));
      live.cache_events_lost += taken.lost;
    }
    std::uint64_t given = 0;
    for (; given < capacity && !live.cache_events.empty(); ++given) {
      events[given] = event_of(live, live.cache_events.front());
      live.cache_events.pop_front();
    }
    *count = given;
    *lost = std::exchange(live.cache_events_lost, 0);
    return {};
  });
}

namespace {

void copy_sizes(const Stats& stats, tiercel_stats& out) {
  out.host_bytes_granted = stats.host_bytes_granted;
  out.arena_bytes = stats.arena_bytes;
  out.arena_bytes_owned = stats.arena_bytes_owned;
  out.payload_bytes = stats.payload_bytes;
  out.resident_bytes = stats.resident_bytes;
  out.resident_bytes_peak = stats.resident_bytes_peak;
  out.fragmentation_bytes = stats.fragmentation_bytes;
  out.index_bytes = stats.index_bytes;
  out.history_bytes = stats.history_bytes;
  out.advice_bytes = stats.advice_bytes;
  out.in_flight_bytes = stats.in_flight_bytes;
  out.leased_bytes = stats.leased_bytes;
  out.reserved_bytes = stats.reserved_bytes;
  out.quarantined_bytes = stats.quarantined_bytes;
  out.pinned_pages = stats.pinned_pages;
}

void copy_counts(const Stats& stats, tiercel_stats& out) {
  out.matches = stats.matches;
  out.hit_tokens = stats.hit_tokens;
  out.missed_tokens = stats.missed_tokens;
  out.tail_tokens = stats.tail_tokens;
  out.pages_visible_now = stats.pages_visible;
  out.pages_stored = stats.pages_stored;
  out.pages_evicted = stats.pages_evicted;
  out.pages_removed = stats.pages_removed;
  out.snapshots_stored = stats.snapshots_stored;
  out.snapshots_evicted = stats.snapshots_evicted;
  out.snapshots_resident_now = stats.snapshots_resident;
  out.windows_dropped = stats.windows_dropped;
  out.stores_refused = stats.stores_refused;
  out.stale_commits = stats.stale_commits;
  out.expired_reservations = stats.expired_reservations;
  out.quarantines = stats.quarantines;
  out.damaged_records = stats.damaged_records;
  out.verified_bytes = stats.verified_bytes;
  out.unverified_bytes = stats.unverified_bytes;
  out.records_copied_in = stats.records_copied_in;
  out.records_written_in_place = stats.records_written_in_place;
  out.loads = stats.loads;
  out.loads_shortened = stats.loads_shortened;
  out.loads_failed = stats.loads_failed;
  out.loads_cancelled = stats.loads_cancelled;
  out.loads_timed_out = stats.loads_timed_out;
  out.records_moved = stats.records_moved;
  out.bytes_moved = stats.bytes_moved;
  out.events_lost = stats.events_lost;
  std::copy(stats.missed_pages.begin(), stats.missed_pages.end(), out.missed_pages);
}

}  // namespace

tiercel_status tiercel_stats_read(tiercel_node* node, tiercel_stats* stats, tiercel_error* error) {
  return answer(error, [&]() -> Answer {
    TIERCEL_RETURN_UNLESS_OK(check(node));
    tiercel_stats out{};
    TIERCEL_RETURN_UNLESS_OK(node->core->locked([&](Live& live) -> Answer {
      copy_sizes(live.node->stats(), out);
      copy_counts(live.node->stats(), out);
      return {};
    }));
    out.now_ns = static_cast<std::uint64_t>(node->core->now().count());
    out.memory_kind = static_cast<tiercel_memory_kind>(node->core->memory_kind()) + 1;
    out.page_kind = page_kind_of(node->core->page_kind());
    out.off = node->core->off() ? 1 : 0;
    return write_sized("stats_read", out, stats);
  });
}

tiercel_status tiercel_why(const tiercel_namespace* ns, const tiercel_key* key, tiercel_page_state* state,
                           tiercel_error* error) {
  return answer(error, [&]() -> Answer {
    TIERCEL_RETURN_UNLESS_OK(check(ns));
    TIERCEL_RETURN_UNLESS_OK(check_out("why: key", key));
    tiercel_page_state out{};
    TIERCEL_RETURN_UNLESS_OK(ns->core->locked([&](Live& live) -> Answer {
      const PageView view = live.node->why(ns->id, key_of(*key));
      out.when_ns = static_cast<std::uint64_t>(view.past.when.count());
      out.by = view.past.by.value();
      out.classes = view.presence;
      out.resident = view.resident ? 1 : 0;
      out.reason = static_cast<tiercel_reason>(view.own);
      out.tiers = view.presence != 0 ? TIERCEL_TIER_HOST : 0;
      return {};
    }));
    return write_sized("why", out, state);
  });
}
