#include "memory/shelves.h"

#include <bit>

#include <fmt/format.h>

#include "base/check.h"
#include "base/checked.h"

namespace tiercel {

namespace {
constexpr std::uint32_t kWordBits = 64;

// Calls visit(position) for each set bit among `words`, ascending, until it returns false.
template <typename Visit>
bool for_each_bit(const std::uint64_t* words, std::uint32_t count, const Visit& visit) {
  for (std::uint32_t word = 0; word < count; ++word)
    for (std::uint64_t rest = words[word]; rest != 0; rest &= rest - 1)
      if (!visit(word * kWordBits + static_cast<std::uint32_t>(std::countr_zero(rest)))) return false;
  return true;
}
}  // namespace

Shelves::Shelves(std::uint32_t slots_per_shelf)
    : slots_per_shelf_(slots_per_shelf),
      words_per_shelf_(static_cast<std::uint32_t>(ceil_div(slots_per_shelf, kWordBits))),
      heads_(static_cast<std::size_t>(slots_per_shelf) + 1, kNone) {
  TIERCEL_CHECK(slots_per_shelf >= 1);
}

std::optional<std::uint32_t> Shelves::take() {
  const std::optional<std::uint32_t> fullest = counts_with_room_.last();
  if (!fullest) return std::nullopt;
  return take_from(heads_[*fullest]);
}

std::uint32_t Shelves::add_and_take(std::uint32_t extent) {
  std::uint32_t shelf = 0;
  if (vacant_.empty()) {
    shelf = static_cast<std::uint32_t>(shelves_.size());
    TIERCEL_CHECK((static_cast<std::uint64_t>(shelf) + 1) * slots_per_shelf_ <= UINT32_MAX);
    shelves_.emplace_back();
    bits_.resize(bits_.size() + words_per_shelf_, 0);
  } else {
    shelf = vacant_.back();
    vacant_.pop_back();
  }
  shelves_[shelf] = Shelf{extent, 0, kNone, kNone};
  link(shelf);
  return take_from(shelf);
}

std::optional<std::uint32_t> Shelves::give_back(std::uint32_t slot) {
  TIERCEL_CHECK(in_use(slot));
  const std::uint32_t shelf = slot / slots_per_shelf_;
  const std::uint32_t position = position_of(slot);
  unlink(shelf);
  bits_[shelf * std::size_t{words_per_shelf_} + position / kWordBits] &= ~(1ULL << (position % kWordBits));
  --shelves_[shelf].used;
  --used_;
  if (shelves_[shelf].used > 0) {
    link(shelf);
    return std::nullopt;
  }
  const std::uint32_t extent = shelves_[shelf].extent;
  shelves_[shelf] = Shelf{};
  vacant_.push_back(shelf);
  return extent;
}

bool Shelves::in_use(std::uint32_t slot) const {
  const std::uint32_t shelf = slot / slots_per_shelf_;
  const std::uint32_t position = position_of(slot);
  return shelf < shelves_.size() &&
         ((bits_[shelf * std::size_t{words_per_shelf_} + position / kWordBits] >> (position % kWordBits)) &
          1) != 0;
}

bool Shelves::all_movable(std::uint32_t shelf, const Movable& movable) const {
  return for_each_bit(&bits_[shelf * std::size_t{words_per_shelf_}], words_per_shelf_,
                      [&](std::uint32_t position) { return movable(shelf * slots_per_shelf_ + position); });
}

std::optional<std::uint32_t> Shelves::emptiest(std::uint64_t used_max, const Movable& movable) const {
  for (auto used = counts_with_room_.first(); used && *used <= used_max;
       used = counts_with_room_.first_from(*used + 1))
    for (std::uint32_t shelf = heads_[*used]; shelf != kNone; shelf = shelves_[shelf].next)
      if (all_movable(shelf, movable)) return shelf;
  if (used_max < slots_per_shelf_) return std::nullopt;
  for (std::uint32_t shelf = heads_[slots_per_shelf_]; shelf != kNone; shelf = shelves_[shelf].next)
    if (all_movable(shelf, movable)) return shelf;
  return std::nullopt;
}

std::vector<std::pair<std::uint32_t, std::uint32_t>> Shelves::take_for_drain(std::uint32_t shelf) {
  TIERCEL_CHECK(free_slots() >= slots_per_shelf_);
  std::vector<std::pair<std::uint32_t, std::uint32_t>> moves;
  moves.reserve(shelves_[shelf].used);
  unlink(shelf);  // so that none of its own slots is taken
  for_each_bit(&bits_[shelf * std::size_t{words_per_shelf_}], words_per_shelf_, [&](std::uint32_t position) {
    const std::optional<std::uint32_t> target = take();
    TIERCEL_CHECK(target.has_value());
    moves.emplace_back(shelf * slots_per_shelf_ + position, *target);
    return true;
  });
  link(shelf);
  return moves;
}

void Shelves::for_each_used(const std::function<void(std::uint32_t slot)>& visit) const {
  for (std::uint32_t shelf = 0; shelf < shelves_.size(); ++shelf)
    for_each_bit(&bits_[shelf * std::size_t{words_per_shelf_}], words_per_shelf_,
                 [&](std::uint32_t position) {
                   visit(shelf * slots_per_shelf_ + position);
                   return true;
                 });
}

void Shelves::for_each_extent(const std::function<void(std::uint32_t extent)>& visit) const {
  for (const Shelf& shelf : shelves_)
    if (shelf.extent != kNone) visit(shelf.extent);
}

std::optional<std::string> Shelves::inconsistency() const {
  std::uint64_t used = 0;
  for (std::uint32_t shelf = 0; shelf < shelves_.size(); ++shelf) {
    std::uint32_t bits = 0;
    for_each_bit(&bits_[shelf * std::size_t{words_per_shelf_}], words_per_shelf_,
                 [&](std::uint32_t position) { return ++bits, position < slots_per_shelf_; });
    if (bits != shelves_[shelf].used)
      return fmt::format("shelf {} counts {} used slots, its bits say {}", shelf, shelves_[shelf].used, bits);
    if ((shelves_[shelf].extent != kNone) != (bits > 0))
      return fmt::format("shelf {} with {} used slots is {}", shelf, bits,
                         bits > 0 ? "vacant" : "kept empty");
    used += bits;
  }
  if (used != used_) return fmt::format("{} used slots are counted, the shelves hold {}", used_, used);
  std::uint64_t listed = 0;
  for (std::uint32_t count = 0; count < heads_.size(); ++count) {
    if (count < slots_per_shelf_ && counts_with_room_.contains(count) != (heads_[count] != kNone))
      return fmt::format("the list of shelves with {} used slots and its summary differ", count);
    for (std::uint32_t shelf = heads_[count]; shelf != kNone; shelf = shelves_[shelf].next, ++listed)
      if (shelves_[shelf].used != count || listed > shelves_.size())
        return fmt::format("shelf {} stands in the list of another count ({})", shelf, count);
  }
  if (listed != this->count()) return fmt::format("{} shelves are listed of {}", listed, this->count());
  return std::nullopt;
}

void Shelves::link(std::uint32_t shelf) {
  const std::uint32_t used = shelves_[shelf].used;
  const std::uint32_t next = heads_[used];
  shelves_[shelf].previous = kNone;
  shelves_[shelf].next = next;
  if (next != kNone)
    shelves_[next].previous = shelf;
  else if (used < slots_per_shelf_)
    counts_with_room_.insert(used);
  heads_[used] = shelf;
}

void Shelves::unlink(std::uint32_t shelf) {
  const auto [extent, used, previous, next] = shelves_[shelf];
  if (next != kNone) shelves_[next].previous = previous;
  if (previous != kNone)
    shelves_[previous].next = next;
  else
    heads_[used] = next;
  if (heads_[used] == kNone && used < slots_per_shelf_) counts_with_room_.erase(used);
}

std::uint32_t Shelves::take_from(std::uint32_t shelf) {
  std::uint64_t* words = &bits_[shelf * std::size_t{words_per_shelf_}];
  std::uint32_t word = 0;
  while (words[word] == ~0ULL) ++word;
  const std::uint32_t position = word * kWordBits + static_cast<std::uint32_t>(std::countr_one(words[word]));
  TIERCEL_CHECK(position < slots_per_shelf_);
  unlink(shelf);
  words[word] |= 1ULL << (position % kWordBits);
  ++shelves_[shelf].used;
  ++used_;
  link(shelf);
  return shelf * slots_per_shelf_ + position;
}

}  // namespace tiercel
