// The arena that a node is opened with in production: one memory mapping (os/mapping.h) with a header, a
// section for the index, one for leases, and the extents. Another process that is given the file descriptor
// maps the same memory once more and finds the same sections.
//
// Threads: one thread opens, moves and closes it; a view's bytes are as thread-safe as any memory; extents()
// as memory/arena.h says.
#pragma once

#include <cstdint>
#include <optional>

#include "memory/arena.h"
#include "memory/arena_image.h"
#include "os/mapping.h"

namespace tiercel {

struct MappedArenaOptions {
  MappingKind kind = MappingKind::kShared;
  ArenaSizes sizes;
  std::uint64_t epoch = 0;  // random, not 0; see ArenaHeader
  TouchOptions touch;
};

class MappedArena final {
 public:
  // All sections are 0, claimed and present. Errors: invalid_argument for sizes without a layout or epoch 0;
  // what Mapping::open says.
  static Result<MappedArena> open(const MappedArenaOptions& options,
                                  const MemoryLimits& limits = MemoryLimits(),
                                  const MappingCalls& calls = LinuxMappingCalls());

  // The arena of another owner, who opened it with kind kShared. `options.bytes`: its layout's total_bytes,
  // as the owner said it. Errors: what Mapping::attach says of the file; unsupported for another layout
  // version; data_corrupt naming the field of the header that is wrong.
  static Result<MappedArena> attach(int fd, const AttachOptions& options,
                                    const MappingCalls& calls = LinuxMappingCalls());

  std::uint64_t epoch() const { return header_.epoch; }
  const ArenaSizes& sizes() const { return header_.sizes; }
  const ArenaLayout& layout() const { return layout_; }
  const Mapping& mapping() const { return mapping_; }

  // Requires: a section of layout().
  ByteView view(const ArenaSection& section) const;
  // Requires: the same, and write access.
  MutableByteView bytes(const ArenaSection& section) const;

  // A record's bytes by a span that came from somewhere else (shared memory, a message): nothing when it is
  // not wholly within the extents.
  std::optional<ByteView> read(const ArenaSpan& span) const;

  // The extents as a node wants them. Lives: as long as this object stays where it is. Requires: write
  // access.
  Arena& extents();

 private:
  MappedArena(Mapping mapping, const ArenaHeader& header, const ArenaLayout& layout);

  Mapping mapping_;
  ArenaHeader header_;
  ArenaLayout layout_;
  std::optional<ByteArena> extents_;  // with write access
};

}  // namespace tiercel
