// A pool laid out: how many bytes each of its buffers has and where each byte of a page lies in them. The
// only place where an offset of an engine's pool is computed.
//
// Threads: pure values and functions.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/ids.h"
#include "base/status.h"
#include "model/layout.h"
#include "model/pool_shape.h"

namespace tiercel {

// Where one tensor of the shape lies: element (layer index l, page p, token t, head h, d) is at byte
//   offset + l × layer + p × page + t × token + h × head + d × dim   of buffer   first_buffer + l ×
//   layer_buffers.
struct TensorPlace {
  std::uint32_t first_buffer = 0;
  std::uint32_t layer_buffers = 0;  // not 0: each layer has a buffer of its own, so many further on
  std::uint64_t offset = 0;
  std::uint64_t layer = 0, page = 0, token = 0, head = 0, dim = 0;  // strides in bytes
  friend bool operator==(const TensorPlace&, const TensorPlace&) = default;
};

struct PoolLayout {
  PoolShape shape;
  Layout layout;
  std::uint64_t pages = 0;  // or snapshots
  std::vector<std::uint64_t> buffer_bytes;
  std::vector<TensorPlace> places;  // one per tensor of the shape
  friend bool operator==(const PoolLayout&, const PoolLayout&) = default;
};

// Errors: invalid_argument when sizes pass 2^63 - 1, or when an axis that stands outside of `component` has
// another extent for one component than for another (a head axis of 8 and of 1, for example), naming the
// axis and the layout to take instead.
Result<PoolLayout> lay_out(PoolShape shape, Layout layout, std::uint64_t pages);

struct Segment {
  std::uint32_t buffer = 0;
  std::uint64_t offset = 0;
  std::uint64_t length = 0;
  friend bool operator==(const Segment&, const Segment&) = default;
};

// One component of one page: the unit that a store of objects keeps. Its bytes are those of its segments one
// behind the other, in the order of memory (equal for equal layouts only: which order that is belongs to the
// object's name). Without segments: the component has no bytes here.
struct PageObject {
  ClassId cls;
  std::uint32_t component = 0;  // index into Group::components
  std::vector<Segment> segments;
  friend bool operator==(const PageObject&, const PageObject&) = default;
};

// The objects of a page, one per tensor of the pool. Adjacent runs are merged inside an object and never
// across two. Requires: page < layout.pages. Cost: O(segments).
std::vector<PageObject> page_segments(const PoolLayout& layout, std::uint64_t page);

// Bytes of one entry (a token, or `tokens_per_entry` of them) of one tensor of one layer: its heads and their
// elements, ascending. Of opaque bytes and of a snapshot entry 0 is all of them. Requires: tensor, layer
// index, page and entry are there. Cost: O(segments).
std::vector<Segment> entry_segments(const PoolLayout& layout, std::uint32_t tensor, std::uint32_t layer_index,
                                    std::uint64_t page, std::uint64_t entry);

// How many segments each object of any page has; O(tensors).
std::vector<std::uint64_t> segments_per_page(const PoolLayout& layout);

// Whether every segment of every page begins at a multiple of `alignment` and is one long, when every buffer
// begins at one: what direct I/O asks for. Requires: alignment is a power of two.
bool is_page_aligned(const PoolLayout& layout, std::uint64_t alignment);

std::uint64_t total_bytes(const PoolLayout& layout);  // of all buffers, padding included

}  // namespace tiercel
