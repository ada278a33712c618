#include "transfer/record_copy.h"

#include <algorithm>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "base/check.h"
#include "base/copy.h"
#include "base/crc32c.h"
#include "base/fault.h"

namespace tiercel {

namespace {

constexpr std::uint64_t kAskedAhead = 4096;

// Starts to bring the bytes near, waiting for none.
void ask_for(ByteView bytes) {
  constexpr std::size_t kLineBytes = 64;
  for (std::size_t at = 0; at < bytes.size(); at += kLineBytes) __builtin_prefetch(bytes.data() + at);
}

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
    // The payload is asked for while the header is waited for.
    const MutableByteView start = arena_.view(place_.spans, 0, header_bytes_ + std::min(kept_, kAskedAhead));
    ask_for(start);
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
  void relabel(RecordHeader header, std::uint32_t generation) {
    header.label.generation = generation;
    std::vector<std::byte> bytes(header_bytes_);
    encode_header(header, bytes);
    overwrite_header(bytes);
  }
  void destroy_header() { overwrite_header(std::vector<std::byte>(header_bytes_)); }

  // Moves the kept bytes of one layer, in order: step(payload position, bytes, sum so far) gives the sum with
  // theirs. Returns: the layer's checksum, or step's error.
  template <typename Step>
  Result<std::uint32_t> checksum(const LayerRun& layer, const Step& step) {
    const std::uint64_t length = kept_of_run(layer, kept_);
    const std::uint64_t checked = TIERCEL_FAULT(checksum_first_half_only) ? length / 2 : length;
    std::uint32_t crc = crc32c({});
    for (std::uint64_t done = 0; done < length;) {
      const std::uint64_t end = done < checked ? checked : length;
      const MutableByteView bytes = view(layer.offset + done, end - done);
      TIERCEL_ASSIGN_OR_RETURN(const std::uint32_t sum, step(layer.offset + done, bytes, crc));
      if (done < checked) crc = sum;
      done += bytes.size();
    }
    return crc;
  }
  // Moves the kept bytes of neighbouring layers in as few pieces as they lie in: step(payload position,
  // bytes).
  template <typename Step>
  Status for_each_piece(const LayerRange& layers, const Step& step) {
    if (layers.first == layers.last) return {};
    const LayerRun& last = cls_.layers[layers.last - 1];
    const std::uint64_t end = std::min(last.offset + last.length, kept_);
    for (std::uint64_t at = cls_.layers[layers.first].offset; at < end;) {
      const MutableByteView bytes = view(at, end - at);
      if (Status status = step(at, bytes); !status.ok()) return status;
      at += bytes.size();
    }
    return {};
  }
  // Records that are long enough to push out of the caches what is needed there go past them.
  WritePath path() const { return kept_ >= kPastCacheBytes ? WritePath::kPastCache : WritePath::kCached; }

 private:
  static constexpr std::uint64_t kPastCacheBytes = 32 << 10;

  MutableByteView view(std::uint64_t payload_position, std::uint64_t length) {
    return arena_.view(place_.spans, header_bytes_ + payload_position, length);
  }
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

constexpr auto kTouchNothing = [](std::uint64_t, MutableByteView bytes,
                                  std::uint32_t crc) -> Result<std::uint32_t> { return crc32c(bytes, crc); };

// Cuts payload bytes that start at `position` where the engine's runs end: step(device address, part, whether
// the run goes on behind it).
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
    const bool goes_on = inside + length < run->length;
    Status status = step(run->base + copy.slot * run->stride + inside, bytes.first(length), goes_on);
    if (!status.ok()) return status;
    bytes = bytes.subspan(length);
    position += length;
  }
  return {};
}

void check_engine(const RecordCopy& copy) {
  TIERCEL_CHECK(copy.engine != nullptr);
  TIERCEL_CHECK(copy.engine->cls == copy.place.cls && copy.slot < copy.engine->slots);
}

// Between the engine and the arena. Where the processor reaches both, each byte is read once, on its way into
// the sum and the target.
class Mover final {
 public:
  Mover(const RecordCopy& copy, Device& device, WritePath path) : copy_(copy), device_(device), path_(path) {
    check_engine(copy);
  }

  // The engine's first bytes are asked for while the header is written.
  void ask_for_first() const {
    const DeviceRun& run = copy_.engine->runs.front();
    ask_for(device_.host_view(run.base + copy_.slot * run.stride, std::min(run.length, kAskedAhead)));
  }
  Result<std::uint32_t> fetch(std::uint64_t position, MutableByteView bytes, std::uint32_t crc) const {
    const Status status = for_each_engine_part(
        copy_, position, bytes, [&](std::uint64_t address, MutableByteView part, bool goes_on) {
          while (!part.empty()) {
            const ByteView from = device_.host_view(address, part.size());
            if (from.empty()) {
              if (Status read = device_.read(address, part); !read.ok()) return read;
              crc = crc32c(part, crc);
              break;
            }
            crc = crc32c_copy(part.data(), from, crc, path_, goes_on);
            part = part.subspan(from.size());
            address += from.size();
          }
          return Status{};
        });
    if (!status.ok()) return tl::unexpected(status);
    return crc;
  }

  Result<std::uint32_t> deliver(std::uint64_t position, MutableByteView bytes, std::uint32_t crc) const {
    const Status status =
        for_each_engine_part(copy_, position, bytes, [&](std::uint64_t address, ByteView part, bool) {
          while (!part.empty()) {
            const MutableByteView to = device_.host_view(address, part.size());
            if (to.empty()) {
              if (Status written = device_.write(address, part); !written.ok()) return written;
              crc = crc32c(part, crc);
              break;
            }
            crc = crc32c_copy(to.data(), part.first(to.size()), crc, path_, true);
            part = part.subspan(to.size());
            address += to.size();
          }
          return Status{};
        });
    if (!status.ok()) return tl::unexpected(status);
    return crc;
  }

