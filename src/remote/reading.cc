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

// Where little of a batch is copied, larger ones cost less.
constexpr std::uint64_t kCopiedOfOne = 8ULL << 20;

bool wants(const ObjectRead& object, std::size_t entry, const remote::ObjectRecord& record) {
  return object.page_of[entry] == record.page && object.entries[entry].second.name.cls == record.cls;
}

// The one who wants it.
const RemoteEntry* owner_of(const ObjectRead& object, const remote::ObjectRecord& record) {
  const RemoteEntry* owner = nullptr;
  for (std::size_t i = 0; i < object.entries.size(); ++i) {
    if (!wants(object, i, record)) continue;
    if (owner != nullptr) return nullptr;  // several do: it is copied to each
    owner = &object.entries[i].second;
  }
  return owner;
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
  ObjectRead& object = s.object_to_read(place->run, *space.current);
  object.entries.emplace_back(id, std::move(into));
  object.page_of.push_back(place->index);
  return id;
}

// Pages come in the order of their chain, bundle beside bundle: who shares an object was here a moment ago.
ObjectRead& RemoteTier::State::object_to_read(const RunName& run, const remote::ObjectSpace& space) {
  std::size_t looked = space_of(run.space).objects.bundles.size();
  for (auto at = to_read.rbegin(); at != to_read.rend() && looked != 0; ++at, --looked)
    if (at->run == run && at->space == space) return *at;
  ObjectRead fresh;
  fresh.run = run;
  fresh.space = space;
  return *to_read.insert(to_read.end(), std::move(fresh));
}

std::size_t RemoteTier::State::pump_reads() {
  std::size_t done = 0;
  while (!to_read.empty() && reads.batches < options.reads_in_flight) {
    std::list<ObjectRead> batch;
    std::uint64_t bytes = 0, copied = 0;
    std::size_t items = 0, pieces = 0;
    while (!to_read.empty() && items < remote::kItemsMax && pieces < remote::kPiecesMax &&
           place_read(batch.empty(), bytes, copied)) {
      batch.splice(batch.end(), to_read, to_read.begin());
      items += batch.back().place.shards.size();
      for (const remote::ShardPlace& shard : batch.back().place.shards) pieces += shard.pieces.size();
    }
    if (batch.empty()) break;
    if (!start_reads(std::move(batch))) break;
    ++done;
  }
  return done;
}

// The first that waits and can come gets its room; `bytes`, and what of them is to be copied, grow by it.
// False: none can come now.
bool RemoteTier::State::place_read(bool batch_empty, std::uint64_t& bytes, std::uint64_t& copied) {
  const std::uint64_t share = batch_share(reads, options.reads_in_flight);
  for (; !to_read.empty(); to_read.pop_front()) {
    ObjectRead& object = to_read.front();
    if (space_of(object.run.space).current != object.space) {
      end_read(object, remote::cleared_meanwhile());
      continue;
    }
    // Whether it may come at all is seen before its place is looked for.
    const std::uint64_t size = run_bytes(object.run);
    if (!may_leave(reads, share, bytes, size)) return false;
    const bool placed = place(
        object.run, [&object](const remote::ObjectRecord& record) { return owner_of(object, record); },
        object.place);
    if (!placed && batch_empty && exchange.used_bytes() == 0) {  // larger than all of it
      end_read(object, Status{Code::kResourceExhausted,
                              fmt::format("remote: an object does not fit the exchange of {} bytes",
                                          exchange.size_bytes())});
      continue;
    }
    if (!placed) return false;
    const std::uint64_t copy = size - object.place.direct_bytes;
    if (!batch_empty && copied + copy > kCopiedOfOne) {
      give_back(object.place);
      return false;
    }
    bytes += size;
    copied += copy;
    return true;
  }
  return false;
}

bool RemoteTier::State::start_reads(std::list<ObjectRead> objects) {
  std::vector<RemoteItem> items;
  std::vector<Area> areas;
  std::vector<std::list<ObjectRead>::iterator> all;
  std::uint64_t bytes = 0;
  bool direct = false;
  for (auto object = objects.begin(); object != objects.end(); ++object) {
    all.push_back(object);
    add_items(object->run, object->space, object->place, items, areas);
    bytes += object->place.bytes;
    direct |= object->place.direct_bytes != 0;
  }
  const Time since = now();
  const auto ended = [=, this](const std::vector<RemoteResult>& results) {
    note_back(reads, bytes, since, results);
    objects_read(all, results);
  };
  const bool started = start(RemoteVerb::kGet, std::move(items), std::move(areas), ended, direct);
  if (started) {
    note_left(reads, bytes);
    now_reading.splice(now_reading.end(), objects);
    return true;
  }
  for (ObjectRead& object : objects) give_back(object.place);
  to_read.splice(to_read.begin(), objects);  // in their order, before the others
  return false;
}

