// The page index in the simplest words: a map. What the compact index is compared with.
//
// Threads: one thread. Cost: O(log pages) a call.
#pragma once

#include <map>
#include <utility>

#include "index/page_index.h"

namespace tiercel {

class ModelIndex final : public PageIndex {
 public:
  explicit ModelIndex(std::uint64_t pages_max) : pages_max_(pages_max) {}
  std::optional<PageNumber> find(SpaceId space, const Key& key) const override;
  void find_chain(SpaceId space, std::uint64_t first_page, std::span<const Key> keys,
                  std::span<std::uint32_t> numbers) const override;
  void expect(SpaceId, std::span<const Key>) const override {}
  bool has_room(std::uint64_t pages, std::uint64_t) const override {
    return by_name_.size() + pages <= pages_max_;
  }
  PageNumber insert(SpaceId space, const Key& key, std::uint64_t chain_page,
                    std::optional<PageNumber> parent) override;
  void erase(PageNumber page) override;
  bool put_set(PageNumber page, SetNumber set, SlotAddress address) override;
  void drop_set(PageNumber page, SetNumber set) override;
  void set_visible(PageNumber page, bool visible) override;
  void freeze(PageNumber) override {}
  void move_set(PageNumber page, SetNumber set, SlotAddress address) override { put_set(page, set, address); }
  void thaw(PageNumber) override {}
  LeaseName lease_name(PageNumber page) const override { return {page.value(), 0, 0}; }
  void set_children(PageNumber page, std::uint32_t visible_children) override;
  void touch(PageNumber page, std::uint64_t sequence) override;
  void bump_mark(std::uint32_t) override { ++marks_; }
  std::uint32_t mark(std::uint32_t) const override { return marks_; }
  std::uint64_t pages() const override { return by_name_.size(); }
  IndexedPage read(PageNumber page) const override;
  std::vector<PageNumber> all_pages() const override;
  std::optional<std::string> inconsistency() const override;
  std::uint64_t bytes() const override;

 private:
  struct Entry {
    std::pair<SpaceId, Key> name;
    bool visible = false;
    std::map<SetNumber, SlotAddress> sets;
    std::uint32_t children = 0;
    std::uint64_t last_use = 0;
  };
  std::uint64_t pages_max_;
  std::map<std::pair<SpaceId, Key>, PageNumber> by_name_;
  std::map<PageNumber, Entry> entries_;
  std::vector<PageNumber> free_;
  std::uint32_t last_number_ = 0;
  std::uint32_t marks_ = 0;
};

}  // namespace tiercel
