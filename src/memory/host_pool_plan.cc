#include "memory/host_pool_plan.h"

#include <algorithm>
#include <map>
#include <set>
#include <string_view>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/check.h"
#include "base/checked.h"
#include "base/sizes.h"
#include "memory/host_pool_sizes.h"
#include "model/json_text.h"
#include "os/mapping_calls.h"

namespace tiercel {
namespace {

constexpr std::uint64_t kBufferAlignment = kSmallPageBytes;  // so that direct I/O can reach every buffer

tl::unexpected<Status> bad(std::string message) { return error(Code::kInvalidArgument, std::move(message)); }

std::uint64_t rounding(MemoryKind kind) {
  return kind == MemoryKind::kExternal ? kSmallPageBytes : kHugePageBytes;
}

std::string pool_where(const HostPoolRequest& request) {
  return fmt::format("host pools: pool {}", printable(request.shape.name));
}

// Makes a plan out of requests, step by step.
class Planning {
 public:
  Planning(const std::vector<HostPoolRequest>& requests, const HostPoolPlanOptions& options)
      : requests_(requests), options_(options), external_(options.kind == MemoryKind::kExternal) {
    plan_.kind = options.kind;
  }

  Result<HostPoolPlan> run() {
    if (requests_.empty()) return bad("host pools: wanted at least one pool, got none; add the anchor first");
    TIERCEL_RETURN_IF_ERROR(take_allocations());
    for (const HostPoolRequest& request : requests_) TIERCEL_RETURN_IF_ERROR(take(request));
    if (external_ && std::holds_alternative<TotalCapacity>(options_.capacity))
      return bad(
          "host pools: capacity: external memory is as large as it is: wanted pages or a ratio, got total "
          "bytes");
    TIERCEL_ASSIGN_OR_RETURN(const std::vector<std::uint64_t> pages,
                             pages_of(domains_, owned_, options_.capacity, rounding(options_.kind)));
    for (std::size_t i = 0; i < requests_.size(); ++i)
      TIERCEL_RETURN_IF_ERROR(lay_out_pool(i, pages[domain_of_[i]]));
    if (!external_) plan_.allocations.assign(end_ == 0 ? 0 : 1, end_);
    if (!checked_add(mapped_bytes(plan_), 0)) return bad("host pools: their sizes pass 2^63 - 1");
    return std::move(plan_);
  }

 private:
  Status take_allocations() {
    if (!external_ && !options_.allocations.empty())
      return {Code::kInvalidArgument,
              fmt::format("host pools: memory of kind {} is the group's own: wanted no allocations, got {}",
                          memory_kind_name(options_.kind), options_.allocations.size())};
    std::uint64_t sum = 0;
    for (std::size_t i = 0; i < options_.allocations.size(); ++i) {
      const MutableByteView range = options_.allocations[i];
      if (range.data() == nullptr || range.empty())
        return {Code::kInvalidArgument,
                fmt::format("host pools: allocation {}: wanted an address and a size, got {} and {} bytes", i,
                            range.data() == nullptr ? "null" : "an address", range.size())};
      for (std::size_t other = 0; other < i; ++other)
        if (overlap(range, options_.allocations[other]))
          return {
              Code::kInvalidArgument,
              fmt::format("host pools: allocations {} and {} overlap: wanted each allocation once and whole, "
                          "views of it as buffers",
                          other, i)};
      const auto whole = checked_add(sum, range.size());
      if (!whole) return {Code::kInvalidArgument, "host pools: the allocations pass 2^63 - 1 bytes"};
      sum = *whole;
      plan_.allocations.push_back(range.size());
    }
    return {};
  }

  static std::uintptr_t address(MutableByteView range) {
    return reinterpret_cast<std::uintptr_t>(range.data());
  }
  static bool overlap(MutableByteView a, MutableByteView b) {
    return address(a) < address(b) + b.size() && address(b) < address(a) + a.size();
  }

