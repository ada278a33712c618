// The node's pages: what the control plane knows of each, found through the page index. The index has what
// readers need (key, records, visibility); `Page` (state.h) has the rest.
//
// Threads: the control thread only. Cost: that of the index, O(1).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "index/page_index.h"

namespace tiercel {

struct Page;
struct PageName;

// A page that may have gone meanwhile.
struct PageRef {
  PageNumber number;
  std::uint64_t uid = 0;  // 0: none
};

class PageTable {
 public:
  // `index` outlives the table and is empty.
  explicit PageTable(PageIndex& index);
  ~PageTable();
  PageTable(const PageTable&) = delete;
  PageTable& operator=(const PageTable&) = delete;

  PageIndex& index() { return index_; }
  const PageIndex& index() const { return index_; }
  std::uint64_t size() const { return count_; }

  // Null when it is not there.
  Page* find(SpaceId space, const Key& key) const;
  // found[i] belongs to keys[i], pages first_page, first_page + 1, … of a chain.
  void find_chain(SpaceId space, std::uint64_t first_page, std::span<const Key> keys,
                  std::span<Page*> found) const;
  Page& at(PageNumber number) const { return *pages_[number.value()]; }
  // Null when no page has that number.
  Page* find_number(std::uint32_t number) const {
    return number < pages_.size() ? pages_[number].get() : nullptr;
  }
  // Null when it has gone.
  Page* resolve(const PageRef& ref) const;

  // Requires: the index has room; no page of that key in the space. `parent` may be null.
  Page& insert(SpaceId space, const PageName& name, std::uint64_t uid, std::uint64_t chain_page,
               const Page* parent);
  // Another space, and another number. Requires: no set of it is in the index, nor is it visible.
  void rehome(Page& page, SpaceId space);
  // Requires: no set of it is in the index.
  void erase(Page& page);

  // Pages in the order in which they came, round and round: the one after the last that was given. Null when
  // there is none.
  Page* next();
  const Page* oldest() const { return oldest_; }  // the others follow by `newer`

 private:
  void enter(Page& page, SpaceId space, const Page* parent);

  PageIndex& index_;
  std::vector<std::unique_ptr<Page>> pages_;  // by number
  Page* oldest_ = nullptr;
  Page* newest_ = nullptr;
  Page* cursor_ = nullptr;  // given next
  std::uint64_t count_ = 0;
};

}  // namespace tiercel
