#include "index/key_filter.h"

#include <algorithm>

#include "base/checked.h"
#include "base/prng.h"

namespace tiercel {
namespace {

constexpr std::uint64_t kBlockBits = 512;

constexpr std::uint64_t kGoldenRatio = 0x9E3779B97F4A7C15ULL;

// Which bit of each word: six bits for each of the eight, independent of the block's number.
std::uint64_t bits_of(std::uint64_t mark) { return mix64(mark + kGoldenRatio); }

// The next word's bit; `bits` moves on.
std::uint64_t take_bit(std::uint64_t& bits) {
  const std::uint64_t bit = std::uint64_t{1} << (bits & 63);
  bits >>= 6;
  return bit;
}

}  // namespace

std::uint64_t page_mark(NamespaceId ns, const Key& key) {
  return mix64(mix64(key.words[0] ^ (ns.value() * kGoldenRatio)) + key.words[1]);
}

KeyFilter::KeyFilter(std::uint64_t entries, std::uint64_t bits_per_entry) : entries_(entries) {
  for (Half& half : halves_) half.blocks.resize(ceil_div(entries * bits_per_entry, kBlockBits));
}

// Scales 64 bits of hash to a block without a division.
std::size_t KeyFilter::block_of(std::uint64_t mark) const {
  return static_cast<std::size_t>((static_cast<Uint128>(mark) * halves_[0].blocks.size()) >> 64);
}

bool KeyFilter::block_contains(const Block& block, std::uint64_t bits) {
  for (const std::uint64_t word : block.words)
    if ((word & take_bit(bits)) == 0) return false;
  return true;
}

void KeyFilter::add(std::uint64_t mark, Time now) {
  if (entries_ == 0) return;
  const std::size_t number = block_of(mark);
  std::uint64_t bits = bits_of(mark);
  // A mark of the older half is added again: that half is the next to go.
  if (block_contains(halves_[newer_].blocks[number], bits)) return;
  if (halves_[newer_].keys == entries_) {
    newer_ = 1 - newer_;
    Half& emptied = halves_[newer_];
    std::fill(emptied.blocks.begin(), emptied.blocks.end(), Block{});
    emptied.keys = 0;
    // Marks of this very moment stand in both halves; the promise starts with the next one.
    emptied.start = now + Time{1};
  }
  Half& half = halves_[newer_];
  ++half.keys;
  for (std::uint64_t& word : half.blocks[number].words) word |= take_bit(bits);
}

bool KeyFilter::contains(std::uint64_t mark) const {
  if (entries_ == 0) return true;
  const std::size_t number = block_of(mark);
  const std::uint64_t bits = bits_of(mark);
  return block_contains(halves_[newer_].blocks[number], bits) ||
         block_contains(halves_[1 - newer_].blocks[number], bits);
}

std::uint64_t KeyFilter::bytes(std::uint64_t entries, std::uint64_t bits_per_entry) {
  return 2 * ceil_div(entries * bits_per_entry, kBlockBits) * sizeof(Block);
}

}  // namespace tiercel
