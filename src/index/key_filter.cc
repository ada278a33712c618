#include "index/key_filter.h"

#include <algorithm>

#include "base/checked.h"
#include "base/prng.h"

namespace tiercel {
namespace {

constexpr int kProbes = 8;  // the best count for 12 bits an entry is 12 ln 2 = 8.3
constexpr std::uint64_t kWordBits = 64;

// Scales 64 bits of hash to a bit of the half without a division.
std::uint64_t bit_of(std::uint64_t hash, std::uint64_t words) {
  const std::uint64_t bits = words * kWordBits;
  return static_cast<std::uint64_t>((static_cast<Uint128>(hash) * bits) >> 64);
}

}  // namespace

KeyFilter::KeyFilter(std::uint64_t entries, std::uint64_t bits_per_entry) : entries_(entries) {
  const std::uint64_t words = ceil_div(entries * bits_per_entry, kWordBits);
  for (Half& half : halves_) half.words.assign(words, 0);
}

KeyFilter::Probes KeyFilter::probes_of(NamespaceId ns, const Key& key) {
  const std::uint64_t salt = mix64(ns.value() + 0x9E3779B97F4A7C15ULL);
  return {mix64(key.words[0] ^ salt), mix64(key.words[1] + salt) | 1};
}

bool KeyFilter::half_contains(const Half& half, Probes probes) {
  std::uint64_t hash = probes.first;
  for (int i = 0; i < kProbes; ++i, hash += probes.step) {
    const std::uint64_t bit = bit_of(hash, half.words.size());
    if ((half.words[bit / kWordBits] >> (bit % kWordBits) & 1) == 0) return false;
  }
  return true;
}

void KeyFilter::add(NamespaceId ns, const Key& key, Time now) {
  if (entries_ == 0) return;
  const Probes probes = probes_of(ns, key);
  // A key of the older half is added again: that half is the next to go.
  if (half_contains(halves_[newer_], probes)) return;
  if (halves_[newer_].keys == entries_) {
    newer_ = 1 - newer_;
    Half& emptied = halves_[newer_];
    std::fill(emptied.words.begin(), emptied.words.end(), 0);
    emptied.keys = 0;
    // Keys of this very moment stand in both halves; the promise starts with the next one.
    emptied.start = now + Time{1};
  }
  Half& half = halves_[newer_];
  ++half.keys;
  std::uint64_t hash = probes.first;
  for (int i = 0; i < kProbes; ++i, hash += probes.step) {
    const std::uint64_t bit = bit_of(hash, half.words.size());
    half.words[bit / kWordBits] |= std::uint64_t{1} << (bit % kWordBits);
  }
}

bool KeyFilter::contains(NamespaceId ns, const Key& key) const {
  if (entries_ == 0) return true;
  const Probes probes = probes_of(ns, key);
  return half_contains(halves_[newer_], probes) || half_contains(halves_[1 - newer_], probes);
}

std::uint64_t KeyFilter::bytes(std::uint64_t entries, std::uint64_t bits_per_entry) {
  return 2 * ceil_div(entries * bits_per_entry, kWordBits) * sizeof(std::uint64_t);
}

}  // namespace tiercel
