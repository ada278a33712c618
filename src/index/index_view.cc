#include "index/index_view.h"

#include <algorithm>
#include <bit>
#include <cstddef>

#include <fmt/format.h>

#include "base/check.h"
#include "base/crc32c.h"
#include "base/fault.h"
#include "base/prng.h"

namespace tiercel {

using compact::Bucket;
using compact::kCells;
using compact::kRowBit;
using compact::Places;
using compact::Row;
using compact::Strip;

namespace {

constexpr auto kRelaxed = std::memory_order_relaxed;
constexpr auto kAcquire = std::memory_order_acquire;
constexpr int kReadsMax = 8;               // of one strip that keeps changing
constexpr std::size_t kBlocksAtOnce = 64;  // whose places are fetched together
bool has_key(const Strip& at, std::size_t cell, const Key& key) {
  if (TIERCEL_FAULT(tag_taken_as_hit)) return true;
  return at.keys[cell][0].load(kAcquire) == key.words[0] && at.keys[cell][1].load(kAcquire) == key.words[1];
}

constexpr std::uint32_t kFurtherMax =
    kSetsMax * kCells;  // links followed; more means that the strip changed meanwhile

Status not_an_index(std::string what) {
  return Status{Code::kDataCorrupt, "page index image: " + std::move(what)};
}

}  // namespace

Result<IndexView> IndexView::attach(ByteView image) {
  TIERCEL_CHECK(reinterpret_cast<std::uintptr_t>(image.data()) % alignof(Bucket) == 0);
  if (image.size() < sizeof(compact::Header))
    return tl::unexpected(not_an_index(
        fmt::format("{} bytes; the header alone has {}", image.size(), sizeof(compact::Header))));
  IndexView view;
  view.image_ = image.data();
  // One copy, checked and used: who writes to the memory meanwhile changes nothing of it.
  std::array<std::byte, sizeof(compact::Constants)> copy;
  std::copy_n(image.begin(), copy.size(), copy.begin());
  const auto header = std::bit_cast<compact::Constants>(copy);
  if (header.magic != compact::kMagic)
    return tl::unexpected(not_an_index("no magic number: not a page index"));
  if (header.format != compact::kFormat)
    return tl::unexpected(
        not_an_index(fmt::format("format {}; this program reads {}", header.format, compact::kFormat)));
  if (header.checksum != crc32c(ByteView(copy).first(offsetof(compact::Constants, checksum))))
    return tl::unexpected(not_an_index("the header's checksum is wrong"));
  const compact::Sizes sizes{header.pages_max, header.strips, header.rows, header.singles};
  const auto plan = compact::plan_image(sizes);
  if (!plan) return tl::unexpected(not_an_index(plan.error().message));
  if (header.zero != 0 || plan->bytes != header.bytes || plan->bytes > image.size() ||
      plan->bucket_count != header.buckets || plan->number_bits != header.number_bits)
    return tl::unexpected(not_an_index(fmt::format("sizes do not agree: {} bytes said, {} needed, {} there",
                                                   header.bytes, plan->bytes, image.size())));
  view.plan_ = *plan;
  view.sizes_ = sizes;
  view.seed_ = header.seed;
  return view;
}

const compact::Word& IndexView::mark(std::uint32_t id) const {
  return at<compact::Word>(plan_.marks)[id % compact::kMarks];
}

Places IndexView::places(SpaceId space, const Key& key) const {
  const std::uint64_t hash = mix64(key.words[0] ^ seed_ ^ (std::uint64_t{space.value()} << 32));
  Places out;
  out.first = ((hash & 0xFFFF'FFFF) * plan_.bucket_count) >> 32;
  out.tag = static_cast<std::uint32_t>(key.words[1] << plan_.number_bits);
  out.second = other_place(out.first, out.tag);
  return out;
}

// Each the other's: so an entry can be moved without knowing its key.
std::uint64_t IndexView::other_place(std::uint64_t place, std::uint32_t tag) const {
  const std::uint64_t sum = ((mix64(tag ^ ~seed_) >> 32) * plan_.bucket_count) >> 32;
  return sum >= place ? sum - place : sum + plan_.bucket_count - place;
}

// Whole key, space and presence: a tag alone is never a hit.
bool IndexView::is(std::uint32_t number, SpaceId space, const Key& key) const {
  if (number >= sizes_.strips * kCells) return false;
  const Strip& at = strip(number / kCells);
  const std::uint32_t cell = number % kCells;
  if ((at.used.load(kAcquire) >> cell & 1) == 0 || at.space.load(kAcquire) != space.value()) return false;
  return has_key(at, cell, key);
}

std::uint32_t IndexView::find_number(SpaceId space, const Key& key) const {
  const Places places_of = places(space, key);
  const std::uint32_t number_mask = (std::uint32_t{1} << plan_.number_bits) - 1;
  for (const std::uint64_t place : {places_of.first, places_of.second}) {
    for (const compact::Word& word : bucket(place).entries) {
      const std::uint32_t entry = word.load(kAcquire);
      if (entry == 0 || (entry & ~number_mask) != places_of.tag) continue;
      const std::uint32_t number = (entry & number_mask) - 1;
      if (is(number, space, key)) return number;
    }
  }
  const std::uint32_t stashed = std::min(header().stash_used.load(kAcquire), compact::kStash);
  for (std::uint32_t i = 0; i < stashed; ++i) {
    const std::uint32_t entry = header().stash[i].load(kAcquire);
    if (entry != 0 && is(entry - 1, space, key)) return entry - 1;
  }
  return kNoPage;
}

std::optional<PageNumber> IndexView::find(SpaceId space, const Key& key) const {
  const std::uint32_t number = find_number(space, key);
  if (number == kNoPage) return std::nullopt;
  return PageNumber(number);
}

// ---- chains ----

// Most entries stand in their first bucket.
void IndexView::prefetch_places(SpaceId space, const Key& key) const {
  __builtin_prefetch(&bucket(places(space, key).first));
}

void IndexView::prefetch_strip(std::uint32_t number) const {
  if (number >= sizes_.strips * kCells) return;
  constexpr std::size_t kUsed = offsetof(Strip, children);  // what a reader looks at
  const auto* from = reinterpret_cast<const char*>(&strip(number / kCells));
  for (std::size_t line = 0; line < kUsed; line += 64) __builtin_prefetch(from + line);
  __builtin_prefetch(from + kUsed - 1);
}

// The first page in a bucket that has the tag: probably the one.
std::uint32_t IndexView::tagged(std::uint64_t place, std::uint32_t tag) const {
  const std::uint32_t number_mask = (std::uint32_t{1} << plan_.number_bits) - 1;
  for (const compact::Word& word : bucket(place).entries) {
    const std::uint32_t entry = word.load(kRelaxed);
    if ((entry & ~number_mask) == tag && entry != 0) return (entry & number_mask) - 1;
  }
  return kNoPage;
}

void IndexView::prefetch_row(std::uint32_t number) const {
  if (number >= sizes_.strips * kCells) return;
  const std::uint32_t further = strip(number / kCells).further.load(kRelaxed);
  if ((further & kRowBit) == 0 || (further & ~kRowBit) >= sizes_.rows) return;
  const auto* from = reinterpret_cast<const char*>(&row(further & ~kRowBit));
  __builtin_prefetch(from);
  __builtin_prefetch(from + sizeof(Row) - 1);
}

void IndexView::add_further_classes(const Strip& at, std::array<std::uint64_t, kCells>& classes) const {
  std::uint32_t reference = at.further.load(kAcquire);
  for (std::uint32_t links = 0; reference != 0 && links < kFurtherMax; ++links) {
    if ((reference & kRowBit) != 0) {
      if ((reference & ~kRowBit) >= sizes_.rows) return;
      const Row& of = row(reference & ~kRowBit);
      const std::uint32_t set = of.set.load(kAcquire);
      if (set < 64)
        for (std::uint32_t cell = 0; cell < kCells; ++cell)
          if (of.address[cell].load(kAcquire) != 0) classes[cell] |= std::uint64_t{1} << set;
      reference = of.next.load(kAcquire);
    } else {
      if (reference > sizes_.singles) return;
      const std::uint64_t one = single(reference - 1).load(kAcquire);
      const std::uint64_t set = one >> 24 & 0xFF;
      if (set < 64) classes[one >> 20 & 0xF] |= std::uint64_t{1} << set;
      reference = static_cast<std::uint32_t>(one & 0xF'FFFF);
    }
  }
}

// Pages of one strip from `number` on whose keys are keys[0], keys[1], …: how many is told in `taken`.
// False: the strip was changed meanwhile, nothing is told.
bool IndexView::try_run(SpaceId space, std::uint32_t number, std::span<const Key> keys,
                        std::span<FoundPage> found, bool owner, std::size_t& taken) const {
  const Strip& at = strip(number / kCells);
  std::uint32_t version = at.version.load(kAcquire);
  if (version % 2 != 0) return false;
  const std::uint32_t cell = number % kCells;
  const std::uint32_t visible = at.visible.load(kAcquire);
  // Neighbours from the first cell on, without a gap.
  const auto neighbours =
      static_cast<std::size_t>(std::countr_one(std::uint32_t{at.used.load(kAcquire)} >> cell));
  const std::size_t most = std::min(neighbours, keys.size());
  std::size_t run = 0;
  if (at.space.load(kAcquire) == space.value())
    while (run < most && has_key(at, cell + run, keys[run])) ++run;
  std::array<std::uint64_t, kCells> classes;
  if (!owner && run != 0) {
    for (std::size_t i = cell; i < cell + run; ++i) classes[i] = at.first[i].load(kAcquire) != 0 ? 1 : 0;
    if (at.further.load(kAcquire) != 0) add_further_classes(at, classes);
  }
  TIERCEL_PAUSE();
  if (TIERCEL_FAULT(seqlock_not_repeated))
    version = at.version.load(kRelaxed);
  else if (at.version.load(kRelaxed) != version)
    return false;
  for (std::size_t i = 0; i < run; ++i) {
    const bool shown = (visible >> (cell + i) & 1) != 0;
    if (owner)
      found[i].page = number + static_cast<std::uint32_t>(i);
    else
      found[i] =
          shown ? FoundPage{number + static_cast<std::uint32_t>(i), version, classes[cell + i]} : FoundPage{};
  }
  taken = run;
  return true;
}

std::size_t IndexView::take_run(SpaceId space, std::uint32_t number, std::span<const Key> keys,
                                std::span<FoundPage> found, bool owner) const {
  if (number >= sizes_.strips * kCells) return 0;
  std::size_t taken = 0;
  for (int reads = 0; reads < kReadsMax; ++reads)
    if (try_run(space, number, keys, found, owner, taken)) return taken;
  return 0;
}

// Keys of one block of 16 chain pages. Most often one strip has them all; where a chain left another inside
// the block, the rest is in a strip of its own.
void IndexView::walk_block(SpaceId space, std::uint32_t guessed, std::span<const Key> keys,
                           std::span<FoundPage> found, bool owner) const {
  std::size_t i = guessed == kNoPage ? 0 : take_run(space, guessed, keys, found, owner);
  bool fetched = false;
  while (i < keys.size()) {
    if (!fetched)
      for (std::size_t rest = i; rest < keys.size(); ++rest) prefetch_places(space, keys[rest]);
    fetched = true;
    const std::uint32_t number = find_number(space, keys[i]);
    const std::size_t taken =
        number == kNoPage ? 0 : take_run(space, number, keys.subspan(i), found.subspan(i), owner);
    if (taken == 0) found[i] = FoundPage{};
    i += std::max<std::size_t>(1, taken);
  }
}

// In waves, so that what is far away is fetched together: the blocks' buckets, the strips that they name,
// the strips' rows; then the pages are looked at.
void IndexView::walk(SpaceId space, std::uint64_t first_page, std::span<const Key> keys,
                     std::span<FoundPage> found, bool owner) const {
  struct Block {
    std::size_t start = 0;
    Places places;
    std::uint32_t guess = kNoPage;
  };
  std::array<Block, kBlocksAtOnce + 1> block;
  for (std::size_t done = 0; done < keys.size();) {
    std::size_t blocks = 0;
    std::size_t next = done;
    for (; blocks < kBlocksAtOnce && next < keys.size(); next += kCells - (first_page + next) % kCells) {
      block[blocks] = {next, places(space, keys[next]), kNoPage};
      __builtin_prefetch(&bucket(block[blocks++].places.first));
    }
    block[blocks].start = std::min(next, keys.size());
    const std::span<Block> these(block.data(), blocks);
    for (Block& each : these) {
      each.guess = tagged(each.places.first, each.places.tag);
      if (each.guess != kNoPage)
        prefetch_strip(each.guess);
      else
        __builtin_prefetch(&bucket(each.places.second));
    }
    for (Block& each : these)
      if (each.guess == kNoPage) prefetch_strip(each.guess = tagged(each.places.second, each.places.tag));
    if (!owner)
      for (const Block& each : these) prefetch_row(each.guess);
    for (std::size_t b = 0; b < blocks; ++b) {
      const std::size_t count = block[b + 1].start - block[b].start;
      walk_block(space, block[b].guess, keys.subspan(block[b].start, count),
                 found.subspan(block[b].start, count), owner);
    }
    done = block[blocks].start;
  }
}

void IndexView::read_chain(SpaceId space, std::uint64_t first_page, std::span<const Key> keys,
                           std::span<FoundPage> found) const {
  TIERCEL_CHECK(keys.size() == found.size());
  walk(space, first_page, keys, found, false);
}

void IndexView::find_chain(SpaceId space, std::uint64_t first_page, std::span<const Key> keys,
                           std::span<std::uint32_t> numbers) const {
  TIERCEL_CHECK(keys.size() == numbers.size());
  std::array<FoundPage, kBlocksAtOnce * kCells> found;
  for (std::size_t done = 0; done < keys.size(); done += found.size()) {
    const std::size_t count = std::min(found.size(), keys.size() - done);
    walk(space, first_page + done, keys.subspan(done, count), std::span(found).first(count), true);
    for (std::size_t i = 0; i < count; ++i) numbers[done + i] = found[i].page;
  }
}

// Whatever else was read of the strip was read with acquire: a change that it met is seen in the generation.
std::optional<SlotAddress> IndexView::address(const FoundPage& found, SetNumber set) const {
  const PageNumber page(found.page);
  const auto read = address(page, set);
  if (!read || generation(page).load(kRelaxed) != found.generation) return std::nullopt;
  return read;
}

std::optional<SlotAddress> IndexView::address(PageNumber page, SetNumber set) const {
  if (page.value() >= sizes_.strips * kCells) return std::nullopt;
  const Strip& at = strip(page.value() / kCells);
  const std::uint32_t cell = page.value() % kCells;
  const auto known = [](std::uint32_t word) {
    return word == 0 ? std::nullopt : std::optional(SlotAddress(word - 1));
  };
  if (set.value() == 0) return known(at.first[cell].load(kAcquire));
  std::uint32_t reference = at.further.load(kAcquire);
  for (std::uint32_t links = 0; reference != 0 && links < kFurtherMax; ++links) {
    if ((reference & kRowBit) != 0) {
      if ((reference & ~kRowBit) >= sizes_.rows) return std::nullopt;
      const Row& of = row(reference & ~kRowBit);
      if (of.set.load(kAcquire) == set.value()) {
        if (const auto found = known(of.address[cell].load(kAcquire))) return found;
      }
      reference = of.next.load(kAcquire);
    } else {
      if (reference > sizes_.singles) return std::nullopt;
      const std::uint64_t one = single(reference - 1).load(kAcquire);
      if ((one >> 20 & 0xFFF) == (std::uint64_t{set.value()} << 4 | cell))
        return known(static_cast<std::uint32_t>(one >> 32));
      reference = static_cast<std::uint32_t>(one & 0xF'FFFF);
    }
  }
  return std::nullopt;
}

}  // namespace tiercel
