// The page index at memory speed: 28 bytes a page where chains are long, in one block of memory that readers
// of other processes use without a call (index_view.h). Layout: compact_layout.h.
//
// Bytes: 376 for a strip of up to 16 pages and 4.5 for a page's bucket entry, so 28 a page in whole chains;
// 8 or less for each further set of a page (a row of 72 bytes serves nine or more; below that singles of 8).
// A strip with few pages takes as much as a full one: chains that end or part inside a block of 16 cost
// more.
//
// Threads: one writer thread; readers as in index_view.h. Cost: every call visits at most two buckets (where
// both are full, the other buckets of their 32 entries too), one strip, and the further sets of that strip at
// most three times, where a row is made once for each cell; counted by visited().
#pragma once

#include <memory>

#include "index/index_view.h"

namespace tiercel {

class CompactIndex final : public PageIndex {
 public:
  // Writes an empty image into `memory`. Requires: zeroed, at a multiple of 64, and outlives the index.
  // Errors: invalid_argument (sizes; memory too small: wanted, got).
  static Result<std::unique_ptr<CompactIndex>> create(MutableByteView memory, const compact::Sizes& sizes,
                                                      std::uint64_t seed);
  // The same in memory of its own.
  static Result<std::unique_ptr<CompactIndex>> create(const compact::Sizes& sizes, std::uint64_t seed);
  ~CompactIndex() override;

  std::optional<PageNumber> find(SpaceId space, const Key& key) const override {
    return view_.find(space, key);
  }
  void find_chain(SpaceId space, std::uint64_t first_page, std::span<const Key> keys,
                  std::span<std::uint32_t> numbers) const override {
    view_.find_chain(space, first_page, keys, numbers);
  }
  void expect(SpaceId space, std::span<const Key> keys) const override;
  bool has_room(std::uint64_t pages, std::uint64_t sets) const override;
  PageNumber insert(SpaceId space, const Key& key, std::uint64_t chain_page,
                    std::optional<PageNumber> parent) override;
  void erase(PageNumber page) override;
  bool put_set(PageNumber page, SetNumber set, SlotAddress address) override;
  void drop_set(PageNumber page, SetNumber set) override;
  void set_visible(PageNumber page, bool visible) override;
  void freeze(PageNumber page) override;
  void move_set(PageNumber page, SetNumber set, SlotAddress address) override;
  void thaw(PageNumber page) override;
  LeaseName lease_name(PageNumber page) const override;
  void set_children(PageNumber page, std::uint32_t visible_children) override;
  void touch(PageNumber page, std::uint64_t sequence) override;
  void bump_mark(std::uint32_t id) override;
  std::uint32_t mark(std::uint32_t id) const override { return view_.mark(id).load(); }
  std::uint64_t pages() const override { return pages_; }
  IndexedPage read(PageNumber page) const override;
  std::vector<PageNumber> all_pages() const override;
  std::optional<std::string> inconsistency() const override;
  std::uint64_t bytes() const override { return view_.plan().bytes; }

  const IndexView& view() const { return view_; }
  ByteView image() const { return {memory_.data(), view_.plan().bytes}; }
  std::uint64_t strips_used() const { return strips_used_; }
  std::uint64_t strips_retired() const { return strips_retired_; }
  std::uint64_t rows_used() const { return rows_used_; }
  std::uint64_t singles_used() const { return singles_used_; }
  std::uint64_t visited() const { return visited_; }  // buckets, strips and links looked at by changes

 private:
  class Change;
  struct FreeList {
    std::uint32_t head = 0;   // + 1; 0 = none
    std::uint64_t fresh = 0;  // the first never used
  };

  explicit CompactIndex(MutableByteView memory, IndexView view) : memory_(memory), view_(view) {}
  compact::Header& header() { return *reinterpret_cast<compact::Header*>(memory_.data()); }
  compact::Strip& strip(std::uint64_t i) { return const_cast<compact::Strip&>(view_.strip(i)); }
  compact::Bucket& bucket(std::uint64_t i) { return const_cast<compact::Bucket&>(view_.bucket(i)); }
  compact::Row& row(std::uint64_t i) { return const_cast<compact::Row&>(view_.row(i)); }
  compact::Single& single(std::uint64_t i) { return const_cast<compact::Single&>(view_.single(i)); }

  template <typename NextFree>
  std::optional<std::uint32_t> take(FreeList& list, std::uint64_t most, const NextFree& next_free);
  std::optional<std::uint32_t> take_strip(SpaceId space);
  void give_back_strip(std::uint32_t index);
  void enter(SpaceId space, const Key& key, std::uint32_t number);
  bool enter_bucket(std::uint64_t place, std::uint32_t entry);
  bool make_place(std::uint64_t place);
  void leave(SpaceId space, const Key& key, std::uint32_t number);
  bool put_further(compact::Strip& at, std::uint32_t cell, std::uint32_t set, std::uint32_t address);
  bool replace_further(compact::Strip& at, std::uint32_t cell, std::uint32_t set, std::uint32_t address);
  bool add_row(compact::Strip& at, std::uint32_t set);
  bool add_single(compact::Strip& at, std::uint32_t cell, std::uint32_t set, std::uint32_t address);
  void drop_further(compact::Strip& at, std::uint32_t cell, std::uint32_t set);
  std::uint32_t count_singles(const compact::Strip& at, std::uint32_t set);
  Key key_at(std::uint32_t number) const;

  std::unique_ptr<std::byte, void (*)(void*)> own_{nullptr, nullptr};
  MutableByteView memory_;
  IndexView view_;
  std::uint64_t pages_ = 0, strips_used_ = 0, strips_retired_ = 0, rows_used_ = 0, singles_used_ = 0;
  std::uint64_t visited_ = 0;
  std::uint32_t newest_use_ = 0;  // lowest bits of the latest sequence
  FreeList free_strips_, free_rows_, free_singles_;
};

}  // namespace tiercel
