#include "bench/record_parts.h"

#include <cstring>
#include <utility>

#include "base/check.h"
#include "base/prng.h"
#include "memory/record.h"

namespace tiercel {
namespace {

std::shared_ptr<const StorageForm> form_of(std::uint64_t record_bytes) {
  ModelSpec spec;
  spec.model_type = "bench";
  spec.page_tokens = CopyWorld::kPageTokens;
  spec.topology = {1, 1, 1};
  Group group;
  group.kind = FullKind{};
  for (std::uint32_t layer = 0; layer < CopyWorld::kLayers; ++layer) group.layers.push_back(layer);
  const std::uint64_t bytes =
      record_bytes / CopyWorld::kLayers / CopyWorld::kPageTokens;  // of a token in one layer
  group.components = {{"kv", {bytes}, DType::kU8, bytes}};
  spec.groups = {group};
  return std::make_shared<const StorageForm>(make_storage_form(std::move(spec)).value());
}

}  // namespace

Result<std::unique_ptr<CopyWorld>> CopyWorld::create(std::uint64_t record_bytes, std::uint64_t footprint) {
  std::unique_ptr<CopyWorld> world(new CopyWorld(record_bytes, footprint));
  MappingOptions options;
  options.bytes = world->slots_ * world->stride_;
  TIERCEL_ASSIGN_OR_RETURN(world->arena_memory_, Mapping::open(options));
  options.bytes = world->slots_ * record_bytes;
  TIERCEL_ASSIGN_OR_RETURN(world->engine_memory_, Mapping::open(options));
  world->wire();
  return world;
}

CopyWorld::CopyWorld(std::uint64_t record_bytes, std::uint64_t footprint)
    : record_bytes_(record_bytes),
      form_(form_of(record_bytes)),
      header_(header_bytes(form_->classes[0])),
      stride_((header_ + record_bytes + kRecordAlignment - 1) / kRecordAlignment * kRecordAlignment),
      slots_(std::max<std::uint64_t>(footprint / record_bytes, 2)) {}

RecordCopy CopyWorld::copy(CopyKind kind, bool verify) const {
  RecordCopy copy;
  copy.kind = kind;
  copy.place = {form_, form_->classes[0].id, {{0, header_ + record_bytes_}}, {}};
  copy.place.label.generation = 1;
  copy.engine = pool_;
  copy.layers = {0, kLayers};
  copy.verify = verify;
  return copy;
}

void CopyWorld::aim(RecordCopy& copy, std::uint64_t slot) const {
  copy.place.spans[0].offset = slot * stride_;
  copy.place.label.key.words = {slot, 1};
  copy.slot = mate(slot);
}

void CopyWorld::carry_out_now(const RecordCopy& copy) {
  const Status status = carry_out(copy, *arena_, *device_);
  TIERCEL_CHECK(status.ok());
}

void CopyWorld::memcpy_now(CopyKind kind, std::uint64_t slot) {
  std::byte* record = arena_memory_.bytes().data() + slot * stride_ + header_;
  std::byte* page = engine_memory_.bytes().data() + mate(slot) * record_bytes_;
  if (kind == CopyKind::kStore)
    std::memcpy(record, page, record_bytes_);
  else
    std::memcpy(page, record, record_bytes_);
}

void CopyWorld::wire() {
  arena_ = std::make_unique<ByteArena>(arena_memory_.bytes());
  device_ = std::make_unique<HostDevice>(engine_memory_.bytes());
  // One run for the whole page: engines that keep a page's layers together.
  pool_ = std::make_shared<const DevicePool>(
      DevicePool{form_->classes[0].id, ShardId(0), slots_, {DeviceRun{0, record_bytes_, 0, record_bytes_}}});
  Prng prng(1);
  for (std::byte *at = engine_memory_.bytes().data(), *end = at + slots_ * record_bytes_; at < end;
       at += 4096)
    store_le(at, prng.next());
  RecordCopy store = copy(CopyKind::kStore, true);
  for (std::uint64_t slot = 0; slot < slots_; ++slot) {
    aim(store, slot);
    carry_out_now(store);
  }
}

}  // namespace tiercel
