// Copies between host and device memory that go on beside the thread that asked for them: rows of work
// (streams), and marks in a row that say when all before them is over (events).
//
// Threads: a stream is used by one thread at a time; an event may be asked by several.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "base/bytes.h"
#include "base/status.h"

namespace tiercel {

enum class CopyDirection : std::uint8_t { kToDevice, kToHost };

struct DeviceCopy {
  std::byte* host = nullptr;  // only read when the direction is kToDevice
  std::uint64_t address = 0;  // of the device
  std::uint64_t length = 0;
};

class DeviceEvent {
 public:
  virtual ~DeviceEvent() = default;
  // Whether everything that its stream was given before it is over. Errors: io_error when a copy before it
  // failed: what the stream's copies wrote since its last good event is unspecified.
  virtual Result<bool> done() = 0;
  // Blocks until then; what done() says.
  virtual Status wait() = 0;
};

class DeviceStream {
 public:
  // Blocks until the device is done with the memory of everything submitted.
  virtual ~DeviceStream() = default;
  // Puts a batch behind everything submitted before; its copies have no order among themselves and must not
  // overlap. The memory is the device's until an event recorded later is done, and may not change meanwhile.
  // Errors: io_error when the device refuses, or a copy before it failed; then none of this batch, or some of
  // it, may still run: drain() before the memory is used. A failure stays: the stream is to be closed.
  virtual Status submit(CopyDirection direction, std::span<const DeviceCopy> copies) = 0;
  virtual Result<std::unique_ptr<DeviceEvent>> record() = 0;  // Errors: as submit()
  // What is submitted from now on begins when `event`, of any stream of this device, is done.
  virtual Status follow(DeviceEvent& event) = 0;
  // Blocks until everything submitted is over, well or not. Errors: io_error when any of it failed.
  virtual Status drain() = 0;
};

}  // namespace tiercel
