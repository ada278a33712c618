// A sequence whose whole KV stays in host memory while the device holds a working set (sparse-attention
// decode). It grows token by token; its pages are wherever there was room, and what was appended stays where
// it is until the sequence is released as a whole. One sequence serves every pool that shares the slots:
// latent KV, index keys, draft.
//
// Tokens have slots of their own, as engines number them: page slot × tokens of a page + place in the page.
//
// Threads: one thread, the one of its GroupSlots; the bytes are as thread-safe as any memory.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/status.h"
#include "memory/slot_pool.h"
#include "model/pool_layout.h"

namespace tiercel {

class HostSequence final {
 public:
  // Empty. `pool`: one with pages, or one that uses its slots. Errors: invalid_argument for a pool that is
  // not there or whose slots are snapshots. Lives: `slots` must outlive it and stay where it is.
  static Result<HostSequence> make(const HostPoolPlan& plan, GroupSlots& slots, std::uint32_t pool);

  HostSequence(HostSequence&& other) noexcept;
  HostSequence& operator=(HostSequence&& other) noexcept;
  ~HostSequence();  // releases

  struct Tokens {
    std::uint64_t first = 0;  // counted from the start of the sequence
    std::uint64_t count = 0;
  };
  // Room for `count` more; new pages only when the last one is full. Errors: resource_exhausted when the pool
  // has too few slots; then nothing has changed.
  Result<Tokens> append(std::uint64_t count);

  std::uint64_t tokens() const { return tokens_; }
  std::uint64_t page_tokens() const { return page_tokens_; }
  // Page slots in the order of the sequence.
  std::span<const std::uint64_t> pages() const { return pages_; }
  // Requires: token < tokens().
  std::uint64_t page_of(std::uint64_t token) const;
  std::uint64_t token_slot(std::uint64_t token) const;
  std::vector<std::uint64_t> token_slots(Tokens tokens) const;  // one each; requires: they were appended

  // Whether `pool`, of the same group, shares the slots.
  bool serves(const HostPool& pool) const { return pool.slots_of == pool_; }
  // The bytes of a token's entry in any pool that it serves. Requires: token < tokens(), and the pool, tensor
  // and layer index are there.
  std::vector<Segment> entry_of(const HostPool& pool, std::uint32_t tensor, std::uint32_t layer_index,
                                std::uint64_t token) const;

  // All its pages are free again; it is empty.
  void release();

 private:
  HostSequence(GroupSlots& slots, std::uint32_t pool, std::uint64_t page_tokens)
      : slots_(&slots), pool_(pool), page_tokens_(page_tokens) {}

  GroupSlots* slots_;
  std::uint32_t pool_;  // with the slots
  std::uint64_t page_tokens_;
  std::uint64_t tokens_ = 0;
  std::vector<std::uint64_t> pages_;
};

}  // namespace tiercel
