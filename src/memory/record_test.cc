#include "memory/record.h"

#include <functional>
#include <utility>

#include <gtest/gtest.h>

#include "base/crc32c.h"
#include "base/prng.h"

namespace tiercel {
namespace {

// Two classes: three layers of 100, 50 and 0..49 bytes, and one of 17 layers.
StorageForm sample_form() {
  StorageForm form;
  form.fingerprint = sha256(as_byte_view("form"));
  ClassForm cls;
  cls.layers = {{0, 0, 100, {}}, {5, 100, 50, {}}, {7, 150, 49, {}}};
  cls.record_bytes = 199;
  form.classes.push_back(cls);
  cls.id = ClassId(1);
  cls.layers.clear();
  for (std::uint32_t layer = 0; layer < 17; ++layer)
    cls.layers.push_back({layer, std::uint64_t{8} * layer, 8, {}});
  cls.record_bytes = 136;
  form.classes.push_back(cls);
  return form;
}

RecordLabel sample_label() {
  RecordLabel label;
  label.root = sha256(as_byte_view("root"));
  label.key = key_from_digest(sha256(as_byte_view("page")));
  label.shard = ShardId(3);
  label.generation = 7;
  label.external.size = 3;
  label.external.bytes[0] = label.external.bytes[1] = label.external.bytes[2] = std::byte{0xAB};
  return label;
}

std::vector<std::byte> payload_of(std::size_t size) {
  Prng random(size);
  std::vector<std::byte> bytes(size);
  for (std::byte& b : bytes) b = static_cast<std::byte>(random.next());
  return bytes;
}

std::vector<std::byte> encoded(const RecordHeader& header) {
  ClassForm cls;
  cls.layers.resize(header.run_checksums.size());
  std::vector<std::byte> bytes(header_bytes(cls));
  encode_header(header, bytes);
  return bytes;
}

RecordHeader sample_header(std::uint64_t kept = 199) {
  const StorageForm form = sample_form();
  return make_header(form, sample_label(), kept, run_checksums(form.classes[0], payload_of(kept)));
}

std::string wrong(const std::vector<std::byte>& bytes, const RecordLabel& label, std::uint64_t kept = 199) {
  const auto header = decode_header(bytes, sample_form(), label, kept);
  if (header) return {};
  EXPECT_EQ(header.error().code, Code::kDataCorrupt);
  EXPECT_TRUE(header.error().message.starts_with("record header: ")) << header.error().message;
  return header.error().message.substr(15, header.error().message.find(':', 15) - 15);
}

TEST(RecordHeader, ComesBackAsItWasWritten) {
  const RecordHeader header = sample_header();
  const auto bytes = encoded(header);
  EXPECT_EQ(parse_header(bytes).value(), header);
  EXPECT_EQ(decode_header(bytes, sample_form(), sample_label(), 199).value(), header);
  auto longer = bytes;
  longer.resize(bytes.size() + 1000, std::byte{0xFF});
  EXPECT_EQ(parse_header(longer).value(), header) << "the payload follows";
}

TEST(RecordHeader, PayloadsStartAligned) {
  for (std::size_t layers = 1; layers < 200; ++layers) {
    ClassForm cls;
    cls.layers.resize(layers);
    EXPECT_EQ(header_bytes(cls) % kRecordAlignment, 0U);
    EXPECT_GE(header_bytes(cls), 184 + 4 * (layers + 1));
    EXPECT_LT(header_bytes(cls), 184 + 4 * (layers + 1) + kRecordAlignment);
  }
}

TEST(RecordHeader, EveryFlippedBitIsNoticed) {
  const auto bytes = encoded(sample_header());
  for (std::size_t bit = 0; bit < bytes.size() * 8; ++bit) {
    auto damaged = bytes;
    damaged[bit / 8] ^= static_cast<std::byte>(1U << (bit % 8));
    EXPECT_NE(wrong(damaged, sample_label()), "") << "bit " << bit;
  }
}

TEST(RecordHeader, EveryTruncationIsNoticed) {
  const auto bytes = encoded(sample_header());
  for (std::size_t size = 0; size < bytes.size(); ++size) {
    const std::vector<std::byte> cut(bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(size));
    EXPECT_NE(wrong(cut, sample_label()), "") << size;
  }
}

TEST(RecordHeader, AWholeHeaderOfAnotherRecordNamesWhatDiffers) {
  using Change = std::pair<std::string, std::function<void(RecordHeader&)>>;
  const Change changes[] = {
      {"storage form", [](RecordHeader& h) { h.form[31] ^= std::byte{1}; }},
      {"namespace", [](RecordHeader& h) { h.label.root[31] ^= std::byte{1}; }},
      {"key", [](RecordHeader& h) { h.label.key.words[1] ^= 1; }},
      {"class", [](RecordHeader& h) { h.label.cls = ClassId(1); }},
      {"shard", [](RecordHeader& h) { h.label.shard = ShardId(4); }},
      {"generation", [](RecordHeader& h) { h.label.generation = 8; }},
      {"payload bytes", [](RecordHeader& h) { h.payload_bytes = 200; }},
      {"kept bytes", [](RecordHeader& h) { h.kept_bytes = 198; }},
      {"layer runs", [](RecordHeader& h) { h.run_checksums.pop_back(); }},
  };
  for (const auto& [field, change] : changes) {
    RecordHeader header = sample_header();
    change(header);
    EXPECT_EQ(wrong(encoded(header), sample_label()), field);
  }
}

TEST(RecordHeader, GenerationAndExternalDigestNeedNotBeKnown) {
  RecordLabel label = sample_label();
  label.generation = 0;
  label.external = {};
  EXPECT_EQ(wrong(encoded(sample_header()), label), "");
}

// A header that carries a right checksum over values that nobody writes.
std::string resealed(const std::function<void(std::vector<std::byte>&)>& change) {
  auto bytes = encoded(sample_header());
  change(bytes);
  const std::size_t checked = bytes.size() - 4;
  store_le(&bytes[checked], crc32c(ByteView(bytes).first(checked)));
  RecordLabel any_generation = sample_label();
  any_generation.generation = 0;
  return wrong(bytes, any_generation);
}

TEST(RecordHeader, ARightChecksumOverNonsenseIsStillRefused) {
  EXPECT_EQ(resealed([](auto&) {}), "");
  EXPECT_EQ(resealed([](auto& b) { b[0] = std::byte{'t'}; }), "magic");
  EXPECT_EQ(resealed([](auto& b) { b[8] = std::byte{2}; }), "format version");
  EXPECT_EQ(resealed([](auto& b) { b[10] = std::byte{65}; }), "external digest");
  EXPECT_EQ(resealed([](auto& b) { b[11] = std::byte{1}; }), "unused bytes");
  EXPECT_EQ(resealed([](auto& b) { b[120 + 3] = std::byte{1}; }), "unused bytes");
  EXPECT_EQ(resealed([](auto& b) { b[184 + 12] = std::byte{1}; }), "unused bytes");
  EXPECT_EQ(resealed([](auto& b) { store_le(&b[12], 0U); }), "layer runs");
  EXPECT_EQ(resealed([](auto& b) { store_le(&b[12], UINT32_MAX); }), "layer runs");
  EXPECT_EQ(resealed([](auto& b) { store_le(&b[12], 1U); }), "header checksum") << "it then ends earlier";
  EXPECT_EQ(resealed([](auto& b) { store_le(&b[100], 0U); }), "generation");
  EXPECT_EQ(resealed([](auto& b) { store_le(&b[112], std::uint64_t{200}); }), "kept bytes");
}

TEST(RecordRuns, EachLayerHasItsOwnChecksum) {
  const StorageForm form = sample_form();
  const RecordHeader header = sample_header();
  auto payload = payload_of(199);
  for (std::size_t at = 0; at < payload.size(); ++at) {
    payload[at] ^= std::byte{0x10};
    const auto now = run_checksums(form.classes[0], payload);
    for (std::size_t run = 0; run < 3; ++run) {
      const LayerRun& layer = form.classes[0].layers[run];
      const bool inside = at >= layer.offset && at < layer.offset + layer.length;
      EXPECT_EQ(check_run(header, form.classes[0], run, now[run]).ok(), !inside) << at << " " << run;
    }
    payload[at] ^= std::byte{0x10};
  }
  EXPECT_TRUE(
      check_run(header, form.classes[0], 1, 0).message.starts_with("record: checksum of layer 5: wanted 0x"));
}

TEST(RecordRuns, PiecesInARowGiveTheSameChecksum) {
  const LayerRun run{0, 10, 80, {}};
  const auto payload = payload_of(100);
  const ByteView bytes(payload);
  for (std::size_t cut = 10; cut <= 90; ++cut)
    EXPECT_EQ(crc32c(bytes.subspan(cut, 90 - cut), crc32c(bytes.subspan(10, cut - 10))),
              run_checksum(run, bytes));
}

TEST(RecordRuns, AThinRecordCoversWhatIsKept) {
  const StorageForm form = sample_form();
  const auto whole = payload_of(199);
  for (std::uint64_t kept = 0; kept <= 199; ++kept) {
    const ByteView payload = ByteView(whole).first(kept);
    std::uint64_t covered = 0;
    for (const LayerRun& run : form.classes[0].layers) {
      const std::uint64_t length = kept_of_run(run, kept);
      covered += length;
      EXPECT_EQ(run_checksum(run, payload), crc32c(ByteView(whole).subspan(run.offset, length)));
    }
    EXPECT_EQ(covered, kept);
    const RecordHeader header =
        make_header(form, sample_label(), kept, run_checksums(form.classes[0], payload));
    EXPECT_EQ(header.payload_bytes, 199U);
    EXPECT_EQ(wrong(encoded(header), sample_label(), kept), "");
  }
  EXPECT_EQ(wrong(encoded(sample_header(100)), sample_label(), 199), "kept bytes");
}

TEST(RecordRuns, ManyLayersMakeALongerHeader) {
  const StorageForm form = sample_form();
  RecordLabel label = sample_label();
  label.cls = ClassId(1);
  const auto header = make_header(form, label, 136, run_checksums(form.classes[1], payload_of(136)));
  EXPECT_EQ(encoded(header).size(), 256U);
  EXPECT_EQ(decode_header(encoded(header), form, label, 136).value().run_checksums.size(), 17U);
}

}  // namespace
}  // namespace tiercel
