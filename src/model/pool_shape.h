// What one pool of an engine holds: the tensors of one group of a model, one rank, one pipeline stage,
// without any order in memory. From here on, every pool is the same thing: full KV, window, snapshot, index
// keys, compressed and draft KV differ in numbers only.
//
// Threads: pure values and functions.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/ids.h"
#include "base/status.h"
#include "model/storage_form.h"

namespace tiercel {

// One component of one layer of one page: tokens × heads × dim elements of element_bytes each. Any extent may
// be 0: such a tensor is there and has no bytes.
struct TensorShape {
  std::string name;
  std::uint32_t component = 0;      // index into Group::components
  std::uint64_t tokens = 1;         // entries of a page; 1: a snapshot, or opaque bytes of a whole page
  std::uint64_t heads = 1;          // first axis of the component's shape, 1 when it has one axis
  std::uint64_t dim = 1;            // elements of one head: the other axes
  std::uint64_t element_bytes = 1;  // opaque: 1, and dim counts bytes
  // Parts of the heads axis that ranks cut each by itself (Component::sections); empty: the axis is one part.
  std::vector<std::uint64_t> sections;

  std::uint64_t entry_bytes() const { return heads * dim * element_bytes; }
  std::uint64_t layer_page_bytes() const { return tokens * entry_bytes(); }
  friend bool operator==(const TensorShape&, const TensorShape&) = default;
};

struct PoolShape {
  std::string name;         // unique in the model: "full", "window4096", "state", "index_k", "draft" …
  std::uint32_t group = 0;  // index into ModelSpec::groups
  ClassId cls;              // whose records these bytes are part of
  std::uint64_t page_tokens = 0;  // 0: a slot is a snapshot
  std::uint64_t tokens_per_entry = 1;
  std::vector<std::uint32_t> layers;  // global ids, ascending; holes are ordinary
  std::vector<TensorShape> tensors;

  bool is_state() const { return page_tokens == 0; }
  std::uint64_t page_bytes() const;  // all layers; of a snapshot when is_state()
  friend bool operator==(const PoolShape&, const PoolShape&) = default;
};

// Layers [first, end) of the model, by global id: what one pipeline stage holds.
struct Stage {
  std::uint32_t first = 0;
  std::uint32_t end = kMaxLayerIds;
  friend bool operator==(const Stage&, const Stage&) = default;
};

// The pool of group number `group`, one rank. A stage without any of the group's layers gives a pool without
// layers. Requires: group < form.spec.groups.size().
PoolShape pool_shape(const StorageForm& form, std::uint32_t group, Stage stage = {});

// Those of all groups, in their order: none can be forgotten.
std::vector<PoolShape> pool_shapes(const StorageForm& form, Stage stage = {});

}  // namespace tiercel
