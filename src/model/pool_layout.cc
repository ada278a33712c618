#include "model/pool_layout.h"

#include <algorithm>
#include <bit>
#include <optional>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "base/check.h"
#include "base/checked.h"

namespace tiercel {

namespace {

std::uint64_t& stride_of(TensorPlace& place, Axis axis) {
  switch (axis) {
    case Axis::kLayer:
      return place.layer;
    case Axis::kPage:
      return place.page;
    case Axis::kToken:
      return place.token;
    case Axis::kHead:
      return place.head;
    case Axis::kDim:
      return place.dim;
    case Axis::kComponent:
      break;
  }
  TIERCEL_CHECK(false);
  return place.dim;
}

// Gives one pool its strides, from the innermost axis outwards.
class LayingOut final {
 public:
  explicit LayingOut(PoolLayout& out) : out_(out), sizes_(out.shape.tensors.size()) {
    out_.places.resize(sizes_.size());
    for (std::size_t i = 0; i < sizes_.size(); ++i) sizes_[i] = tensor(i).element_bytes;
  }

  Status run() {
    const auto& order = out_.layout.order;
    for (std::size_t at = kAxes; at-- > out_.layout.buffer_axes;) {
      if (order[at] == Axis::kComponent) {
        if (Status status = put_components_in_line(); !status.ok()) return status;
        continue;
      }
      for (std::size_t i = 0; i < sizes_.size(); ++i)
        if (Status status = grow(i, axis_of(i, at)); !status.ok()) return status;
    }
    return make_buffers();
  }

 private:
  const TensorShape& tensor(std::size_t i) const { return out_.shape.tensors[i]; }
  bool has_bytes(std::size_t i) const { return tensor(i).layer_page_bytes() != 0; }

  std::uint64_t extent(std::size_t i, Axis axis) const {
    switch (axis) {
      case Axis::kLayer:
        return out_.shape.layers.size();
      case Axis::kPage:
        return out_.pages;
      case Axis::kToken:
        return tensor(i).tokens;
      case Axis::kHead:
        return tensor(i).heads;
      case Axis::kDim:
        return tensor(i).dim;
      case Axis::kComponent:
        break;
    }
    TIERCEL_CHECK(false);
    return 0;
  }

  // The axis at place `at` of the order, for tensor i: its component may have an order of its own behind the
  // first two.
  Axis axis_of(std::size_t i, std::size_t at) const {
    const auto& orders = out_.layout.components;
    const auto own = std::find_if(orders.begin(), orders.end(),
                                  [&](const auto& each) { return each.component == tensor(i).name; });
    return own == orders.end() || at < 2 ? out_.layout.order[at] : own->order[at - 2];
  }

  // What stands inside of `axis` is whole: one step along it is that long.
  Status grow(std::size_t i, Axis axis) {
    if (axis == Axis::kPage) {
      const auto padded = checked_add(sizes_[i], out_.layout.page_alignment - 1);
      if (!padded) return too_large();
      sizes_[i] = *padded & ~(out_.layout.page_alignment - 1);
    }
    if (has_bytes(i)) stride_of(out_.places[i], axis) = sizes_[i];
    const auto grown = checked_mul(sizes_[i], line_ ? common_extent(axis) : extent(i, axis));
    if (!grown) return too_large();
    sizes_[i] = *grown;
    return {};
  }

  // Outside of the component axis all tensors that have bytes are equally long.
  std::uint64_t common_extent(Axis axis) const { return line_ ? extent(*line_, axis) : 0; }

  Status put_components_in_line() {
    std::uint64_t offset = 0;
    for (std::size_t i = 0; i < sizes_.size(); ++i) {
      if (!has_bytes(i)) continue;
      if (!line_) line_ = i;
      if (Status status = check_outer_axes(i); !status.ok()) return status;
      out_.places[i].offset = offset;
      const auto end = checked_add(offset, sizes_[i]);
      if (!end) return too_large();
      offset = *end;
    }
    if (!line_) line_ = 0;
    std::fill(sizes_.begin(), sizes_.end(), offset);
    return {};
  }

