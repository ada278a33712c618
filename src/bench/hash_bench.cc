// Keys of pages against the bare rate of SHA-256 blocks.
#include <algorithm>
#include <vector>

#include <fmt/format.h>

#include "base/check.h"
#include "base/prng.h"
#include "base/sha256.h"
#include "bench/benches.h"
#include "model/key_chain.h"

namespace tiercel {
namespace {

constexpr std::uint64_t kPages = 128;  // of one chain

// Bytes that a page hashes besides its tokens: kind, parent, two counts (docs/format.md).
constexpr std::uint64_t kBesideTokens = 1 + sizeof(Digest) + 4 + 4;

// Whole blocks, nothing else: no tokens to fetch, no parent to wait for but the state itself.
class RawBlocks final {
 public:
  RawBlocks(std::uint64_t blocks, std::size_t lanes) : bytes_(blocks * kSha256BlockBytes - 9) {
    message_.resize(sha256_padded_bytes(bytes_));
    sha256_pad(message_, bytes_);
    data_.assign(lanes, message_.data());
  }
  void hash() const {
    Digest digests[kSha256Lanes];
    sha256_padded(data_, bytes_, {digests, data_.size()});
    keep(digests);
  }

 private:
  std::size_t bytes_;
  std::vector<std::byte> message_;
  std::vector<const std::byte*> data_;
};

// What a program without any of this does: the stream interface of a library, one page after the other.
void hash_by_stream(Digest parent, std::span<const std::uint32_t> tokens, std::uint64_t page_tokens) {
  Sha256 hash;
  for (std::uint64_t page = 0; page < kPages; ++page) {
    const std::uint32_t count[] = {static_cast<std::uint32_t>(page_tokens)};
    const std::byte kind[] = {std::byte{1}};
    const std::uint32_t no_extras[] = {0};
    hash.update(kind);
    hash.update(parent);
    hash.update(std::as_bytes(std::span(count)));
    hash.update(std::as_bytes(tokens.subspan(page * page_tokens, page_tokens)));
    hash.update(std::as_bytes(std::span(no_extras)));
    parent = hash.finish();
  }
  keep(parent);
}

std::vector<std::uint32_t> random_tokens(std::uint64_t count) {
  Prng prng(1);
  std::vector<std::uint32_t> tokens(count);
  for (std::uint32_t& token : tokens) token = static_cast<std::uint32_t>(prng.below(150'000));
  return tokens;
}

void bench_page_length(BenchRun& run, std::uint64_t page_tokens) {
  const std::uint64_t rounds = run.size(32, 0) * 16 / page_tokens + 1;
  const std::uint64_t blocks =
      sha256_padded_bytes(kBesideTokens + 4 * page_tokens) / kSha256BlockBytes * kPages;
  const std::vector<std::uint32_t> tokens = random_tokens(kSha256Lanes * kPages * page_tokens);
  const auto part = [&](std::uint64_t chain) {
    return std::span<const std::uint32_t>(tokens).subspan(chain * kPages * page_tokens, kPages * page_tokens);
  };
  const RawBlocks raw(blocks, 1);
  const RawBlocks raw_lanes(blocks, kSha256Lanes);
  // One iteration: kSha256Lanes chains, `rounds` times.
  const auto each_chain = [&](const auto& step) {
    for (std::uint64_t i = 0; i < rounds * kSha256Lanes; ++i) step(i % kSha256Lanes);
  };
  const Subject subjects[] = {
      {"chain",
       [&](Samples&) {
         each_chain([&](std::uint64_t i) {
           KeyChain chain = start_chain({});
           keep(extend_chain(chain, page_tokens, part(i)).value().data());
         });
       },
       {}},
      {"raw", [&](Samples&) { each_chain([&](std::uint64_t) { raw.hash(); }); }, {}},
      {"chains in step",
       [&](Samples&) {
         for (std::uint64_t round = 0; round < rounds; ++round) {
           std::vector<ChainExtension> chains;
           for (std::uint64_t i = 0; i < kSha256Lanes; ++i)
             chains.push_back({start_chain({}), part(i), {}, {}});
           TIERCEL_CHECK(extend_chains(chains, page_tokens).ok());
           keep(chains.data());
         }
       },
       {}},
      {"raw in step",
       [&](Samples&) {
         for (std::uint64_t round = 0; round < rounds; ++round) raw_lanes.hash();
       },
       {}},
      {"stream",
       [&](Samples&) { each_chain([&](std::uint64_t i) { hash_by_stream({}, part(i), page_tokens); }); },
       {}},
  };
  const Comparison result = run.compare(fmt::format("pages of {} tokens", page_tokens),
                                        rounds * kSha256Lanes * kPages, subjects, BenchClock::kThread);
  const std::uint64_t bytes = result.operations() * (kBesideTokens + 4 * page_tokens);
  constexpr auto kUnit = BenchUnit::kNanoseconds;
  BenchLine one =
      line_of(result, fmt::format("{} tokens, one chain", page_tokens), 0, 1, kUnit, "ns/page", bytes);
  one.limit_name = "raw SHA-256 blocks";
  one.target = "ratio >= 0.9";
  add_peer(one, result, 0, 4, kUnit, "OpenSSL's stream");
  run.add(std::move(one));
  BenchLine lanes = line_of(result, fmt::format("{} tokens, {} chains in step", page_tokens, kSha256Lanes), 2,
                            3, kUnit, "ns/page", bytes);
  lanes.limit_name = fmt::format("raw SHA-256 blocks, {} in step", kSha256Lanes);
  add_peer(lanes, result, 2, 0, kUnit, "one chain at a time");
  run.add(std::move(lanes));
}

// A request that goes on where a known one ended: 4 new pages behind 1,024 known ones.
void bench_resumed(BenchRun& run) {
  constexpr std::uint64_t kKnown = 1024, kNew = 4, kPageTokens = 64;
  const std::uint64_t rounds = run.size(1000, 1);
  const std::vector<std::uint32_t> tokens = random_tokens((kKnown + kNew) * kPageTokens);
  KeyChain known = start_chain({});
  TIERCEL_CHECK(extend_chain(known, kPageTokens, std::span(tokens).first(kKnown * kPageTokens)).has_value());
  const RawBlocks raw(sha256_padded_bytes(kBesideTokens + 4 * kPageTokens) / kSha256BlockBytes * kNew, 1);
  std::uint64_t resumed = 0;
  std::uint64_t hashed = 0;
  const Subject subjects[] = {
      {"resumed",
       [&](Samples&) {
         const std::uint64_t before = sha256_bytes_hashed();
         for (std::uint64_t i = 0; i < rounds; ++i) {
           KeyChain chain = known;
           keep(extend_chain(chain, kPageTokens, std::span(tokens).subspan(kKnown * kPageTokens))
                    .value()
                    .data());
         }
         hashed += sha256_bytes_hashed() - before;
         resumed += rounds;
       },
       {}},
      {"raw",
       [&](Samples&) {
         for (std::uint64_t i = 0; i < rounds; ++i) raw.hash();
       },
       {}},
  };
  const Comparison result = run.compare("a known prefix", rounds * kNew, subjects, BenchClock::kThread);
  const std::uint64_t new_bytes = kNew * (kBesideTokens + 4 * kPageTokens);
  BenchLine line =
      line_of(result, fmt::format("{} tokens, {} pages behind {} known", kPageTokens, kNew, kKnown), 0, 1,
              BenchUnit::kNanoseconds, "ns/page", rounds * new_bytes);
  line.limit_name = "raw SHA-256 blocks";
  line.note = fmt::format("{} bytes of the known prefix hashed", hashed - resumed * new_bytes);
  run.add(std::move(line));
}

// Digests of an engine, one short message each.
void bench_external(BenchRun& run) {
  constexpr std::uint64_t kDigestBytes = 32;
  constexpr std::string_view kScheme = "sha256-cbor";
  const std::uint64_t count = run.size(20'000, 8);
  const std::vector<std::byte> digests(count * kDigestBytes, std::byte{7});
  const std::uint64_t bytes = 1 + sizeof(Digest) + 4 + kScheme.size() + 4 + kDigestBytes;
  const RawBlocks raw(sha256_padded_bytes(bytes) / kSha256BlockBytes, kSha256Lanes);
  const Subject subjects[] = {
      {"keys",
       [&](Samples&) {
         keep(keys_from_digests({}, kScheme, digests, kDigestBytes, kDigestBytes).value().data());
       },
       {}},
      {"raw",
       [&](Samples&) {
         for (std::uint64_t i = 0; i < count; i += kSha256Lanes) raw.hash();
       },
       {}},
  };
  const Comparison result = run.compare("an engine's digests", count, subjects, BenchClock::kThread);
  BenchLine line = line_of(result, fmt::format("an engine's digests of {} bytes", kDigestBytes), 0, 1,
                           BenchUnit::kNanoseconds, "ns/page", count * bytes);
  line.limit_name = fmt::format("raw SHA-256 blocks, {} in step", kSha256Lanes);
  run.add(std::move(line));
}

}  // namespace

Status hash_bench(BenchRun& run) {
  for (const std::uint64_t page_tokens : {16U, 64U, 128U}) bench_page_length(run, page_tokens);
  bench_resumed(run);
  bench_external(run);
  return {};
}

}  // namespace tiercel
