// What was removed, for as long as the log may still hold something that was born before: pages one by one,
// namespaces and forms by one number each. Too many pages, and those of the namespace with the most become
// one clear of it: misses, never a return.
//
// Threads: one thread.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "base/bytes.h"
#include "base/ids.h"
#include "base/sha256.h"
#include "base/status.h"
#include "disk/disk_log.h"

namespace tiercel::disk {

class Removals final {
 public:
  explicit Removals(std::uint64_t pages_max) : pages_max_(pages_max) {}

  // Removals may come in any order; the higher number holds. Returns the namespace that was cleared to make
  // room, if one was.
  std::optional<DiskSpaceId> remove_page(DiskSpaceId space, const Key& key, std::uint64_t at);
  void clear_space(DiskSpaceId space, std::uint64_t at);  // its pages need not be remembered below `at`

  std::uint64_t cleared_at(DiskSpaceId space) const;   // 0: never
  std::uint64_t newest_page(DiskSpaceId space) const;  // highest removal of any page of it; 0: none
  std::uint64_t page_at(DiskSpaceId space, const Key& key) const;  // 0: not removed

  // Whether what was born then is dead, for a page found in the middle of a chain: any removal of its
  // namespace may be of one of its unknown ancestors.
  bool dead_in_middle(DiskSpaceId space, std::uint64_t born) const;
  // Walks a chain from its start: the highest removal of any page so far.
  // Lives: the removals stay, and as they are.
  class Walk {
   public:
    Walk(const Removals& removals, DiskSpaceId space);
    // Goes on to the next page; then whether something of that page born then is dead.
    void step(const Key& key);
    bool dead(std::uint64_t born) const { return born < beaten_; }

   private:
    const std::unordered_map<Key, std::uint64_t>* pages_;  // null: none of this namespace
    std::uint64_t beaten_;
  };

  // Nothing older than `oldest_born` can be in the log any more: forgets page removals below it.
  // Returns how many went. Cost: O(removals).
  std::size_t forget_below(std::uint64_t oldest_born);

  // Keeps so many from now on; what is more than that is folded, as in remove_page().
  void limit(std::uint64_t pages_max);

  std::uint64_t pages() const { return pages_; }
  std::uint64_t pages_max() const { return pages_max_; }
  std::uint64_t folded() const { return folded_; }

  // As part of an image's catalogue.
  void append_to(std::vector<std::byte>& out) const;
  static std::uint64_t bytes_max(std::uint64_t pages_max, std::uint64_t spaces);
  // Errors: data_corrupt. Returns: bytes read. Requires: empty.
  Result<std::uint64_t> load_from(ByteView bytes);

 private:
  struct Space {
    std::uint64_t cleared = 0;
    std::uint64_t newest_page = 0;
    std::unordered_map<Key, std::uint64_t> pages;  // when they were removed
  };
  Result<void> load_spaces(const std::byte* from, std::uint64_t count);
  Result<void> load_pages(const std::byte* from, std::uint64_t count);
  DiskSpaceId fold_fullest();
  const Space* find(DiskSpaceId space) const;  // null: nothing known

  std::uint64_t pages_max_;
  std::uint64_t pages_ = 0;  // of all namespaces
  std::uint64_t folded_ = 0;
  std::map<DiskSpaceId, Space> spaces_;
};

}  // namespace tiercel::disk