  Status check_outer_axes(std::size_t i) const {
    for (const Axis axis : out_.layout.order) {
      if (axis == Axis::kComponent) return {};
      if (extent(i, axis) != extent(*line_, axis))
        return {Code::kInvalidArgument,
                fmt::format("layout {}: pool {}: its axis {} stands outside of component, but component {} "
                            "has {} and {} has {} "
                            "along it; take a layout with component outside of {}, such as page_first",
                            out_.layout.name, out_.shape.name, axis_name(axis), tensor(*line_).name,
                            extent(*line_, axis), tensor(i).name, extent(i, axis), axis_name(axis))};
    }
    return {};
  }

  Status make_buffers() {
    const auto outer = std::span(out_.layout.order).first(out_.layout.buffer_axes);
    const auto tensors = static_cast<std::uint32_t>(sizes_.size());
    const auto layers = static_cast<std::uint32_t>(out_.shape.layers.size());
    const bool by_component = std::find(outer.begin(), outer.end(), Axis::kComponent) != outer.end();
    const bool by_layer = std::find(outer.begin(), outer.end(), Axis::kLayer) != outer.end();
    const bool layer_outside = !outer.empty() && outer.front() == Axis::kLayer;
    const std::uint32_t lanes = by_component ? tensors : std::min<std::uint32_t>(tensors, 1);
    const std::uint32_t steps = by_layer ? layers : std::min<std::uint32_t>(layers, 1);
    out_.buffer_bytes.resize(std::size_t{lanes} * steps);
    std::uint64_t total = 0;
    for (std::uint32_t i = 0; i < tensors; ++i) {
      TensorPlace& place = out_.places[i];
      const std::uint32_t lane = by_component ? i : 0;
      place.first_buffer = layer_outside ? lane : lane * steps;
      if (by_layer) place.layer_buffers = layer_outside ? lanes : 1;
      if (i != lane) continue;
      for (std::uint32_t l = 0; l < steps; ++l) {
        const std::uint64_t bytes = by_component && !has_bytes(i) ? 0 : sizes_[i];
        out_.buffer_bytes[place.first_buffer + l * place.layer_buffers] = bytes;
        const auto sum = checked_add(total, bytes);
        if (!sum) return too_large();
        total = *sum;
      }
    }
    return {};
  }

  Status too_large() const {
    return {Code::kInvalidArgument, fmt::format("layout {}: pool {}: {} pages pass 2^63 - 1 bytes",
                                                out_.layout.name, out_.shape.name, out_.pages)};
  }

