// Small models and pools, for the tests of this folder.
//
// Threads: plain values.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "memory/host_pool_plan.h"
#include "model/test_specs.h"

namespace tiercel {

inline Layout named_layout(std::string_view name) {
  const auto layout = layout_from_text(name);
  EXPECT_TRUE(layout) << name;
  return layout.value_or(Layout{});
}

// A pool of one layer with bytes of no further shape, one buffer for each size.
inline HostPoolRequest raw_pool(std::string name, std::uint64_t page_tokens,
                                std::vector<std::uint64_t> buffers) {
  HostPoolRequest request;
  request.shape.name = std::move(name);
  request.shape.page_tokens = page_tokens;
  request.shape.layers = {0};
  for (std::uint32_t i = 0; i < buffers.size(); ++i) {
    TensorShape tensor;
    tensor.name = "b" + std::to_string(i);
    tensor.component = i;
    tensor.dim = buffers[i];
    request.shape.tensors.push_back(std::move(tensor));
  }
  request.layout = named_layout("page_first_kv_split");  // a buffer for each component
  return request;
}

inline StorageForm form_of(std::vector<Group> groups, std::uint32_t tp = 1,
                           std::vector<std::uint32_t> no_cache = {}, std::vector<std::uint32_t> drafts = {},
                           std::uint64_t page_tokens = 16) {
  ModelSpec spec;
  spec.model_type = "test";
  spec.page_tokens = page_tokens;
  spec.topology = {tp, 1, 1};
  spec.groups = std::move(groups);
  spec.no_cache_layers = std::move(no_cache);
  spec.draft_layers = std::move(drafts);
  auto form = make_storage_form(std::move(spec));
  EXPECT_TRUE(form) << (form ? "" : form.error().message);
  return form.value_or(StorageForm{});
}

inline std::vector<Component> latent() { return {component("latent", {1, 24}, DType::kBf16)}; }
inline std::vector<Component> index_keys() {
  return {component("index_k", {1, 16}, DType::kFp8), component("index_scale", {1, 1}, DType::kF32)};
}
inline std::vector<Component> snapshot() {
  return {component("conv", {6, 3}, DType::kBf16), component("temporal", {2, 4, 5}, DType::kF32)};
}
inline Group draft_of(std::uint32_t of, std::vector<std::uint32_t> layers) {
  return group(FollowerKind{of}, Need::kOptional, std::move(layers), kv(1));
}

// full + window + state, layers interleaved.
inline StorageForm hybrid_form() {
  return form_of({group(FullKind{}, Need::kRequired, {3, 7}, kv()),
                  group(WindowKind{64}, Need::kSparse, {1, 5}, kv(1)),
                  group(StateKind{}, Need::kSparse, {0, 2, 4, 6}, snapshot())});
}

struct Stack {
  std::string name;
  StorageForm form;
};

// Every stack that users run, without and with draft pools.
inline std::vector<Stack> all_stacks() {
  const auto full = [](std::vector<std::uint32_t> layers) {
    return group(FullKind{}, Need::kRequired, std::move(layers), kv());
  };
  const auto mla = [](std::vector<std::uint32_t> layers) {
    return group(FullKind{}, Need::kRequired, std::move(layers), latent(), true);
  };
  Group keys = group(FollowerKind{0}, Need::kRequired, {0, 1, 2, 3}, index_keys(), true);
  Group some_keys = group(FollowerKind{0}, Need::kRequired, {1, 3}, index_keys(), true);
  Group by4 = mla({1, 2}), by16 = mla({3});
  by4.tokens_per_entry = 4;
  by16.tokens_per_entry = 16;
  std::vector<Stack> stacks = {
      {"full", form_of({full({0, 1, 2, 3})})},
      {"mla", form_of({mla({0, 1, 2, 3})}, 2)},
      {"full_window", form_of({full({1, 3}), group(WindowKind{40}, Need::kSparse, {0, 2}, kv(1))})},
      {"full_state", form_of({full({1, 3}), group(StateKind{}, Need::kSparse, {0, 2}, snapshot())})},
      {"full_window_state", hybrid_form()},
      {"dsa", form_of({mla({0, 1, 2, 3}), keys}, 2)},
      {"sparse_keys", form_of({full({0, 1, 2, 3}), some_keys})},
      {"compressed",
       form_of({mla({0}), by4, by16, group(WindowKind{32}, Need::kSparse, {0, 1, 2, 3}, latent(), true)}, 2)},
  };
  const std::size_t plain = stacks.size();
  for (std::size_t i = 0; i < plain; ++i) {
    ModelSpec spec = stacks[i].form.spec;
    spec.groups.push_back(draft_of(0, {90}));
    spec.draft_layers = {90};
    stacks.push_back({stacks[i].name + "_draft",
                      form_of(spec.groups, spec.topology.tp, spec.no_cache_layers, spec.draft_layers)});
  }
  return stacks;
}

}  // namespace tiercel
