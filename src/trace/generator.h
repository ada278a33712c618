// Made-up request traces for machines without real ones: a seed gives the same requests everywhere. Their
// statistics (blocks per request, share of blocks used once, ideal hit ratio, whole-prompt repeats, time
// between uses) follow two published traces; the requests themselves are invented.
//
// Threads: pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/status.h"
#include "trace/trace.h"

namespace tiercel {

enum class TraceKind : std::uint8_t {
  kConversation,  // chat: one first block for all, prompts that grow turn by turn, edits and retries
  kSynthetic,     // documents asked several times in shuffled order, among many requests seen once
};

struct GeneratorSpec {
  TraceKind kind = TraceKind::kConversation;
  std::uint64_t requests = 12'031;
  std::uint64_t seed = 1;
  friend bool operator==(const GeneratorSpec&, const GeneratorSpec&) = default;
};
inline constexpr std::uint64_t kGeneratedRequestsMax = 10'000'000;

// Reads "conversation", "synthetic:5000", "conversation:12031:7". Without a number of requests each kind
// makes as many as its model has (12,031; 3,993). Errors: invalid_argument with the text and the accepted
// form.
Result<GeneratorSpec> parse_generator(std::string_view text);
std::string generator_text(const GeneratorSpec& spec);  // "conversation:12031:1"

// Returns: exactly spec.requests requests, timestamps ascending, ids from 0 in order of first appearance.
// Requires: spec.requests ≤ kGeneratedRequestsMax.
Trace generate(const GeneratorSpec& spec);

}  // namespace tiercel
