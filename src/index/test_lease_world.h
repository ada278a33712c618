// For tests: an index of the simplest kind (strips of four cells that name slots), the slots' bytes, and a
// lease table, each in memory that processes share. An evictor takes pages out of sight, scans and writes
// others over their slots; readers lease pages and look whether every byte is the one that the page must
// have. The bytes are plain, as in the arena, so ThreadSanitizer sees whether the leases order them.
//
// Threads: the world is built by one thread. Then one evictor, and each LeaseReader on one thread or in one
// process.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <new>
#include <optional>
#include <vector>

#include <sys/mman.h>

#include "base/bytes.h"
#include "base/check.h"
#include "base/prng.h"
#include "index/lease_orders.h"
#include "index/lease_table.h"

namespace tiercel {

// Anonymous memory that a forked process shares.
class SharedPages final {
 public:
  explicit SharedPages(std::size_t bytes)
      : bytes_(bytes), at_(mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0)) {
    TIERCEL_CHECK(at_ != MAP_FAILED);
  }
  ~SharedPages() { munmap(at_, bytes_); }
  SharedPages(const SharedPages&) = delete;
  SharedPages& operator=(const SharedPages&) = delete;
  MutableByteView view() const { return {static_cast<std::byte*>(at_), bytes_}; }
  // For this process, from now on.
  void make_read_only() const { TIERCEL_CHECK(mprotect(at_, bytes_, PROT_READ) == 0); }
  template <typename T>
  T* make() const {
    TIERCEL_CHECK(sizeof(T) <= bytes_);
    return new (at_) T{};
  }

 private:
  std::size_t bytes_;
  void* at_;
};

struct LeaseWorld {
  static constexpr std::uint32_t kStrips = 4, kCells = 4, kPages = kStrips * kCells;
  static constexpr std::uint32_t kSlots = kPages + 4;
  static constexpr std::uint32_t kSlotWords = 64;

  struct Strip {
    std::atomic<std::uint32_t> version{2};
    std::array<std::atomic<std::uint32_t>, kCells> slot{};  // slot + 1; 0 = no page
    std::array<std::atomic<std::uint64_t>, kCells> page{};
  };
  struct Index {
    std::array<Strip, kStrips> strips{};
  };
  struct Slots {
    std::array<std::array<std::uint64_t, kSlotWords>, kSlots> words{};
  };
  // What the readers tell, each its own.
  struct alignas(64) Tally {
    std::atomic<std::uint64_t> granted{0}, refused{0}, wrong{0};
    std::atomic<bool> stop{false};
  };
  struct Tallies {
    std::array<Tally, 4> each{};
  };

  static std::uint64_t word_of(std::uint64_t page, std::uint32_t at) { return mix64(page * kSlotWords + at); }

  explicit LeaseWorld(const LeaseTableShape& shape)
      : index_pages(sizeof(Index)),
        slot_pages(sizeof(Slots)),
        tally_pages(sizeof(Tallies)),
        lease_pages(LeaseTable::bytes(shape).value()),
        index(index_pages.make<Index>()),
        slots(slot_pages.make<Slots>()),
        tallies(tally_pages.make<Tallies>()),
        table(LeaseTable::format(lease_pages.view(), shape).value()) {}

  SharedPages index_pages, slot_pages, tally_pages, lease_pages;
  Index* index;
  Slots* slots;
  Tallies* tallies;
  LeaseTable table;
};

class LeaseEvictor final {
 public:
  static constexpr std::uint32_t kBatch = 6;

  LeaseEvictor(LeaseWorld& world, std::uint64_t seed) : world_(world), prng_(seed) {
    for (std::uint32_t slot = 0; slot < LeaseWorld::kSlots; ++slot) free_.push_back(slot);
    fill();
  }

  // Hides some pages, asks once who reads them and those hidden before, and puts others into the slots of the
  // rest.
  void round() {
    for (std::uint32_t i = 0; i < kBatch; ++i)
      hide({static_cast<std::uint32_t>(prng_.below(LeaseWorld::kStrips)),
            static_cast<std::uint32_t>(prng_.below(LeaseWorld::kCells))});
    collect();
    fill();
  }
  // What stays hidden because somebody reads it.
  std::size_t waiting() const { return hidden_.size(); }
  void hide_all() {
    for (std::uint32_t strip = 0; strip < LeaseWorld::kStrips; ++strip)
      for (std::uint32_t cell = 0; cell < LeaseWorld::kCells; ++cell) hide({strip, cell});
    collect();
  }
  void collect() {
    std::vector<LeaseName> victims;
    for (const Hidden& each : hidden_) {
      const auto cell = static_cast<std::uint8_t>(each.at.cell);
      victims.push_back({each.at.strip, cell, cell});
    }
    std::vector<std::uint8_t> named(victims.size());
    world_.table.scan(victims, named);
    std::vector<Hidden> still;
    for (std::size_t i = 0; i < named.size(); ++i) {
      if (named[i] != 0) {
        still.push_back(hidden_[i]);
      } else {
        free_.push_back(hidden_[i].slot);
        world_.slots->words[hidden_[i].slot].fill(0);
      }
    }
    hidden_ = std::move(still);
  }

