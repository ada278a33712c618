// `tiercel llama`: llama.cpp with a cache that outlives the process: a chat, one answer, a demonstration, a
// comparison, a measurement. Always here; in a program that was built without llama.cpp each of them says so.
//
// Threads: main thread only.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "command.h"

namespace tiercel::apps {

Command llama_command(CLI::App& parent);

struct LoraArgument {
  std::string file;
  float scale = 1;
};

// What is said on stderr while it works: of the adapter, or of llama.cpp, too.
enum class Logged : std::uint8_t { kNothing, kCache, kAll };

// What a command line said, checked as far as that goes without the model.
struct LlamaArguments {
  std::string model;
  std::vector<LoraArgument> loras;
  // The cache. An empty folder: none (`ask`, `chat`), or a temporary one.
  std::string cache;
  std::uint64_t cache_bytes = 0;  // 0: what an existing one has; of a new one the default
  std::uint64_t host_bytes = 0;   // 0: the default
  bool without_cache = false, exact = false;
  std::uint32_t page_tokens = 16, snapshots = 4;
  std::string tenant, remote;  // remote: of a store that other machines reach; empty: TIERCEL_REMOTE, or none
  // The context.
  std::uint32_t threads = 1;
  std::uint32_t context_tokens = 0;  // 0: as many as it takes
  std::uint32_t batch = 2048, micro_batch = 512;
  bool full_windows = true;
  std::string flash_attention = "auto", type_k = "f16", type_v = "f16";
  // The prompt.
  std::string chat_template;  // empty: the model's; "none": the text as it is
  std::string system, text_before, prompt;
  std::uint32_t prompt_tokens = 0, question_tokens = 0;  // random ones instead of text
  std::uint64_t seed = 1, question_seed = 2;
  std::uint32_t answer_tokens = 0;
  // `demo` and `measure`.
  std::uint32_t manual_tokens = 0;
  std::vector<std::uint32_t> measured_tokens, measured_threads;
  std::uint32_t runs = 0;
  bool json = false;
  Logged log = Logged::kNothing;
};

// What runs after the parse; each in its llama_NAME.cc, there with TIERCEL_WITH_LLAMA only. Returns: the exit
// status.
int llama_chat(const LlamaArguments& arguments);
int llama_ask(const LlamaArguments& arguments);
int llama_demo(const LlamaArguments& arguments);
int llama_compare(const LlamaArguments& arguments);
int llama_measure(const LlamaArguments& arguments);

// For people: "34.0 MiB", "1,515". Here, because what computes them may not be included beside llamacpp.hpp.
std::string size_text(std::uint64_t bytes);
std::string grouped_text(std::uint64_t number);

}  // namespace tiercel::apps
