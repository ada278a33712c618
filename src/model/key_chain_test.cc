#include "model/key_chain.h"

#include <numeric>
#include <set>

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "base/prng.h"

namespace tiercel {
namespace {

using Tokens = std::vector<std::uint32_t>;

Digest root_of(std::string_view text) { return sha256(as_byte_view(text)); }
Tokens counting(std::size_t count) {
  Tokens tokens(count);
  std::iota(tokens.begin(), tokens.end(), 1U);
  return tokens;
}
std::vector<Key> keys_of(const Tokens& tokens, std::uint64_t page_tokens, std::string_view root = "r",
                         const std::vector<Extras>& extras = {}) {
  KeyChain chain = start_chain(root_of(root));
  return extend_chain(chain, page_tokens, tokens, extras).value();
}

// The bytes that contract §3 names, put together one by one.
Digest by_hand(std::uint8_t tag, const Digest& parent, const Tokens& words, std::uint32_t count,
               const Extras& extras) {
  std::vector<std::byte> bytes = {static_cast<std::byte>(tag)};
  append_bytes(bytes, parent);
  append_le(bytes, count);
  for (const std::uint32_t word : words) append_le(bytes, word);
  append_le(bytes, static_cast<std::uint32_t>(extras.size()));
  for (const std::string& extra : extras) {
    append_le(bytes, static_cast<std::uint32_t>(extra.size()));
    append_bytes(bytes, as_byte_view(extra));
  }
  return sha256(bytes);
}

TEST(KeyChain, HashesTheBytesOfTheContract) {
  const Tokens tokens = counting(2048 + 5);
  const std::vector<Extras> extras = {{}, {"image", ""}};
  const Tokens first(tokens.begin(), tokens.begin() + 1024);
  const Tokens second(tokens.begin() + 1024, tokens.begin() + 2048);
  const Digest one = by_hand(1, root_of("r"), first, 1024, {});
  const Digest two = by_hand(1, one, second, 1024, extras[1]);
  KeyChain chain = start_chain(root_of("r"));
  EXPECT_EQ(extend_chain(chain, 1024, tokens, extras).value(),
            (std::vector{key_from_digest(one), key_from_digest(two)}));
  EXPECT_EQ(chain, (KeyChain{two, 2}));
}

TEST(KeyChain, PairsAreTwoWordsUnderTheirOwnTag) {
  const std::vector<TokenPair> pairs = {{1, 2}, {2, 3}};
  KeyChain chain = start_chain(root_of("r"));
  EXPECT_EQ(extend_chain(chain, 2, pairs).value(),
            std::vector{key_from_digest(by_hand(4, root_of("r"), {1, 2, 2, 3}, 2, {}))});
}

TEST(KeyChain, AKeyIsTheFirst128BitsInDigestOrder) {
  Digest digest{};
  for (std::size_t i = 0; i < digest.size(); ++i) digest[i] = static_cast<std::byte>(i);
  EXPECT_EQ(to_hex(key_from_digest(digest)), "000102030405060708090a0b0c0d0e0f");
  EXPECT_EQ(key_from_digest(digest).words[0], 0x0706050403020100U);
}

RC_GTEST_PROP(KeyChain, StepsGiveTheSameKeysAsOneCall, (std::uint64_t seed)) {
  Prng random(seed);
  const std::uint64_t page = random.between(1, 9);
  Tokens tokens(random.below(120));
  for (std::uint32_t& token : tokens) token = static_cast<std::uint32_t>(random.next());
  const std::vector<Key> whole = keys_of(tokens, page);
  RC_ASSERT(whole.size() == tokens.size() / page);
  KeyChain chain = start_chain(root_of("r"));
  std::vector<Key> stepped;
  while (chain.pages < whole.size()) {
    const std::uint64_t from = chain.pages * page;
    const std::uint64_t step = random.below(tokens.size() - from + 1);
    const auto keys =
        extend_chain(chain, page, std::span<const std::uint32_t>(tokens).subspan(from, step)).value();
    stepped.insert(stepped.end(), keys.begin(), keys.end());
  }
  RC_ASSERT(stepped == whole);
}

TEST(KeyChain, WhateverDiffersGivesAnotherKeyFromThereOn) {
  const Tokens tokens = counting(12);
  Tokens changed = tokens;
  changed[5] = 99;
  const auto a = keys_of(tokens, 4);
  const auto b = keys_of(changed, 4);
  EXPECT_EQ(a[0], b[0]);
  EXPECT_NE(a[1], b[1]);
  EXPECT_NE(a[2], b[2]);
  std::set<Key> seen(a.begin(), a.end());
  EXPECT_EQ(seen.size(), 3U);
  for (const Extras& extras :
       std::vector<Extras>{{""}, {"ab"}, {"a", "b"}, {"b", "a"}, {"ab", ""}, {"", "ab"}})
    EXPECT_TRUE(seen.insert(keys_of(counting(4), 4, "r", {extras})[0]).second);
  EXPECT_TRUE(seen.insert(keys_of(counting(4), 4, "other root")[0]).second);
  EXPECT_TRUE(seen.insert(keys_of(counting(3), 3)[0]).second);
}

TEST(KeyChain, PairsNeverMeetSinglesOfTheSameWords) {
  // One pair is {1, 0 | no extras}; one single with the same words would be {1 | no extras} and so on.
  const Digest root = root_of("r");
  KeyChain pairs = start_chain(root);
  KeyChain singles = start_chain(root);
  const std::vector<TokenPair> pair = {{1, 0}};
  EXPECT_NE(extend_chain(pairs, 1, pair).value()[0], extend_chain(singles, 1, Tokens{1}).value()[0]);
  pairs = singles = start_chain(root);
  EXPECT_NE(extend_chain(pairs, 1, pair).value()[0], extend_chain(singles, 2, Tokens{1, 0}).value()[0]);
}

TEST(KeyChain, BadInputIsRefusedAndLeavesTheChainAlone) {
  KeyChain chain = start_chain(root_of("r"));
  const KeyChain before = chain;
  const Tokens tokens = counting(8);
  const std::vector<Extras> one = {{"x"}};
  EXPECT_EQ(extend_chain(chain, 0, tokens).error().code, Code::kInvalidArgument);
  EXPECT_EQ(extend_chain(chain, 1ULL << 32, tokens).error().code, Code::kInvalidArgument);
  EXPECT_EQ(extend_chain(chain, 4, tokens, one).error().message,
            "keys: extras must be empty or one entry for each of 2 new pages, has 1");
  EXPECT_FALSE(extend_chain(chain, 16, tokens, one)) << "extras of a page that is not whole";
  EXPECT_EQ(chain, before);
  EXPECT_TRUE(extend_chain(chain, 16, tokens).value().empty());
  EXPECT_EQ(chain, before);
}

// Pages up to 1,024 tokens are hashed as one message, longer ones and those with extras in pieces.
TEST(KeyChain, PagesOfEveryLengthHashTheSameBytes) {
  for (const std::uint32_t page : {1U, 2U, 3U, 15U, 16U, 64U, 128U, 512U, 1023U, 1024U, 1025U, 3000U}) {
    const Tokens tokens = counting(std::size_t{2} * page);
    const Tokens first(tokens.begin(), tokens.begin() + page);
    const Tokens second(tokens.begin() + page, tokens.end());
    const Digest one = by_hand(1, root_of("r"), first, page, {});
    const Digest two = by_hand(1, one, second, page, {});
    EXPECT_EQ(keys_of(tokens, page), (std::vector{key_from_digest(one), key_from_digest(two)})) << page;
  }
}

RC_GTEST_PROP(KeyChain, ChainsExtendedTogetherAreAsExtendedAlone, (std::uint64_t seed)) {
  Prng random(seed);
  const std::uint64_t page = random.chance(0.1) ? random.between(1020, 1030) : random.between(1, 40);
  const std::size_t count = random.below(12);
  std::vector<Tokens> tokens(count);
  std::vector<std::vector<Extras>> extras(count);
  std::vector<ChainExtension> together;
  std::vector<KeyChain> alone;
  std::vector<std::vector<Key>> keys;
  for (std::size_t i = 0; i < count; ++i) {
    tokens[i].resize(random.below(6 * page));
    for (std::uint32_t& token : tokens[i]) token = static_cast<std::uint32_t>(random.next());
    if (random.chance(0.25)) extras[i].assign(tokens[i].size() / page, Extras{"image"});
    alone.push_back({root_of(std::string(1, static_cast<char>('a' + i))), random.below(5)});
    together.push_back({alone[i], tokens[i], extras[i], {Key{}}});
    keys.push_back(extend_chain(alone[i], page, tokens[i], extras[i]).value());
  }
  RC_ASSERT(extend_chains(together, page).ok());
  for (std::size_t i = 0; i < count; ++i) {
    RC_ASSERT(together[i].chain == alone[i]);
    RC_ASSERT(together[i].keys == keys[i]);
  }
}

TEST(KeyChain, OneBadChainLeavesAllAsTheyWere) {
  const Tokens tokens = counting(8);
  const std::vector<Extras> one = {{"x"}};
  std::vector<ChainExtension> chains = {{start_chain(root_of("a")), tokens, {}, {}},
                                        {start_chain(root_of("b")), tokens, one, {}}};
  EXPECT_EQ(extend_chains(chains, 4).message,
            "keys: extras must be empty or one entry for each of 2 new pages, has 1 (chain 1 of 2)");
  EXPECT_EQ(extend_chains(chains, 0).code, Code::kInvalidArgument);
  EXPECT_EQ(chains[0].chain, start_chain(root_of("a")));
  EXPECT_TRUE(chains[0].keys.empty());
}

// What the header promises: the cost of an extension is its own pages, however long the prefix is.
TEST(KeyChain, NoByteOfAKnownPrefixIsHashedAgain) {
  constexpr std::uint64_t kPage = 64, kBytesAPage = 1 + 32 + 4 + 4 * kPage + 4;
  const Tokens prompt = counting(100 * kPage);
  const std::span<const std::uint32_t> all(prompt);
  KeyChain chain = start_chain(root_of("r"));
  std::uint64_t before = sha256_bytes_hashed();
  ASSERT_EQ(extend_chain(chain, kPage, all.first(97 * kPage)).value().size(), 97U);
  EXPECT_EQ(sha256_bytes_hashed() - before, 97 * kBytesAPage);
  before = sha256_bytes_hashed();
  KeyChain turn = chain;  // what was kept of the first request
  ASSERT_EQ(extend_chain(turn, kPage, all.subspan(97 * kPage)).value().size(), 3U);
  EXPECT_EQ(sha256_bytes_hashed() - before, 3 * kBytesAPage);
  before = sha256_bytes_hashed();
  std::vector<ChainExtension> turns(5, ChainExtension{chain, all.subspan(97 * kPage, 2 * kPage + 1), {}, {}});
  ASSERT_TRUE(extend_chains(turns, kPage).ok());
  EXPECT_EQ(sha256_bytes_hashed() - before, 5 * 2 * kBytesAPage);
  before = sha256_bytes_hashed();
  ASSERT_TRUE(extend_chain(chain, kPage, all.first(kPage - 1)).value().empty());
  EXPECT_EQ(sha256_bytes_hashed() - before, 0U);
}

std::vector<std::byte> external_bytes(const Digest& root, std::string_view scheme, std::string_view digest) {
  std::vector<std::byte> bytes = {std::byte{3}};
  append_bytes(bytes, root);
  append_le(bytes, static_cast<std::uint32_t>(scheme.size()));
  append_bytes(bytes, as_byte_view(scheme));
  append_le(bytes, static_cast<std::uint32_t>(digest.size()));
  append_bytes(bytes, as_byte_view(digest));
  return bytes;
}

TEST(ExternalKeys, AreDigestsUnderIdentityAndScheme) {
  const Digest root = root_of("r");
  const auto expected = [&](std::string_view digest) {
    return key_from_digest(sha256(external_bytes(root, "vllm", digest)));
  };
  const ByteView packed = as_byte_view("aaaabbbbcccc");
  EXPECT_EQ(keys_from_digests(root, "vllm", packed, 4, 4).value(),
            (std::vector{expected("aaaa"), expected("bbbb"), expected("cccc")}));
  EXPECT_EQ(keys_from_digests(root, "vllm", packed, 3, 4).value(),
            (std::vector{expected("aaa"), expected("bbb"), expected("ccc")}));
  EXPECT_EQ(keys_from_digests(root, "vllm", packed.first(11), 3, 4).value().size(), 3U);
  EXPECT_TRUE(keys_from_digests(root, "vllm", {}, 32, 32).value().empty());
  EXPECT_EQ(keys_from_digests(root, "vllm", packed.first(4), 4, UINT64_MAX).value(),
            std::vector{expected("aaaa")});
  EXPECT_NE(keys_from_digests(root, "sglang", packed, 4, 4).value()[0], expected("aaaa"));
  EXPECT_NE(keys_from_digests(root_of("s"), "vllm", packed, 4, 4).value()[0], expected("aaaa"));
}

TEST(ExternalKeys, AnyNumberAndAnyLengthGivesEachDigestItsOwnKey) {
  const Digest root = root_of("r");
  std::string digests;
  for (int i = 0; i < 9 * 64; ++i) digests += static_cast<char>('!' + i % 90);
  for (const std::uint64_t bytes : {1U, 16U, 32U, 64U})
    for (std::uint64_t count = 0; count <= 9; ++count) {
      std::vector<Key> expected;
      for (std::uint64_t i = 0; i < count; ++i)
        expected.push_back(key_from_digest(
            sha256(external_bytes(root, "long scheme", std::string_view(digests).substr(i * bytes, bytes)))));
      EXPECT_EQ(
          keys_from_digests(root, "long scheme", as_byte_view(digests).first(count * bytes), bytes, bytes)
              .value(),
          expected)
          << count << " of " << bytes;
    }
}

TEST(ExternalKeys, SizesFromOutsideAreChecked) {
  const Digest root = root_of("r");
  const std::vector<std::byte> bytes(130);
  EXPECT_EQ(keys_from_digests(root, "v", bytes, 65, 65).error().message,
            "keys: a digest must have 1 to 64 bytes, has 65");
  EXPECT_FALSE(keys_from_digests(root, "v", bytes, 0, 8));
  EXPECT_FALSE(keys_from_digests(root, "v", bytes, 0, 0));
  EXPECT_FALSE(keys_from_digests(root, "v", bytes, 32, 31));
  EXPECT_FALSE(keys_from_digests(root, "v", bytes, 32, 26)) << "130 is a multiple, but they overlap";
  EXPECT_FALSE(keys_from_digests(root, "v", bytes, 8, 0));
  EXPECT_FALSE(keys_from_digests(root, "v", bytes, 32, 32)) << "130 is not a multiple";
  EXPECT_FALSE(keys_from_digests(root, "v", bytes, 32, UINT64_MAX));
  EXPECT_FALSE(keys_from_digests(root, "", bytes, 10, 10));
  EXPECT_FALSE(keys_from_digests(root, std::string(256, 'x'), bytes, 10, 10));
  EXPECT_EQ(keys_from_digests(root, "v", bytes, 64, 66).value().size(), 2U);
}

TEST(Probe, IsContentWithoutIdentity) {
  const Tokens page = counting(4);
  const std::vector<TokenPair> pairs = {{1, 2}, {3, 4}};
  const Probe plain = probe_from_tokens(page);
  EXPECT_EQ(plain, probe_from_tokens(page));
  std::set<Probe> seen = {plain,
                          probe_from_tokens(counting(3)),
                          probe_from_tokens(page, {"x"}),
                          probe_from_tokens(pairs),
                          probe_from_digest("vllm", as_byte_view("aaaa")),
                          probe_from_digest("sglang", as_byte_view("aaaa")),
                          probe_from_digest("vllm", as_byte_view("aaa"))};
  EXPECT_EQ(seen.size(), 7U);
}

}  // namespace
}  // namespace tiercel
