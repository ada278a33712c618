#include "index/compact_index.h"

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <set>

#include <fmt/format.h>

#include "base/check.h"
#include "base/crc32c.h"
#include "base/fault.h"
#include "index/lease_orders.h"

namespace tiercel {

using compact::Bucket;
using compact::kCells;
using compact::kRowBit;
using compact::Row;
using compact::Strip;

namespace {

constexpr auto kRelaxed = std::memory_order_relaxed;
constexpr auto kRelease = std::memory_order_release;
constexpr std::uint32_t kSingleNext = 0xF'FFFF;

std::uint64_t pack(std::uint32_t address, std::uint32_t set, std::uint32_t cell, std::uint32_t next) {
  return std::uint64_t{address} << 32 | std::uint64_t{set} << 24 | std::uint64_t{cell} << 20 | next;
}
std::uint32_t next_of(std::uint64_t single) { return static_cast<std::uint32_t>(single & kSingleNext); }
bool names(std::uint64_t single, std::uint32_t set, std::uint32_t cell) {
  return (single >> 20 & 0xFFF) == (std::uint64_t{set} << 4 | cell);
}

}  // namespace

// One visible step: readers use nothing that they took of the strip across it. The orders of both stores:
// docs/decisions/0007.
class CompactIndex::Change {
 public:
  // `hides`: something that a reader can find is found no more.
  Change(Strip& at, bool hides) : at_(at), bumps_(!(hides && TIERCEL_FAULT(generation_not_bumped))) {
    TIERCEL_CHECK(at_.version.load(kRelaxed) % 2 == 0);  // a frozen strip has no other change
    if (bumps_)
      at_.version.store(at_.version.load(kRelaxed) + 1, hides ? lease_orders().hide : lease_orders().open);
  }
  ~Change() {
    if (bumps_) at_.version.store(at_.version.load(kRelaxed) + 1, lease_orders().settle);
  }
  Change(const Change&) = delete;
  Change& operator=(const Change&) = delete;

