#include "model/identity.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "base/bytes.h"

namespace tiercel {
namespace {

constexpr std::uint64_t kTextBytesMax = 65536;
constexpr std::uint64_t kOtherEntriesMax = 1024;
constexpr std::string_view kTokenScheme = "tiercel-tokens-1";
constexpr std::string_view kReservedPrefix = "tiercel-";

enum class Salt : std::uint8_t { kHashed, kPlain };

void append_hex(std::string& out, ByteView bytes) {
  for (const std::byte b : bytes) fmt::format_to(std::back_inserter(out), "{:02x}", std::to_integer<int>(b));
}

// Printable ASCII stays, everything else becomes \xHH: one line for one value, and no two values alike.
std::string escape(std::string_view value, bool is_name = false) {
  std::string out;
  for (const char c : value) {
    const bool plain = c >= 0x20 && c <= 0x7E && c != '\\' && !(is_name && c == '=');
    if (plain)
      out += c;
    else
      fmt::format_to(std::back_inserter(out), "\\x{:02x}", static_cast<unsigned char>(c));
  }
  return out;
}

struct Field {
  std::string name;
  std::string value;
};

// Every field in its fixed order. allow_weak is a permission, not a property of the bytes, and is left out.
std::vector<Field> fields(const ContentIdentity& identity, Salt salt) {
  const KeyScheme& scheme = identity.scheme;
  const std::uint64_t granule = scheme.granule_tokens != 0 ? scheme.granule_tokens : identity.page_tokens;
  std::vector<Field> list = {
      {"tiercel_identity", "1"},
      {"model", escape(identity.model)},
      {"weights", escape(identity.weights)},
      {"weights_epoch", fmt::format("{}", identity.weights_epoch)},
      {"dtype", escape(identity.dtype)},
      {"quantisation", escape(identity.quantisation)},
      {"rope", escape(identity.rope)},
      {"attention", escape(identity.attention)},
      {"page_tokens", fmt::format("{}", identity.page_tokens)},
      {"adapter", escape(identity.adapter)},
      {"scheme.name", escape(scheme.name)},
      {"scheme.algorithm", escape(scheme.algorithm)},
      {"scheme.seed", escape(scheme.seed)},
      {"scheme.encoding", escape(scheme.encoding)},
      {"scheme.granule_tokens", fmt::format("{}", granule)},
  };
  for (const auto& [name, value] : identity.other)
    list.push_back({"other." + escape(name, true), escape(value)});
  Field last{"tenant_salt", escape(identity.tenant_salt)};
  if (salt == Salt::kHashed && !identity.tenant_salt.empty()) {
    last = {"tenant_salt.sha256", ""};
    append_hex(last.value, sha256(as_byte_view(identity.tenant_salt)));
  }
  list.push_back(std::move(last));
  return list;
}

std::string render(const std::vector<Field>& list) {
  std::string text;
  for (const Field& field : list) text += field.name + '=' + field.value + '\n';
  return text;
}

Status invalid(std::string message) { return {Code::kInvalidArgument, "identity: " + std::move(message)}; }

std::string lower(std::string_view text) {
  std::string out(text);
  std::transform(out.begin(), out.end(), out.begin(),
                 [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; });
  return out;
}

// Digests that nobody is known to be able to collide. What is not listed counts as weak.
bool is_cryptographic(std::string_view algorithm) {
  constexpr std::array<std::string_view, 12> kStrong = {"sha256",   "sha384",   "sha512",   "sha512-256",
                                                        "sha3-256", "sha3-384", "sha3-512", "shake256",
                                                        "blake2b",  "blake2s",  "blake3",   "sha512_256"};
  return std::find(kStrong.begin(), kStrong.end(), lower(algorithm)) != kStrong.end();
}

Status validate_lengths(const ContentIdentity& identity) {
  const std::array<std::pair<std::string_view, const std::string*>, 12> texts = {{
      {"model", &identity.model},
      {"weights", &identity.weights},
      {"dtype", &identity.dtype},
      {"quantisation", &identity.quantisation},
      {"rope", &identity.rope},
      {"attention", &identity.attention},
      {"adapter", &identity.adapter},
      {"scheme.name", &identity.scheme.name},
      {"scheme.algorithm", &identity.scheme.algorithm},
      {"scheme.seed", &identity.scheme.seed},
      {"scheme.encoding", &identity.scheme.encoding},
      {"tenant_salt", &identity.tenant_salt},
  }};
  for (const auto& [name, value] : texts)
    if (value->size() > kTextBytesMax)
      return invalid(fmt::format("{} must have at most {} bytes, has {}; give a digest of it", name,
                                 kTextBytesMax, value->size()));
  if (identity.other.size() > kOtherEntriesMax)
    return invalid(
        fmt::format("other must have at most {} entries, has {}", kOtherEntriesMax, identity.other.size()));
  for (const auto& [name, value] : identity.other)
    if (name.empty() || name.size() > kTextBytesMax || value.size() > kTextBytesMax)
      return invalid(fmt::format(
          "other.{}: name must have 1 to {} bytes and value at most that, have {} and {}",
          escape(std::string_view(name).substr(0, 64)), kTextBytesMax, name.size(), value.size()));
  return {};
}

Status validate_scheme(const ContentIdentity& identity) {
  const KeyScheme& scheme = identity.scheme;
  if (scheme.name.empty() || scheme.name.size() > kSchemeNameBytesMax)
    return invalid(
        fmt::format("scheme.name must have 1 to {} bytes, has {}", kSchemeNameBytesMax, scheme.name.size()));
  if (scheme.name == kTokenScheme) {
    if (scheme.algorithm != "sha256" || !scheme.seed.empty() || !scheme.encoding.empty() ||
        (scheme.granule_tokens != 0 && scheme.granule_tokens != identity.page_tokens))
      return invalid(fmt::format(
          "scheme {} is fixed (algorithm sha256, no seed, no encoding, granule = page tokens), got "
          "algorithm '{}', seed '{}', encoding '{}', granule {}; give an engine's scheme its own name",
          kTokenScheme, escape(scheme.algorithm), escape(scheme.seed), escape(scheme.encoding),
          scheme.granule_tokens));
    return {};
  }
  if (scheme.name.starts_with(kReservedPrefix))
    return invalid(fmt::format("scheme.name '{}' is unknown and '{}' is reserved; known: {}",
                               escape(scheme.name), kReservedPrefix, kTokenScheme));
  if (scheme.granule_tokens != 0 && identity.page_tokens % scheme.granule_tokens != 0)
    return invalid(fmt::format("page_tokens must be a multiple of scheme.granule_tokens {}, is {}",
                               scheme.granule_tokens, identity.page_tokens));
  if (scheme.allow_weak) return {};
  if (!is_cryptographic(scheme.algorithm))
    return invalid(fmt::format(
        "scheme '{}': algorithm '{}' is not a known cryptographic digest, so two prompts may share a "
        "key; use sha256, or allow this scheme by name",
        escape(scheme.name), escape(scheme.algorithm)));
  if (lower(scheme.seed) == "random")
    return invalid(fmt::format(
        "scheme '{}': seed 'random' differs in each process, so keys mean nothing elsewhere; fix the "
        "engine's hash seed, or allow this scheme by name",
        escape(scheme.name)));
  return {};
}

}  // namespace

std::string canonical_text(const ContentIdentity& identity) {
  return render(fields(identity, Salt::kHashed));
}

Digest root_digest(const ContentIdentity& identity) {
  return sha256(as_byte_view(render(fields(identity, Salt::kPlain))));
}

Status validate(const ContentIdentity& identity) {
  if (identity.weights.empty())
    return invalid(
        "weights must name a revision, is empty; give a digest or a tag that changes when they do");
  if (identity.dtype.empty()) return invalid("dtype must name the type KV is kept in, is empty");
  if (identity.page_tokens == 0 || identity.page_tokens > UINT32_MAX)
    return invalid(
        fmt::format("page_tokens must be 1 to {}, is {}", std::uint64_t{UINT32_MAX}, identity.page_tokens));
  if (Status status = validate_lengths(identity); !status.ok()) return status;
  return validate_scheme(identity);
}

std::optional<std::string> first_difference(const ContentIdentity& a, const ContentIdentity& b) {
  const std::vector<Field> left = fields(a, Salt::kPlain);
  const std::vector<Field> right = fields(b, Salt::kPlain);
  for (std::size_t i = 0; i < left.size() && i < right.size(); ++i) {
    // Names differ only among `other.*` and where one list of them has ended (tenant_salt comes last, in the
    // alphabet too): the smaller is the one that the other side lacks.
    if (left[i].name != right[i].name) return std::min(left[i].name, right[i].name);
    if (left[i].value != right[i].value) return left[i].name;
  }
  return std::nullopt;
}

}  // namespace tiercel
