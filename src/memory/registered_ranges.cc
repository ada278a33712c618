#include "memory/registered_ranges.h"

#include <utility>

#include <fmt/format.h>

#include "base/sizes.h"

namespace tiercel {

RegisteredRanges::RegisteredRanges(RegisteredRanges&& other) noexcept
    : registrar_(std::exchange(other.registrar_, nullptr)), ranges_(std::exchange(other.ranges_, {})) {}

RegisteredRanges& RegisteredRanges::operator=(RegisteredRanges&& other) noexcept {
  RegisteredRanges now(std::move(other));
  std::swap(registrar_, now.registrar_);
  std::swap(ranges_, now.ranges_);
  return *this;
}

RegisteredRanges::~RegisteredRanges() { end(); }

void RegisteredRanges::end() {
  for (; !ranges_.empty(); ranges_.pop_back()) registrar_->unregister_range(ranges_.back());
}

Result<RegisteredRanges> RegisteredRanges::make(HostRegistrar& registrar,
                                                const std::vector<MutableByteView>& ranges) {
  RegisteredRanges made;
  made.registrar_ = &registrar;
  const std::size_t count = ranges.size();
  for (const MutableByteView range : ranges) {
    if (const Status status = registrar.register_range(range); !status.ok())
      return error(status.code, fmt::format("registering range {} of {} ({}): {}", made.ranges_.size() + 1,
                                            count, format_size(range.size()), status.message));
    made.ranges_.push_back(range);
  }
  return made;
}

}  // namespace tiercel
