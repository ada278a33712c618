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
}  // namespace

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
