// Calls of the ABI: keys. No lock: a namespace's root never changes.
#include <tiercel/tiercel.h>

#include "base/checked.h"
#include "capi/handles.h"
#include "capi/options.h"
#include "model/key_chain.h"

using namespace tiercel;        // NOLINT(google-build-using-namespace): the ABI's functions stand outside
using namespace tiercel::capi;  // NOLINT(google-build-using-namespace)

namespace {

constexpr std::uint64_t kTokensMax = std::uint64_t{1} << 32;
constexpr std::uint64_t kExtraBytesMax = std::uint64_t{1} << 20;

Answer read_extras(std::span<const tiercel_extras> given, std::vector<Extras>& extras) {
  for (const tiercel_extras& page : given) {
    std::span<const tiercel_bytes> items;
    TIERCEL_RETURN_UNLESS_OK(read_list("keys_from_tokens: extras", page.items, page.count, items));
    Extras& of_page = extras.emplace_back();
    for (const tiercel_bytes& item : items)
      TIERCEL_RETURN_UNLESS_OK(
          read_bytes("keys_from_tokens: extra", item, kExtraBytesMax, of_page.emplace_back()));
  }
  return {};
}

void write_probe(const Probe& from, tiercel_probe* to) {
  const auto bytes = std::as_writable_bytes(std::span(to->bytes));
  store_le(bytes.data(), from.words[0]);
  store_le(bytes.data() + 8, from.words[1]);
}

struct TokenCall {
  std::uint64_t page_tokens = 0;
  std::vector<Extras> extras;
  std::vector<Key> keys;
  KeyChain chain;
  tiercel_probe probe{};
};

template <typename Token>
Answer extend(TokenCall& call, std::span<const Token> tokens) {
  const bool first = call.chain.pages == 0 && tokens.size() >= call.page_tokens;
  auto keys = extend_chain(call.chain, call.page_tokens, tokens, std::span<const Extras>(call.extras));
  if (!keys) return keys.error();
  call.keys = std::move(*keys);
  if (first)
    write_probe(probe_from_tokens(tokens.first(static_cast<std::size_t>(call.page_tokens)),
                                  call.extras.empty() ? Extras{} : call.extras[0]),
                &call.probe);
  return {};
}

Answer extend(TokenCall& call, const std::uint32_t* tokens, std::uint64_t count, std::uint32_t width) {
  if (width == 1) {
    std::span<const std::uint32_t> ids;
    TIERCEL_RETURN_UNLESS_OK(read_list("keys_from_tokens: tokens", tokens, count, ids, kTokensMax));
    return extend(call, ids);
  }
  static_assert(sizeof(TokenPair) == 2 * sizeof(std::uint32_t));
  std::span<const TokenPair> pairs;
  const auto* const given =
      reinterpret_cast<const TokenPair*>(tokens);  // NOLINT: an array of two is its two numbers
  TIERCEL_RETURN_UNLESS_OK(read_list("keys_from_tokens: tokens", given, count, pairs, kTokensMax));
  return extend(call, pairs);
}

}  // namespace

tiercel_status tiercel_key_chain_start(const tiercel_namespace* ns, tiercel_key_chain* chain,
                                       tiercel_error* error) {
  return answer(error, [&]() -> Answer {
    TIERCEL_RETURN_UNLESS_OK(check(ns));
    TIERCEL_RETURN_UNLESS_OK(check_out("key_chain_start: chain", chain));
    tiercel_key_chain out{};
    std::memcpy(out.digest, ns->root.data(), sizeof out.digest);
    *chain = out;
    return {};
  });
}

