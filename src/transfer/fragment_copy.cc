#include "transfer/fragment_copy.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

#include "base/check.h"
#include "base/crc32c.h"

namespace tiercel {
namespace {

constexpr std::size_t kMaxLoops = std::tuple_size_v<decltype(CopyNest::loops)>;

// Loops and run of a nest, as they are walked: those that repeat nothing left out, and what is dense inside
// another merged.
struct Walk {
  std::array<CopyLoop, kMaxLoops> loops;  // the outermost first; unused ones repeat once and stand first
  std::uint64_t length = 0;
};

Walk walk_of(const CopyNest& nest, PlanSide order) {
  const auto step = [order](const CopyLoop& loop) {
    return order == PlanSide::kSource ? loop.source_step : loop.target_step;
  };
  std::vector<CopyLoop> loops(nest.loops.begin(), nest.loops.begin() + nest.loop_count);
  std::erase_if(loops, [](const CopyLoop& loop) { return loop.count == 1; });
  std::ranges::stable_sort(loops, [&](const CopyLoop& a, const CopyLoop& b) { return step(a) > step(b); });
  Walk walk;
  walk.length = nest.length;
  while (!loops.empty() && loops.back().source_step == walk.length &&
         loops.back().target_step == walk.length) {
    walk.length *= loops.back().count;
    loops.pop_back();
  }
  std::ranges::copy(loops, walk.loops.end() - static_cast<std::ptrdiff_t>(loops.size()));
  return walk;
}

// Where granules begin on one side.
class GranuleOffsets final {
 public:
  GranuleOffsets(const CopySide& side, std::uint64_t per_page) : side_(side), per_page_(per_page) {}
  std::uint64_t operator()(std::uint64_t granule) const {
    if (per_page_ == 1) return side_.offset + granule * side_.page;
    return side_.offset + granule / per_page_ * side_.page + granule % per_page_ * side_.granule;
  }

 private:
  CopySide side_;
  std::uint64_t per_page_;
};

// Calls run(source offset, target offset) for each run of one granule, in the walk's order.
template <typename Run>
void for_runs(const Walk& walk, std::uint64_t source, std::uint64_t target, const Run& run) {
  const auto& [a, b, c, d] = walk.loops;
  for (std::uint64_t i = 0; i < a.count; ++i)
    for (std::uint64_t j = 0; j < b.count; ++j)
      for (std::uint64_t k = 0; k < c.count; ++k) {
        std::uint64_t from = source + i * a.source_step + j * b.source_step + k * c.source_step;
        std::uint64_t to = target + i * a.target_step + j * b.target_step + k * c.target_step;
        for (std::uint64_t l = 0; l < d.count; ++l, from += d.source_step, to += d.target_step) run(from, to);
      }
}

template <typename Run>
void for_all_runs(const CopyPlan& plan, const CopyNest& nest, const Walk& walk, GranuleLists granules,
                  const Run& run) {
  TIERCEL_CHECK(granules.source.size() == granules.target.size());
  const GranuleOffsets source(nest.source, plan.source_per_page);
  const GranuleOffsets target(nest.target, plan.target_per_page);
  for (std::size_t i = 0; i < granules.source.size(); ++i)
    for_runs(walk, source(granules.source[i]), target(granules.target[i]),
             [&](std::uint64_t from, std::uint64_t to) { run(i, from, to); });
}

// A run on its way.
struct Piece {
  std::byte* to = nullptr;
  const std::byte* from = nullptr;
  std::size_t length = 0;
  std::size_t owner = 0;  // pieces of different owners are not merged
};

// Pieces wait here until enough others stand behind them: each is copied while the one that came last is
// asked for. Long runs are cut, so that what was asked for is still near when its turn comes.
template <typename Copy>
class Pipeline final {
 public:
  explicit Pipeline(const Copy& copy) : copy_(copy) {}
  void push(Piece piece) {
    if (open_.length != 0) {
      if (open_.from + open_.length == piece.from && open_.to + open_.length == piece.to &&
          open_.owner == piece.owner && open_.length + piece.length <= kLongest) {
        open_.length += piece.length;
        return;
      }
      enter(open_);
    }
    for (; piece.length > kLongest; piece.to += kLongest, piece.from += kLongest, piece.length -= kLongest)
      enter({piece.to, piece.from, kLongest, piece.owner});
    open_ = piece;
  }
  void finish() {
    if (open_.length != 0) enter(open_);
    while (count_ > 0) copy_first({});
  }

 private:
  static constexpr std::size_t kLongest = 32 << 10;
  static constexpr std::size_t kAhead = 6 << 10;  // bytes that wait behind the one that is copied
  static constexpr std::size_t kMost = 16;        // pieces

  void enter(const Piece& piece) {
    ring_[(first_ + count_) % kMost] = piece;
    ++count_;
    bytes_ += piece.length;
    ByteView next(piece.from, piece.length);
    while (count_ > 1 && (count_ == kMost || bytes_ - ring_[first_].length >= kAhead)) {
      copy_first(next);
      next = {};
    }
  }
  void copy_first(ByteView next) {
    const Piece& piece = ring_[first_];
    copy_(piece, next);
    bytes_ -= piece.length;
    first_ = (first_ + 1) % kMost;
    --count_;
  }

