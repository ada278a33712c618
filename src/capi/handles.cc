#include "capi/handles.h"

#include <algorithm>

#include "base/bytes.h"

namespace tiercel::capi {

Key key_of(const tiercel_key& key) {
  const auto bytes = std::as_bytes(std::span(key.bytes));
  return Key{{load_le<std::uint64_t>(bytes.data()), load_le<std::uint64_t>(bytes.data() + 8)}};
}

tiercel_key key_of(const Key& key) {
  tiercel_key out{};
  const auto bytes = std::as_writable_bytes(std::span(out.bytes));
  store_le(bytes.data(), key.words[0]);
  store_le(bytes.data() + 8, key.words[1]);
  return out;
}

std::vector<Key> keys_of(std::span<const tiercel_key> keys) {
  std::vector<Key> out(keys.size());
  std::transform(keys.begin(), keys.end(), out.begin(), [](const tiercel_key& key) { return key_of(key); });
  return out;
}

Answer Start::prepare(const std::shared_ptr<Core>& core, OperationKind kind, tiercel_cq* cq,
                      std::uint64_t user_data, bool wants_handle) {
  operation_ = std::make_shared<Operation>();
  operation_->kind = kind;
  operation_->user_data = user_data;
  if (cq != nullptr) {
    TIERCEL_RETURN_UNLESS_OK(check(cq));
    if (cq->core != core) return invalid("the completion queue is of another node");
    if (cq->queue->full()) return {TIERCEL_RESOURCE_EXHAUSTED, "the completion queue is full; drain it"};
    operation_->cq = cq->queue;
  }
  if (!wants_handle) return {};
  handle_ = std::make_unique<tiercel_operation>();
  handle_->core = core;
  handle_->operation = operation_;
  operation_->handle.store(handle_.get());
  return {};
}

void Start::begin(Live& live, OperationId id) {
  operation_->id = id.value();
  live.begin(operation_);
}

void Start::give(tiercel_operation** out) {
  if (out != nullptr) *out = handle_.release();
}

}  // namespace tiercel::capi
