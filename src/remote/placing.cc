// Where objects lie while they move: in the exchange, or where their records stand.

#include <algorithm>

#include "remote/tier_state.h"

namespace tiercel {

using remote::ObjectPlace;
using remote::ObjectRecord;
using remote::ShardPlace;

namespace {

// A connector's request has room for many more; beyond these records go through the exchange.
constexpr std::size_t kObjectPiecesMax = 2048, kRecordPiecesMax = 64;

void add_exchange_piece(ShardPlace& shard, std::uint64_t length) {
  if (!shard.pieces.empty() && shard.pieces.back().region == 0)  // it ends where the area does so far
    shard.pieces.back().length += length;
  else
    shard.pieces.push_back({0, shard.area.length, length});
  shard.area.length += length;
}

}  // namespace

// The first `length` bytes of a record as pieces of the node's own memory; none: it goes through the
// exchange.
std::vector<RemotePiece> RemoteTier::State::reach(const std::vector<BlockPiece>& record,
                                                  std::uint64_t length) const {
  std::vector<RemotePiece> pieces;
  std::uint64_t left = length;
  for (const BlockPiece& piece : record) {
    const std::uint64_t part = std::min(left, piece.length);
    if (part == 0) break;
    const std::optional<RemotePiece> own = store.reach(piece.data, part);
    if (!own) return {};
    pieces.push_back(*own);
    left -= part;
  }
  // Each piece costs a request.
  if (left != 0 || length / options.direct_bytes < pieces.size() || pieces.size() > kRecordPiecesMax)
    return {};
  return pieces;
}

std::uint64_t RemoteTier::State::run_bytes(const remote::RunName& run) const {
  const remote::TierSpace& space = space_of(run.space);
  const remote::Bundle& bundle = space.objects.bundles[run.bundle.value()];
  std::uint64_t bytes = 0;
  for (std::uint16_t shard = 0; shard < bundle.shards; ++shard)
    bytes += remote::object_bytes(space.objects, bundle, run.pages, ShardId(shard));
  return bytes;
}

bool RemoteTier::State::place(const remote::RunName& run, const Owner& owner, ObjectPlace& place) {
  const remote::TierSpace& space = space_of(run.space);
  const remote::Bundle& bundle = space.objects.bundles[run.bundle.value()];
  place = {};
  std::size_t pieces = 0;
  for (std::uint16_t shard = 0; shard < bundle.shards; ++shard) {
    ShardPlace placed;
    add_exchange_piece(placed, remote::kObjectHeaderBytes);
    placed.bytes = remote::object_bytes(space.objects, bundle, run.pages, ShardId(shard));
    for (const ObjectRecord& record :
         remote::object_records(space.objects, bundle, run.pages, ShardId(shard))) {
      const bool large = record.length >= options.direct_bytes && pieces < kObjectPiecesMax;
      const RemoteEntry* entry = large ? owner(record) : nullptr;
      const std::vector<RemotePiece> own =
          entry == nullptr ? std::vector<RemotePiece>() : reach(entry->shards[shard], record.length);
      place.direct_bytes += own.empty() ? 0 : record.length;
      placed.from_area.push_back(own.empty() ? std::optional(placed.area.length) : std::nullopt);
      if (own.empty()) add_exchange_piece(placed, record.length);
      placed.pieces.insert(placed.pieces.end(), own.begin(), own.end());
      pieces += own.size() + 1;
    }
    const std::optional<remote::Area> area = exchange.take(placed.area.length);
    if (!area) {
      give_back(place);
      return false;
    }
    placed.area = *area;
    for (RemotePiece& piece : placed.pieces)
      if (piece.region == 0) piece.offset += area->offset;
    place.bytes += placed.bytes;
    place.shards.push_back(std::move(placed));
  }
  return true;
}

void RemoteTier::State::give_back(ObjectPlace& place) {
  for (const ShardPlace& shard : place.shards) exchange.give_back(shard.area);
  place.shards.clear();
}

void RemoteTier::State::add_items(const remote::RunName& run, const remote::ObjectSpace& space,
                                  const ObjectPlace& place, std::vector<RemoteItem>& items,
                                  std::vector<remote::Area>& areas) const {
  for (std::size_t shard = 0; shard < place.shards.size(); ++shard) {
    const ShardId id(static_cast<std::uint16_t>(shard));
    items.push_back(
        {remote::object_name({space, run.last, run.bundle, run.pages, id}), place.shards[shard].pieces});
    areas.push_back(place.shards[shard].area);
  }
}

}  // namespace tiercel
