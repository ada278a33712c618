#include "model/pool_shape.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <set>

#include <fmt/format.h>

#include "base/check.h"

namespace tiercel {

namespace {

// What a pool is called, before it is made unique; one overload per kind.
struct PoolName {
  const Group& group;
  std::string operator()(const FullKind&) const {
    return group.tokens_per_entry > 1 ? fmt::format("full_{}", group.tokens_per_entry) : "full";
  }
  std::string operator()(const WindowKind& window) const { return fmt::format("window{}", window.tokens); }
  std::string operator()(const StateKind&) const { return "state"; }
  std::string operator()(const FollowerKind&) const {
    return group.need == Need::kOptional ? "draft" : group.components.front().name;
  }
};

std::string base_name(const Group& group) { return std::visit(PoolName{group}, group.kind); }

// Pools of one base name are numbered from the second on: "window512", "window512.2".
std::string pool_name(const ModelSpec& spec, std::uint32_t group) {
  const std::string name = base_name(spec.groups[group]);
  const auto before = std::count_if(spec.groups.begin(), spec.groups.begin() + group,
                                    [&](const Group& other) { return base_name(other) == name; });
  return before == 0 ? name : fmt::format("{}.{}", name, before + 1);
}

ClassId class_of(const StorageForm& form, std::uint32_t group) {
  const auto cls = std::find_if(form.classes.begin(), form.classes.end(), [&](const ClassForm& each) {
    return std::find(each.groups.begin(), each.groups.end(), group) != each.groups.end();
  });
  TIERCEL_CHECK(cls != form.classes.end());
  return cls->id;
}

TensorShape tensor_shape(const ModelSpec& spec, const Group& group, std::uint32_t number) {
  const Component& component = group.components[number];
  TensorShape tensor;
  tensor.name = component.name;
  tensor.component = number;
  tensor.tokens = entries_per_record(spec, group, component);
  tensor.sections = component.sections;
  if (!component.dtype) {
    tensor.dim = component.bytes_per_layer;
    return tensor;
  }
  tensor.element_bytes = dtype_bytes(*component.dtype);
  auto inner = component.shape.begin();
  if (component.shape.size() > 1) tensor.heads = *inner++;
  tensor.dim = std::accumulate(inner, component.shape.end(), std::uint64_t{1}, std::multiplies<>());
  return tensor;
}

}  // namespace

std::uint64_t PoolShape::page_bytes() const {
  std::uint64_t layer = 0;
  for (const TensorShape& tensor : tensors) layer += tensor.layer_page_bytes();
  return layer * layers.size();
}

PoolShape pool_shape(const StorageForm& form, std::uint32_t group, Stage stage) {
  const ModelSpec& spec = form.spec;
  const Group& from = spec.groups.at(group);
  PoolShape shape;
  shape.name = pool_name(spec, group);
  shape.group = group;
  shape.cls = class_of(form, group);
  shape.page_tokens = std::holds_alternative<StateKind>(from.kind) ? 0 : spec.page_tokens;
  shape.tokens_per_entry = from.tokens_per_entry;
  std::copy_if(from.layers.begin(), from.layers.end(), std::back_inserter(shape.layers),
               [&](std::uint32_t layer) { return layer >= stage.first && layer < stage.end; });
  for (std::uint32_t i = 0; i < from.components.size(); ++i)
    shape.tensors.push_back(tensor_shape(spec, from, i));
  return shape;
}

std::vector<PoolShape> pool_shapes(const StorageForm& form, Stage stage) {
  std::vector<PoolShape> shapes;
  for (std::uint32_t group = 0; group < form.spec.groups.size(); ++group)
    shapes.push_back(pool_shape(form, group, stage));
  return shapes;
}

}  // namespace tiercel
