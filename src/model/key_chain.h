// Keys of pages: a chain of SHA-256 digests over tokens, cut to 128 bits (contract §3; every byte in
// docs/format.md).
//
// Threads: plain values and pure functions.
#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "base/sha256.h"
#include "base/status.h"

namespace tiercel {

inline constexpr std::uint64_t kExternalDigestBytesMax = 64;

// First 128 bits of a page's digest. Compared whole, always.
struct Key {
  std::array<std::uint64_t, 2> words{};  // little-endian words of the digest's bytes 0–7 and 8–15
  friend auto operator<=>(const Key&, const Key&) = default;
};
Key key_from_digest(const Digest& digest);
std::string to_hex(const Key& key);  // 32 digits, in digest byte order

// 128 bits over the first page's tokens and extras (or its external digest) without the identity: finds the
// same content under another namespace (contract §5, `other_identity`).
struct Probe {
  std::array<std::uint64_t, 2> words{};
  friend auto operator<=>(const Probe&, const Probe&) = default;
};

// Byte strings mixed into one page's key: content hashes of images, prompt embeddings, per-request salt.
using Extras = std::vector<std::string>;

// The running state of a known prefix, owned by the caller: extending hashes only what is new.
struct KeyChain {
  Digest digest{};  // of the last whole page; the identity's root digest at length 0
  std::uint64_t pages = 0;
  friend bool operator==(const KeyChain&, const KeyChain&) = default;
};
KeyChain start_chain(const Digest& root);

// Extends `chain` by the whole pages in `tokens` and returns their keys, oldest first; tokens of a last
// partial page are left alone. `extras`: one entry per new page, or empty for none. Tokens are single ids.
// Errors: invalid_argument when page_tokens is 0 or above 2^32 - 1, or extras has another count than new
// pages; the chain is then as it was.
// Cost: one SHA-256 over 4 bytes a token and 41 a page; nothing known is hashed again.
Result<std::vector<Key>> extend_chain(KeyChain& chain, std::uint64_t page_tokens,
                                      std::span<const std::uint32_t> tokens,
                                      std::span<const Extras> extras = {});

// The same for pairs of tokens (two ids each position); pairs and single ids never give the same key.
using TokenPair = std::array<std::uint32_t, 2>;
Result<std::vector<Key>> extend_chain(KeyChain& chain, std::uint64_t page_tokens,
                                      std::span<const TokenPair> tokens, std::span<const Extras> extras = {});

// One chain of several that are extended together, as when a batch of requests arrives.
struct ChainExtension {
  KeyChain chain;
  std::span<const std::uint32_t> tokens;  // single ids
  std::span<const Extras> extras;
  std::vector<Key> keys;  // set: those of the new pages, oldest first
};
// Extends each chain exactly as extend_chain would. Errors: those of extend_chain, naming the chain; no chain
// is then changed. Cost: the pages of one chain wait for each other, those of different chains are hashed in
// step: four chains take little more than half of four times as long as one.
Status extend_chains(std::span<ChainExtension> chains, std::uint64_t page_tokens);

// Keys from an engine's own digests, `digest_bytes` each (1–64), `stride` apart. Not chained by us: the
// engine's digests are. Bytes between the end of a digest and the next stride are not read; the last ones may
// be left out. Errors: invalid_argument when sizes do not fit or the scheme has no name.
Result<std::vector<Key>> keys_from_digests(const Digest& root, std::string_view scheme, ByteView digests,
                                           std::uint64_t digest_bytes, std::uint64_t stride);

// Probe of a first page. Requires: what extend_chain or keys_from_digests accepted.
Probe probe_from_tokens(std::span<const std::uint32_t> first_page, const Extras& extras = {});
Probe probe_from_tokens(std::span<const TokenPair> first_page, const Extras& extras = {});
Probe probe_from_digest(std::string_view scheme, ByteView digest);

}  // namespace tiercel

template <>
struct std::hash<tiercel::Key> {
  // The key is already a cryptographic hash: any 64 bits of it serve.
  std::size_t operator()(const tiercel::Key& key) const noexcept { return key.words[0]; }
};
template <>
struct std::hash<tiercel::Probe> {
  std::size_t operator()(const tiercel::Probe& probe) const noexcept { return probe.words[0]; }
};
