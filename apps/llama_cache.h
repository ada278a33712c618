// The cache of `tiercel llama`: attached to a context, its store opened, and what came of it.
//
// Threads: main thread only.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "llama_session.h"

namespace tiercel::apps {

// With a bar on a terminal while the model is hashed for the first time. Errors: those of
// ContextCache::attach.
LlamaResult<std::unique_ptr<llamacpp::ContextCache>> attach_cache(const LlamaModel& model,
                                                                  const LlamaContext& context,
                                                                  const LlamaArguments& arguments,
                                                                  llamacpp::Mode mode);

// That a program waits for another one which has the store.
inline constexpr std::chrono::seconds kWaitForStore(5);

// That it waits for a remote store to be ready.
inline constexpr std::chrono::seconds kWaitForRemote(3);

// The store in `folder`. Held by another process for longer than `wait`: null, and `note` says by which.
LlamaResult<std::shared_ptr<llamacpp::Store>> open_store(
    const LlamaArguments& arguments, const std::string& folder, std::chrono::nanoseconds wait,
    std::string& note, std::chrono::nanoseconds wait_for_remote = kWaitForRemote);

LlamaResult<LlamaPrefill> prefill_cached(llamacpp::ContextCache& cache, std::span<const llama_token> prompt);

// In words, what keeps the remote store from being asked now; empty: nothing, or there is none.
std::string remote_lack(llamacpp::Store& store);

// What the disk got since the store was opened.
struct LlamaSaved {
  std::uint64_t tokens = 0, class_sets = 0, bytes = 0;
};
// `beyond`: tokens that the store has now and that were not restored.
LlamaSaved saved_since_open(llamacpp::Store& store, const llamacpp::ContextCache& cache,
                            const LlamaArguments& arguments, std::uint64_t beyond);

// A sequence that the disk cannot keep whole; what a cache keeps of it is its end, of which nothing can be
// restored.
struct LlamaLack {
  std::uint64_t wanted_bytes = 0, room_bytes = 0;  // on disk
  std::uint64_t enough_bytes = 0;                  // as --cache-bytes
};
// Of sequence 0, which has `tokens`. Nothing: there is room, or nobody knows.
std::optional<LlamaLack> lacking_room(llamacpp::Store& store, const llamacpp::ContextCache& cache,
                                      const LlamaContext& context, const LlamaArguments& arguments,
                                      std::size_t tokens);
std::string lack_text(const LlamaLack& lack);

}  // namespace tiercel::apps
