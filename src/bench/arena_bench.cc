// Opening an arena, every byte of it claimed and touched, against memset of as many bytes; and mapping it
// once more.
#include <cstring>
#include <optional>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "base/sizes.h"
#include "bench/benches.h"
#include "memory/mapped_arena.h"

namespace tiercel {
namespace {

struct Way {
  std::string_view name;
  MappingKind kind;
  unsigned threads;  // 0: one for each core
};
constexpr Way kWays[] = {{"private, 1 thread", MappingKind::kAnonymous, 1},
                         {"shared, 1 thread", MappingKind::kShared, 1},
                         {"shared, every core", MappingKind::kShared, 0}};

MappedArenaOptions options_of(const Way& way, std::uint64_t bytes) {
  constexpr std::uint64_t kExtentBytes = 2ULL << 20;
  return {.kind = way.kind,
          .sizes = {.extent_bytes = kExtentBytes, .extents = bytes / kExtentBytes},
          .epoch = 1,
          .touch = {.threads = way.threads}};
}

// The bytes of `memory` written once more, all there already. Each time others: some processors do not write
// zeros over zeros.
Subject memset_of(MutableByteView memory) {
  return {"memset",
          [memory, value = 0](Samples&) mutable {
            std::memset(memory.data(), ++value & 0xFF, memory.size());
            keep(memory.data());
          },
          {}};
}

// Which better kinds of pages could not be had; the whole reasons are in Mapping::pages().
std::string declined_by(const Mapping& mapping) {
  std::string rungs;
  for (const std::string& each : mapping.pages().declined)
    rungs += (rungs.empty() ? "not to be had: " : ", ") + each.substr(0, each.find(':'));
  return rungs;
}

Status open_lines(BenchRun& run, const Way& way, std::uint64_t bytes, MutableByteView memory) {
  std::optional<MappedArena> arena;
  Status status;
  const Subject subjects[] = {{"open",
                               [&](Samples&) {
                                 Result<MappedArena> opened = MappedArena::open(options_of(way, bytes));
                                 if (opened)
                                   arena.emplace(std::move(*opened));
                                 else
                                   status = opened.error();
                               },
                               [&] { arena.reset(); }},
                              memset_of(memory)};
  const Comparison result = run.compare(fmt::format("opening an arena, {}", way.name), 1, subjects,
                                        way.threads == 1 ? BenchClock::kThread : BenchClock::kWall);
  if (!status.ok() || !arena) return status;
  BenchLine line = line_of(result, fmt::format("open {}, {}", format_size(bytes), way.name), 0, 1,
                           BenchUnit::kGigabytes, "GB/s", arena->layout().total_bytes);
  line.limit_name = "memset";
  line.page_kind = page_kind_name(arena->mapping().pages().kind);
  line.note = declined_by(arena->mapping());
  run.add(std::move(line));
  return {};
}

// What a client does that maps the arena of a node.
Status attach_line(BenchRun& run, std::uint64_t bytes, MutableByteView memory) {
  auto owner = MappedArena::open(options_of({"", MappingKind::kShared, 0}, bytes));
  if (!owner) return owner.error();
  const AttachOptions options{.bytes = owner->layout().total_bytes, .touch = {.threads = 1}};
  std::optional<MappedArena> second;
  Status status;
  const Subject subjects[] = {{"attach",
                               [&](Samples&) {
                                 Result<MappedArena> attached =
                                     MappedArena::attach(owner->mapping().fd(), options);
                                 if (attached)
                                   second.emplace(std::move(*attached));
                                 else
                                   status = attached.error();
                               },
                               [&] { second.reset(); }},
                              memset_of(memory)};
  const Comparison result = run.compare("attaching an arena", 1, subjects, BenchClock::kThread);
  if (!status.ok() || !second) return status;
  BenchLine line = line_of(result, fmt::format("attach {} once more", format_size(bytes)), 0, 1,
                           BenchUnit::kGigabytes, "GB/s", options.bytes);
  line.limit_name = "memset";
  line.page_kind = page_kind_name(second->mapping().pages().kind);
  line.target = "8 GiB < 20 ms";
  const double per_byte = result.nanoseconds(0) / static_cast<double>(options.bytes);
  line.note = fmt::format("8 GiB at this rate: {:.1f} ms", per_byte * static_cast<double>(8ULL << 30) / 1e6);
  run.add(std::move(line));
  return {};
}

}  // namespace

Status arena_bench(BenchRun& run) {
  const std::uint64_t bytes = run.size(512ULL << 20, 4ULL << 20);
  const Result<Mapping> memory = Mapping::open({MappingKind::kAnonymous, bytes, {}});
  if (!memory) return memory.error();
  for (const Way& way : kWays)
    if (Status status = open_lines(run, way, bytes, memory->bytes()); !status.ok()) return status;
  return attach_line(run, bytes, memory->bytes());
}

}  // namespace tiercel
