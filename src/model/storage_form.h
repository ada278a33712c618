// Classes, records and sizes, derived from a validated spec: the storage form of a model.
//
// A class is the groups with the same retention and the same sharding; their bytes of one page travel
// together as one record per shard. Byte order at rest: layer, (group), component, token, head, dim, so that
// one layer is one run. Layout is dense; headers and slots are the business of src/memory.
//
// Threads: plain values, immutable once made.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "base/ids.h"
#include "base/sha256.h"
#include "base/status.h"
#include "model/spec.h"

namespace tiercel {

// What a class keeps and when it is needed; mirrors Need × kind after grouping. Closed: visit it.
struct RequiredRetention {  // full groups and what follows them
  friend bool operator==(const RequiredRetention&, const RequiredRetention&) = default;
};
struct WindowRetention {
  std::uint64_t window_tokens = 0;
  std::uint64_t pages =
      0;  // ceil((window_tokens - 1) / page_tokens): pages before L that a resume at L needs
  friend bool operator==(const WindowRetention&, const WindowRetention&) = default;
};
struct StateRetention {  // one snapshot, valid at exactly one length
  friend bool operator==(const StateRetention&, const StateRetention&) = default;
};
struct OptionalRetention {  // may come later or leave alone, never outlives its page
  friend bool operator==(const OptionalRetention&, const OptionalRetention&) = default;
};
using Retention = std::variant<RequiredRetention, WindowRetention, StateRetention, OptionalRetention>;

struct ComponentRun {           // never of no bytes
  std::uint32_t group = 0;      // index into ModelSpec::groups
  std::uint32_t component = 0;  // index into Group::components
  std::uint64_t offset = 0;     // from the start of the record's payload
  std::uint64_t length = 0;
  friend bool operator==(const ComponentRun&, const ComponentRun&) = default;
};
// All bytes of one global layer inside a record: contiguous, checksummed as one.
struct LayerRun {
  std::uint32_t layer = 0;
  std::uint64_t offset = 0;
  std::uint64_t length = 0;
  std::vector<ComponentRun> components;
  friend bool operator==(const LayerRun&, const LayerRun&) = default;
};

struct ClassForm {
  ClassId id;
  std::string
      name;  // "full", "window4096", "state", "draft", "full.replicated" …: printable and unique in the form
  Retention retention;
  bool replicated = false;
  std::uint16_t shards = 1;        // 1 when replicated
  std::uint64_t record_bytes = 0;  // payload of one record: one shard, one page (or snapshot)
  std::vector<LayerRun> layers;    // ascending by layer
  std::vector<std::uint32_t> groups;
  bool required() const { return std::holds_alternative<RequiredRetention>(retention); }
  bool sparse() const { return is_window() || is_state(); }
  bool is_window() const { return std::holds_alternative<WindowRetention>(retention); }
  bool is_state() const { return std::holds_alternative<StateRetention>(retention); }
  bool optional() const { return std::holds_alternative<OptionalRetention>(retention); }
  std::uint64_t window_pages() const {  // 0 unless a window class
    const auto* window = std::get_if<WindowRetention>(&retention);
    return window != nullptr ? window->pages : 0;
  }
  std::uint64_t set_bytes() const { return record_bytes * shards; }  // payload of the whole class-set
  friend bool operator==(const ClassForm&, const ClassForm&) = default;
};

struct StorageForm {
  ModelSpec spec;
  std::vector<ClassForm> classes;  // index = ClassId; order: required, window (by size), state, optional;
                                   // sharded before replicated
  std::string canonical;  // printable, one "field=value" per line; equal text = equal form (docs/format.md)
  Digest fingerprint{};   // SHA-256 of `canonical`

  bool has_required() const;
  std::uint64_t page_bytes_required() const;  // payload, all shards, of a page's required class-sets
  friend bool operator==(const StorageForm& a, const StorageForm& b) {
    return a.fingerprint == b.fingerprint;
  }
};

// Errors: what validate() says; invalid_argument when a derived size passes 2^63 - 1 or there are more than
// 32 classes.
Result<StorageForm> make_storage_form(ModelSpec spec);

// The first field in which two forms differ, printable ("page_tokens", "class window4096", "topology.tp" …);
// nothing when they are equal.
std::optional<std::string> first_difference(const StorageForm& a, const StorageForm& b);

}  // namespace tiercel
