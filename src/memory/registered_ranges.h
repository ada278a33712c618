// Memory made known to a device (or to whoever copies past the processor), range by range, and forgotten
// again.
//
// Threads: one thread makes, moves and ends a registration.
#pragma once

#include <cstdint>
#include <vector>

#include "base/bytes.h"
#include "base/status.h"

namespace tiercel {

class HostRegistrar {
 public:
  virtual ~HostRegistrar() = default;
  // The range stays where it is and the device may copy to and from it. It begins and ends at 4 KiB, and does
  // not overlap another one that is registered. Errors: why not; then nothing of it is registered.
  virtual Status register_range(MutableByteView range) = 0;
  // Exactly a range that was registered. Whoever copies has come to rest.
  virtual void unregister_range(MutableByteView range) = 0;
};

class RegisteredRanges final {
 public:
  RegisteredRanges() = default;  // of nothing
  RegisteredRanges(RegisteredRanges&& other) noexcept;
  RegisteredRanges& operator=(RegisteredRanges&& other) noexcept;
  ~RegisteredRanges();

  // All ranges are registered, in order; when one is refused, those before it are unregistered, last first.
  // Errors: the registrar's, with the range's number. Lives: the registrar and the memory must outlive it.
  static Result<RegisteredRanges> make(HostRegistrar& registrar, const std::vector<MutableByteView>& ranges);

  const std::vector<MutableByteView>& ranges() const { return ranges_; }

 private:
  void end();

  HostRegistrar* registrar_ = nullptr;
  std::vector<MutableByteView> ranges_;
};

}  // namespace tiercel
