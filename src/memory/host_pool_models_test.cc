// Host pools of every published configuration in ../shared/models, in every named layout, at the size of a
// real machine: plans only, no byte of it is allocated.
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "memory/host_pool_plan.h"
#include "memory/test_host_pools.h"
#include "model/hf_config.h"
#include "model/test_text.h"

namespace tiercel {
namespace {

constexpr int kModels = 18;
constexpr std::uint64_t kGiB = 1ULL << 30;

struct Model {
  std::string name;
  StorageForm form;
};

std::vector<Model> models(std::uint64_t tp) {
  const std::filesystem::path folder = std::filesystem::path(TIERCEL_SOURCE_DIR) / ".." / "shared" / "models";
  std::vector<Model> found;
  if (!std::filesystem::exists(folder)) {
    std::printf("skipped: %d cases, ../shared is not present\n", kModels);
    return found;
  }
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    if (!name.ends_with(".json") || name == "expected.json") continue;
    auto spec = read_hf_config(text_of_file(entry.path()), name, {.tp = tp, .page_tokens = 256});
    if (!spec) continue;  // some cannot be cut so often
    auto form = make_storage_form(std::move(*spec));
    EXPECT_TRUE(form) << name;
    if (form) found.push_back({name, std::move(*form)});
  }
  EXPECT_GE(found.size(), tp == 1 ? kModels : 1U);
  return found;
}

// One resume point of all pools.
std::uint64_t resume_point_bytes(const std::vector<HostPoolRequest>& requests) {
  std::uint64_t bytes = 0, share = 1;
  for (const HostPoolRequest& request : requests) {
    if (request.slots_of.empty()) share = std::max<std::uint64_t>(request.pages_per_resume_point, 1);
    bytes += share * request.shape.page_bytes();
  }
  return bytes;
}

TEST(HostPoolsOfModels, EveryModelInEveryLayoutFillsATotalAndNeverExceedsIt) {
  for (const std::uint64_t tp : {1U, 2U})
    for (const Model& model : models(tp))
      for (const Layout& layout : named_layouts()) {
        const auto requests = stack_of(model.form, {.layout = layout});
        ASSERT_TRUE(requests) << model.name;
        ASSERT_EQ(requests->size(), model.form.spec.groups.size());
        const auto plan = plan_host_pools(*requests, {MemoryKind::kShared, TotalCapacity{64 * kGiB}});
        if (!plan) {
          EXPECT_THAT(plan.error().message, testing::HasSubstr("stands outside of component")) << model.name;
          EXPECT_NE(layout.name, "page_first")
              << model.name << ": the layout that the others are told to take";
          continue;
        }
        EXPECT_LE(mapped_bytes(*plan), 64 * kGiB) << model.name << " " << layout.name;
        const std::uint64_t least_page =
            std::min_element(requests->begin(), requests->end(), [](const auto& a, const auto& b) {
              return a.shape.page_bytes() < b.shape.page_bytes();
            })->shape.page_bytes();
        EXPECT_GT(required_bytes(*plan) + resume_point_bytes(*requests) + least_page + (1ULL << 24),
                  64 * kGiB)
            << model.name << " " << layout.name;
        std::uint64_t all = 0;
        for (const HostPool& pool : plan->pools) {
          EXPECT_EQ(total_bytes(pool.layout), pool.pages() * pool.layout.shape.page_bytes()) << model.name;
          all += total_bytes(pool.layout);
        }
        EXPECT_EQ(required_bytes(*plan), all) << "no pool lies in another one";
      }
}

}  // namespace
}  // namespace tiercel
