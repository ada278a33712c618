#include "disk/disk_index.h"

#include <bit>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "base/checked.h"
#include "base/prng.h"

namespace tiercel::disk {
namespace {

// Where the fields of an entry stand, on the drive as in memory.
constexpr std::size_t kBlockAt = 16;
constexpr std::size_t kSpaceAt = 20;
constexpr std::size_t kBornAt = 24;
constexpr std::size_t kClassAt = 29;
constexpr std::size_t kUsesAt = 30;
constexpr std::uint64_t kBornMax = (1ULL << 40) - 1;

// What tells entries apart, in the form in which they lie there.
struct Wanted {
  std::uint64_t key0, key1;
  std::uint32_t space;
};

bool same_page(const std::byte* entry, const Wanted& wanted) {
  return load_le<std::uint64_t>(entry) == wanted.key0 && load_le<std::uint64_t>(entry + 8) == wanted.key1 &&
         load_le<std::uint32_t>(entry + kSpaceAt) == wanted.space;
}
bool is_free(const std::byte* entry) { return load_le<std::uint32_t>(entry + kSpaceAt) == 0; }

IndexEntry load(const std::byte* from) {
  IndexEntry entry;
  entry.key.words = {load_le<std::uint64_t>(from), load_le<std::uint64_t>(from + 8)};
  entry.block = load_le<std::uint32_t>(from + kBlockAt);
  entry.space = load_le<std::uint32_t>(from + kSpaceAt);
  const auto tail = load_le<std::uint64_t>(from + kBornAt);
  entry.born = tail & kBornMax;
  entry.cls = ClassId(static_cast<std::uint16_t>((tail >> 40) & 0xFF));
  entry.uses = static_cast<std::uint8_t>(tail >> 48);
  entry.life = static_cast<std::uint8_t>(tail >> 56);
  return entry;
}

void store(const IndexEntry& entry, std::byte* to) {
  store_le(to, entry.key.words[0]);
  store_le(to + 8, entry.key.words[1]);
  store_le(to + kBlockAt, entry.block);
  store_le(to + kSpaceAt, entry.space);
  store_le(to + kBornAt, entry.born | std::uint64_t{entry.cls.value()} << 40 |
                             std::uint64_t{entry.uses} << 48 | std::uint64_t{entry.life} << 56);
}

// Both buckets of a key; never the same one. The key's halves are mixed: external keys and tests may have
// less in them than a digest.
struct Pair {
  std::uint64_t first, second;
};
Pair buckets_of(const Key& key, std::uint64_t buckets) {
  const auto reduce = [](std::uint64_t hash, std::uint64_t bound) {
    return static_cast<std::uint64_t>((static_cast<Uint128>(hash) * bound) >> 64);
  };
  const std::uint64_t hash = mix64(key.words[0] ^ mix64(key.words[1] + 0x9E3779B97F4A7C15ULL));
  const std::uint64_t first = reduce(hash, buckets);
  const std::uint64_t step = reduce(mix64(hash ^ 0xC2B2AE3D27D4EB4FULL), buckets - 1);
  const std::uint64_t second = first + 1 + step;
  return {first, second < buckets ? second : second - buckets};
}

}  // namespace

Result<DiskIndex> DiskIndex::create(std::uint64_t buckets) {
  const auto bytes = checked_mul(buckets, kBucketBytes);
  if (buckets < 2 || !bytes)
    return error(Code::kInvalidArgument,
                 "disk index: buckets: wanted at least 2, and what memory can be addressed");
  DiskIndex index;
  MappingOptions options;
  options.bytes = *bytes;
  options.touch.threads = 1;
  TIERCEL_ASSIGN_OR_RETURN(index.memory_, Mapping::open(options));
  index.table_ = index.memory_.bytes().data();
  index.buckets_ = buckets;
  return index;
}

std::byte* DiskIndex::entry_of(DiskSpaceId space, const Key& key, ClassId cls) const {
  const Wanted wanted{key.words[0], key.words[1], space.value()};
  const Pair pair = buckets_of(key, buckets_);
  prefetch(key);
  for (const std::uint64_t bucket : {pair.first, pair.second}) {
    std::byte* const from = bucket_at(bucket);
    for (std::size_t i = 0; i < kBucketEntries; ++i) {
      std::byte* const entry = from + i * kIndexEntryBytes;
      if (same_page(entry, wanted) && std::to_integer<std::uint16_t>(entry[kClassAt]) == cls.value())
        return entry;
    }
  }
  return nullptr;
}

// Erases what else there is of it.
std::byte* DiskIndex::only_entry_of(DiskSpaceId space, const Key& key, ClassId cls) {
  std::byte* const only = entry_of(space, key, cls);
  if (only == nullptr) return nullptr;
  std::byte kept[kIndexEntryBytes];
  std::memcpy(kept, only, kIndexEntryBytes);
  std::memset(only, 0, kIndexEntryBytes);  // so that another one would be found
  while (std::byte* const other = entry_of(space, key, cls)) {
    std::memset(other, 0, kIndexEntryBytes);
    --size_;
  }
  std::memcpy(only, kept, kIndexEntryBytes);
  return only;
}

bool DiskIndex::put(const IndexEntry& entry) {
  TIERCEL_CHECK(entry.space != 0 && entry.cls.value() <= 0xFF && entry.born <= kBornMax);
  if (std::byte* const there = only_entry_of(DiskSpaceId(entry.space), entry.key, entry.cls)) {
    store(entry, there);
    return true;
  }
  const Pair pair = buckets_of(entry.key, buckets_);
  std::byte* place[2] = {nullptr, nullptr};
  std::size_t taken[2] = {0, 0};
  for (const std::size_t side : {std::size_t{0}, std::size_t{1}}) {
    std::byte* const from = bucket_at(side == 0 ? pair.first : pair.second);
    for (std::size_t i = 0; i < kBucketEntries; ++i) {
      std::byte* const at = from + i * kIndexEntryBytes;
      if (!is_free(at))
        ++taken[side];
      else if (place[side] == nullptr)
        place[side] = at;
    }
  }
  std::byte* const to = taken[1] < taken[0] ? place[1] : place[0];
  if (to == nullptr) return false;
  store(entry, to);
  ++size_;
  return true;
}

bool DiskIndex::put_with_moves(const IndexEntry& entry) {
  if (put(entry)) return true;
  const Pair pair = buckets_of(entry.key, buckets_);
  return (make_room_in(pair.first) || make_room_in(pair.second)) && put(entry);
}

// One of its entries goes to its other bucket. Requires: the bucket is full. False: there is no room there.
bool DiskIndex::make_room_in(std::uint64_t bucket) {
  for (std::size_t i = 0; i < kBucketEntries; ++i) {
    std::byte* const from = bucket_at(bucket) + i * kIndexEntryBytes;
    const Pair pair = buckets_of(load(from).key, buckets_);
    std::byte* to = bucket_at(pair.first == bucket ? pair.second : pair.first);
    for (std::size_t k = 0; k < kBucketEntries; ++k, to += kIndexEntryBytes) {
      if (!is_free(to)) continue;
      std::memcpy(to, from, kIndexEntryBytes);
      std::memset(from, 0, kIndexEntryBytes);
      return true;
    }
  }
  return false;
}

bool DiskIndex::erase(DiskSpaceId space, const Key& key, ClassId cls) {
  std::byte* const entry = only_entry_of(space, key, cls);
  if (entry == nullptr) return false;
  std::memset(entry, 0, kIndexEntryBytes);
  --size_;
  return true;
}

std::optional<IndexEntry> DiskIndex::find(DiskSpaceId space, const Key& key, ClassId cls) const {
  const std::byte* const entry = entry_of(space, key, cls);
  if (entry == nullptr) return std::nullopt;
  return load(entry);
}

DiskIndex::Hits DiskIndex::find_all(DiskSpaceId space, const Key& key) const {
  Hits hits;
  const Wanted wanted{key.words[0], key.words[1], space.value()};
  const Pair pair = buckets_of(key, buckets_);
  prefetch(key);
  for (const std::uint64_t bucket : {pair.first, pair.second}) {
    const std::byte* const from = bucket_at(bucket);
    for (std::size_t i = 0; i < kBucketEntries; ++i) {
      const std::byte* const entry = from + i * kIndexEntryBytes;
      if (same_page(entry, wanted)) hits.entries[hits.count++] = load(entry);
    }
  }
  return hits;
}

void DiskIndex::prefetch(const Key& key) const {
  const Pair pair = buckets_of(key, buckets_);
  for (const std::uint64_t bucket : {pair.first, pair.second})
    for (std::size_t line = 0; line < kBucketBytes; line += 64) __builtin_prefetch(bucket_at(bucket) + line);
}

void DiskIndex::use(DiskSpaceId space, const Key& key, ClassId cls) {
  std::byte* const entry = entry_of(space, key, cls);
  if (entry == nullptr || entry[kUsesAt] == std::byte{0xFF}) return;
  entry[kUsesAt] = static_cast<std::byte>(std::to_integer<int>(entry[kUsesAt]) + 1);
}

std::uint64_t DiskIndex::sweep(std::uint64_t first_bucket, std::uint64_t count,
                               const std::function<bool(const IndexEntry&)>& keep) {
  TIERCEL_CHECK(first_bucket <= buckets_ && count <= buckets_ - first_bucket);
  std::uint64_t erased = 0;
  std::byte* entry = bucket_at(first_bucket);
  for (std::uint64_t i = 0; i < count * kBucketEntries; ++i, entry += kIndexEntryBytes) {
    if (is_free(entry) || keep(load(entry))) continue;
    std::memset(entry, 0, kIndexEntryBytes);
    ++erased;
  }
  size_ -= erased;
  return erased;
}

void DiskIndex::for_each(const std::function<void(const IndexEntry&)>& body) const {
  const std::byte* entry = bucket_at(0);
  for (std::uint64_t i = 0; i < capacity(); ++i, entry += kIndexEntryBytes)
    if (!is_free(entry)) body(load(entry));
}

ByteView DiskIndex::image(std::uint64_t offset, std::uint64_t length) const {
  return memory_.view().first(buckets_ * kBucketBytes).subspan(offset, length);
}

MutableByteView DiskIndex::image_for_load(std::uint64_t offset, std::uint64_t length) {
  return memory_.bytes().first(buckets_ * kBucketBytes).subspan(offset, length);
}

void DiskIndex::take(std::uint64_t first_bucket, std::uint64_t count,
                     const std::function<bool(const IndexEntry&)>& keep) {
  TIERCEL_CHECK(first_bucket <= buckets_ && count <= buckets_ - first_bucket);
  for (std::uint64_t bucket = first_bucket; bucket < first_bucket + count; ++bucket) {
    std::byte* at = bucket_at(bucket);
    for (std::size_t i = 0; i < kBucketEntries; ++i, at += kIndexEntryBytes) {
      const IndexEntry entry = load(at);
      const Pair pair = buckets_of(entry.key, buckets_);
      const bool here = bucket == pair.first || bucket == pair.second;
      if (entry.space != 0 && here && keep(entry))
        ++size_;
      else
        std::memset(at, 0, kIndexEntryBytes);
    }
  }
}

}  // namespace tiercel::disk