 private:
  struct At {
    std::uint32_t strip = 0, cell = 0;
    friend bool operator==(const At&, const At&) = default;
  };
  struct Hidden {
    At at;
    std::uint32_t slot = 0;
  };

  void hide(At at) {
    LeaseWorld::Strip& strip = world_.index->strips[at.strip];
    const std::uint32_t slot = strip.slot[at.cell].load(std::memory_order_relaxed);
    if (slot == 0) return;
    const std::uint32_t version = strip.version.load(std::memory_order_relaxed);
    strip.version.store(version + 1, kLeaseOrders.hide);
    strip.slot[at.cell].store(0, kLeaseOrders.write);
    strip.page[at.cell].store(0, kLeaseOrders.write);
    strip.version.store(version + 2, kLeaseOrders.settle);
    hidden_.push_back({at, slot - 1});
  }

  // A cell whose last page somebody still reads takes no other: its lease would be taken for one of the new
  // page.
  bool waits(At at) const {
    return std::any_of(hidden_.begin(), hidden_.end(), [&](const Hidden& each) { return each.at == at; });
  }
  void fill() {
    for (std::uint32_t i = 0; i < LeaseWorld::kPages && !free_.empty(); ++i) {
      const At at{i / LeaseWorld::kCells, i % LeaseWorld::kCells};
      LeaseWorld::Strip& strip = world_.index->strips[at.strip];
      if (strip.slot[at.cell].load(std::memory_order_relaxed) != 0 || waits(at)) continue;
      const std::uint32_t slot = free_.front();
      free_.erase(free_.begin());
      ++page_;
      for (std::uint32_t w = 0; w < LeaseWorld::kSlotWords; ++w)
        world_.slots->words[slot][w] = LeaseWorld::word_of(page_, w);
      const std::uint32_t version = strip.version.load(std::memory_order_relaxed);
      strip.version.store(version + 1, kLeaseOrders.open);
      strip.page[at.cell].store(page_, kLeaseOrders.write);
      strip.slot[at.cell].store(slot + 1, kLeaseOrders.write);
      strip.version.store(version + 2, kLeaseOrders.settle);
    }
  }

  LeaseWorld& world_;
  Prng prng_;
  std::uint64_t page_ = 0;
  std::vector<std::uint32_t> free_;
  std::vector<Hidden> hidden_;
};

class LeaseReader final {
 public:
  LeaseReader(LeaseWorld& world, ClientPlace place, std::size_t tally, std::uint64_t seed)
      : world_(world),
        client_(LeaseClient::attach(world.lease_pages.view(), place).value()),
        tally_(world.tallies->each[tally]),
        prng_(seed) {}

  // Leases some cells of one strip, reads all their pages, gives them back.
  void round() {
    const auto strip = static_cast<std::uint32_t>(prng_.below(LeaseWorld::kStrips));
    const auto first = static_cast<std::uint8_t>(prng_.below(LeaseWorld::kCells));
    const auto last = static_cast<std::uint8_t>(prng_.between(first, LeaseWorld::kCells - 1));
    const auto slot = lease({strip, first, last});
    if (!slot) return;
    for (std::uint8_t cell = first; cell <= last; ++cell) compare(seen_[cell]);
    client_.release(*slot);
  }
  // Takes a lease and keeps it. Until it gets one: the evictor may be at work.
  std::uint32_t keep(LeaseName name) {
    for (;;)
      if (const auto slot = lease(name)) return *slot;
  }
  LeaseClient& client() { return client_; }
  LeaseWorld::Tally& tally() { return tally_; }

 private:
  struct Seen {
    std::uint32_t slot = 0;
    std::uint64_t page = 0;
  };

  std::optional<std::uint32_t> lease(LeaseName name) {
    const LeaseWorld::Strip& strip = world_.index->strips[name.strip];
    const std::uint32_t version = strip.version.load(kLeaseOrders.look);
    for (std::uint8_t cell = name.first; cell <= name.last; ++cell)
      seen_[cell] = {strip.slot[cell].load(kLeaseOrders.read), strip.page[cell].load(kLeaseOrders.read)};
    const auto slot = client_.lease(name, strip.version, version);
    (slot ? tally_.granted : tally_.refused).fetch_add(1, std::memory_order_relaxed);
    return slot;
  }
  void compare(const Seen& seen) {
    if (seen.slot == 0) return;
    bool wrong = seen.slot > LeaseWorld::kSlots;
    for (std::uint32_t w = 0; w < LeaseWorld::kSlotWords && !wrong; ++w)
      wrong = world_.slots->words[seen.slot - 1][w] != LeaseWorld::word_of(seen.page, w);
    if (wrong) tally_.wrong.fetch_add(1, std::memory_order_relaxed);
  }

  LeaseWorld& world_;
  LeaseClient client_;
  LeaseWorld::Tally& tally_;
  Prng prng_;
  std::array<Seen, LeaseWorld::kCells> seen_{};
};

}  // namespace tiercel
