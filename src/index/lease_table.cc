#include "index/lease_table.h"

#include <algorithm>
#include <bit>
#include <new>

#include <fmt/format.h>

#include "base/check.h"
#include "base/prng.h"
#include "index/lease_orders.h"

namespace tiercel {
namespace {

using lease_layout::Block;
using lease_layout::ClientLine;
using lease_layout::Entry;
using lease_layout::OwnerLine;
using lease_layout::Word;

constexpr std::uint64_t kMagic = 0x5341'454C'4C43'5254;  // "TRCLLEAS"
constexpr std::uint32_t kFormat = 1;
constexpr std::uint64_t kPage = 4096;
constexpr std::uint32_t kPerBitmapWord = 64;

struct Header {  // constant after format
  std::uint64_t magic;
  std::uint32_t format;
  std::uint32_t clients_max;
  std::uint32_t words_per_client;
  std::uint32_t touches_per_client;
  std::uint64_t bytes;
  std::uint64_t check;  // of what stands before
};
std::uint64_t check_of(const Header& header) {
  std::uint64_t check = 0;
  for (const std::uint64_t field :
       {header.magic, std::uint64_t{header.format}, std::uint64_t{header.clients_max},
        std::uint64_t{header.words_per_client}, std::uint64_t{header.touches_per_client}, header.bytes})
    check = mix64(check + field);
  return check;
}
static_assert(sizeof(Header) <= kPage);

// A lease word; 0 = no lease: bit 63 set, 23 bits of version / 2, last cell, first cell, strip.
constexpr std::uint64_t encode(const LeaseName& name, std::uint32_t version) {
  return (std::uint64_t{1} << 63) | ((std::uint64_t{version >> 1} & 0x7F'FFFF) << 40) |
         (std::uint64_t{name.last} << 36) | (std::uint64_t{name.first} << 32) | name.strip;
}
constexpr LeaseName name_of(std::uint64_t word) {
  return {static_cast<std::uint32_t>(word), static_cast<std::uint8_t>((word >> 32) & 15),
          static_cast<std::uint8_t>((word >> 36) & 15)};
}
// A bit for each cell. A name that makes no sense (its client wrote it) names all: then less is evicted.
constexpr std::uint16_t cells_of(const LeaseName& name) {
  if (name.first > name.last || name.last >= kLeaseCellsMax) return 0xFFFF;
  return static_cast<std::uint16_t>((0xFFFFU >> (kLeaseCellsMax - 1 - name.last)) & (0xFFFFU << name.first));
}

constexpr std::uint64_t block_bytes(const LeaseTableShape& shape) {
  const std::uint64_t used = sizeof(OwnerLine) + sizeof(ClientLine) + shape.words_per_client * sizeof(Word) +
                             shape.touches_per_client * sizeof(Entry);
  return (used + kPage - 1) / kPage * kPage;
}

Block block_at(std::byte* base, const LeaseTableShape& shape, std::uint32_t place) {
  std::byte* const at = base + kPage + place * block_bytes(shape);
  std::byte* const words = at + sizeof(OwnerLine) + sizeof(ClientLine);
  return {reinterpret_cast<OwnerLine*>(at), reinterpret_cast<ClientLine*>(at + sizeof(OwnerLine)),
          reinterpret_cast<Word*>(words),
          reinterpret_cast<Entry*>(words + shape.words_per_client * sizeof(Word))};
}

Status check_region(MutableByteView region, std::uint64_t wanted) {
  if (region.size() < wanted)
    return {Code::kInvalidArgument,
            fmt::format("lease table: the region has {} bytes, {} are needed; map all of it", region.size(),
                        wanted)};
  if (reinterpret_cast<std::uintptr_t>(region.data()) % alignof(OwnerLine) != 0)
    return {Code::kInvalidArgument, "lease table: the region is not aligned to 64 bytes; map it at a page"};
  return {};
}

Result<LeaseTableShape> read_header(MutableByteView region) {
  TIERCEL_RETURN_IF_ERROR(check_region(region, kPage));
  Header header;
  std::memcpy(&header, region.data(), sizeof header);
  if (header.magic != kMagic || header.format != kFormat)
    return error(
        Code::kInvalidArgument,
        fmt::format("lease table: magic {:#x} format {}, wanted {:#x} format {}; is this the node's region, "
                    "and of this version?",
                    header.magic, header.format, kMagic, kFormat));
  const LeaseTableShape shape{.clients_max = header.clients_max,
                              .words_per_client = header.words_per_client,
                              .touches_per_client = header.touches_per_client};
  TIERCEL_ASSIGN_OR_RETURN(const std::uint64_t wanted, LeaseTable::bytes(shape));
  if (wanted != header.bytes || check_of(header) != header.check)
    return error(
        Code::kInvalidArgument,
        fmt::format("lease table: its header says {} bytes, its sizes make {}, or its check is wrong; the "
                    "region is damaged, ask the node for it again",
                    header.bytes, wanted));
  TIERCEL_RETURN_IF_ERROR(check_region(region, wanted));
  return shape;
}

}  // namespace

// ---- The owner's end ----

Result<std::uint64_t> LeaseTable::bytes(const LeaseTableShape& shape) {
  const auto refuse = [](const char* what, std::uint32_t got, const char* range) {
    return error(Code::kInvalidArgument, fmt::format("lease table: {} is {}, must be {}", what, got, range));
  };
  if (shape.clients_max < 1 || shape.clients_max > 4096)
    return refuse("clients_max", shape.clients_max, "1 … 4096");
  if (shape.words_per_client < 8 || shape.words_per_client > 65536 || shape.words_per_client % 8 != 0)
    return refuse("words_per_client", shape.words_per_client, "a multiple of 8 in 8 … 65536");
  if (shape.touches_per_client < 2 || shape.touches_per_client > (1U << 20) ||
      !std::has_single_bit(shape.touches_per_client))
    return refuse("touches_per_client", shape.touches_per_client, "a power of two in 2 … 1048576");
  if (shape.first_epoch == 0) return refuse("first_epoch", 0, "at least 1");
  return kPage + shape.clients_max * block_bytes(shape);
}

LeaseTable::LeaseTable(const LeaseTableShape& shape, std::vector<Place> places)
    : shape_(shape), places_(std::move(places)) {}

Result<LeaseTable> LeaseTable::format(MutableByteView region, const LeaseTableShape& shape) {
  TIERCEL_ASSIGN_OR_RETURN(const std::uint64_t wanted, bytes(shape));
  TIERCEL_RETURN_IF_ERROR(check_region(region, wanted));
  std::vector<Place> places(shape.clients_max);
  for (std::uint32_t i = 0; i < shape.clients_max; ++i) {
    const Block block = block_at(region.data(), shape, i);
    new (block.owner) OwnerLine{};
    new (block.client) ClientLine{};
    for (std::uint32_t w = 0; w < shape.words_per_client; ++w) new (block.words + w) Word{0};
    for (std::uint32_t e = 0; e < shape.touches_per_client; ++e) new (block.entries + e) Entry{};
    places[i] = {.block = block, .epoch = shape.first_epoch - 1};
  }
  Header header{.magic = kMagic,
                .format = kFormat,
                .clients_max = shape.clients_max,
                .words_per_client = shape.words_per_client,
                .touches_per_client = shape.touches_per_client,
                .bytes = wanted,
                .check = 0};
  header.check = check_of(header);
  std::memcpy(region.data(), &header, sizeof header);
  return LeaseTable(shape, std::move(places));
}

Result<ClientPlace> LeaseTable::add_client(std::uint32_t pid) {
  const auto free =
      std::find_if(places_.begin(), places_.end(), [](const Place& each) { return !each.active; });
  if (free == places_.end())
    return error(Code::kResourceExhausted,
                 fmt::format("lease table: all {} places are taken; raise clients_max", places_.size()));
  free->active = true;
  if (++free->epoch == 0) free->epoch = 1;
  free->block.owner->pid.store(pid, std::memory_order_relaxed);
  free->block.owner->epoch.store(free->epoch, std::memory_order_release);
  const auto place = static_cast<std::uint32_t>(free - places_.begin());
  active_.push_back(place);
  return ClientPlace{place, free->epoch};
}

bool LeaseTable::current(ClientPlace client) const {
  return client.place < places_.size() && places_[client.place].active &&
         places_[client.place].epoch == client.epoch;
}

void LeaseTable::remove_client(ClientPlace client) {
  if (!current(client)) return;
  Place& place = places_[client.place];
  counts_.touches_lost += pending_touches(client.place);
  place.block.owner->epoch.store(0, std::memory_order_relaxed);
  for (std::uint32_t w = 0; w < shape_.words_per_client; ++w)
    place.block.words[w].store(0, std::memory_order_relaxed);
  place.block.client->words_high.store(0, std::memory_order_relaxed);
  place.block.client->touched.store(0, std::memory_order_relaxed);
  place.block.client->touches_lost.store(0, std::memory_order_relaxed);
  place.block.owner->drained.store(0, std::memory_order_relaxed);
  place.drained = 0;
  place.lost = 0;
  place.active = false;
  std::erase(active_, client.place);
}

LeaseTable::Wanted& LeaseTable::wanted(std::uint32_t strip) {
  const std::size_t mask = wanted_.size() - 1;
  std::size_t at = (strip * 0x9E3779B97F4A7C15ULL) >> 32;
  while (wanted_[at & mask].used && wanted_[at & mask].strip != strip) ++at;
  return wanted_[at & mask];
}

std::uint32_t LeaseTable::words_in_use(const Place& place) const {
  return std::min(place.block.client->words_high.load(lease_orders().count), shape_.words_per_client);
}

void LeaseTable::note_words(const Place& place) {
  const std::uint32_t words = words_in_use(place);
  counts_.words_read += words;
  for (std::uint32_t w = 0; w < words; ++w) {
    const std::uint64_t word = place.block.words[w].load(lease_orders().scan);
    if (word == 0) continue;
    Wanted& strip = wanted(static_cast<std::uint32_t>(word));
    if (strip.used) strip.cells = static_cast<std::uint16_t>(strip.cells | cells_of(name_of(word)));
  }
}

void LeaseTable::scan(std::span<const LeaseName> victims, std::span<std::uint8_t> named) {
  TIERCEL_CHECK(victims.size() == named.size());
  ++counts_.scans;
  counts_.victims += victims.size();
  wanted_.assign(std::bit_ceil(victims.size() * 2 + 1), Wanted{});
  for (const LeaseName& victim : victims) {
    TIERCEL_CHECK(victim.first <= victim.last && victim.last < kLeaseCellsMax);
    Wanted& strip = wanted(victim.strip);
    strip.used = true;
    strip.strip = victim.strip;
  }
  for (const std::uint32_t place : active_) note_words(places_[place]);
  for (std::size_t i = 0; i < victims.size(); ++i) {
    named[i] = (wanted(victims[i].strip).cells & cells_of(victims[i])) != 0 ? 1 : 0;
    counts_.victims_named += named[i];
  }
}

// How many touches wait, and counts what the client lost. A count that no client of ours can reach is
// dropped.
std::uint32_t LeaseTable::pending_touches(std::uint32_t place) {
  Place& from = places_[place];
  const std::uint64_t lost = from.block.client->touches_lost.load(std::memory_order_relaxed);
  if (lost > from.lost) counts_.touches_lost += lost - from.lost;
  from.lost = lost;
  const std::uint32_t touched = from.block.client->touched.load(std::memory_order_acquire);
  const std::uint32_t pending = touched - from.drained;
  if (pending <= shape_.touches_per_client) return pending;
  from.drained = touched;
  from.block.owner->drained.store(touched, std::memory_order_release);
  return 0;
}

Touch LeaseTable::next_touch(std::uint32_t place) {
  Place& from = places_[place];
  const Entry& entry = from.block.entries[from.drained & (shape_.touches_per_client - 1)];
  const std::uint64_t what = entry.what.load(std::memory_order_relaxed);
  const std::uint64_t when = entry.when.load(std::memory_order_relaxed);
  from.block.owner->drained.store(++from.drained, std::memory_order_release);
  ++counts_.touches;
  return {static_cast<std::uint32_t>(what), static_cast<std::uint32_t>(what >> 32),
          Time{static_cast<Time::rep>(when)}};
}

std::vector<LeaseTable::Held> LeaseTable::leases(ClientPlace client) const {
  std::vector<Held> held;
  if (!current(client)) return held;
  const Place& place = places_[client.place];
  for (std::uint32_t w = 0; w < words_in_use(place); ++w) {
    const std::uint64_t word = place.block.words[w].load(lease_orders().scan);
    if (word != 0) held.push_back({name_of(word), static_cast<std::uint32_t>((word >> 40) & 0x7F'FFFF) << 1});
  }
  return held;
}

// ---- A client's end ----

LeaseClient::LeaseClient(Block block, std::uint32_t words, std::uint32_t touches)
    : block_(block),
      words_(words),
      touches_(touches),
      taken_(std::make_unique<std::atomic<std::uint64_t>[]>((words + kPerBitmapWord - 1) / kPerBitmapWord)) {
  // Slots that do not exist are taken for ever.
  if (words % kPerBitmapWord != 0)
    taken_[words / kPerBitmapWord].store(~std::uint64_t{0} << words % kPerBitmapWord);
}

Result<LeaseClient> LeaseClient::attach(MutableByteView region, ClientPlace place) {
  TIERCEL_ASSIGN_OR_RETURN(const LeaseTableShape shape, read_header(region));
  if (place.place >= shape.clients_max)
    return error(Code::kInvalidArgument,
                 fmt::format("lease table: place {} of {}; take the one that the node gave", place.place,
                             shape.clients_max));
  const Block block = block_at(region.data(), shape, place.place);
  const std::uint32_t epoch = block.owner->epoch.load(std::memory_order_acquire);
  if (epoch != place.epoch || epoch == 0)
    return error(Code::kFailedPrecondition,
                 fmt::format("lease table: place {} is in epoch {}, not {}; ask the node for a "
                             "new place",
                             place.place, epoch, place.epoch));
  return LeaseClient(block, shape.words_per_client, shape.touches_per_client);
}

// The lowest free one, so that a scan has few words to read.
std::optional<std::uint32_t> LeaseClient::take_slot() {
  for (std::uint32_t at = 0; at * kPerBitmapWord < words_; ++at) {
    std::uint64_t bits = taken_[at].load(std::memory_order_relaxed);
    while (bits != ~std::uint64_t{0})
      if (taken_[at].compare_exchange_weak(bits, bits | (bits + 1), std::memory_order_acquire,
                                           std::memory_order_relaxed))
        return at * kPerBitmapWord + static_cast<std::uint32_t>(std::countr_one(bits));
  }
  return std::nullopt;
}

void LeaseClient::give_slot(std::uint32_t slot) {
  const std::uint64_t bit = std::uint64_t{1} << slot % kPerBitmapWord;
  const std::uint64_t before = taken_[slot / kPerBitmapWord].fetch_and(~bit, std::memory_order_release);
  TIERCEL_CHECK((before & bit) != 0);
}

void LeaseClient::raise_high(std::uint32_t slot) {
  std::uint32_t high = block_.client->words_high.load(lease_orders().known);
  while (high <= slot && !block_.client->words_high.compare_exchange_weak(
                             high, slot + 1, lease_orders().raise, lease_orders().known)) {
  }
}

std::optional<std::uint32_t> LeaseClient::lease(const LeaseName& name,
                                                const std::atomic<std::uint32_t>& version,
                                                std::uint32_t expected) {
  TIERCEL_CHECK(name.first <= name.last && name.last < kLeaseCellsMax);
  if (expected == 0 || expected % 2 != 0) return std::nullopt;
  const std::optional<std::uint32_t> slot = take_slot();
  if (!slot) return std::nullopt;
  raise_high(*slot);
  Word& word = block_.words[*slot];
  word.store(encode(name, expected), lease_orders().publish);
  if (version.load(lease_orders().validate) == expected) return slot;
  release(*slot);
  return std::nullopt;
}

void LeaseClient::release(std::uint32_t slot) {
  TIERCEL_CHECK(slot < words_);
  block_.words[slot].store(0, lease_orders().clear);
  give_slot(slot);
}

void LeaseClient::touch(const Touch& touch) {
  ClientLine& line = *block_.client;
  const std::uint32_t touched = line.touched.load(std::memory_order_relaxed);
  if (touched - block_.owner->drained.load(std::memory_order_acquire) >= touches_) {
    line.touches_lost.store(line.touches_lost.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
    return;
  }
  Entry& entry = block_.entries[touched & (touches_ - 1)];
  entry.what.store((std::uint64_t{touch.length} << 32) | touch.page, std::memory_order_relaxed);
  entry.when.store(static_cast<std::uint64_t>(touch.time.count()), std::memory_order_relaxed);
  line.touched.store(touched + 1, std::memory_order_release);
}

}  // namespace tiercel
