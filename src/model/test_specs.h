// Pieces of small specs, for the tests of this folder.
//
// Threads: plain values.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "model/spec.h"
#include "model/storage_form.h"

namespace tiercel {

inline Component component(std::string name, std::vector<std::uint64_t> shape, DType dtype) {
  const std::uint64_t bytes = shape_bytes(shape, dtype).value_or(0);  // 0 is no valid component
  return {std::move(name), std::move(shape), dtype, bytes};
}

inline Group group(GroupKind kind, Need need, std::vector<std::uint32_t> layers,
                   std::vector<Component> components, bool replicated = false) {
  Group made;
  made.kind = kind;
  made.need = need;
  made.layers = std::move(layers);
  made.components = std::move(components);
  made.replicated = replicated;
  return made;
}

// k and v of `heads` heads of 8 values in bf16.
inline std::vector<Component> kv(std::uint64_t heads = 2) {
  return {component("k", {heads, 8}, DType::kBf16), component("v", {heads, 8}, DType::kBf16)};
}

// One class of two pools: k and v of layers 0 and 2, and index keys that follow them on layer 2 only.
inline StorageForm indexed_form() {
  ModelSpec spec;
  spec.model_type = "test";
  spec.page_tokens = 2;
  spec.groups.push_back(group(FullKind{}, Need::kRequired, {0, 2}, kv()));
  spec.groups.push_back(
      group(FollowerKind{0}, Need::kRequired, {2}, {component("index_k", {4}, DType::kU8)}));
  return make_storage_form(spec).value();
}

}  // namespace tiercel
