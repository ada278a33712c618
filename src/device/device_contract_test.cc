// What every Device promises, over each of them: host memory, a simulated one whose copies end when they are
// let, and CUDA where there is a device.
#include <algorithm>
#include <cstdio>
#include <functional>
#include <memory>
#include <string>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/prng.h"
#include "device/cuda_device.h"
#include "device/device.h"
#include "device/test_held_device.h"

namespace tiercel {
namespace {

constexpr std::uint64_t kBytes = 1 << 16;
constexpr std::uint64_t kMachinePage = 4096;

std::vector<std::byte> random_bytes(std::uint64_t seed, std::size_t count) {
  Prng prng(seed);
  std::vector<std::byte> bytes(count);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(prng.next());
  return bytes;
}

// A device and kBytes of its memory that a test may use.
struct Tested {
  std::unique_ptr<Device> device;
  std::uint64_t base = 0;
  std::function<void()> let_go = [] {};  // copies that were submitted may end
};

struct Kind {
  const char* name;
  std::function<Result<Tested>()> make;
};

Result<Tested> host_tested() {
  return Tested{std::make_unique<HostDevice>(kBytes), 0, [] {}};
}
Result<Tested> held_tested() {
  auto device = std::make_unique<HeldDevice>(kBytes);
  HeldDevice& held = *device;
  return Tested{std::move(device), 0, [&held] { held.let_all_go(); }};
}
Result<Tested> cuda_tested() {
  TIERCEL_ASSIGN_OR_RETURN(std::unique_ptr<CudaDevice> device, open_cuda_device());
  TIERCEL_ASSIGN_OR_RETURN(const std::uint64_t base, device->allocate(kBytes));
  return Tested{std::move(device), base, [] {}};
}

class DeviceContract : public testing::TestWithParam<Kind> {
 protected:
  void SetUp() override {
    Result<Tested> made = GetParam().make();
    ASSERT_TRUE(made.has_value()) << made.error().message;
    tested_ = std::move(*made);
    stream_ = device().open_stream().value();
  }
  void TearDown() override {
    if (tested_.device) tested_.let_go();
  }
  Device& device() { return *tested_.device; }
  DeviceStream& stream() { return *stream_; }
  void let_go() { tested_.let_go(); }
  std::uint64_t at(std::uint64_t offset) const { return tested_.base + offset; }

