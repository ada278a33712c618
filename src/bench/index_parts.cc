#include "bench/index_parts.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

namespace tiercel {
namespace {

CandidateId candidate_of(PageNumber page) { return CandidateId(std::uint64_t{page.value()} * 64); }

}  // namespace

Result<std::unique_ptr<FullIndex>> FullIndex::create(std::uint64_t pages, std::uint32_t classes,
                                                     BenchRun& run) {
  std::unique_ptr<FullIndex> full(new FullIndex);
  const std::uint64_t strips = pages / compact::kCells;
  const compact::Sizes sizes{
      pages, strips, classes == 1 ? 0 : strips,
      classes == 1 ? 0 : std::min<std::uint64_t>(compact::kSinglesMax, pages / kPointEvery)};
  TIERCEL_ASSIGN_OR_RETURN(const compact::Plan plan, compact::plan_image(sizes));
  TIERCEL_ASSIGN_OR_RETURN(full->memory_, Mapping::open({MappingKind::kShared, plan.bytes, {}}));
  TIERCEL_ASSIGN_OR_RETURN(full->index_, CompactIndex::create(full->memory_.bytes(), sizes, 1));
  full->classes_ = classes;
  run.progress(fmt::format("filling an index of {} pages", pages));
  for (std::uint64_t chain = 0; chain < pages / kChain; ++chain) full->store(chain);
  return full;
}

void FullIndex::store(std::uint64_t chain) {
  const Access access{++sequence_, Time{0}};
  std::optional<PageNumber> parent;
  ChainKeys keys;
  fill(keys, chain);
  index_->expect(kSpace, keys);
  for (std::uint64_t page = 0; page < kChain; ++page) {
    const Key& key = keys[page];
    const PageNumber number = index_->insert(kSpace, key, page, parent);
    const SlotAddress address(number.value());
    index_->put_set(number, SetNumber{0}, address);
    if (classes_ > 1) index_->put_set(number, SetNumber{1}, address);
    if (classes_ > 1 && page % kPointEvery == kPointEvery - 1) index_->put_set(number, SetNumber{2}, address);
    index_->touch(number, access.sequence);
    index_->set_visible(number, true);
    const CandidateId id = candidate_of(number);
    lru_.stored({id, CandidateKind::kPage, key, 1, page + 1, id, std::nullopt}, access);
    if (parent) {
      index_->set_children(*parent, 1);
      lru_.set_evictable(candidate_of(*parent), false);
    }
    lru_.set_evictable(id, true);
    parent_of(number) = parent ? parent->value() : kNoPage;
    parent = number;
  }
}

void FullIndex::evict() {
  const auto victim = lru_.victim(Access{sequence_, Time{0}}, [](CandidateId) { return true; });
  evict(PageNumber(static_cast<std::uint32_t>(victim->value() / 64)));
}

void FullIndex::evict_chain(std::uint64_t chain) {
  for (std::uint64_t page = kChain; page-- != 0;) evict(*index_->find(kSpace, key_of(chain, page)));
}

void FullIndex::evict(PageNumber page) {
  index_->set_visible(page, false);
  index_->drop_set(page, SetNumber{0});
  if (classes_ > 1) index_->drop_set(page, SetNumber{1});
  if (index_->view().address(page, SetNumber{2})) index_->drop_set(page, SetNumber{2});
  lru_.departed(candidate_of(page), Departure::kEvicted);
  const std::uint32_t parent = parent_of(page);
  index_->erase(page);
  if (parent == kNoPage) return;
  index_->set_children(PageNumber(parent), 0);
  lru_.set_evictable(candidate_of(PageNumber(parent)), true);
}

std::uint32_t& FullIndex::parent_of(PageNumber page) {
  if (parents_.size() <= page.value())
    parents_.resize(std::max<std::size_t>(page.value() + 1, parents_.size() * 2));
  return parents_[page.value()];
}

}  // namespace tiercel