tiercel_status tiercel_keys_from_tokens(const tiercel_namespace* ns, tiercel_key_chain* chain,
                                        const uint32_t* tokens, uint64_t token_count, uint32_t token_width,
                                        const tiercel_extras* extras, uint64_t extras_count,
                                        tiercel_key* keys, uint64_t capacity, uint64_t* count,
                                        tiercel_probe* probe, tiercel_error* error) {
  return answer(error, [&]() -> Answer {
    TIERCEL_RETURN_UNLESS_OK(check(ns));
    TIERCEL_RETURN_UNLESS_OK(check_out("keys_from_tokens: chain", chain));
    if (!ns->scheme.empty())
      return invalid("keys_from_tokens: the namespace's pages are keyed by an engine's digests (its scheme)");
    TIERCEL_RETURN_UNLESS_OK(check_enum("keys_from_tokens: token_width", token_width, 1, 2));
    TokenCall call;
    call.page_tokens = ns->table->form.spec.page_tokens;
    const std::uint64_t pages = token_count / call.page_tokens;
    if (pages > capacity)
      return {TIERCEL_RESOURCE_EXHAUSTED,
              fmt::format("keys_from_tokens: {} new pages, room for {} keys", pages, capacity)};
    if (extras_count != 0 && extras_count != pages)
      return invalid(
          fmt::format("keys_from_tokens: extras of {} pages for {} new pages; give one each, or none",
                      extras_count, pages));
    std::span<const tiercel_extras> of_pages;
    TIERCEL_RETURN_UNLESS_OK(read_list("keys_from_tokens: extras", extras, extras_count, of_pages));
    TIERCEL_RETURN_UNLESS_OK(read_extras(of_pages, call.extras));
    std::memcpy(call.chain.digest.data(), chain->digest, sizeof chain->digest);
    call.chain.pages = chain->pages;
    TIERCEL_RETURN_UNLESS_OK(extend(call, tokens, token_count, token_width));
    std::vector<tiercel_key> out(call.keys.size());
    for (std::size_t i = 0; i < out.size(); ++i) out[i] = key_of(call.keys[i]);
    TIERCEL_RETURN_UNLESS_OK(write_list<tiercel_key>("keys_from_tokens: keys", out, keys, capacity, count));
    std::memcpy(chain->digest, call.chain.digest.data(), sizeof chain->digest);
    chain->pages = call.chain.pages;
    if (probe != nullptr) *probe = call.probe;
    return {};
  });
}

tiercel_status tiercel_keys_from_digests(const tiercel_namespace* ns, const void* digests, uint64_t count,
                                         uint64_t digest_bytes, uint64_t stride, tiercel_key* keys,
                                         tiercel_probe* probe, tiercel_error* error) {
  return answer(error, [&]() -> Answer {
    TIERCEL_RETURN_UNLESS_OK(check(ns));
    if (ns->scheme.empty())
      return invalid("keys_from_digests: the namespace's identity names no scheme of the engine's");
    if (digest_bytes == 0 || digest_bytes > kExternalDigestBytesMax || stride < digest_bytes)
      return invalid(
          fmt::format("keys_from_digests: digests of {} bytes, {} apart; wanted 1 to {}, and as far apart",
                      digest_bytes, stride, kExternalDigestBytesMax));
    if (count > kListMax || (count != 0 && (digests == nullptr || stride > kSizeMax / count)))
      return invalid(fmt::format("keys_from_digests: {} digests {} apart: NULL, or too many", count, stride));
    if (count != 0 && keys == nullptr) return invalid("keys_from_digests: keys is NULL");
    const std::uint64_t bytes = count == 0 ? 0 : (count - 1) * stride + digest_bytes;
    const ByteView all(static_cast<const std::byte*>(digests), static_cast<std::size_t>(bytes));
    auto made = tiercel::keys_from_digests(ns->root, ns->scheme, all, digest_bytes, stride);
    if (!made) return made.error();
    if (made->size() != count) return {TIERCEL_INTERNAL, "keys_from_digests: another number of keys"};
    for (std::size_t i = 0; i < made->size(); ++i) keys[i] = key_of((*made)[i]);
    if (probe != nullptr) {
      *probe = {};
      if (count != 0)
        write_probe(probe_from_digest(ns->scheme, all.first(static_cast<std::size_t>(digest_bytes))), probe);
    }
    return {};
  });
}
