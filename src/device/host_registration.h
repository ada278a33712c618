// Host memory made known to a device, so that its own copy engines reach it: pinned. Registered in chunks,
// since drivers refuse very long ranges, and all of it or nothing.
//
// Threads: one thread registers; a registration is dropped by any one.
#pragma once

#include <cstdint>
#include <vector>

#include "base/bytes.h"
#include "base/status.h"
#include "memory/registered_ranges.h"  // HostRegistrar

namespace tiercel {

struct RegistrationChunks {
  // Longest range; drivers keep bookkeeping for each of its pages and refuse ranges of hundreds of GiB.
  std::uint64_t most_bytes = std::uint64_t{64} << 30;
  // Borders between ranges stand at multiples of it from the first byte on: bytes of a page of the pool, so
  // that no page lies in two ranges.
  std::uint64_t granularity = 1;
};

class HostRegistration final {
 public:
  HostRegistration() = default;  // of nothing
  HostRegistration(HostRegistration&& other) noexcept;
  HostRegistration& operator=(HostRegistration&& other) noexcept;
  ~HostRegistration();  // unregisters each range, the last first

  // Every byte is registered; when a range fails those before it are unregistered. `registrar` must outlive
  // the registration. Errors: invalid_argument when granularity is 0 or a range that it allows is longer than
  // most_bytes; what the registrar says, with the range. Cost: the driver's, about 10 ms a GiB on small
  // pages.
  static Result<HostRegistration> make(HostRegistrar& registrar, MutableByteView bytes,
                                       RegistrationChunks chunks = {});

  const std::vector<MutableByteView>& ranges() const { return ranges_; }

 private:
  void drop();
  HostRegistrar* registrar_ = nullptr;
  std::vector<MutableByteView> ranges_;
};

}  // namespace tiercel
