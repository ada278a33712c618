// What a load brought, read from the engine's memory: shared by the checkers that judge it.
//
// Threads: pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "sim/scene.h"

namespace tiercel::sim {

// One entry of one target.
struct Delivery {
  std::size_t target = 0;
  std::size_t entry = 0;
  std::uint64_t page = 0;  // number in the chain; of a state: the page its snapshot stands at the end of
  PageId id;
  ClassId cls;
  ShardId shard;
  std::optional<EngineSlot> slot;  // nothing: skipped
  ItemOutcome outcome = ItemOutcome::kNotNeeded;
};

// All entries of a load that ended with `result`.
std::vector<Delivery> deliveries(const Scene& scene, const SimOperation& operation, const LoadResult& result);
// The computation whose whole record stands in the slot; nothing when it is nobody's.
std::optional<Computation> delivered_computation(const Scene& scene, const SimOperation& operation,
                                                 const Delivery& delivery);
// Whether a resume at `length` needs this class of this page, stated from the contract's words.
bool needed_at(const ClassForm& cls, std::uint64_t page_tokens, std::uint64_t length, std::uint64_t page);

// Class-sets that events of this step made visible, with their residence in the audit.
struct Publication {
  const Event* event = nullptr;
  PageId page;
  const AuditResidence* residence = nullptr;
};
std::vector<Publication> publications(const Scene& scene);

}  // namespace tiercel::sim
