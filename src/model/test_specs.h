// Pieces of small specs, for the tests of this folder.
//
// Threads: plain values.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "model/spec.h"

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

}  // namespace tiercel
