#include "remote/object_format.h"

#include <set>

#include <gtest/gtest.h>

#include "base/crc32c.h"
#include "model/test_specs.h"

namespace tiercel::remote {
namespace {

std::shared_ptr<const StorageForm> hybrid(std::uint16_t tp = 1) {
  ModelSpec spec;
  spec.model_type = "test";
  spec.page_tokens = 4;
  spec.topology = Topology{tp, 1, 1};
  spec.groups.push_back(group(FullKind{}, Need::kRequired, {0, 2}, kv()));
  spec.groups.push_back(group(WindowKind{9}, Need::kSparse, {1}, kv()));
  spec.groups.push_back(group(StateKind{}, Need::kSparse, {3}, {component("s", {96}, DType::kU8)}));
  spec.groups.push_back(
      group(FollowerKind{0}, Need::kRequired, {0, 2}, {component("index_k", {4}, DType::kU8)}, true));
  return std::make_shared<const StorageForm>(make_storage_form(spec).value());
}

ObjectForm objects(const std::shared_ptr<const StorageForm>& form, RunLimits limits = {}) {
  std::vector<std::uint64_t> bytes;
  for (const ClassForm& cls : form->classes) bytes.push_back(64 + cls.record_bytes);
  return make_object_form(form, bytes, limits);
}

ObjectLabel label(const ObjectForm& form) {
  ObjectLabel made;
  made.space = object_space(form.form->fingerprint, form.form->fingerprint, {}, {});
  made.key = Key{{7, 9}};
  made.pages = 16;
  return made;
}

TEST(ObjectFormat, RequiredClassesTravelTogetherAndEachOtherAlone) {
  const auto form = hybrid();
  const ObjectForm made = objects(form);
  ASSERT_EQ(made.bundles.size(), 3U);
  EXPECT_TRUE(made.bundles[0].required);
  EXPECT_EQ(made.bundles[0].classes.size(), 2U);
  Presence all = 0;
  for (const Bundle& bundle : made.bundles) {
    EXPECT_EQ(all & bundle.presence, 0U);
    all |= bundle.presence;
    for (const ClassId cls : bundle.classes) EXPECT_EQ(made.bundle_of[cls.value()], bundle.id);
  }
  EXPECT_EQ(all, (Presence{1} << form->classes.size()) - 1);
}

TEST(ObjectFormat, RunsAreShorterWherePagesAreLargeAndOneForASnapshot) {
  const auto form = hybrid();
  EXPECT_EQ(objects(form).bundles[0].run_pages, 16U);
  RunLimits limits;
  limits.bytes_max = 1000;
  const ObjectForm small = objects(form, limits);
  const std::uint64_t page = object_bytes(small, small.bundles[0], 1, ShardId(0)) - kObjectHeaderBytes;
  EXPECT_LE(small.bundles[0].run_pages * page, 1000U);
  EXPECT_GT(small.bundles[0].run_pages * page * 2, 1000U);
  for (const Bundle& bundle : small.bundles) EXPECT_TRUE(!bundle.state || bundle.run_pages == 1);
}

TEST(ObjectFormat, RecordsFillAnObjectWithoutGapsAndAReplicatedClassIsInShardZeroOnly) {
  const auto form = hybrid(2);
  const ObjectForm made = objects(form);
  const Bundle& bundle = made.bundles[0];
  ASSERT_EQ(bundle.shards, 2U);
  for (std::uint16_t shard = 0; shard < 2; ++shard) {
    std::uint64_t at = kObjectHeaderBytes;
    std::set<std::uint16_t> classes;
    for (const ObjectRecord& record : object_records(made, bundle, 3, ShardId(shard))) {
      EXPECT_EQ(record.offset, at);
      at += record.length;
      classes.insert(record.cls.value());
    }
    EXPECT_EQ(at, object_bytes(made, bundle, 3, ShardId(shard)));
    EXPECT_EQ(classes.size(), shard == 0 ? 2U : 1U);
  }
}

TEST(ObjectFormat, NamesTellEverythingApartAndAreLegal) {
  const ObjectForm made = objects(hybrid());
  const ObjectLabel first = label(made);
  std::set<std::string> names{object_name(first)};
  ObjectLabel other = first;
  other.key.words[1] ^= 1;
  EXPECT_TRUE(names.insert(object_name(other)).second);
  other = first;
  other.space.digest[0] ^= std::byte{1};
  EXPECT_TRUE(names.insert(object_name(other)).second);
  other = first;
  other.bundle = BundleId(1);
  EXPECT_TRUE(names.insert(object_name(other)).second);
  other = first;
  other.pages = 1;
  EXPECT_TRUE(names.insert(object_name(other)).second);
  other = first;
  other.shard = ShardId(1);
  EXPECT_TRUE(names.insert(object_name(other)).second);
  const Digest a = sha256(as_byte_view("a")), b = sha256(as_byte_view("b"));
  EXPECT_TRUE(names.insert(form_marker_name(a)).second);
  EXPECT_TRUE(names.insert(form_marker_name(b)).second);
  EXPECT_TRUE(names.insert(namespace_marker_name(a, b)).second);
  EXPECT_TRUE(names.insert(namespace_marker_name(b, a)).second);
  for (const std::string& name : names) {
    EXPECT_LE(name.size(), 120U);
    EXPECT_EQ(name.find_first_not_of("0123456789abcdefghijklmnopqrstuvwxyz."), std::string::npos) << name;
  }
}

TEST(ObjectFormat, ASpaceIsMadeOfAllFour) {
  const Digest a = sha256(as_byte_view("a")), b = sha256(as_byte_view("b"));
  MarkerNumber one{}, two{};
  one[0] = std::byte{1};
  two[0] = std::byte{2};
  const ObjectSpace space = object_space(a, b, one, two);
  EXPECT_EQ(space, object_space(a, b, one, two));
  EXPECT_NE(space, object_space(b, a, one, two));
  EXPECT_NE(space, object_space(a, b, two, one));
  EXPECT_NE(space, object_space(a, b, one, one));
}

TEST(ObjectFormat, AHeaderComesBackAndEveryChangedByteIsSeen) {
  const ObjectForm made = objects(hybrid());
  const ObjectLabel wanted = label(made);
  std::vector<std::byte> header(kObjectHeaderBytes);
  encode_object_header(wanted, 77, 5000, header);
  EXPECT_EQ(parse_object_header(header, wanted, 5000).value(), 77U);
  for (std::size_t at = 0; at < header.size(); ++at) {
    header[at] ^= std::byte{0x20};
    EXPECT_FALSE(parse_object_header(header, wanted, 5000)) << at;
    header[at] ^= std::byte{0x20};
  }
}

// A header that is whole, of another object: its own checksum says nothing against it.
TEST(ObjectFormat, AHeaderOfAnotherObjectIsRefusedByName) {
  const ObjectForm made = objects(hybrid());
  const ObjectLabel wanted = label(made);
  const auto refused = [&](const ObjectLabel& other, std::uint64_t bytes = 5000) {
    std::vector<std::byte> header(kObjectHeaderBytes);
    encode_object_header(other, 77, bytes, header);
    const auto parsed = parse_object_header(header, wanted, 5000);
    return parsed ? std::string() : parsed.error().message;
  };
  EXPECT_EQ(refused(wanted), "");
  ObjectLabel other = wanted;
  other.key.words[0] ^= 1;
  EXPECT_NE(refused(other).find("key"), std::string::npos);
  other = wanted;
  other.space.digest[31] ^= std::byte{1};
  EXPECT_NE(refused(other).find("space"), std::string::npos);
  other = wanted;
  other.shard = ShardId(1);
  EXPECT_NE(refused(other).find("shard"), std::string::npos);
  other = wanted;
  other.pages = 8;
  EXPECT_NE(refused(other).find("pages"), std::string::npos);
  EXPECT_NE(refused(wanted, 4999).find("bytes"), std::string::npos);
}

TEST(ObjectFormat, AMarkerComesBackAndEveryChangedByteIsSeen) {
  MarkerNumber number{};
  number[3] = std::byte{9};
  std::vector<std::byte> bytes(kMarkerBytes);
  encode_marker(number, bytes);
  EXPECT_EQ(parse_marker(bytes).value(), number);
  for (std::size_t at = 0; at < bytes.size(); ++at) {
    bytes[at] ^= std::byte{1};
    EXPECT_FALSE(parse_marker(bytes)) << at;
    bytes[at] ^= std::byte{1};
  }
  encode_marker(MarkerNumber{}, bytes);
  EXPECT_FALSE(parse_marker(bytes));
}

}  // namespace
}  // namespace tiercel::remote
