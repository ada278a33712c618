#include "device/device.h"

#include <algorithm>

#include <fmt/format.h>

namespace tiercel {

namespace {
Status check_range(std::string_view what, std::uint64_t address, std::uint64_t length,
                   std::uint64_t size_bytes) {
  if (length <= size_bytes && address <= size_bytes - length) return {};
  return {Code::kIoError, fmt::format("device {} of {} bytes at address {} is outside its {} bytes", what,
                                      length, address, size_bytes)};
}
}  // namespace

HostDevice::HostDevice(std::uint64_t bytes) : bytes_(bytes) {}

Status HostDevice::read(std::uint64_t address, MutableByteView into) {
  if (Status status = check_range("read", address, into.size(), bytes_.size()); !status.ok()) return status;
  const ByteView from = ByteView(bytes_).subspan(address, into.size());
  std::copy(from.begin(), from.end(), into.begin());
  return {};
}

Status HostDevice::write(std::uint64_t address, ByteView from) {
  if (Status status = check_range("write", address, from.size(), bytes_.size()); !status.ok()) return status;
  std::copy(from.begin(), from.end(), MutableByteView(bytes_).subspan(address).begin());
  return {};
}

}  // namespace tiercel
