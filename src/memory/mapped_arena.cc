#include "memory/mapped_arena.h"

#include <utility>

#include "base/check.h"

namespace tiercel {

static_assert(kArenaSectionAlignment == kHugePageBytes, "a layout's total is what a mapping has");

MappedArena::MappedArena(Mapping mapping, const ArenaHeader& header, const ArenaLayout& layout)
    : mapping_(std::move(mapping)), header_(header), layout_(layout) {
  if (mapping_.access() == MappingAccess::kReadWrite) extents_.emplace(bytes(layout_.extents));
}

Result<MappedArena> MappedArena::open(const MappedArenaOptions& options, const MemoryLimits& limits,
                                      const MappingCalls& calls) {
  if (options.epoch == 0) return error(Code::kInvalidArgument, "arena: epoch: wanted a random number, got 0");
  TIERCEL_ASSIGN_OR_RETURN(const ArenaLayout layout, arena_layout(options.sizes));
  TIERCEL_ASSIGN_OR_RETURN(Mapping mapping,
                           Mapping::open({options.kind, layout.total_bytes, options.touch}, limits, calls));
  const ArenaHeader header{options.epoch, options.sizes};
  encode_arena_header(header, mapping.bytes().first(kArenaHeaderBytes));
  return MappedArena(std::move(mapping), header, layout);
}

Result<MappedArena> MappedArena::attach(int fd, const AttachOptions& options, const MappingCalls& calls) {
  TIERCEL_ASSIGN_OR_RETURN(Mapping mapping, Mapping::attach(fd, options, calls));
  TIERCEL_ASSIGN_OR_RETURN(const ArenaHeader header,
                           decode_arena_header(mapping.view(), mapping.size_bytes()));
  TIERCEL_ASSIGN_OR_RETURN(const ArenaLayout layout, arena_layout(header.sizes));
  return MappedArena(std::move(mapping), header, layout);
}

ByteView MappedArena::view(const ArenaSection& section) const {
  const std::uint64_t offset = section.offset.value();
  TIERCEL_CHECK(offset <= mapping_.size_bytes() && section.bytes <= mapping_.size_bytes() - offset);
  return mapping_.view().subspan(offset, section.bytes);
}

MutableByteView MappedArena::bytes(const ArenaSection& section) const {
  const std::uint64_t offset = section.offset.value();
  TIERCEL_CHECK(offset <= mapping_.size_bytes() && section.bytes <= mapping_.size_bytes() - offset);
  return mapping_.bytes().subspan(offset, section.bytes);
}

std::optional<ByteView> MappedArena::read(const ArenaSpan& span) const {
  const ByteView all = view(layout_.extents);
  if (span.offset > all.size() || span.length > all.size() - span.offset) return std::nullopt;
  return all.subspan(span.offset, span.length);
}

Arena& MappedArena::extents() {
  TIERCEL_CHECK(extents_.has_value());
  return *extents_;
}

}  // namespace tiercel
