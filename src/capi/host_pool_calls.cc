// Calls of the ABI: what a group of host pools consists of; its slots and sequences; pools as a node's engine
// memory.
#include <algorithm>
#include <bit>

#include "capi/host_pool_handles.h"
#include "capi/options.h"
#include "device/device_pool.h"

using namespace tiercel;        // NOLINT(google-build-using-namespace): the ABI's functions stand outside
using namespace tiercel::capi;  // NOLINT(google-build-using-namespace)

namespace tiercel::capi {

tiercel_pool_segment Pools::segment(std::uint32_t pool, const PageObject& object, std::uint32_t component,
                                    const Segment& at) const {
  const SegmentPlace place = place_of(plan().pools[pool], at);
  tiercel_pool_segment out{};
  out.data = group_.bytes(pool, at).data();
  out.size = at.length;
  out.offset = place.offset;
  out.allocation = place.allocation;
  out.buffer = at.buffer;
  out.component = component;
  out.class_id = object.cls.value();
  return out;
}

}  // namespace tiercel::capi

tiercel_sequence::~tiercel_sequence() {
  static_cast<void>(pools->with_slots([&](GroupSlots&) -> Answer {
    sequence.reset();
    return {};
  }));
}

namespace {

// The body of a call on one pool of a group.
template <typename Body>
tiercel_status pool_call(std::string_view name, const tiercel_host_pools* pools, std::uint32_t pool,
                         tiercel_error* error, const Body& body) noexcept {
  return answer(error, [&]() -> Answer {
    TIERCEL_RETURN_UNLESS_OK(check(pools));
    TIERCEL_RETURN_UNLESS_OK(pools->pools->check_pool(name, pool));
    return body(*pools->pools, pools->pools->plan().pools[pool]);
  });
}

tiercel_memory_kind kind_of(MemoryKind kind) {
  switch (kind) {
    case MemoryKind::kAnonymous:
      return TIERCEL_MEMORY_ANONYMOUS;
    case MemoryKind::kHugepage:
      return TIERCEL_MEMORY_HUGEPAGE;
    case MemoryKind::kShared:
      return TIERCEL_MEMORY_SHARED;
    case MemoryKind::kPinned:
      return TIERCEL_MEMORY_PINNED;
    case MemoryKind::kExternal:
      return TIERCEL_MEMORY_EXTERNAL;
  }
  return TIERCEL_MEMORY_DEFAULT;
}

Answer not_appended(std::uint64_t token, std::uint64_t tokens) {
  return {TIERCEL_NOT_FOUND, fmt::format("sequence: token {}: it has {}; append first", token, tokens)};
}

}  // namespace

tiercel_status tiercel_host_pools_describe(const tiercel_host_pools* pools, tiercel_host_pools_info* info,
                                           tiercel_error* error) {
  return answer(error, [&]() -> Answer {
    TIERCEL_RETURN_UNLESS_OK(check(pools));
    const HostPoolGroup& group = pools->pools->group();
    tiercel_host_pools_info out{};
    out.pools = group.plan().pools.size();
    out.ranges = group.ranges().size();
    out.required_bytes = group.required_bytes();
    out.mapped_bytes = group.mapped_bytes();
    out.huge_bytes = group.page_report().huge_bytes;
    const Digest fingerprint = plan_fingerprint(group.plan());
    static_assert(sizeof fingerprint == sizeof out.fingerprint);
    std::memcpy(out.fingerprint, fingerprint.data(), sizeof out.fingerprint);
    out.memory_kind = kind_of(group.kind());
    out.page_kind = page_kind_of(group.page_report().kind);
    out.layer_end = group.plan().layer_end();
    out.fd = group.fd();
    out.numa_as_asked = group.numa_report().as_wanted() ? 1 : 0;
    return write_sized("host_pools_describe", out, info);
  });
}

