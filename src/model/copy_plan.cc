#include "model/copy_plan.h"

#include <algorithm>
#include <numeric>
#include <string>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "base/check.h"
#include "base/checked.h"

namespace tiercel {

namespace {

tl::unexpected<Status> wrong(const PoolLayout& source, const PoolLayout& target, std::string_view what) {
  return error(Code::kInvalidArgument,
               fmt::format("copy plan from pool {} ({}) to pool {} ({}): {}", source.shape.name,
                           source.layout.name, target.shape.name, target.layout.name, what));
}

// Heads of one tensor that lie together on both sides.
struct HeadRun {
  std::uint32_t shard = 0;  // of the source
  std::uint64_t source_head = 0, target_head = 0, count = 0;
};

// What each of `ranks` ranks has of a section of `whole` heads; nothing when it cannot be cut so.
std::optional<std::uint64_t> cut(std::uint64_t whole, std::uint32_t ranks) {
  if (whole % ranks == 0) return whole / ranks;
  if (whole != 0 && ranks % whole == 0) return 1;
  return std::nullopt;
}

// A section as one side has it: every rank all of it, or cut.
struct SectionSide {
  bool everywhere = false;
  std::uint64_t length = 0;  // heads of one rank
  std::uint32_t ranks = 1;
  std::uint64_t whole = 0;

  std::uint64_t first_head(std::uint32_t rank) const { return everywhere ? 0 : rank * whole / ranks; }
  std::uint32_t first_rank_with(std::uint64_t head) const {
    if (everywhere) return 0;
    return static_cast<std::uint32_t>(ranks <= whole ? head / length : head * (ranks / whole));
  }
};

std::optional<SectionSide> section_side(std::uint64_t whole, std::uint64_t length, std::uint32_t ranks) {
  if (length == whole) return SectionSide{true, length, ranks, whole};
  if (cut(whole, ranks) != length) return std::nullopt;
  return SectionSide{false, length, ranks, whole};
}

std::vector<std::uint64_t> sections_of(const TensorShape& tensor) {
  return tensor.sections.empty() ? std::vector{tensor.heads} : tensor.sections;
}

std::uint64_t sum(const std::vector<std::uint64_t>& sections) {
  return std::accumulate(sections.begin(), sections.end(), std::uint64_t{0});
}

struct TensorSides {
  const TensorShape& whole;
  const TensorShape& source;
  const TensorShape& target;
};

// Which heads of which source rank go where; nothing when the shapes are not cuts of the whole.
std::optional<std::vector<HeadRun>> head_runs(const TensorSides& tensor, const Ranks& ranks) {
  const auto whole = sections_of(tensor.whole);
  const auto source = sections_of(tensor.source);
  const auto target = sections_of(tensor.target);
  if (whole.size() != source.size() || whole.size() != target.size()) return std::nullopt;
  if (sum(whole) != tensor.whole.heads || sum(source) != tensor.source.heads ||
      sum(target) != tensor.target.heads)
    return std::nullopt;
  std::vector<HeadRun> runs;
  std::uint64_t source_base = 0;
  std::uint64_t target_base = 0;
  for (std::size_t s = 0; s < whole.size(); ++s) {
    const auto from = section_side(whole[s], source[s], ranks.source_ranks);
    const auto to = section_side(whole[s], target[s], ranks.target_ranks);
    if (!from || !to) return std::nullopt;
    const std::uint64_t first = to->first_head(ranks.rank);
    for (std::uint64_t head = first; head < first + to->length;) {
      const std::uint32_t rank = from->first_rank_with(head);
      const std::uint64_t inside = head - from->first_head(rank);
      const std::uint64_t count = std::min(first + to->length - head, from->length - inside);
      runs.push_back({rank, source_base + inside, target_base + head - first, count});
      head += count;
    }
    source_base += source[s];
    target_base += target[s];
  }
  return runs;
}

// Neighbouring sections that stay neighbours are one run.
std::vector<HeadRun> merged(const std::vector<HeadRun>& runs) {
  std::vector<HeadRun> out;
  for (const HeadRun& run : runs) {
    if (run.count == 0) continue;
    HeadRun* last = out.empty() ? nullptr : &out.back();
    if (last != nullptr && last->shard == run.shard && last->source_head + last->count == run.source_head &&
        last->target_head + last->count == run.target_head)
      last->count += run.count;
    else
      out.push_back(run);
  }
  return out;
}

// One axis of a tensor with its stride on both sides.
struct Pair {
  std::uint64_t count, source, target;
};

// Folds axes that are dense on both sides into the run, and puts the others around it, the longest step of
// the target outermost: writes ascend.
void fold(std::uint64_t element_bytes, std::vector<Pair> axes, CopyNest& nest) {
  std::erase_if(axes, [](const Pair& axis) { return axis.count == 1; });
  std::sort(axes.begin(), axes.end(), [](const Pair& a, const Pair& b) { return a.target < b.target; });
  nest.length = element_bytes;
  auto axis = axes.begin();
  for (; axis != axes.end() && axis->source == nest.length && axis->target == nest.length; ++axis)
    nest.length *= axis->count;
  axes.erase(axes.begin(), axis);
  // Axes that are dense with each other, though not with the run, are one loop.
  std::vector<Pair> loops;
  for (const Pair& each : axes) {
    Pair* inner = loops.empty() ? nullptr : &loops.back();
    if (inner != nullptr && inner->source * inner->count == each.source &&
        inner->target * inner->count == each.target)
      inner->count *= each.count;
    else
      loops.push_back(each);
  }
  TIERCEL_CHECK(loops.size() <= nest.loops.size());
  nest.loop_count = static_cast<std::uint32_t>(loops.size());
  for (std::size_t i = 0; i < loops.size(); ++i) {
    const Pair& from = loops[loops.size() - 1 - i];
    nest.loops[i] = {from.count, from.source, from.target};
  }
}

class Planning final {
 public:
  Planning(const PoolShape& whole, const PoolLayout& source, const PoolLayout& target, Ranks ranks,
           CopyUnit unit)
      : whole_(whole), source_(source), target_(target), ranks_(ranks), unit_(unit) {}

