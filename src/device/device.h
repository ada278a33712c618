// The engine's memory as the node sees it: byte ranges to read from and write to. Where each layer and
// component of a page lies there is written once, when the memory is registered (DevicePool).
//
// Threads: read/write may run on several copy threads at once, on ranges that do not overlap.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "base/bytes.h"
#include "base/ids.h"
#include "base/status.h"
#include "device/device_stream.h"
#include "memory/registered_ranges.h"

namespace tiercel {

class Device {
 public:
  virtual ~Device() = default;
  // Errors: io_error when the device fails or the range is not its own; the target's bytes are then
  // unspecified.
  virtual Status read(std::uint64_t address, MutableByteView into) = 0;
  virtual Status write(std::uint64_t address, ByteView from) = 0;
  virtual std::uint64_t size_bytes() const = 0;
  // Memory of the device that this processor reaches by itself: its bytes from `address` on, at most
  // `length`, fewer where they lie in pieces. Lives as long as the range is the copy's. Empty: there is none,
  // and bytes move by read and write, which also say what is wrong with a range. Cost: called for each run of
  // a copy.
  virtual MutableByteView host_view(std::uint64_t address, std::uint64_t length) {
    static_cast<void>(address);
    static_cast<void>(length);
    return {};
  }
  // Copies that go on beside this thread; the device must outlive the stream. Unless a device says otherwise
  // its streams are as good as read() and write(): submit() returns when the bytes are there.
  // Errors: whatever keeps the device from opening one more.
  virtual Result<std::unique_ptr<DeviceStream>> open_stream();
  // What pins host memory for this device's own copies; null: it needs none, or cannot. Lives as the device.
  virtual HostRegistrar* host_registrar() { return nullptr; }
};

// Host memory that stands for a device: its own, or somebody else's mapping (which must outlive it).
class HostDevice final : public Device {
 public:
  explicit HostDevice(std::uint64_t bytes);
  explicit HostDevice(MutableByteView external) : bytes_(external) {}
  HostDevice(const HostDevice&) = delete;
  HostDevice& operator=(const HostDevice&) = delete;
  Status read(std::uint64_t address, MutableByteView into) override;
  Status write(std::uint64_t address, ByteView from) override;
  std::uint64_t size_bytes() const override { return bytes_.size(); }
  MutableByteView host_view(std::uint64_t address, std::uint64_t length) override;
  MutableByteView bytes() { return bytes_; }

 private:
  std::vector<std::byte> own_;
  MutableByteView bytes_;
};

// One component of one layer of a class's pages in engine memory: slot s lies at base + s × stride.
struct DeviceRun {
  std::uint64_t payload_offset = 0;  // where these bytes stand in the record's payload
  std::uint64_t length = 0;
  std::uint64_t base = 0;
  std::uint64_t stride = 0;
};
// All engine memory of one class and shard: what register_memory builds. Groups may overlay the same bytes.
struct DevicePool {
  ClassId cls;
  ShardId shard;
  std::uint64_t slots = 0;
  std::vector<DeviceRun> runs;  // ascending payload_offset, together exactly the record's payload
};

}  // namespace tiercel