  // Everything that needs no number of pages.
  Status take(const HostPoolRequest& request) {
    const PoolShape& shape = request.shape;
    const std::string where = pool_where(request);
    if (shape.name.empty()) return {Code::kInvalidArgument, "host pools: a pool: wanted a name, got none"};
    if (index_.contains(shape.name))
      return {Code::kInvalidArgument, fmt::format("{}: wanted each name once, got it twice", where)};
    for (std::size_t i = 1; i < shape.layers.size(); ++i)
      if (shape.layers[i] <= shape.layers[i - 1])
        return {Code::kInvalidArgument, fmt::format("{}: layers: wanted rising ids, got {} after {}", where,
                                                    shape.layers[i], shape.layers[i - 1])};
    for (const TensorShape& tensor : shape.tensors)
      if (!tensor_bytes(tensor, shape.layers.size()))
        return {Code::kInvalidArgument,
                fmt::format("{}: component {}: its bytes pass 2^63 - 1", where, printable(tensor.name))};
    if (Status found = take_domain(request, where); !found.ok()) return found;
    Result<PoolLayout> one = lay_out(shape, request.layout, 1);
    if (!one) return {one.error().code, fmt::format("{}: {}", where, one.error().message)};
    const std::uint64_t alignment = std::max(kBufferAlignment, request.layout.page_alignment);
    if (!request.buffers.empty() && request.buffers.size() != one->buffer_bytes.size())
      return {Code::kInvalidArgument,
              fmt::format("{}: buffers: layout {} wanted {}, got {}", where, one->layout.name,
                          one->buffer_bytes.size(), request.buffers.size())};
    for (std::size_t i = 0; i < one->buffer_bytes.size(); ++i)
      if (request.buffers.empty() || std::holds_alternative<OwnBuffer>(request.buffers[i]))
        owned_.push_back({domain_of_.back(), one->buffer_bytes[i], alignment});
    index_.emplace(shape.name, static_cast<std::uint32_t>(index_.size()));
    return {};
  }

  // Of a page of all layers; nothing when it passes 2^63 - 1.
  static std::optional<std::uint64_t> tensor_bytes(const TensorShape& tensor, std::uint64_t layers) {
    std::optional<std::uint64_t> bytes = 1;
    for (const std::uint64_t factor : {tensor.tokens, tensor.heads, tensor.dim, tensor.element_bytes, layers})
      if (bytes) bytes = checked_mul(*bytes, factor);
    return bytes;
  }

  Status take_domain(const HostPoolRequest& request, const std::string& where) {
    const auto at = static_cast<std::uint32_t>(domain_of_.size());
    if (request.slots_of.empty()) {
      if (request.pages_per_resume_point > kSizeMax)
        return {Code::kInvalidArgument, fmt::format("{}: pages per resume point: wanted at most {}, got {}",
                                                    where, kSizeMax, request.pages_per_resume_point)};
      domain_of_.push_back(static_cast<std::uint32_t>(domains_.size()));
      roots_.push_back(at);
      domains_.push_back({request.shape.name, std::max<std::uint64_t>(request.pages_per_resume_point, 1),
                          request.device_pages});
      return {};
    }
    const auto anchor = index_.find(request.slots_of);
    if (anchor == index_.end())
      return {Code::kInvalidArgument,
              fmt::format("{}: slots of: wanted a pool that was added before, got '{}'", where,
                          printable(request.slots_of))};
    const PoolShape& other = requests_[anchor->second].shape;
    if (other.page_tokens != request.shape.page_tokens)
      return {Code::kInvalidArgument,
              fmt::format("{}: page tokens: wanted {} like pool {}, whose slots it uses, got {}", where,
                          other.page_tokens, printable(other.name), request.shape.page_tokens)};
    domain_of_.push_back(domain_of_[anchor->second]);
    return {};
  }