  Result<CopyPlan> run() {
    TIERCEL_RETURN_IF_ERROR(check_pools());
    TIERCEL_RETURN_IF_ERROR(choose_granule());
    for (std::size_t tensor = 0; tensor < source_.shape.tensors.size(); ++tensor)
      TIERCEL_RETURN_IF_ERROR(check_tensor(tensor));
    if (unit_.scope == CopyScope::kWhole) {
      plan_.layers.push_back({kAllLayers, {}});
      add_whole();
      return std::move(plan_);
    }
    for (std::size_t layer = 0; layer < source_.shape.layers.size(); ++layer) {
      plan_.layers.push_back({source_.shape.layers[layer], {}});
      for (std::size_t tensor = 0; tensor < runs_.size(); ++tensor) add(tensor, layer, 1);
    }
    return std::move(plan_);
  }

 private:
  Result<void> check_pools() const {
    const PoolShape& from = source_.shape;
    const PoolShape& to = target_.shape;
    if (ranks_.source_ranks == 0 || ranks_.rank >= ranks_.target_ranks)
      return wrong(source_, target_,
                   fmt::format("rank {} of {} from {} ranks: wanted ranks below their number, at least one",
                               ranks_.rank, ranks_.target_ranks, ranks_.source_ranks));
    if (from.layers != to.layers)
      return wrong(source_, target_,
                   fmt::format("their layers differ: {} and {}", fmt::join(from.layers, ","),
                               fmt::join(to.layers, ",")));
    if (from.tokens_per_entry != to.tokens_per_entry || from.is_state() != to.is_state())
      return wrong(source_, target_,
                   fmt::format("tokens_per_entry {} and {}, snapshots {} and {}: they hold other things",
                               from.tokens_per_entry, to.tokens_per_entry, from.is_state(), to.is_state()));
    if (from.tensors.size() != to.tensors.size() || whole_.tensors.size() != to.tensors.size())
      return wrong(source_, target_,
                   fmt::format("they have {} and {} components", from.tensors.size(), to.tensors.size()));
    return {};
  }

  Result<void> choose_granule() {
    const std::uint64_t from = source_.shape.page_tokens;
    const std::uint64_t to = target_.shape.page_tokens;
    if (source_.shape.is_state()) {
      if (unit_.granule_tokens != 0)
        return wrong(
            source_, target_,
            fmt::format("a granule of {} tokens: a snapshot is moved whole, give 0", unit_.granule_tokens));
    } else {
      if (from % to != 0 && to % from != 0)
        return wrong(source_, target_,
                     fmt::format("pages of {} and {} tokens: one must divide the other", from, to));
      plan_.granule_tokens = unit_.granule_tokens != 0 ? unit_.granule_tokens : std::min(from, to);
      if (from % plan_.granule_tokens != 0 || to % plan_.granule_tokens != 0)
        return wrong(source_, target_,
                     fmt::format("a granule of {} tokens does not divide pages of {} and {}",
                                 plan_.granule_tokens, from, to));
      plan_.source_per_page = from / plan_.granule_tokens;
      plan_.target_per_page = to / plan_.granule_tokens;
    }
    const auto source_granules = checked_mul(source_.pages, plan_.source_per_page);
    const auto target_granules = checked_mul(target_.pages, plan_.target_per_page);
    if (!source_granules || !target_granules) return wrong(source_, target_, "their granules pass 2^63 - 1");
    plan_.source_granules = *source_granules;
    plan_.target_granules = *target_granules;
    return {};
  }

  bool is_whole_page() const { return plan_.source_per_page == 1 && plan_.target_per_page == 1; }
  // Whether a page of it consists of as many entries as its tokens make.
  static bool has_entries(const PoolShape& pool, const TensorShape& tensor) {
    return tensor.tokens * pool.tokens_per_entry == pool.page_tokens;
  }

