#include "device/cuda_device.h"

#include <utility>
#include <vector>

#include <fmt/format.h>

#if TIERCEL_CUDA_HEADERS
#include <cuda_runtime_api.h>
#include <dlfcn.h>
#endif

#include "base/checked.h"
#include "os/thread_annotations.h"

namespace tiercel {

#if TIERCEL_CUDA_HEADERS

namespace {

// The functions of the runtime library that are used here.
struct Cuda {
  decltype(&::cudaGetErrorString) error_string = nullptr;
  decltype(&::cudaGetDeviceCount) device_count = nullptr;
  decltype(&::cudaSetDevice) set_device = nullptr;
  cudaError_t (*malloc)(void**, size_t) = nullptr;
  decltype(&::cudaFree) free = nullptr;
  decltype(&::cudaMemcpy) copy = nullptr;
  decltype(&::cudaMemcpyAsync) copy_async = nullptr;
  decltype(&::cudaStreamCreateWithFlags) stream_create = nullptr;
  decltype(&::cudaStreamDestroy) stream_destroy = nullptr;
  decltype(&::cudaStreamSynchronize) stream_synchronize = nullptr;
  cudaError_t (*stream_wait_event)(cudaStream_t, cudaEvent_t, unsigned int) = nullptr;
  cudaError_t (*event_create)(cudaEvent_t*, unsigned int) = nullptr;
  decltype(&::cudaEventDestroy) event_destroy = nullptr;
  cudaError_t (*event_record)(cudaEvent_t, cudaStream_t) = nullptr;
  decltype(&::cudaEventQuery) event_query = nullptr;
  decltype(&::cudaEventSynchronize) event_synchronize = nullptr;
  decltype(&::cudaHostRegister) host_register = nullptr;
  decltype(&::cudaHostUnregister) host_unregister = nullptr;
#if CUDART_VERSION >= 13000
  // Null: this runtime has none, and copies go one by one.
  cudaError_t (*copy_batch)(void* const*, const void* const*, const size_t*, size_t, cudaMemcpyAttributes*,
                            size_t*, size_t, cudaStream_t) = nullptr;
#endif

