#include "model/key_chain.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
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
constexpr std::uint64_t kWordsOfToken = 1;
template <>
constexpr std::uint64_t kWordsOfToken<TokenPair> = 2;
std::span<const std::uint32_t> words_of(std::span<const std::uint32_t> tokens) { return tokens; }
std::span<const std::uint32_t> words_of(std::span<const TokenPair> tokens) {
  static_assert(sizeof(TokenPair) == 2 * sizeof(std::uint32_t));
  return {tokens.empty() ? nullptr : tokens.front().data(), 2 * tokens.size()};
}

// What is hashed for a run of pages of one chain without extras. Everything but parents and tokens is the
// same in all of them and written once.
class PageMessages final {
 public:
  static constexpr std::size_t kPages = 8;  // at once: their messages stay in the nearest cache
  static constexpr std::size_t kWordsMax = 1024;
  static bool fits(std::uint64_t words) { return words <= kWordsMax; }  // longer pages are hashed in pieces

  // For as many as `pages_max` pages at once, or kPages when that is less.
  PageMessages(Tag tag, std::uint64_t page_tokens, std::uint64_t words, std::uint64_t pages_max)
      : words_(words), bytes_(kTokensAt + 4 * words + 4), padded_(sha256_padded_bytes(bytes_)) {
    messages_.resize(std::min<std::uint64_t>(kPages, pages_max) * padded_);
    for (std::size_t at = 0; at < messages_.size(); at += padded_) {
      std::byte* message = messages_.data() + at;
      message[0] = static_cast<std::byte>(tag);
      store_le(message + kCountAt, static_cast<std::uint32_t>(page_tokens));
      store_le(message + bytes_ - 4, std::uint32_t{0});  // no extras
      sha256_pad({message, padded_}, bytes_);
    }
  }
  std::size_t bytes() const { return bytes_; }  // of one message

  // Sets the first messages to the whole pages in `words`, as many as there is room for, behind `parent`.
  Sha256Chain fill(std::span<const std::uint32_t> words, const Digest& parent) {
    for (std::size_t page = 0; page * words_ < words.size(); ++page)
      copy_words(words.subspan(page * words_, words_), messages_.data() + page * padded_ + kTokensAt);
    digests_[0] = parent;
    return {messages_.data(), digests_.data()};
  }
  // Takes over the digests of the first `pages` messages.
  void take(std::size_t pages, KeyChain& chain, std::vector<Key>& keys) const {
    for (std::size_t page = 1; page <= pages; ++page) keys.push_back(key_from_digest(digests_[page]));
    chain.digest = digests_[pages];
    chain.pages += pages;
  }

 private:
  static constexpr std::size_t kCountAt = kSha256ParentAt + sizeof(Digest);
  static constexpr std::size_t kTokensAt = kCountAt + 4;
  static void copy_words(std::span<const std::uint32_t> words, std::byte* to) {
    if constexpr (std::endian::native == std::endian::little)
      std::memcpy(to, words.data(), words.size_bytes());
    else
      for (std::size_t i = 0; i < words.size(); ++i) store_le(to + 4 * i, words[i]);
  }
  std::size_t words_;
  std::size_t bytes_;
  std::size_t padded_;
  std::vector<std::byte> messages_;
  std::array<Digest, kPages + 1> digests_;
};

// A page of any length and with extras.
template <typename Token>
Digest hash_page(Sha256& hash, Tag tag, const Digest& parent, std::span<const Token> tokens,
                 const Extras& extras) {
  HashWriter out(hash, tag);
  out.bytes(parent);
  write_page(out, tokens, extras);
  return out.finish();
}

Status check_extension(std::uint64_t page_tokens, std::uint64_t tokens, std::span<const Extras> extras) {
  if (page_tokens == 0 || page_tokens > kU32Max)
    return {Code::kInvalidArgument,
            fmt::format("keys: page_tokens must be 1 to {}, is {}", kU32Max, page_tokens)};
  return check_extras(extras, tokens / page_tokens);
}

template <typename Token>
Result<std::vector<Key>> extend(Tag tag, KeyChain& chain, std::uint64_t page_tokens,
                                std::span<const Token> tokens, std::span<const Extras> extras) {
  TIERCEL_RETURN_IF_ERROR(check_extension(page_tokens, tokens.size(), extras));
  const std::uint64_t new_pages = tokens.size() / page_tokens;
  const std::uint64_t words = page_tokens * kWordsOfToken<Token>;
  std::vector<Key> keys;
  keys.reserve(new_pages);
  if (new_pages > 0 && extras.empty() && PageMessages::fits(words)) {
    PageMessages messages(tag, page_tokens, words, new_pages);
    while (keys.size() < new_pages) {
      const std::size_t pages = std::min<std::uint64_t>(PageMessages::kPages, new_pages - keys.size());
      const auto part = tokens.subspan(keys.size() * page_tokens, pages * page_tokens);
      const Sha256Chain run[] = {messages.fill(words_of(part), chain.digest)};
      sha256_chained(run, messages.bytes(), pages);
      messages.take(pages, chain, keys);
    }
    return keys;
  }
  const Extras none;
  Sha256 hash;
  for (std::uint64_t page = 0; page < new_pages; ++page) {
    chain.digest = hash_page(hash, tag, chain.digest, tokens.subspan(page * page_tokens, page_tokens),
                             extras.empty() ? none : extras[page]);
    ++chain.pages;
    keys.push_back(key_from_digest(chain.digest));
  }
  return keys;
}

