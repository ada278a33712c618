#include "device/device.h"

#include <algorithm>

#include <fmt/format.h>

namespace tiercel {

namespace {
bool in_range(std::uint64_t address, std::uint64_t length, std::uint64_t size_bytes) {
  return length <= size_bytes && address <= size_bytes - length;
}
Status check_range(std::string_view what, std::uint64_t address, std::uint64_t length,
                   std::uint64_t size_bytes) {
  if (in_range(address, length, size_bytes)) return {};
  return {Code::kIoError, fmt::format("device {} of {} bytes at address {} is outside its {} bytes", what,
                                      length, address, size_bytes)};
}

class EndedEvent final : public DeviceEvent {
 public:
  explicit EndedEvent(Status status) : status_(std::move(status)) {}
  Result<bool> done() override {
    if (!status_.ok()) return tl::unexpected(status_);
    return true;
  }
  Status wait() override { return status_; }

 private:
  Status status_;
};

// Each copy is over when submit() returns.
class ImmediateStream final : public DeviceStream {
 public:
  explicit ImmediateStream(Device& device) : device_(device) {}
  Status submit(CopyDirection direction, std::span<const DeviceCopy> copies) override {
    for (const DeviceCopy& copy : copies) {
      if (!status_.ok()) break;
      status_ = direction == CopyDirection::kToDevice
                    ? device_.write(copy.address, ByteView(copy.host, copy.length))
                    : device_.read(copy.address, MutableByteView(copy.host, copy.length));
    }
    return status_;
  }
  Result<std::unique_ptr<DeviceEvent>> record() override { return std::make_unique<EndedEvent>(status_); }
  Status follow(DeviceEvent& event) override { return event.wait(); }
  Status drain() override { return status_; }

 private:
  Device& device_;
  Status status_;
};
}  // namespace

Result<std::unique_ptr<DeviceStream>> Device::open_stream() {
  return std::make_unique<ImmediateStream>(*this);
}

HostDevice::HostDevice(std::uint64_t bytes) : own_(bytes), bytes_(own_) {}

Status HostDevice::read(std::uint64_t address, MutableByteView into) {
  if (Status status = check_range("read", address, into.size(), bytes_.size()); !status.ok()) return status;
  const ByteView from = ByteView(bytes_).subspan(address, into.size());
  std::copy(from.begin(), from.end(), into.begin());
  return {};
}

Status HostDevice::write(std::uint64_t address, ByteView from) {
  if (Status status = check_range("write", address, from.size(), bytes_.size()); !status.ok()) return status;
  std::copy(from.begin(), from.end(), bytes_.subspan(address).begin());
  return {};
}

MutableByteView HostDevice::host_view(std::uint64_t address, std::uint64_t length) {
  if (!in_range(address, length, bytes_.size())) return {};
  return bytes_.subspan(address, length);
}

}  // namespace tiercel
