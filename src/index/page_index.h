// Where pages are found by key, behind one small interface: the control plane's only way to a page.
//
// An index maps (space, key) to a page number, and tells readers what they need to use a page without asking
// anybody: which records of it are resident and where they lie. Two bodies: `CompactIndex` (compact_index.h),
// in one block of memory that other processes may map and read; `ModelIndex` (model_index.h), a plain map
// that says the same in the simplest way and is compared with it at every step of the simulator.
//
// A *space* is one namespace between two clears: clearing gives the namespace a new space, so that nothing
// old is found under it. A *set number* names one shard's record of a page: shard 0 of class c is c, the
// other shards follow (`StorageForm` order).
//
// Threads: one thread (the control thread). Readers in other threads and processes: index_view.h.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/ids.h"
#include "index/lease_table.h"
#include "model/key_chain.h"

namespace tiercel {

using SpaceId = Id<struct SpaceTag, std::uint32_t>;          // 0 = none
using PageNumber = Id<struct PageNumberTag, std::uint32_t>;  // dense, reused after erase
using SetNumber = Id<struct SetNumberTag, std::uint8_t>;     // one shard's record of a page

inline constexpr std::uint64_t kSetsMax = 256;  // records of one page: shards of all its classes
inline constexpr std::uint32_t kNoPage = UINT32_MAX;

// One page as it stands in an index, for audits and comparisons.
struct IndexedPage {
  SpaceId space;
  Key key;
  bool visible = false;
  std::vector<std::pair<SetNumber, SlotAddress>> sets;  // ascending
  std::uint8_t children = 0;                            // visible ones, 255 = that many or more
  std::uint32_t last_use = 0;                           // see touch()
  friend bool operator==(const IndexedPage&, const IndexedPage&) = default;
};

class PageIndex {
 public:
  virtual ~PageIndex() = default;

  // Visible or not. Cost: O(1).
  virtual std::optional<PageNumber> find(SpaceId space, const Key& key) const = 0;
  // numbers[i]: of keys[i], or kNoPage. keys are pages first_page, first_page + 1, … of one chain, as far as
  // they are there: then neighbours are found together; any other keys are found too, slower. Requires: as
  // many numbers as keys.
  virtual void find_chain(SpaceId space, std::uint64_t first_page, std::span<const Key> keys,
                          std::span<std::uint32_t> numbers) const = 0;

  // These keys will be inserted or found soon: their places may be fetched. Changes nothing.
  virtual void expect(SpaceId space, std::span<const Key> keys) const = 0;
  // Whether `pages` more can be inserted and `sets` more put that are not set 0, whatever their keys and
  // pages.
  virtual bool has_room(std::uint64_t pages, std::uint64_t sets) const = 0;
  // A page that is not visible and has no set. `chain_page` is its number in its chain, counted from 0 (any
  // number where it is not known); `parent` the page before it, if that is here: children are kept beside
  // their parents. Requires: has_room(1, 0), or the place beside the parent is free; (space, key) is not
  // here.
  virtual PageNumber insert(SpaceId space, const Key& key, std::uint64_t chain_page,
                            std::optional<PageNumber> parent) = 0;
  // Requires: the page has no set.
  virtual void erase(PageNumber page) = 0;

  // Readers see the record from now on, if the page is visible. A record that is there gets the new address.
  // False: no room for one more (has_room(0, 1) was false); nothing changed.
  virtual bool put_set(PageNumber page, SetNumber set, SlotAddress address) = 0;
  // No reader can lease it from now on (one that has leased it before keeps it).
  virtual void drop_set(PageNumber page, SetNumber set) = 0;
  virtual void set_visible(PageNumber page, bool visible) = 0;
  // From freeze to thaw no reader can lease the page, so that its records may be moved; move_set is put_set
  // of a record that is there, in between. Frozen pages may share a strip: each call may come once for every
  // page.
  virtual void freeze(PageNumber page) = 0;
  virtual void move_set(PageNumber page, SetNumber set, SlotAddress address) = 0;
  virtual void thaw(PageNumber page) = 0;
  // What leases of readers call the page's cell (lease_table.h).
  virtual LeaseName lease_name(PageNumber page) const = 0;
  virtual void set_children(PageNumber page, std::uint32_t visible_children) = 0;
  // The page was used by request `sequence` (counted up by one a request); recency never goes back. Kept
  // exactly for 255 requests after its neighbours' last use, then as "at least so long ago".
  virtual void touch(PageNumber page, std::uint64_t sequence) = 0;
  // The namespace or form with this id was cleared: readers use nothing that they found under it before.
  virtual void bump_mark(std::uint32_t id) = 0;
  virtual std::uint32_t mark(std::uint32_t id) const = 0;  // as it stands now

  virtual std::uint64_t pages() const = 0;
  virtual IndexedPage read(PageNumber page) const = 0;
  // Every page, in no order. Cost: O(all).
  virtual std::vector<PageNumber> all_pages() const = 0;
  // What the index finds wrong with itself, or nothing. Cost: O(all).
  virtual std::optional<std::string> inconsistency() const = 0;
  virtual std::uint64_t bytes() const = 0;  // of memory, all of it
};

}  // namespace tiercel
