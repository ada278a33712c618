#include "llama_session.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <numeric>
#include <system_error>

#include <fmt/format.h>
#include <ggml-backend.h>
#include <unistd.h>

#include "base/prng.h"
#include "base/sha256.h"

namespace tiercel::apps {
namespace {

// ---- what llama.cpp has to say ----

struct LlamaLog {
  bool shown = false;
  std::string error;  // the last one
};

LlamaLog& llama_log() {
  static LlamaLog log;
  return log;
}

void on_llama_log(ggml_log_level level, const char* text, void*) {
  LlamaLog& log = llama_log();
  if (log.shown) std::fputs(text, stderr);
  if (level != GGML_LOG_LEVEL_ERROR) return;
  log.error = text;
  while (!log.error.empty() && log.error.back() == '\n') log.error.pop_back();
}

tl::unexpected<Refusal> llama_refused(std::string what) {
  const std::string& why = llama_log().error;
  if (!why.empty()) what += ": " + why;
  return refuse(std::move(what));
}

void start_llama(Logged log) {
  llama_log().shown = log == Logged::kAll;
  llama_log_set(on_llama_log, nullptr);
  ggml_backend_load_all();
  llama_backend_init();
}

bool on_model_progress(float share, void* bar) {
  constexpr std::uint64_t kParts = 1000;
  static_cast<Bar*>(bar)->update(
      static_cast<std::uint64_t>(static_cast<float>(kParts) * std::clamp(share, 0.0F, 1.0F)), kParts);
  return true;
}

// ---- model files ----

// All parts of the model, in order: "x-00001-of-00003.gguf" names three.
std::vector<std::string> parts_of(const std::string& path) {
  int part = 0, parts = 0;
  constexpr std::size_t kTail = sizeof("-00001-of-00003.gguf") - 1;
  if (path.size() <= kTail ||
      std::sscanf(path.c_str() + path.size() - kTail, "-%5d-of-%5d.gguf", &part, &parts) != 2 || part != 1)
    return {path};
  std::vector<std::string> files;
  files.reserve(static_cast<std::size_t>(std::max(parts, 1)));
  const std::string prefix = path.substr(0, path.size() - kTail);
  for (int i = 0; i < parts; ++i)
    files.push_back(fmt::format("{}-{:05}-of-{:05}.gguf", prefix, i + 1, parts));
  return files;
}

// Why this file cannot be read; nothing: it can.
std::optional<Refusal> unreadable(const char* option, const std::string& file) {
  std::error_code error;
  if (std::filesystem::is_directory(file, error))
    return Refusal{kExitFailed, fmt::format("{}: {} is a folder; give a GGUF file", option, file)};
  if (const std::string problem = access_problem(file, R_OK); !problem.empty())
    return Refusal{kExitFailed, fmt::format("{}: {}", option, problem)};
  return std::nullopt;
}

std::string known_templates() {
  const auto count = static_cast<std::size_t>(std::max(llama_chat_builtin_templates(nullptr, 0), 0));
  std::vector<const char*> names(count);
  llama_chat_builtin_templates(names.data(), names.size());
  return fmt::format("{}", fmt::join(names, ", "));
}

// Without a template: texts, with an empty line between them.
std::string plain_text(std::span<const ChatMessage> messages) {
  std::string text;
  for (const ChatMessage& message : messages) text += (text.empty() ? "" : "\n\n") + message.content;
  return text;
}

ggml_type type_named(const std::string& name) {
  for (int type = 0; type < GGML_TYPE_COUNT; ++type)
    if (const char* known = ggml_type_name(static_cast<ggml_type>(type)); known != nullptr && name == known)
      return static_cast<ggml_type>(type);
  return GGML_TYPE_F16;
}

bool on_abort(void* context) {
  const auto& stop = *static_cast<const LlamaStop*>(context);
  return stop.heard && stop.asked != nullptr && *stop.asked;
}

// One llama_decode of tokens that follow what sequence 0 holds; logits of the last one.
int decode(llama_context* context, std::span<const llama_token> tokens) {
  std::vector<llama_token> own(tokens.begin(),
                               tokens.end());  // a batch may change them, as far as its type says
  return llama_decode(context, llama_batch_get_one(own.data(), static_cast<std::int32_t>(own.size())));
}

constexpr int kAborted = 2;  // llama_decode's answer

LlamaResult<std::span<const float>> logits_of(const LlamaModel& model, const LlamaContext& context) {
  const float* values = llama_get_logits_ith(context.get(), -1);
  if (values == nullptr) return llama_refused("llama.cpp has no logits of the last token");
  const std::int32_t count = llama_vocab_n_tokens(llama_model_get_vocab(model.get()));
  return std::span(values, static_cast<std::size_t>(count));
}

}  // namespace

// ---- small things ----

tl::unexpected<Refusal> refuse(std::string message, int status) {
  return tl::unexpected(Refusal{status, std::move(message)});
}

tl::unexpected<Refusal> refuse(const Status& status) {
  return refuse(status.message.empty() ? status.to_string() : status.message,
                status.code == TIERCEL_INVALID_ARGUMENT ? kExitUsage : kExitFailed);
}

double ms_since(SteadyTime start) {
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
}

bool shows_progress(const LlamaArguments& arguments) {
  return !arguments.json && arguments.log == Logged::kNothing;
}

void remark(std::string_view line) {
  const bool dim = stderr_wants_colour();
  const std::string text = fmt::format("{}{}{}\n", dim ? "\033[2m" : "", line, dim ? "\033[0m" : "");
  std::fwrite(text.data(), 1, text.size(), stderr);
}

bool write_text(const std::string& path, const std::string& text) {
  std::FILE* file = std::fopen(path.c_str(), "wbe");
  if (file == nullptr) return false;
  const bool written = std::fwrite(text.data(), 1, text.size(), file) == text.size();
  return std::fclose(file) == 0 && written;
}

TemporaryFolder::TemporaryFolder() {
  std::error_code error;
  std::string name = (std::filesystem::temp_directory_path(error) / "tiercel-llama-XXXXXX").string();
  if (!error && ::mkdtemp(name.data()) != nullptr) path_ = name;
}

TemporaryFolder::~TemporaryFolder() {
  std::error_code ignored;
  if (!path_.empty()) std::filesystem::remove_all(path_, ignored);
}

// ---- the model ----

LlamaResult<LlamaModel> LlamaModel::load(const LlamaArguments& arguments, bool vocabulary_only) {
  LlamaModel model;
  model.files_ = parts_of(arguments.model);
  model.template_ = arguments.chat_template;
  for (const std::string& file : model.files_)
    if (const auto refusal = unreadable("-m", file)) return tl::unexpected(*refusal);
  for (const LoraArgument& lora : arguments.loras)
    if (const auto refusal = unreadable("--lora", lora.file)) return tl::unexpected(*refusal);
  start_llama(arguments.log);
  Bar bar("reading the model", shows_progress(arguments));
  auto params = llama_model_default_params();
  params.vocab_only = vocabulary_only;
  params.progress_callback = on_model_progress;
  params.progress_callback_user_data = &bar;
  model.model_.reset(llama_model_load_from_file(arguments.model.c_str(), params));
  bar.clear();
  if (!model.model_)
    return llama_refused(fmt::format("-m: {}: llama.cpp cannot load this model", arguments.model));
  if (vocabulary_only) return model;
  for (const LoraArgument& lora : arguments.loras) {  // before any context is made
    model.adapters_.emplace_back(llama_adapter_lora_init(model.get(), lora.file.c_str()));
    if (!model.adapters_.back())
      return llama_refused(
          fmt::format("--lora: {}: llama.cpp cannot load this adapter for this model", lora.file));
  }
  return model;
}

std::string LlamaModel::description() const {
  char text[256] = {};
  if (llama_model_meta_val_str(get(), "general.name", text, sizeof(text)) <= 0)
    llama_model_desc(get(), text, sizeof(text));
  return text;
}

std::uint32_t LlamaModel::trained_tokens() const {
  return static_cast<std::uint32_t>(std::max(llama_model_n_ctx_train(get()), 0));
}

bool LlamaModel::has_vocabulary() const {
  return llama_vocab_type(llama_model_get_vocab(get())) != LLAMA_VOCAB_TYPE_NONE;
}

std::vector<llama_adapter_lora*> LlamaModel::adapters() const {
  std::vector<llama_adapter_lora*> all;
  all.reserve(adapters_.size());
  for (const llama_adapter_lora_ptr& adapter : adapters_) all.push_back(adapter.get());
  return all;
}

LlamaResult<std::string> LlamaModel::render(std::span<const ChatMessage> messages,
                                            bool answer_follows) const {
  const char* own = llama_model_chat_template(get(), nullptr);
  const char* wanted = template_.empty() ? own : template_.c_str();
  if (wanted == nullptr || template_ == "none") return plain_text(messages);
  std::vector<llama_chat_message> views;
  for (const ChatMessage& message : messages)
    views.push_back({message.role.c_str(), message.content.c_str()});
  const auto apply = [&](std::string& text) {
    return llama_chat_apply_template(wanted, views.data(), views.size(), answer_follows, text.data(),
                                     static_cast<std::int32_t>(text.size()));
  };
  std::string text(1024, '\0');
  const std::int32_t size = apply(text);
  if (size < 0)
    return refuse(fmt::format("--template: {}; wanted none (the text as it is) or one of {}",
                              template_.empty() ? "llama.cpp does not know the template that the model has"
                                                : fmt::format("llama.cpp has no \"{}\"", template_),
                              known_templates()),
                  kExitUsage);
  text.resize(static_cast<std::size_t>(size));
  apply(text);  // again: now it fits
  return text;
}

LlamaResult<std::vector<llama_token>> LlamaModel::tokenize(const std::string& text) const {
  if (!has_vocabulary())
    return refuse(fmt::format("{}: this model has no vocabulary; give it --prompt-tokens N instead of text",
                              files_.front()),
                  kExitUsage);
  const llama_vocab* vocabulary = llama_model_get_vocab(get());
  const auto length = static_cast<std::int32_t>(text.size());
  std::vector<llama_token> tokens(text.size() + 16);
  std::int32_t count = llama_tokenize(vocabulary, text.data(), length, tokens.data(),
                                      static_cast<std::int32_t>(tokens.size()), true, true);
  if (count < 0 && count != INT32_MIN) {
    tokens.resize(static_cast<std::size_t>(-count));
    count = llama_tokenize(vocabulary, text.data(), length, tokens.data(), -count, true, true);
  }
  if (count <= 0) return refuse("the prompt has no token; give it more text");
  tokens.resize(static_cast<std::size_t>(count));
  return tokens;
}

LlamaResult<std::vector<llama_token>> LlamaModel::tokenize(std::span<const ChatMessage> messages) const {
  const auto text = render(messages);
  if (!text) return tl::unexpected(text.error());
  return tokenize(*text);
}

std::string LlamaModel::piece(llama_token token) const {
  if (!has_vocabulary()) return {};
  const llama_vocab* vocabulary = llama_model_get_vocab(get());
  std::string text(64, '\0');
  std::int32_t size = llama_token_to_piece(vocabulary, token, text.data(), 64, 0, false);
  if (size < 0) {
    text.resize(static_cast<std::size_t>(-size));
    size = llama_token_to_piece(vocabulary, token, text.data(), -size, 0, false);
  }
  text.resize(static_cast<std::size_t>(std::max(size, 0)));
  return text;
}

bool LlamaModel::ends(llama_token token) const {
  return has_vocabulary() && llama_vocab_is_eog(llama_model_get_vocab(get()), token);
}

void LlamaModel::append_random(std::vector<llama_token>& tokens, std::uint32_t count,
                               std::uint64_t seed) const {
  const auto most = static_cast<std::uint64_t>(
      std::max(llama_vocab_n_tokens(llama_model_get_vocab(get())), std::int32_t{1}));
  Prng random(seed);
  for (std::uint32_t i = 0; i < count; ++i) tokens.push_back(static_cast<llama_token>(random.below(most)));
}

LlamaResult<std::vector<llama_token>> make_prompt(const LlamaModel& model, const LlamaArguments& arguments) {
  if (arguments.prompt_tokens != 0) {
    std::vector<llama_token> tokens;
    model.append_random(tokens, arguments.prompt_tokens, arguments.seed);
    model.append_random(tokens, arguments.question_tokens, arguments.question_seed);
    return tokens;
  }
  std::vector<ChatMessage> messages;
  if (!arguments.system.empty()) messages.push_back({"system", arguments.system});
  const bool both = !arguments.text_before.empty() && !arguments.prompt.empty();
  messages.push_back({"user", arguments.text_before + (both ? "\n\n" : "") + arguments.prompt});
  return model.tokenize(messages);
}

// ---- the context ----

LlamaResult<LlamaContext> make_context(const LlamaModel& model, const LlamaArguments& arguments,
                                       std::size_t tokens, const std::atomic<bool>* stop) {
  // Not so few that llama.cpp would make batches smaller, and bits other ones.
  constexpr std::size_t kLeast = 2048, kStep = 1024;
  LlamaContext made;
  made.params = llama_context_default_params();
  llama_context_params& params = made.params;
  const std::size_t chosen = std::max(kLeast, (tokens + kStep - 1) / kStep * kStep);
  params.n_ctx =
      arguments.context_tokens != 0 ? arguments.context_tokens : static_cast<std::uint32_t>(chosen);
  params.n_batch = arguments.batch;
  params.n_ubatch = std::min(arguments.micro_batch, arguments.batch);
  params.n_threads = params.n_threads_batch = static_cast<std::int32_t>(arguments.threads);
  params.flash_attn_type = arguments.flash_attention == "on"    ? LLAMA_FLASH_ATTN_TYPE_ENABLED
                           : arguments.flash_attention == "off" ? LLAMA_FLASH_ATTN_TYPE_DISABLED
                                                                : LLAMA_FLASH_ATTN_TYPE_AUTO;
  params.swa_full = arguments.full_windows;
  params.type_k = type_named(arguments.type_k);
  params.type_v = type_named(arguments.type_v);
  made.stop = std::make_unique<LlamaStop>();
  made.stop->asked = stop;
  params.abort_callback = on_abort;
  params.abort_callback_data = made.stop.get();
  made.context.reset(llama_init_from_model(model.get(), params));
  if (!made.context)
    return llama_refused("llama.cpp cannot make a context; try another --ctx, --type-k or --flash-attn");
  std::vector<llama_adapter_lora*> adapters = model.adapters();
  std::vector<float> scales;
  scales.reserve(adapters.size());
  for (const LoraArgument& lora : arguments.loras) scales.push_back(lora.scale);
  if (!adapters.empty() &&
      llama_set_adapters_lora(made.get(), adapters.data(), adapters.size(), scales.data()) != 0)
    return llama_refused("llama.cpp cannot use the adapters (--lora) in this context");
  if (tokens > made.tokens())
    return refuse(
        fmt::format("prompt and answer take {} tokens, the context has {}; give a larger --ctx, or less text",
                    grouped_text(tokens), grouped_text(made.tokens())));
  return made;
}

// ---- prompt and answer ----

LlamaResult<LlamaPrefill> prefill_plain(const LlamaContext& context, std::span<const llama_token> prompt) {
  LlamaPrefill done;
  llama_memory_seq_rm(llama_get_memory(context.get()), 0, -1, -1);
  const std::size_t most = llama_n_batch(context.get());
  for (std::size_t at = 0; at < prompt.size();) {
    const std::size_t count = std::min(most, prompt.size() - at);
    const int code = decode(context.get(), prompt.subspan(at, count));
    done.cancelled = code == kAborted;
    if (done.cancelled) return done;
    if (code != 0) return llama_refused(fmt::format("llama.cpp cannot compute the prompt (code {})", code));
    done.prefilled.pieces.push_back(static_cast<std::uint32_t>(count));
    done.prefilled.computed_tokens += static_cast<std::uint32_t>(count);
    at += count;
  }
  return done;
}

LlamaResult<Answer> answer(const LlamaModel& model, const LlamaContext& context,
                           std::span<const llama_token> prompt, const AnswerOptions& options,
                           SteadyTime start) {
  Answer answer;
  answer.held.assign(prompt.begin(), prompt.end());
  Sha256 hash;
  while (answer.ended.empty()) {
    const auto logits = logits_of(model, context);
    if (!logits) return tl::unexpected(logits.error());
    const auto best = std::max_element(logits->begin(), logits->end()) - logits->begin();
    const auto token = static_cast<llama_token>(best);
    if (answer.tokens.empty()) answer.ttft_ms = ms_since(start);
    if (options.hash_logits) hash.update(std::as_bytes(*logits));
    if (options.logits != nullptr) options.logits->emplace_back(logits->begin(), logits->end());
    answer.tokens.push_back(token);
    if (model.ends(token)) answer.ended = "end";
    const std::string piece = answer.ended.empty() ? model.piece(token) : "";
    answer.text += piece;
    if (options.stream && !piece.empty() && !options.stream(piece)) answer.ended = "stopped";
    if (!answer.ended.empty()) break;
    if (answer.tokens.size() >= options.tokens) answer.ended = "length";
    if (answer.held.size() >= context.tokens()) answer.ended = "context";
    if (options.stop != nullptr && options.stop->load()) answer.ended = "stopped";
    if (!answer.ended.empty()) break;
    context.stop->heard = false;
    const int code = decode(context.get(), std::span(&token, 1));
    context.stop->heard = true;
    if (code != 0) return llama_refused(fmt::format("llama.cpp cannot compute a token (code {})", code));
    answer.held.push_back(token);
  }
  if (options.hash_logits)
    for (const std::byte byte : hash.finish())
      answer.logits_sha256 += fmt::format("{:02x}", std::to_integer<unsigned>(byte));
  return answer;
}

}  // namespace tiercel::apps
