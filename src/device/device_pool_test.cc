#include "device/device_pool.h"

#include <gtest/gtest.h>

#include "model/test_specs.h"

namespace tiercel {
namespace {

PoolLayout pool(std::uint32_t group, const char* layout, std::uint64_t pages = 3) {
  return lay_out(pool_shape(indexed_form(), group), layout_from_text(layout).value(), pages).value();
}

std::vector<std::uint64_t> addresses(const PoolLayout& pool, std::uint64_t from) {
  std::vector<std::uint64_t> out;
  for (const std::uint64_t bytes : pool.buffer_bytes) {
    out.push_back(from);
    from += bytes;
  }
  return out;
}

TEST(DevicePoolOf, PoolsOfAnyLayoutAreTogetherTheRecord) {
  const StorageForm made = indexed_form();
  for (const Layout& layout : named_layouts()) {
    const PoolLayout main = pool(0, layout.name.c_str());
    const PoolLayout side = pool(1, layout.name.c_str());
    const auto main_at = addresses(main, 10'000);
    const auto side_at = addresses(side, 50'000);
    const LaidOutPool pools[] = {{&main, main_at}, {&side, side_at}};
    const auto table = device_pool_of(made.classes.at(0), ShardId(0), pools);
    ASSERT_TRUE(table) << table.error().message;
    EXPECT_EQ(table->slots, 3U);
    EXPECT_EQ(end_address(*table), side_at.back() + side.buffer_bytes.back());
  }
  const PoolLayout plain = pool(0, "layer_first");
  const PoolLayout side = pool(1, "layer_first");
  const auto main_at = addresses(plain, 0);
  const auto side_at = addresses(side, 50'000);
  const LaidOutPool pools[] = {{&side, side_at}, {&plain, main_at}};
  EXPECT_EQ(device_pool_of(made.classes.at(0), ShardId(0), pools)->runs.size(), 5U);
}

TEST(DevicePoolOf, WhatIsNotTheWholeClassIsRefusedInWords) {
  const StorageForm made = indexed_form();
  const PoolLayout main = pool(0, "layer_first");
  const PoolLayout side = pool(1, "layer_first");
  const PoolLayout longer = pool(1, "layer_first", 4);
  const std::vector<std::uint64_t> at = {4096};
  const std::vector<std::uint64_t> none;
  const std::vector<std::uint64_t> high = {static_cast<std::uint64_t>(INT64_MAX)};
  const auto refused = [&](std::vector<LaidOutPool> pools, const char* words) {
    const auto table = device_pool_of(made.classes.at(0), ShardId(0), pools);
    ASSERT_FALSE(table) << words;
    EXPECT_EQ(table.error().code, Code::kInvalidArgument);
    EXPECT_NE(table.error().message.find(words), std::string::npos) << table.error().message;
  };
  refused({}, "no pool of group 0");
  refused({{&main, at}}, "no pool of group 1: a record holds all groups of its class");
  refused({{&main, at}, {&side, at}, {&side, at}}, "two pools of group 1");
  refused({{&main, at}, {&longer, at}}, "pool index_k has 4 pages, pool full has 3");
  refused({{&main, none}, {&side, at}}, "has 1 buffers, 0 addresses were given");
  refused({{&main, high}, {&side, at}}, "pass 2^63 - 1");
}

}  // namespace
}  // namespace tiercel