// Whole, ours, and of one computation?
Status RemoteTier::State::check_object(const ObjectRead& object, std::span<const RemoteResult> results) {
  for (const RemoteResult& result : results)
    if (result.outcome != RemoteOutcome::kOk) return remote::outcome_status(result.outcome, "an object");
  std::optional<std::uint64_t> computation;
  for (std::size_t shard = 0; shard < object.place.shards.size(); ++shard) {
    const remote::ShardPlace& placed = object.place.shards[shard];
    const ShardId id(static_cast<std::uint16_t>(shard));
    const Result<std::uint64_t> got = remote::parse_object_header(
        {exchange_at(placed.area), remote::kObjectHeaderBytes},
        {object.space, object.run.last, object.run.bundle, object.run.pages, id}, placed.bytes);
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

void RemoteTier::State::objects_read(const std::vector<std::list<ObjectRead>::iterator>& objects,
                                     const std::vector<RemoteResult>& results) {
  // What is good is used from where it lies; of a batch that is not quiet, nothing is.
  const bool quiet = ending_quiet;
  if (quiet) keep_areas();
  std::size_t next = 0;
  for (const auto& object : objects) {
    const std::size_t shards = object->place.shards.size();
    Status status = check_object(*object, std::span(results).subspan(next, shards));
    if (status.ok() && !quiet) status = remote::outcome_status(RemoteOutcome::kLate, "an object");
    next += shards;
    if (status.ok()) {
      ++stats.objects_read;
      stats.object_bytes_read += object->place.bytes;
      stats.direct_bytes += object->place.direct_bytes;
      copy_out(object);
      continue;
    }
    if (status.code == Code::kDataCorrupt) {
      ++stats.damaged_objects;
      remove_run(object->run, object->space);
    }
    end_read(*object, status);
    if (quiet) give_back(object->place);
    now_reading.erase(object);
  }
}

void RemoteTier::State::copy_out(std::list<ObjectRead>::iterator object) {
  const remote::TierSpace& space = space_of(object->run.space);
  const Bundle& bundle = space.objects.bundles[object->run.bundle.value()];
  std::vector<remote::MemoryCopy> pieces;
  for (std::size_t shard = 0; shard < object->place.shards.size(); ++shard) {
    const remote::ShardPlace& placed = object->place.shards[shard];
    std::byte* from = exchange_at(placed.area);
    auto from_area = placed.from_area.begin();
    for (const remote::ObjectRecord& record : remote::object_records(
             space.objects, bundle, object->run.pages, ShardId(static_cast<std::uint16_t>(shard)))) {
      const std::optional<std::uint64_t> at = *from_area++;
      if (!at) continue;  // it stands where it is wanted
      for (std::size_t i = 0; i < object->entries.size(); ++i)
        if (wants(*object, i, record))
          remote::add_copies(from + *at, record.length, object->entries[i].second.shards[shard], true,
                             pieces);
    }
  }
  bool told_early = TIERCEL_FAULT(remote_read_told_early);
  if (told_early) end_read(*object, {});
  copy(std::move(pieces), [this, object, told_early] {
    if (!told_early) end_read(*object, {});
    give_back(object->place);
    now_reading.erase(object);
  });
}

// All of its class-sets have come, or will not.
void RemoteTier::State::end_read(const ObjectRead& object, const Status& status) {
  // Of what was cleared meanwhile it says nothing.
  const bool current = space_of(object.run.space).current == object.space;
  if (current && (status.code == Code::kNotFound || status.code == Code::kDataCorrupt)) {
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
  const std::size_t count = std::min(to_remove.size(), remote::kItemsMax);
  for (std::size_t i = 0; i < count; ++i) items.push_back({to_remove[i], {}});
  const bool started = start(RemoteVerb::kRemove, std::move(items), {}, [this](const auto& results) {
    for (const RemoteResult& result : results) stats.removed_objects += result.outcome == RemoteOutcome::kOk;
  });
  if (!started) return 0;
  to_remove.erase(to_remove.begin(), to_remove.begin() + static_cast<std::ptrdiff_t>(count));
  return 1;
}

}  // namespace tiercel