  Status status(cudaError_t code, std::string_view what, Code kind = Code::kIoError) const {
    if (code == cudaSuccess) return {};
    return {kind, fmt::format("CUDA: {}: {}", what, error_string(code))};
  }
};

template <typename Function>
bool find(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(dlsym(library, name));
  return function != nullptr;
}

// The missing function, or null. The library stays loaded: CUDA does not like to be unloaded.
const char* bind(void* library, Cuda& cuda) {
#define TIERCEL_BIND(member, name) \
  if (!find(library, name, cuda.member)) return name
  TIERCEL_BIND(error_string, "cudaGetErrorString");
  TIERCEL_BIND(device_count, "cudaGetDeviceCount");
  TIERCEL_BIND(set_device, "cudaSetDevice");
  TIERCEL_BIND(malloc, "cudaMalloc");
  TIERCEL_BIND(free, "cudaFree");
  TIERCEL_BIND(copy, "cudaMemcpy");
  TIERCEL_BIND(copy_async, "cudaMemcpyAsync");
  TIERCEL_BIND(stream_create, "cudaStreamCreateWithFlags");
  TIERCEL_BIND(stream_destroy, "cudaStreamDestroy");
  TIERCEL_BIND(stream_synchronize, "cudaStreamSynchronize");
  TIERCEL_BIND(stream_wait_event, "cudaStreamWaitEvent");
  TIERCEL_BIND(event_create, "cudaEventCreateWithFlags");
  TIERCEL_BIND(event_destroy, "cudaEventDestroy");
  TIERCEL_BIND(event_record, "cudaEventRecord");
  TIERCEL_BIND(event_query, "cudaEventQuery");
  TIERCEL_BIND(event_synchronize, "cudaEventSynchronize");
  TIERCEL_BIND(host_register, "cudaHostRegister");
  TIERCEL_BIND(host_unregister, "cudaHostUnregister");
#undef TIERCEL_BIND
#if CUDART_VERSION >= 13000
  find(library, "cudaMemcpyBatchAsync", cuda.copy_batch);
#endif
  return nullptr;
}

Result<Cuda> load_cuda() {
  const std::string name = fmt::format("libcudart.so.{}", CUDART_VERSION / 1000);
  void* library = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    const char* why = dlerror();  // NOLINT(concurrency-mt-unsafe): the C library keeps one for each thread
    return error(Code::kUnavailable, fmt::format("CUDA: {}; put its folder into LD_LIBRARY_PATH", why));
  }
  Cuda cuda;
  if (const char* missing = bind(library, cuda); missing != nullptr)
    return error(Code::kUnavailable, fmt::format("CUDA: {} has no {}", name, missing));
  return cuda;
}

Result<const Cuda*> cuda_runtime() {
  static const Result<Cuda> kCuda = load_cuda();
  if (!kCuda) return tl::unexpected(kCuda.error());
  return &*kCuda;
}

// CUDA's addresses are numbers to us.
void* pointer(std::uint64_t address) {
  return reinterpret_cast<void*>(address);  // NOLINT(performance-no-int-to-ptr)
}

// The memory of one device that may be touched.
class Ranges final {
 public:
  void add(std::uint64_t address, std::uint64_t bytes) TIERCEL_EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    ranges_.push_back({address, bytes});
  }
  void remove(std::uint64_t address) TIERCEL_EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    std::erase_if(ranges_, [&](const Range& range) { return range.address == address; });
  }
  Status check(std::uint64_t address, std::uint64_t length) const TIERCEL_EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    for (const Range& range : ranges_)
      if (address >= range.address && length <= range.bytes &&
          address - range.address <= range.bytes - length)
        return {};
    return {
        Code::kIoError,
        fmt::format("device copy of {} bytes at address {:#x}: no range that was allocated or added holds it",
                    length, address)};
  }

 private:
  struct Range {
    std::uint64_t address, bytes;
  };
  mutable Mutex mutex_;
  std::vector<Range> ranges_ TIERCEL_GUARDED_BY(mutex_);
};

class CudaEvent final : public DeviceEvent {
 public:
  CudaEvent(const Cuda& cuda, cudaEvent_t event) : cuda_(cuda), event_(event) {}
  CudaEvent(const CudaEvent&) = delete;
  CudaEvent& operator=(const CudaEvent&) = delete;
  ~CudaEvent() override { cuda_.event_destroy(event_); }
  Result<bool> done() override {
    const cudaError_t code = cuda_.event_query(event_);
    if (code == cudaErrorNotReady) return false;
    TIERCEL_RETURN_IF_ERROR(cuda_.status(code, "copies before an event"));
    return true;
  }
  Status wait() override { return cuda_.status(cuda_.event_synchronize(event_), "copies before an event"); }
  cudaEvent_t event() const { return event_; }

 private:
  const Cuda& cuda_;
  cudaEvent_t event_;
};

class CudaStream final : public DeviceStream {
 public:
  CudaStream(const Cuda& cuda, int number, const Ranges& ranges, cudaStream_t stream)
      : cuda_(cuda), number_(number), ranges_(ranges), stream_(stream) {}
  CudaStream(const CudaStream&) = delete;
  CudaStream& operator=(const CudaStream&) = delete;
  ~CudaStream() override {
    static_cast<void>(drain());
    cuda_.stream_destroy(stream_);
  }

