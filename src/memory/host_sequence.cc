#include "memory/host_sequence.h"

#include <algorithm>
#include <array>
#include <utility>

#include <fmt/format.h>

#include "base/check.h"
#include "base/checked.h"
#include "model/json_text.h"

namespace tiercel {

Result<HostSequence> HostSequence::make(const HostPoolPlan& plan, GroupSlots& slots, std::uint32_t pool) {
  if (pool >= plan.pools.size())
    return error(Code::kInvalidArgument,
                 fmt::format("host sequence: wanted a pool below {}, got {}", plan.pools.size(), pool));
  const HostPool& root = plan.pools[plan.pools[pool].slots_of];
  if (root.layout.shape.is_state())
    return error(
        Code::kInvalidArgument,
        fmt::format("host sequence: pool {}: wanted pages of tokens, got snapshots", printable(root.name())));
  return HostSequence(slots, plan.pools[pool].slots_of, root.layout.shape.page_tokens);
}

HostSequence::HostSequence(HostSequence&& other) noexcept
    : slots_(other.slots_),
      pool_(other.pool_),
      page_tokens_(other.page_tokens_),
      tokens_(std::exchange(other.tokens_, 0)),
      pages_(std::exchange(other.pages_, {})) {}

HostSequence& HostSequence::operator=(HostSequence&& other) noexcept {
  HostSequence now(std::move(other));
  std::swap(slots_, now.slots_);
  std::swap(pool_, now.pool_);
  std::swap(page_tokens_, now.page_tokens_);
  std::swap(tokens_, now.tokens_);
  std::swap(pages_, now.pages_);
  return *this;
}

HostSequence::~HostSequence() { release(); }

Result<HostSequence::Tokens> HostSequence::append(std::uint64_t count) {
  const auto end = checked_add(tokens_, count);
  if (!end)
    return error(
        Code::kResourceExhausted,
        fmt::format("host sequence: wanted {} more tokens, which pass 2^63 - 1 with its {}", count, tokens_));
  const std::uint64_t pages = ceil_div(*end, page_tokens_);
  if (pages > pages_.size()) {
    const std::array wants = {GroupSlots::Want{pool_, pages - pages_.size()}};
    auto grants = slots_->allocate(wants);
    if (!grants)
      return error(grants.error().code,
                   fmt::format("host sequence: {} more tokens: {}", count, grants.error().message));
    slots_->hold(grants->front());
    pages_.insert(pages_.end(), grants->front().slots.begin(), grants->front().slots.end());
  }
  return Tokens{std::exchange(tokens_, *end), count};
}

std::uint64_t HostSequence::page_of(std::uint64_t token) const {
  TIERCEL_CHECK(token < tokens_);
  return pages_[token / page_tokens_];
}

std::uint64_t HostSequence::token_slot(std::uint64_t token) const {
  return page_of(token) * page_tokens_ + token % page_tokens_;
}

std::vector<std::uint64_t> HostSequence::token_slots(Tokens tokens) const {
  std::vector<std::uint64_t> slots;
  slots.reserve(tokens.count);
  for (std::uint64_t i = 0; i < tokens.count; ++i) slots.push_back(token_slot(tokens.first + i));
  return slots;
}

std::vector<Segment> HostSequence::entry_of(const HostPool& pool, std::uint32_t tensor,
                                            std::uint32_t layer_index, std::uint64_t token) const {
  TIERCEL_CHECK(pool.slots_of == pool_ && tensor < pool.layout.shape.tensors.size());
  // An opaque component has one entry for the whole page.
  const std::uint64_t per_entry =
      page_tokens_ / std::max<std::uint64_t>(pool.layout.shape.tensors[tensor].tokens, 1);
  return entry_segments(pool.layout, tensor, layer_index, page_of(token), token % page_tokens_ / per_entry);
}

void HostSequence::release() {
  if (!pages_.empty()) {
    const std::array grants = {GroupSlots::Grant{pool_, std::exchange(pages_, {})}};
    slots_->let_go(grants.front());
    const Status freed = slots_->free(grants);
    TIERCEL_CHECK(freed.ok());
  }
  tokens_ = 0;
}

}  // namespace tiercel
