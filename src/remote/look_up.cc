// What can make a prefix longer: asked for in few batches, the long runs first.

#include <algorithm>

#include <fmt/format.h>

#include "base/check.h"
#include "remote/tier_state.h"

namespace tiercel {

using remote::AskedRun;
using remote::Bundle;
using remote::LookStep;
using remote::Lookup;
using remote::RunName;

namespace {

// Names of one batch; of a lookup's step there may be several.
constexpr std::size_t kNamesMax = 1024;
// Snapshots are looked for from the deepest page on, so many pages at once: what is found but not read is
// pinned for nothing by some stores.
constexpr std::uint64_t kPointsAtOnce = 32;
constexpr std::uint64_t kRunsAtOnce = 64;

}  // namespace

// ---- what is known ----

Presence RemoteTier::State::known_presence(RemoteSpaceId space, const Key& key) const {
  Presence presence = 0;
  for (const Bundle& bundle : space_of(space).objects.bundles)
    if (known.find({space, bundle.id, key})) presence |= bundle.presence;
  return presence;
}

void RemoteTier::find_chain(RemoteSpaceId space, std::span<const Key> keys,
                            std::span<Presence> presence) const {
  const remote::TierSpace& of = state_->space_of(space);
  const bool usable = of.current.has_value() && state_->fresh(of) && !down();
  for (std::size_t i = 0; i < keys.size(); ++i)
    presence[i] = usable ? state_->known_presence(space, keys[i]) : 0;
}

bool RemoteTier::State::has(const Lookup& lookup, const Bundle& bundle, std::uint64_t page) const {
  if ((lookup.have[page] & bundle.presence) == bundle.presence) return true;
  return known.find({lookup.space, bundle.id, lookup.keys[page]}).has_value();
}

std::uint64_t RemoteTier::State::required_reach(const Lookup& lookup, std::uint64_t from) const {
  const auto& bundles = space_of(lookup.space).objects.bundles;
  for (std::uint64_t page = from; page < lookup.keys.size(); ++page)
    for (const Bundle& bundle : bundles)
      if (bundle.required && !has(lookup, bundle, page)) return page;
  return lookup.keys.size();
}

// ---- which names ----

// Whole runs whose last page is among pages [from, to) of the question, where not all of them are had.
void RemoteTier::State::ask_runs(const Lookup& lookup, const Bundle& bundle, std::uint64_t from,
                                 std::uint64_t to, std::vector<AskedRun>& ask) const {
  if (bundle.run_pages == 1) return;
  for (std::uint64_t page = from; page < to; ++page) {
    if ((lookup.first_page + page + 1) % bundle.run_pages != 0) continue;
    const std::uint64_t first = page + 1 >= bundle.run_pages ? page + 1 - bundle.run_pages : 0;
    bool all = true;
    for (std::uint64_t each = std::max(first, from); each <= page && all; ++each)
      all = has(lookup, bundle, each);
    if (!all) ask.push_back({{lookup.space, bundle.id, lookup.keys[page], bundle.run_pages}, page});
  }
}

void RemoteTier::State::ask_pages(const Lookup& lookup, const Bundle& bundle, std::uint64_t from,
                                  std::uint64_t to, std::vector<AskedRun>& ask) const {
  for (std::uint64_t page = from; page < to; ++page)
    if (!has(lookup, bundle, page)) ask.push_back({{lookup.space, bundle.id, lookup.keys[page], 1}, page});
}

// From where the prefix ends so far: many whole runs, and single pages of the first of them and of the part
// behind the last. Where that makes it longer, the same again from there.
void RemoteTier::State::ask_required(const Lookup& lookup, std::vector<AskedRun>& ask) const {
  const std::uint64_t pages = lookup.keys.size(), from = *lookup.reach;
  for (const Bundle& bundle : space_of(lookup.space).objects.bundles) {
    if (!bundle.required) continue;
    const std::uint64_t to = std::min(pages, from + kRunsAtOnce * bundle.run_pages);
    const std::uint64_t behind = bundle.run_pages - (lookup.first_page + from) % bundle.run_pages;
    const std::uint64_t first_ends = std::min(to, from + behind);
    const std::uint64_t whole_ends =
        to - std::min(to - first_ends, (lookup.first_page + to) % bundle.run_pages);
    ask_runs(lookup, bundle, from, to, ask);
    ask_pages(lookup, bundle, from, first_ends, ask);
    if (to == pages) ask_pages(lookup, bundle, whole_ends, to, ask);
  }
}

// The next snapshots, from the deepest on; ends when one is known.
void RemoteTier::State::ask_points(Lookup& lookup, std::vector<AskedRun>& ask) {
  const std::uint64_t to = lookup.points_from;
  const std::uint64_t from = to > kPointsAtOnce ? to - kPointsAtOnce : 0;
  for (const Bundle& bundle : space_of(lookup.space).objects.bundles)
    if (bundle.state) ask_pages(lookup, bundle, from, to, ask);
  lookup.points_from = from;
}

void RemoteTier::State::ask_tails(const Lookup& lookup, bool runs, std::vector<AskedRun>& ask) const {
  const remote::TierSpace& space = space_of(lookup.space);
  const std::uint64_t to = lookup.point;
  for (const Bundle& bundle : space.objects.bundles) {
    if (bundle.required || bundle.state) continue;
    const std::uint64_t window = space.name.form->classes[bundle.classes[0].value()].window_pages();
    const std::uint64_t from = !bundle.optional && to > window ? to - window : 0;
    if (runs)
      ask_runs(lookup, bundle, from, to, ask);
    else
      ask_pages(lookup, bundle, from, to, ask);
  }
}

void RemoteTier::State::note_deepest_point(Lookup& lookup) const {
  const auto& bundles = space_of(lookup.space).objects.bundles;
  const bool states = std::any_of(bundles.begin(), bundles.end(), [](const Bundle& b) { return b.state; });
  lookup.point = lookup.reach.value_or(0);
  if (!states) return;
  for (; lookup.point > lookup.points_from; --lookup.point) {
    const bool all = std::all_of(bundles.begin(), bundles.end(), [&](const Bundle& bundle) {
      return !bundle.state || has(lookup, bundle, lookup.point - 1);
    });
    if (all) return;
  }
  lookup.point = 0;
}

// ---- asking ----

// False: nothing was asked.
bool RemoteTier::State::ask(Lookup& lookup, const std::vector<AskedRun>& runs) {
  const remote::TierSpace& space = space_of(lookup.space);
  std::vector<AskedRun> asked;
  std::vector<RemoteItem> items;
  bool any = false;
  const auto send = [&] {
    if (items.empty()) return true;
    const RemoteLookupId id = lookup.id;
    const bool started = start(RemoteVerb::kExists, std::exchange(items, {}), {},
                               [this, id, under = *space.current, asked = std::exchange(asked, {})](
                                   const auto& results) { answer(id, under, asked, results); });
    if (started) {
      ++lookup.answers_due;
      any = true;
    } else {
      lookup.status = Status{Code::kUnavailable, "remote: the store takes no more questions now"};
    }
    return started;
  };
  for (const AskedRun& each : runs) {
    const RunName& run = each.run;
    if (known.is_absent(run)) {
      ++stats.names_known;
      continue;
    }
    const Bundle& bundle = space.objects.bundles[run.bundle.value()];
    asked.push_back(each);
    for (std::uint16_t shard = 0; shard < bundle.shards; ++shard)
      items.push_back(
          {remote::object_name({*space.current, run.last, run.bundle, run.pages, ShardId(shard)}), {}});
    stats.names_asked += bundle.shards;
    if (items.size() >= kNamesMax && !send()) return any;
  }
  send();
  return any;
}

void RemoteTier::State::answer(RemoteLookupId id, const remote::ObjectSpace& under,
                               const std::vector<AskedRun>& runs, const std::vector<RemoteResult>& results) {
  const auto at = lookups.find(id);
  Lookup* lookup = at == lookups.end() ? nullptr : &at->second;
  if (!runs.empty() &&
      space_of(runs.front().run.space).current != under) {  // it says nothing of what is there now
    if (lookup == nullptr) return;
    --lookup->answers_due;
    if (lookup->status.ok()) lookup->status = remote::cleared_meanwhile();
    return;
  }
  std::size_t next = 0;
  for (const AskedRun& each : runs) {
    const RunName& run = each.run;
    const remote::TierSpace& space = space_of(run.space);
    const Bundle& bundle = space.objects.bundles[run.bundle.value()];
    bool there = true, absent = false;
    for (std::uint16_t shard = 0; shard < bundle.shards; ++shard, ++next) {
      const RemoteResult& result = results.at(next);
      const std::uint64_t bytes = remote::object_bytes(space.objects, bundle, run.pages, ShardId(shard));
      const bool other = result.outcome == RemoteOutcome::kOk && result.bytes != 0 && result.bytes != bytes;
      there &= result.outcome == RemoteOutcome::kOk && !other;
      absent |= result.outcome == RemoteOutcome::kAbsent || other;
      if (result.outcome != RemoteOutcome::kOk && result.outcome != RemoteOutcome::kAbsent &&
          lookup != nullptr && lookup->status.ok())
        lookup->status =
            Status{Code::kUnavailable, fmt::format("remote: the store did not say what is there: {}",
                                                   remote_outcome_name(result.outcome))};
    }
    if (absent) known.absent(run);
    if (there && lookup != nullptr) note_run(*lookup, each);
  }
  if (lookup != nullptr) --lookup->answers_due;
}

void RemoteTier::State::note_run(const Lookup& lookup, const AskedRun& asked) {
  const RunName& run = asked.run;
  for (std::uint32_t back = 0; back < run.pages && back <= asked.page; ++back)
    known.there({run.space, run.bundle, lookup.keys[asked.page - back]}, {run, run.pages - 1 - back});
}

// ---- the steps ----

bool RemoteTier::State::advance(Lookup& lookup) {
  const remote::TierSpace& space = space_of(lookup.space);
  if (lookup.answers_due != 0) return false;
  if (!space.current) {
    // Cleared meanwhile: what was learnt is forgotten.
    if (lookup.step != LookStep::kMarkers) {
      lookup.status = remote::cleared_meanwhile();
      lookup.step = LookStep::kDone;
    }
    return lookup.step == LookStep::kDone;
  }
  // Another node may have cleared it since its markers were seen.
  if (lookup.step == LookStep::kMarkers && !fresh(space)) return false;
  const std::uint64_t pages = lookup.keys.size();
  const bool required = space.name.form->has_required();
  while (lookup.step != LookStep::kDone) {
    if (!lookup.status.ok()) {
      lookup.step = LookStep::kDone;
      return true;
    }
    std::vector<AskedRun> names;
    switch (lookup.step) {
      case LookStep::kMarkers:
        lookup.step = LookStep::kRequired;
        break;
      case LookStep::kRequired: {
        const std::uint64_t reach = required ? required_reach(lookup, lookup.reach.value_or(0)) : pages;
        const bool longer = reach != lookup.reach;
        lookup.reach = lookup.points_from = reach;
        if (longer && reach < pages) {
          ask_required(lookup, names);
          break;
        }
        lookup.step = LookStep::kPoints;
        break;
      }
      case LookStep::kPoints:
        note_deepest_point(lookup);
        if (lookup.point == 0 && lookup.points_from != 0) {
          ask_points(lookup, names);
          break;
        }
        lookup.step = LookStep::kTails;
        break;
      case LookStep::kTails:
        note_deepest_point(lookup);
        ask_tails(lookup, true, names);
        lookup.step = LookStep::kTailPages;
        break;
      case LookStep::kTailPages:
        ask_tails(lookup, false, names);
        lookup.step = LookStep::kDone;
        break;
      case LookStep::kDone:
        break;
    }
    if (!names.empty() && ask(lookup, names)) return false;
  }
  return true;
}

std::size_t RemoteTier::State::pump_lookups() {
  std::vector<std::pair<RemoteLookupId, Status>> over;
  for (auto& [id, lookup] : lookups) {
    if (advance(lookup))
      over.emplace_back(id, lookup.status);
    else if (lookup.deadline <= now())
      over.emplace_back(id, Status{Code::kDeadlineExceeded, "remote: the store did not answer in time"});
  }
  for (auto& [id, status] : over) end_lookup(id, std::move(status));
  return over.size();
}

void RemoteTier::State::end_lookup(RemoteLookupId id, Status status) {
  if (lookups.erase(id) == 0) return;
  if (!status.ok()) ++stats.lookups_failed;
  RemoteTierEvent event;
  event.kind = RemoteTierEvent::Kind::kLookedUp;
  event.lookup = id;
  event.status = std::move(status);
  give(std::move(event));
}

std::optional<RemoteLookupId> RemoteTier::look_up(const RemoteQuestion& question) {
  State& s = *state_;
  if (down() || question.keys.empty()) return std::nullopt;
  Lookup lookup;
  lookup.id = RemoteLookupId(++s.last_id);
  lookup.space = question.space;
  lookup.first_page = question.first_page;
  lookup.keys.assign(question.keys.begin(), question.keys.end());
  lookup.have.assign(question.have.begin(), question.have.end());
  lookup.have.resize(lookup.keys.size());
  // Steps wait one batch each at most; their number grows with a chain without any snapshot only.
  lookup.deadline = later(s.now(), 8 * s.options.batch_deadline);
  const RemoteLookupId id = lookup.id;
  s.want_fresh(s.space_of(question.space));
  s.pump_markers();
  Lookup& placed = s.lookups.emplace(id, std::move(lookup)).first->second;
  if (s.advance(placed)) {
    // Everything is known already, and no event is needed; or nobody could be asked, which is an answer.
    if (placed.status.ok() || down()) {
      s.lookups.erase(id);
      return std::nullopt;
    }
    s.end_lookup(id, Status(placed.status));
  } else if (!s.lookups.contains(id)) {
    return std::nullopt;  // asking found the tier down
  }
  ++s.stats.lookups;
  return id;
}

}  // namespace tiercel
