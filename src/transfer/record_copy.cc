#include "transfer/record_copy.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/crc32c.h"
#include "base/fault.h"

namespace tiercel {

namespace {

// One record in the arena, by position in its payload.
class StoredRecord final {
 public:
  StoredRecord(const RecordPlace& place, Arena& arena)
      : place_(place),
        arena_(arena),
        cls_(place.form->classes.at(place.cls.value())),
        header_bytes_(tiercel::header_bytes(cls_)),
        kept_(arena.payload_kept(cls_.record_bytes)) {
    TIERCEL_CHECK(place.label.cls == place.cls);
  }

  const ClassForm& cls() const { return cls_; }

  Result<RecordHeader> read_header() {
    std::vector<std::byte> header(header_bytes_);
    for (std::uint64_t position = 0; position < header_bytes_;) {
      const ByteView view = arena_.view(place_.spans, position, header_bytes_ - position);
      std::copy(view.begin(), view.end(), header.begin() + static_cast<std::ptrdiff_t>(position));
      position += view.size();
    }
    return decode_header(header, *place_.form, place_.label, kept_);
  }
  void write_header(std::vector<std::uint32_t> checksums) {
    std::vector<std::byte> header(header_bytes_);
    encode_header(make_header(*place_.form, place_.label, kept_, std::move(checksums)), header);
    overwrite_header(header);
  }
  void destroy_header() { overwrite_header(std::vector<std::byte>(header_bytes_)); }

  // Calls step(payload position, bytes) over the kept bytes of one layer, in order, each call followed by the
  // checksum of what those bytes then are. Returns: the layer's checksum, or step's error.
  template <typename Step>
  Result<std::uint32_t> checksum(const LayerRun& layer, const Step& step) {
    const std::uint64_t length = kept_of_run(layer, kept_);
    const std::uint64_t checked_length = TIERCEL_FAULT(checksum_first_half_only) ? length / 2 : length;
    std::uint32_t crc = crc32c({});
    for (std::uint64_t done = 0; done < length;) {
      const MutableByteView bytes =
          arena_.view(place_.spans, header_bytes_ + layer.offset + done, length - done);
      TIERCEL_RETURN_IF_ERROR(step(layer.offset + done, bytes));
      const std::uint64_t unchecked = checked_length - std::min(checked_length, done);
      crc = crc32c(bytes.first(std::min<std::uint64_t>(bytes.size(), unchecked)), crc);
      done += bytes.size();
    }
    return crc;
  }

 private:
  void overwrite_header(ByteView header) {
    for (std::uint64_t position = 0; position < header_bytes_;) {
      const MutableByteView view = arena_.view(place_.spans, position, header_bytes_ - position);
      const ByteView part = header.subspan(position, view.size());
      std::copy(part.begin(), part.end(), view.begin());
      position += view.size();
    }
  }

