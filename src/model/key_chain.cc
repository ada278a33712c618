#include "model/key_chain.h"

#include <limits>
#include <utility>

#include <fmt/format.h>

#include "base/check.h"
#include "model/identity.h"

namespace tiercel {
namespace {

// First byte of everything hashed here; no two kinds of input can be read as each other (docs/format.md).
enum class Tag : std::uint8_t {
  kPage = 1,
  kTail = 2,  // reserved: a last page of fewer tokens
  kExternal = 3,
  kPagePairs = 4,
  kProbePage = 5,
  kProbePairs = 6,
  kProbeExternal = 7,
};

constexpr std::uint64_t kU32Max = std::numeric_limits<std::uint32_t>::max();

// Collects small fields so that the digest is updated in few large pieces.
class HashWriter final {
 public:
  explicit HashWriter(Sha256& hash, Tag tag) : hash_(hash) { buffer_.push_back(static_cast<std::byte>(tag)); }
  void u32(std::uint64_t value) {
    TIERCEL_CHECK(value <= kU32Max);
    append_le(buffer_, static_cast<std::uint32_t>(value));
    if (buffer_.size() >= kFlushBytes) flush();
  }
  void bytes(ByteView bytes) {
    flush();
    hash_.update(bytes);
  }
  void text(ByteView bytes) {
    u32(bytes.size());
    this->bytes(bytes);
  }
  Digest finish() {
    flush();
    return hash_.finish();
  }