// Takes the pages of several chains in step: each lane has one chain at a time, and another when it is done.
class Lanes final {
 public:
  Lanes(std::span<ChainExtension> chains, std::uint64_t page_tokens)
      : rest_(chains),
        page_tokens_(page_tokens),
        messages_(std::min<std::size_t>(kSha256Lanes, chains.size()),
                  {Tag::kPage, page_tokens, page_tokens, PageMessages::kPages}) {}
  void run() {
    while (fill()) step();
  }

 private:
  // Chains with extras are left to extend_chain. Returns: whether a lane has a chain.
  bool fill() {
    while (used_ < kSha256Lanes && !rest_.empty()) {
      ChainExtension& next = rest_.front();
      rest_ = rest_.subspan(1);
      next.keys.clear();
      next.keys.reserve(next.tokens.size() / page_tokens_);
      if (next.extras.empty() && next.tokens.size() >= page_tokens_) chains_[used_++] = &next;
    }
    return used_ > 0;
  }
  std::uint64_t left(const ChainExtension& extension) const {
    return extension.tokens.size() / page_tokens_ - extension.keys.size();
  }
  // As many pages of each chain as the shortest of them still has.
  void step() {
    std::uint64_t pages = PageMessages::kPages;
    for (std::size_t lane = 0; lane < used_; ++lane) pages = std::min(pages, left(*chains_[lane]));
    Sha256Chain runs[kSha256Lanes];
    for (std::size_t lane = 0; lane < used_; ++lane) {
      const ChainExtension& extension = *chains_[lane];
      runs[lane] = messages_[lane].fill(
          extension.tokens.subspan(extension.keys.size() * page_tokens_, pages * page_tokens_),
          extension.chain.digest);
    }
    sha256_chained({runs, used_}, messages_[0].bytes(), pages);
    for (std::size_t lane = 0; lane < used_; ++lane)
      messages_[lane].take(pages, chains_[lane]->chain, chains_[lane]->keys);
    for (std::size_t lane = used_; lane-- > 0;)
      if (left(*chains_[lane]) == 0) chains_[lane] = chains_[--used_];
  }

  std::span<ChainExtension> rest_;
  std::uint64_t page_tokens_;
  std::vector<PageMessages> messages_;                  // one for each lane
  std::array<ChainExtension*, kSha256Lanes> chains_{};  // the first used_
  std::size_t used_ = 0;
};

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

// Keys of `count` digests, several hashed in step.
std::vector<Key> hash_external(const Digest& root, std::string_view scheme, ByteView digests,
                               std::uint64_t digest_bytes, std::uint64_t stride, std::uint64_t count) {
  // Everything but the digest itself is the same in all of them.
  std::vector<std::byte> message;
  message.push_back(static_cast<std::byte>(Tag::kExternal));
  append_bytes(message, root);
  append_le(message, static_cast<std::uint32_t>(scheme.size()));
  append_bytes(message, as_byte_view(scheme));
  append_le(message, static_cast<std::uint32_t>(digest_bytes));
  const std::size_t digest_at = message.size();
  const std::size_t bytes = digest_at + digest_bytes;
  message.resize(sha256_padded_bytes(bytes));
  sha256_pad(message, bytes);

  std::vector<Key> keys;
  keys.reserve(count);
  std::vector<std::byte> lanes;
  for (std::size_t lane = 0; lane < std::min<std::uint64_t>(kSha256Lanes, count); ++lane)
    append_bytes(lanes, message);
  while (keys.size() < count) {
    const std::size_t used = std::min<std::uint64_t>(kSha256Lanes, count - keys.size());
    const std::byte* data[kSha256Lanes];
    Digest found[kSha256Lanes];
    for (std::size_t lane = 0; lane < used; ++lane) {
      std::byte* at = lanes.data() + lane * message.size();
      std::memcpy(at + digest_at, digests.data() + (keys.size() + lane) * stride, digest_bytes);
      data[lane] = at;
    }
    sha256_padded({data, used}, bytes, {found, used});
    for (std::size_t lane = 0; lane < used; ++lane) keys.push_back(key_from_digest(found[lane]));
  }
  return keys;
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

Status extend_chains(std::span<ChainExtension> chains, std::uint64_t page_tokens) {
  for (std::size_t i = 0; i < chains.size(); ++i)
    if (Status status = check_extension(page_tokens, chains[i].tokens.size(), chains[i].extras);
        !status.ok()) {
      status.message += fmt::format(" (chain {} of {})", i, chains.size());
      return status;
    }
  const bool in_step = PageMessages::fits(page_tokens);
  if (in_step) Lanes(chains, page_tokens).run();
  for (ChainExtension& extension : chains)
    if (!in_step || !extension.extras.empty())
      extension.keys = extend_chain(extension.chain, page_tokens, extension.tokens, extension.extras).value();
  return {};
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

  const std::uint64_t count = digests.size() / stride + (rest != 0 ? 1 : 0);
  return hash_external(root, scheme, digests, digest_bytes, stride, count);
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
