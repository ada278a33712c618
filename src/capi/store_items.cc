#include "capi/store_items.h"

#include <algorithm>
#include <cstring>

#include <fmt/format.h>

#include "capi/options.h"
#include "memory/record.h"

namespace tiercel::capi {

namespace {

static_assert(static_cast<int>(StoreOutcome::kDamaged) == TIERCEL_ITEM_DAMAGED);
static_assert(static_cast<int>(StoreOutcome::kBeingWritten) == TIERCEL_ITEM_BEING_WRITTEN);

constexpr std::uint32_t kNumberMax = UINT16_MAX;  // of classes and shards, as the node counts them

// What of an item needs no lock. Errors: invalid_argument for the whole call: it cannot be read.
Answer check_item(const tiercel_store_item& item, std::size_t number) {
  TIERCEL_RETURN_UNLESS_OK(check_reserved(fmt::format("store: item {}", number), item.reserved));
  if (item.external.data == nullptr && item.external.size != 0)
    return invalid(fmt::format("store: external of item {} is NULL", number));
  if (item.external.size > kExternalDigestBytesMax)
    return invalid(fmt::format("store: external of item {} has {} bytes, at most {}", number,
                               item.external.size, kExternalDigestBytesMax));
  return {};
}

StoreItem read_item(const tiercel_store_item& item) {
  StoreItem out;
  out.key = key_of(item.key);
  if (item.length > 1) out.parent = key_of(item.parent);
  out.length = item.length;
  // Beyond what the node can count there is no such class: the largest one will do.
  out.cls = ClassId(static_cast<std::uint16_t>(std::min(item.class_id, kNumberMax)));
  out.shard = ShardId(static_cast<std::uint16_t>(std::min(item.shard, kNumberMax)));
  out.slot = item.slot;
  if (item.bytes != 0) out.bytes = item.bytes;
  out.resume_point = item.resume_point != 0;
  if (item.external.size != 0) {
    std::memcpy(out.external.bytes.data(), item.external.data, static_cast<std::size_t>(item.external.size));
    out.external.size = static_cast<std::uint8_t>(item.external.size);
  }
  return out;
}

}  // namespace

Answer read_store(std::string_view name, const tiercel_store_options* options, tiercel_store_options& given,
                  std::span<const tiercel_store_item>& items) {
  TIERCEL_RETURN_UNLESS_OK(read_options(name, options, given));
  TIERCEL_RETURN_UNLESS_OK(check_reserved(name, given.reserved));
  TIERCEL_RETURN_UNLESS_OK(read_list("store: items", given.items, given.item_count, items));
  for (std::size_t i = 0; i < items.size(); ++i) TIERCEL_RETURN_UNLESS_OK(check_item(items[i], i));
  return {};
}

Answer check_tell_lower(std::string_view name, const Core& core, const tiercel_store_options& given) {
  if (given.tell_lower == 0 || core.has_disk()) return {};
  return unsupported(fmt::format("{}: tell_lower is set, but the node has no tier below the host", name));
}

StoreRequest request_of(const tiercel_namespace& ns, RequestId request,
                        std::span<const tiercel_store_item> items) {
  StoreRequest out;
  out.session = ns.session;
  out.ns = ns.id;
  out.request = request;
  for (const tiercel_store_item& item : items) out.items.push_back(read_item(item));
  return out;
}

void write_outcomes(std::span<const StoreOutcome> from, tiercel_outcome* to) {
  if (to == nullptr) return;
  std::transform(from.begin(), from.end(), to,
                 [](StoreOutcome outcome) { return static_cast<tiercel_outcome>(outcome); });
}

}  // namespace tiercel::capi
