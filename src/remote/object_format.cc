#include "remote/object_format.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "base/check.h"
#include "base/crc32c.h"

namespace tiercel::remote {
namespace {

constexpr std::string_view kObjectMagic = "TIERCOBJ";
constexpr std::string_view kMarkerMagic = "TIERCMRK";
constexpr std::size_t kMagicBytes = 8;
constexpr std::size_t kVersionAt = 8;
constexpr std::size_t kHeaderBytesAt = 10;
constexpr std::size_t kBundleAt = 12;
constexpr std::size_t kShardAt = 14;
constexpr std::size_t kSpaceAt = 16;
constexpr std::size_t kKeyAt = 48;
constexpr std::size_t kPagesAt = 64;
constexpr std::size_t kUnusedAt = 68;
constexpr std::size_t kBytesAt = 72;
constexpr std::size_t kComputationAt = 80;
constexpr std::size_t kZerosAt = 88;
constexpr std::size_t kChecksumAt = kObjectHeaderBytes - 4;
constexpr std::size_t kNumberAt = 16;
constexpr std::size_t kMarkerChecksumAt = kMarkerBytes - 4;

std::string hex(ByteView bytes) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string out;
  out.reserve(2 * bytes.size());
  for (const std::byte b : bytes) {
    out.push_back(kDigits[std::to_integer<unsigned>(b) >> 4]);
    out.push_back(kDigits[std::to_integer<unsigned>(b) & 15]);
  }
  return out;
}

bool all_zero(ByteView bytes) {
  return std::all_of(bytes.begin(), bytes.end(), [](std::byte b) { return b == std::byte{0}; });
}

tl::unexpected<Status> differs(std::string_view what, std::string_view field, const auto& wanted,
                               const auto& got) {
  return error(Code::kDataCorrupt, fmt::format("{}: {}: wanted {}, got {}", what, field, wanted, got));
}

void put_magic(std::string_view magic, MutableByteView out) {
  std::memcpy(out.data(), magic.data(), kMagicBytes);
  store_le<std::uint16_t>(out.data() + kVersionAt, kObjectVersion);
}

Result<void> check_frame(std::string_view what, std::string_view magic, ByteView bytes,
                         std::size_t checksum_at) {
  if (std::memcmp(bytes.data(), magic.data(), kMagicBytes) != 0)
    return differs(what, "magic", hex(as_byte_view(magic)), hex(bytes.first(kMagicBytes)));
  const auto version = load_le<std::uint16_t>(bytes.data() + kVersionAt);
  if (version != kObjectVersion)
    return error(Code::kFailedPrecondition,
                 fmt::format("{}: format version: wanted {}, got {}", what, kObjectVersion, version));
  const std::uint32_t wanted = crc32c(bytes.first(checksum_at));
  const auto got = load_le<std::uint32_t>(bytes.data() + checksum_at);
  if (wanted != got)
    return differs(what, "checksum", fmt::format("{:#x}", wanted), fmt::format("{:#x}", got));
  return {};
}

void store_key(const Key& key, std::byte* to) {
  store_le<std::uint64_t>(to, key.words[0]);
  store_le<std::uint64_t>(to + 8, key.words[1]);
}

std::uint64_t page_bytes(const ObjectForm& form, const Bundle& bundle, ShardId shard) {
  std::uint64_t bytes = 0;
  for (const ClassId cls : bundle.classes)
    if (shard.value() < form.form->classes[cls.value()].shards) bytes += form.record_bytes[cls.value()];
  return bytes;
}

Bundle make_bundle(const ObjectForm& form, std::vector<ClassId> classes, const RunLimits& limits) {
  Bundle bundle;
  bundle.id = BundleId(static_cast<std::uint16_t>(form.bundles.size()));
  bundle.classes = std::move(classes);
  for (const ClassId id : bundle.classes) {
    const ClassForm& cls = form.form->classes[id.value()];
    bundle.presence |= Presence{1} << id.value();
    bundle.required = cls.required();
    bundle.state = cls.is_state();
    bundle.optional = cls.optional();
    bundle.shards = std::max(bundle.shards, cls.shards);
  }
  if (bundle.state) return bundle;
  const std::uint64_t page = std::max<std::uint64_t>(1, page_bytes(form, bundle, ShardId(0)));
  const std::uint64_t fit = std::clamp<std::uint64_t>(limits.bytes_max / page, 1, limits.pages_max);
  bundle.run_pages = static_cast<std::uint32_t>(std::bit_floor(fit));
  return bundle;
}

Digest tagged(std::string_view tag, std::initializer_list<ByteView> parts) {
  std::vector<std::byte> text;
  append_bytes(text, as_byte_view(tag));
  text.push_back(std::byte{0});
  for (const ByteView part : parts) append_bytes(text, part);
  return sha256(text);
}

// Half of the digest: 128 bits, as keys have.
std::string short_hex(const Digest& digest) { return hex(ByteView(digest).first(16)); }

}  // namespace