  Copy copy_;
  Piece open_;  // may still grow
  std::array<Piece, kMost> ring_;
  std::size_t first_ = 0, count_ = 0, bytes_ = 0;
};

// Runs so short that each is a few instructions: elements of transposed tensors.
constexpr std::uint64_t kTiny = 64;

template <std::size_t kLength>
void copy_elements(const CopyPlan& plan, const CopyNest& nest, const Walk& walk, NestMemory memory,
                   GranuleLists granules) {
  for_all_runs(plan, nest, walk, granules, [&](std::size_t, std::uint64_t from, std::uint64_t to) {
    std::memcpy(memory.target + to, memory.source + from, kLength != 0 ? kLength : walk.length);
  });
}

void copy_tiny(const CopyPlan& plan, const CopyNest& nest, const Walk& walk, NestMemory memory,
               GranuleLists granules) {
  switch (walk.length) {
    case 1:
      return copy_elements<1>(plan, nest, walk, memory, granules);
    case 2:
      return copy_elements<2>(plan, nest, walk, memory, granules);
    case 4:
      return copy_elements<4>(plan, nest, walk, memory, granules);
    case 8:
      return copy_elements<8>(plan, nest, walk, memory, granules);
    case 16:
      return copy_elements<16>(plan, nest, walk, memory, granules);
    default:
      return copy_elements<0>(plan, nest, walk, memory, granules);
  }
}

// Elements are summed in strips, since a sum costs more than an element.
void copy_tiny_summed(const CopyPlan& plan, const CopyNest& nest, const Walk& walk, NestMemory memory,
                      GranuleLists granules, std::span<std::uint32_t> sums) {
  std::array<std::byte, 4096> strip;
  std::size_t used = 0;
  std::size_t owner = 0;
  const auto sum_strip = [&] {
    sums[owner] = crc32c(ByteView(strip.data(), used), sums[owner]);
    used = 0;
  };
  for_all_runs(plan, nest, walk, granules, [&](std::size_t granule, std::uint64_t from, std::uint64_t to) {
    if (used != 0 && (granule != owner || used + walk.length > strip.size())) sum_strip();
    owner = granule;
    std::memcpy(strip.data() + used, memory.source + from, walk.length);
    std::memcpy(memory.target + to, strip.data() + used, walk.length);
    used += walk.length;
  });
  if (used != 0) sum_strip();
}

template <typename Copy>
void copy_pieces(const CopyPlan& plan, const CopyNest& nest, const Walk& walk, NestMemory memory,
                 GranuleLists granules, bool apart, const Copy& copy) {
  Pipeline<Copy> pipeline(copy);
  for_all_runs(plan, nest, walk, granules, [&](std::size_t granule, std::uint64_t from, std::uint64_t to) {
    pipeline.push({memory.target + to, memory.source + from, walk.length, apart ? granule : 0});
  });
  pipeline.finish();
}

}  // namespace

void detail::copy_fragments_by(CopyBody body, const CopyPlan& plan, const CopyNest& nest, NestMemory memory,
                               GranuleLists granules, WritePath path) {
  const Walk walk = walk_of(nest, PlanSide::kTarget);
  if (walk.length < kTiny) return copy_tiny(plan, nest, walk, memory, granules);
  copy_pieces(plan, nest, walk, memory, granules, false, [=](const Piece& piece, ByteView next) {
    copy_by(body, piece.to, ByteView(piece.from, piece.length), path, next);
  });
}

void copy_fragments(const CopyPlan& plan, const CopyNest& nest, NestMemory memory, GranuleLists granules,
                    WritePath path) {
  detail::copy_fragments_by(detail::best_copy_body(), plan, nest, memory, granules, path);
}

void copy_fragments(const CopyPlan& plan, const CopyNest& nest, NestMemory memory, GranuleLists granules,
                    WritePath path, PlanSide order, std::span<std::uint32_t> sums) {
  TIERCEL_CHECK(sums.size() == granules.source.size());
  const Walk walk = walk_of(nest, order);
  if (walk.length < kTiny) return copy_tiny_summed(plan, nest, walk, memory, granules, sums);
  copy_pieces(plan, nest, walk, memory, granules, true, [=](const Piece& piece, ByteView next) {
    const ByteView from(piece.from, piece.length);
    sums[piece.owner] = next.empty() ? crc32c_copy(piece.to, from, sums[piece.owner], path)
                                     : crc32c_copy(piece.to, from, sums[piece.owner], path, next);
  });
}

void sum_fragments(const CopyPlan& plan, const CopyNest& nest, PlanSide side, const std::byte* memory,
                   GranuleLists granules, PlanSide order, std::span<std::uint32_t> sums) {
  TIERCEL_CHECK(sums.size() == granules.source.size());
  const Walk walk = walk_of(nest, order);
  ByteView open;  // what lies together is summed as one
  std::size_t owner = 0;
  const auto sum_open = [&] {
    if (!open.empty()) sums[owner] = crc32c(open, sums[owner]);
  };
  for_all_runs(plan, nest, walk, granules, [&](std::size_t granule, std::uint64_t from, std::uint64_t to) {
    const std::byte* at = memory + (side == PlanSide::kSource ? from : to);
    if (granule == owner && open.data() + open.size() == at) {
      open = ByteView(open.data(), open.size() + walk.length);
      return;
    }
    sum_open();
    open = ByteView(at, walk.length);
    owner = granule;
  });
  sum_open();
}

void append_fragments(const CopyPlan& plan, const CopyNest& nest, GranuleLists granules,
                      std::vector<Fragment>& fragments) {
  const Walk walk = walk_of(nest, PlanSide::kTarget);
  const std::size_t first = fragments.size();
  for_all_runs(plan, nest, walk, granules, [&](std::size_t, std::uint64_t from, std::uint64_t to) {
    if (fragments.size() > first) {
      Fragment& last = fragments.back();
      if (last.source_offset + last.length == from && last.target_offset + last.length == to) {
        last.length += walk.length;
        return;
      }
    }
    fragments.push_back({from, to, walk.length});
  });
}

}  // namespace tiercel
