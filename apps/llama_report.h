// What the programs of `tiercel llama` say alike, in JSON and in words.
//
// Threads: pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "llama_session.h"

namespace tiercel::apps {

// Of one answer: where its prompt came from, how long that took, what was answered.
struct LlamaFigures {
  std::uint64_t prompt_tokens = 0, restored_tokens = 0, computed_tokens = 0, host_tokens = 0, disk_tokens = 0;
  std::uint64_t remote_tokens = 0;
  double ttft_ms = 0;
  std::vector<std::int32_t> tokens;
};
LlamaFigures figures_of(const llamacpp::Prefilled& prefilled, const Answer& answer,
                        std::size_t prompt_tokens);

// As fields of the same names, and back. Throws, as nlohmann::json does, where one is missing.
nlohmann::ordered_json figures_json(const LlamaFigures& figures);
LlamaFigures figures_from(const nlohmann::json& json);

// What each report begins with: `model`, `file`.
nlohmann::ordered_json model_json(const LlamaModel& model, const LlamaArguments& arguments);
// One line. Bytes that are no UTF-8 (a model may answer any) are replaced.
std::string json_line(const nlohmann::ordered_json& json);

// "SmolLM2 (SmolLM2.gguf)"
std::string model_text(const LlamaModel& model, const LlamaArguments& arguments);
std::string threads_text(std::uint32_t threads);  // "1 thread", "2 threads"
std::string time_text(double ms);                 // "203 ms", "7.49 s"
// "restored 1,440 of 1,515 tokens (disk 1,440), computed 75; first token after 203 ms"
std::string figures_text(const LlamaFigures& figures);

}  // namespace tiercel::apps