  Result<void> check_tensor(std::size_t number) {
    const TensorSides tensor{whole_.tensors[number], source_.shape.tensors[number],
                             target_.shape.tensors[number]};
    const auto fault = [&](std::string_view what) {
      return wrong(source_, target_, fmt::format("component {}: {}", tensor.source.name, what));
    };
    if (tensor.source.name != tensor.target.name)
      return fault(fmt::format("it is {} on the other side", tensor.target.name));
    if (tensor.source.dim != tensor.target.dim ||
        tensor.source.element_bytes != tensor.target.element_bytes || tensor.whole.dim != tensor.target.dim)
      return fault(fmt::format("heads of {} elements of {} bytes, and of {} of {}", tensor.source.dim,
                               tensor.source.element_bytes, tensor.target.dim, tensor.target.element_bytes));
    if (!is_whole_page()) {
      if (!has_entries(source_.shape, tensor.source) || !has_entries(target_.shape, tensor.target))
        return fault(
            "its bytes of a page are opaque and cannot be cut: take granules of whole pages of one size");
      if (plan_.granule_tokens % source_.shape.tokens_per_entry != 0)
        return fault(fmt::format("a granule of {} tokens cuts an entry of {} tokens", plan_.granule_tokens,
                                 source_.shape.tokens_per_entry));
    } else if (tensor.source.tokens != tensor.target.tokens) {
      return fault(fmt::format("{} and {} entries in a page", tensor.source.tokens, tensor.target.tokens));
    }
    auto runs = head_runs(tensor, ranks_);
    if (!runs)
      return fault(fmt::format("{} heads of {} ranks and {} of {} are no cuts of {} heads",
                               tensor.source.heads, ranks_.source_ranks, tensor.target.heads,
                               ranks_.target_ranks, tensor.whole.heads));
    runs_.push_back(merged(*runs));
    return {};
  }

  std::uint64_t entries(std::size_t tensor) const {
    return is_whole_page() ? source_.shape.tensors[tensor].tokens
                           : plan_.granule_tokens / source_.shape.tokens_per_entry;
  }

  static CopySide side(const TensorPlace& place, std::size_t layer, std::uint64_t head,
                       std::uint64_t entries) {
    CopySide side;
    side.buffer = place.first_buffer + static_cast<std::uint32_t>(layer) * place.layer_buffers;
    side.offset = place.offset + layer * place.layer + head * place.head;
    side.page = place.page;
    side.granule = entries * place.token;
    return side;
  }

  // One nest for each run of heads, over `layers` layers from number `layer` on.
  void add(std::size_t tensor, std::size_t layer, std::uint64_t layers) {
    const TensorShape& shape = source_.shape.tensors[tensor];
    if (shape.entry_bytes() == 0 || shape.tokens == 0) return;
    const TensorPlace& from = source_.places[tensor];
    const TensorPlace& to = target_.places[tensor];
    for (const HeadRun& heads : runs_[tensor]) {
      CopyNest nest;
      nest.source = side(from, layer, heads.source_head, entries(tensor));
      nest.source.shard = heads.shard;
      nest.target = side(to, layer, heads.target_head, entries(tensor));
      fold(shape.element_bytes,
           {{shape.dim, from.dim, to.dim},
            {heads.count, from.head, to.head},
            {entries(tensor), from.token, to.token},
            {layers, from.layer, to.layer}},
           nest);
      plan_.layers.back().nests.push_back(nest);
    }
  }

  void add_whole() {
    const std::size_t layers = source_.shape.layers.size();
    if (layers == 0) return;
    for (std::size_t tensor = 0; tensor < runs_.size(); ++tensor) {
      const bool apart =
          source_.places[tensor].layer_buffers != 0 || target_.places[tensor].layer_buffers != 0;
      for (std::size_t layer = 0; layer < (apart ? layers : 1); ++layer)
        add(tensor, layer, apart ? 1 : layers);
    }
  }

  const PoolShape& whole_;
  const PoolLayout& source_;
  const PoolLayout& target_;
  Ranks ranks_;
  CopyUnit unit_;
  CopyPlan plan_;
  std::vector<std::vector<HeadRun>> runs_;  // of each tensor
};

}  // namespace

std::uint64_t CopyNest::fragments() const {
  return std::accumulate(loops.begin(), loops.begin() + loop_count, std::uint64_t{1},
                         [](std::uint64_t product, const CopyLoop& loop) { return product * loop.count; });
}

std::uint64_t CopyPlan::granule_bytes() const {
  std::uint64_t bytes = 0;
  for (const LayerCopy& layer : layers)
    for (const CopyNest& nest : layer.nests) bytes += nest.bytes();
  return bytes;
}

Result<CopyPlan> plan_copy(const PoolLayout& source, const PoolLayout& target, CopyUnit unit) {
  return Planning(source.shape, source, target, {}, unit).run();
}

Result<CopyPlan> plan_reshard(const PoolShape& whole, const PoolLayout& source, const PoolLayout& target,
                              Ranks ranks, CopyUnit unit) {
  return Planning(whole, source, target, ranks, unit).run();
}

}  // namespace tiercel
