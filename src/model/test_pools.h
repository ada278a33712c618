// Pools stated by brute force, for the tests of this folder: where each element lies is counted out by
// walking the axes in their order, with nothing of pool_layout.cc in it.
//
// Threads: plain values.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "model/layout.h"
#include "model/pool_shape.h"

namespace tiercel {

// One element: tensor, layer index, page, token, head, dim.
using Element =
    std::tuple<std::uint32_t, std::uint64_t, std::uint64_t, std::uint64_t, std::uint64_t, std::uint64_t>;
using Place = std::pair<std::uint32_t, std::uint64_t>;  // buffer, byte

inline TensorShape tensor(std::string name, std::uint64_t tokens, std::uint64_t heads, std::uint64_t dim,
                          std::uint64_t element_bytes) {
  TensorShape shape;
  shape.name = std::move(name);
  shape.tokens = tokens;
  shape.heads = heads;
  shape.dim = dim;
  shape.element_bytes = element_bytes;
  return shape;
}

inline PoolShape pool(std::uint64_t page_tokens, std::vector<std::uint32_t> layers,
                      std::vector<TensorShape> tensors, std::uint64_t tokens_per_entry = 1) {
  PoolShape shape;
  shape.name = "pool";
  shape.page_tokens = page_tokens;
  shape.tokens_per_entry = tokens_per_entry;
  shape.layers = std::move(layers);
  shape.tensors = std::move(tensors);
  for (std::uint32_t i = 0; i < shape.tensors.size(); ++i) shape.tensors[i].component = i;
  return shape;
}

// Walks the elements in the order of memory and gives each the next place of its buffer.
class CountedOut final {
 public:
  CountedOut(const PoolShape& shape, const Layout& layout, std::uint64_t pages)
      : shape_(shape), layout_(layout), pages_(pages) {
    walk(0, Steps());
  }
  const std::map<Element, Place>& places() const { return places_; }
  // Of each buffer that has bytes; buffers are numbered by their axes, outermost first.
  const std::map<std::uint32_t, std::uint64_t>& bytes() const { return next_; }

 private:
  struct Steps {
    std::uint64_t at[kAxes] = {};  // by Axis
    bool component_known = false;
  };
  static std::size_t index(Axis axis) { return static_cast<std::size_t>(axis); }
  bool has_bytes(std::uint32_t t) const { return shape_.tensors[t].layer_page_bytes() != 0; }
  std::uint64_t extent(Axis axis, std::uint32_t t) const {
    if (shape_.tensors.empty()) return 0;
    const TensorShape& tensor = shape_.tensors[t];
    switch (axis) {
      case Axis::kComponent:
        return shape_.tensors.size();
      case Axis::kLayer:
        return shape_.layers.size();
      case Axis::kPage:
        return pages_;
      case Axis::kToken:
        return tensor.tokens;
      case Axis::kHead:
        return tensor.heads;
      case Axis::kDim:
        return tensor.dim;
    }
    return 0;
  }
  std::uint32_t first_with_bytes() const {
    std::uint32_t t = 0;
    while (t + 1 < shape_.tensors.size() && !has_bytes(t)) ++t;
    return t;
  }
  Axis axis_at(std::size_t depth, const Steps& steps) const {
    if (depth >= 2 && steps.component_known)
      for (const auto& own : layout_.components)
        if (own.component == shape_.tensors[steps.at[index(Axis::kComponent)]].name)
          return own.order[depth - 2];
    return layout_.order[depth];
  }
  std::uint32_t buffer_of(const Steps& steps) const {
    std::uint64_t number = 0;
    for (std::uint32_t i = 0; i < layout_.buffer_axes; ++i)
      number = number * extent(layout_.order[i], 0) + steps.at[index(layout_.order[i])];
    return static_cast<std::uint32_t>(number);
  }
  void walk(std::size_t depth, Steps steps) {
    if (depth == kAxes) {
      const auto t = static_cast<std::uint32_t>(steps.at[index(Axis::kComponent)]);
      std::uint64_t& next = next_[buffer_of(steps)];
      places_[{t, steps.at[index(Axis::kLayer)], steps.at[index(Axis::kPage)], steps.at[index(Axis::kToken)],
               steps.at[index(Axis::kHead)], steps.at[index(Axis::kDim)]}] = {buffer_of(steps), next};
      next += shape_.tensors[t].element_bytes;
      return;
    }
    const Axis axis = axis_at(depth, steps);
    const auto t = steps.component_known ? static_cast<std::uint32_t>(steps.at[index(Axis::kComponent)])
                                         : first_with_bytes();
    const std::uint64_t count = extent(axis, t);
    for (std::uint64_t i = 0; i < count; ++i) {
      if (axis == Axis::kComponent && !has_bytes(static_cast<std::uint32_t>(i))) continue;
      Steps inner = steps;
      inner.at[index(axis)] = i;
      inner.component_known |= axis == Axis::kComponent;
      walk(depth + 1, inner);
      if (axis == Axis::kPage) pad(inner);
    }
  }
  void pad(const Steps& steps) {
    // The step along the page axis is over for one buffer, or for all of one page when buffers stand outside.
    std::uint64_t& next = next_[buffer_of(steps)];
    next = (next + layout_.page_alignment - 1) / layout_.page_alignment * layout_.page_alignment;
  }

  const PoolShape& shape_;
  const Layout& layout_;
  std::uint64_t pages_;
  std::map<Element, Place> places_;
  std::map<std::uint32_t, std::uint64_t> next_;
};

// Small pools of every sort.
inline std::vector<PoolShape> small_pools() {
  return {
      pool(2, {0, 1}, {tensor("k", 2, 2, 3, 2), tensor("v", 2, 2, 3, 2)}),
      pool(4, {7, 9, 12}, {tensor("k", 4, 2, 4, 2), tensor("v", 4, 2, 3, 2)}),  // asymmetric, holes
      pool(2, {3}, {tensor("latent", 2, 1, 5, 2)}),                             // one component
      pool(4, {0, 1},
           {tensor("index_k", 4, 1, 4, 1), tensor("index_k_scale", 4, 1, 1, 4)}),     // scales beside keys
      pool(4, {0, 2}, {tensor("latent", 2, 1, 3, 2)}, 2),                             // compressed 2:1
      pool(0, {1, 4}, {tensor("conv", 1, 6, 3, 2), tensor("temporal", 1, 2, 4, 4)}),  // snapshots
      pool(0, {1, 4}, {tensor("temporal", 1, 0, 4, 4), tensor("conv", 1, 6, 3, 2)}),  // no bytes in one
      pool(2, {0, 1}, {tensor("k", 2, 2, 2, 2), tensor("note", 1, 1, 7, 1)}),         // opaque beside keys
      pool(1, {5}, {tensor("k", 1, 1, 1, 2), tensor("v", 1, 1, 1, 2)}),
      pool(2, {}, {tensor("k", 2, 2, 2, 2)}),  // a stage without its layers
      pool(2, {}, {}),                         // slots without bytes
  };
}

}  // namespace tiercel