  PoolLayout& out_;
  std::vector<std::uint64_t> sizes_;  // of what each tensor has inside of the axis that comes next
  std::optional<std::size_t> line_;   // the component axis is behind us: the tensor that stands for all
};

struct Loop {
  std::uint64_t count, stride;
};

// Axes from the innermost of memory outwards, without those of one step.
std::vector<Loop> in_memory_order(std::vector<Loop> loops) {
  std::erase_if(loops, [](const Loop& loop) { return loop.count == 1; });
  std::sort(loops.begin(), loops.end(), [](const Loop& a, const Loop& b) { return a.stride < b.stride; });
  return loops;
}

// Those inside of a page; layers are among them where they share a buffer.
std::vector<Loop> loops_of(const PoolLayout& layout, std::size_t tensor) {
  const TensorShape& shape = layout.shape.tensors[tensor];
  const TensorPlace& place = layout.places[tensor];
  std::vector<Loop> loops = {{shape.dim, place.dim}, {shape.heads, place.head}, {shape.tokens, place.token}};
  if (place.layer_buffers == 0) loops.push_back({layout.shape.layers.size(), place.layer});
  return in_memory_order(std::move(loops));
}

// Bytes that lie together from an element on; takes their axes off the list.
std::uint64_t take_run(std::uint64_t element_bytes, std::vector<Loop>& loops) {
  std::uint64_t length = element_bytes;
  auto loop = loops.begin();
  for (; loop != loops.end() && loop->stride == length; ++loop) length *= loop->count;
  loops.erase(loops.begin(), loop);
  return length;
}

void append_runs(std::span<const Loop> loops, Segment at, std::vector<Segment>& out) {
  if (loops.empty()) {
    out.push_back(at);
    return;
  }
  const Loop& outermost = loops.back();
  for (std::uint64_t i = 0; i < outermost.count; ++i, at.offset += outermost.stride)
    append_runs(loops.first(loops.size() - 1), at, out);
}

PageObject object_of(const PoolLayout& layout, std::size_t tensor, std::uint64_t page) {
  const TensorPlace& place = layout.places[tensor];
  PageObject object{layout.shape.cls, layout.shape.tensors[tensor].component, {}};
  const std::uint64_t layers = layout.shape.layers.size();
  if (layout.shape.tensors[tensor].layer_page_bytes() == 0 || layers == 0) return object;
  std::vector<Loop> loops = loops_of(layout, tensor);
  Segment at{place.first_buffer, place.offset + page * place.page,
             take_run(layout.shape.tensors[tensor].element_bytes, loops)};
  const std::uint64_t buffers = place.layer_buffers == 0 ? 1 : layers;
  for (std::uint64_t l = 0; l < buffers; ++l, at.buffer += place.layer_buffers)
    append_runs(loops, at, object.segments);
  return object;
}

}  // namespace

Result<PoolLayout> lay_out(PoolShape shape, Layout layout, std::uint64_t pages) {
  TIERCEL_RETURN_IF_ERROR(validate(layout));
  PoolLayout out{std::move(shape), std::move(layout), pages, {}, {}};
  if (Status status = LayingOut(out).run(); !status.ok()) return tl::unexpected(std::move(status));
  return out;
}

std::vector<PageObject> page_segments(const PoolLayout& layout, std::uint64_t page) {
  TIERCEL_CHECK(page < layout.pages);
  std::vector<PageObject> objects;
  for (std::size_t tensor = 0; tensor < layout.places.size(); ++tensor)
    objects.push_back(object_of(layout, tensor, page));
  return objects;
}

std::vector<Segment> entry_segments(const PoolLayout& layout, std::uint32_t tensor, std::uint32_t layer_index,
                                    std::uint64_t page, std::uint64_t entry) {
  TIERCEL_CHECK(tensor < layout.places.size() && layer_index < layout.shape.layers.size() &&
                page < layout.pages);
  const TensorShape& shape = layout.shape.tensors[tensor];
  const TensorPlace& place = layout.places[tensor];
  std::vector<Segment> segments;
  if (shape.layer_page_bytes() == 0) return segments;
  TIERCEL_CHECK(entry < shape.tokens);
  std::vector<Loop> loops = in_memory_order({{shape.dim, place.dim}, {shape.heads, place.head}});
  const std::uint64_t length = take_run(shape.element_bytes, loops);
  append_runs(loops,
              {place.first_buffer + layer_index * place.layer_buffers,
               place.offset + layer_index * place.layer + page * place.page + entry * place.token, length},
              segments);
  return segments;
}

std::vector<std::uint64_t> segments_per_page(const PoolLayout& layout) {
  std::vector<std::uint64_t> counts;
  for (std::size_t tensor = 0; tensor < layout.places.size(); ++tensor) {
    const std::uint64_t layers = layout.shape.layers.size();
    std::uint64_t count = layout.shape.tensors[tensor].layer_page_bytes() == 0 || layers == 0 ? 0 : 1;
    std::vector<Loop> loops = loops_of(layout, tensor);
    take_run(layout.shape.tensors[tensor].element_bytes, loops);
    for (const Loop& loop : loops) count *= loop.count;
    counts.push_back(layout.places[tensor].layer_buffers == 0 ? count : count * layers);
  }
  return counts;
}

bool is_page_aligned(const PoolLayout& layout, std::uint64_t alignment) {
  TIERCEL_CHECK(std::has_single_bit(alignment));
  const auto aligned = [&](std::uint64_t bytes) { return (bytes & (alignment - 1)) == 0; };
  for (std::size_t tensor = 0; tensor < layout.places.size(); ++tensor) {
    if (layout.shape.tensors[tensor].layer_page_bytes() == 0 || layout.shape.layers.empty()) continue;
    const TensorPlace& place = layout.places[tensor];
    std::vector<Loop> loops = loops_of(layout, tensor);
    const std::uint64_t length = take_run(layout.shape.tensors[tensor].element_bytes, loops);
    if (!aligned(length) || !aligned(place.offset) || (layout.pages > 1 && !aligned(place.page)))
      return false;
    if (!std::all_of(loops.begin(), loops.end(), [&](const Loop& loop) { return aligned(loop.stride); }))
      return false;
  }
  return true;
}

std::uint64_t total_bytes(const PoolLayout& layout) {
  std::uint64_t bytes = 0;
  for (const std::uint64_t each : layout.buffer_bytes) bytes += each;
  return bytes;
}

}  // namespace tiercel
