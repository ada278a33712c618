// Where the tests run: a folder for a store, contexts with a cache, and the namespace of a context as the
// store sees it, by which pages can be looked for and removed.
//
// Threads: one.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <tiercel/llamacpp.hpp>

#include "decode_plan.h"
#include "llamacpp_answers_for_test.h"
#include "llamacpp_models_for_test.h"

namespace tiercel::llamacpp {

inline constexpr std::uint64_t kMiB = 1ULL << 20;

// Of its own, under the system's folder of temporary files; gone with all that is in it.
class Folder {
 public:
  Folder();
  ~Folder();
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  std::string store() const { return path_ + "/store"; }
  std::string file(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

StoreOptions store_options(const std::string& folder);
// Fails the test when it cannot be opened.
std::shared_ptr<Store> open_store(const std::string& folder);
std::shared_ptr<Store> open_store(const StoreOptions& options);

// A context with its cache.
struct Engine {
  std::string model_path;
  Shape shape;
  ContextOptions options;
  Context context;
  std::unique_ptr<ContextCache> cache;  // null: refused

  const llama_model* model() const { return llama_get_model(context.get()); }
  Plain& plain() const;  // of the same shape, with one sequence
  std::uint32_t longest(std::size_t prompt_tokens) const;
  bool exact() const { return options.mode == Mode::kExact; }
  llama_pos last_position(llama_seq_id sequence) const {
    return llama_memory_seq_pos_max(llama_get_memory(context.get()), sequence);
  }
};

using Adjust = std::function<void(ContextOptions&)>;
// Fails the test when it is refused.
Engine attach(const std::string& model_path, const Shape& shape, Mode mode, const Adjust& adjust = {});
Status attach_refusal(const std::string& model_path, const Shape& shape, Mode mode,
                      const Adjust& adjust = {});
inline Engine attach_tiny(const std::string& name, const Shape& shape, Mode mode, const Adjust& adjust = {}) {
  return attach(tiny_model_path(name), shape, mode, adjust);
}

// What prefill() said, and what the model says then.
struct Turn {
  Prefilled prefilled;
  Answer answer;
};
// Fails the test when prefill() fails, or its numbers do not agree with each other and with the sequence.
Turn turn(Engine& engine, llama_seq_id sequence, const Text& prompt);
// The same, and in exact mode the answer must be that of plain llama.cpp.
Turn right_turn(Engine& engine, llama_seq_id sequence, const Text& prompt);

// `got` was computed behind `restored` tokens in the calls of `wanted`: to the same bits; or, where restored
// window cells must stand elsewhere than they did (fast mode only), with the same choices.
testing::AssertionResult same_as_split(const Engine& engine, std::uint32_t restored, const Answer& wanted,
                                       const Answer& got);

// The pages of a context in the store that it uses, opened a second time.
struct Pages {
  Session session;
  Namespace space;
  std::vector<tiercel_key> keys;  // of a prompt
  std::vector<tiercel_status> there(std::uint32_t class_id) const;
};
Pages pages_of(const Engine& engine, Store& store, const Text& prompt);

}  // namespace tiercel::llamacpp
