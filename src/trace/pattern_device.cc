#include "trace/pattern_device.h"

#include <algorithm>
#include <cstring>

#include <fmt/format.h>

#include "base/check.h"
#include "base/checked.h"
#include "base/prng.h"

namespace tiercel {
namespace {

constexpr std::uint64_t kWordBytes = 8;
constexpr std::byte kPoison{0xA5};

// The right bytes of a record, eight at a time.
class Pattern final {
 public:
  Pattern(ClassId cls, const Key& key)
      : seed_(mix64(key.words[0] ^ mix64(key.words[1] ^ mix64(cls.value() + 1ULL)))) {}
  std::uint64_t word(std::uint64_t index) const { return mix64(seed_ + index * 0x9E3779B97F4A7C15ULL); }

 private:
  std::uint64_t seed_;
};

}  // namespace

Result<std::unique_ptr<PatternDevice>> PatternDevice::create(const StorageForm& form, std::uint64_t slots,
                                                             std::uint64_t kept_bytes_max) {
  std::unique_ptr<PatternDevice> device(new PatternDevice);
  device->slots_ = slots;
  std::uint64_t kept_total = 0;
  for (const ClassForm& cls : form.classes) {
    Memory& memory = device->classes_.emplace_back();
    memory.base = device->size_bytes_;
    memory.record_bytes = cls.record_bytes;
    memory.kept_bytes = std::min(cls.record_bytes, kept_bytes_max);
    const auto addresses = checked_mul(slots, cls.record_bytes);
    const auto end = addresses ? checked_add(memory.base, *addresses) : std::nullopt;
    const auto kept = checked_mul(slots, memory.kept_bytes);
    kept_total = kept ? std::min(kept_total + *kept, kSizeMax) : kSizeMax;
    if (!end || kept_total > kPatternBytesMax)
      return error(
          Code::kResourceExhausted,
          fmt::format("the longest request has {} pages; with {} bytes of each record they pass {} bytes: "
                      "use a smaller --page-bytes",
                      slots, kept_bytes_max, kPatternBytesMax));
    device->size_bytes_ = *end;
    memory.bytes = std::make_unique<std::byte[]>(*kept);
  }
  return device;
}

DevicePool PatternDevice::pool(ClassId cls) const {
  const Memory& memory = classes_.at(cls.value());
  return {cls, ShardId(0), slots_, {{0, memory.record_bytes, memory.base, memory.record_bytes}}};
}

Result<std::byte*> PatternDevice::place(std::uint64_t address, std::uint64_t length) {
  auto memory = std::upper_bound(classes_.begin(), classes_.end(), address,
                                 [](std::uint64_t at, const Memory& m) { return at < m.base; });
  if (memory != classes_.begin() && address < size_bytes_) {
    --memory;
    const std::uint64_t slot = (address - memory->base) / memory->record_bytes;
    const std::uint64_t inside = (address - memory->base) % memory->record_bytes;
    if (inside <= memory->kept_bytes && length <= memory->kept_bytes - inside)
      return memory->bytes.get() + slot * memory->kept_bytes + inside;
  }
  return error(Code::kIoError,
               fmt::format("[{}, +{}) is not within the kept bytes of one slot", address, length));
}

Status PatternDevice::read(std::uint64_t address, MutableByteView into) {
  const Result<std::byte*> from = place(address, into.size());
  if (!from) return from.error();
  std::copy_n(*from, into.size(), into.begin());
  return {};
}

Status PatternDevice::write(std::uint64_t address, ByteView from) {
  const Result<std::byte*> to = place(address, from.size());
  if (!to) return to.error();
  std::copy(from.begin(), from.end(), *to);
  return {};
}

MutableByteView PatternDevice::kept(ClassId cls, std::uint64_t slot) const {
  TIERCEL_CHECK(slot < slots_);
  const Memory& memory = classes_.at(cls.value());
  return {memory.bytes.get() + slot * memory.kept_bytes, memory.kept_bytes};
}

void PatternDevice::fill(ClassId cls, std::uint64_t slot, const Key& key) {
  const Pattern pattern(cls, key);
  MutableByteView bytes = kept(cls, slot);
  for (std::uint64_t index = 0; !bytes.empty(); ++index) {
    const std::uint64_t word = pattern.word(index);
    const std::size_t length = std::min<std::size_t>(bytes.size(), kWordBytes);
    std::memcpy(bytes.data(), &word, length);
    bytes = bytes.subspan(length);
  }
}

void PatternDevice::poison(ClassId cls, std::uint64_t slot) {
  const MutableByteView bytes = kept(cls, slot);
  std::fill(bytes.begin(), bytes.end(), kPoison);
}

bool PatternDevice::holds(ClassId cls, std::uint64_t slot, const Key& key) const {
  const Pattern pattern(cls, key);
  ByteView bytes = kept(cls, slot);
  for (std::uint64_t index = 0; !bytes.empty(); ++index) {
    const std::uint64_t word = pattern.word(index);
    const std::size_t length = std::min<std::size_t>(bytes.size(), kWordBytes);
    if (std::memcmp(bytes.data(), &word, length) != 0) return false;
    bytes = bytes.subspan(length);
  }
  return true;
}

}  // namespace tiercel