tiercel_status tiercel_host_pools_pool(const tiercel_host_pools* pools, uint32_t pool,
                                       tiercel_host_pool_info* info, tiercel_error* error) {
  return pool_call("host_pools_pool", pools, pool, error,
                   [&](const Pools& group, const HostPool& at) -> Answer {
                     const PoolShape& shape = at.layout.shape;
                     tiercel_host_pool_info out{};
                     out.name = shape.name.c_str();
                     out.layout = group.layout_text_of(pool).c_str();
                     out.pages = at.pages();
                     out.page_bytes = shape.page_bytes();
                     out.page_tokens = shape.page_tokens;
                     out.tokens_per_entry = shape.tokens_per_entry;
                     out.buffers = at.buffers.size();
                     out.layers = shape.layers.size();
                     out.components = shape.tensors.size();
                     out.group = shape.tensors.empty() ? TIERCEL_NO_GROUP : shape.group;
                     out.class_id = shape.cls.value();
                     out.slots_of = at.slots_of;
                     out.replicated = at.replicated ? 1 : 0;
                     return write_sized("host_pools_pool", out, info);
                   });
}

tiercel_status tiercel_host_pools_layers(const tiercel_host_pools* pools, uint32_t pool, uint32_t* layers,
                                         uint64_t capacity, uint64_t* count, tiercel_error* error) {
  return pool_call("host_pools_layers", pools, pool, error, [&](const Pools&, const HostPool& at) -> Answer {
    return write_list<std::uint32_t>("host_pools_layers", at.layout.shape.layers, layers, capacity, count);
  });
}

tiercel_status tiercel_host_pools_buffers(const tiercel_host_pools* pools, uint32_t pool,
                                          tiercel_pool_buffer* buffers, uint64_t capacity, uint64_t* count,
                                          tiercel_error* error) {
  return answer(error, [&]() -> Answer {
    TIERCEL_RETURN_UNLESS_OK(check(pools));
    const HostPoolGroup& group = pools->pools->group();
    if (pool != TIERCEL_ALL_POOLS)
      TIERCEL_RETURN_UNLESS_OK(pools->pools->check_pool("host_pools_buffers", pool));
    std::vector<tiercel_pool_buffer> out;
    for (std::uint32_t p = 0; p < group.plan().pools.size(); ++p) {
      if (pool != TIERCEL_ALL_POOLS && pool != p) continue;
      const HostPool& at = group.plan().pools[p];
      for (std::uint32_t b = 0; b < at.buffers.size(); ++b)
        out.push_back({group.buffer_address(p, b),
                       at.buffers[b].bytes,
                       at.buffers[b].offset,
                       at.buffers[b].allocation,
                       p,
                       b,
                       {}});
    }
    return write_list<tiercel_pool_buffer>("host_pools_buffers", out, buffers, capacity, count);
  });
}

tiercel_status tiercel_host_pools_ranges(const tiercel_host_pools* pools, tiercel_segment* ranges,
                                         uint64_t capacity, uint64_t* count, tiercel_error* error) {
  return answer(error, [&]() -> Answer {
    TIERCEL_RETURN_UNLESS_OK(check(pools));
    std::vector<tiercel_segment> out;
    for (const MutableByteView range : pools->pools->group().ranges())
      out.push_back({range.data(), range.size()});
    return write_list<tiercel_segment>("host_pools_ranges", out, ranges, capacity, count);
  });
}

tiercel_status tiercel_host_pools_segments(const tiercel_host_pools* pools, uint32_t pool, uint64_t page,
                                           tiercel_pool_segment* segments, uint64_t capacity, uint64_t* count,
                                           tiercel_error* error) {
  return pool_call(
      "host_pools_segments", pools, pool, error, [&](const Pools& group, const HostPool& at) -> Answer {
        if (page >= at.pages())
          return invalid(fmt::format("host_pools_segments: page {}: pool {} has {}, numbered from 0", page,
                                     at.name(), at.pages()));
        std::vector<tiercel_pool_segment> out;
        const auto objects = group.group().page_segments(pool, page);
        for (std::uint32_t component = 0; component < objects.size(); ++component)
          for (const Segment& segment : objects[component].segments)
            out.push_back(group.segment(pool, objects[component], component, segment));
        return write_list<tiercel_pool_segment>("host_pools_segments", out, segments, capacity, count);
      });
}

tiercel_status tiercel_host_pools_is_aligned(const tiercel_host_pools* pools, uint32_t pool,
                                             uint64_t alignment, uint32_t* aligned, tiercel_error* error) {
  return pool_call(
      "host_pools_is_aligned", pools, pool, error, [&](const Pools&, const HostPool& at) -> Answer {
        TIERCEL_RETURN_UNLESS_OK(check_out("host_pools_is_aligned: aligned", aligned));
        if (!std::has_single_bit(alignment))
          return invalid(
              fmt::format("host_pools_is_aligned: alignment {}: wanted a power of two", alignment));
        const bool begins = std::all_of(at.buffers.begin(), at.buffers.end(), [&](const BufferPlace& place) {
          return place.offset % alignment == 0;
        });
        *aligned = begins && is_page_aligned(at.layout, alignment) ? 1 : 0;
        return {};
      });
}

