// What a model keeps per token: groups of layers, their components and sizes. Pure data, validated once;
// everything else (classes, records, slots, plans) is derived from it in storage_form.h and nowhere else.
//
// Threads: plain values.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/status.h"

namespace tiercel {

enum class DType : std::uint8_t { kBf16, kFp16, kFp8, kF32, kU8 };
std::uint64_t dtype_bytes(DType dtype);
std::string_view dtype_name(DType dtype);                     // "bf16"
std::optional<DType> dtype_from_name(std::string_view name);  // also torch's spelling: "bfloat16", "float32"

// A base model has at most this many layers; ids of draft layers follow, so that ids stay below twice that.
inline constexpr std::uint32_t kMaxLayers = 10'000;
inline constexpr std::uint32_t kMaxLayerIds = 2 * kMaxLayers;

// One tensor of one layer: `shape` and `bytes_per_layer` count one rank and one token (or one entry of a
// compressed group, or one snapshot of a state). An opaque component has no shape, only bytes: those of one
// layer of one record (page or snapshot), whatever the page size. A shape with an axis of 0 has no bytes: the
// tensor of a model that could have one.
struct Component {
  std::string name;
  std::vector<std::uint64_t> shape;
  std::optional<DType> dtype;         // absent: opaque
  std::uint64_t bytes_per_layer = 0;  // product of shape × dtype, or the opaque bytes of a record
  // Lengths of the parts of the first axis, when it is several things one behind the other that ranks cut
  // each by itself (q, k and v channels of a convolution); together the axis. Empty: it is one.
  std::vector<std::uint64_t> sections;
  friend bool operator==(const Component&, const Component&) = default;
};

// The kinds are a closed variant: a new kind does not compile until every decision about it (std::visit with
// one overload each) is written.
struct FullKind {
  friend bool operator==(const FullKind&, const FullKind&) = default;
};
struct WindowKind {
  std::uint64_t tokens = 0;
  friend bool operator==(const WindowKind&, const WindowKind&) = default;
};
struct StateKind {
  friend bool operator==(const StateKind&, const StateKind&) = default;
};
struct FollowerKind {
  std::uint32_t of = 0;  // index into ModelSpec::groups; never outlives that group
  friend bool operator==(const FollowerKind&, const FollowerKind&) = default;
};
using GroupKind = std::variant<FullKind, WindowKind, StateKind, FollowerKind>;
std::string_view kind_name(const GroupKind& kind);  // "full", "window", "state", "follower"

// How a class-set's absence bears on a hit. `required`: every page needed. `sparse`: needed only near a
// resume point (window, state). `optional`: reported, never shortens a hit (draft KV).
enum class Need : std::uint8_t { kRequired, kSparse, kOptional };

struct Group {
  GroupKind kind;
  Need need = Need::kRequired;
  std::vector<std::uint32_t> layers;  // global layer ids, ascending, unique
  std::vector<Component> components;  // the same for each of the layers
  bool replicated = false;            // every rank holds the same bytes
  std::uint64_t tokens_per_entry = 1;
  friend bool operator==(const Group&, const Group&) = default;
};

// Ranks that hold different bytes of one page. Shard = attention-TP × PP × CP coordinate; data-parallel ranks
// share pages and are not counted. No member has a default that could hide a forgotten rank: build it whole.
struct Topology {
  std::uint32_t tp = 1, pp = 1, cp = 1;
  std::uint32_t shards() const { return tp * pp * cp; }
  friend bool operator==(const Topology&, const Topology&) = default;
};

struct ModelSpec {
  std::string model_type;
  std::uint64_t page_tokens = 0;
  std::uint32_t pages_per_record = 1;  // 1 in version 1; anything else is refused
  Topology topology;
  std::vector<Group> groups;  // order: full, window, state, follower; within a kind by lowest layer id
  std::vector<std::uint32_t> no_cache_layers;
  std::vector<std::uint32_t> draft_layers;
  friend bool operator==(const ModelSpec&, const ModelSpec&) = default;
};

// Bytes of one page of `group` (full, window, follower) or of one snapshot (state), one rank. Requires: a
// validated spec.
std::uint64_t group_bytes(const ModelSpec& spec, const Group& group);

// The same of a spec that is not validated yet; nothing when it passes 2^63 - 1. Requires: page_tokens a
// multiple of the group's tokens_per_entry, which is not 0.
std::optional<std::uint64_t> try_group_bytes(const ModelSpec& spec, const Group& group);

// How many times `component` stands in one layer of one record of `group`: a page's entries, or 1 for a
// snapshot and for opaque bytes.
std::uint64_t entries_per_record(const ModelSpec& spec, const Group& group, const Component& component);

// Bytes of one tensor; nothing when they pass 2^63 - 1.
std::optional<std::uint64_t> shape_bytes(std::span<const std::uint64_t> shape, DType dtype);

// Ascending ids as runs of consecutive ones, both ends included.
struct LayerIdRun {
  std::uint32_t first;
  std::uint32_t last;
};
std::vector<LayerIdRun> runs_of(const std::vector<std::uint32_t>& layers);

// Checks everything that a reader or a person could have got wrong: counts positive, layers ascending, page
// tokens a multiple of each tokens_per_entry, followers of existing full groups, needs that fit the kind,
// every size below 2^63. Errors: invalid_argument naming the field, what was wanted, what it was; for page
// tokens the least common multiple.
Status validate(const ModelSpec& spec);

}  // namespace tiercel
