#include "device/device.h"

#include <functional>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/checked.h"
#include "device/device_pool.h"

namespace tiercel {
namespace {

TEST(HostDevice, ReadsBackWhatWasWritten) {
  HostDevice device(16);
  const std::vector<std::byte> bytes = {std::byte{1}, std::byte{2}, std::byte{3}};
  EXPECT_TRUE(device.write(13, bytes).ok());
  std::vector<std::byte> into(4);
  EXPECT_TRUE(device.read(12, into).ok());
  EXPECT_EQ(into, (std::vector<std::byte>{std::byte{0}, std::byte{1}, std::byte{2}, std::byte{3}}));
  EXPECT_EQ(device.bytes()[15], std::byte{3});
}

TEST(HostDevice, RefusesWhatIsNotItsOwn) {
  HostDevice device(16);
  std::vector<std::byte> two(2);
  for (const std::uint64_t address : {std::uint64_t{15}, std::uint64_t{16}, UINT64_MAX, UINT64_MAX - 1}) {
    EXPECT_EQ(device.read(address, two).code, Code::kIoError) << address;
    EXPECT_EQ(device.write(address, two).code, Code::kIoError) << address;
  }
  std::vector<std::byte> more(17);
  EXPECT_EQ(device.read(0, more).code, Code::kIoError);
  EXPECT_EQ(device.write(0, more).code, Code::kIoError);
  EXPECT_EQ(device.write(15, two).message, "device write of 2 bytes at address 15 is outside its 16 bytes");
  EXPECT_TRUE(device.read(16, {}).ok());
}

TEST(HostDevice, ShowsItsMemoryWhereTheRangeIsItsOwn) {
  std::vector<std::byte> external(16);
  HostDevice device{MutableByteView(external)};
  EXPECT_EQ(device.host_view(3, 5).data(), external.data() + 3);
  EXPECT_EQ(device.host_view(3, 5).size(), 5U);
  EXPECT_TRUE(device.host_view(15, 2).empty()) << "read() says what is wrong";
  EXPECT_TRUE(device.host_view(UINT64_MAX, 2).empty());
  device.host_view(15, 1)[0] = std::byte{7};
  EXPECT_EQ(external[15], std::byte{7});
}

// Two layers: k and v of 4 bytes each; k of 6 bytes.
ClassForm two_layers() {
  ClassForm cls;
  cls.id = ClassId(3);
  cls.name = "full";
  cls.shards = 2;
  cls.record_bytes = 14;
  cls.layers = {{0, 0, 8, {{0, 0, 0, 4}, {0, 1, 4, 4}}}, {5, 8, 6, {{1, 0, 8, 6}}}};
  return cls;
}

TEST(DevicePool, LayerFirstIsOneDenseArrayPerLayerAndComponent) {
  const DevicePool pool = layer_first_pool(two_layers(), ShardId(1), 1000, 10).value();
  EXPECT_EQ(pool.cls, ClassId(3));
  EXPECT_EQ(pool.shard, ShardId(1));
  ASSERT_EQ(pool.runs.size(), 3U);
  EXPECT_EQ(pool.runs[0].base, 1000U);
  EXPECT_EQ(pool.runs[1].base, 1040U);
  EXPECT_EQ(pool.runs[2].base, 1080U);
  EXPECT_EQ(pool.runs[2].payload_offset, 8U);
  EXPECT_EQ(pool.runs[2].length, 6U);
  EXPECT_EQ(pool.runs[2].stride, 6U);
  EXPECT_EQ(end_address(pool), 1000U + 10 * 14);
  EXPECT_TRUE(validate(pool, two_layers(), 1140).ok());
  EXPECT_FALSE(validate(pool, two_layers(), 1139).ok());
}

TEST(DevicePool, AnAddressThatWrapsOrAShardThatIsNotIsAnError) {
  EXPECT_EQ(layer_first_pool(two_layers(), ShardId(0), kSizeMax - 10, 1).error().code,
            Code::kInvalidArgument);
  EXPECT_EQ(layer_first_pool(two_layers(), ShardId(0), UINT64_MAX, 1).error().code, Code::kInvalidArgument);
  EXPECT_EQ(layer_first_pool(two_layers(), ShardId(0), 0, kSizeMax / 2).error().code, Code::kInvalidArgument);
  EXPECT_EQ(layer_first_pool(two_layers(), ShardId(2), 0, 1).error().message,
            "device pool of class 3 (\"full\"), shard 2: the class has shards 0 to 1");
}

TEST(DevicePool, APoolMadeByHandIsCheckedAndTheErrorNamesTheRun) {
  const ClassForm cls = two_layers();
  const DevicePool good = layer_first_pool(cls, ShardId(0), 0, 4).value();
  const auto complaint = [&](const std::function<void(DevicePool&)>& change) {
    DevicePool pool = good;
    change(pool);
    return validate(pool, cls, 4096).message;
  };
  using testing::HasSubstr;
  EXPECT_EQ(complaint([](DevicePool&) {}), "");
  EXPECT_EQ(complaint([](DevicePool& p) { p.runs[1].base = p.runs[0].base; }), "") << "runs may overlay";
  EXPECT_THAT(complaint([](DevicePool& p) { p.cls = ClassId(1); }), HasSubstr("made for class 1"));
  EXPECT_THAT(complaint([](DevicePool& p) { p.runs[1].payload_offset = 5; }),
              HasSubstr("run 1: payload_offset must be 4"));
  EXPECT_THAT(complaint([](DevicePool& p) { p.runs[1].length = 0; }),
              HasSubstr("run 1: length must be 1 to 10"));
  EXPECT_THAT(complaint([](DevicePool& p) { p.runs[2].length = 7; }),
              HasSubstr("run 2: length must be 1 to 6"));
  EXPECT_THAT(complaint([](DevicePool& p) { p.runs.pop_back(); }),
              HasSubstr("2 runs hold 8 bytes of the record's 14"));
  EXPECT_THAT(complaint([](DevicePool& p) { p.runs[0].stride = 3; }), HasSubstr("run 0: stride 3 is less"));
  EXPECT_THAT(complaint([](DevicePool& p) { p.runs[2].stride = UINT64_MAX; }), HasSubstr("run 2"));
  EXPECT_THAT(complaint([](DevicePool& p) { p.runs[2].base = UINT64_MAX - 1; }), HasSubstr("run 2"));
  EXPECT_THAT(complaint([](DevicePool& p) { p.slots = 1000; }), HasSubstr("beyond the device's 4096 bytes"));
}

}  // namespace
}  // namespace tiercel