ObjectForm make_object_form(std::shared_ptr<const StorageForm> form, std::vector<std::uint64_t> record_bytes,
                            const RunLimits& limits) {
  TIERCEL_CHECK(record_bytes.size() == form->classes.size());
  TIERCEL_CHECK(std::has_single_bit(limits.pages_max) && limits.pages_max <= kRunPagesMax);
  ObjectForm out;
  out.form = std::move(form);
  out.record_bytes = std::move(record_bytes);
  out.bundle_of.resize(out.form->classes.size());
  std::vector<ClassId> required;
  for (const ClassForm& cls : out.form->classes)
    if (cls.required()) required.push_back(cls.id);
  if (!required.empty()) out.bundles.push_back(make_bundle(out, required, limits));
  for (const ClassForm& cls : out.form->classes)
    if (!cls.required()) out.bundles.push_back(make_bundle(out, {cls.id}, limits));
  for (const Bundle& bundle : out.bundles)
    for (const ClassId cls : bundle.classes) out.bundle_of[cls.value()] = bundle.id;
  return out;
}

std::vector<ObjectRecord> object_records(const ObjectForm& form, const Bundle& bundle, std::uint32_t pages,
                                         ShardId shard) {
  std::vector<ObjectRecord> records;
  std::uint64_t offset = kObjectHeaderBytes;
  for (std::uint32_t page = 0; page < pages; ++page)
    for (const ClassId cls : bundle.classes) {
      if (shard.value() >= form.form->classes[cls.value()].shards) continue;
      const std::uint64_t length = form.record_bytes[cls.value()];
      records.push_back({page, cls, offset, length});
      offset += length;
    }
  return records;
}

std::uint64_t object_bytes(const ObjectForm& form, const Bundle& bundle, std::uint32_t pages, ShardId shard) {
  return kObjectHeaderBytes + pages * page_bytes(form, bundle, shard);
}

ObjectSpace object_space(const Digest& root, const Digest& form, const MarkerNumber& of_form,
                         const MarkerNumber& of_namespace) {
  return {tagged("tiercel.object_space", {root, form, of_form, of_namespace})};
}

std::string object_name(const ObjectLabel& label) {
  return fmt::format("t{}.{}.{}.b{}.n{}.s{}", kObjectVersion, short_hex(label.space.digest),
                     to_hex(label.key), label.bundle.value(), label.pages, label.shard.value());
}

std::string form_marker_name(const Digest& form) {
  return fmt::format("t{}.marker.{}", kObjectVersion, short_hex(tagged("tiercel.form_marker", {form})));
}

std::string namespace_marker_name(const Digest& root, const Digest& form) {
  return fmt::format("t{}.marker.{}", kObjectVersion,
                     short_hex(tagged("tiercel.namespace_marker", {root, form})));
}

