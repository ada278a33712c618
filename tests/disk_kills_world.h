// The world of disk_kills: one hybrid model, conversations that branch, and contents that say which
// computation they are of.
//
// Threads: constant once made; Cache: one thread makes all calls.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "device/device_pool.h"
#include "disk/disk_log.h"
#include "disk_kills_book.h"
#include "disk_kills_device.h"
#include "disk_kills_plan.h"
#include "memory/mapped_arena.h"
#include "node/node.h"
#include "os/block_open.h"

namespace tiercel::kills {

inline constexpr std::uint64_t kEngineSlots = 96;  // the first half to store from, the rest to load into
inline constexpr std::uint64_t kStoreSlots = kEngineSlots / 2;
inline constexpr std::uint64_t kHostBytes = 4ULL << 20;
inline constexpr std::uint64_t kExtentBytes = 64ULL << 10;

// Full attention and index keys (both required), a window, states, a draft; two shards.
ModelSpec hybrid_spec();

// Pages of one space: conversations share beginnings.
struct Tree {
  Tree();
  std::vector<std::optional<std::uint32_t>> parent;  // of each page
  std::vector<std::uint64_t> depth;                  // pages before it
  std::vector<std::vector<std::uint32_t>> chains;    // conversations, from their first page on
};
std::vector<std::uint32_t> tokens_of(std::uint32_t page, std::uint64_t page_tokens);

ContentIdentity identity_of(std::uint32_t space, std::uint64_t epoch, const StorageForm& form);
// Of all pages of a space.
std::vector<Key> keys_of(const Tree& tree, const Digest& root, std::uint64_t page_tokens);

// The payload of one record of computation `number`.
std::vector<std::byte> content(std::uint64_t number, const Key& key, ClassId cls, ShardId shard,
                               std::uint64_t bytes);
// The computation whose content it is; nothing: of none, or of several.
std::optional<std::uint64_t> computation_of(ByteView payload, const Key& key, ClassId cls, ShardId shard);

// Promises of pages, with what was removed above them.
class Promises final {
 public:
  Promises(Book& book, const Tree& tree) : book_(book), tree_(tree) {}
  // Nothing up to this number may be found.
  std::uint64_t gone(std::uint32_t space, std::uint32_t page) const;
  // Nothing up to this number must be found.
  std::uint64_t perhaps_gone(std::uint32_t space, std::uint32_t page) const;
  void promise(std::uint32_t set, std::uint64_t number, std::uint64_t region);
  bool must_be_there(std::uint32_t space, std::uint32_t page, std::uint32_t cls) const;
  // Promised, and in a region that was begun anew since.
  bool may_be_evicted(std::uint32_t space, std::uint32_t page, std::uint32_t cls) const;
  std::uint64_t next_number(std::optional<std::uint32_t> of_set);
  // "": this computation of the class-set may be found.
  std::string wrong(std::uint32_t space, std::uint32_t page, std::uint32_t cls, std::uint64_t number) const;

 private:
  BookSet& set(std::uint32_t number) const;
  Book& book_;
  const Tree& tree_;
};

// Drive, log and node of one opening. Members go in the order in which they must end.
struct Cache {
  std::unique_ptr<OpenedBlockDevice> drive;
  std::unique_ptr<MortalDevice> mortal;
  std::unique_ptr<DiskLog> log;
  std::unique_ptr<MappedArena> arena;
  std::unique_ptr<HostDevice> device;
  std::unique_ptr<ThreadExecutor> executor;
  std::unique_ptr<Node> node;
  SessionId session;
  FormId form;
  std::array<NamespaceId, kSpaces> spaces;
  std::vector<DevicePool> pools;

  ~Cache();
  const StorageForm& model() const { return node->form(form); }
  // Namespaces of this epoch. Requires: the node is open.
  Status open_spaces(std::uint64_t epoch);
  Status open_drive(const std::string& path, const Plan& plan);
  Status open_node(const Plan& plan, Clock& clock);
  void write_engine(const DevicePool& pool, std::uint64_t slot, ByteView payload);
  std::vector<std::byte> read_engine(const DevicePool& pool, std::uint64_t slot) const;
};

}  // namespace tiercel::kills
