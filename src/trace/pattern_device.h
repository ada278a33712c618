// Engine memory for replays: every slot holds the first bytes of one record, and what they must be follows
// from the record's key, class and position, so any byte that is not the right one shows.
//
// Threads: read() and write() on ranges that do not overlap; the rest by one thread.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "base/status.h"
#include "device/device.h"
#include "model/key_chain.h"
#include "model/storage_form.h"

namespace tiercel {

class PatternDevice final : public Device {
 public:
  // `slots` for each class of `form`, of which the first `kept_bytes_max` bytes of a record's payload really
  // exist. Errors: resource_exhausted when the bytes that exist pass kPatternBytesMax, or addresses 2^63.
  static Result<std::unique_ptr<PatternDevice>> create(const StorageForm& form, std::uint64_t slots,
                                                       std::uint64_t kept_bytes_max);

  // Errors: io_error for a range outside one slot's kept bytes.
  Status read(std::uint64_t address, MutableByteView into) override;
  Status write(std::uint64_t address, ByteView from) override;
  std::uint64_t size_bytes() const override { return size_bytes_; }

  DevicePool pool(ClassId cls) const;  // for register_memory
  void fill(ClassId cls, std::uint64_t slot, const Key& key);
  void poison(ClassId cls, std::uint64_t slot);  // no record's bytes
  bool holds(ClassId cls, std::uint64_t slot, const Key& key) const;

 private:
  struct Memory {
    std::uint64_t base = 0;
    std::uint64_t record_bytes = 0;
    std::uint64_t kept_bytes = 0;
    std::unique_ptr<std::byte[]> bytes;  // slots × kept_bytes
  };
  PatternDevice() = default;
  Result<std::byte*> place(std::uint64_t address, std::uint64_t length);
  MutableByteView kept(ClassId cls, std::uint64_t slot) const;

  std::vector<Memory> classes_;
  std::uint64_t slots_ = 0;
  std::uint64_t size_bytes_ = 0;
};

inline constexpr std::uint64_t kPatternBytesMax = 16ULL << 30;

}  // namespace tiercel
