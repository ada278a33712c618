#include "llamacpp_models_for_test.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <map>

#include <gtest/gtest.h>

namespace tiercel::llamacpp {
namespace {

// The variable of the environment, or what the build says.
std::string setting(const char* name, const char* built_in) {
  const char* value = std::getenv(name);  // NOLINT(concurrency-mt-unsafe): nobody sets variables here
  return value != nullptr ? value : built_in;
}

void only_errors(ggml_log_level level, const char* text, void* /*nothing*/) {
  if (level == GGML_LOG_LEVEL_ERROR && setting("TIERCEL_LLAMA_ERRORS", "") == "1") std::fputs(text, stderr);
}

std::uint64_t mixed(std::uint64_t x) {  // the last step of SplitMix64
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ULL;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBULL;
  return x ^ (x >> 31);
}

std::string models_folder() {
#ifdef TIERCEL_TINY_MODELS
  return setting("TIERCEL_TINY_MODELS", TIERCEL_TINY_MODELS);
#else
  return setting("TIERCEL_TINY_MODELS", "");
#endif
}

}  // namespace

llama_context_params Shape::params() const {
  llama_context_params params = llama_context_default_params();
  params.n_ctx = unified ? tokens : tokens * sequences;
  params.n_seq_max = sequences;
  params.kv_unified = unified;
  params.n_ubatch = micro_batch;
  params.n_batch = std::max(tokens, micro_batch);
  params.n_threads = params.n_threads_batch = 1;
  params.swa_full = full_window;
  params.type_k = type_k;
  params.type_v = type_v;
  params.flash_attn_type = flash ? LLAMA_FLASH_ATTN_TYPE_AUTO : LLAMA_FLASH_ATTN_TYPE_DISABLED;
  params.rope_freq_base = rope_base;
  return params;
}

std::string tiny_model_path(const std::string& name) { return models_folder() + "/" + name + ".gguf"; }

std::string real_model_path() {
#ifdef TIERCEL_REAL_MODEL
  return setting("TIERCEL_REAL_MODEL", TIERCEL_REAL_MODEL);
#else
  return setting("TIERCEL_REAL_MODEL", "");
#endif
}

std::string models_missing() {
  if (models_folder().empty()) return "TIERCEL_TINY_MODELS does not say where the generated models are";
  for (const char* name : kTinyModels)
    if (!std::filesystem::exists(tiny_model_path(name)))
      return tiny_model_path(name) + " is not there; tests/tiny_models.py writes it";
  return "";
}

llama_model* load_model(const std::string& path) {
  // Never freed: contexts of tests stand in statics too, and llama.cpp wants them gone first.
  static auto* const kLoaded = new std::map<std::string, llama_model*>;
  if (kLoaded->empty()) llama_log_set(only_errors, nullptr);
  llama_model*& model = (*kLoaded)[path];
  if (model == nullptr) {
    llama_model_params params = llama_model_default_params();
    params.n_gpu_layers = 0;
    model = llama_model_load_from_file(path.c_str(), params);
  }
  EXPECT_NE(model, nullptr) << path;
  return model;
}

Context make_context(llama_model* model, const llama_context_params& params) {
  Context context(llama_init_from_model(model, params));
  EXPECT_NE(context, nullptr);
  return context;
}

Text text_of(const llama_model* model, std::uint64_t seed, std::size_t count) {
  const auto words = static_cast<std::uint64_t>(llama_vocab_n_tokens(llama_model_get_vocab(model)));
  Text text(count);
  for (std::size_t i = 0; i < count; ++i)
    text[i] = static_cast<llama_token>(mixed((seed + 1) * 0x9E3779B97F4A7C15ULL + i) % words);
  return text;
}

Text branch_of(const llama_model* model, std::uint64_t seed, std::size_t shared, std::uint64_t other,
               std::size_t count) {
  Text text = text_of(model, other, count);
  const Text trunk = text_of(model, seed, std::min(shared, count));
  std::copy(trunk.begin(), trunk.end(), text.begin());
  if (shared < count && text[shared] == text_of(model, seed, shared + 1).back())
    text[shared] ^= 1;  // really another one
  return text;
}

}  // namespace tiercel::llamacpp
