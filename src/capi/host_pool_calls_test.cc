// What callers of host pools get wrong: each ends as an error, and what was there stays usable.
#include <cstdint>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <tiercel/host_pools.h>

#include "capi/test_fuzz_input.h"

namespace tiercel::capi {
namespace {

using testing::HasSubstr;

constexpr char kSpec[] =
    R"({"tiercel_spec": 1, "model_type": "t", "page_tokens": 4, "topology": {"tp": 1}, "groups": [
  {"kind": "full", "layers": [0, 1], "components": [{"name": "k", "shape": [2, 8], "dtype": "bf16"}]}]})";

class CapiHostPools : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(tiercel_spec_from_json(kSpec, sizeof kSpec - 1, 0, &spec, &error), TIERCEL_OK);
    options.layout = "page_first";
    options.memory = "anonymous";
    options.pages = 8;
  }
  void TearDown() override {
    tiercel_host_pools_release(pools);
    tiercel_spec_release(spec);
  }
  void open() {
    ASSERT_EQ(tiercel_host_pools_open(spec, &options, &pools, &error), TIERCEL_OK) << error.message;
  }

  tiercel_error error{};
  tiercel_spec* spec = nullptr;
  tiercel_host_pools* pools = nullptr;
  tiercel_host_pools_options options = sized<tiercel_host_pools_options>();
};

TEST_F(CapiHostPools, ResumePointsBeyondAnyNumberAreRefused) {
  options.pages = 0;
  options.total_bytes = 8U << 20;
  options.full_pages_per_resume_point = UINT64_MAX;
  EXPECT_EQ(tiercel_host_pools_open(spec, &options, &pools, &error), TIERCEL_INVALID_ARGUMENT);
  EXPECT_THAT(error.message, HasSubstr("pages per resume point: wanted at most"));
}

TEST_F(CapiHostPools, APageOfASequenceIsNotGivenBackByHand) {
  open();
  tiercel_sequence* sequence = nullptr;
  ASSERT_EQ(tiercel_sequence_open(pools, 0, &sequence, &error), TIERCEL_OK);
  ASSERT_EQ(tiercel_sequence_append(sequence, 3, nullptr, &error), TIERCEL_OK);
  std::uint64_t page = 0;
  const tiercel_slot_list list{&page, 1, 0, 0};
  EXPECT_EQ(tiercel_host_pools_give(pools, &list, 1, &error), TIERCEL_FAILED_PRECONDITION);
  EXPECT_THAT(error.message, HasSubstr("belongs to a sequence"));
  tiercel_sequence_release(sequence);
  EXPECT_EQ(tiercel_host_pools_take(pools, &list, 1, &error), TIERCEL_OK) << error.message;
  EXPECT_EQ(tiercel_host_pools_give(pools, &list, 1, &error), TIERCEL_OK) << error.message;
}

TEST_F(CapiHostPools, APoolThatCouldNeverBeSealedIsNotAdded) {
  tiercel_host_pools_builder* builder = nullptr;
  ASSERT_EQ(tiercel_host_pools_builder_create(spec, &options, &builder, &error), TIERCEL_OK) << error.message;
  auto pool = sized<tiercel_host_pool_options>();
  ASSERT_EQ(tiercel_host_pools_builder_add(builder, &pool, nullptr, &error), TIERCEL_OK) << error.message;
  pool.name = "side";
  pool.slots_of = "full";
  pool.pages = 3;
  EXPECT_EQ(tiercel_host_pools_builder_add(builder, &pool, nullptr, &error), TIERCEL_INVALID_ARGUMENT);
  EXPECT_THAT(error.message, HasSubstr("uses the slots of another"));
  pool.pages = 0;
  EXPECT_EQ(tiercel_host_pools_builder_add(builder, &pool, nullptr, &error), TIERCEL_OK) << error.message;
  EXPECT_EQ(tiercel_host_pools_builder_seal(builder, &pools, &error), TIERCEL_OK) << error.message;
  tiercel_host_pools_builder_release(builder);
}

TEST_F(CapiHostPools, ACopyInsideAGroupReadsNothingThatItWrites) {
  open();
  const std::uint64_t low[3] = {0, 1, 2}, shifted[3] = {1, 2, 3}, high[3] = {5, 6, 7};
  const std::uint64_t tokens[3] = {22, 40, 41};  // of page 5
  tiercel_copy_part parts[2] = {};
  parts[0].source = low;
  parts[0].target = high;
  parts[0].count = 3;
  parts[1] = parts[0];
  const tiercel_host_pools* const source = pools;
  auto copy = sized<tiercel_copy_options>();
  copy.sources = &source;
  copy.source_count = copy.part_count = 1;
  copy.target = pools;
  copy.parts = parts;
  const auto started = [&] {
    tiercel_copy* made = nullptr;
    const tiercel_status status = tiercel_copy_start(&copy, &made, &error);
    tiercel_copy_release(made);
    return status;
  };
  EXPECT_EQ(started(), TIERCEL_OK) << error.message;
  parts[0].target = shifted;
  EXPECT_EQ(started(), TIERCEL_INVALID_ARGUMENT) << "page 1 is read and written";
  EXPECT_THAT(error.message, HasSubstr("part 0 writes"));
  parts[0].target = low;
  EXPECT_EQ(started(), TIERCEL_INVALID_ARGUMENT) << "onto itself";
  parts[0].target = high;
  copy.part_count = 2;
  EXPECT_EQ(started(), TIERCEL_INVALID_ARGUMENT) << "two parts write page 5";
  parts[1].target = tokens;
  parts[1].granule_tokens = 1;
  EXPECT_EQ(started(), TIERCEL_INVALID_ARGUMENT) << "token 22 is one of page 5";
  EXPECT_THAT(error.message, HasSubstr("from token or snapshot 22 on"));
  parts[0].count = 0;
  EXPECT_EQ(started(), TIERCEL_INVALID_ARGUMENT) << "there are 32 tokens";
  copy.part_count = 1;
  copy.target_rank = 1;
  EXPECT_EQ(started(), TIERCEL_INVALID_ARGUMENT) << "a rank without the model that is cut";
}

}  // namespace
}  // namespace tiercel::capi
