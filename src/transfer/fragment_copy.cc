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
  std::uint64_t bytes() const {
    std::uint64_t product = length;
    for (const CopyLoop& loop : loops) product *= loop.count;
    return product;
  }
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
  if (a.count * b.count * c.count * d.count == 1) return run(source, target);
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

// Collects runs, merges neighbours, and hands them on in batches: copy(pieces, count, ahead) copies the first
// `count` and may ask for the others. Long runs are cut, so that what was asked for is still near when its
// turn comes.
template <typename Copy>
class Batch final {
 public:
  Batch(std::uint64_t run_length, const Copy& copy)
      : longest_(std::clamp<std::size_t>(8 * run_length, 4 << 10, 32 << 10)),
        ahead_(std::clamp<std::size_t>(kAhead / run_length + 1, 1, kMostAhead)),
        copy_(copy) {}
  void push(std::byte* to, const std::byte* from, std::size_t length, bool may_merge) {
    if (count_ != 0 && may_merge) {
      CopyPiece& last = pieces_[count_ - 1];
      if (last.from + last.length == from && last.to + last.length == to &&
          last.length + length <= longest_) {
        last.length += length;
        return;
      }
    }
    for (; length > longest_; to += longest_, from += longest_, length -= longest_) add({to, from, longest_});
    add({to, from, length});
  }
  void finish() {
    copy_(std::span(pieces_.data(), count_), count_, ahead_);
    count_ = 0;
  }

 private:
  static constexpr std::size_t kMost = 128;
  static constexpr std::size_t kMostAhead = 16;
  static constexpr std::size_t kAhead = 6 << 10;  // bytes; more where pieces are long

  void add(CopyPiece piece) {
    if (count_ == kMost) {
      copy_(std::span(pieces_.data(), count_), count_ - ahead_ - 1, ahead_);  // the last may still grow
      std::copy(pieces_.end() - static_cast<std::ptrdiff_t>(ahead_ + 1), pieces_.end(), pieces_.begin());
      count_ = ahead_ + 1;
    }
    pieces_[count_++] = piece;
  }

  std::size_t longest_;
  std::size_t ahead_;
  Copy copy_;
  std::size_t count_ = 0;
  std::array<CopyPiece, kMost> pieces_;
};

// Runs so short that each is a few instructions: elements of transposed tensors.
constexpr std::uint64_t kTiny = 64;

// Elements of which a row (the innermost loop) lies together in the target, and a column in the source: by
// way of a tile that stays near, so that lines are read and written whole.
template <std::size_t kLength>
void transpose(const CopyLoop& columns, const CopyLoop& rows, const std::byte* from, std::byte* to) {
  constexpr std::size_t kSide = 64 / kLength;  // elements
  std::array<std::byte, 64 * kSide> tile;
  std::array<std::byte, 64> line;
  for (std::size_t c = 0; c < columns.count; c += kSide)
    for (std::size_t r = 0; r < rows.count; r += kSide) {
      const std::size_t width = std::min<std::size_t>(kSide, columns.count - c);
      const std::size_t height = std::min<std::size_t>(kSide, rows.count - r);
      for (std::size_t i = 0; i < height; ++i) {
        const std::byte* row = from + (r + i) * rows.source_step + c * kLength;
        __builtin_prefetch(row + 128);
        std::memcpy(tile.data() + 64 * i, row, width * kLength);
      }
      for (std::size_t j = 0; j < width; ++j) {
        for (std::size_t i = 0; i < height; ++i)
          std::memcpy(line.data() + i * kLength, tile.data() + 64 * i + j * kLength, kLength);
        std::memcpy(to + (c + j) * columns.target_step + r * kLength, line.data(), height * kLength);
      }
    }
}

template <std::size_t kLength>
void copy_elements(const CopyPlan& plan, const CopyNest& nest, const Walk& walk, NestMemory memory,
                   GranuleLists granules) {
  const CopyLoop& columns = walk.loops[kMaxLoops - 2];
  const CopyLoop& rows = walk.loops[kMaxLoops - 1];
  if constexpr (kLength != 0)
    if (columns.source_step == kLength && rows.target_step == kLength) {
      Walk blocks = walk;
      blocks.loops[kMaxLoops - 2].count = blocks.loops[kMaxLoops - 1].count = 1;
      return for_all_runs(plan, nest, blocks, granules,
                          [&](std::size_t, std::uint64_t from, std::uint64_t to) {
                            transpose<kLength>(columns, rows, memory.source + from, memory.target + to);
                          });
    }
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

}  // namespace

void detail::copy_fragments_by(CopyBody body, const CopyPlan& plan, const CopyNest& nest, NestMemory memory,
                               GranuleLists granules, WritePath path) {
  const Walk walk = walk_of(nest, PlanSide::kTarget);
  if (walk.length < kTiny) return copy_tiny(plan, nest, walk, memory, granules);
  Batch batch(walk.length, [=](std::span<const CopyPiece> pieces, std::size_t count, std::size_t ahead) {
    copy_pieces_by(body, pieces, count, ahead, path);
  });
  for_all_runs(plan, nest, walk, granules, [&](std::size_t, std::uint64_t from, std::uint64_t to) {
    batch.push(memory.target + to, memory.source + from, walk.length, true);
  });
  batch.finish();
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
  constexpr std::size_t kFused = 256;  // whole lines; crc32c_copy() writes fewer by way of the caches
  // Runs of different granules are not merged, so that pieces and granules go on together.
  std::size_t granule = 0;
  std::uint64_t left = walk.bytes();
  Batch batch(walk.length, [&](std::span<const CopyPiece> pieces, std::size_t count, std::size_t ahead) {
    for (std::size_t i = 0; i < count; ++i) {
      const ByteView from(pieces[i].from, pieces[i].length);
      const CopyPiece next = i + ahead < pieces.size() ? pieces[i + ahead] : CopyPiece();
      std::uint32_t& sum = sums[granule];
      const std::size_t head = -reinterpret_cast<std::uintptr_t>(pieces[i].to) % 64;
      if (from.size() < kFused + head) {
        copy_pieces(pieces.subspan(i), 1, ahead, path);
        sum = crc32c(from, sum);
      } else {
        sum = next.length == 0 ? crc32c_copy(pieces[i].to, from, sum, path)
                               : crc32c_copy(pieces[i].to, from, sum, path, ByteView(next.from, next.length));
      }
      left -= from.size();
      if (left != 0) continue;
      ++granule;
      left = walk.bytes();
    }
  });
  std::size_t last = 0;
  for_all_runs(plan, nest, walk, granules, [&](std::size_t number, std::uint64_t from, std::uint64_t to) {
    batch.push(memory.target + to, memory.source + from, walk.length, number == last);
    last = number;
  });
  batch.finish();
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
