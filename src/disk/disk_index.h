// Where each class-set lies: a table of buckets of eight entries of 32 bytes; a key has two buckets, the
// emptier one takes a new entry, and nothing ever moves while the log runs. So a part of it can be copied
// while the rest changes, and the copy is the image on the drive: byte for byte, little-endian.
//
// Threads: one thread.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>

#include "base/bytes.h"
#include "base/ids.h"
#include "disk/disk_log.h"
#include "model/key_chain.h"
#include "os/mapping.h"

namespace tiercel::disk {

inline constexpr std::uint64_t kIndexEntryBytes = 32;
inline constexpr std::uint64_t kBucketEntries = 8;
// To plan for: two buckets of which the emptier is taken fill to about this before one is refused.
inline constexpr std::uint64_t kBucketEntriesPlanned = 6;
inline constexpr std::uint64_t kBucketBytes = kIndexEntryBytes * kBucketEntries;

// What one entry says. On the drive: key 16 · block u32 · space u32 · born u40 · class u8 · uses u8 · life
// u8. An entry of zeros is none (space 0).
struct IndexEntry {
  Key key;
  std::uint32_t space = 0;  // DiskSpaceId, never 0
  ClassId cls;              // below 256
  std::uint32_t block = 0;  // of shard 0's record, in blocks from the first region's start
  std::uint64_t born = 0;   // 40 bits
  std::uint8_t uses = 0;    // since written; stops at 255
  std::uint8_t life = 0;    // low byte of its region's life
  friend bool operator==(const IndexEntry&, const IndexEntry&) = default;
};

// As an entry keeps it of its region.
inline std::uint8_t low_byte(std::uint64_t life) { return static_cast<std::uint8_t>(life & 0xFF); }

class DiskIndex final {
 public:
  // All memory is claimed at once, on huge pages where they can be had. Errors: resource_exhausted;
  // invalid_argument for fewer than two buckets.
  static Result<DiskIndex> create(std::uint64_t buckets);

  std::uint64_t buckets() const { return buckets_; }
  std::uint64_t size() const { return size_; }
  std::uint64_t capacity() const { return buckets_ * kBucketEntries; }

  // False: both buckets are full; nothing changed. An entry of the same (space, key, class) is replaced; also
  // where it stands twice, as it may in an image that was copied while it went and came back.
  bool put(const IndexEntry& entry);
  // The same; where both buckets are full, one of their entries goes to its other bucket, if that has room.
  // While a log is opened, when nothing copies the table: the order in which it is filled then is another one
  // than that in which it was, and what had a place must find one.
  bool put_with_moves(const IndexEntry& entry);
  // False: not there.
  bool erase(DiskSpaceId space, const Key& key, ClassId cls);
  std::optional<IndexEntry> find(DiskSpaceId space, const Key& key, ClassId cls) const;
  // All classes of one page.
  struct Hits {
    std::array<IndexEntry, 2 * kBucketEntries> entries;
    std::size_t count = 0;
  };
  Hits find_all(DiskSpaceId space, const Key& key) const;
  void prefetch(const Key& key) const;  // its two buckets will be asked for
  // One more use, if it is there.
  void use(DiskSpaceId space, const Key& key, ClassId cls);

  // Walks buckets [first, first + count): entries for which `keep` is false are erased. Returns how many.
  std::uint64_t sweep(std::uint64_t first_bucket, std::uint64_t count,
                      const std::function<bool(const IndexEntry&)>& keep);
  void for_each(const std::function<void(const IndexEntry&)>& body) const;

  // The table's bytes from `offset` on, as they stand in the image.
  ByteView image(std::uint64_t offset, std::uint64_t length) const;
  // To be filled from an image, chunk by chunk; then each bucket is to be taken, once. Entries that make no
  // sense (space 0 with other bytes; in a bucket that is not theirs) and those for which `keep` is false are
  // taken for none. Cost of take(): one pass over its buckets. Requires: none of them was taken before.
  MutableByteView image_for_load(std::uint64_t offset, std::uint64_t length);
  void take(std::uint64_t first_bucket, std::uint64_t count,
            const std::function<bool(const IndexEntry&)>& keep);

 private:
  DiskIndex() = default;
  std::byte* bucket_at(std::uint64_t bucket) const { return table_ + bucket * kBucketBytes; }
  std::byte* entry_of(DiskSpaceId space, const Key& key, ClassId cls) const;  // null: not there
  std::byte* only_entry_of(DiskSpaceId space, const Key& key, ClassId cls);
  bool make_room_in(std::uint64_t bucket);
  Mapping memory_;
  std::byte* table_ = nullptr;
  std::uint64_t buckets_ = 0;
  std::uint64_t size_ = 0;
};

}  // namespace tiercel::disk
