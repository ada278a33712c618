// Class-sets on their way to the store: gathered into runs, copied into the exchange, put.

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "base/check.h"
#include "base/fault.h"
#include "remote/tier_state.h"

namespace tiercel {

using remote::Area;
using remote::Bundle;
using remote::ObjectWrite;
using remote::PageBundle;
using remote::PageWrite;

namespace {

std::uint64_t bytes_of(const RemoteEntry& entry) {
  std::uint64_t bytes = 0;
  for (const auto& shard : entry.shards)
    for (const BlockPiece& piece : shard) bytes += piece.length;
  return bytes;
}

const RemoteEntry* entry_of(const ObjectWrite& object, const remote::ObjectRecord& record) {
  for (const auto& [append, entry] : object.pages[record.page].sets)
    if (entry.name.cls == record.cls) return &entry;
  return nullptr;
}

}  // namespace

bool RemoteTier::usable(RemoteSpaceId space) const {
  return !down() && state_->space_of(space).current.has_value();
}

RemoteAnswer RemoteTier::append(RemoteEntry entry) {
  State& s = *state_;
  if (down()) return {RemoteVerdict::kTierDown, {}};
  const remote::TierSpace& space = s.space_of(entry.name.space);
  if (!space.current) return {RemoteVerdict::kRateLimited, {}};
  s.want_fresh(space);
  const Bundle& bundle = space.objects.bundles[space.objects.bundle_of[entry.name.cls.value()].value()];
  const PageBundle name{entry.name.space, bundle.id, entry.name.key};
  if (s.known.find(name)) return {RemoteVerdict::kAlreadyThere, {}};
  const std::uint64_t largest = remote::object_bytes(space.objects, bundle, 1, ShardId(0)) * bundle.shards;
  if (largest + 4096ULL * bundle.shards > s.write_room()) return {RemoteVerdict::kTooLarge, {}};
  const std::uint64_t bytes = bytes_of(entry);
  if (s.stats.queued_bytes != 0 && s.stats.queued_bytes + bytes > s.exchange.size_bytes())
    return {RemoteVerdict::kRateLimited, {}};
  const auto [at, fresh] = s.gathering.try_emplace(name);
  PageWrite& page = at->second;
  if (fresh) {
    page.since = s.now();
    page.space = *space.current;
    s.gathering_order.push_back(name);
  }
  if (page.space != *space.current) return {RemoteVerdict::kRateLimited, {}};  // what waits goes first
  const Presence bit = Presence{1} << entry.name.cls.value();
  if ((page.classes & bit) != 0) return {RemoteVerdict::kAlreadyThere, {}};
  page.classes |= bit;
  page.parent = entry.parent;
  page.length = entry.length;
  page.bytes += bytes;
  s.stats.queued_bytes += bytes;
  const RemoteAppendId id(++s.last_id);
  page.sets.emplace_back(id, std::move(entry));
  return {RemoteVerdict::kAccepted, id};
}

// ---- runs ----

// The pages of the whole run that ends here, if all are here; else nothing.
std::vector<Key> RemoteTier::State::run_ending_at(const PageBundle& last) const {
  const Bundle& bundle = space_of(last.space).objects.bundles[last.bundle.value()];
  std::vector<Key> keys;
  Key key = last.key;
  std::uint64_t length = 0;
  for (std::uint32_t back = 0; back < bundle.run_pages; ++back) {
    const auto at = gathering.find({last.space, last.bundle, key});
    if (at == gathering.end() || !whole(at->second, bundle)) return {};
    if (at->second.space != space_of(last.space).current) return {};
    const PageWrite& page = at->second;
    if (back == 0 && (page.length == 0 || page.length % bundle.run_pages != 0)) return {};
    if (back != 0 && page.length + back != length) return {};
    if (back == 0) length = page.length;
    keys.push_back(key);
    key = page.parent;
  }
  std::reverse(keys.begin(), keys.end());
  return keys;
}

void RemoteTier::State::make_object(RemoteSpaceId space, const Bundle& bundle, std::vector<Key> keys) {
  ObjectWrite object;
  object.run = {space, bundle.id, keys.back(), static_cast<std::uint32_t>(keys.size())};
  object.space = *space_of(space).current;
  for (const Key& key : keys) {
    const auto at = gathering.find({space, bundle.id, key});
    object.bytes += at->second.bytes;
    object.pages.push_back(std::move(at->second));
    gathering.erase(at);
  }
  object.keys = std::move(keys);
  to_write.push_back(std::move(object));
}

// Whole runs at once, the rest when it has waited long enough. Cost: the pages that wait.
std::size_t RemoteTier::State::form_objects() {
  std::size_t formed = 0;
  std::deque<PageBundle> order = std::exchange(gathering_order, {});
  for (const PageBundle& name : order) {
    if (!gathering.contains(name)) continue;
    std::vector<Key> keys = run_ending_at(name);
    if (keys.empty()) continue;
    make_object(name.space, space_of(name.space).objects.bundles[name.bundle.value()], std::move(keys));
    ++formed;
  }
  for (const PageBundle& name : order) {
    const auto at = gathering.find(name);
    if (at == gathering.end()) continue;
    const remote::TierSpace& space = space_of(name.space);
    const Bundle& bundle = space.objects.bundles[name.bundle.value()];
    if (TIERCEL_FAULT(remote_write_outlives_clear)) {
      if (!space.current) {
        gathering_order.push_back(name);
        continue;
      }
      at->second.space = *space.current;
    }
    const bool current = space.current == at->second.space;
    const bool all = whole(at->second, bundle);
    const bool waits = !flush && current && later(at->second.since, options.gather_for) > now();
    if (waits && (bundle.run_pages != 1 || !all)) {
      gathering_order.push_back(name);
      continue;
    }
    ++formed;
    if (all && current) {
      make_object(name.space, bundle, {name.key});
      continue;
    }
    // Cleared since; or a part of what travels together: the rest has left, or is stored already.
    const PageWrite page = std::move(at->second);
    gathering.erase(at);
    lose_page(page, Status{Code::kCancelled, "remote: the page was cleared, or not whole"});
  }
  if (gathering.empty()) flush = false;
  return formed;
}

// ---- through the exchange ----

std::uint64_t RemoteTier::State::write_room() const {
  return static_cast<std::uint64_t>(options.write_share * static_cast<double>(exchange.size_bytes()));
}

std::size_t RemoteTier::State::pump_writes() {
  std::size_t done = form_objects();
  while (!to_put.empty() && writes.batches < options.writes_in_flight && put_objects()) ++done;
  // What is copied while batches are under way leaves with the next.
  const std::uint64_t ahead = std::min<std::uint64_t>(
      write_room(), batch_share(writes, options.writes_in_flight) * (options.writes_in_flight + 1ULL));
  // Reads first: what they wait for is not taken from them.
  while (!to_write.empty() && to_read.empty() && now_writing.size() < remote::kItemsMax) {
    ObjectWrite& object = to_write.front();
    const bool current = space_of(object.run.space).current == object.space;
    if (!current) {  // cleared meanwhile: nobody will look for it
      for (const PageWrite& page : object.pages) lose_page(page, remote::cleared_meanwhile());
      to_write.pop_front();
      continue;
    }
    const auto owner = [&object](const remote::ObjectRecord& record) { return entry_of(object, record); };
    if (writing_bytes != 0 && writing_bytes + run_bytes(object.run) > ahead) break;
    if (!place(object.run, owner, object.place)) break;
    writing_bytes += object.place.bytes;
    ++done;
    now_writing.splice(now_writing.end(), to_write, to_write.begin());
    copy_in(std::prev(now_writing.end()));
  }
  return done;
}

void RemoteTier::State::copy_in(std::list<ObjectWrite>::iterator object) {
  const remote::TierSpace& space = space_of(object->run.space);
  const Bundle& bundle = space.objects.bundles[object->run.bundle.value()];
  const std::uint64_t computation = random();
  std::vector<remote::MemoryCopy> pieces;
  for (std::size_t shard = 0; shard < object->place.shards.size(); ++shard) {
    const ShardId id(static_cast<std::uint16_t>(shard));
    const remote::ShardPlace& placed = object->place.shards[shard];
    std::byte* to = exchange_at(placed.area);
    remote::encode_object_header({object->space, object->run.last, object->run.bundle, object->run.pages, id},
                                 computation, placed.bytes, {to, remote::kObjectHeaderBytes});
    auto from_area = placed.from_area.begin();
    for (const remote::ObjectRecord& record :
         remote::object_records(space.objects, bundle, object->run.pages, id)) {
      const std::optional<std::uint64_t> at = *from_area++;
      const RemoteEntry* entry = entry_of(*object, record);
      if (at && entry != nullptr)
        remote::add_copies(to + *at, record.length, entry->shards[shard], false, pieces);
    }
  }
  copy(std::move(pieces), [this, object] { to_put.push_back(object); });
}

// What was copied meanwhile goes in one batch.
bool RemoteTier::State::put_objects() {
  std::vector<RemoteItem> items;
  std::vector<Area> areas;
  std::vector<std::list<ObjectWrite>::iterator> all;
  std::uint64_t bytes = 0;
  std::size_t pieces = 0;
  bool direct = false;
  const std::uint64_t share = batch_share(writes, options.writes_in_flight);
  for (const auto& object : to_put) {
    const bool room = items.size() < remote::kItemsMax && pieces < remote::kPiecesMax;
    if (!room || !may_leave(writes, share, bytes, object->place.bytes)) break;
    add_items(object->run, object->space, object->place, items, areas);
    for (const remote::ShardPlace& shard : object->place.shards) pieces += shard.pieces.size();
    bytes += object->place.bytes;
    direct |= object->place.direct_bytes != 0;
    all.push_back(object);
  }
  if (all.empty()) return false;
  const Time since = now();
  const std::size_t count = all.size();
  const auto ended = [=, this, all = std::move(all)](const std::vector<RemoteResult>& results) {
    note_back(writes, bytes, since, results);
    std::size_t next = 0;
    for (const auto& object : all) {
      const std::size_t shards = object->place.shards.size();
      end_write(object, std::span(results).subspan(next, shards));
      next += shards;
    }
  };
  if (!start(RemoteVerb::kPut, std::move(items), std::move(areas), ended, direct)) return false;
  note_left(writes, bytes);
  to_put.erase(to_put.begin(), to_put.begin() + static_cast<std::ptrdiff_t>(count));
  return true;
}

void RemoteTier::State::end_write(std::list<ObjectWrite>::iterator object,
                                  std::span<const RemoteResult> results) {
  Status status;
  for (const RemoteResult& result : results)
    if (status.ok()) status = remote::outcome_status(result.outcome, "an object was not stored");
  writing_bytes -= object->place.bytes;
  if (status.ok()) {
    ++stats.objects_written;
    stats.object_bytes_written += object->place.bytes;
    stats.direct_bytes += object->place.direct_bytes;
    known.not_absent(object->run);
  }
  const bool current = space_of(object->run.space).current == object->space;
  for (std::uint32_t i = 0; i < object->pages.size(); ++i) {
    const PageWrite& page = object->pages[i];
    if (!status.ok()) {
      lose_page(page, status);
      continue;
    }
    if (current) known.there({object->run.space, object->run.bundle, object->keys[i]}, {object->run, i});
    stats.queued_bytes -= page.bytes;
    for (const auto& [append, entry] : page.sets) {
      ++stats.writes;
      stats.written_bytes += bytes_of(entry);
      RemoteTierEvent event;
      event.kind = RemoteTierEvent::Kind::kWritten;
      event.append = append;
      give(std::move(event));
    }
  }
  now_writing.erase(object);
}

void RemoteTier::State::lose_page(const PageWrite& page, const Status& status) {
  if (!TIERCEL_FAULT(remote_budget_forgotten)) stats.queued_bytes -= page.bytes;
  for (const auto& [append, entry] : page.sets) {
    ++stats.writes_failed;
    RemoteTierEvent event;
    event.kind = RemoteTierEvent::Kind::kLost;
    event.append = append;
    event.status = status;
    give(std::move(event));
  }
}

// What is in a batch or being copied comes to its own end.
void RemoteTier::State::lose_all_writes(const Status& status) {
  const std::vector<RemoteResult> down(1, RemoteResult{RemoteOutcome::kDown, 0});
  for (const auto& object : std::exchange(to_put, {})) {
    give_back(object->place);
    end_write(object, down);
  }
  for (const auto& [name, page] : gathering) lose_page(page, status);
  gathering.clear();
  gathering_order.clear();
  for (const ObjectWrite& object : to_write)
    for (const PageWrite& page : object.pages) lose_page(page, status);
  to_write.clear();
}

}  // namespace tiercel