  Status submit(CopyDirection direction, std::span<const DeviceCopy> copies) override {
    if (!status_.ok() || copies.empty()) return status_;
    targets_.clear(), sources_.clear(), lengths_.clear();
    for (const DeviceCopy& copy : copies) {
      if (copy.length == 0) continue;
      status_ = ranges_.check(copy.address, copy.length);
      if (!status_.ok()) return status_;
      const bool to_device = direction == CopyDirection::kToDevice;
      targets_.push_back(to_device ? pointer(copy.address) : copy.host);
      sources_.push_back(to_device ? copy.host : pointer(copy.address));
      lengths_.push_back(copy.length);
    }
    status_ = cuda_.status(cuda_.set_device(number_), "choosing the device");
    if (status_.ok() && !lengths_.empty()) status_ = cuda_.status(send(direction), "copying");
    return status_;
  }
  Result<std::unique_ptr<DeviceEvent>> record() override {
    TIERCEL_RETURN_IF_ERROR(status_);
    TIERCEL_RETURN_IF_ERROR(cuda_.status(cuda_.set_device(number_), "choosing the device"));
    cudaEvent_t raw = nullptr;
    TIERCEL_RETURN_IF_ERROR(
        cuda_.status(cuda_.event_create(&raw, cudaEventDisableTiming), "creating an event"));
    auto event = std::make_unique<CudaEvent>(cuda_, raw);
    TIERCEL_RETURN_IF_ERROR(cuda_.status(cuda_.event_record(raw, stream_), "recording an event"));
    return event;
  }
  Status follow(DeviceEvent& event) override {
    // Streams follow events of their own device, and all of those are CudaEvents.
    const auto& other = static_cast<const CudaEvent&>(event);
    return cuda_.status(cuda_.stream_wait_event(stream_, other.event(), 0), "following an event");
  }
  Status drain() override {
    Status status = cuda_.status(cuda_.stream_synchronize(stream_), "draining a stream");
    if (status_.ok()) status_ = std::move(status);
    return status_;
  }

 private:
  cudaError_t send(CopyDirection direction) {
#if CUDART_VERSION >= 13000
    if (cuda_.copy_batch != nullptr) {
      // The engine's own work may stand before this in the stream, so sources are read in its order.
      cudaMemcpyAttributes attributes{};
      attributes.srcAccessOrder = cudaMemcpySrcAccessOrderStream;
      size_t first = 0;
      return cuda_.copy_batch(targets_.data(), sources_.data(), lengths_.data(), lengths_.size(), &attributes,
                              &first, 1, stream_);
    }
#endif
    const auto kind = direction == CopyDirection::kToDevice ? cudaMemcpyHostToDevice : cudaMemcpyDeviceToHost;
    for (std::size_t i = 0; i < lengths_.size(); ++i) {
      const cudaError_t code = cuda_.copy_async(targets_[i], sources_[i], lengths_[i], kind, stream_);
      if (code != cudaSuccess) return code;
    }
    return cudaSuccess;
  }

  const Cuda& cuda_;
  int number_;
  const Ranges& ranges_;
  cudaStream_t stream_;
  Status status_;
  std::vector<void*> targets_;  // of the batch under way, kept to spare allocations
  std::vector<const void*> sources_;
  std::vector<size_t> lengths_;
};

class LoadedCudaDevice final : public CudaDevice, private HostRegistrar {
 public:
  LoadedCudaDevice(const Cuda& cuda, int number) : cuda_(cuda), number_(number) {}
  LoadedCudaDevice(const LoadedCudaDevice&) = delete;
  LoadedCudaDevice& operator=(const LoadedCudaDevice&) = delete;
  ~LoadedCudaDevice() override {
    for (const std::uint64_t address : own_) cuda_.free(pointer(address));
  }

