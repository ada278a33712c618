#include "index/model_index.h"

#include <algorithm>

#include "base/check.h"

namespace tiercel {

std::optional<PageNumber> ModelIndex::find(SpaceId space, const Key& key) const {
  const auto at = by_name_.find({space, key});
  if (at == by_name_.end()) return std::nullopt;
  return at->second;
}

void ModelIndex::find_chain(SpaceId space, std::uint64_t, std::span<const Key> keys,
                            std::span<std::uint32_t> numbers) const {
  for (std::size_t i = 0; i < keys.size(); ++i) {
    const auto page = find(space, keys[i]);
    numbers[i] = page ? page->value() : kNoPage;
  }
}

PageNumber ModelIndex::insert(SpaceId space, const Key& key, std::uint64_t, std::optional<PageNumber>) {
  TIERCEL_CHECK(has_room(1, 0));
  PageNumber page(last_number_);
  if (free_.empty()) {
    ++last_number_;
  } else {
    page = free_.back();
    free_.pop_back();
  }
  const bool added = by_name_.try_emplace({space, key}, page).second;
  TIERCEL_CHECK(added);
  entries_[page].name = {space, key};
  return page;
}

void ModelIndex::erase(PageNumber page) {
  const auto at = entries_.find(page);
  TIERCEL_CHECK(at != entries_.end() && at->second.sets.empty());
  by_name_.erase(at->second.name);
  entries_.erase(at);
  free_.push_back(page);
}

bool ModelIndex::put_set(PageNumber page, SetNumber set, SlotAddress address) {
  entries_.at(page).sets[set] = address;
  return true;
}

void ModelIndex::drop_set(PageNumber page, SetNumber set) {
  const std::size_t dropped = entries_.at(page).sets.erase(set);
  TIERCEL_CHECK(dropped == 1);
}

void ModelIndex::set_visible(PageNumber page, bool visible) { entries_.at(page).visible = visible; }

void ModelIndex::set_children(PageNumber page, std::uint32_t visible_children) {
  entries_.at(page).children = visible_children;
}

void ModelIndex::touch(PageNumber page, std::uint64_t sequence) {
  std::uint64_t& last_use = entries_.at(page).last_use;
  last_use = std::max(last_use, sequence);
}

IndexedPage ModelIndex::read(PageNumber page) const {
  const Entry& entry = entries_.at(page);
  IndexedPage out;
  out.space = entry.name.first;
  out.key = entry.name.second;
  out.visible = entry.visible;
  out.sets.assign(entry.sets.begin(), entry.sets.end());
  out.children = static_cast<std::uint8_t>(std::min(entry.children, 255U));
  out.last_use = static_cast<std::uint32_t>(entry.last_use);
  return out;
}

std::vector<PageNumber> ModelIndex::all_pages() const {
  std::vector<PageNumber> out;
  out.reserve(entries_.size());
  for (const auto& [page, entry] : entries_) out.push_back(page);
  return out;
}

std::optional<std::string> ModelIndex::inconsistency() const { return std::nullopt; }

std::uint64_t ModelIndex::bytes() const { return entries_.size() * (sizeof(Entry) + 128); }

}  // namespace tiercel
