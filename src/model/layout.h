// In which order a pool's bytes stand in memory: an order of six axes, outermost first. The layouts that
// users know by name are named axis orders; an engine's own is written the same way.
//
//   layer_first           component,layer,page,token,head,dim   as shape (2, L, T, H, D)
//   page_first            component,page,token,layer,head,dim   (2, T, L, H, D)
//   page_first_direct     component,page,layer,token,head,dim   (2, NP, L, P, H, D)
//   page_head             component,page,head,token,layer,dim   (2, NP, H, P, L, D)
//   page_first_kv_split   component|page,layer,token,head,dim   (NP, L, P, H, D), K and V each
//   record                page,layer,component,token,head,dim   the order at rest
//   vllm_nhd              layer|component,page,token,head,dim   (2, NP, P, H, D) a layer
//   vllm_hnd              layer|component,page,head,token,dim   (2, NP, H, P, D) a layer
//   vllm_block_nhd        layer|page,component,token,head,dim   (NP, 2, P, H, D) a layer
//   vllm_block_hnd        layer|page,component,head,token,dim   (NP, 2, H, P, D) a layer
//   llama                 layer,component|page,token,head,dim   (T, H, D), K and V of a layer each
//   llama_v_transposed    the same, with v:head,dim,page,token  V as (H, D, T)
//
// '|' ends the axes that have buffers of their own. Source of the first five: SGLang's host pools; of the
// last six: vLLM's attention back ends and llama.cpp's caches.
//
// Threads: pure values and functions.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace tiercel {

enum class Axis : std::uint8_t { kComponent, kLayer, kPage, kToken, kHead, kDim };
inline constexpr std::size_t kAxes = 6;
std::string_view axis_name(Axis axis);

struct Layout {
  std::string name;  // for people; of a layout written by hand, its text
  std::array<Axis, kAxes> order = {};
  // The first axes of `order` along which each step is a buffer of its own: 0 to 2 of component and layer.
  std::uint32_t buffer_axes = 0;
  // What stands inside the page axis begins at multiples of this, in bytes (a power of two): 4096 for direct
  // I/O.
  std::uint64_t page_alignment = 1;
  // A component whose inner axes stand in another order; only where components have buffers of their own.
  struct ComponentOrder {
    std::string component;
    std::array<Axis, 4> order = {};  // page, token, head, dim
    friend bool operator==(const ComponentOrder&, const ComponentOrder&) = default;
  };
  std::vector<ComponentOrder> components;
  friend bool operator==(const Layout&, const Layout&) = default;
};

// All layouts that have names, in the order of the table above.
std::span<const Layout> named_layouts();

// A name of the table, or an order written by hand: six axes with ',' between them, and '|' instead of the
// comma behind the last axis that has buffers of its own; ";v:head,dim,page,token" behind it for a component
// of another order; ";align=4096". Errors: invalid_argument saying what was wanted.
Result<Layout> layout_from_text(std::string_view text);

// What layout_from_text reads; without the name.
std::string layout_text(const Layout& layout);

// Each axis once; buffer axes are component or layer; component orders only with component buffers; alignment
// a power of two up to 2 MiB. Errors: invalid_argument.
Status validate(const Layout& layout);

}  // namespace tiercel