  Status read(std::uint64_t address, MutableByteView into) override {
    return copy_now(into.data(), pointer(address), address, into.size(), cudaMemcpyDeviceToHost);
  }
  Status write(std::uint64_t address, ByteView from) override {
    return copy_now(pointer(address), from.data(), address, from.size(), cudaMemcpyHostToDevice);
  }
  std::uint64_t size_bytes() const override { return kSizeMax; }  // of the space of addresses
  Result<std::unique_ptr<DeviceStream>> open_stream() override {
    TIERCEL_RETURN_IF_ERROR(cuda_.status(cuda_.set_device(number_), "choosing the device"));
    cudaStream_t stream = nullptr;
    TIERCEL_RETURN_IF_ERROR(
        cuda_.status(cuda_.stream_create(&stream, cudaStreamNonBlocking), "creating a stream"));
    return std::make_unique<CudaStream>(cuda_, number_, ranges_, stream);
  }
  HostRegistrar* host_registrar() override { return this; }

  Result<std::uint64_t> allocate(std::uint64_t bytes) override {
    TIERCEL_RETURN_IF_ERROR(cuda_.status(cuda_.set_device(number_), "choosing the device"));
    void* memory = nullptr;
    TIERCEL_RETURN_IF_ERROR(cuda_.status(
        cuda_.malloc(&memory, bytes), fmt::format("allocating {} bytes", bytes), Code::kResourceExhausted));
    const auto address = reinterpret_cast<std::uintptr_t>(memory);
    own_.push_back(address);
    ranges_.add(address, bytes);
    return std::uint64_t{address};
  }
  void release(std::uint64_t address) override {
    if (std::erase(own_, address) == 0) return;
    ranges_.remove(address);
    cuda_.free(pointer(address));
  }
  void add_range(std::uint64_t address, std::uint64_t bytes) override { ranges_.add(address, bytes); }
  std::string name() const override { return fmt::format("CUDA device {}", number_); }

 private:
  Status copy_now(void* to, const void* from, std::uint64_t address, std::uint64_t length,
                  cudaMemcpyKind kind) {
    if (length == 0) return {};
    if (Status status = ranges_.check(address, length); !status.ok()) return status;
    if (Status status = cuda_.status(cuda_.set_device(number_), "choosing the device"); !status.ok())
      return status;
    return cuda_.status(cuda_.copy(to, from, length, kind), "copying");
  }
  Status register_range(MutableByteView range) override {
    if (Status status = cuda_.status(cuda_.set_device(number_), "choosing the device"); !status.ok())
      return status;
    return cuda_.status(cuda_.host_register(range.data(), range.size(), cudaHostRegisterPortable),
                        "pinning host memory", Code::kResourceExhausted);
  }
  void unregister_range(MutableByteView range) override { cuda_.host_unregister(range.data()); }

  const Cuda& cuda_;
  int number_;
  Ranges ranges_;
  std::vector<std::uint64_t> own_;
};

}  // namespace

Result<int> cuda_device_count() {
  TIERCEL_ASSIGN_OR_RETURN(const Cuda* cuda, cuda_runtime());
  int count = 0;
  TIERCEL_RETURN_IF_ERROR(cuda->status(cuda->device_count(&count), "counting devices", Code::kUnavailable));
  if (count < 1) return error(Code::kUnavailable, "CUDA: there is no device");
  return count;
}

Result<std::unique_ptr<CudaDevice>> open_cuda_device(int number) {
  TIERCEL_ASSIGN_OR_RETURN(const int count, cuda_device_count());
  if (number < 0 || number >= count)
    return error(Code::kInvalidArgument,
                 fmt::format("CUDA device {}: there are devices 0 to {}", number, count - 1));
  TIERCEL_ASSIGN_OR_RETURN(const Cuda* cuda, cuda_runtime());
  return std::make_unique<LoadedCudaDevice>(*cuda, number);
}

#else

Result<int> cuda_device_count() {
  return error(Code::kUnsupported,
               "this was built without CUDA: build where cuda_runtime_api.h is, with TIERCEL_CUDA=ON");
}

Result<std::unique_ptr<CudaDevice>> open_cuda_device(int) {
  TIERCEL_RETURN_IF_ERROR(cuda_device_count());
  return error(Code::kInternal, "a build without CUDA found a CUDA device");
}

#endif

}  // namespace tiercel