void encode_object_header(const ObjectLabel& label, std::uint64_t computation, std::uint64_t bytes,
                          MutableByteView out) {
  TIERCEL_CHECK(out.size() == kObjectHeaderBytes && computation != 0);
  std::fill(out.begin(), out.end(), std::byte{0});
  put_magic(kObjectMagic, out);
  store_le<std::uint16_t>(out.data() + kHeaderBytesAt, kObjectHeaderBytes);
  store_le<std::uint16_t>(out.data() + kBundleAt, label.bundle.value());
  store_le<std::uint16_t>(out.data() + kShardAt, label.shard.value());
  std::copy(label.space.digest.begin(), label.space.digest.end(), out.begin() + kSpaceAt);
  store_key(label.key, out.data() + kKeyAt);
  store_le<std::uint32_t>(out.data() + kPagesAt, label.pages);
  store_le<std::uint64_t>(out.data() + kBytesAt, bytes);
  store_le<std::uint64_t>(out.data() + kComputationAt, computation);
  store_le<std::uint32_t>(out.data() + kChecksumAt, crc32c(ByteView(out).first(kChecksumAt)));
}

Result<std::uint64_t> parse_object_header(ByteView header, const ObjectLabel& wanted, std::uint64_t bytes) {
  TIERCEL_CHECK(header.size() == kObjectHeaderBytes);
  TIERCEL_RETURN_IF_ERROR(check_frame("object", kObjectMagic, header, kChecksumAt));
  const std::byte* at = header.data();
  if (const auto got = load_le<std::uint16_t>(at + kHeaderBytesAt); got != kObjectHeaderBytes)
    return differs("object", "header bytes", kObjectHeaderBytes, got);
  if (const auto got = load_le<std::uint16_t>(at + kBundleAt); got != wanted.bundle.value())
    return differs("object", "bundle", wanted.bundle.value(), got);
  if (const auto got = load_le<std::uint16_t>(at + kShardAt); got != wanted.shard.value())
    return differs("object", "shard", wanted.shard.value(), got);
  const ByteView space = header.subspan(kSpaceAt, wanted.space.digest.size());
  if (!std::equal(space.begin(), space.end(), wanted.space.digest.begin()))
    return differs("object", "space", hex(wanted.space.digest), hex(space));
  const Key key{{load_le<std::uint64_t>(at + kKeyAt), load_le<std::uint64_t>(at + kKeyAt + 8)}};
  if (key != wanted.key) return differs("object", "key", to_hex(wanted.key), to_hex(key));
  if (const auto got = load_le<std::uint32_t>(at + kPagesAt); got != wanted.pages)
    return differs("object", "pages", wanted.pages, got);
  if (const auto got = load_le<std::uint64_t>(at + kBytesAt); got != bytes)
    return differs("object", "bytes", bytes, got);
  if (!all_zero(header.subspan(kUnusedAt, kBytesAt - kUnusedAt)) ||
      !all_zero(header.subspan(kZerosAt, kChecksumAt - kZerosAt)))
    return differs("object", "unused bytes", "0", "another value");
  const auto computation = load_le<std::uint64_t>(at + kComputationAt);
  if (computation == 0) return differs("object", "computation", "not 0", 0);
  return computation;
}

void encode_marker(const MarkerNumber& number, MutableByteView out) {
  TIERCEL_CHECK(out.size() == kMarkerBytes);
  std::fill(out.begin(), out.end(), std::byte{0});
  put_magic(kMarkerMagic, out);
  std::copy(number.begin(), number.end(), out.begin() + kNumberAt);
  store_le<std::uint32_t>(out.data() + kMarkerChecksumAt, crc32c(ByteView(out).first(kMarkerChecksumAt)));
}

Result<MarkerNumber> parse_marker(ByteView bytes) {
  TIERCEL_CHECK(bytes.size() == kMarkerBytes);
  TIERCEL_RETURN_IF_ERROR(check_frame("marker", kMarkerMagic, bytes, kMarkerChecksumAt));
  if (!all_zero(bytes.subspan(kHeaderBytesAt, kNumberAt - kHeaderBytesAt)) ||
      !all_zero(bytes.subspan(kNumberAt + 16, kMarkerChecksumAt - kNumberAt - 16)))
    return differs("marker", "unused bytes", "0", "another value");
  MarkerNumber number{};
  std::copy_n(bytes.begin() + kNumberAt, number.size(), number.begin());
  if (all_zero(number)) return differs("marker", "number", "not 0", 0);
  return number;
}

}  // namespace tiercel::remote
