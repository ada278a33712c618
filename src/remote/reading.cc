// Objects on their way from the store through the exchange into the memory of those who asked.

#include <algorithm>
#include <iterator>
#include <utility>

#include <fmt/format.h>

#include "base/check.h"
#include "base/fault.h"
#include "remote/tier_state.h"

namespace tiercel {

using remote::Area;
using remote::Bundle;
using remote::Location;
using remote::ObjectRead;
using remote::RunName;

namespace {

Status status_of(RemoteOutcome outcome) {
  const auto text = [&] { return fmt::format("remote: an object: {}", remote_outcome_name(outcome)); };
  switch (outcome) {
    case RemoteOutcome::kOk:
      return {};
    case RemoteOutcome::kAbsent:
    case RemoteOutcome::kWrongSize:
      return {Code::kNotFound, text()};
    case RemoteOutcome::kLate:
      return {Code::kDeadlineExceeded, text()};
    default:
      return {Code::kUnavailable, text()};
  }
}

// The part [position, position + length) of `pieces`, filled from `from`.
void scatter(const std::byte* from, std::uint64_t length, const std::vector<BlockPiece>& pieces,
             std::vector<remote::MemoryCopy>& copies) {
  for (const BlockPiece& piece : pieces) {
    const std::uint64_t part = std::min(length, piece.length);
    if (part == 0) return;
    copies.push_back({piece.data, from, part});
    from += part;
    length -= part;
  }
}

}  // namespace

std::optional<RemoteReadId> RemoteTier::read(RemoteEntry into) {
  State& s = *state_;
  if (down()) return std::nullopt;
  const remote::TierSpace& space = s.space_of(into.name.space);
  if (!space.current) return std::nullopt;
  const remote::BundleId bundle = space.objects.bundle_of[into.name.cls.value()];
  const std::optional<Location> place = s.known.find({into.name.space, bundle, into.name.key});
  if (!place) return std::nullopt;
  const RemoteReadId id(++s.last_id);
  ++s.stats.reads;
  auto object = std::find_if(s.to_read.begin(), s.to_read.end(),
                             [&](const ObjectRead& each) { return each.run == place->run; });
  if (object == s.to_read.end()) {
    ObjectRead fresh;
    fresh.run = place->run;
    fresh.space = *space.current;
    object = s.to_read.insert(s.to_read.end(), std::move(fresh));
  }
  object->entries.emplace_back(id, std::move(into));
  object->page_of.push_back(place->index);
  return id;
}

// False: the exchange has no room for it now.
bool RemoteTier::State::place_read(ObjectRead& object) {
  const remote::TierSpace& space = space_of(object.run.space);
  const Bundle& bundle = space.objects.bundles[object.run.bundle.value()];
  for (std::uint16_t shard = 0; shard < bundle.shards; ++shard) {
    const std::optional<Area> area =
        exchange.take(remote::object_bytes(space.objects, bundle, object.run.pages, ShardId(shard)));
    if (!area) {
      for (const Area& taken : object.areas) exchange.give_back(taken);
      object.areas.clear();
      return false;
    }
    object.areas.push_back(*area);
  }
  return true;
}

// What is under way together must come within one deadline, and nobody knows how fast the store is: little at
// first, more with every batch that came early, half of it after one that came late.
void RemoteTier::State::learn_speed(std::uint64_t bytes, Duration took, bool late) {
  const std::uint64_t most = 2 * options.batch_bytes_max;
  if (late)
    read_window = std::max<std::uint64_t>(std::min(read_window, bytes) / 2, 1);
  else if (took < options.batch_deadline / 4)
    read_window = std::min(read_window + bytes, most);
}

std::size_t RemoteTier::State::pump_reads() {
  std::size_t done = 0;
  while (!to_read.empty() && read_batches < options.reads_in_flight) {
    std::list<ObjectRead> batch;
    std::uint64_t bytes = 0;
    while (!to_read.empty() && batch.size() < 1024) {
      ObjectRead& object = to_read.front();
      if (!place_read(object)) {
        // Larger than all of the exchange: it will never fit.
        if (batch.empty() && exchange.used_bytes() == 0) {
          end_read(object, Status{Code::kResourceExhausted,
                                  fmt::format("remote: an object does not fit the exchange of {} bytes",
                                              exchange.size_bytes())});
          to_read.pop_front();
          continue;
        }
        break;
      }
      std::uint64_t size = 0;
      for (const Area& area : object.areas) size += area.length;
      const bool first = batch.empty() && reading_bytes == 0;
      const std::uint64_t share = std::max<std::uint64_t>(read_window / options.reads_in_flight, 1);
      const bool fills = !batch.empty() && bytes + size > std::min(options.batch_bytes_max, share);
      if (!first && (fills || reading_bytes + bytes + size > read_window)) {
        for (const Area& area : object.areas) exchange.give_back(area);
        object.areas.clear();
        break;
      }
      bytes += size;
      batch.splice(batch.end(), to_read, to_read.begin());
    }
    if (batch.empty()) break;
    if (!start_reads(std::move(batch))) break;
    ++done;
  }
  return done;
}

bool RemoteTier::State::start_reads(std::list<ObjectRead> objects) {
  std::vector<RemoteItem> items;
  std::vector<Area> areas;
  std::vector<std::list<ObjectRead>::iterator> all;
  for (auto object = objects.begin(); object != objects.end(); ++object) {
    all.push_back(object);
    for (std::size_t shard = 0; shard < object->areas.size(); ++shard) {
      const Area& area = object->areas[shard];
      const ShardId id(static_cast<std::uint16_t>(shard));
      items.push_back(
          {remote::object_name({object->space, object->run.last, object->run.bundle, object->run.pages, id}),
           {{0, area.offset, area.length}}});
      areas.push_back(area);
    }
  }
  std::uint64_t bytes = 0;
  for (const Area& area : areas) bytes += area.length;
  const Time since = now();
  const bool started =
      start(RemoteVerb::kGet, std::move(items), std::move(areas), [=, this](const auto& results) {
        const bool late = std::any_of(results.begin(), results.end(), [](const RemoteResult& result) {
          return result.outcome == RemoteOutcome::kLate;
        });
        reading_bytes -= bytes;
        learn_speed(bytes, now() - since, late);
        objects_read(all, results);
      });
  if (started) {
    ++read_batches;
    reading_bytes += bytes;
    now_reading.splice(now_reading.end(), objects);
    return true;
  }
  for (ObjectRead& object : objects) {
    for (const Area& area : object.areas) exchange.give_back(area);
    object.areas.clear();
  }
  to_read.splice(to_read.begin(), objects);  // in their order, before the others
  return false;
}

// Whole, ours, and of one computation?
Status RemoteTier::State::check_object(const ObjectRead& object, std::span<const RemoteResult> results) {
  for (const RemoteResult& result : results)
    if (result.outcome != RemoteOutcome::kOk) return status_of(result.outcome);
  std::optional<std::uint64_t> computation;
  for (std::size_t shard = 0; shard < object.areas.size(); ++shard) {
    const Area& area = object.areas[shard];
    const ShardId id(static_cast<std::uint16_t>(shard));
    const Result<std::uint64_t> got = remote::parse_object_header(
        {exchange_at(area), remote::kObjectHeaderBytes},
        {object.space, object.run.last, object.run.bundle, object.run.pages, id}, area.length);
    if (!got) {
      if (TIERCEL_FAULT(remote_header_unchecked)) continue;
      return {Code::kDataCorrupt, got.error().message};
    }
    if (computation && *computation != *got && !TIERCEL_FAULT(remote_mixes_shards)) {
      ++stats.mixed_objects;
      return {Code::kDataCorrupt, "object: its shards were stored by different computations"};
    }
    computation = *got;
  }
  return {};
}

void RemoteTier::State::objects_read(std::vector<std::list<ObjectRead>::iterator> objects,
                                     const std::vector<RemoteResult>& results) {
  --read_batches;
  // What is good is used from where it lies; of a batch that is not quiet, nothing is.
  const bool quiet = ending_quiet;
  if (quiet) keep_areas();
  std::size_t next = 0;
  for (const auto& object : objects) {
    const std::size_t shards = object->areas.size();
    Status status = check_object(*object, std::span(results).subspan(next, shards));
    if (status.ok() && !quiet) status = status_of(RemoteOutcome::kLate);
    next += shards;
    if (status.ok()) {
      ++stats.objects_read;
      for (const Area& area : object->areas) stats.object_bytes_read += area.length;
      copy_out(object);
      continue;
    }
    if (status.code == Code::kDataCorrupt) {
      ++stats.damaged_objects;
      remove_run(object->run, object->space);
    }
    end_read(*object, status);
    if (quiet)
      for (const Area& area : object->areas) exchange.give_back(area);
    now_reading.erase(object);
  }
}

void RemoteTier::State::copy_out(std::list<ObjectRead>::iterator object) {
  const remote::TierSpace& space = space_of(object->run.space);
  const Bundle& bundle = space.objects.bundles[object->run.bundle.value()];
  std::vector<remote::MemoryCopy> pieces;
  for (std::size_t shard = 0; shard < object->areas.size(); ++shard) {
    const ShardId id(static_cast<std::uint16_t>(shard));
    const std::byte* from = exchange_at(object->areas[shard]);
    for (const remote::ObjectRecord& record :
         remote::object_records(space.objects, bundle, object->run.pages, id))
      for (std::size_t i = 0; i < object->entries.size(); ++i)
        if (object->page_of[i] == record.page && object->entries[i].second.name.cls == record.cls)
          scatter(from + record.offset, record.length, object->entries[i].second.shards[shard], pieces);
  }
  bool told_early = TIERCEL_FAULT(remote_read_told_early);
  if (told_early) end_read(*object, {});
  copy(std::move(pieces), [this, object, told_early] {
    if (!told_early) end_read(*object, {});
    for (const Area& area : object->areas) exchange.give_back(area);
    now_reading.erase(object);
  });
}

// All of its class-sets have come, or will not.
void RemoteTier::State::end_read(const ObjectRead& object, const Status& status) {
  if (status.code == Code::kNotFound || status.code == Code::kDataCorrupt) {
    if (status.code == Code::kNotFound) known.absent(object.run);
    for (const auto& [id, entry] : object.entries)
      known.forget({object.run.space, object.run.bundle, entry.name.key});
  }
  for (const auto& [id, entry] : object.entries) {
    if (!status.ok()) ++stats.reads_failed;
    if (status.ok())
      for (const auto& shard : entry.shards)
        for (const BlockPiece& piece : shard) stats.read_bytes += piece.length;
    RemoteTierEvent event;
    event.kind = RemoteTierEvent::Kind::kRead;
    event.read = id;
    event.status = status;
    give(std::move(event));
  }
}

// ---- damage ----

void RemoteTier::State::remove_run(const RunName& run, const remote::ObjectSpace& space) {
  const Bundle& bundle = space_of(run.space).objects.bundles[run.bundle.value()];
  for (std::uint16_t shard = 0; shard < bundle.shards; ++shard)
    to_remove.push_back(remote::object_name({space, run.last, run.bundle, run.pages, ShardId(shard)}));
}

void RemoteTier::drop(const RemoteName& name) {
  State& s = *state_;
  const remote::TierSpace& space = s.space_of(name.space);
  const remote::BundleId bundle = space.objects.bundle_of[name.cls.value()];
  const std::optional<Location> place = s.known.find({name.space, bundle, name.key});
  s.known.forget({name.space, bundle, name.key});
  ++s.stats.damaged_objects;
  if (place && space.current) s.remove_run(place->run, *space.current);
}

std::size_t RemoteTier::State::pump_removals() {
  if (to_remove.empty()) return 0;
  std::vector<RemoteItem> items;
  const std::size_t count = std::min<std::size_t>(to_remove.size(), 1024);
  for (std::size_t i = 0; i < count; ++i) items.push_back({to_remove[i], {}});
  const bool started = start(RemoteVerb::kRemove, std::move(items), {}, [this](const auto& results) {
    for (const RemoteResult& result : results) stats.removed_objects += result.outcome == RemoteOutcome::kOk;
  });
  if (!started) return 0;
  to_remove.erase(to_remove.begin(), to_remove.begin() + static_cast<std::ptrdiff_t>(count));
  return 1;
}

}  // namespace tiercel