  Status lay_out_pool(std::size_t at, std::uint64_t pages) {
    const HostPoolRequest& request = requests_[at];
    const std::string where = pool_where(request);
    Result<PoolLayout> layout = lay_out(request.shape, request.layout, pages);
    if (!layout) return {layout.error().code, fmt::format("{}: {}", where, layout.error().message)};
    HostPool pool{std::move(*layout), roots_[domain_of_[at]], request.replicated, {}};
    plan_.pools.push_back(std::move(pool));  // so that a buffer can be the same as another one of this pool
    for (std::size_t i = 0; i < plan_.pools.back().layout.buffer_bytes.size(); ++i) {
      const BufferSource source = request.buffers.empty() ? BufferSource(OwnBuffer{}) : request.buffers[i];
      const std::uint64_t bytes = plan_.pools.back().layout.buffer_bytes[i];
      const Result<BufferPlace> place = place_buffer(source, bytes, request.layout.page_alignment);
      if (!place)
        return {place.error().code, fmt::format("{}: buffer {}: {}", where, i, place.error().message)};
      plan_.pools.back().buffers.push_back(*place);
    }
    return {};
  }

  Result<BufferPlace> place_buffer(const BufferSource& source, std::uint64_t bytes, std::uint64_t alignment) {
    if (const auto* same = std::get_if<SameBufferAs>(&source)) return place_same(*same, bytes);
    if (const auto* at = std::get_if<BufferAt>(&source)) return place_at(*at, bytes);
    if (bytes == 0) return BufferPlace{};
    if (external_)
      return bad(
          "wanted memory of the caller, got none: of external pools each buffer's place is given (builder)");
    alignment = std::max(kBufferAlignment, alignment);
    const auto begin = checked_mul(ceil_div(end_, alignment), alignment);
    const auto end = begin ? checked_add(*begin, bytes) : std::nullopt;
    if (!end) return bad("the sizes of all pools pass 2^63 - 1");
    end_ = *end;
    return BufferPlace{0, *begin, bytes};
  }

  Result<BufferPlace> place_same(const SameBufferAs& same, std::uint64_t bytes) const {
    const auto found = plan_.find(same.pool);
    if (!found || same.buffer >= plan_.pools[*found].buffers.size())
      return bad(fmt::format("wanted a buffer that was added before, got buffer {} of pool '{}'", same.buffer,
                             printable(same.pool)));
    if (bytes == 0) return BufferPlace{};
    const BufferPlace& whole = plan_.pools[*found].buffers[same.buffer];
    if (same.offset > whole.bytes || bytes > whole.bytes - same.offset)
      return bad(fmt::format("wanted {} bytes from byte {} of buffer {} of pool {}, which has {}", bytes,
                             same.offset, same.buffer, printable(same.pool), whole.bytes));
    return BufferPlace{whole.allocation, whole.offset + same.offset, bytes};
  }

  Result<BufferPlace> place_at(const BufferAt& at, std::uint64_t bytes) const {
    if (!external_)
      return bad(
          fmt::format("wanted memory of kind {} like the whole group, got memory of the caller; one kind for "
                      "all pools",
                      memory_kind_name(options_.kind)));
    if (bytes == 0) return BufferPlace{};
    if (at.bytes.data() == nullptr) return bad(fmt::format("wanted {} bytes, got null", bytes));
    if (at.bytes.size() < bytes) return bad(fmt::format("wanted {} bytes, got {}", bytes, at.bytes.size()));
    for (std::uint32_t i = 0; i < options_.allocations.size(); ++i) {
      const MutableByteView whole = options_.allocations[i];
      const std::uintptr_t begin = address(whole), here = address(at.bytes);
      if (here < begin || here - begin > whole.size() || bytes > whole.size() - (here - begin)) continue;
      return BufferPlace{i, here - begin, bytes};
    }
    return bad(fmt::format(
        "wanted a range inside one of the {} allocations of the group's options, got one that is not",
        options_.allocations.size()));
  }