  const RecordPlace& place_;
  Arena& arena_;
  const ClassForm& cls_;
  std::uint64_t header_bytes_;
  std::uint64_t kept_;
};

constexpr auto kTouchNothing = [](std::uint64_t, MutableByteView) { return Status{}; };

// Cuts payload bytes that start at `position` where the engine's runs end: step(device address, part).
template <typename Step>
Status for_each_engine_part(const RecordCopy& copy, std::uint64_t position, MutableByteView bytes,
                            const Step& step) {
  const std::vector<DeviceRun>& runs = copy.engine->runs;
  auto run = std::upper_bound(runs.begin(), runs.end(), position,
                              [](std::uint64_t at, const DeviceRun& r) { return at < r.payload_offset; });
  TIERCEL_CHECK(run != runs.begin());
  for (--run; !bytes.empty(); ++run) {
    TIERCEL_CHECK(run != runs.end());
    const std::uint64_t inside = position - run->payload_offset;
    const std::uint64_t length = std::min<std::uint64_t>(bytes.size(), run->length - inside);
    if (Status status = step(run->base + copy.slot * run->stride + inside, bytes.first(length)); !status.ok())
      return status;
    bytes = bytes.subspan(length);
    position += length;
  }
  return {};
}

void check_engine(const RecordCopy& copy) {
  TIERCEL_CHECK(copy.engine != nullptr);
  TIERCEL_CHECK(copy.engine->cls == copy.place.cls && copy.slot < copy.engine->slots);
}

Status store(const RecordCopy& copy, StoredRecord record, Device& device) {
  check_engine(copy);
  record.destroy_header();
  const auto fetch = [&](std::uint64_t position, MutableByteView bytes) {
    return for_each_engine_part(copy, position, bytes, [&](std::uint64_t address, MutableByteView part) {
      return device.read(address, part);
    });
  };
  std::vector<std::uint32_t> checksums;
  for (const LayerRun& layer : record.cls().layers) {
    const bool skipped = TIERCEL_FAULT(store_skips_last_layer) && &layer == &record.cls().layers.back();
    const auto sum = skipped ? record.checksum(layer, kTouchNothing) : record.checksum(layer, fetch);
    if (!sum) return sum.error();
    checksums.push_back(*sum);
  }
  record.write_header(std::move(checksums));
  return {};
}

Status seal(StoredRecord record) {
  std::vector<std::uint32_t> checksums;
  for (const LayerRun& layer : record.cls().layers)
    checksums.push_back(record.checksum(layer, kTouchNothing).value());
  record.write_header(std::move(checksums));
  return {};
}

// The header first, then each layer of the range: `step` as in StoredRecord::checksum.
template <typename Step>
Status check_layers(const RecordCopy& copy, StoredRecord record, bool verify, const Step& step) {
  const ClassForm& cls = record.cls();
  TIERCEL_CHECK(copy.layers.first <= copy.layers.last && copy.layers.last <= cls.layers.size());
  const Result<RecordHeader> header = record.read_header();
  if (!header && !TIERCEL_FAULT(skip_verify)) return header.error();
  for (std::uint32_t i = copy.layers.first; i < copy.layers.last; ++i) {
    const Result<std::uint32_t> sum = record.checksum(cls.layers[i], step);
    if (!sum) return sum.error();
    if (!verify || TIERCEL_FAULT(skip_verify)) continue;
    if (Status status = check_run(*header, cls, i, *sum); !status.ok()) return status;
  }
  return {};
}

Status load(const RecordCopy& copy, StoredRecord record, Device& device) {
  check_engine(copy);
  return check_layers(copy, record, copy.verify, [&](std::uint64_t position, MutableByteView bytes) {
    return for_each_engine_part(copy, position, bytes, [&](std::uint64_t address, MutableByteView part) {
      return device.write(address, part);
    });
  });
}

class CopyTask final : public Task {
 public:
  CopyTask(OperationId operation, std::uint64_t index, RecordCopy copy, Arena& arena, Device& device,
           std::shared_ptr<CopyDoneQueue> queue)
      : operation_(operation),
        index_(index),
        copy_(std::move(copy)),
        arena_(arena),
        device_(device),
        queue_(std::move(queue)) {}
  void run() override {
    Status status;
    {  // the engine's memory is let go before anybody hears of the end
      const RecordCopy copy = std::move(copy_);
      status = carry_out(copy, arena_, device_);
    }
    queue_->push({operation_, index_, std::move(status)});
  }

 private:
  OperationId operation_;
  std::uint64_t index_;
  RecordCopy copy_;
  Arena& arena_;
  Device& device_;
  std::shared_ptr<CopyDoneQueue> queue_;  // shared with the node and the other tasks under way
};

}  // namespace

Status carry_out(const RecordCopy& copy, Arena& arena, Device& device) {
  const StoredRecord record(copy.place, arena);
  switch (copy.kind) {
    case CopyKind::kStore:
      return store(copy, record, device);
    case CopyKind::kSeal:
      return seal(record);
    case CopyKind::kVerify:
      return check_layers(copy, record, true, kTouchNothing);
    case CopyKind::kLoad:
      return load(copy, record, device);
  }
  TIERCEL_CHECK(false);
  return {};
}

void move_record(std::span<const ArenaSpan> from, std::span<const ArenaSpan> to, std::uint64_t kept_bytes,
                 Arena& arena) {
  for (std::uint64_t position = 0; position < kept_bytes;) {
    const ByteView source = arena.view(from, position, kept_bytes - position);
    const MutableByteView target = arena.view(to, position, source.size());
    const ByteView part = source.first(target.size());
    std::copy(part.begin(), part.end(), target.begin());
    position += part.size();
  }
}

void CopyDoneQueue::push(CopyDone done) {
  const MutexLock lock(mutex_);
  done_.push_back(std::move(done));
}

std::vector<CopyDone> CopyDoneQueue::drain() {
  const MutexLock lock(mutex_);
  return std::exchange(done_, {});
}

std::unique_ptr<Task> make_copy_task(OperationId operation, std::uint64_t index, RecordCopy copy,
                                     Arena& arena, Device& device, std::shared_ptr<CopyDoneQueue> queue) {
  return std::make_unique<CopyTask>(operation, index, std::move(copy), arena, device, std::move(queue));
}

}  // namespace tiercel
