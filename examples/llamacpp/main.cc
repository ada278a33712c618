// The smallest program of llama.cpp that answers a question, with a cache that outlives it. The lines that
// the cache takes are marked "tiercel"; everything else is as in any program of llama.cpp.
//
//   llamacpp_example MODEL.gguf FOLDER "Why is the sky blue?" [TOKENS]
//
// The second time it restores the prompt from FOLDER instead of computing it. Without arguments it says so
// and ends.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include <llama-cpp.h>
#include <tiercel/llamacpp.hpp>  // tiercel

namespace {

int complain(const std::string& why) {
  std::fprintf(stderr, "%s\n", why.c_str());
  return 1;
}

std::vector<llama_token> tokenize(const llama_vocab* vocabulary, const std::string& text) {
  const auto length = static_cast<std::int32_t>(text.size());
  std::vector<llama_token> tokens(text.size() + 8);
  const std::int32_t count = llama_tokenize(vocabulary, text.data(), length, tokens.data(),
                                            static_cast<std::int32_t>(tokens.size()), true, true);
  tokens.resize(static_cast<std::size_t>(std::max(count, 0)));
  return tokens;
}

void print_piece(const llama_vocab* vocabulary, llama_token token) {
  char text[256];
  const std::int32_t size = llama_token_to_piece(vocabulary, token, text, sizeof(text), 0, false);
  std::fwrite(text, 1, static_cast<std::size_t>(std::max(size, 0)), stdout);
  std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 4)
    return argc == 1 ? std::puts("usage: llamacpp_example MODEL.gguf FOLDER PROMPT [TOKENS]") < 0 : 2;
  llama_log_set([](ggml_log_level, const char*, void*) {}, nullptr);
  ggml_backend_load_all();
  llama_backend_init();
  const llama_model_ptr model(llama_model_load_from_file(argv[1], llama_model_default_params()));
  if (!model) return complain("the model cannot be loaded");
  llama_context_params params = llama_context_default_params();
  params.n_ctx = 4096;
  // More threads than processors wait for each other most of the time.
  params.n_threads = params.n_threads_batch =
      static_cast<std::int32_t>(std::max(1U, std::thread::hardware_concurrency()));
  const llama_context_ptr context(llama_init_from_model(model.get(), params));
  if (!context) return complain("no context");
  const llama_vocab* vocabulary = llama_model_get_vocab(model.get());
  std::vector<llama_token> tokens = tokenize(vocabulary, argv[3]);
  if (tokens.empty()) return complain("the prompt has no tokens");

  namespace cached = tiercel::llamacpp;                                                          // tiercel
  auto cache = cached::ContextCache::attach(context.get(), params, {.model_files = {argv[1]}});  // tiercel
  if (!cache) return complain(cache.status().to_string());                                       // tiercel
  auto store = cached::Store::open({.folder = argv[2]});                                         // tiercel
  const tiercel::Status used = store ? (*cache)->use(*store) : store.status();                   // tiercel
  if (!used.ok()) complain("without the cache: " + used.to_string());                            // tiercel

  // Before: llama_decode(context.get(), llama_batch_get_one(tokens.data(), tokens.size())).
  const auto prompt = (*cache)->prefill(0, tokens);           // tiercel
  if (!prompt) return complain(prompt.status().to_string());  // tiercel
  std::fprintf(stderr, "[%u tokens restored, %u computed]\n", prompt->restored.tokens,
               prompt->computed_tokens);

  const int most = argc > 4 ? std::atoi(argv[4]) : 64;
  for (int i = 0; i < most; ++i) {
    const float* logits = llama_get_logits_ith(context.get(), -1);
    llama_token next = static_cast<llama_token>(
        std::max_element(logits, logits + llama_vocab_n_tokens(vocabulary)) - logits);
    if (llama_vocab_is_eog(vocabulary, next)) break;
    print_piece(vocabulary, next);
    if (llama_decode(context.get(), llama_batch_get_one(&next, 1)) != 0)
      return complain("the context is full");
    tokens.push_back(next);
  }
  std::puts("");
  if (const auto saved = (*cache)->save(0, tokens); !saved) complain(saved.status().to_string());  // tiercel
  if (store && !(*store)->close()) complain("the cache was not closed in good order");             // tiercel
  return 0;
}