 private:
  Strip& at_;
  bool bumps_;
};

namespace {
bool shows(const Strip& at, std::uint32_t cell) { return (at.visible.load(kRelaxed) >> cell & 1) != 0; }
}  // namespace

Result<std::unique_ptr<CompactIndex>> CompactIndex::create(MutableByteView memory,
                                                           const compact::Sizes& sizes, std::uint64_t seed) {
  const auto plan = compact::plan_image(sizes);
  if (!plan) return tl::unexpected(plan.error());
  if (memory.size() < plan->bytes)
    return tl::unexpected(Status{
        Code::kInvalidArgument, fmt::format("page index: {} bytes given, {} needed for {} pages in {} strips",
                                            memory.size(), plan->bytes, sizes.pages_max, sizes.strips)});
  auto* image = new (memory.data()) compact::Header{};
  compact::Constants* header = &image->constants;
  header->magic = compact::kMagic;
  header->format = compact::kFormat;
  header->number_bits = plan->number_bits;
  header->bytes = plan->bytes;
  header->pages_max = sizes.pages_max;
  header->strips = sizes.strips;
  header->buckets = plan->bucket_count;
  header->rows = sizes.rows;
  header->singles = sizes.singles;
  header->seed = seed;
  header->checksum = crc32c(memory.first(offsetof(compact::Constants, checksum)));
  const auto view = IndexView::attach(memory);
  TIERCEL_CHECK(view.has_value());
  return std::unique_ptr<CompactIndex>(new CompactIndex(memory, *view));
}

Result<std::unique_ptr<CompactIndex>> CompactIndex::create(const compact::Sizes& sizes, std::uint64_t seed) {
  const auto plan = compact::plan_image(sizes);
  if (!plan) return tl::unexpected(plan.error());
  // calloc: large blocks come as zero pages that cost nothing before they are used.
  void* block = std::calloc(1, plan->bytes + alignof(Bucket));
  if (block == nullptr)
    return tl::unexpected(
        Status{Code::kResourceExhausted, fmt::format("page index: no memory for {} bytes", plan->bytes)});
  std::unique_ptr<std::byte, void (*)(void*)> own(static_cast<std::byte*>(block), std::free);
  const auto misfit = reinterpret_cast<std::uintptr_t>(block) % alignof(Bucket);
  auto index = create(MutableByteView(own.get() + (misfit == 0 ? 0 : alignof(Bucket) - misfit), plan->bytes),
                      sizes, seed);
  if (index) (*index)->own_ = std::move(own);
  return index;
}

CompactIndex::~CompactIndex() = default;

// ---- strips ----

// One that was given back, or the first never used. `next_free`: what a free one says of the next.
template <typename NextFree>
std::optional<std::uint32_t> CompactIndex::take(FreeList& list, std::uint64_t most,
                                                const NextFree& next_free) {
  if (list.head != 0) {
    const std::uint32_t index = list.head - 1;
    list.head = next_free(index);
    return index;
  }
  if (list.fresh == most) return std::nullopt;
  return static_cast<std::uint32_t>(list.fresh++);
}

std::optional<std::uint32_t> CompactIndex::take_strip(SpaceId space) {
  const auto index = take(free_strips_, header().constants.strips,
                          [&](std::uint32_t i) { return strip(i).further.load(kRelaxed); });
  if (!index) return std::nullopt;
  ++strips_used_;
  Strip& at = strip(*index);
  Change change(at, false);
  at.further.store(0, kRelease);
  at.space.store(space.value(), kRelease);
  at.last_use.store(newest_use_, kRelaxed);  // sequences come round: an old one would look like a new one
  return index;
}

// A strip whose versions are nearly used up stays out of use: a generation never comes twice.
void CompactIndex::give_back_strip(std::uint32_t index) {
  --strips_used_;
  Strip& at = strip(index);
  if (at.version.load(kRelaxed) >= compact::kRetired) {
    ++strips_retired_;
    return;
  }
  at.further.store(free_strips_.head, kRelease);
  free_strips_.head = index + 1;
}

void CompactIndex::expect(SpaceId space, std::span<const Key> keys) const {
  constexpr std::size_t kMost = 256;  // more would be gone again before they are used
  for (const Key& key : keys.first(std::min(keys.size(), kMost))) {
    const compact::Places places = view_.places(space, key);
    __builtin_prefetch(&view_.bucket(places.first), 1);
    __builtin_prefetch(&view_.bucket(places.second), 1);
  }
}

// A set takes a single or a row; making a row of singles frees more singles than it takes.
bool CompactIndex::has_room(std::uint64_t pages, std::uint64_t sets) const {
  const std::uint64_t strips = view_.header().constants.strips - strips_used_ - strips_retired_;
  const std::uint64_t further =
      view_.header().constants.rows - rows_used_ + view_.header().constants.singles - singles_used_;
  return pages_ + pages <= view_.header().constants.pages_max && pages <= strips && sets <= further &&
         view_.header().stash_used.load(kRelaxed) + pages <= compact::kStash;
}

PageNumber CompactIndex::insert(SpaceId space, const Key& key, std::uint64_t chain_page,
                                std::optional<PageNumber> parent) {
  TIERCEL_CHECK(pages_ < view_.header().constants.pages_max);
  const auto cell = static_cast<std::uint32_t>(chain_page % kCells);
  std::optional<std::uint32_t> index;
  if (parent && cell != 0 && parent->value() % kCells == cell - 1) {
    const Strip& beside = strip(parent->value() / kCells);
    if ((beside.used.load(kRelaxed) >> cell & 1) == 0 && beside.space.load(kRelaxed) == space.value() &&
        beside.version.load(kRelaxed) < compact::kRetired)
      index = parent->value() / kCells;
  }
  if (!index) index = take_strip(space);
  TIERCEL_CHECK(index.has_value());
  Strip& at = strip(*index);
  const std::uint32_t number = *index * kCells + cell;
  {
    Change change(at, false);
    at.keys[cell][0].store(key.words[0], kRelease);
    at.keys[cell][1].store(key.words[1], kRelease);
    at.first[cell].store(0, kRelease);
    at.children[cell].store(0, kRelaxed);
    at.age[cell].store(255, kRelaxed);
    at.used.store(static_cast<std::uint16_t>(at.used.load(kRelaxed) | 1U << cell), kRelease);
  }
  enter(space, key, number);
  ++pages_;
  return PageNumber(number);
}

Key CompactIndex::key_at(std::uint32_t number) const {
  const Strip& at = view_.strip(number / kCells);
  const auto& key = at.keys[number % kCells];
  return Key{{key[0].load(kRelaxed), key[1].load(kRelaxed)}};
}

void CompactIndex::erase(PageNumber page) {
  const std::uint32_t index = page.value() / kCells;
  const std::uint32_t cell = page.value() % kCells;
  Strip& at = strip(index);
  TIERCEL_CHECK((at.used.load(kRelaxed) >> cell & 1) != 0);
  const bool kept = TIERCEL_FAULT(index_keeps_evicted_set);  // then its caller shows it for ever
  TIERCEL_CHECK(kept || (at.visible.load(kRelaxed) >> cell & 1) == 0);
  leave(SpaceId(at.space.load(kRelaxed)), key_at(page.value()), page.value());
  // Chains go from their ends: what is beside this page goes next, so its places are fetched in time.
  constexpr std::uint32_t kAhead = 5;
  for (std::uint32_t ahead = cell + 1 == kCells ? 1 : kAhead; ahead <= kAhead && ahead <= cell; ++ahead)
    if ((at.used.load(kRelaxed) >> (cell - ahead) & 1) != 0)
      view_.prefetch_places(SpaceId(at.space.load(kRelaxed)), key_at(page.value() - ahead));
  const auto used = static_cast<std::uint16_t>(at.used.load(kRelaxed) & ~(1U << cell));
  {
    Change change(at, false);
    at.used.store(used, kRelease);
  }
  --pages_;
  if (used == 0) give_back_strip(index);
}

// ---- bucket entries ----

bool CompactIndex::enter_bucket(std::uint64_t place, std::uint32_t entry) {
  for (compact::Word& word : bucket(place).entries) {
    if (word.load(kRelaxed) != 0) continue;
    word.store(entry, kRelease);
    return true;
  }
  return false;
}

// Moves one entry of a full bucket to its other one. It stands in both for a moment; a reader that has looked
// at the one before and looks at the other after misses it.
bool CompactIndex::make_place(std::uint64_t place) {
  const std::uint32_t number_mask = (std::uint32_t{1} << view_.plan().number_bits) - 1;
  for (compact::Word& word : bucket(place).entries) {
    ++visited_;
    const std::uint32_t entry = word.load(kRelaxed);
    const std::uint64_t other = view_.other_place(place, entry & ~number_mask);
    if (other == place || !enter_bucket(other, entry)) continue;
    word.store(0, kRelease);
    return true;
  }
  return false;
}

// The first bucket while it has a place: then nearly every page is found in the one line that a reader
// fetches first.
void CompactIndex::enter(SpaceId space, const Key& key, std::uint32_t number) {
  const compact::Places places = view_.places(space, key);
  const std::uint32_t entry = places.tag | (number + 1);
  visited_ += 2;
  if (enter_bucket(places.first, entry) || enter_bucket(places.second, entry)) return;
  if (make_place(places.first)) {
    TIERCEL_CHECK(enter_bucket(places.first, entry));
  } else if (make_place(places.second)) {
    TIERCEL_CHECK(enter_bucket(places.second, entry));
  } else {
    const std::uint32_t stashed = header().stash_used.load(kRelaxed);
    TIERCEL_CHECK(stashed < compact::kStash);  // has_room was false
    header().stash[stashed].store(number + 1, kRelease);
    header().stash_used.store(stashed + 1, kRelease);
  }
}

void CompactIndex::leave(SpaceId space, const Key& key, std::uint32_t number) {
  const compact::Places places = view_.places(space, key);
  const std::uint32_t entry = places.tag | (number + 1);
  for (const std::uint64_t place : {places.first, places.second})
    for (compact::Word& word : bucket(place).entries) {
      if (word.load(kRelaxed) != entry) continue;
      word.store(0, kRelease);
      ++visited_;
      return;
    }
  const std::uint32_t stashed = header().stash_used.load(kRelaxed);
  for (std::uint32_t i = 0; i < stashed; ++i) {
    if (header().stash[i].load(kRelaxed) != number + 1) continue;
    header().stash[i].store(header().stash[stashed - 1].load(kRelaxed), kRelease);
    header().stash_used.store(stashed - 1, kRelease);
    return;
  }
  TIERCEL_CHECK(false);  // a page without an entry
}

// ---- sets ----

bool CompactIndex::put_set(PageNumber page, SetNumber set, SlotAddress address) {
  TIERCEL_CHECK(address.value() < UINT32_MAX);
  Strip& at = strip(page.value() / kCells);
  const std::uint32_t cell = page.value() % kCells;
  const std::uint32_t word = address.value() + 1;
  Change change(at, shows(at, cell));  // an address that is replaced is found no more
  if (set.value() == 0) {
    at.first[cell].store(word, kRelease);
    return true;
  }
  return replace_further(at, cell, set.value(), word) || put_further(at, cell, set.value(), word);
}

bool CompactIndex::replace_further(Strip& at, std::uint32_t cell, std::uint32_t set, std::uint32_t address) {
  for (std::uint32_t reference = at.further.load(kRelaxed); reference != 0;) {
    ++visited_;
    if ((reference & kRowBit) != 0) {
      Row& of = row(reference & ~kRowBit);
      if (of.set.load(kRelaxed) == set) {
        of.address[cell].store(address, kRelease);
        return true;
      }
      reference = of.next.load(kRelaxed);
      continue;
    }
    compact::Single& one = single(reference - 1);
    const std::uint64_t value = one.load(kRelaxed);
    if (names(value, set, cell)) {
      one.store(pack(address, set, cell, next_of(value)), kRelease);
      return true;
    }
    reference = next_of(value);
  }
  return false;
}

std::uint32_t CompactIndex::count_singles(const Strip& at, std::uint32_t set) {
  std::uint32_t count = 0;
  for (std::uint32_t reference = at.further.load(kRelaxed); reference != 0;) {
    ++visited_;
    if ((reference & kRowBit) != 0) {
      reference = row(reference & ~kRowBit).next.load(kRelaxed);
      continue;
    }
    const std::uint64_t value = single(reference - 1).load(kRelaxed);
    if ((value >> 24 & 0xFF) == set) ++count;
    reference = next_of(value);
  }
  return count;
}

bool CompactIndex::put_further(Strip& at, std::uint32_t cell, std::uint32_t set, std::uint32_t address) {
  const bool many = count_singles(at, set) + 1 >= compact::kRowMinimum;
  if (many && add_row(at, set)) return replace_further(at, cell, set, address);
  if (add_single(at, cell, set, address)) return true;
  return !many && add_row(at, set) && replace_further(at, cell, set, address);
}

// A row for the set, with what its singles held; rows come before singles.
bool CompactIndex::add_row(Strip& at, std::uint32_t set) {
  const auto index =
      take(free_rows_, header().constants.rows, [&](std::uint32_t i) { return row(i).set.load(kRelaxed); });
  if (!index) return false;
  ++rows_used_;
  std::array<std::uint32_t, kCells> held{};
  for (std::uint32_t reference = at.further.load(kRelaxed); reference != 0;) {
    ++visited_;
    if ((reference & kRowBit) != 0) {
      reference = row(reference & ~kRowBit).next.load(kRelaxed);
      continue;
    }
    const std::uint64_t value = single(reference - 1).load(kRelaxed);
    if ((value >> 24 & 0xFF) == set) held[value >> 20 & 0xF] = static_cast<std::uint32_t>(value >> 32);
    reference = next_of(value);
  }
  Row& of = row(*index);
  of.set.store(set, kRelease);
  for (std::uint32_t cell = 0; cell < kCells; ++cell) {
    of.address[cell].store(held[cell], kRelease);
    if (held[cell] != 0) drop_further(at, cell, set);
  }
  of.next.store(at.further.load(kRelaxed), kRelease);
  at.further.store(kRowBit | *index, kRelease);
  return true;
}

bool CompactIndex::add_single(Strip& at, std::uint32_t cell, std::uint32_t set, std::uint32_t address) {
  const auto index = take(free_singles_, header().constants.singles,
                          [&](std::uint32_t i) { return next_of(single(i).load(kRelaxed)); });
  if (!index) return false;
  ++singles_used_;
  compact::Word* link = &at.further;
  while ((link->load(kRelaxed) & kRowBit) != 0) link = &row(link->load(kRelaxed) & ~kRowBit).next;
  single(*index).store(pack(address, set, cell, link->load(kRelaxed)), kRelease);
  link->store(*index + 1, kRelease);
  return true;
}

void CompactIndex::drop_set(PageNumber page, SetNumber set) {
  Strip& at = strip(page.value() / kCells);
  const std::uint32_t cell = page.value() % kCells;
  Change change(at, shows(at, cell));
  if (set.value() == 0) {
    at.first[cell].store(0, kRelease);
    return;
  }
  drop_further(at, cell, set.value());
}

void CompactIndex::drop_further(Strip& at, std::uint32_t cell, std::uint32_t set) {
  if (TIERCEL_FAULT(dropped_set_stays)) return;
  compact::Word* link = &at.further;
  while ((link->load(kRelaxed) & kRowBit) != 0) {
    ++visited_;
    const std::uint32_t index = link->load(kRelaxed) & ~kRowBit;
    Row& of = row(index);
    if (of.set.load(kRelaxed) != set) {
      link = &of.next;
      continue;
    }
    of.address[cell].store(0, kRelease);
    for (const compact::Word& address : of.address)
      if (address.load(kRelaxed) != 0) return;
    link->store(of.next.load(kRelaxed), kRelease);
    of.set.store(free_rows_.head, kRelease);
    free_rows_.head = index + 1;
    --rows_used_;
    return;
  }
  compact::Single* before = nullptr;
  for (std::uint32_t reference = link->load(kRelaxed); reference != 0;) {
    ++visited_;
    compact::Single& one = single(reference - 1);
    const std::uint64_t value = one.load(kRelaxed);
    if (!names(value, set, cell)) {
      before = &one;
      reference = next_of(value);
      continue;
    }
    if (before == nullptr)
      link->store(next_of(value), kRelease);
    else
      before->store((before->load(kRelaxed) & ~std::uint64_t{kSingleNext}) | next_of(value), kRelease);
    one.store(free_singles_.head, kRelease);
    free_singles_.head = reference;
    --singles_used_;
    return;
  }
  TIERCEL_CHECK(false);  // no such set
}

void CompactIndex::set_visible(PageNumber page, bool visible) {
  Strip& at = strip(page.value() / kCells);
  const std::uint32_t bit = 1U << page.value() % kCells;
  const std::uint32_t old = at.visible.load(kRelaxed);
  Change change(at, !visible);
  at.visible.store(static_cast<std::uint16_t>(visible ? old | bit : old & ~bit), kRelease);
}

void CompactIndex::freeze(PageNumber page) {
  compact::Word& version = strip(page.value() / kCells).version;
  const std::uint32_t now = version.load(kRelaxed);
  if (now % 2 == 0) version.store(now + 1, lease_orders().hide);
}

void CompactIndex::thaw(PageNumber page) {
  compact::Word& version = strip(page.value() / kCells).version;
  const std::uint32_t now = version.load(kRelaxed);
  if (now % 2 != 0) version.store(now + 1, lease_orders().settle);
}

void CompactIndex::move_set(PageNumber page, SetNumber set, SlotAddress address) {
  Strip& at = strip(page.value() / kCells);
  const std::uint32_t cell = page.value() % kCells;
  TIERCEL_CHECK(at.version.load(kRelaxed) % 2 != 0 && address.value() < UINT32_MAX);
  if (set.value() == 0)
    at.first[cell].store(address.value() + 1, kRelease);
  else
    TIERCEL_CHECK(replace_further(at, cell, set.value(), address.value() + 1));
}

LeaseName CompactIndex::lease_name(PageNumber page) const {
  const auto cell = static_cast<std::uint8_t>(page.value() % kCells);
  return {page.value() / kCells, cell, cell};
}

// ---- children and recency: hints to readers, outside the version ----

void CompactIndex::set_children(PageNumber page, std::uint32_t visible_children) {
  if (TIERCEL_FAULT(child_count_wrong) && visible_children == 0) return;
  strip(page.value() / kCells)
      .children[page.value() % kCells]
      .store(static_cast<std::uint8_t>(std::min(visible_children, 255U)), kRelaxed);
}

void CompactIndex::touch(PageNumber page, std::uint64_t sequence) {
  Strip& at = strip(page.value() / kCells);
  auto& own = at.age[page.value() % kCells];
  const auto now = static_cast<std::uint32_t>(sequence);
  if (now - newest_use_ <= UINT32_MAX / 2) newest_use_ = now;
  const std::uint32_t before = at.last_use.load(kRelaxed);
  const auto clipped = [](std::uint64_t age) {
    return static_cast<std::uint8_t>(std::min<std::uint64_t>(255, age));
  };
  if (now - before >
      UINT32_MAX / 2) {  // by a request that began before the last one: recency never goes back
    own.store(std::min(own.load(kRelaxed), clipped(before - now)), kRelaxed);
    return;
  }
  if (now != before) {
    for (auto& age : at.age) age.store(clipped(std::uint64_t{age.load(kRelaxed)} + (now - before)), kRelaxed);
    at.last_use.store(now, kRelaxed);
  }
  own.store(0, kRelaxed);
}

void CompactIndex::bump_mark(std::uint32_t id) {
  auto& word = const_cast<compact::Word&>(view_.mark(id));
  word.store(word.load(kRelaxed) + 1, std::memory_order_seq_cst);
}

// ---- audits ----

IndexedPage CompactIndex::read(PageNumber page) const {
  const Strip& at = view_.strip(page.value() / kCells);
  const std::uint32_t cell = page.value() % kCells;
  IndexedPage out;
  out.space = SpaceId(at.space.load(kRelaxed));
  out.key = key_at(page.value());
  out.visible = (at.visible.load(kRelaxed) >> cell & 1) != 0;
  out.children = at.children[cell].load(kRelaxed);
  const std::uint32_t age = at.age[cell].load(kRelaxed);
  const std::uint32_t last_use = at.last_use.load(kRelaxed);
  out.last_use = last_use - std::min(last_use, age);
  for (std::uint32_t set = 0; set < kSetsMax; ++set) {
    const SetNumber number(static_cast<std::uint8_t>(set));
    if (const auto address = view_.address(page, number)) out.sets.emplace_back(number, *address);
    if (set == 0 && at.further.load(kRelaxed) == 0) break;
  }
  return out;
}

std::vector<PageNumber> CompactIndex::all_pages() const {
  std::vector<PageNumber> out;
  for (std::uint32_t index = 0; index < free_strips_.fresh; ++index) {
    const std::uint32_t used = view_.strip(index).used.load(kRelaxed);
    for (std::uint32_t cell = 0; cell < kCells; ++cell)
      if ((used >> cell & 1) != 0) out.emplace_back(index * kCells + cell);
  }
  return out;
}

std::optional<std::string> CompactIndex::inconsistency() const {
  const std::vector<PageNumber> all = all_pages();
  if (all.size() != pages_) return fmt::format("{} pages in strips, {} counted", all.size(), pages_);
  std::uint64_t entries = view_.header().stash_used.load(kRelaxed);
  for (std::uint64_t place = 0; place < view_.plan().bucket_count; ++place)
    for (const compact::Word& word : view_.bucket(place).entries)
      entries += word.load(kRelaxed) != 0 ? 1U : 0U;
  if (entries != pages_) return fmt::format("{} bucket entries for {} pages", entries, pages_);
  std::set<std::uint32_t> in_use;
  std::uint64_t rows = 0, singles = 0;
  for (const PageNumber page : all) {
    const Strip& at = view_.strip(page.value() / kCells);
    const auto found = find(SpaceId(at.space.load(kRelaxed)), key_at(page.value()));
    if (found != page) return fmt::format("page {} is not found by its key", page.value());
    if ((at.visible.load(kRelaxed) & ~at.used.load(kRelaxed)) != 0)
      return fmt::format("strip {} shows a cell that is not used", page.value() / kCells);
    if (at.version.load(kRelaxed) % 2 != 0)
      return fmt::format("strip {} is left half written", page.value() / kCells);
    if (!in_use.insert(page.value() / kCells).second) continue;
    for (std::uint32_t reference = at.further.load(kRelaxed); reference != 0;) {
      const bool is_row = (reference & kRowBit) != 0;
      ++(is_row ? rows : singles);
      reference = is_row ? view_.row(reference & ~kRowBit).next.load(kRelaxed)
                         : next_of(view_.single(reference - 1).load(kRelaxed));
    }
  }
  if (in_use.size() != strips_used_)
    return fmt::format("{} strips in use, {} counted", in_use.size(), strips_used_);
  if (rows != rows_used_ || singles != singles_used_)
    return fmt::format("{} rows and {} singles linked, {} and {} counted", rows, singles, rows_used_,
                       singles_used_);
  return std::nullopt;
}

}  // namespace tiercel