  const std::vector<HostPoolRequest>& requests_;
  const HostPoolPlanOptions& options_;
  const bool external_;
  HostPoolPlan plan_;
  std::map<std::string, std::uint32_t, std::less<>> index_;  // of pools, by name
  std::vector<SlotDomain> domains_;
  std::vector<std::uint32_t> roots_;      // of each domain, its pool
  std::vector<std::uint32_t> domain_of_;  // of each pool
  std::vector<OwnedBuffer> owned_;
  std::uint64_t end_ = 0;  // of the group's own memory
};

std::string extents_text(const HostPool& pool) {
  std::string text;
  for (const TensorShape& tensor : pool.layout.shape.tensors)
    text += fmt::format(" {}[{},{},{}]x{}", printable(tensor.name), tensor.tokens, tensor.heads, tensor.dim,
                        tensor.element_bytes);
  return text;
}

// Every segment of every page of the tensors of `pool` that lies in `allocation`: one of page 0, repeated.
struct Repeated {
  std::uint64_t offset = 0, length = 0;  // of page 0, in the allocation
  std::uint64_t stride = 0, pages = 0;
  std::string_view pool;
};

std::vector<Repeated> segments_in(const HostPoolPlan& plan, std::uint32_t allocation) {
  std::vector<Repeated> found;
  for (const HostPool& pool : plan.pools) {
    const std::vector<PageObject> objects = page_segments(pool.layout, 0);
    for (std::size_t tensor = 0; tensor < objects.size(); ++tensor)
      for (const Segment& segment : objects[tensor].segments) {
        const SegmentPlace place = place_of(pool, segment);
        if (place.allocation != allocation) continue;
        found.push_back(
            {place.offset, segment.length, pool.layout.places[tensor].page, pool.pages(), pool.name()});
      }
  }
  return found;
}

// Where the run begins that lies on both sides of `at`, if one does.
std::optional<std::uint64_t> begin_of_run_across(const Repeated& run, std::uint64_t at) {
  if (at <= run.offset) return std::nullopt;
  const std::uint64_t past = at - run.offset;
  const std::uint64_t page = run.stride == 0 ? 0 : std::min((past - 1) / run.stride, run.pages - 1);
  const std::uint64_t begin = run.offset + page * run.stride;
  return at > begin && at - begin < run.length ? std::optional(begin) : std::nullopt;
}

}  // namespace

std::optional<std::uint32_t> HostPool::layer_index(std::uint32_t layer) const {
  const std::vector<std::uint32_t>& layers = layout.shape.layers;
  const auto found = std::lower_bound(layers.begin(), layers.end(), layer);
  if (found == layers.end() || *found != layer) return std::nullopt;
  return static_cast<std::uint32_t>(found - layers.begin());
}

std::optional<std::uint32_t> HostPoolPlan::find(std::string_view name) const {
  for (std::uint32_t i = 0; i < pools.size(); ++i)
    if (pools[i].name() == name) return i;
  return std::nullopt;
}

std::uint32_t HostPoolPlan::layer_end() const {
  std::uint32_t end = 0;
  for (const HostPool& pool : pools)
    if (!pool.layout.shape.layers.empty()) end = std::max(end, pool.layout.shape.layers.back() + 1);
  return end;
}

Result<HostPoolPlan> plan_host_pools(const std::vector<HostPoolRequest>& requests,
                                     const HostPoolPlanOptions& options) {
  return Planning(requests, options).run();
}

std::uint64_t required_bytes(const HostPoolPlan& plan) {
  std::vector<BufferPlace> places;
  for (const HostPool& pool : plan.pools)
    places.insert(places.end(), pool.buffers.begin(), pool.buffers.end());
  std::sort(places.begin(), places.end(), [](const BufferPlace& a, const BufferPlace& b) {
    return std::pair(a.allocation, a.offset) < std::pair(b.allocation, b.offset);
  });
  std::uint64_t bytes = 0, counted = 0;  // up to where this allocation has been counted
  std::uint32_t allocation = 0;
  for (const BufferPlace& place : places) {
    if (place.allocation != allocation) allocation = place.allocation, counted = 0;
    const std::uint64_t from = std::max(counted, place.offset), to = place.offset + place.bytes;
    if (to > from) bytes += to - from, counted = to;
  }
  return bytes;
}

std::uint64_t mapped_bytes(const HostPoolPlan& plan) {
  std::uint64_t bytes = 0;
  for (const std::uint64_t each : plan.allocations)
    bytes += ceil_div(each, rounding(plan.kind)) * rounding(plan.kind);
  return bytes;
}

SegmentPlace place_of(const HostPool& pool, const Segment& segment) {
  TIERCEL_CHECK(segment.buffer < pool.buffers.size());
  const BufferPlace& buffer = pool.buffers[segment.buffer];
  TIERCEL_CHECK(segment.offset <= buffer.bytes && segment.length <= buffer.bytes - segment.offset);
  return {buffer.allocation, buffer.offset + segment.offset};
}

Result<std::vector<std::uint64_t>> registration_cuts(const HostPoolPlan& plan, std::uint32_t allocation,
                                                     std::uint64_t piece_bytes) {
  TIERCEL_CHECK(allocation < plan.allocations.size());
  const std::uint64_t whole =
      ceil_div(plan.allocations[allocation], rounding(plan.kind)) * rounding(plan.kind);
  std::vector<std::uint64_t> cuts;
  if (whole <= piece_bytes) return std::vector{whole};
  const std::vector<Repeated> runs = segments_in(plan, allocation);
  std::uint64_t begin = 0;
  while (whole - begin > piece_bytes) {
    std::uint64_t cut = (begin + piece_bytes) / kSmallPageBytes * kSmallPageBytes;
    const Repeated* across = nullptr;
    for (bool moved = true; moved && cut > begin;) {
      moved = false;
      for (const Repeated& run : runs)
        if (const auto run_begin = begin_of_run_across(run, cut)) {
          cut = *run_begin / kSmallPageBytes * kSmallPageBytes;
          across = &run;
          moved = true;
        }
    }
    if (cut <= begin)
      return bad(
          fmt::format("host pools: registration: wanted a border of 4 KiB between pages within {} of byte "
                      "{}, got none ({}); raise "
                      "the piece size",
                      format_size(piece_bytes), begin,
                      across == nullptr ? std::string("pieces are shorter than 4 KiB")
                                        : fmt::format("a run of {} bytes of pool {} lies across",
                                                      across->length, printable(across->pool))));
    cuts.push_back(cut);
    begin = cut;
  }
  cuts.push_back(whole);
  return cuts;
}

std::string plan_text(const HostPoolPlan& plan) {
  std::string text = fmt::format("host_pools=1\nmemory={}\nallocations={}\n", memory_kind_name(plan.kind),
                                 fmt::join(plan.allocations, ","));
  for (const HostPool& pool : plan.pools) {
    const PoolShape& shape = pool.layout.shape;
    text += fmt::format(
        "pool {}: class {}, {} of {}, slots of {}{}\n", printable(pool.name(), 200), shape.cls.value(),
        pool.pages(), shape.is_state() ? "snapshots" : fmt::format("{} tokens", shape.page_tokens),
        printable(plan.pools[pool.slots_of].name(), 200), pool.replicated ? ", replicated" : "");
    text += fmt::format("  layers {}\n", fmt::join(shape.layers, ","));
    text += fmt::format("  components{}\n", extents_text(pool));
    text += fmt::format("  layout {}\n", layout_text(pool.layout.layout));
    for (std::size_t i = 0; i < pool.buffers.size(); ++i)
      text += fmt::format("  buffer {}: {} bytes at {} of allocation {}\n", i, pool.buffers[i].bytes,
                          pool.buffers[i].offset, pool.buffers[i].allocation);
  }
  return text;
}

Digest plan_fingerprint(const HostPoolPlan& plan) { return sha256(as_byte_view(plan_text(plan))); }

}  // namespace tiercel
