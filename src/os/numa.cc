#include "os/numa.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <map>
#include <system_error>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace tiercel {
namespace {

constexpr std::uint64_t kPagesMax = 1ULL << 18;
constexpr std::size_t kBatch = 1024;

tl::unexpected<Status> bad(std::string message) { return error(Code::kInvalidArgument, std::move(message)); }

}  // namespace

Result<NumaPlacement> numa_from_text(std::string_view text, std::uint32_t shard, std::uint32_t shards) {
  if (text == "system") return NumaPlacement{};
  if (text == "interleave") return NumaPlacement{.mode = NumaMode::kInterleave};
  if (text == "per_shard") return NumaPlacement{NumaMode::kPerShard, 0, shard, shards};
  constexpr std::string_view kBindWord = "bind ";
  if (text.starts_with(kBindWord)) {
    const std::string_view number = text.substr(kBindWord.size());
    NumaPlacement bind{.mode = NumaMode::kBind};
    const auto read = std::from_chars(number.data(), number.data() + number.size(), bind.node);
    if (read.ec == std::errc{} && read.ptr == number.data() + number.size()) return bind;
  }
  return bad(fmt::format("numa: wanted 'system', 'interleave', 'bind N' or 'per_shard', got '{}'", text));
}

std::string numa_text(const NumaPlacement& placement) {
  switch (placement.mode) {
    case NumaMode::kSystem:
      return "system";
    case NumaMode::kInterleave:
      return "interleave";
    case NumaMode::kBind:
      return fmt::format("bind {}", placement.node);
    case NumaMode::kPerShard:
      return fmt::format("per_shard {} of {}", placement.shard, placement.shards);
  }
  return "unknown";
}

Result<std::vector<std::uint32_t>> nodes_of(const NumaPlacement& placement,
                                            std::span<const std::uint32_t> available) {
  if (available.empty())
    return bad(fmt::format("numa: {}: wanted a node that has memory, got none", numa_text(placement)));
  switch (placement.mode) {
    case NumaMode::kSystem:
    case NumaMode::kInterleave:
      break;
    case NumaMode::kBind:
      if (std::find(available.begin(), available.end(), placement.node) == available.end())
        return bad(fmt::format("numa: bind: wanted one of the nodes {} that this process may use, got {}",
                               fmt::join(available, ","), placement.node));
      return std::vector{placement.node};
    case NumaMode::kPerShard: {
      if (placement.shard >= placement.shards)
        return bad(fmt::format("numa: per_shard: wanted a shard below {}, got {}", placement.shards,
                               placement.shard));
      const std::uint64_t at = std::uint64_t{placement.shard} * available.size() / placement.shards;
      return std::vector{available[at]};
    }
  }
  return std::vector<std::uint32_t>(available.begin(), available.end());
}

std::string numa_report_text(const NumaReport& report) {
  std::string text = numa_text(report.wanted);
  if (report.wanted.mode != NumaMode::kSystem) text += fmt::format(" over {}", fmt::join(report.nodes, ","));
  if (!report.declined.empty()) return fmt::format("{}: not verified ({})", text, report.declined);
  for (const char* between = ": "; const NumaReport::Share& share : report.found) {
    text += fmt::format("{}{} pages on {}", between, share.pages, share.node);
    between = ", ";
  }
  if (report.misplaced != 0)
    text += fmt::format("; {} of {} elsewhere than wanted", report.misplaced, report.looked_at);
  if (report.unanswered != 0) text += fmt::format("; {} of {} unknown", report.unanswered, report.looked_at);
  return text;
}

NumaReport verify_placement(ByteView bytes, const NumaPlacement& placement,
                            std::span<const std::uint32_t> nodes, const MappingCalls& calls) {
  NumaReport report;
  report.wanted = placement;
  report.nodes.assign(nodes.begin(), nodes.end());
  const std::uint64_t pages = bytes.size() / kSmallPageBytes;
  const std::uint64_t step = pages <= kPagesMax ? 1 : (pages / kPagesMax) | 1;
  std::map<std::uint32_t, std::uint64_t> found;
  std::array<const std::byte*, kBatch> batch{};
  for (std::uint64_t page = 0; page < pages;) {
    std::size_t count = 0;
    for (; count < kBatch && page < pages; page += step)
      batch[count++] = bytes.data() + page * kSmallPageBytes;
    const auto answers = calls.page_nodes({batch.data(), count});
    if (!answers) {
      report.declined = std::generic_category().message(answers.error());
      return report;
    }
    report.looked_at += count;
    for (const int node : *answers) {
      if (node < 0) {
        ++report.unanswered;
        continue;
      }
      const auto at = static_cast<std::uint32_t>(node);
      ++found[at];
      if (std::find(nodes.begin(), nodes.end(), at) == nodes.end()) ++report.misplaced;
    }
  }
  for (const auto& [node, count] : found) report.found.push_back({node, count});
  return report;
}

}  // namespace tiercel
