#include "memory/record.h"

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "base/check.h"
#include "base/checked.h"
#include "base/crc32c.h"

namespace tiercel {
namespace {

constexpr std::string_view kMagic = "TIERCREC";

// Offsets of the fields; docs/format.md has the same table.
constexpr std::size_t kVersionAt = 8;
constexpr std::size_t kExternalSizeAt = 10;
constexpr std::size_t kZeroAt = 11;
constexpr std::size_t kRunsAt = 12;
constexpr std::size_t kFormAt = 16;
constexpr std::size_t kRootAt = 48;
constexpr std::size_t kKeyAt = 80;
constexpr std::size_t kClassAt = 96;
constexpr std::size_t kShardAt = 98;
constexpr std::size_t kGenerationAt = 100;
constexpr std::size_t kPayloadAt = 104;
constexpr std::size_t kKeptAt = 112;
constexpr std::size_t kExternalAt = 120;
constexpr std::size_t kChecksumsAt = 184;
constexpr std::size_t kChecksumBytes = 4;

std::uint64_t header_bytes_for(std::uint64_t runs) {
  const std::uint64_t used = kChecksumsAt + kChecksumBytes * (runs + 1);
  return (used + kRecordAlignment - 1) / kRecordAlignment * kRecordAlignment;
}

Status differs(std::string_view field, const auto& wanted, const auto& got) {
  return {Code::kDataCorrupt, fmt::format("record header: {}: wanted {}, got {}", field, wanted, got)};
}

std::string hex(ByteView bytes) {
  std::string out;
  for (const std::byte b : bytes) fmt::format_to(std::back_inserter(out), "{:02x}", std::to_integer<int>(b));
  return out;
}
std::string checksum_text(std::uint32_t checksum) { return fmt::format("{:#010x}", checksum); }

void put(MutableByteView out, std::size_t at, ByteView bytes) {
  std::copy(bytes.begin(), bytes.end(), out.begin() + static_cast<std::ptrdiff_t>(at));
}
Digest digest_at(ByteView bytes, std::size_t at) {
  Digest digest;
  std::copy_n(bytes.begin() + static_cast<std::ptrdiff_t>(at), digest.size(), digest.begin());
  return digest;
}

bool all_zero(ByteView bytes) {
  return std::all_of(bytes.begin(), bytes.end(), [](std::byte b) { return b == std::byte{0}; });
}

// What must be right before any other field means anything. `bytes` may be longer than the header.
Status check_frame(ByteView bytes) {
  if (bytes.size() < header_bytes_for(1))
    return differs("size", fmt::format("at least {} bytes", header_bytes_for(1)), bytes.size());
  const ByteView magic = bytes.first(kMagic.size());
  if (!std::equal(magic.begin(), magic.end(), as_byte_view(kMagic).begin()))
    return differs("magic", hex(as_byte_view(kMagic)), hex(magic));
  const auto version = load_le<std::uint16_t>(bytes.data() + kVersionAt);
  if (version != kRecordVersion) return differs("format version", kRecordVersion, version);
  const auto runs = load_le<std::uint32_t>(bytes.data() + kRunsAt);
  if (runs == 0 || header_bytes_for(runs) > bytes.size())
    return differs("layer runs", fmt::format("1 to what {} bytes can hold", bytes.size()), runs);
  const std::uint64_t checked = header_bytes_for(runs) - kChecksumBytes;
  const std::uint32_t wanted = load_le<std::uint32_t>(bytes.data() + checked);
  const std::uint32_t got = crc32c(bytes.first(checked));
  if (wanted != got) return differs("header checksum", checksum_text(wanted), checksum_text(got));
  return {};
}

// What a header with a right checksum may still not say.
Status check_values(ByteView bytes, const RecordHeader& header) {
  const ExternalDigest& external = header.label.external;
  if (external.size > external.bytes.size())
    return differs("external digest", fmt::format("at most {} bytes", external.bytes.size()), external.size);
  const std::size_t used = kChecksumsAt + kChecksumBytes * header.run_checksums.size();
  const std::uint64_t padding = header_bytes_for(header.run_checksums.size()) - kChecksumBytes - used;
  if (bytes[kZeroAt] != std::byte{0} || !all_zero(ByteView(external.bytes).subspan(external.size)) ||
      !all_zero(bytes.subspan(used, padding)))
    return differs("unused bytes", "0", "another value");
  if (header.label.generation == 0) return differs("generation", "not 0", "0");
  if (header.kept_bytes > header.payload_bytes)
    return differs("kept bytes", fmt::format("at most {}", header.payload_bytes), header.kept_bytes);
  return {};
}

Status compare(const RecordHeader& header, const StorageForm& form, const RecordLabel& label,
               std::uint64_t kept_bytes) {
  const ClassForm& cls = form.classes[label.cls.value()];
  const RecordLabel& got = header.label;
  if (header.form != form.fingerprint)
    return differs("storage form", hex(form.fingerprint), hex(header.form));
  if (got.root != label.root) return differs("namespace", hex(label.root), hex(got.root));
  if (got.key != label.key) return differs("key", to_hex(label.key), to_hex(got.key));
  if (got.cls != label.cls) return differs("class", label.cls.value(), got.cls.value());
  if (got.shard != label.shard) return differs("shard", label.shard.value(), got.shard.value());
  if (label.generation != 0 && got.generation != label.generation)
    return differs("generation", label.generation, got.generation);
  if (header.payload_bytes != cls.record_bytes)
    return differs("payload bytes", cls.record_bytes, header.payload_bytes);
  if (header.kept_bytes != kept_bytes) return differs("kept bytes", kept_bytes, header.kept_bytes);
  if (header.run_checksums.size() != cls.layers.size())
    return differs("layer runs", cls.layers.size(), header.run_checksums.size());
  return {};
}

}  // namespace

std::uint64_t header_bytes(const ClassForm& cls) {
  TIERCEL_CHECK(!cls.layers.empty());
  return header_bytes_for(cls.layers.size());
}

std::uint64_t slot_bytes(const ClassForm& cls) {
  return ceil_div(header_bytes(cls) + cls.record_bytes, kRecordAlignment) * kRecordAlignment;
}

std::uint64_t kept_of_run(const LayerRun& run, std::uint64_t kept_bytes) {
  return kept_bytes <= run.offset ? 0 : std::min(run.length, kept_bytes - run.offset);
}

std::uint32_t run_checksum(const LayerRun& run, ByteView kept_payload) {
  const std::uint64_t length = kept_of_run(run, kept_payload.size());
  return length == 0 ? crc32c({}) : crc32c(kept_payload.subspan(run.offset, length));
}

std::vector<std::uint32_t> run_checksums(const ClassForm& cls, ByteView kept_payload) {
  std::vector<std::uint32_t> list;
  list.reserve(cls.layers.size());
  for (const LayerRun& run : cls.layers) list.push_back(run_checksum(run, kept_payload));
  return list;
}

RecordHeader make_header(const StorageForm& form, const RecordLabel& label, std::uint64_t kept_bytes,
                         std::vector<std::uint32_t> run_checksums) {
  TIERCEL_CHECK(label.cls.value() < form.classes.size());
  const ClassForm& cls = form.classes[label.cls.value()];
  TIERCEL_CHECK(run_checksums.size() == cls.layers.size());
  TIERCEL_CHECK(kept_bytes <= cls.record_bytes);
  TIERCEL_CHECK(label.generation != 0);
  return {label, form.fingerprint, cls.record_bytes, kept_bytes, std::move(run_checksums)};
}

void encode_header(const RecordHeader& header, MutableByteView out) {
  const RecordLabel& label = header.label;
  TIERCEL_CHECK(out.size() == header_bytes_for(header.run_checksums.size()));
  TIERCEL_CHECK(label.external.size <= label.external.bytes.size());
  TIERCEL_CHECK(all_zero(ByteView(label.external.bytes).subspan(label.external.size)));
  std::fill(out.begin(), out.end(), std::byte{0});
  put(out, 0, as_byte_view(kMagic));
  store_le(&out[kVersionAt], kRecordVersion);
  store_le(&out[kExternalSizeAt], label.external.size);
  store_le(&out[kRunsAt], static_cast<std::uint32_t>(header.run_checksums.size()));
  put(out, kFormAt, header.form);
  put(out, kRootAt, label.root);
  store_le(&out[kKeyAt], label.key.words[0]);
  store_le(&out[kKeyAt + 8], label.key.words[1]);
  store_le(&out[kClassAt], label.cls.value());
  store_le(&out[kShardAt], label.shard.value());
  store_le(&out[kGenerationAt], label.generation);
  store_le(&out[kPayloadAt], header.payload_bytes);
  store_le(&out[kKeptAt], header.kept_bytes);
  put(out, kExternalAt, label.external.bytes);
  for (std::size_t i = 0; i < header.run_checksums.size(); ++i)
    store_le(&out[kChecksumsAt + kChecksumBytes * i], header.run_checksums[i]);
  const std::size_t checked = out.size() - kChecksumBytes;
  store_le(&out[checked], crc32c(out.first(checked)));
}

Result<RecordHeader> parse_header(ByteView bytes) {
  TIERCEL_RETURN_IF_ERROR(check_frame(bytes));
  const std::byte* at = bytes.data();
  RecordHeader header;
  RecordLabel& label = header.label;
  label.external.size = load_le<std::uint8_t>(at + kExternalSizeAt);
  std::copy_n(at + kExternalAt, label.external.bytes.size(), label.external.bytes.begin());
  header.form = digest_at(bytes, kFormAt);
  label.root = digest_at(bytes, kRootAt);
  label.key.words = {load_le<std::uint64_t>(at + kKeyAt), load_le<std::uint64_t>(at + kKeyAt + 8)};
  label.cls = ClassId(load_le<std::uint16_t>(at + kClassAt));
  label.shard = ShardId(load_le<std::uint16_t>(at + kShardAt));
  label.generation = load_le<std::uint32_t>(at + kGenerationAt);
  header.payload_bytes = load_le<std::uint64_t>(at + kPayloadAt);
  header.kept_bytes = load_le<std::uint64_t>(at + kKeptAt);
  header.run_checksums.resize(load_le<std::uint32_t>(at + kRunsAt));
  for (std::size_t i = 0; i < header.run_checksums.size(); ++i)
    header.run_checksums[i] = load_le<std::uint32_t>(at + kChecksumsAt + kChecksumBytes * i);
  TIERCEL_RETURN_IF_ERROR(check_values(bytes, header));
  return header;
}

Result<RecordHeader> decode_header(ByteView bytes, const StorageForm& form, const RecordLabel& label,
                                   std::uint64_t kept_bytes) {
  TIERCEL_CHECK(label.cls.value() < form.classes.size());
  TIERCEL_ASSIGN_OR_RETURN(RecordHeader header, parse_header(bytes));
  TIERCEL_RETURN_IF_ERROR(compare(header, form, label, kept_bytes));
  return header;
}

Status check_run(const RecordHeader& header, const ClassForm& cls, std::size_t run, std::uint32_t got) {
  TIERCEL_CHECK(run < header.run_checksums.size() && run < cls.layers.size());
  const std::uint32_t wanted = header.run_checksums[run];
  if (got == wanted) return {};
  return {Code::kDataCorrupt, fmt::format("record: checksum of layer {}: wanted {}, got {}",
                                          cls.layers[run].layer, checksum_text(wanted), checksum_text(got))};
}

}  // namespace tiercel
