#include "index/index_view.h"

#include <algorithm>
#include <cstddef>

#include <fmt/format.h>

#include "base/check.h"
#include "base/crc32c.h"
#include "base/fault.h"
#include "base/prng.h"

namespace tiercel {

using compact::Bucket;
using compact::kCells;
using compact::kEntries;
using compact::kRowBit;
using compact::Places;
using compact::Record;
using compact::Row;

namespace {

constexpr auto kRelaxed = std::memory_order_relaxed;
constexpr auto kAcquire = std::memory_order_acquire;
constexpr int kReadsMax = 8;                 // of one record that keeps changing
constexpr std::size_t kBlocksAtOnce = 64;    // whose places are fetched together
constexpr std::uint32_t kFurtherMax = 1024;  // links followed; more means that the record changed meanwhile

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
  const compact::Header& header = view.header();
  if (header.magic != compact::kMagic)
    return tl::unexpected(not_an_index("no magic number: not a page index"));
  if (header.format != compact::kFormat)
    return tl::unexpected(
        not_an_index(fmt::format("format {}; this program reads {}", header.format, compact::kFormat)));
  if (header.checksum != crc32c(image.first(offsetof(compact::Header, checksum))))
    return tl::unexpected(not_an_index("the header's checksum is wrong"));
  const auto plan = compact::plan_image({header.pages_max, header.records, header.rows, header.singles});
  if (!plan) return tl::unexpected(not_an_index(plan.error().message));
  if (plan->bytes != header.bytes || plan->bytes > image.size() || plan->bucket_count != header.buckets ||
      plan->number_bits != header.number_bits)
    return tl::unexpected(not_an_index(fmt::format("sizes do not agree: {} bytes said, {} needed, {} there",
                                                   header.bytes, plan->bytes, image.size())));
  view.plan_ = *plan;
  return view;
}

const compact::Word& IndexView::mark(std::uint32_t id) const {
  return at<compact::Word>(plan_.marks)[id % compact::kMarks];
}

Places IndexView::places(SpaceId space, const Key& key) const {
  const std::uint64_t hash = mix64(key.words[0] ^ header().seed ^ (std::uint64_t{space.value()} << 32));
  Places out;
  out.first = ((hash & 0xFFFF'FFFF) * plan_.bucket_count) >> 32;
  out.second = ((hash >> 32) * plan_.bucket_count) >> 32;
  if (out.second == out.first) out.second = out.first + 1 == plan_.bucket_count ? 0 : out.first + 1;
  out.tag = static_cast<std::uint32_t>(key.words[1] << plan_.number_bits);
  return out;
}

// Whole key, space and presence: a tag alone is never a hit.
bool IndexView::is(std::uint32_t number, SpaceId space, const Key& key) const {
  if (number >= header().records * kCells) return false;
  const Record& at = record(number / kCells);
  const std::uint32_t cell = number % kCells;
  if ((at.used.load(kAcquire) >> cell & 1) == 0 || at.space.load(kAcquire) != space.value()) return false;
  if (TIERCEL_FAULT(tag_taken_as_hit)) return true;
  return at.keys[cell][0].load(kAcquire) == key.words[0] && at.keys[cell][1].load(kAcquire) == key.words[1];
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

void IndexView::prefetch_places(SpaceId space, const Key& key) const {
  const Places places_of = places(space, key);
  __builtin_prefetch(&bucket(places_of.first));
  __builtin_prefetch(&bucket(places_of.second));
}

void IndexView::prefetch_record(std::uint32_t number) const {
  if (number >= header().records * kCells) return;
  const auto* from = reinterpret_cast<const char*>(&record(number / kCells));
  for (std::size_t line = 0; line < sizeof(Record) + 64; line += 64)
    __builtin_prefetch(from + std::min(line, sizeof(Record) - 1));
}

// By its tag alone: where the page probably is.
std::uint32_t IndexView::guess(SpaceId space, const Key& key) const {
  const Places places_of = places(space, key);
  const std::uint32_t number_mask = (std::uint32_t{1} << plan_.number_bits) - 1;
  for (const std::uint64_t place : {places_of.first, places_of.second})
    for (const compact::Word& word : bucket(place).entries) {
      const std::uint32_t entry = word.load(kRelaxed);
      if (entry != 0 && (entry & ~number_mask) == places_of.tag) return (entry & number_mask) - 1;
    }
  return kNoPage;
}

void IndexView::add_further_classes(const Record& at, std::array<std::uint64_t, kCells>& classes) const {
  std::uint32_t reference = at.further.load(kAcquire);
  for (std::uint32_t links = 0; reference != 0 && links < kFurtherMax; ++links) {
    if ((reference & kRowBit) != 0) {
      if ((reference & ~kRowBit) >= header().rows) return;
      const Row& of = row(reference & ~kRowBit);
      const std::uint32_t set = of.set.load(kAcquire);
      if (set < 64)
        for (std::uint32_t cell = 0; cell < kCells; ++cell)
          if (of.address[cell].load(kAcquire) != 0) classes[cell] |= std::uint64_t{1} << set;
      reference = of.next.load(kAcquire);
    } else {
      if (reference > header().singles) return;
      const std::uint64_t one = single(reference - 1).load(kAcquire);
      const std::uint64_t set = one >> 24 & 0xFF;
      if (set < 64) classes[one >> 20 & 0xF] |= std::uint64_t{1} << set;
      reference = static_cast<std::uint32_t>(one & 0xF'FFFF);
    }
  }
}

// Pages of one record from `number` on whose keys are keys[0], keys[1], …: how many is told in `taken`.
// False: the record was changed meanwhile, nothing is told.
bool IndexView::try_run(SpaceId space, std::uint32_t number, std::span<const Key> keys,
                        std::span<FoundPage> found, bool owner, std::size_t& taken) const {
  const Record& at = record(number / kCells);
  std::uint32_t version = at.version.load(kAcquire);
  if (version % 2 != 0) return false;
  const std::uint32_t first_cell = number % kCells;
  const std::uint32_t visible = at.visible.load(kAcquire);
  std::size_t run = 0;
  while (run < keys.size() && first_cell + run < kCells &&
         is(number + static_cast<std::uint32_t>(run), space, keys[run]))
    ++run;
  std::array<std::uint64_t, kCells> classes{};
  if (!owner && run != 0) {
    for (std::size_t i = 0; i < run; ++i)
      classes[first_cell + i] = at.first[first_cell + i].load(kAcquire) != 0 ? 1 : 0;
    add_further_classes(at, classes);
  }
  TIERCEL_PAUSE();
  if (TIERCEL_FAULT(seqlock_not_repeated))
    version = at.version.load(kRelaxed);
  else if (at.version.load(kRelaxed) != version)
    return false;
  for (std::size_t i = 0; i < run; ++i) {
    const std::size_t cell = first_cell + i;
    const bool shown = owner || (visible >> cell & 1) != 0;
    found[i] =
        shown ? FoundPage{number + static_cast<std::uint32_t>(i), version, classes[cell]} : FoundPage{};
  }
  taken = run;
  return true;
}

std::size_t IndexView::take_run(SpaceId space, std::uint32_t number, std::span<const Key> keys,
                                std::span<FoundPage> found, bool owner) const {
  if (number >= header().records * kCells) return 0;
  std::size_t taken = 0;
  for (int reads = 0; reads < kReadsMax; ++reads)
    if (try_run(space, number, keys, found, owner, taken)) return taken;
  return 0;
}

// Keys of one block of 16 chain pages. Most often one record has them all; where a chain left another inside
// the block, the rest is in a record of its own.
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

void IndexView::walk(SpaceId space, std::uint64_t first_page, std::span<const Key> keys,
                     std::span<FoundPage> found, bool owner) const {
  std::array<std::uint32_t, kBlocksAtOnce> guesses;
  std::array<std::size_t, kBlocksAtOnce + 1> starts;
  for (std::size_t done = 0; done < keys.size();) {
    std::size_t blocks = 0;
    std::size_t next = done;
    while (blocks < kBlocksAtOnce && next < keys.size()) {
      starts[blocks++] = next;
      prefetch_places(space, keys[next]);
      next += kCells - (first_page + next) % kCells;
    }
    starts[blocks] = std::min(next, keys.size());
    for (std::size_t b = 0; b < blocks; ++b) prefetch_record(guesses[b] = guess(space, keys[starts[b]]));
    if (!owner)
      for (std::size_t b = 0; b < blocks; ++b) {
        if (guesses[b] == kNoPage || guesses[b] >= header().records * kCells) continue;
        const std::uint32_t further = record(guesses[b] / kCells).further.load(kRelaxed);
        if ((further & kRowBit) == 0 || (further & ~kRowBit) >= header().rows) continue;
        const auto* from = reinterpret_cast<const char*>(&row(further & ~kRowBit));
        __builtin_prefetch(from);
        __builtin_prefetch(from + sizeof(Row) - 1);
      }
    for (std::size_t b = 0; b < blocks; ++b)
      walk_block(space, guesses[b], keys.subspan(starts[b], starts[b + 1] - starts[b]),
                 found.subspan(starts[b], starts[b + 1] - starts[b]), owner);
    done = starts[blocks];
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

std::optional<SlotAddress> IndexView::address(PageNumber page, SetNumber set) const {
  if (page.value() >= header().records * kCells) return std::nullopt;
  const Record& at = record(page.value() / kCells);
  const std::uint32_t cell = page.value() % kCells;
  const auto known = [](std::uint32_t word) {
    return word == 0 ? std::nullopt : std::optional(SlotAddress(word - 1));
  };
  if (set.value() == 0) return known(at.first[cell].load(kAcquire));
  std::uint32_t reference = at.further.load(kAcquire);
  for (std::uint32_t links = 0; reference != 0 && links < kFurtherMax; ++links) {
    if ((reference & kRowBit) != 0) {
      if ((reference & ~kRowBit) >= header().rows) return std::nullopt;
      const Row& of = row(reference & ~kRowBit);
      if (of.set.load(kAcquire) == set.value()) {
        if (const auto found = known(of.address[cell].load(kAcquire))) return found;
      }
      reference = of.next.load(kAcquire);
    } else {
      if (reference > header().singles) return std::nullopt;
      const std::uint64_t one = single(reference - 1).load(kAcquire);
      if ((one >> 20 & 0xFFF) == (std::uint64_t{set.value()} << 4 | cell))
        return known(static_cast<std::uint32_t>(one >> 32));
      reference = static_cast<std::uint32_t>(one & 0xF'FFFF);
    }
  }
  return std::nullopt;
}

}  // namespace tiercel
