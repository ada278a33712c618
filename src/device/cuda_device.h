// The memory of a CUDA device, by CUDA's own addresses: batches of copies on streams of their own, events,
// and pinned host memory. The runtime library is loaded when the first device is opened, so that no program
// needs CUDA to be linked or to start; a build without CUDA's headers has the same functions, which refuse.
//
// Threads: as Device; streams and events as device_stream.h says.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "base/status.h"
#include "device/device.h"

namespace tiercel {

class CudaDevice : public Device {
 public:
  // Whether a range may be touched is checked against the memory that was allocated here or added: the
  // engine's tensors are added. Errors: resource_exhausted with CUDA's words.
  virtual Result<std::uint64_t> allocate(std::uint64_t bytes) = 0;
  virtual void release(std::uint64_t address) = 0;  // of allocate(); otherwise when the device is closed
  virtual void add_range(std::uint64_t address, std::uint64_t bytes) = 0;  // stays its owner's
  virtual std::string name() const = 0;
};

// How many devices this process can use; at least one. Errors: unsupported when this was built without CUDA's
// headers; unavailable when there is no runtime library, no driver or no device, in CUDA's words.
Result<int> cuda_device_count();

// Errors: as cuda_device_count(); invalid_argument for a number that is none of them.
Result<std::unique_ptr<CudaDevice>> open_cuda_device(int number = 0);

}  // namespace tiercel
