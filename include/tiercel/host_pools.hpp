// Host pools of host_pools.h for C++20: move-only handles that give themselves back, spans in, values out.
// Part of tiercel.hpp, whose rules hold (errors, handles, options, threads).
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <tiercel/tiercel.hpp>

namespace tiercel {
inline namespace v1 {

// A copy under way. Destroying it cancels and waits until nothing is touched any more.
class Copy {
 public:
  Copy() = default;
  explicit Copy(tiercel_copy* handle) : handle_(handle) {}
  Status wait_layer(std::uint32_t layer, std::uint64_t deadline_ns = TIERCEL_FOREVER) {
    return detail::call(tiercel_copy_wait_layer, get(), layer, deadline_ns);
  }
  Status wait(std::uint64_t deadline_ns = TIERCEL_FOREVER) {
    return detail::call(tiercel_copy_wait, get(), deadline_ns);
  }
  Status cancel() { return detail::call(tiercel_copy_cancel, get()); }
  Result<std::vector<std::uint32_t>> layers() const {
    return detail::list_of<std::vector<std::uint32_t>>(tiercel_copy_layers, get());
  }
  Result<std::vector<std::uint32_t>> sums(std::uint64_t part, std::uint32_t layer) const {
    return detail::list_of<std::vector<std::uint32_t>>(tiercel_copy_sums, get(), part, layer);
  }
  tiercel_copy* get() const { return handle_.get(); }
  explicit operator bool() const { return handle_ != nullptr; }

 private:
  detail::Owned<tiercel_copy, tiercel_copy_release> handle_;
};

// A sequence that stays in host memory. Destroying it frees its pages.
class Sequence {
 public:
  Sequence() = default;
  explicit Sequence(tiercel_sequence* handle) : handle_(handle) {}
  // The token slots of what was appended.
  Result<std::vector<std::uint64_t>> append(std::uint64_t tokens) {
    std::vector<std::uint64_t> slots(static_cast<std::size_t>(tokens));
    Status status = detail::call(tiercel_sequence_append, get(), tokens, slots.data());
    if (!status.ok()) return status;
    return slots;
  }
  Result<std::vector<std::uint64_t>> pages() const {
    return detail::list_of<std::vector<std::uint64_t>>(tiercel_sequence_pages, get());
  }
  Result<std::vector<tiercel_pool_segment>> entry(std::uint32_t pool, std::uint32_t component,
                                                  std::uint32_t layer, std::uint64_t token) const {
    return detail::list_of<std::vector<tiercel_pool_segment>>(tiercel_sequence_entry, get(), pool, component,
                                                              layer, token);
  }
  tiercel_sequence* get() const { return handle_.get(); }
  explicit operator bool() const { return handle_ != nullptr; }

 private:
  detail::Owned<tiercel_sequence, tiercel_sequence_release> handle_;
};

// The pools of one engine rank.
class HostPools {
 public:
  HostPools() = default;
  explicit HostPools(tiercel_host_pools* handle) : handle_(handle) {}
  // All pools of the model at once.
  static Result<HostPools> open(const Spec& spec, const tiercel_host_pools_options& options) {
    return detail::made<HostPools>(tiercel_host_pools_open, spec.get(), &options);
  }
  // Those of another process.
  static Result<HostPools> attach(const Spec& spec, const tiercel_host_pools_options& options, int fd,
                                  std::span<const std::uint8_t, 32> fingerprint) {
    return detail::made<HostPools>(tiercel_host_pools_attach, spec.get(), &options, fd, fingerprint.data());
  }
  Result<tiercel_host_pools_info> describe() const {
    return detail::value_of<tiercel_host_pools_info>(tiercel_host_pools_describe, get());
  }
  Result<tiercel_host_pool_info> pool(std::uint32_t pool) const {
    return detail::value_of<tiercel_host_pool_info>(tiercel_host_pools_pool, get(), pool);
  }
  Result<std::vector<std::uint32_t>> layers(std::uint32_t pool) const {
    return detail::list_of<std::vector<std::uint32_t>>(tiercel_host_pools_layers, get(), pool);
  }
  Result<std::vector<tiercel_pool_buffer>> buffers(std::uint32_t pool = TIERCEL_ALL_POOLS) const {
    return detail::list_of<std::vector<tiercel_pool_buffer>>(tiercel_host_pools_buffers, get(), pool);
  }
  Result<std::vector<tiercel_segment>> ranges() const {
    return detail::list_of<std::vector<tiercel_segment>>(tiercel_host_pools_ranges, get());
  }
  Result<std::vector<tiercel_pool_segment>> segments(std::uint32_t pool, std::uint64_t page) const {
    return detail::list_of<std::vector<tiercel_pool_segment>>(tiercel_host_pools_segments, get(), pool, page);
  }
  Result<bool> is_aligned(std::uint32_t pool, std::uint64_t alignment) const {
    std::uint32_t aligned = 0;
    Status status = detail::call(tiercel_host_pools_is_aligned, get(), pool, alignment, &aligned);
    if (!status.ok()) return status;
    return aligned != 0;
  }
  Result<std::string> text() const { return detail::list_of<std::string>(tiercel_host_pools_text, get()); }

  // Slots of one pool, rising.
  Result<std::vector<std::uint64_t>> take(std::uint32_t pool, std::uint64_t count) {
    std::vector<std::uint64_t> slots(static_cast<std::size_t>(count));
    const tiercel_slot_list list{slots.data(), count, pool, 0};
    Status status = detail::call(tiercel_host_pools_take, get(), &list, std::uint64_t{1});
    if (!status.ok()) return status;
    return slots;
  }
  Status give(std::uint32_t pool, std::span<const std::uint64_t> slots) {
    const tiercel_slot_list list{const_cast<std::uint64_t*>(slots.data()), slots.size(), pool,
                                 0};  // only read
    return detail::call(tiercel_host_pools_give, get(), &list, std::uint64_t{1});
  }
  Result<Sequence> open_sequence(std::uint32_t pool) {
    return detail::made<Sequence>(tiercel_sequence_open, get(), pool);
  }
  // Into this group, from one that the same rank laid out in its own way.
  Result<Copy> copy_from(const HostPools& source, std::span<const tiercel_copy_part> parts,
                         tiercel_copy_options options = sized<tiercel_copy_options>()) {
    return copy_from(std::span(&source, 1), parts, options);
  }
  // From groups of several ranks, one each; options.whole says what they are parts of.
  Result<Copy> copy_from(std::span<const HostPools> ranks, std::span<const tiercel_copy_part> parts,
                         tiercel_copy_options options = sized<tiercel_copy_options>()) {
    std::vector<const tiercel_host_pools*> sources;
    for (const HostPools& rank : ranks) sources.push_back(rank.get());
    options.sources = sources.data();
    options.source_count = sources.size();
    options.target = get();
    options.parts = parts.data();
    options.part_count = parts.size();
    return detail::made<Copy>(tiercel_copy_start, &options);
  }
  // These pools are the engine's memory of a class.
  Status register_with(Form& form, std::uint32_t class_id, std::uint32_t shard = 0) {
    return detail::call(tiercel_register_host_pools, form.get(), class_id, shard, get());
  }
  tiercel_host_pools* get() const { return handle_.get(); }
  explicit operator bool() const { return handle_ != nullptr; }

 private:
  detail::Owned<tiercel_host_pools, tiercel_host_pools_release> handle_;
};

class HostPoolsBuilder {
 public:
  HostPoolsBuilder() = default;
  explicit HostPoolsBuilder(tiercel_host_pools_builder* handle) : handle_(handle) {}
  static Result<HostPoolsBuilder> create(const Spec& spec, const tiercel_host_pools_options& options) {
    return detail::made<HostPoolsBuilder>(tiercel_host_pools_builder_create, spec.get(), &options);
  }
  // The pool's number.
  Result<std::uint32_t> add(const tiercel_host_pool_options& options) {
    return detail::value_of<std::uint32_t>(tiercel_host_pools_builder_add, get(), &options);
  }
  Result<HostPools> seal() { return detail::made<HostPools>(tiercel_host_pools_builder_seal, get()); }
  tiercel_host_pools_builder* get() const { return handle_.get(); }
  explicit operator bool() const { return handle_ != nullptr; }

 private:
  detail::Owned<tiercel_host_pools_builder, tiercel_host_pools_builder_release> handle_;
};

}  // namespace v1
}  // namespace tiercel
