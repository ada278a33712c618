#include "index/compact_layout.h"

#include <algorithm>

#include <fmt/format.h>

#include "base/checked.h"

namespace tiercel::compact {
namespace {

constexpr std::uint64_t kNumbersMax = std::uint64_t{1} << 31;  // page numbers, one bit left for a tag
constexpr std::uint64_t kLine = 64;

}  // namespace

Result<Plan> plan_image(const Sizes& sizes) {
  const auto bad = [](const char* what, std::uint64_t got, std::uint64_t least, std::uint64_t most) {
    return tl::unexpected(Status{Code::kInvalidArgument, fmt::format("page index: {} is {}; wanted {} to {}",
                                                                     what, got, least, most)});
  };
  if (sizes.pages_max == 0 || sizes.pages_max > kNumbersMax)
    return bad("pages_max", sizes.pages_max, 1, kNumbersMax);
  if (sizes.strips == 0 || sizes.strips >= kNumbersMax / kCells)
    return bad("strips", sizes.strips, 1, kNumbersMax / kCells - 1);
  if (sizes.rows >= kRowBit) return bad("rows", sizes.rows, 0, kRowBit - 1);
  if (sizes.singles > kSinglesMax) return bad("singles", sizes.singles, 0, kSinglesMax);
  Plan plan;
  // Nine of ten entries used when full: with two buckets to choose from, nearly all find a place.
  plan.bucket_count = std::max<std::uint64_t>(2, ceil_div(sizes.pages_max * 10, std::uint64_t{kEntries} * 9));
  plan.number_bits = static_cast<std::uint32_t>(std::bit_width(sizes.strips * kCells));
  const auto after = [](std::uint64_t offset, std::uint64_t bytes) {
    return ceil_div(offset + bytes, kLine) * kLine;
  };
  plan.marks = after(0, sizeof(Header));
  plan.buckets = after(plan.marks, kMarks * sizeof(Word));
  plan.strips = after(plan.buckets, plan.bucket_count * sizeof(Bucket));
  plan.rows = after(plan.strips, sizes.strips * sizeof(Strip));
  plan.singles = after(plan.rows, sizes.rows * sizeof(Row));
  plan.bytes = after(plan.singles, sizes.singles * sizeof(Single));
  return plan;
}

}  // namespace tiercel::compact
