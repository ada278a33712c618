#include "node/page_table.h"

#include <algorithm>
#include <array>

#include "base/check.h"
#include "node/state.h"

namespace tiercel {

PageTable::PageTable(PageIndex& index) : index_(index) {}
PageTable::~PageTable() = default;

Page* PageTable::find(SpaceId space, const Key& key) const {
  const auto number = index_.find(space, key);
  return number ? pages_[number->value()].get() : nullptr;
}

void PageTable::find_chain(SpaceId space, std::uint64_t first_page, std::span<const Key> keys,
                           std::span<Page*> found) const {
  std::array<std::uint32_t, 512> numbers;
  for (std::size_t done = 0; done < keys.size(); done += numbers.size()) {
    const std::size_t count = std::min(numbers.size(), keys.size() - done);
    index_.find_chain(space, first_page + done, keys.subspan(done, count), std::span(numbers).first(count));
    for (std::size_t i = 0; i < count; ++i)
      found[done + i] = numbers[i] == kNoPage ? nullptr : pages_[numbers[i]].get();
  }
}

Page* PageTable::resolve(const PageRef& ref) const {
  if (ref.uid == 0 || ref.number.value() >= pages_.size()) return nullptr;
  Page* page = pages_[ref.number.value()].get();
  return page != nullptr && page->uid == ref.uid ? page : nullptr;
}

void PageTable::enter(Page& page, SpaceId space, const Page* parent) {
  page.space = space;
  page.number = index_.insert(space, page.name.key, page.chain_page,
                              parent != nullptr ? std::optional(parent->number) : std::nullopt);
  if (pages_.size() <= page.number.value())
    pages_.resize(std::max<std::size_t>(page.number.value() + 1, pages_.size() * 2));
}

Page& PageTable::insert(SpaceId space, const PageName& name, std::uint64_t uid, std::uint64_t chain_page,
                        const Page* parent) {
  auto made = std::make_unique<Page>();
  Page& page = *made;
  page.name = name;
  page.uid = uid;
  page.chain_page = chain_page;
  enter(page, space, parent);
  TIERCEL_CHECK(pages_[page.number.value()] == nullptr);
  pages_[page.number.value()] = std::move(made);
  page.older = newest_;
  (newest_ != nullptr ? newest_->newer : oldest_) = &page;
  newest_ = &page;
  ++count_;
  return page;
}

void PageTable::rehome(Page& page, SpaceId space) {
  if (page.space == space) return;
  std::unique_ptr<Page> held = std::move(pages_[page.number.value()]);
  index_.erase(page.number);
  enter(page, space, page.parent);
  pages_[page.number.value()] = std::move(held);
}

void PageTable::erase(Page& page) {
  if (cursor_ == &page) cursor_ = page.newer;
  (page.older != nullptr ? page.older->newer : oldest_) = page.newer;
  (page.newer != nullptr ? page.newer->older : newest_) = page.older;
  index_.erase(page.number);
  --count_;
  pages_[page.number.value()].reset();
}

Page* PageTable::next() {
  if (cursor_ == nullptr) cursor_ = oldest_;
  Page* given = cursor_;
  if (given != nullptr) cursor_ = given->newer;
  return given;
}

}  // namespace tiercel