  Tested tested_;
  std::unique_ptr<DeviceStream> stream_;
};

TEST_P(DeviceContract, ReadsBackWhatWasWritten) {
  const auto bytes = random_bytes(1, 5000);
  ASSERT_TRUE(device().write(at(7), bytes).ok());
  std::vector<std::byte> into(5000);
  ASSERT_TRUE(device().read(at(7), into).ok());
  EXPECT_EQ(into, bytes);
  EXPECT_TRUE(device().read(at(3), MutableByteView()).ok()) << "no bytes are always there";
}

TEST_P(DeviceContract, RefusesMemoryThatIsNotItsOwnAndTouchesNothing) {
  std::vector<std::byte> two(2, std::byte{5});
  EXPECT_EQ(device().read(at(kBytes - 1), two).code, Code::kIoError);
  EXPECT_EQ(device().write(at(kBytes - 1), two).code, Code::kIoError);
  EXPECT_EQ(device().read(UINT64_MAX, two).code, Code::kIoError);
  EXPECT_EQ(two, std::vector<std::byte>(2, std::byte{5}));
}

TEST_P(DeviceContract, AHostViewIsTheDevicesOwnMemoryOrThereIsNone) {
  const MutableByteView view = device().host_view(at(10), 4);
  if (view.empty()) return;
  ASSERT_TRUE(device().write(at(10), random_bytes(2, 4)).ok());
  EXPECT_TRUE(std::ranges::equal(view, random_bytes(2, 4)));
}

TEST_P(DeviceContract, ABatchArrivesByItsEventAndNothingElseIsTouched) {
  const auto bytes = random_bytes(3, kBytes);
  ASSERT_TRUE(device().write(at(0), std::vector<std::byte>(kBytes)).ok());
  auto from = bytes;
  std::vector<DeviceCopy> copies;
  std::vector<std::byte> wanted(kBytes);
  for (std::uint64_t i = 0; i + 700 < kBytes; i += 700) {
    const std::uint64_t length = i % 500;  // none at all among them
    copies.push_back({from.data() + i, at(kBytes - 700 - i), length});
    std::copy_n(from.begin() + static_cast<std::ptrdiff_t>(i), length,
                wanted.end() - static_cast<std::ptrdiff_t>(700 + i));
  }
  ASSERT_TRUE(stream().submit(CopyDirection::kToDevice, copies).ok());
  const auto event = stream().record().value();
  let_go();
  ASSERT_TRUE(event->wait().ok());
  EXPECT_EQ(event->done().value(), true);
  std::vector<std::byte> into(kBytes);
  ASSERT_TRUE(device().read(at(0), into).ok());
  EXPECT_TRUE(into == wanted);
}

TEST_P(DeviceContract, BatchesOfAStreamRunInTheOrderOfTheirSubmission) {
  auto first = random_bytes(4, 3000);
  auto second = random_bytes(5, 3000);
  std::vector<std::byte> into(3000);
  const DeviceCopy to[] = {{first.data(), at(100), 3000}};
  const DeviceCopy over[] = {{second.data() + 1000, at(1100), 500}};
  const DeviceCopy back[] = {{into.data(), at(100), 3000}};
  ASSERT_TRUE(stream().submit(CopyDirection::kToDevice, to).ok());
  ASSERT_TRUE(stream().submit(CopyDirection::kToDevice, over).ok());
  ASSERT_TRUE(stream().submit(CopyDirection::kToHost, back).ok());
  let_go();
  ASSERT_TRUE(stream().drain().ok());
  std::copy_n(second.begin() + 1000, 500, first.begin() + 1000);
  EXPECT_TRUE(into == first);
}

TEST_P(DeviceContract, AStreamFollowsAnEventOfAnother) {
  const auto other = device().open_stream().value();
  auto bytes = random_bytes(6, 4000);
  std::vector<std::byte> into(4000);
  const DeviceCopy to[] = {{bytes.data(), at(0), 4000}};
  const DeviceCopy back[] = {{into.data(), at(0), 4000}};
  ASSERT_TRUE(stream().submit(CopyDirection::kToDevice, to).ok());
  const auto event = stream().record().value();
  ASSERT_TRUE(other->follow(*event).ok());
  ASSERT_TRUE(other->submit(CopyDirection::kToHost, back).ok());
  let_go();
  ASSERT_TRUE(other->drain().ok());
  EXPECT_TRUE(into == bytes);
}

TEST_P(DeviceContract, AnEventOfAnEmptyStreamIsDone) {
  const auto event = stream().record().value();
  EXPECT_TRUE(event->wait().ok());
  EXPECT_EQ(event->done().value(), true);
  EXPECT_TRUE(stream().submit(CopyDirection::kToHost, {}).ok());
  let_go();
  EXPECT_TRUE(stream().drain().ok());
}

TEST_P(DeviceContract, AFailedBatchIsToldAtTheLatestByTheNextEventAndStays) {
  std::vector<std::byte> bytes(100);
  const DeviceCopy beyond[] = {{bytes.data(), at(kBytes - 50), 100}};
  const DeviceCopy good[] = {{bytes.data(), at(0), 100}};
  const auto before = stream().record().value();
  Status told = stream().submit(CopyDirection::kToDevice, beyond);
  let_go();
  for (int i = 0; i < 2; ++i) {
    if (told.ok()) {
      const auto event = stream().record();
      told = event ? (*event)->wait() : event.error();
    }
    EXPECT_EQ(told.code, Code::kIoError);
    told = stream().submit(CopyDirection::kToDevice, good);
  }
  EXPECT_EQ(stream().drain().code, Code::kIoError);
}

TEST_P(DeviceContract, StreamsOfSeveralThreadsDoNotDisturbEachOther) {
  let_go();
  std::vector<std::vector<std::byte>> sent;
  for (std::uint64_t t = 0; t < 3; ++t) sent.push_back(random_bytes(10 + t, kBytes / 4));
  {
    std::vector<std::jthread> threads;
    for (std::uint64_t t = 0; t < 3; ++t)
      threads.emplace_back([this, t, &sent] {
        const auto mine = device().open_stream().value();
        for (std::uint64_t i = 0; i < kBytes / 4; i += kBytes / 64) {
          const DeviceCopy copy[] = {{sent[t].data() + i, at(t * kBytes / 4 + i), kBytes / 64}};
          ASSERT_TRUE(mine->submit(CopyDirection::kToDevice, copy).ok());
        }
        ASSERT_TRUE(mine->drain().ok());
      });
  }
  for (std::uint64_t t = 0; t < 3; ++t) {
    std::vector<std::byte> into(kBytes / 4);
    ASSERT_TRUE(device().read(at(t * kBytes / 4), into).ok());
    EXPECT_TRUE(into == sent[t]) << t;
  }
}

TEST_P(DeviceContract, HostMemoryIsRegisteredInChunksWhereTheDeviceRegistersAny) {
  HostRegistrar* registrar = device().host_registrar();
  if (registrar == nullptr) return;
  std::vector<std::byte> room(8 * kMachinePage);
  const std::size_t skipped = (4096 - reinterpret_cast<std::uintptr_t>(room.data()) % 4096) % 4096;
  const MutableByteView pages = MutableByteView(room).subspan(skipped, 7 * kMachinePage);
  for (int i = 0; i < 2; ++i) {  // dropped, it can be made again
    const auto registration =
        RegisteredRanges::make(*registrar, {pages.first(3 * kMachinePage), pages.subspan(3 * kMachinePage)});
    ASSERT_TRUE(registration.has_value()) << registration.error().message;
    EXPECT_EQ(registration->ranges().size(), 2U);
  }
}

std::string kind_name(const testing::TestParamInfo<Kind>& info) { return info.param.name; }

INSTANTIATE_TEST_SUITE_P(Host, DeviceContract, testing::Values(Kind{"Host", host_tested}), kind_name);
INSTANTIATE_TEST_SUITE_P(Held, DeviceContract, testing::Values(Kind{"Held", held_tested}), kind_name);

// No device: the cases are counted and said, since a suite without values runs nothing.
std::vector<Kind> cuda_kinds() {
  const Result<int> count = cuda_device_count();
  if (count) return {Kind{"Cuda", cuda_tested}};
  return {};
}
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(DeviceContract);
INSTANTIATE_TEST_SUITE_P(Cuda, DeviceContract, testing::ValuesIn(cuda_kinds()), kind_name);

TEST(CudaDevice, WithoutADeviceEveryCallSaysWhyInOneLine) {
  const Result<int> count = cuda_device_count();
  if (count) {
    EXPECT_EQ(open_cuda_device(*count).error().code, Code::kInvalidArgument);
    EXPECT_EQ(open_cuda_device(-1).error().code, Code::kInvalidArgument);
    return;
  }
  int cases = 0;
  const auto* suites = testing::UnitTest::GetInstance();
  for (int i = 0; i < suites->total_test_suite_count(); ++i)
    if (std::string_view(suites->GetTestSuite(i)->name()) == "Host/DeviceContract")
      cases = suites->GetTestSuite(i)->total_test_count();
  std::printf("skipped: %d cases, no CUDA device (%s)\n", cases, count.error().message.c_str());
  EXPECT_GT(cases, 0);
  EXPECT_FALSE(count.error().message.empty());
  EXPECT_EQ(count.error().message.find('\n'), std::string::npos);
  EXPECT_EQ(open_cuda_device().error().message, count.error().message);
}

}  // namespace
}  // namespace tiercel
