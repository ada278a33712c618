#include "model/record_runs.h"

#include <algorithm>
#include <array>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "model/copy_plan.h"

namespace tiercel {

namespace {

tl::unexpected<Status> wrong(const ClassForm& cls, const PoolLayout& pool, std::string_view what) {
  return error(Code::kInvalidArgument,
               fmt::format("pool {} as part of class {}: {}", pool.shape.name, cls.name, what));
}

// The run of the payload in which a component of a layer lies; null: the class has none such.
const ComponentRun* find_run(const ClassForm& cls, std::uint32_t layer, std::uint32_t group,
                             std::uint32_t component) {
  const auto at = std::lower_bound(cls.layers.begin(), cls.layers.end(), layer,
                                   [](const LayerRun& run, std::uint32_t id) { return run.layer < id; });
  if (at == cls.layers.end() || at->layer != layer) return nullptr;
  const auto run = std::find_if(at->components.begin(), at->components.end(), [&](const ComponentRun& each) {
    return each.group == group && each.component == component;
  });
  return run == at->components.end() ? nullptr : &*run;
}

// The order of a record inside one component of one layer, each as a buffer of its own, so that the payload's
// offsets are the class's own.
Layout record_layout() {
  Layout layout;
  layout.name = "record by component";
  layout.order = {Axis::kLayer, Axis::kComponent, Axis::kPage, Axis::kToken, Axis::kHead, Axis::kDim};
  layout.buffer_axes = 2;
  return layout;
}

void append_fragments(const CopyNest& nest, const ComponentRun& run, std::uint32_t tensor,
                      std::vector<RecordRun>& out) {
  for (std::uint64_t fragment = 0; fragment < nest.fragments(); ++fragment) {
    RecordRun at{run.offset + nest.target.offset,
                 nest.length,
                 tensor,
                 nest.source.buffer,
                 nest.source.offset,
                 nest.source.page};
    std::uint64_t rest = fragment;
    for (std::uint32_t loop = nest.loop_count; loop-- > 0;) {
      const CopyLoop& step = nest.loops[loop];
      at.payload_offset += rest % step.count * step.target_step;
      at.offset += rest % step.count * step.source_step;
      rest /= step.count;
    }
    out.push_back(at);
  }
}

// Runs that meet on both sides, as layers of page-first pools do, are one.
std::vector<RecordRun> merged(const std::vector<RecordRun>& runs) {
  std::vector<RecordRun> out;
  for (const RecordRun& run : runs) {
    RecordRun* last = out.empty() ? nullptr : &out.back();
    if (last != nullptr && last->payload_offset + last->length == run.payload_offset &&
        last->tensor == run.tensor && last->buffer == run.buffer && last->offset + last->length == run.offset)
      last->length += run.length;
    else
      out.push_back(run);
  }
  return out;
}

}  // namespace

Result<std::vector<RecordRun>> record_runs(const ClassForm& cls, const PoolLayout& pool) {
  if (std::find(cls.groups.begin(), cls.groups.end(), pool.shape.group) == cls.groups.end())
    return wrong(cls, pool, fmt::format("its group {} is none of the class's", pool.shape.group));
  TIERCEL_ASSIGN_OR_RETURN(const PoolLayout record, lay_out(pool.shape, record_layout(), 1));
  TIERCEL_ASSIGN_OR_RETURN(const CopyPlan plan, plan_copy(pool, record));
  std::uint64_t count = 0;
  for (const LayerCopy& layer : plan.layers)
    for (const CopyNest& nest : layer.nests) {
      count += nest.fragments();
      if (count > kRecordRunsMax)
        return error(
            Code::kResourceExhausted,
            fmt::format("pool {} as part of class {}: layout {} takes a record into more than {} runs; "
                        "use one that keeps more of it together",
                        pool.shape.name, cls.name, pool.layout.name, kRecordRunsMax));
    }
  const auto tensors = static_cast<std::uint32_t>(pool.shape.tensors.size());
  std::vector<RecordRun> runs;
  for (const LayerCopy& layer : plan.layers)
    for (const CopyNest& nest : layer.nests) {
      const std::uint32_t tensor = nest.target.buffer % tensors;
      const TensorShape& shape = pool.shape.tensors[tensor];
      const ComponentRun* run = find_run(cls, layer.layer, pool.shape.group, shape.component);
      if (run == nullptr || run->length != shape.layer_page_bytes())
        return wrong(cls, pool,
                     fmt::format("component {} of layer {} has {} bytes a page, in the class {}", shape.name,
                                 layer.layer, shape.layer_page_bytes(),
                                 run == nullptr ? "none" : std::to_string(run->length)));
      append_fragments(nest, *run, tensor, runs);
    }
  std::sort(runs.begin(), runs.end(),
            [](const RecordRun& a, const RecordRun& b) { return a.payload_offset < b.payload_offset; });
  return merged(runs);
}

}  // namespace tiercel
