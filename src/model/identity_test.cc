#include "model/identity.h"

#include <functional>
#include <set>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

namespace tiercel {
namespace {

ContentIdentity sample() {
  ContentIdentity identity;
  identity.model = "tiny";
  identity.weights = "rev-1";
  identity.dtype = "bf16";
  identity.page_tokens = 64;
  return identity;
}

using Change = std::pair<std::string, std::function<void(ContentIdentity&)>>;
std::vector<Change> changes() {
  return {
      {"model", [](ContentIdentity& i) { i.model += "x"; }},
      {"weights", [](ContentIdentity& i) { i.weights += "x"; }},
      {"weights_epoch", [](ContentIdentity& i) { i.weights_epoch += 1; }},
      {"dtype", [](ContentIdentity& i) { i.dtype = "fp8"; }},
      {"quantisation", [](ContentIdentity& i) { i.quantisation += "x"; }},
      {"rope", [](ContentIdentity& i) { i.rope += "x"; }},
      {"attention", [](ContentIdentity& i) { i.attention += "x"; }},
      {"page_tokens", [](ContentIdentity& i) { i.page_tokens *= 2; }},
      {"adapter", [](ContentIdentity& i) { i.adapter += "x"; }},
      {"scheme.name", [](ContentIdentity& i) { i.scheme.name = "vllm"; }},
      {"scheme.algorithm", [](ContentIdentity& i) { i.scheme.algorithm = "sha512"; }},
      {"scheme.seed", [](ContentIdentity& i) { i.scheme.seed = "0"; }},
      {"scheme.encoding", [](ContentIdentity& i) { i.scheme.encoding = "cbor"; }},
      {"scheme.granule_tokens", [](ContentIdentity& i) { i.scheme.granule_tokens = 16; }},
      {"other.lora_rank", [](ContentIdentity& i) { i.other["lora_rank"] = "8"; }},
      {"tenant_salt", [](ContentIdentity& i) { i.tenant_salt = "s"; }},
  };
}

std::string complaint(const std::function<void(ContentIdentity&)>& change) {
  ContentIdentity identity = sample();
  change(identity);
  const Status status = validate(identity);
  EXPECT_TRUE(status.ok() || status.code == Code::kInvalidArgument);
  EXPECT_EQ(status.message.find('\n'), std::string::npos);
  return status.message;
}

TEST(Identity, EveryFieldChangesRootAndTextAndIsNamed) {
  const ContentIdentity base = sample();
  std::set<Digest> roots = {root_digest(base)};
  std::set<std::string> texts = {canonical_text(base)};
  for (const auto& [field, change] : changes()) {
    ContentIdentity other = base;
    change(other);
    EXPECT_TRUE(roots.insert(root_digest(other)).second) << field;
    EXPECT_TRUE(texts.insert(canonical_text(other)).second) << field;
    EXPECT_EQ(first_difference(base, other), field);
    EXPECT_EQ(first_difference(other, base), field);
  }
  EXPECT_EQ(first_difference(base, base), std::nullopt);
}

TEST(Identity, TheFirstOfSeveralDifferencesIsNamed) {
  ContentIdentity a = sample();
  ContentIdentity b = sample();
  a.other = {{"b", "1"}, {"c", "1"}};
  b.other = {{"a", "1"}, {"c", "2"}};
  b.tenant_salt = "s";
  EXPECT_EQ(first_difference(a, b), "other.a");
  b.other = {{"b", "1"}, {"c", "2"}};
  EXPECT_EQ(first_difference(a, b), "other.c");
  b.dtype = "fp8";
  EXPECT_EQ(first_difference(a, b), "dtype");
}

TEST(Identity, NoValueCanPretendToBeAnotherField) {
  ContentIdentity a = sample();
  ContentIdentity b = sample();
  a.model = "x\nweights=rev-1";
  EXPECT_EQ(canonical_text(a).find("\nweights=rev-1\n"), canonical_text(a).rfind("\nweights=rev-1\n"));
  a = sample();
  a.other = {{"a=b", "c"}};
  b.other = {{"a", "b=c"}};
  EXPECT_NE(root_digest(a), root_digest(b));
  a.other = {{"k", "\\x0a"}};
  b.other = {{"k", "\n"}};
  EXPECT_NE(root_digest(a), root_digest(b));
  a = sample();
  a.other = {{"k", "v\ntenant_salt=s"}};
  b = sample();
  b.other = {{"k", "v"}};
  b.tenant_salt = "s";
  EXPECT_NE(root_digest(a), root_digest(b));
}

TEST(Identity, TheSaltIsNeverPrinted) {
  ContentIdentity identity = sample();
  identity.tenant_salt = "extremely-secret";
  EXPECT_EQ(canonical_text(identity).find("secret"), std::string::npos);
  EXPECT_NE(canonical_text(identity).find("tenant_salt.sha256="), std::string::npos);
  EXPECT_EQ(canonical_text(sample()).substr(
                canonical_text(sample()).rfind('\n', canonical_text(sample()).size() - 2)),
            "\ntenant_salt=\n");
}

TEST(Identity, APermissionIsNoPartOfTheIdentity) {
  ContentIdentity allowed = sample();
  allowed.scheme.allow_weak = true;
  EXPECT_EQ(root_digest(allowed), root_digest(sample()));
  EXPECT_EQ(first_difference(allowed, sample()), std::nullopt);
}

TEST(Identity, AGranuleOfZeroIsThePage) {
  ContentIdentity named = sample();
  named.scheme.granule_tokens = 64;
  EXPECT_EQ(root_digest(named), root_digest(sample()));
}

TEST(Identity, WhatIsMissingIsNamed) {
  EXPECT_EQ(complaint([](ContentIdentity&) {}), "");
  EXPECT_NE(complaint([](ContentIdentity& i) { i.weights.clear(); }).find("weights"), std::string::npos);
  EXPECT_NE(complaint([](ContentIdentity& i) { i.dtype.clear(); }).find("dtype"), std::string::npos);
  EXPECT_NE(complaint([](ContentIdentity& i) { i.page_tokens = 0; }).find("page_tokens"), std::string::npos);
  EXPECT_NE(complaint([](ContentIdentity& i) { i.page_tokens = 1ULL << 32; }).find("page_tokens"),
            std::string::npos);
  EXPECT_NE(complaint([](ContentIdentity& i) { i.rope.assign(65537, 'x'); }).find("rope"), std::string::npos);
  EXPECT_NE(complaint([](ContentIdentity& i) { i.other["a\nb"].assign(65537, 'x'); }).find("other.a\\x0ab"),
            std::string::npos);
}

KeyScheme external(std::string algorithm, std::string seed) {
  return {"vllm-sha256-cbor", std::move(algorithm), std::move(seed), "cbor", 16, false};
}

TEST(Identity, WeakSchemesAreRefusedUnlessAllowedByName) {
  for (const char* algorithm : {"", "xxh3-64", "builtin", "md5", "sha1", "fnv1a", "sha256x"}) {
    const auto weak = [&](ContentIdentity& i) { i.scheme = external(algorithm, "0"); };
    EXPECT_NE(complaint(weak).find("not a known cryptographic digest"), std::string::npos) << algorithm;
  }
  for (const char* seed : {"random", "Random", "RANDOM"})
    EXPECT_NE(
        complaint([&](ContentIdentity& i) { i.scheme = external("sha256", seed); }).find("seed 'random'"),
        std::string::npos);
  for (const char* algorithm : {"sha256", "SHA512", "blake3"})
    EXPECT_EQ(complaint([&](ContentIdentity& i) { i.scheme = external(algorithm, "0"); }), "");
  EXPECT_EQ(complaint([](ContentIdentity& i) {
              i.scheme = external("builtin", "random");
              i.scheme.allow_weak = true;
            }),
            "");
}

TEST(Identity, OurOwnSchemeIsFixedAndItsNameReserved) {
  EXPECT_NE(complaint([](ContentIdentity& i) { i.scheme.algorithm = "blake3"; }).find("is fixed"),
            std::string::npos);
  EXPECT_NE(complaint([](ContentIdentity& i) { i.scheme.seed = "1"; }).find("is fixed"), std::string::npos);
  EXPECT_NE(complaint([](ContentIdentity& i) { i.scheme.granule_tokens = 32; }).find("is fixed"),
            std::string::npos);
  EXPECT_NE(complaint([](ContentIdentity& i) { i.scheme.name = "tiercel-tokens-2"; }).find("reserved"),
            std::string::npos);
  EXPECT_NE(complaint([](ContentIdentity& i) { i.scheme.name.clear(); }).find("scheme.name"),
            std::string::npos);
}

TEST(Identity, AnEnginesGranuleDividesThePage) {
  EXPECT_NE(complaint([](ContentIdentity& i) {
              i.scheme = external("sha256", "0");
              i.scheme.granule_tokens = 48;
            }).find("multiple of scheme.granule_tokens 48"),
            std::string::npos);
}

}  // namespace
}  // namespace tiercel
