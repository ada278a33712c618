// Content identity: everything besides the tokens that changes the bytes of a page. The root of every key
// chain.
//
// Together with a storage form it is a namespace. Ten thousand adapters are ten thousand identities over one
// form. Threads: plain values.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "base/sha256.h"
#include "base/status.h"

namespace tiercel {

inline constexpr std::uint64_t kSchemeNameBytesMax = 255;

// How pages get their keys. kTokens: our own chain over token ids. External schemes are an engine's digests.
struct KeyScheme {
  std::string name = "tiercel-tokens-1";  // or an engine's: "vllm-sha256-cbor", "sglang-sha256", …
  std::string algorithm = "sha256";       // digest of an external scheme
  std::string seed;                       // its seed; "random" (per process) is refused unless allowed
  std::string encoding;
  std::uint64_t granule_tokens = 0;  // 0 = page tokens
  // Allows this scheme, by its name, although its seed is random per process or its algorithm is not known to
  // be cryptographic. A permission: no part of the canonical text or the root.
  bool allow_weak = false;
  friend bool operator==(const KeyScheme&, const KeyScheme&) = default;
};

struct ContentIdentity {
  std::string model;    // printable name, for people; also part of the identity
  std::string weights;  // revision: a digest or a tag that changes when weights do
  std::uint64_t weights_epoch = 0;
  std::string dtype;  // KV dtype as computed
  std::string quantisation;
  std::string rope;       // canonical text of rope and scaling parameters
  std::string attention;  // parameters that change K/V bytes (softcap, sinks, …)
  std::uint64_t page_tokens = 0;
  std::string adapter;
  KeyScheme scheme;
  std::map<std::string, std::string> other;  // anything else that changes bytes
  std::string tenant_salt;                   // mixed in from the session; never taken from a caller
  friend bool operator==(const ContentIdentity&, const ContentIdentity&) = default;
};

// One "field=value" line per field in a fixed order, values escaped; docs/format.md. The salt appears as its
// SHA-256 only.
std::string canonical_text(const ContentIdentity& identity);
// SHA-256 over the canonical bytes (with the salt itself): the parent state of every first page.
Digest root_digest(const ContentIdentity& identity);
// Errors: invalid_argument naming the field when a required one (weights, dtype, page_tokens) is empty, a
// text is longer than 64 KiB, or the scheme is weak and not allowed by name.
Status validate(const ContentIdentity& identity);
// The first field in which their canonical texts differ ("dtype", "other.lora_rank", "tenant_salt"), without
// values: those of a salt are secret. Nothing when the roots are equal.
std::optional<std::string> first_difference(const ContentIdentity& a, const ContentIdentity& b);

}  // namespace tiercel
