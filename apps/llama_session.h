// What the programs of `tiercel llama` share: a model and its vocabulary, a context, a cache for it, a prompt
// of text or of random tokens, and an answer, taken greedily.
//
// Not to be included beside base/status.h: tiercel.hpp has names of its own for outcomes.
// Threads: main thread only.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <llama-cpp.h>
#include <tiercel/llamacpp.hpp>
#include <tl/expected.hpp>

#include "llama_command.h"

namespace tiercel::apps {

template <typename T>
using LlamaResult = tl::expected<T, Refusal>;

tl::unexpected<Refusal> refuse(std::string message, int status = kExitFailed);
// Of a status that is not ok: arguments that make no sense are the command line's.
tl::unexpected<Refusal> refuse(const Status& status);

using SteadyTime = std::chrono::steady_clock::time_point;
double ms_since(SteadyTime start);

// Whether a bar may be drawn between what else is said.
bool shows_progress(const LlamaArguments& arguments);

// Writes a line to stderr, dim on a terminal.
void remark(std::string_view line);

struct ChatMessage {
  std::string role, content;
};

class LlamaModel {
 public:
  // With its LoRA adapters, unless it is for the vocabulary alone. A bar on a terminal. Errors: the file, and
  // what llama.cpp says of it.
  static LlamaResult<LlamaModel> load(const LlamaArguments& arguments, bool vocabulary_only = false);

  llama_model* get() const { return model_.get(); }
  const std::vector<std::string>& files() const { return files_; }
  std::vector<llama_adapter_lora*> adapters() const;  // in the order of the command line
  std::string description() const;                    // the name that it has, or its kind
  std::uint32_t trained_tokens() const;
  bool has_vocabulary() const;

  // The messages in the form that the model was trained on, `answer_follows`: up to where the answer begins.
  // Errors: a template that llama.cpp does not know.
  LlamaResult<std::string> render(std::span<const ChatMessage> messages, bool answer_follows = true) const;
  // Errors: a model without a vocabulary.
  LlamaResult<std::vector<llama_token>> tokenize(const std::string& text) const;
  LlamaResult<std::vector<llama_token>> tokenize(std::span<const ChatMessage> messages) const;
  std::string piece(llama_token token) const;  // empty without a vocabulary
  bool ends(llama_token token) const;          // whether it ends an answer
  // Appends `count` tokens that follow from `seed`.
  void append_random(std::vector<llama_token>& tokens, std::uint32_t count, std::uint64_t seed) const;

 private:
  llama_model_ptr model_;
  std::vector<llama_adapter_lora_ptr> adapters_;  // end before the model
  std::vector<std::string> files_;
  std::string template_;  // empty: the model's; "none"
};

// The prompt that the command line tells. Errors: as tokenize().
LlamaResult<std::vector<llama_token>> make_prompt(const LlamaModel& model, const LlamaArguments& arguments);

// Whether llama_decode is to give up: a prompt may, a single token is computed to its end.
struct LlamaStop {
  const std::atomic<bool>* asked = nullptr;
  std::atomic<bool> heard = true;
};

struct LlamaContext {
  llama_context_params params{};
  std::unique_ptr<LlamaStop> stop;
  llama_context_ptr context;
  llama_context* get() const { return context.get(); }
  std::uint32_t tokens() const { return llama_n_ctx(context.get()); }
};

// A context for so many tokens, unless the command line says how many, with the adapters at their scales.
// `stop`: ends the computing of a prompt; null: nothing does. Errors: what llama.cpp says; more tokens than
// the context has.
LlamaResult<LlamaContext> make_context(const LlamaModel& model, const LlamaArguments& arguments,
                                       std::size_t tokens, const std::atomic<bool>* stop);

// What computing a prompt came to, with or without a cache.
struct LlamaPrefill {
  llamacpp::Prefilled prefilled;
  bool cancelled = false;  // `stop` was set
};
// Plain llama.cpp: the whole prompt in one llama_decode, in as many as --batch makes it. Sequence 0 is
// emptied first.
LlamaResult<LlamaPrefill> prefill_plain(const LlamaContext& context, std::span<const llama_token> prompt);

struct AnswerOptions {
  std::uint32_t tokens = 64;                     // at most
  const std::atomic<bool>* stop = nullptr;       // ends the answer
  std::function<bool(std::string_view)> stream;  // the text as it comes; false ends the answer
  bool hash_logits = false;
  std::vector<std::vector<float>>* logits = nullptr;  // of each step, for comparison
};

struct Answer {
  std::vector<llama_token> tokens;  // with the one that ended it
  std::string text;
  std::string ended;  // "end", "length", "context", "stopped"
  std::string logits_sha256;
  double ttft_ms = 0;             // since `start`
  std::vector<llama_token> held;  // what sequence 0 holds afterwards
};

// The most likely token again and again. Requires: the logits of the prompt's last token are there.
// Errors: what llama.cpp refused to compute.
LlamaResult<Answer> answer(const LlamaModel& model, const LlamaContext& context,
                           std::span<const llama_token> prompt, const AnswerOptions& options,
                           SteadyTime start);

// Returns: whether all of it is in the file now.
bool write_text(const std::string& path, const std::string& text);

// A folder of its own, removed at the end.
class TemporaryFolder final {
 public:
  TemporaryFolder();
  ~TemporaryFolder();
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  const std::string& path() const { return path_; }  // empty: there is none

 private:
  std::string path_;
};
inline constexpr std::uint64_t kTemporaryCacheBytes = 1ULL << 30;

}  // namespace tiercel::apps
