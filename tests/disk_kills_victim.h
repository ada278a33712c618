// One process of disk_kills: opens what the one before it left, compares it with what that one had promised,
// and works on until it is killed.
//
// Threads: one thread makes all calls.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "base/prng.h"
#include "disk_kills_world.h"

namespace tiercel::kills {

// Then something hangs. Longer than a reservation lives: a class-set of which a shard was refused ends with
// it.
inline constexpr Duration kPatience = std::chrono::seconds(45);

class Victim final {
 public:
  Victim(std::string folder, const Plan& plan, Book& book);
  // Nothing to tell: it is killed, or the process ends with exit status 3 and a line in the book.
  [[noreturn]] void work_until_killed();
  // Opens, audits, closes in order.
  void audit_only();

 private:
  struct Store {
    std::vector<std::pair<std::uint32_t, std::uint64_t>> sets;  // accepted ones and their computations
    std::vector<std::uint64_t> slots;                           // of the engine, busy until kSourceFree
  };
  [[noreturn]] void fail(const std::string& what);
  void require(const Status& status, std::string_view call);
  void phase(Phase now) { book_.phase = now; }
  // Polls until it holds. Who waits for long is killed later, so that what hangs is not taken for work.
  template <typename Done>
  void wait_until(std::string_view what, Done done) {
    const Time began = clock_.now();
    const std::uint64_t before = book_.phase;
    while (!done()) {
      pump(true);
      const Duration waited = clock_.now() - began;
      if (waited > std::chrono::milliseconds(100)) phase(kWaiting);
      if (waited > kPatience) fail(fmt::format("{} {}", what, held()));
    }
    book_.phase = before;
  }
  std::string held() const;
  void check_folder();

  // -- opening: disk_kills_audit.cc ----
  void open();
  void open_log();
  void check_drive();
  void audit_epoch();
  void audit_log();
  DiskSpaceId audit_spaces(std::uint32_t space, const std::vector<DiskLog::SpaceView>& views);
  void audit_space(std::uint32_t space, DiskSpaceId id);
  void audit_reads(std::uint32_t space, DiskSpaceId id);
  void audit_bytes(std::uint32_t space, std::uint32_t page, std::uint32_t cls, const DiskEntry& entry);
  void audit_node();
  void settle();
  DiskEntry entry_for(DiskSpaceId id, std::uint32_t space, std::uint32_t page, std::uint32_t cls,
                      std::vector<std::vector<std::byte>>& memory) const;

  // -- work ----
  void step();
  void pump(bool may_wait);
  void take(const Completion& completion);
  void promise_durable();
  void promise_store(const Store& store);
  std::vector<Key> chain_keys(std::uint32_t space, std::uint32_t chain) const;
  std::optional<std::uint64_t> free_slot();
  void store_some();
  void store_page(std::uint32_t space, std::uint32_t page, const std::vector<std::uint32_t>& classes);
  void look_up(std::uint32_t space, std::uint32_t chain, std::optional<std::uint64_t> expected);
  std::uint64_t load(std::uint32_t space, std::uint32_t chain, TicketId ticket, std::uint64_t length);
  void fetch();
  void remove_one();
  void clear_one();
  void next_epoch();
  void close_and_reopen();
  void close();

  const std::string folder_;
  const Plan plan_;
  Book& book_;
  const Tree tree_;
  const StorageForm form_;
  Promises promises_;
  SteadyClock clock_;
  // Once for a process: one that closed and opened again would put it off for ever where it is quick.
  Time dies_at_;
  Prng random_;
  MortalDevice::Met met_;
  std::unique_ptr<Cache> cache_;
  std::uint64_t epoch_ = 0;
  std::array<std::vector<Key>, kSpaces> keys_;                 // of this epoch
  std::array<DiskSpaceId, kSpaces> disk_spaces_;               // 0: the log has no name for it
  std::array<std::array<Presence, kPages>, kSpaces> found_{};  // by the last audit
  std::set<DiskName> evicted_;                                 // while the last audit went on
  std::map<OperationId, Store> stores_;
  std::vector<bool> slot_busy_;
  std::map<OperationId, LoadResult> loaded_;
  std::size_t fetches_ = 0, flushes_ = 0;
  std::uint64_t requests_ = 0;
  std::size_t files_open_ = 0;  // before anything was opened
};

}  // namespace tiercel::kills
