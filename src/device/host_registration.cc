#include "device/host_registration.h"

#include <algorithm>
#include <numeric>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "base/checked.h"

namespace tiercel {

namespace {

// Drivers lock whole pages of the machine: two ranges must not share one.
constexpr std::uint64_t kMachinePage = 4096;

std::optional<std::uint64_t> chunk_bytes(const RegistrationChunks& chunks) {
  if (chunks.granularity == 0) return std::nullopt;
  const auto step =
      checked_mul(chunks.granularity / std::gcd(chunks.granularity, kMachinePage), kMachinePage);
  if (!step || *step > chunks.most_bytes) return std::nullopt;
  return chunks.most_bytes / *step * *step;
}

}  // namespace

HostRegistration::HostRegistration(HostRegistration&& other) noexcept
    : registrar_(std::exchange(other.registrar_, nullptr)), ranges_(std::exchange(other.ranges_, {})) {}

HostRegistration& HostRegistration::operator=(HostRegistration&& other) noexcept {
  if (this == &other) return *this;
  drop();
  registrar_ = std::exchange(other.registrar_, nullptr);
  ranges_ = std::exchange(other.ranges_, {});
  return *this;
}

HostRegistration::~HostRegistration() { drop(); }

void HostRegistration::drop() {
  for (; !ranges_.empty(); ranges_.pop_back()) registrar_->unregister_range(ranges_.back());
}

Result<HostRegistration> HostRegistration::make(HostRegistrar& registrar, MutableByteView bytes,
                                                RegistrationChunks chunks) {
  const auto longest = chunk_bytes(chunks);
  if (chunks.granularity == 0 || (!longest && bytes.size() > chunks.most_bytes))
    return error(Code::kInvalidArgument,
                 fmt::format("registration of {} bytes: ranges of at most {} bytes cannot end at multiples "
                             "of {} bytes and of {}; allow longer ranges",
                             bytes.size(), chunks.most_bytes, chunks.granularity, kMachinePage));
  HostRegistration registration;
  registration.registrar_ = &registrar;
  while (!bytes.empty()) {
    const MutableByteView range = bytes.first(std::min(bytes.size(), longest.value_or(bytes.size())));
    if (Status status = registrar.register_range(range); !status.ok())
      return error(status.code, fmt::format("registration of range {} ({} bytes): {}",
                                            registration.ranges_.size(), range.size(), status.message));
    registration.ranges_.push_back(range);
    bytes = bytes.subspan(range.size());
  }
  return registration;
}

}  // namespace tiercel