tiercel_status tiercel_host_pools_text(const tiercel_host_pools* pools, char* text, uint64_t capacity,
                                       uint64_t* count, tiercel_error* error) {
  return answer(error, [&]() -> Answer {
    TIERCEL_RETURN_UNLESS_OK(check(pools));
    return write_list<char>("host_pools_text", plan_text(pools->pools->plan()), text, capacity, count);
  });
}

// ---- slots ----

tiercel_status tiercel_host_pools_take(tiercel_host_pools* pools, const tiercel_slot_list* lists,
                                       uint64_t count, tiercel_error* error) {
  return answer(error, [&]() -> Answer {
    TIERCEL_RETURN_UNLESS_OK(check(pools));
    std::span<const tiercel_slot_list> given;
    TIERCEL_RETURN_UNLESS_OK(read_list("host_pools_take: lists", lists, count, given));
    std::vector<GroupSlots::Want> wants;
    for (const tiercel_slot_list& list : given) {
      TIERCEL_RETURN_UNLESS_OK(check_reserved("host_pools_take", list.reserved));
      if (list.slots == nullptr && list.count != 0)
        return invalid("host_pools_take: slots is NULL with a count");
      wants.push_back({list.pool, list.count});
    }
    return pools->pools->with_slots([&](GroupSlots& slots) -> Answer {
      const auto grants = slots.allocate(wants);
      if (!grants) return grants.error();
      for (std::size_t i = 0; i < given.size(); ++i)
        std::copy((*grants)[i].slots.begin(), (*grants)[i].slots.end(), given[i].slots);
      return {};
    });
  });
}

tiercel_status tiercel_host_pools_give(tiercel_host_pools* pools, const tiercel_slot_list* lists,
                                       uint64_t count, tiercel_error* error) {
  return answer(error, [&]() -> Answer {
    TIERCEL_RETURN_UNLESS_OK(check(pools));
    std::span<const tiercel_slot_list> given;
    TIERCEL_RETURN_UNLESS_OK(read_list("host_pools_give: lists", lists, count, given));
    std::vector<GroupSlots::Grant> grants;
    for (const tiercel_slot_list& list : given) {
      TIERCEL_RETURN_UNLESS_OK(check_reserved("host_pools_give", list.reserved));
      std::span<const std::uint64_t> slots;
      TIERCEL_RETURN_UNLESS_OK(
          read_list<std::uint64_t>("host_pools_give: slots", list.slots, list.count, slots));
      grants.push_back({list.pool, {slots.begin(), slots.end()}});
    }
    return pools->pools->with_slots([&](GroupSlots& slots) -> Answer { return slots.free(grants); });
  });
}

// ---- sequences ----

tiercel_status tiercel_sequence_open(tiercel_host_pools* pools, uint32_t pool, tiercel_sequence** sequence,
                                     tiercel_error* error) {
  return pool_call("sequence_open", pools, pool, error, [&](const Pools& group, const HostPool&) -> Answer {
    TIERCEL_RETURN_UNLESS_OK(check_out("sequence_open: sequence", sequence));
    auto handle = std::make_unique<tiercel_sequence>();
    handle->pools = pools->pools;
    TIERCEL_RETURN_UNLESS_OK(pools->pools->with_slots([&](GroupSlots& slots) -> Answer {
      auto made = HostSequence::make(group.plan(), slots, pool);
      if (!made) return made.error();
      handle->sequence.emplace(std::move(*made));
      return {};
    }));
    *sequence = handle.release();
    return {};
  });
}

tiercel_status tiercel_sequence_append(tiercel_sequence* sequence, uint64_t tokens, uint64_t* slots,
                                       tiercel_error* error) {
  return answer(error, [&]() -> Answer {
    TIERCEL_RETURN_UNLESS_OK(check(sequence));
    return sequence->pools->with_slots([&](GroupSlots&) -> Answer {
      const auto appended = sequence->sequence->append(tokens);
      if (!appended) return appended.error();
      if (slots == nullptr) return {};
      std::ranges::copy(sequence->sequence->token_slots(*appended), slots);
      return {};
    });
  });
}

