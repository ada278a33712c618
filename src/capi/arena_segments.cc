#include "capi/arena_segments.h"

#include <algorithm>
#include <map>
#include <utility>

#include <fmt/format.h>

#include "base/check.h"
#include "capi/options.h"
#include "model/copy_plan.h"
#include "model/pool_layout.h"
#include "model/pool_shape.h"

namespace tiercel::capi {

namespace {

// Where the bytes of one component of one layer stand in the class's payload.
struct Run {
  std::uint64_t offset = 0;
  std::uint32_t component = 0;  // number in the class
};
using Runs = std::map<std::pair<std::uint32_t, std::uint32_t>, Run>;  // of one group, by layer and component

Runs runs_of(const ClassForm& cls, std::uint32_t group) {
  Runs runs;
  std::map<std::pair<std::uint32_t, std::uint32_t>, std::uint32_t> numbers;
  for (const LayerRun& layer : cls.layers)
    for (const ComponentRun& run : layer.components) {
      const auto next = static_cast<std::uint32_t>(numbers.size());
      const std::uint32_t number = numbers.try_emplace({run.group, run.component}, next).first->second;
      if (run.group == group) runs[{layer.layer, run.component}] = {run.offset, number};
    }
  return runs;
}

// A fragment, and where the writer has it.
struct Placed {
  std::uint32_t buffer = 0;
  std::uint64_t at = 0;
  Fragment fragment;
};

// One group's page, from the writer's layout to its record: the plan's runs, each cut where a tensor ends.
class GroupFragments final {
 public:
  GroupFragments(const PoolLayout& record, Runs runs) : record_(record), runs_(std::move(runs)) {}

  void add(const CopyPlan& plan) {
    for (const LayerCopy& layer : plan.layers)
      for (const CopyNest& nest : layer.nests)
        walk(layer.layer, nest, 0, nest.source.offset, nest.target.offset);
  }
  std::vector<Placed> take() {
    std::sort(placed_.begin(), placed_.end(), [](const Placed& a, const Placed& b) {
      return std::pair(a.buffer, a.at) < std::pair(b.buffer, b.at);
    });
    return std::move(placed_);
  }

 private:
  void walk(std::uint32_t layer, const CopyNest& nest, std::uint32_t loop, std::uint64_t source,
            std::uint64_t target) {
    if (loop == nest.loop_count) return cut(layer, nest.source.buffer, source, target, nest.length);
    const CopyLoop& each = nest.loops[loop];
    for (std::uint64_t i = 0; i < each.count; ++i)
      walk(layer, nest, loop + 1, source + i * each.source_step, target + i * each.target_step);
  }
  void cut(std::uint32_t layer, std::uint32_t buffer, std::uint64_t source, std::uint64_t target,
           std::uint64_t length) {
    const std::vector<std::uint32_t>& layers = record_.shape.layers;
    const auto index =
        static_cast<std::uint64_t>(std::lower_bound(layers.begin(), layers.end(), layer) - layers.begin());
    while (length != 0) {
      const auto [tensor, inside] = tensor_at(index, target);
      const TensorShape& shape = record_.shape.tensors[tensor];
      const Run& run = runs_.at({layer, shape.component});
      const std::uint64_t part = std::min(length, shape.layer_page_bytes() - inside);
      placed_.push_back({buffer, source, {run.offset + inside, part, run.component, layer}});
      source += part;
      target += part;
      length -= part;
    }
  }
  // The tensor in which a byte of the group's record lies, and where in it.
  std::pair<std::size_t, std::uint64_t> tensor_at(std::uint64_t layer, std::uint64_t at) const {
    for (std::size_t i = 0; i < record_.places.size(); ++i) {
      const std::uint64_t begin = record_.places[i].offset + layer * record_.places[i].layer;
      if (at >= begin && at - begin < record_.shape.tensors[i].layer_page_bytes()) return {i, at - begin};
    }
    TIERCEL_CHECK(false);
    return {};
  }

  const PoolLayout& record_;
  Runs runs_;
  std::vector<Placed> placed_;
};

}  // namespace

Result<std::vector<Fragment>> fragments_of(const StorageForm& form, std::uint32_t class_id,
                                           std::string_view layout_name) {
  const ClassForm& cls = form.classes.at(class_id);
  TIERCEL_ASSIGN_OR_RETURN(const Layout layout, layout_from_text(layout_name));
  TIERCEL_ASSIGN_OR_RETURN(const Layout record, layout_from_text("record"));
  std::vector<Fragment> out;
  for (const std::uint32_t group : cls.groups) {
    const PoolShape shape = pool_shape(form, group);
    TIERCEL_ASSIGN_OR_RETURN(const PoolLayout from, lay_out(shape, layout, 1));
    TIERCEL_ASSIGN_OR_RETURN(const PoolLayout to, lay_out(shape, record, 1));
    TIERCEL_ASSIGN_OR_RETURN(const CopyPlan plan, plan_copy(from, to));
    std::uint64_t count = out.size();
    for (const LayerCopy& layer : plan.layers)
      for (const CopyNest& nest : layer.nests) count += nest.fragments();
    if (count > kListMax)
      return error(
          Code::kResourceExhausted,
          fmt::format("layout {}: a record of class {} would be {} pieces, at most {}; use a layout that "
                      "keeps more of it together",
                      layout_name, cls.name, count, kListMax));
    GroupFragments fragments(to, runs_of(cls, group));
    fragments.add(plan);
    for (const Placed& placed : fragments.take()) out.push_back(placed.fragment);
  }
  return out;
}

std::vector<tiercel_file_segment> file_segments(std::span<const Fragment> fragments,
                                                std::uint64_t header_bytes, std::span<const ArenaSpan> spans,
                                                std::uint64_t extents_at, int fd) {
  std::vector<tiercel_file_segment> out;
  out.reserve(fragments.size());
  for (const Fragment& fragment : fragments) {
    std::uint64_t position = header_bytes + fragment.offset;  // in the record
    auto span = spans.begin();
    while (position >= span->length) position -= (span++)->length;
    for (std::uint64_t done = 0; done < fragment.length; ++span, position = 0) {
      tiercel_file_segment& piece = out.emplace_back(tiercel_file_segment{});
      piece.offset = extents_at + span->offset + position;
      piece.length = std::min(fragment.length - done, span->length - position);
      piece.payload_offset = fragment.offset + done;
      piece.component = fragment.component;
      piece.layer = fragment.layer;
      piece.fd = fd;
      done += piece.length;
    }
  }
  return out;
}

}  // namespace tiercel::capi