 private:
  static constexpr std::size_t kFlushBytes = 4096;
  void flush() {
    hash_.update(buffer_);
    buffer_.clear();
  }
  Sha256& hash_;
  std::vector<std::byte> buffer_;
};

void write_token(HashWriter& out, std::uint32_t token) { out.u32(token); }
void write_token(HashWriter& out, const TokenPair& pair) {
  out.u32(pair[0]);
  out.u32(pair[1]);
}

template <typename Token>
void write_page(HashWriter& out, std::span<const Token> tokens, const Extras& extras) {
  out.u32(tokens.size());
  for (const Token& token : tokens) write_token(out, token);
  out.u32(extras.size());
  for (const std::string& extra : extras) out.text(as_byte_view(extra));
}

template <typename Words>
Words first_words(const Digest& digest) {
  return {{load_le<std::uint64_t>(digest.data()), load_le<std::uint64_t>(digest.data() + 8)}};
}

Status check_extras(std::span<const Extras> extras, std::uint64_t new_pages) {
  if (!extras.empty() && extras.size() != new_pages)
    return {Code::kInvalidArgument,
            fmt::format("keys: extras must be empty or one entry for each of {} new pages, "
                        "has {}",
                        new_pages, extras.size())};
  for (std::size_t page = 0; page < extras.size(); ++page) {
    if (extras[page].size() > kU32Max)
      return {Code::kInvalidArgument, fmt::format("keys: extras of new page {} must be at most {}, are {}",
                                                  page, kU32Max, extras[page].size())};
    for (const std::string& extra : extras[page])
      if (extra.size() > kU32Max)
        return {Code::kInvalidArgument,
                fmt::format(
                    "keys: an extra of new page {} must have at most {} bytes, has {}; give a digest of it",
                    page, kU32Max, extra.size())};
  }
  return {};
}

template <typename Token>
Result<std::vector<Key>> extend(Tag tag, KeyChain& chain, std::uint64_t page_tokens,
                                std::span<const Token> tokens, std::span<const Extras> extras) {
  if (page_tokens == 0 || page_tokens > kU32Max)
    return error(Code::kInvalidArgument,
                 fmt::format("keys: page_tokens must be 1 to {}, is {}", kU32Max, page_tokens));
  const std::uint64_t new_pages = tokens.size() / page_tokens;
  TIERCEL_RETURN_IF_ERROR(check_extras(extras, new_pages));

  const Extras none;
  std::vector<Key> keys;
  keys.reserve(new_pages);
  Sha256 hash;
  for (std::uint64_t page = 0; page < new_pages; ++page) {
    HashWriter out(hash, tag);
    out.bytes(chain.digest);
    write_page(out, tokens.subspan(page * page_tokens, page_tokens), extras.empty() ? none : extras[page]);
    chain.digest = out.finish();
    ++chain.pages;
    keys.push_back(key_from_digest(chain.digest));
  }
  return keys;
}

template <typename Token>
Probe probe_page(Tag tag, std::span<const Token> tokens, const Extras& extras) {
  Sha256 hash;
  HashWriter out(hash, tag);
  write_page(out, tokens, extras);
  return first_words<Probe>(out.finish());
}

Status check_external(std::string_view scheme, std::uint64_t digest_bytes) {
  if (scheme.empty() || scheme.size() > kSchemeNameBytesMax)
    return {Code::kInvalidArgument, fmt::format("keys: scheme name must have 1 to {} bytes, has {}",
                                                kSchemeNameBytesMax, scheme.size())};
  if (digest_bytes == 0 || digest_bytes > kExternalDigestBytesMax)
    return {Code::kInvalidArgument, fmt::format("keys: a digest must have 1 to {} bytes, has {}",
                                                kExternalDigestBytesMax, digest_bytes)};
  return {};
}

}  // namespace

Key key_from_digest(const Digest& digest) { return first_words<Key>(digest); }

std::string to_hex(const Key& key) {
  std::string out;
  for (const std::uint64_t word : key.words)
    for (unsigned i = 0; i < 8; ++i)
      fmt::format_to(std::back_inserter(out), "{:02x}", (word >> (8 * i)) & 0xFF);
  return out;
}

KeyChain start_chain(const Digest& root) { return {root, 0}; }

Result<std::vector<Key>> extend_chain(KeyChain& chain, std::uint64_t page_tokens,
                                      std::span<const std::uint32_t> tokens, std::span<const Extras> extras) {
  return extend(Tag::kPage, chain, page_tokens, tokens, extras);
}

Result<std::vector<Key>> extend_chain(KeyChain& chain, std::uint64_t page_tokens,
                                      std::span<const TokenPair> tokens, std::span<const Extras> extras) {
  return extend(Tag::kPagePairs, chain, page_tokens, tokens, extras);
}

Result<std::vector<Key>> keys_from_digests(const Digest& root, std::string_view scheme, ByteView digests,
                                           std::uint64_t digest_bytes, std::uint64_t stride) {
  TIERCEL_RETURN_IF_ERROR(check_external(scheme, digest_bytes));
  if (stride < digest_bytes)
    return error(
        Code::kInvalidArgument,
        fmt::format("keys: stride must be at least the digest's {} bytes, is {}", digest_bytes, stride));
  const std::uint64_t rest = digests.size() % stride;
  if (rest != 0 && rest != digest_bytes)
    return error(Code::kInvalidArgument,
                 fmt::format("keys: {} bytes are not a whole number of {}-byte digests {} apart",
                             digests.size(), digest_bytes, stride));

  std::vector<Key> keys;
  keys.reserve(digests.size() / stride + (rest != 0 ? 1 : 0));
  Sha256 hash;
  for (std::uint64_t at = 0; at < digests.size();) {
    HashWriter out(hash, Tag::kExternal);
    out.bytes(root);
    out.text(as_byte_view(scheme));
    out.text(digests.subspan(at, digest_bytes));
    keys.push_back(key_from_digest(out.finish()));
    if (digests.size() - at <= stride) break;
    at += stride;
  }
  return keys;
}

Probe probe_from_tokens(std::span<const std::uint32_t> first_page, const Extras& extras) {
  return probe_page(Tag::kProbePage, first_page, extras);
}

Probe probe_from_tokens(std::span<const TokenPair> first_page, const Extras& extras) {
  return probe_page(Tag::kProbePairs, first_page, extras);
}

Probe probe_from_digest(std::string_view scheme, ByteView digest) {
  TIERCEL_CHECK(check_external(scheme, digest.size()).ok());
  Sha256 hash;
  HashWriter out(hash, Tag::kProbeExternal);
  out.text(as_byte_view(scheme));
  out.text(digest);
  return first_words<Probe>(out.finish());
}

}  // namespace tiercel