tiercel_status tiercel_sequence_pages(const tiercel_sequence* sequence, uint64_t* pages, uint64_t capacity,
                                      uint64_t* count, tiercel_error* error) {
  return answer(error, [&]() -> Answer {
    TIERCEL_RETURN_UNLESS_OK(check(sequence));
    return sequence->pools->with_slots([&](GroupSlots&) -> Answer {
      return write_list<std::uint64_t>("sequence_pages", sequence->sequence->pages(), pages, capacity, count);
    });
  });
}

tiercel_status tiercel_sequence_entry(const tiercel_sequence* sequence, uint32_t pool, uint32_t component,
                                      uint32_t layer, uint64_t token, tiercel_pool_segment* segments,
                                      uint64_t capacity, uint64_t* count, tiercel_error* error) {
  return answer(error, [&]() -> Answer {
    TIERCEL_RETURN_UNLESS_OK(check(sequence));
    Pools& group = *sequence->pools;
    TIERCEL_RETURN_UNLESS_OK(group.check_pool("sequence_entry", pool));
    const HostPool& at = group.plan().pools[pool];
    if (component >= at.layout.shape.tensors.size())
      return invalid(fmt::format("sequence_entry: component {}: pool {} has {}", component, at.name(),
                                 at.layout.shape.tensors.size()));
    const auto index = at.layer_index(layer);
    if (!index)
      return {TIERCEL_NOT_FOUND, fmt::format("sequence_entry: pool {} has no layer {}", at.name(), layer)};
    std::vector<tiercel_pool_segment> out;
    TIERCEL_RETURN_UNLESS_OK(group.with_slots([&](GroupSlots&) -> Answer {
      if (token >= sequence->sequence->tokens()) return not_appended(token, sequence->sequence->tokens());
      if (!sequence->sequence->serves(at))
        return invalid(fmt::format("sequence_entry: pool {} does not share the sequence's slots", at.name()));
      const PageObject object{at.layout.shape.cls, at.layout.shape.tensors[component].component, {}};
      for (const Segment& segment : sequence->sequence->entry_of(at, component, *index, token))
        out.push_back(group.segment(pool, object, component, segment));
      return {};
    }));
    return write_list<tiercel_pool_segment>("sequence_entry", out, segments, capacity, count);
  });
}

void tiercel_sequence_release(tiercel_sequence* sequence) { free_handle(sequence); }

// ---- with a node ----

tiercel_status tiercel_register_host_pools(tiercel_form* form, uint32_t class_id, uint32_t shard,
                                           tiercel_host_pools* pools, tiercel_error* error) {
  return answer(error, [&]() -> Answer {
    TIERCEL_RETURN_UNLESS_OK(check(form));
    TIERCEL_RETURN_UNLESS_OK(check(pools));
    const FormTable& table = *form->table;
    TIERCEL_RETURN_UNLESS_OK(check_class(table, class_id, shard));
    const ClassForm& cls = table.form.classes[class_id];
    const HostPoolGroup& group = pools->pools->group();
    if (pools->pools->memory_device() != nullptr)
      return unsupported("register_host_pools: pools on a device; copy their pages to pools of host memory");
    std::vector<std::vector<std::uint64_t>> addresses;
    std::vector<LaidOutPool> laid_out;
    addresses.reserve(group.plan().pools.size());
    for (std::uint32_t p = 0; p < group.plan().pools.size(); ++p) {
      const HostPool& pool = group.plan().pools[p];
      if (pool.layout.shape.tensors.empty() ||
          std::find(cls.groups.begin(), cls.groups.end(), pool.layout.shape.group) == cls.groups.end())
        continue;
      std::vector<std::uint64_t>& at = addresses.emplace_back();
      for (std::uint32_t b = 0; b < pool.buffers.size(); ++b)
        at.push_back(
            reinterpret_cast<std::uintptr_t>(group.buffer_address(p, b)));  // NOLINT: as the engine's own
      laid_out.push_back({&pool.layout, at});
    }
    const auto table_of = device_pool_of(cls, ShardId(static_cast<std::uint16_t>(shard)), laid_out);
    if (!table_of) return table_of.error();
    return register_pool(*form, *table_of);
  });
}
