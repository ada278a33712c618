#include "remote/exchange_space.h"

#include <iterator>

#include "base/check.h"
#include "base/checked.h"

namespace tiercel::remote {
namespace {

constexpr std::uint64_t kStep = 4096;

}  // namespace

ExchangeSpace::ExchangeSpace(std::uint64_t bytes) : bytes_(bytes / kStep * kStep) {
  if (bytes_ != 0) free_.emplace(0, bytes_);
}

std::optional<Area> ExchangeSpace::take(std::uint64_t length) {
  TIERCEL_CHECK(length != 0);
  if (length > bytes_) return std::nullopt;
  const std::uint64_t whole = ceil_div(length, kStep) * kStep;
  for (auto at = free_.begin(); at != free_.end(); ++at) {
    const auto [offset, free] = *at;
    if (free < whole) continue;
    free_.erase(at);
    if (free != whole) free_.emplace(offset + whole, free - whole);
    taken_.emplace(offset, whole);
    used_ += whole;
    return Area{offset, length};
  }
  return std::nullopt;
}

void ExchangeSpace::give_back(const Area& area) {
  const auto taken = taken_.find(area.offset);
  TIERCEL_CHECK(taken != taken_.end());
  auto [offset, length] = *taken;
  taken_.erase(taken);
  used_ -= length;
  const auto after = free_.lower_bound(offset);
  if (after != free_.end() && after->first == offset + length) {
    length += after->second;
    free_.erase(after);
  }
  const auto next = free_.lower_bound(offset);
  if (next != free_.begin()) {
    const auto before = std::prev(next);
    if (before->first + before->second == offset) {
      before->second += length;
      return;
    }
  }
  free_.emplace(offset, length);
}

}  // namespace tiercel::remote
