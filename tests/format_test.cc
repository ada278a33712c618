// The test vectors of docs/format.md, recomputed by the library. tools/check_format_vectors.py does the same
// without it.
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "format_vectors.h"
#include "memory/arena_image.h"
#include "memory/record.h"
#include "model/identity.h"
#include "model/key_chain.h"
#include "model/storage_form.h"

namespace tiercel {
namespace {

std::string probe_hex(const Probe& probe) { return to_hex(Key{probe.words}); }

Extras extras_of(const Json& list) {
  Extras extras;
  for (const Json& each : list) {
    const auto bytes = bytes_of(each);
    extras.emplace_back(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  }
  return extras;
}
std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = text.find('\n', at);
    lines.push_back(text.substr(at, end - at));
    at = end == std::string::npos ? text.size() : end + 1;
  }
  return lines;
}

TEST(Format, ContentIdentitiesAreAsTheDocumentSays) {
  for (const Json& each : vectors("identity")) {
    const Json& given = each.at("given").at("identity");
    const Json& scheme = given.at("scheme");
    ContentIdentity identity;
    identity.model = given.at("model");
    identity.weights = given.at("weights");
    identity.weights_epoch = given.at("weights_epoch");
    identity.dtype = given.at("dtype");
    identity.quantisation = given.at("quantisation");
    identity.rope = given.at("rope");
    identity.attention = given.at("attention");
    identity.page_tokens = given.at("page_tokens");
    identity.adapter = given.at("adapter");
    identity.scheme = {scheme.at("name"),     scheme.at("algorithm"),      scheme.at("seed"),
                       scheme.at("encoding"), scheme.at("granule_tokens"), false};
    for (const auto& [name, value] : given.at("other").items()) identity.other[name] = value;
    identity.tenant_salt = given.at("tenant_salt");
    EXPECT_EQ(validate(identity), Status{}) << each.at("name");
    EXPECT_EQ(lines_of(canonical_text(identity)),
              each.at("gives").at("text").get<std::vector<std::string>>());
    EXPECT_EQ(hex_of(root_digest(identity)), text_at(each.at("gives"), "root")) << each.at("name");
  }
}

template <typename Token>
void expect_chain(const Json& given, const Json& gives) {
  std::vector<Extras> extras;
  for (const Json& page : given.at("extras")) extras.push_back(extras_of(page));
  const auto tokens = given.at("tokens").get<std::vector<Token>>();
  KeyChain chain = start_chain(digest_of(given.at("root")));
  std::vector<std::string> keys;
  const auto page_tokens = given.at("page_tokens").get<std::uint64_t>();
  const std::vector<Key> made = extend_chain(chain, page_tokens, tokens, extras).value();
  keys.reserve(made.size());
  for (const Key& key : made) keys.push_back(to_hex(key));
  EXPECT_EQ(keys, gives.at("keys").get<std::vector<std::string>>());
  EXPECT_EQ(hex_of(chain.digest), text_at(gives, "digest"));
}

bool of_pairs(const Json& given) { return given.at("tokens").at(0).is_array(); }

TEST(Format, ChainsAreAsTheDocumentSays) {
  for (const Json& each : vectors("chain")) {
    SCOPED_TRACE(text_at(each, "name"));
    if (of_pairs(each.at("given")))
      expect_chain<TokenPair>(each.at("given"), each.at("gives"));
    else
      expect_chain<std::uint32_t>(each.at("given"), each.at("gives"));
  }
}

TEST(Format, ProbesAreAsTheDocumentSays) {
  for (const Json& each : vectors("probe")) {
    const Json& given = each.at("given");
    const Extras extras = extras_of(given.at("extras"));
    const Probe probe = of_pairs(given)
                            ? probe_from_tokens(given.at("tokens").get<std::vector<TokenPair>>(), extras)
                            : probe_from_tokens(given.at("tokens").get<std::vector<std::uint32_t>>(), extras);
    EXPECT_EQ(probe_hex(probe), text_at(each.at("gives"), "probe")) << each.at("name");
  }
}

TEST(Format, ExternalKeysAreAsTheDocumentSays) {
  for (const Json& each : vectors("external")) {
    const Json& given = each.at("given");
    const auto digest = bytes_of(given.at("digest"));
    const std::string scheme = given.at("scheme");
    const auto keys =
        keys_from_digests(digest_of(given.at("root")), scheme, digest, digest.size(), digest.size()).value();
    ASSERT_EQ(keys.size(), 1U);
    EXPECT_EQ(to_hex(keys[0]), text_at(each.at("gives"), "key"));
    EXPECT_EQ(probe_hex(probe_from_digest(scheme, digest)), text_at(each.at("gives"), "probe"));
  }
}

TEST(Format, RecordHeadersAreAsTheDocumentSays) {
  for (const Json& each : vectors("record")) {
    const Json& given = each.at("given");
    RecordHeader header;
    header.form = digest_of(given.at("form"));
    header.label.root = digest_of(given.at("root"));
    header.label.key = key_of(given.at("key"));
    header.label.cls = ClassId(given.at("class").get<std::uint16_t>());
    header.label.shard = ShardId(given.at("shard").get<std::uint16_t>());
    header.label.generation = given.at("generation");
    const auto external = bytes_of(given.at("external_digest"));
    header.label.external.size = static_cast<std::uint8_t>(external.size());
    std::copy(external.begin(), external.end(), header.label.external.bytes.begin());
    header.payload_bytes = given.at("payload_bytes");
    header.kept_bytes = given.at("kept_bytes");
    header.run_checksums = given.at("run_checksums").get<std::vector<std::uint32_t>>();
    const auto expected = bytes_of(text_at(each.at("gives"), "header"));
    std::vector<std::byte> bytes(expected.size());
    encode_header(header, bytes);
    EXPECT_EQ(hex_of(bytes), text_at(each.at("gives"), "header")) << each.at("name");
    EXPECT_EQ(parse_header(expected).value(), header);
  }
}

Component component(std::string name, std::vector<std::uint64_t> shape, DType dtype) {
  std::uint64_t bytes = dtype_bytes(dtype);
  for (const std::uint64_t axis : shape) bytes *= axis;
  return {std::move(name), std::move(shape), dtype, bytes};
}

// The model of the document's example: one group of each kind, two ranks.
StorageForm example_form() {
  const std::vector<Component> kv = {component("k", {1, 64}, DType::kBf16),
                                     component("v", {1, 64}, DType::kBf16)};
  ModelSpec spec;
  spec.model_type = "example";
  spec.page_tokens = 16;
  spec.topology = {2, 1, 1};
  spec.groups = {
      {FullKind{}, Need::kRequired, {0, 3}, kv, false, 1},
      {WindowKind{128}, Need::kSparse, {1}, kv, false, 1},
      {StateKind{},
       Need::kSparse,
       {2},
       {component("conv", {96, 3}, DType::kBf16), component("temporal", {2, 16, 16}, DType::kF32)},
       false,
       1},
      {FollowerKind{0}, Need::kRequired, {3}, {{"index_k", {}, std::nullopt, 132}}, true, 1},
  };
  return make_storage_form(spec).value();
}

TEST(Format, StorageFormsAreAsTheDocumentSays) {
  const auto found = vectors("form");
  ASSERT_EQ(found.size(), 1U);
  const StorageForm form = example_form();
  EXPECT_EQ(lines_of(form.canonical), found[0].at("given").at("text").get<std::vector<std::string>>());
  EXPECT_EQ(hex_of(form.fingerprint), text_at(found[0].at("gives"), "fingerprint"));
}

TEST(Format, ArenaHeadersAreAsTheDocumentSays) {
  for (const Json& each : vectors("arena")) {
    const Json& given = each.at("given");
    const ArenaHeader header{.epoch = std::stoull(text_at(given, "epoch"), nullptr, 16),
                             .sizes = {given.at("index_bytes"), given.at("leases_bytes"),
                                       given.at("extent_bytes"), given.at("extents")}};
    std::vector<std::byte> bytes(kArenaHeaderBytes);
    encode_arena_header(header, bytes);
    EXPECT_EQ(hex_of(bytes), text_at(each.at("gives"), "header")) << each.at("name");
    const auto layout = arena_layout(header.sizes);
    ASSERT_TRUE(layout);
    const auto back = decode_arena_header(bytes, layout->total_bytes);
    ASSERT_TRUE(back) << back.error().message;
    EXPECT_EQ(*back, header);
  }
}

}  // namespace
}  // namespace tiercel