  Status deliver_unchecked(std::uint64_t position, MutableByteView bytes) const {
    return for_each_engine_part(copy_, position, bytes, [&](std::uint64_t address, ByteView part, bool) {
      while (!part.empty()) {
        const MutableByteView to = device_.host_view(address, part.size());
        if (to.empty()) return device_.write(address, part);
        copy_bytes(to.data(), part.first(to.size()), path_);
        part = part.subspan(to.size());
        address += to.size();
      }
      return Status{};
    });
  }

 private:
  const RecordCopy& copy_;
  Device& device_;
  WritePath path_;
};

Status store(const RecordCopy& copy, StoredRecord record, Device& device) {
  const Mover mover(copy, device, record.path());
  mover.ask_for_first();
  record.destroy_header();
  const auto fetch = [&](std::uint64_t position, MutableByteView bytes, std::uint32_t crc) {
    return mover.fetch(position, bytes, crc);
  };
  std::vector<std::uint32_t> checksums;
  checksums.reserve(record.cls().layers.size());
  for (const LayerRun& layer : record.cls().layers) {
    const bool skipped = TIERCEL_FAULT(store_skips_last_layer) && &layer == &record.cls().layers.back();
    const auto sum = skipped ? record.checksum(layer, kTouchNothing) : record.checksum(layer, fetch);
    if (!sum) return sum.error();
    checksums.push_back(*sum);
  }
  copy_fence();  // nobody may see the header before the bytes that it speaks of
  record.write_header(std::move(checksums));
  return {};
}

Status seal(const RecordCopy& copy, StoredRecord record) {
  TIERCEL_CHECK(copy.checksums.empty() || copy.checksums.size() == record.cls().layers.size());
  if (copy.trusted && !copy.checksums.empty()) {
    record.write_header(copy.checksums);
    return {};
  }
  std::vector<std::uint32_t> checksums;
  for (const LayerRun& layer : record.cls().layers)
    checksums.push_back(record.checksum(layer, kTouchNothing).value());
  for (std::size_t i = 0; i < copy.checksums.size(); ++i) {
    if (copy.checksums[i] == checksums[i] || TIERCEL_FAULT(writer_checksum_ignored)) continue;
    record.destroy_header();
    return {
        Code::kDataCorrupt,
        fmt::format("seal: layer {} has checksum {:08x} in the arena, its writer says {:08x}; write it again",
                    record.cls().layers[i].layer, checksums[i], copy.checksums[i])};
  }
  record.write_header(std::move(checksums));
  return {};
}

Status check_header(const RecordCopy& copy, StoredRecord& record, std::optional<RecordHeader>& header) {
  TIERCEL_CHECK(copy.layers.first <= copy.layers.last && copy.layers.last <= record.cls().layers.size());
  Result<RecordHeader> read = record.read_header();
  if (read) header = std::move(*read);
  return read || TIERCEL_FAULT(skip_verify) ? Status{} : read.error();
}

// The header first, then each layer of the range: `step` as in StoredRecord::checksum.
template <typename Step>
Status check_layers(const RecordCopy& copy, StoredRecord record, const Step& step) {
  const ClassForm& cls = record.cls();
  std::optional<RecordHeader> header;
  if (Status status = check_header(copy, record, header); !status.ok()) return status;
  for (std::uint32_t i = copy.layers.first; i < copy.layers.last; ++i) {
    const Result<std::uint32_t> sum = record.checksum(cls.layers[i], step);
    if (!sum) return sum.error();
    if (TIERCEL_FAULT(skip_verify)) continue;
    if (Status status = check_run(*header, cls, i, *sum); !status.ok()) return status;
  }
  return {};
}

// The checksums are those that it was verified by; the digest of the engine stays.
Status adopt(const RecordCopy& copy, StoredRecord record) {
  RecordCopy whole = copy;
  whole.layers = {0, static_cast<std::uint32_t>(record.cls().layers.size())};
  Status status =
      TIERCEL_FAULT(disk_checksum_skipped) ? Status{} : check_layers(whole, record, kTouchNothing);
  const Result<RecordHeader> header = record.read_header();
  if (status.ok() && !header) status = header.error();
  if (!status.ok()) {
    record.destroy_header();
    return status;
  }
  record.relabel(*header, copy.generation);
  return {};
}

Status load(const RecordCopy& copy, StoredRecord record, Device& device) {
  const Mover mover(copy, device, record.path());
  if (copy.verify)
    return check_layers(copy, record, [&](std::uint64_t position, MutableByteView bytes, std::uint32_t crc) {
      return mover.deliver(position, bytes, crc);
    });
  std::optional<RecordHeader> header;
  if (Status status = check_header(copy, record, header); !status.ok()) return status;
  return record.for_each_piece(copy.layers, [&](std::uint64_t position, MutableByteView bytes) {
    return mover.deliver_unchecked(position, bytes);
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
  // However it ends: what was written past the caches comes before whatever anybody does next.
  struct Fence {
    ~Fence() { copy_fence(); }
  } const fence;
  switch (copy.kind) {
    case CopyKind::kStore:
      return store(copy, record, device);
    case CopyKind::kSeal:
      return seal(copy, record);
    case CopyKind::kVerify:
      return check_layers(copy, record, kTouchNothing);
    case CopyKind::kAdopt:
      return adopt(copy, record);
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
    copy_bytes(target.data(), part, WritePath::kPastCache);
    position += part.size();
  }
  copy_fence();
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
