// For tests and the simulator: a page index that asks the compact one and the model the same, and notes the
// first difference. Page numbers are the compact index's.
//
// Threads: one thread.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "base/check.h"
#include "index/compact_index.h"
#include "index/model_index.h"

namespace tiercel {

class ComparedIndex final : public PageIndex {
 public:
  ComparedIndex(const compact::Sizes& sizes, std::uint64_t seed) : model_(sizes.pages_max) {
    auto made = CompactIndex::create(sizes, seed);
    TIERCEL_CHECK(made.has_value());
    compact_ = std::move(*made);
  }

  // What was answered differently first, or nothing.
  const std::optional<std::string>& difference() const { return difference_; }
  const CompactIndex& compact() const { return *compact_; }
  CompactIndex& compact() { return *compact_; }

  std::optional<PageNumber> find(SpaceId space, const Key& key) const override {
    const auto found = compact_->find(space, key);
    const auto expected = model_.find(space, key);
    if (found.has_value() != expected.has_value() || (found && model_of_.at(*found) != *expected))
      differ(fmt::format("find({}, {}): another page", space.value(), to_hex(key)));
    return found;
  }
  void find_chain(SpaceId space, std::uint64_t first_page, std::span<const Key> keys,
                  std::span<std::uint32_t> numbers) const override {
    compact_->find_chain(space, first_page, keys, numbers);
    for (std::size_t i = 0; i < keys.size(); ++i) {
      const auto expected = model_.find(space, keys[i]);
      const auto known = model_of_.find(PageNumber(numbers[i]));
      if (expected.has_value() != (numbers[i] != kNoPage) ||
          (expected && (known == model_of_.end() || known->second != *expected)))
        differ(fmt::format("find_chain: key {} of {} is another page", i, keys.size()));
    }
  }
  void expect(SpaceId space, std::span<const Key> keys) const override { compact_->expect(space, keys); }
  bool has_room(std::uint64_t pages, std::uint64_t sets) const override {
    if (compact_->has_room(pages, sets) && !model_.has_room(pages, sets))
      differ("has_room: more than pages_max");
    return compact_->has_room(pages, sets);
  }
  PageNumber insert(SpaceId space, const Key& key, std::uint64_t chain_page,
                    std::optional<PageNumber> parent) override {
    const PageNumber page = compact_->insert(space, key, chain_page, parent);
    const bool fresh =
        model_of_.try_emplace(page, model_.insert(space, key, chain_page, std::nullopt)).second;
    if (!fresh) differ(fmt::format("insert: page {} is in use", page.value()));
    return page;
  }
  void erase(PageNumber page) override {
    compact_->erase(page);
    model_.erase(model_of_.at(page));
    model_of_.erase(page);
  }
  bool put_set(PageNumber page, SetNumber set, SlotAddress address) override {
    if (!compact_->put_set(page, set, address)) return false;
    return model_.put_set(model_of_.at(page), set, address);
  }
  void drop_set(PageNumber page, SetNumber set) override {
    compact_->drop_set(page, set);
    model_.drop_set(model_of_.at(page), set);
  }
  void set_visible(PageNumber page, bool visible) override {
    compact_->set_visible(page, visible);
    model_.set_visible(model_of_.at(page), visible);
  }
  void freeze(PageNumber page) override { compact_->freeze(page); }
  void move_set(PageNumber page, SetNumber set, SlotAddress address) override {
    compact_->move_set(page, set, address);
    model_.move_set(model_of_.at(page), set, address);
  }
  void thaw(PageNumber page) override { compact_->thaw(page); }
  LeaseName lease_name(PageNumber page) const override { return compact_->lease_name(page); }
  void set_children(PageNumber page, std::uint32_t visible_children) override {
    compact_->set_children(page, visible_children);
    model_.set_children(model_of_.at(page), visible_children);
  }
  void touch(PageNumber page, std::uint64_t sequence) override {
    compact_->touch(page, sequence);
    model_.touch(model_of_.at(page), sequence);
  }
  std::uint64_t pages() const override {
    if (compact_->pages() != model_.pages()) differ("pages: another count");
    return compact_->pages();
  }
  IndexedPage read(PageNumber page) const override { return compact_->read(page); }
  std::vector<PageNumber> all_pages() const override { return compact_->all_pages(); }
  std::optional<std::string> inconsistency() const override { return compact_->inconsistency(); }
  std::uint64_t bytes() const override { return compact_->bytes(); }
  void bump_mark(std::uint32_t id) override {
    compact_->bump_mark(id);
    model_.bump_mark(id);
  }
  std::uint32_t mark(std::uint32_t id) const override { return compact_->mark(id); }

  // Everything, page by page, as the owner reads it and as a reader of the memory does.
  std::optional<std::string> compare_all() const {
    if (difference_) return difference_;
    if (compact_->pages() != model_.pages())
      return fmt::format("{} pages, the model has {}", compact_->pages(), model_.pages());
    const auto reader = IndexView::attach(compact_->image());
    if (!reader) return reader.error().message;
    for (const auto& [page, in_model] : model_of_) {
      IndexedPage got = compact_->read(page);
      const IndexedPage expected = model_.read(in_model);
      // Recency is kept for 255 requests and then as "at least so long ago".
      if (got.last_use - expected.last_use < UINT32_MAX / 2) got.last_use = expected.last_use;
      if (!(got == expected))
        return fmt::format(
            "page {} ({}) differs from the model: visible {} {}, sets {} {}, children {} {}, last use {} {}",
            page.value(), to_hex(expected.key), got.visible, expected.visible, got.sets.size(),
            expected.sets.size(), got.children, expected.children, got.last_use, expected.last_use);
      FoundPage found;
      reader->read_chain(expected.space, page.value() % compact::kCells, {&expected.key, 1}, {&found, 1});
      std::uint64_t classes = 0;
      for (const auto& [set, address] : expected.sets) {
        if (set.value() < 64) classes |= std::uint64_t{1} << set.value();
        if (reader->address(page, set) != address)
          return fmt::format("a reader gets another address of page {}", page.value());
      }
      if (expected.visible != (found.page == page.value()) || (expected.visible && found.classes != classes))
        return fmt::format("a reader sees page {} differently", page.value());
    }
    return std::nullopt;
  }

 private:
  void differ(std::string what) const {
    if (!difference_) difference_ = std::move(what);
  }

  std::unique_ptr<CompactIndex> compact_;
  ModelIndex model_;
  std::map<PageNumber, PageNumber> model_of_;
  mutable std::optional<std::string> difference_;
};

}  // namespace tiercel
