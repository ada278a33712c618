#include "trace/pattern_device.h"

#include <gtest/gtest.h>

#include "base/checked.h"
#include "trace/replay.h"

namespace tiercel {
namespace {

class PatternDeviceTest : public testing::Test {
 protected:
  static constexpr std::uint64_t kKept = 100;
  static constexpr std::uint64_t kSlots = 3;
  const StorageForm form_ = *make_storage_form(one_full_group());
  std::unique_ptr<PatternDevice> device_ = *PatternDevice::create(form_, kSlots, kKept);
  const ClassId cls_{0};
  const Key key_{{1, 2}};
  std::uint64_t address(std::uint64_t slot) const {
    const DeviceRun run = device_->pool(cls_).runs[0];
    return run.base + slot * run.stride;
  }
};

TEST_F(PatternDeviceTest, HoldsWhatItWasFilledWith) {
  device_->fill(cls_, 1, key_);
  EXPECT_TRUE(device_->holds(cls_, 1, key_));
  EXPECT_FALSE(device_->holds(cls_, 1, Key{{1, 3}}));
  EXPECT_FALSE(device_->holds(cls_, 0, key_));
  device_->poison(cls_, 1);
  EXPECT_FALSE(device_->holds(cls_, 1, key_));
}

TEST_F(PatternDeviceTest, SeesEveryWrongByte) {
  std::vector<std::byte> right(kKept);
  device_->fill(cls_, 0, key_);
  ASSERT_TRUE(device_->read(address(0), right).ok());
  for (std::size_t i = 0; i < kKept; ++i) {
    std::vector<std::byte> bytes = right;
    bytes[i] ^= std::byte{1};
    ASSERT_TRUE(device_->write(address(0), bytes).ok());
    EXPECT_FALSE(device_->holds(cls_, 0, key_)) << "byte " << i;
  }
  ASSERT_TRUE(device_->write(address(0), right).ok());
  EXPECT_TRUE(device_->holds(cls_, 0, key_));
}

TEST_F(PatternDeviceTest, RefusesBytesThatDoNotExist) {
  std::vector<std::byte> bytes(2);
  EXPECT_TRUE(device_->read(address(2) + kKept - 2, bytes).ok());
  EXPECT_EQ(device_->read(address(2) + kKept - 1, bytes).code, Code::kIoError);
  EXPECT_EQ(device_->write(address(0) + kKept, bytes).code, Code::kIoError);
  EXPECT_EQ(device_->write(device_->size_bytes(), bytes).code, Code::kIoError);
  EXPECT_EQ(device_->read(UINT64_MAX, bytes).code, Code::kIoError);
}

TEST_F(PatternDeviceTest, RefusesMoreThanThereCouldBe) {
  EXPECT_EQ(PatternDevice::create(form_, kSizeMax, 1).error().code, Code::kResourceExhausted);
  EXPECT_EQ(PatternDevice::create(form_, 1ULL << 40, 1 << 20).error().code, Code::kResourceExhausted);
}

}  // namespace
}  // namespace tiercel
