#include "memory/space.h"

#include <algorithm>

#include <fmt/format.h>

#include "base/check.h"
#include "base/checked.h"
#include "base/fault.h"

namespace tiercel {

namespace {
std::uint64_t slots_used(const auto& slots) {
  return std::visit([](const auto& kind) { return kind.used(); }, slots);
}
}  // namespace

Space::Space(SpaceOptions options) : options_(options) {
  TIERCEL_CHECK(options.extent_bytes > 0);
  TIERCEL_CHECK(options.extents < kNone);
  TIERCEL_CHECK(checked_mul(options.extents, options.extent_bytes).has_value());
}

PoolId Space::add_pool(PoolSpec spec) {
  TIERCEL_CHECK(spec.slot_bytes > 0);
  const std::uint64_t per_extent =
      std::min(options_.extent_bytes / spec.slot_bytes, slots_per_extent_max(options_.extents));
  // More extents than the budget has are as good as too many: such a record never fits.
  const std::uint64_t per_slot =
      std::min<std::uint64_t>(ceil_div(spec.slot_bytes, options_.extent_bytes), kNone);
  if (per_extent > 0)
    pools_.push_back(Pool{spec, Shelves(static_cast<std::uint32_t>(per_extent)), std::nullopt, true});
  else
    pools_.push_back(Pool{spec, Chains{static_cast<std::uint32_t>(per_slot), {}, {}}, std::nullopt, true});
  return PoolId(static_cast<std::uint32_t>(pools_.size() - 1));
}

void Space::remove_pool(PoolId pool) {
  Pool& gone = at(pool);
  TIERCEL_CHECK(slots_used(gone.slots) == 0);
  gone.open = false;
  gone.slots = Chains{};
}

std::uint64_t Space::bytes_alone(std::uint64_t slot_bytes) const {
  return ceil_div(slot_bytes, options_.extent_bytes) * options_.extent_bytes;
}

bool Space::fits_alone(PoolId pool) const {
  return ceil_div(at(pool).spec.slot_bytes, options_.extent_bytes) <= options_.extents;
}

std::optional<SlotId> Space::allocate(PoolId pool) {
  if (extents_missing(pool) > 0) return std::nullopt;
  Pool& owner = at(pool);
  ++allocations_;
  if (TIERCEL_FAULT(slot_handed_out_twice) && allocations_ % 16 == 0)
    for (const auto& [used_by, slot] : slots_in_use())
      if (used_by == pool) return slot;
  bytes_used_ += owner.spec.slot_bytes;
  if (auto* chains = std::get_if<Chains>(&owner.slots)) return allocate_chain(pool, *chains);
  auto& shelves = std::get<Shelves>(owner.slots);
  if (const auto slot = shelves.take()) return SlotId(*slot);
  return SlotId(shelves.add_and_take(take_extent(pool)));
}

void Space::release(PoolId pool, SlotId slot) {
  Pool& owner = at(pool);
  if (TIERCEL_FAULT(slot_handed_out_twice) && !in_use(owner, slot)) return;
  if (TIERCEL_FAULT(release_forgets_bytes) && allocations_ % 8 == 0) return;
  TIERCEL_CHECK(in_use(owner, slot));
  bytes_used_ -= owner.spec.slot_bytes;
  if (auto* chains = std::get_if<Chains>(&owner.slots))
    release_chain(*chains, slot.value());
  else if (const auto emptied = std::get<Shelves>(owner.slots).give_back(slot.value()))
    free_extent(*emptied);
}

SlotAddress Space::address(PoolId pool, SlotId slot) const {
  const Pool& owner = at(pool);
  TIERCEL_CHECK(in_use(owner, slot));
  const std::uint64_t slots_max = slots_per_extent_max(options_.extents);
  if (const auto* shelves = std::get_if<Shelves>(&owner.slots))
    return SlotAddress(static_cast<std::uint32_t>(shelves->extent_of(slot.value()) * slots_max +
                                                  shelves->position_of(slot.value())));
  return SlotAddress(
      static_cast<std::uint32_t>(std::get<Chains>(owner.slots).first[slot.value()] * slots_max));
}

std::vector<ArenaSpan> Space::spans(PoolId pool, SlotId slot) const {
  const Pool& owner = at(pool);
  TIERCEL_CHECK(in_use(owner, slot));
  if (const auto* shelves = std::get_if<Shelves>(&owner.slots))
    return {{shelves->extent_of(slot.value()) * options_.extent_bytes +
                 shelves->position_of(slot.value()) * owner.spec.slot_bytes,
             owner.spec.slot_bytes}};
  std::vector<ArenaSpan> spans;
  std::uint64_t left = owner.spec.slot_bytes;
  for (std::uint32_t extent = std::get<Chains>(owner.slots).first[slot.value()]; extent != kNone;
       extent = extents_[extent].next) {
    const std::uint64_t offset = extent * options_.extent_bytes;
    const std::uint64_t length = std::min(left, options_.extent_bytes);
    if (!spans.empty() && spans.back().offset + spans.back().length == offset)
      spans.back().length += length;
    else
      spans.push_back({offset, length});
    left -= length;
  }
  return spans;
}

std::uint64_t Space::extents_missing(PoolId pool) const {
  const Pool& owner = at(pool);
  std::uint64_t wanted = 0;
  if (const auto* shelves = std::get_if<Shelves>(&owner.slots))
    wanted = shelves->free_slots() > 0 ? 0 : 1;
  else
    wanted = std::get<Chains>(owner.slots).extents_per_slot;
  return wanted - std::min(wanted, extents_free());
}

std::optional<std::vector<Move>> Space::plan_compaction(PoolId wanted_by, std::uint64_t bytes_max,
                                                        const Movable& movable, bool last_resort) {
  struct Found {
    PoolId pool;
    std::uint32_t shelf = 0;
    std::uint64_t bytes = 0;
  };
  std::optional<Found> best;
  for (std::uint32_t i = 0; i < pools_.size(); ++i) {
    const PoolId pool(i);
    const auto* shelves = std::get_if<Shelves>(&pools_[i].slots);
    // The records of one extent fit into the others' free slots exactly when a whole extent's worth is free.
    if (shelves == nullptr || pool == wanted_by || shelves->free_slots() < shelves->slots_per_shelf() ||
        !may_take(wanted_by, pool, last_resort))
      continue;
    const std::uint64_t slot_bytes = pools_[i].spec.slot_bytes;
    const std::uint64_t bytes_allowed = best ? std::min(bytes_max, best->bytes - 1) : bytes_max;
    const auto shelf = shelves->emptiest(bytes_allowed / slot_bytes,
                                         [&](std::uint32_t slot) { return movable(pool, SlotId(slot)); });
    if (shelf) best = Found{pool, *shelf, shelves->used_of(*shelf) * slot_bytes};
  }
  if (!best) return std::nullopt;
  std::vector<Move> moves;
  for (const auto& [from, to] : std::get<Shelves>(at(best->pool).slots).take_for_drain(best->shelf))
    moves.push_back({best->pool, SlotId(from), SlotId(to)});
  bytes_used_ += best->bytes;
  return moves;
}

bool Space::may_take(PoolId taker, PoolId owner, bool last_resort) const {
  if (last_resort || taker == owner) return true;
  const Pool& to = at(taker);
  if (to.lost_at && allocations_ - *to.lost_at < options_.take_back_operations &&
      slots_used(to.slots) >= to.spec.floor_slots)
    return false;
  const Pool& from = at(owner);
  std::uint64_t left = slots_used(from.slots);  // slots that its extents hold when it has given one
  if (const auto* shelves = std::get_if<Shelves>(&from.slots))
    left = shelves->count() * shelves->slots_per_shelf();
  const std::uint64_t lost =
      std::holds_alternative<Shelves>(from.slots) ? std::get<Shelves>(from.slots).slots_per_shelf() : 1;
  return left >= lost && left - lost >= from.spec.floor_slots;
}

PoolUse Space::use(PoolId pool) const {
  const Pool& owner = at(pool);
  PoolUse use;
  use.slots_used = slots_used(owner.slots);
  if (const auto* shelves = std::get_if<Shelves>(&owner.slots))
    use.extents_owned = shelves->count();
  else
    use.extents_owned = use.slots_used * std::get<Chains>(owner.slots).extents_per_slot;
  use.bytes_used = use.slots_used * owner.spec.slot_bytes;
  use.fragmentation_bytes = use.extents_owned * options_.extent_bytes - use.bytes_used;
  return use;
}

std::uint64_t Space::fragmentation_bytes() const { return bytes_owned() - bytes_used_; }

std::uint64_t Space::bytes_owned() const { return extents_owned_ * options_.extent_bytes; }

std::vector<std::pair<PoolId, SlotId>> Space::slots_in_use() const {
  std::vector<std::pair<PoolId, SlotId>> found;
  for (std::uint32_t i = 0; i < pools_.size(); ++i) {
    if (const auto* shelves = std::get_if<Shelves>(&pools_[i].slots)) {
      shelves->for_each_used([&](std::uint32_t slot) { found.emplace_back(PoolId(i), SlotId(slot)); });
      continue;
    }
    const auto& first = std::get<Chains>(pools_[i].slots).first;
    for (std::uint32_t slot = 0; slot < first.size(); ++slot)
      if (first[slot] != kNone) found.emplace_back(PoolId(i), SlotId(slot));
  }
  return found;
}

std::optional<std::string> Space::inconsistency() const {
  std::vector<bool> claimed(extents_.size(), false);
  std::uint64_t owned = 0;
  std::uint64_t used_bytes = 0;
  for (std::uint32_t i = 0; i < pools_.size(); ++i) {
    if (auto wrong = claim_all(i, claimed)) return fmt::format("pool {}: {}", i, *wrong);
    if (!pools_[i].open) continue;
    owned += use(PoolId(i)).extents_owned;
    used_bytes += use(PoolId(i)).bytes_used;
  }
  for (std::uint32_t extent = 0; extent < claimed.size(); ++extent)
    if (claimed[extent] == free_extents_.contains(extent))
      return fmt::format("extent {} is {}", extent,
                         claimed[extent] ? "owned and free" : "neither owned nor free");
  if (owned != extents_owned_)
    return fmt::format("{} extents are counted as owned, the pools have {}", extents_owned_, owned);
  if (used_bytes != bytes_used_)
    return fmt::format("{} bytes are counted as used, the pools have {}", bytes_used_, used_bytes);
  return std::nullopt;
}

std::optional<std::string> Space::claim_all(std::uint32_t pool, std::vector<bool>& claimed) const {
  std::optional<std::string> wrong;
  if (const auto* shelves = std::get_if<Shelves>(&pools_[pool].slots)) {
    wrong = shelves->inconsistency();
    shelves->for_each_extent([&](std::uint32_t extent) {
      if (!wrong) wrong = claim(extent, pool, claimed);
    });
    return wrong;
  }
  const auto& chains = std::get<Chains>(pools_[pool].slots);
  for (const std::uint32_t first : chains.first) {
    std::uint32_t length = 0;
    for (std::uint32_t extent = first; extent != kNone && !wrong; extent = extents_[extent].next, ++length)
      wrong = claim(extent, pool, claimed);
    if (!wrong && first != kNone && length != chains.extents_per_slot)
      wrong = fmt::format("a record has {} extents instead of {}", length, chains.extents_per_slot);
  }
  const auto vacant = static_cast<std::size_t>(std::count(chains.first.begin(), chains.first.end(), kNone));
  if (!wrong && vacant != chains.vacant.size())
    wrong = fmt::format("{} slots are free, {} are listed so", vacant, chains.vacant.size());
  return wrong;
}

std::optional<std::string> Space::claim(std::uint32_t extent, std::uint32_t owner,
                                        std::vector<bool>& claimed) const {
  if (extent >= extents_.size()) return fmt::format("extent {} was never used", extent);
  if (claimed[extent]) return fmt::format("extent {} is owned twice", extent);
  if (extents_[extent].owner != owner)
    return fmt::format("extent {} says that pool {} owns it", extent, extents_[extent].owner);
  claimed[extent] = true;
  return std::nullopt;
}

Space::Pool& Space::at(PoolId pool) { return const_cast<Pool&>(std::as_const(*this).at(pool)); }

const Space::Pool& Space::at(PoolId pool) const {
  TIERCEL_CHECK(pool.value() < pools_.size() && pools_[pool.value()].open);
  return pools_[pool.value()];
}

std::uint32_t Space::take_extent(PoolId pool) {
  std::uint32_t extent = 0;
  if (const auto returned = free_extents_.first()) {
    extent = *returned;
    free_extents_.erase(extent);
  } else {
    extent = static_cast<std::uint32_t>(extents_.size());
    TIERCEL_CHECK(extent < options_.extents);
    extents_.emplace_back();
  }
  const std::uint32_t before = extents_[extent].owner;
  if (before != kNone && before != pool.value()) pools_[before].lost_at = allocations_;
  extents_[extent] = {pool.value(), kNone};
  ++extents_owned_;
  return extent;
}

void Space::free_extent(std::uint32_t extent) {
  free_extents_.insert(extent);
  --extents_owned_;
}

SlotId Space::allocate_chain(PoolId pool, Chains& chains) {
  std::uint32_t slot = 0;
  if (chains.vacant.empty()) {
    slot = static_cast<std::uint32_t>(chains.first.size());
    chains.first.push_back(kNone);
  } else {
    slot = chains.vacant.back();
    chains.vacant.pop_back();
  }
  std::uint32_t last = kNone;
  for (std::uint32_t i = 0; i < chains.extents_per_slot; ++i) {
    const std::uint32_t extent = take_extent(pool);
    (last == kNone ? chains.first[slot] : extents_[last].next) = extent;
    last = extent;
  }
  return SlotId(slot);
}

void Space::release_chain(Chains& chains, std::uint32_t slot) {
  for (std::uint32_t extent = chains.first[slot]; extent != kNone;) {
    const std::uint32_t next = extents_[extent].next;
    free_extent(extent);
    extent = next;
  }
  chains.first[slot] = kNone;
  chains.vacant.push_back(slot);
}

bool Space::in_use(const Pool& pool, SlotId slot) const {
  if (const auto* shelves = std::get_if<Shelves>(&pool.slots)) return shelves->in_use(slot.value());
  const auto& first = std::get<Chains>(pool.slots).first;
  return slot.value() < first.size() && first[slot.value()] != kNone;
}

}  // namespace tiercel
