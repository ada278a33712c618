// How one process of disk_kills lives and dies: a pure function of seed, lane and round, so that parent and
// victim agree without a word and any round can be planned again.
//
// Threads: pure functions and plain values.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "disk/disk_options.h"
#include "node/options.h"
#include "os/block_open.h"

namespace tiercel::kills {

inline constexpr std::uint64_t kRoundsPerFile = 40;  // then a new one is made

// What an operation of the drive is for, by where it goes.
enum class Target : std::uint8_t { kSuperblock, kImage, kHeader, kSegment, kFooter, kRead, kFlush };
enum class Moment : std::uint8_t { kBefore, kHalf, kAfter };
struct Point {
  Target target;
  Moment moment;
  std::uint32_t nth_max;  // at which of its operations: 1 to this one
};
inline constexpr std::array<Point, 19> kPoints = {{
    {Target::kSuperblock, Moment::kBefore, 3}, {Target::kSuperblock, Moment::kHalf, 3},
    {Target::kSuperblock, Moment::kAfter, 3},  {Target::kImage, Moment::kBefore, 4},
    {Target::kImage, Moment::kHalf, 4},        {Target::kImage, Moment::kAfter, 4},
    {Target::kHeader, Moment::kBefore, 3},     {Target::kHeader, Moment::kHalf, 3},
    {Target::kHeader, Moment::kAfter, 3},      {Target::kSegment, Moment::kBefore, 24},
    {Target::kSegment, Moment::kHalf, 24},     {Target::kSegment, Moment::kAfter, 24},
    {Target::kFooter, Moment::kBefore, 2},     {Target::kFooter, Moment::kHalf, 2},
    {Target::kFooter, Moment::kAfter, 2},      {Target::kRead, Moment::kBefore, 200},
    {Target::kRead, Moment::kAfter, 200},      {Target::kFlush, Moment::kBefore, 12},
    {Target::kFlush, Moment::kAfter, 12},
}};
// Further ways to die, counted beside the points: at a moment chosen by the parent; by the process itself
// (power cut: with part of what was not flushed on the drive); at the n-th operation, whatever it is.
enum : std::size_t { kKilledByParent = kPoints.size(), kKilledByItself, kKilledAtOperation, kPointCount };
std::string point_name(std::size_t point);  // "footer, half of it written"

struct KillPlan {
  std::optional<std::size_t> point;  // of kPoints
  std::uint64_t nth = 0;             // operation of that point, or of all; 0: not by operations
  // By time, from `from_work` or else from the start of the process. Always there: who is not killed by
  // operations in time is killed all the same.
  Duration after{0};
  bool from_work = false;
  bool by_parent = true;
};

struct Plan {
  std::uint64_t seed = 0;  // of everything that is drawn at random in this process
  bool power_cut = false;  // what was not flushed may be lost, in any order, in parts
  BlockEngine engine = BlockEngine::kBest;
  bool direct = true;
  bool registered = false;  // the arena is made known to the engine
  std::uint64_t file_bytes = 0;
  DiskLogOptions log;
  DiskTierOptions tier;
  KillPlan kill;
};

// Plans of one file share its size and geometry.
Plan make_plan(std::uint64_t seed, std::uint32_t lane, std::uint64_t file, std::uint64_t round);
std::string describe(const Plan& plan);

}  // namespace tiercel::kills
