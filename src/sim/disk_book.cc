#include "sim/disk_book.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

namespace tiercel::sim {

std::size_t DiskBook::add_space(std::size_t form) {
  space_form_.push_back(form);
  space_cleared_.push_back(0);
  return space_form_.size() - 1;
}

std::size_t DiskBook::add_page(std::size_t space, std::optional<std::size_t> parent, const Key& key) {
  DiskPage page;
  page.space = space;
  page.parent = parent;
  page.key = key;
  if (parent) page.path = pages_[*parent].path;
  page.path.push_back(pages_.size());
  page.length = page.path.size();
  pages_.push_back(std::move(page));
  page_removed_.push_back(0);
  return pages_.size() - 1;
}

std::size_t DiskBook::accepted(const DiskSet& set, std::uint64_t bytes) {
  DiskAppend append;
  append.set = set;
  append.order = ++order_;
  append.bytes = bytes;
  appends_.push_back(append);
  sets_[set].push_back(appends_.size() - 1);
  return appends_.size() - 1;
}

void DiskBook::written(std::size_t number, std::uint64_t at) {
  DiskAppend& append = appends_[number];
  append.fate = Fate::kWritten;
  append.at = at;
  not_yet_durable_.push_back(number);
  const auto [there, is_new] = present_.emplace(append.set, number);
  if (!is_new && appends_[there->second].order < append.order) there->second = number;
}

void DiskBook::durable(std::uint64_t at) {
  std::erase_if(not_yet_durable_, [&](std::size_t number) {
    if (*appends_[number].at > at) return false;
    appends_[number].durable = true;
    return true;
  });
  for (DiskRemoval& each : removals_)
    if (each.hold == DiskRemoval::Hold::kSure && each.number && *each.number <= at) each.durable = true;
}

void DiskBook::evicted(const DiskSet& set) {
  const auto there = present_.find(set);
  if (there == present_.end()) return;
  // An older one whose place it had taken is not owed either: the name was told to be gone.
  for (const std::size_t number : sets_[set])
    if (number <= there->second) appends_[number].evicted = true;
  present_.erase(there);
}

void DiskBook::dropped(const DiskSet& set) {
  const auto there = present_.find(set);
  if (there == present_.end()) return;
  for (const std::size_t number : sets_[set])
    if (number <= there->second) appends_[number].dropped = true;
  present_.erase(there);
}

void DiskBook::removed(DiskRemoval::Scope scope, std::size_t what, std::optional<std::uint64_t> number) {
  DiskRemoval removal;
  removal.scope = scope;
  removal.what = what;
  removal.order = ++order_;
  removal.number = number;
  removals_.push_back(removal);
  hold(removal);
}

void DiskBook::excuse(const DiskSet& set) {
  for (const std::size_t number : sets_[set]) appends_[number].evicted = true;
  unseen_.insert(set);
}

void DiskBook::folded() {
  for (DiskAppend& each : appends_) each.may_be_missing = true;
}

std::optional<std::size_t> DiskBook::present(const DiskSet& set) const {
  const auto there = present_.find(set);
  if (there == present_.end()) return std::nullopt;
  return there->second;
}

bool DiskBook::queued(const DiskSet& set) const {
  const auto there = sets_.find(set);
  if (there == sets_.end()) return false;
  return std::any_of(there->second.begin(), there->second.end(),
                     [&](std::size_t number) { return appends_[number].fate == Fate::kQueued; });
}

bool DiskBook::covers(const DiskRemoval& removal, std::size_t page) const {
  switch (removal.scope) {
    case DiskRemoval::Scope::kPage: {
      const auto& path = pages_[page].path;
      return std::find(path.begin(), path.end(), removal.what) != path.end();
    }
    case DiskRemoval::Scope::kSpace:
      return pages_[page].space == removal.what;
    case DiskRemoval::Scope::kForm:
      return space_form_[pages_[page].space] == removal.what;
  }
  return false;
}

void DiskBook::hold(const DiskRemoval& removal) {
  std::uint64_t& order = removal.scope == DiskRemoval::Scope::kPage    ? page_removed_[removal.what]
                         : removal.scope == DiskRemoval::Scope::kSpace ? space_cleared_[removal.what]
                                                                       : form_cleared_[removal.what];
  order = std::max(order, removal.order);
}

std::uint64_t DiskBook::removed_order(std::size_t page, bool unsure_too) const {
  const std::size_t space = pages_[page].space;
  std::uint64_t order = space_cleared_[space];
  if (const auto form = form_cleared_.find(space_form_[space]); form != form_cleared_.end())
    order = std::max(order, form->second);
  for (const std::size_t each : pages_[page].path) order = std::max(order, page_removed_[each]);
  if (unsure_too)
    for (const std::size_t each : unsure_)
      if (covers(removals_[each], page)) order = std::max(order, removals_[each].order);
  return order;
}

void DiskBook::ended(bool clean) {
  for (DiskAppend& each : appends_) {
    if (each.fate == Fate::kQueued) each.fate = Fate::kUnknown;
    if (clean && each.fate == Fate::kWritten) each.durable = true;
  }
  present_.clear();
  not_yet_durable_.clear();
  std::fill(page_removed_.begin(), page_removed_.end(), 0);
  std::fill(space_cleared_.begin(), space_cleared_.end(), 0);
  form_cleared_.clear();
  unsure_.clear();
  for (std::size_t i = 0; i < removals_.size(); ++i) {
    DiskRemoval& removal = removals_[i];
    if (clean && removal.hold == DiskRemoval::Hold::kSure) removal.durable = removal.number.has_value();
    if (removal.hold == DiskRemoval::Hold::kSure && !removal.durable)
      removal.hold = DiskRemoval::Hold::kUnsure;
    if (removal.hold == DiskRemoval::Hold::kSure) hold(removal);
    if (removal.hold == DiskRemoval::Hold::kUnsure) unsure_.push_back(i);
  }
}

void DiskBook::trust_nothing() {
  ended(false);
  for (DiskAppend& each : appends_) each.durable = false;
  for (DiskRemoval& each : removals_) each.hold = DiskRemoval::Hold::kLost;
  std::fill(page_removed_.begin(), page_removed_.end(), 0);
  std::fill(space_cleared_.begin(), space_cleared_.end(), 0);
  form_cleared_.clear();
  unsure_.clear();
}

std::optional<std::size_t> DiskBook::owed(const std::vector<std::size_t>& numbers) const {
  for (auto each = numbers.rbegin(); each != numbers.rend(); ++each) {
    const DiskAppend& append = appends_[*each];
    if (append.fate != Fate::kWritten || !append.durable) continue;
    if (append.evicted || append.dropped || append.may_be_missing) return std::nullopt;
    return *each;
  }
  return std::nullopt;
}

void DiskBook::settle_removals(const Found& found) {
  std::vector<std::size_t> still;
  for (const std::size_t each : unsure_) {
    DiskRemoval& removal = removals_[each];
    const bool was_lost = std::any_of(found.begin(), found.end(), [&](const auto& pair) {
      return appends_[pair.second].order < removal.order && covers(removal, pair.first.page);
    });
    // Something that only this removal can have hidden.
    const bool took_effect = std::any_of(sets_.begin(), sets_.end(), [&](const auto& pair) {
      const auto number = owed(pair.second);
      if (!number || found.contains(pair.first) || !alive(*number)) return false;
      const std::uint64_t order = appends_[*number].order;
      if (order > removal.order || !covers(removal, pair.first.page)) return false;
      return std::none_of(unsure_.begin(), unsure_.end(), [&](std::size_t other) {
        return other != each && removals_[other].order > order && covers(removals_[other], pair.first.page);
      });
    });
    if (was_lost) {
      removal.hold = DiskRemoval::Hold::kLost;
    } else if (took_effect) {
      removal.hold = DiskRemoval::Hold::kSure;
      removal.durable = true;
    } else {
      still.push_back(each);
    }
  }
  unsure_ = std::move(still);
  for (const DiskRemoval& each : removals_)
    if (each.hold == DiskRemoval::Hold::kSure) hold(each);
}

std::optional<DiskBook::Wrong> DiskBook::judge_found(const Found& found) const {
  for (const auto& [set, number] : found) {
    const DiskAppend& append = appends_[number];
    if (!alive(number))
      return Wrong{"disk_stale", fmt::format("opened: page {} class {}: append {} was removed and is back",
                                             set.page, set.cls.value(), number)};
    if (append.fate == Fate::kGone)
      return Wrong{"disk_found",
                   fmt::format("opened: page {} class {}: append {} was gone at an earlier opening and "
                               "is back",
                               set.page, set.cls.value(), number)};
  }
  return std::nullopt;
}

std::optional<DiskBook::Wrong> DiskBook::judge_missing(const Found& found,
                                                       const std::vector<std::size_t>& unsure) const {
  for (const auto& [set, numbers] : sets_) {
    const auto number = owed(numbers);
    if (!number || !surely_alive(*number)) continue;
    const bool was_removed = std::any_of(unsure.begin(), unsure.end(), [&](std::size_t each) {
      return removals_[each].order > appends_[*number].order && covers(removals_[each], set.page);
    });
    const auto there = found.find(set);
    if (there == found.end() && was_removed) continue;
    if (there == found.end())
      return Wrong{"disk_durable",
                   fmt::format("opened: page {} class {}: append {} (at {}) was durable and is not there",
                               set.page, set.cls.value(), *number, *appends_[*number].at)};
    if (appends_[there->second].order < appends_[*number].order)
      return Wrong{"disk_durable",
                   fmt::format("opened: page {} class {}: append {} is there, the newer {} was durable",
                               set.page, set.cls.value(), there->second, *number)};
  }
  return std::nullopt;
}

std::optional<DiskBook::Wrong> DiskBook::looked(const Found& found, bool judge) {
  DiskBook settled = *this;
  std::optional<Wrong> wrong = settled.opened(found, judge, 0);
  for (const auto& [set, number] : found) present_[set] = number;
  unseen_.clear();
  return wrong;
}

std::optional<DiskBook::Wrong> DiskBook::opened(const Found& found, bool judge, std::uint64_t durable_at) {
  if (judge) {
    if (auto wrong = judge_found(found)) return wrong;
    const std::vector<std::size_t> unsure = unsure_;
    settle_removals(found);
    if (auto wrong = judge_missing(found, unsure)) return wrong;
  }
  for (const auto& [set, numbers] : sets_) {
    const auto there = found.find(set);
    for (const std::size_t number : numbers) {
      DiskAppend& append = appends_[number];
      if (there != found.end() && there->second == number) {
        append.fate = Fate::kWritten;
        append.durable = judge && append.at && (append.durable || *append.at <= durable_at);
        append.evicted = append.dropped = append.may_be_missing = false;
        if (!append.durable) not_yet_durable_.push_back(number);
        present_[set] = number;
      } else if (judge && !(append.dropped && there == found.end()) && !append.may_be_missing &&
                 !unseen_.contains(set)) {
        append.fate = Fate::kGone;
      }
    }
  }
  unseen_.clear();
  return std::nullopt;
}

}  // namespace tiercel::sim
