// Reading a compact index, from any thread of any process that has its memory, while its owner changes it.
//
// A strip is read under its version (a seqlock): what a reader took is used only if the version is even and
// the same afterwards. Every word is an atomic; payload is read with acquire, so that no fence is needed. The
// version is also the generation that a lease names (lease_table.h): a reader that wants the bytes publishes
// a lease on the cells and looks at the version once more.
//
// A page is reported only after its whole 128-bit key was compared. A reader that meets a change reads again,
// a few times, and then reports a miss: it never waits and never writes.
//
// Threads: const functions from any thread. Cost: O(pages / 16) random places for whole chains.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "index/compact_layout.h"
#include "index/page_index.h"

namespace tiercel {

struct FoundPage {
  std::uint32_t page = kNoPage;  // page number
  std::uint32_t generation = 0;  // of its strip when it was read
  std::uint64_t classes = 0;  // bit c: the set c of the page is there (shard 0 of class c, which are whole)
};

// The part of an index that only reads.
class IndexView final {
 public:
  // Requires: the memory outlives the view and is mapped at a multiple of 64. Errors: data_corrupt (not an
  // image, another format, sizes that do not fit `image`).
  static Result<IndexView> attach(ByteView image);

  // ---- for readers: visible pages only ----
  // found[i] belongs to keys[i], pages first_page, first_page + 1, … of a chain.
  void read_chain(SpaceId space, std::uint64_t first_page, std::span<const Key> keys,
                  std::span<FoundPage> found) const;
  // Where the record lay at the generation at which the page was found: a lease on that generation keeps it
  // there. Nothing: not there, or the strip has another generation by now (another page may stand in the
  // cell, also under a lease): look again.
  std::optional<SlotAddress> address(const FoundPage& found, SetNumber set) const;
  // The word that a lease on this page's cell looks at.
  const compact::Word& generation(PageNumber page) const {
    return strip(page.value() / compact::kCells).version;
  }
  // Grows when a namespace or form whose id falls on this mark is cleared: what was found before is not used.
  const compact::Word& mark(std::uint32_t id) const;

  // ---- for the owner: every page ----
  std::optional<SlotAddress> address(PageNumber page, SetNumber set) const;  // nothing: not there
  std::optional<PageNumber> find(SpaceId space, const Key& key) const;
  void find_chain(SpaceId space, std::uint64_t first_page, std::span<const Key> keys,
                  std::span<std::uint32_t> numbers) const;

  compact::Places places(SpaceId space, const Key& key) const;
  std::uint64_t other_place(std::uint64_t place, std::uint32_t tag) const;
  void prefetch_places(SpaceId space, const Key& key) const;
  const compact::Header& header() const { return *reinterpret_cast<const compact::Header*>(image_); }
  const compact::Strip& strip(std::uint64_t i) const { return at<compact::Strip>(plan_.strips)[i]; }
  const compact::Bucket& bucket(std::uint64_t i) const { return at<compact::Bucket>(plan_.buckets)[i]; }
  const compact::Row& row(std::uint64_t i) const { return at<compact::Row>(plan_.rows)[i]; }
  const compact::Single& single(std::uint64_t i) const { return at<compact::Single>(plan_.singles)[i]; }
  const compact::Plan& plan() const { return plan_; }

 private:
  template <typename T>
  const T* at(std::uint64_t offset) const {
    return reinterpret_cast<const T*>(image_ + offset);
  }
  bool is(std::uint32_t number, SpaceId space, const Key& key) const;
  std::uint32_t find_number(SpaceId space, const Key& key) const;
  std::uint32_t tagged(std::uint64_t place, std::uint32_t tag) const;
  void prefetch_row(std::uint32_t number) const;
  void prefetch_strip(std::uint32_t number) const;
  std::size_t take_run(SpaceId space, std::uint32_t number, std::span<const Key> keys,
                       std::span<FoundPage> found, bool owner) const;
  bool try_run(SpaceId space, std::uint32_t number, std::span<const Key> keys, std::span<FoundPage> found,
               bool owner, std::size_t& taken) const;
  void add_further_classes(const compact::Strip& strip,
                           std::array<std::uint64_t, compact::kCells>& classes) const;
  void walk(SpaceId space, std::uint64_t first_page, std::span<const Key> keys, std::span<FoundPage> found,
            bool owner) const;
  void walk_block(SpaceId space, std::uint32_t guessed, std::span<const Key> keys, std::span<FoundPage> found,
                  bool owner) const;

  const std::byte* image_ = nullptr;
  compact::Sizes sizes_;
  compact::Plan plan_;
  std::uint64_t seed_ = 0;
};

}  // namespace tiercel
