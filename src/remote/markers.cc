// Markers: found, made where there is none, looked at again now and then, replaced by a clear.

#include <algorithm>

#include "base/check.h"
#include "base/fault.h"
#include "remote/tier_state.h"

namespace tiercel {

using remote::Area;
using remote::Marker;
using remote::MarkerNumber;

namespace {
constexpr Duration kPause = std::chrono::milliseconds(20);
}  // namespace

std::size_t RemoteTier::State::marker_named(const std::string& name) {
  const auto [at, fresh] = marker_by_name.emplace(name, markers.size());
  if (fresh) {
    Marker marker;
    marker.name = name;
    markers_due.insert(markers.size());
    markers.push_back(std::move(marker));
  }
  return at->second;
}

void RemoteTier::State::refresh(remote::TierSpace& space) {
  const Marker& form = markers[space.form_marker];
  const Marker& own = markers[space.namespace_marker];
  std::optional<remote::ObjectSpace> current;
  if (form.number && own.number && !form.clearing && !own.clearing)
    current = remote::object_space(space.name.root, space.name.form->fingerprint, *form.number, *own.number);
  if (current == space.current || (space.current && TIERCEL_FAULT(remote_serves_cleared))) return;
  space.current = current;
  known.forget_space(space.id);
}

void RemoteTier::State::refresh_spaces(const Marker& marker) {
  for (const std::size_t index : marker.spaces) refresh(spaces[index]);
}

bool RemoteTier::State::fresh(const remote::TierSpace& space) const {
  const auto seen = [&](std::size_t index) {
    const Marker& marker = markers[index];
    return marker.number && later(marker.seen, options.marker_refresh) > now();
  };
  return seen(space.form_marker) && seen(space.namespace_marker);
}

// Whoever uses a namespace has its markers looked at again when they are old; the others wait until somebody
// does.
void RemoteTier::State::want_fresh(const remote::TierSpace& space) {
  for (const std::size_t index : {space.form_marker, space.namespace_marker})
    if (!markers[index].number || later(markers[index].seen, options.marker_refresh) <= now())
      markers_due.insert(index);
}

void RemoteTier::State::begin_clear(std::size_t index) {
  Marker& marker = markers[index];
  ++stats.clears;
  // A number that nobody here has seen may be the one under which others stored: it is cleared, too, by
  // whatever is written next.
  if (marker.number) marker.cleared = marker.number;
  ++marker.clears;
  marker.clearing = marker.replace = true;
  marker.number.reset();
  markers_due.insert(index);
  refresh_spaces(marker);
  pump_markers();
}

// One step of each marker that needs one. Cost: those.
std::size_t RemoteTier::State::pump_markers() {
  if (is_down || closed) return 0;
  std::size_t done = 0;
  for (const std::size_t index : markers_due) {
    const Marker& marker = markers[index];
    if (marker.asking || marker.not_before > now()) continue;
    // What cannot be begun now is no progress.
    if (marker.remove)
      done += remove_marker(index) ? 1 : 0;
    else if (marker.replace || marker.make)
      done += write_marker(index) ? 1 : 0;
    else
      done += ask_marker(index) ? 1 : 0;
  }
  return done;
}

bool RemoteTier::State::write_marker(std::size_t index) {
  const std::optional<Area> area = exchange.take(remote::kMarkerBytes);
  if (!area) return false;
  MarkerNumber number{};
  store_le<std::uint64_t>(number.data(), random());
  store_le<std::uint64_t>(number.data() + 8, random());
  remote::encode_marker(number, {exchange_at(*area), remote::kMarkerBytes});
  Marker& marker = markers[index];
  const bool replace = marker.replace;
  const std::uint64_t clears = marker.clears;
  std::vector<RemoteItem> items;
  items.push_back({marker.name, {{0, area->offset, remote::kMarkerBytes}}});
  const RemoteVerb verb = replace ? RemoteVerb::kReplace : RemoteVerb::kPut;
  const bool started = start(verb, std::move(items), {*area}, [this, index, clears](const auto& results) {
    Marker& written = markers[index];
    written.asking = false;
    if (results.at(0).outcome != RemoteOutcome::kOk) {
      written.not_before = later(now(), kPause);
      written.remove = written.replace && results.at(0).outcome == RemoteOutcome::kNoRoom;
      return;
    }
    ++stats.markers_made;
    written.make = false;
    if (written.clears == clears) written.replace = false;
  });
  if (!started) exchange.give_back(*area);
  markers[index].asking = started;
  return started;
}

// A clear in a full store: without its marker the old content is out of reach as well.
bool RemoteTier::State::remove_marker(std::size_t index) {
  std::vector<RemoteItem> items;
  items.push_back({markers[index].name, {}});
  const std::uint64_t clears = markers[index].clears;
  const bool started =
      start(RemoteVerb::kRemove, std::move(items), {}, [this, index, clears](const auto& results) {
        Marker& marker = markers[index];
        marker.asking = marker.remove = false;
        const RemoteOutcome outcome = results.at(0).outcome;
        if (outcome != RemoteOutcome::kOk && outcome != RemoteOutcome::kAbsent) {
          marker.not_before = later(now(), kPause);
          return;
        }
        if (marker.clears != clears) return;
        marker.replace = marker.clearing = false;
        marker.make = true;
      });
  markers[index].asking = started;
  return started;
}

// What counts is what is read back: whoever else wrote one has written one as good.
bool RemoteTier::State::ask_marker(std::size_t index) {
  const std::optional<Area> area = exchange.take(remote::kMarkerBytes);
  if (!area) return false;
  std::vector<RemoteItem> items;
  items.push_back({markers[index].name, {{0, area->offset, remote::kMarkerBytes}}});
  const bool started =
      start(RemoteVerb::kGet, std::move(items), {*area}, [this, index, at = *area](const auto& results) {
        Marker& marker = markers[index];
        marker.asking = false;
        const RemoteOutcome outcome = results.at(0).outcome;
        if (outcome == RemoteOutcome::kAbsent) {
          marker.number.reset();
          marker.make = true;
          refresh_spaces(marker);
          return;
        }
        if (outcome == RemoteOutcome::kWrongSize) marker.replace = true;  // not one of ours: it is made good
        if (outcome != RemoteOutcome::kOk) {
          marker.not_before = later(now(), kPause);
          return;
        }
        const auto number = remote::parse_marker({exchange_at(at), remote::kMarkerBytes});
        if (number)
          marker_seen(index, *number);
        else
          marker.replace = true;  // damaged: other versions have other names
      });
  if (!started) exchange.give_back(*area);
  markers[index].asking = started;
  return started;
}

void RemoteTier::State::marker_seen(std::size_t index, const MarkerNumber& number) {
  Marker& marker = markers[index];
  if (marker.replace) return;      // a clear came while it was read: the new one is yet to be written
  if (marker.cleared == number) {  // what was written did not stay
    marker.replace = marker.clearing = true;
    refresh_spaces(marker);
    return;
  }
  marker.clearing = false;
  marker.seen = now();
  markers_due.erase(index);
  if (marker.number == number) return;
  marker.number = number;
  refresh_spaces(marker);
}

}  // namespace tiercel
