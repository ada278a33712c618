// The models of the tests: generated ones, a file for each memory kind of llama.cpp, and contexts of them. A
// model is loaded once a process and stays. One thread everywhere.
//
// Threads: one.
#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <llama.h>

namespace tiercel::llamacpp {

using Text = std::vector<llama_token>;

inline constexpr std::array kTinyModels = {"llama", "llama_swa", "llama_swa96",    "mamba",
                                           "lfm2",  "lfm2_swa",  "granite_hybrid", "mla"};
// Without the one that exact mode refuses: its window is no multiple of a tile (LlamaWindow).
inline constexpr std::array kExactModels = {"llama",    "llama_swa",      "mamba", "lfm2",
                                            "lfm2_swa", "granite_hybrid", "mla"};

// What a test chooses of a context.
struct Shape {
  std::uint32_t tokens = 1024;  // room of one sequence
  std::uint32_t sequences = 1;
  bool unified = false;
  bool full_window = true;
  std::uint32_t micro_batch = 512;
  ggml_type type_k = GGML_TYPE_F16, type_v = GGML_TYPE_F16;
  bool flash = true;
  float rope_base = 0;

  auto operator<=>(const Shape&) const = default;
  llama_context_params params() const;
};

// Empty: the models are not there; why, in words.
std::string models_missing();
std::string tiny_model_path(const std::string& name);
// Of the real one; empty: there is none.
std::string real_model_path();

// Loaded once for each path.
llama_model* load_model(const std::string& path);
inline llama_model* tiny_model(const std::string& name) { return load_model(tiny_model_path(name)); }

struct FreeContext {
  void operator()(llama_context* context) const { llama_free(context); }
};
using Context = std::unique_ptr<llama_context, FreeContext>;
Context make_context(llama_model* model, const llama_context_params& params);

// The first `count` tokens of an endless text: a longer one of the same seed begins with a shorter one.
Text text_of(const llama_model* model, std::uint64_t seed, std::size_t count);
// `shared` tokens of the text of `seed`, then the text of `other`.
Text branch_of(const llama_model* model, std::uint64_t seed, std::size_t shared, std::uint64_t other,
               std::size_t count);

}  // namespace tiercel::llamacpp
