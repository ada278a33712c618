#include "disk/removals.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "base/check.h"
#include "base/fault.h"
#include "disk/format.h"

namespace tiercel::disk {
namespace {

// u32 namespaces · u64 pages · then of each namespace u32 number · u64 cleared · u64 newest page, ascending;
// of each page u32 namespace · key · u64 removed, ascending by namespace and key.
constexpr std::uint64_t kHeadBytes = 4 + 8;
constexpr std::uint64_t kSpaceBytes = 4 + 8 + 8;
constexpr std::uint64_t kPageBytes = 4 + 16 + 8;

tl::unexpected<Status> damaged(std::string_view field, std::string_view wanted, std::uint64_t got) {
  return error(Code::kDataCorrupt, fmt::format("removals: {}: wanted {}, got {}", field, wanted, got));
}

}  // namespace

const Removals::Space* Removals::find(DiskSpaceId space) const {
  const auto found = spaces_.find(space);
  return found == spaces_.end() ? nullptr : &found->second;
}

std::optional<DiskSpaceId> Removals::remove_page(DiskSpaceId space, const Key& key, std::uint64_t at) {
  Space& of = spaces_[space];
  if (at <= of.cleared) return std::nullopt;
  of.newest_page = std::max(of.newest_page, at);
  const auto [found, is_new] = of.pages.try_emplace(key, at);
  if (!is_new) {
    found->second = std::max(found->second, at);
    return std::nullopt;
  }
  if (++pages_ <= pages_max_) return std::nullopt;
  return fold_fullest();
}

DiskSpaceId Removals::fold_fullest() {
  const auto fullest = std::max_element(spaces_.begin(), spaces_.end(), [](const auto& a, const auto& b) {
    return a.second.pages.size() < b.second.pages.size();
  });
  folded_ += fullest->second.pages.size();
  clear_space(fullest->first, fullest->second.newest_page);
  return fullest->first;
}

void Removals::limit(std::uint64_t pages_max) {
  pages_max_ = pages_max;
  while (pages_ > pages_max_) fold_fullest();
}

void Removals::clear_space(DiskSpaceId space, std::uint64_t at) {
  Space& of = spaces_[space];
  if (at <= of.cleared) return;
  of.cleared = at;
  pages_ -= std::erase_if(of.pages, [&](const auto& page) { return page.second <= at; });
}

std::uint64_t Removals::cleared_at(DiskSpaceId space) const {
  const Space* const of = find(space);
  return of == nullptr ? 0 : of->cleared;
}

std::uint64_t Removals::newest_page(DiskSpaceId space) const {
  const Space* const of = find(space);
  return of == nullptr ? 0 : of->newest_page;
}

std::uint64_t Removals::page_at(DiskSpaceId space, const Key& key) const {
  const Space* const of = find(space);
  if (of == nullptr) return 0;
  const auto found = of->pages.find(key);
  return found == of->pages.end() ? 0 : found->second;
}

bool Removals::dead_in_middle(DiskSpaceId space, std::uint64_t born) const {
  const Space* const of = find(space);
  return of != nullptr && born < std::max(of->cleared, of->newest_page);
}

Removals::Walk::Walk(const Removals& removals, DiskSpaceId space) : pages_(nullptr), beaten_(0) {
  const Space* const of = removals.find(space);
  if (of == nullptr) return;
  beaten_ = of->cleared;
  if (!of->pages.empty()) pages_ = &of->pages;
}

void Removals::Walk::step(const Key& key) {
  if (pages_ == nullptr) return;
  const auto found = pages_->find(key);
  if (found != pages_->end()) beaten_ = std::max(beaten_, found->second);
}

std::size_t Removals::forget_below(std::uint64_t oldest_born) {
  if (TIERCEL_FAULT(removal_forgotten_early)) oldest_born = UINT64_MAX;
  std::size_t gone = 0;
  for (auto& [id, of] : spaces_) {
    gone += std::erase_if(of.pages, [&](const auto& page) { return page.second < oldest_born; });
    if (of.newest_page < oldest_born) of.newest_page = 0;
  }
  std::erase_if(spaces_,
                [](const auto& space) { return space.second.cleared == 0 && space.second.newest_page == 0; });
  pages_ -= gone;
  return gone;
}

std::uint64_t Removals::bytes_max(std::uint64_t pages_max, std::uint64_t spaces) {
  return kHeadBytes + spaces * kSpaceBytes + pages_max * kPageBytes;
}

void Removals::append_to(std::vector<std::byte>& out) const {
  append_le(out, static_cast<std::uint32_t>(spaces_.size()));
  append_le(out, pages_);
  for (const auto& [id, of] : spaces_) {
    append_le(out, id.value());
    append_le(out, of.cleared);
    append_le(out, of.newest_page);
  }
  for (const auto& [id, of] : spaces_) {
    std::vector<std::pair<Key, std::uint64_t>> pages(of.pages.begin(), of.pages.end());
    std::sort(pages.begin(), pages.end());
    for (const auto& [key, at] : pages) {
      append_le(out, id.value());
      append_le(out, key.words[0]);
      append_le(out, key.words[1]);
      append_le(out, at);
    }
  }
}

Result<std::uint64_t> Removals::load_from(ByteView bytes) {
  TIERCEL_CHECK(spaces_.empty());
  if (bytes.size() < kHeadBytes) return damaged("size", fmt::format("at least {}", kHeadBytes), bytes.size());
  const auto spaces = load_le<std::uint32_t>(bytes.data());
  const auto pages = load_le<std::uint64_t>(bytes.data() + 4);
  const std::uint64_t room = bytes.size() - kHeadBytes;
  if (spaces > room / kSpaceBytes) return damaged("namespaces", "what the bytes hold", spaces);
  if (pages > (room - spaces * kSpaceBytes) / kPageBytes)
    return damaged("pages", "what the bytes hold", pages);
  if (pages > pages_max_) return damaged("pages", fmt::format("at most {}", pages_max_), pages);
  const std::byte* from = bytes.data() + kHeadBytes;
  TIERCEL_RETURN_IF_ERROR(load_spaces(from, spaces));
  TIERCEL_RETURN_IF_ERROR(load_pages(from + spaces * kSpaceBytes, pages));
  return bytes_max(pages, spaces);
}

Result<void> Removals::load_spaces(const std::byte* from, std::uint64_t count) {
  for (std::uint64_t i = 0; i < count; ++i, from += kSpaceBytes) {
    const DiskSpaceId id(load_le<std::uint32_t>(from));
    const std::uint32_t least = spaces_.empty() ? 1 : spaces_.rbegin()->first.value() + 1;
    if (id.value() < least || least == 0)
      return damaged("namespace", fmt::format("from {} on", least), id.value());
    const Space space{load_le<std::uint64_t>(from + 4), load_le<std::uint64_t>(from + 12), {}};
    const std::uint64_t highest = std::max(space.cleared, space.newest_page);
    if (highest > kAtMax) return damaged("number of a removal", fmt::format("at most {}", kAtMax), highest);
    spaces_.emplace_hint(spaces_.end(), id, space);
  }
  return {};
}

Result<void> Removals::load_pages(const std::byte* from, std::uint64_t count) {
  std::pair<DiskSpaceId, Key> last;
  for (std::uint64_t i = 0; i < count; ++i, from += kPageBytes) {
    std::pair<DiskSpaceId, Key> name(load_le<std::uint32_t>(from), Key{});
    name.second.words = {load_le<std::uint64_t>(from + 4), load_le<std::uint64_t>(from + 12)};
    const auto at = load_le<std::uint64_t>(from + 20);
    const auto space = spaces_.find(name.first);
    if (space == spaces_.end()) return damaged("page's namespace", "one of those listed", name.first.value());
    if (i != 0 && name <= last) return damaged("pages", "ascending order", i);
    if (at <= space->second.cleared || at > space->second.newest_page)
      return damaged("page's removal",
                     fmt::format("{} to {}", space->second.cleared + 1, space->second.newest_page), at);
    space->second.pages.emplace(name.second, at);
    last = name;
  }
  pages_ = count;
  return {};
}

}  // namespace tiercel::disk
