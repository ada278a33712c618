// What a node is opened with: its grant of memory, its policies, its patience. Every default is listed with
// its reason in docs/guide/defaults.md.
//
// Threads: plain values.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/status.h"
#include "device/device.h"
#include "disk/disk_log.h"
#include "index/compact_layout.h"
#include "index/lease_table.h"
#include "index/page_index.h"
#include "index/policy.h"
#include "memory/arena.h"
#include "model/spec.h"
#include "os/clock.h"
#include "os/executor.h"
#include "os/processes.h"
#include "remote/remote_tier.h"

namespace tiercel {

// What offer() wants, and when (contract §4).
enum class WritePolicy : std::uint8_t {
  kWriteThrough,           // at `computed`
  kWriteThroughSelective,  // at the second match by different requests
  kWriteBack,              // at `leaving`
};
// When records are verified on their way out of the host tier (contract §8).
enum class Verification : std::uint8_t { kAlways, kOncePerResidency, kSampled };
// Which window records and snapshots are kept: every page's, or those that a retained resume point needs.
enum class SparseRetention : std::uint8_t { kAtPoints, kAll };

// How the host tier and the disk below it work together.
struct DiskTierOptions {
  // When class-sets of the host tier are offered to the disk; its admission has the last word.
  WritePolicy write_policy = WritePolicy::kWriteThrough;
  std::uint32_t selective_threshold = 2;  // kWriteThroughSelective: different requests
  // kWriteBack: class-sets go down ahead of eviction while less than this share of the arena is free.
  double clean_share = 0.125;
  double write_share = 0.25;  // of the arena: class-sets that are being written down at once
  std::uint64_t prefetch_threshold_tokens = 256;  // a prefetch of less is not begun
  double prefetch_share = 0.5;                    // of the arena: all prefetches under way
  Duration prefetch_base = std::chrono::seconds(1);
  Duration prefetch_per_1024_tokens = std::chrono::milliseconds(250);
  Duration record_deadline = std::chrono::seconds(5);  // remove, clear, set_weights_epoch wait so long
  std::uint64_t host_bytes = 0;  // of the grant, for the disk's index (DiskGeometry::host_bytes)
};

// How the host tier and the remote tier below it work together. Prefetches are those of DiskTierOptions.
struct RemoteSideOptions {
  // When class-sets of the host tier are offered to the store.
  WritePolicy write_policy = WritePolicy::kWriteThrough;
  std::uint32_t selective_threshold = 2;               // kWriteThroughSelective: different requests
  Duration record_deadline = std::chrono::seconds(5);  // remove, clear, set_weights_epoch wait so long
};

struct NodeOptions {
  std::uint64_t host_bytes = 0;  // the whole grant: extents, index and history (required)
  std::uint64_t extent_bytes = 2ULL << 20;
  std::uint64_t index_pages_max = 0;  // 0: host_bytes / 64 KiB, at least 1,024
  // Strips of up to 16 chained pages; 0: index_pages_max / 16, at least 64. Where chains are short a page
  // needs a strip of its own.
  std::uint64_t index_strips_max = 0;
  std::uint64_t history_entries = 0;              // 0: as many as index_pages_max
  std::uint64_t advice_entries = 0;               // pages that advice takes note of; 0: twice index_pages_max
  std::optional<std::uint64_t> record_bytes_max;  // payload of resident records; replay's --host-bytes
  std::optional<std::uint64_t> pages_max;         // visible pages; replay's --capacity-pages
  std::optional<std::uint64_t> snapshot_budget;   // most snapshots that advice may ask for
  std::uint64_t in_flight_bytes_max = 0;          // payload under copies; 0: the arena
  double client_share = 0.25;                     // of the arena: a session's leased plus reserved bytes

  PolicyKind policy = PolicyKind::kLru;
  WritePolicy write_policy = WritePolicy::kWriteThrough;
  Verification verification = Verification::kAlways;
  std::uint32_t sampled_one_in = 16;  // kSampled
  SparseRetention retention = SparseRetention::kAtPoints;
  std::uint32_t selective_threshold = 2;
  std::uint64_t load_back_threshold_tokens = 10;

  Duration ticket_ttl = std::chrono::seconds(10);
  Duration reservation_ttl = std::chrono::seconds(30);
  Duration operation_deadline = std::chrono::seconds(30);
  // From an outside writer's exit to the end of its reservations: time to commit what it had finished.
  Duration writer_grace = std::chrono::milliseconds(500);
  std::uint64_t move_bytes_max = 8ULL << 20;  // moved inside the arena for one store at most
  std::uint32_t operations_max = 4096;        // loads and stores under way; more are refused
  std::uint32_t tickets_max = 65536;
  std::uint32_t requests_max = 65536;      // under way at once; more are refused
  std::uint32_t completions_max = 262144;  // not drained; beyond it matches, loads and stores are refused
  std::uint32_t events_max = 65536;        // queued events; more are dropped and counted as lost
  DiskTierOptions disk;                    // without World::disk it means nothing
  RemoteSideOptions remote;                // without World::remote it means nothing
  bool off = false;  // the switch that turns the cache off: every match misses, every store is refused
};

// Everything outside, given by whoever wires the node together; all must outlive it.
struct World {
  Clock& clock;
  Executor& executor;
  Arena& arena;
  Device& device;
  std::uint64_t seed = 1;
  PageIndex* index = nullptr;  // empty, of index_sizes(); null: the node makes its own
  LeaseTable* readers =
      nullptr;  // of readers of the index in other threads and processes; null: there are none
  Processes* processes = nullptr;  // where writers of other processes are found; null: there can be none
  DiskLog* disk = nullptr;         // open for writing; null: there is no disk tier
  RemoteTier* remote = nullptr;    // null: there is no remote tier
};

// Pages of one chain that a call may speak of (first_page, keys, held, length): far beyond any context, and
// what an answer may cost.
inline constexpr std::uint64_t kChainPagesMax = std::uint64_t{1} << 22;

// What host_bytes become: every option that was left to the node has its value, the rest are extents.
struct Grant {
  NodeOptions options;
  std::uint64_t extents = 0;  // of options.extent_bytes
};
// Pure. Errors: invalid_argument when an option makes no sense, or nothing would be left for extents.
Result<Grant> divide_grant(NodeOptions options);

// The page index of a node with these options. Requires: index_pages_max is given.
compact::Sizes index_sizes(const NodeOptions& options);

// What index, history and advice take of the grant. Requires: their entries are given, none is 0.
std::uint64_t book_bytes(const NodeOptions& options);

}  // namespace tiercel
