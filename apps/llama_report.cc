#include "llama_report.h"

#include <filesystem>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace tiercel::apps {
namespace {

std::string file_name(const LlamaArguments& arguments) {
  return std::filesystem::path(arguments.model).filename().string();
}

}  // namespace

LlamaFigures figures_of(const llamacpp::Prefilled& prefilled, const Answer& answer,
                        std::size_t prompt_tokens) {
  const llamacpp::Restored& restored = prefilled.restored;
  return {prompt_tokens,        restored.tokens,      prefilled.computed_tokens,
          restored.host_tokens, restored.disk_tokens, restored.remote_tokens,
          answer.ttft_ms,       answer.tokens};
}

nlohmann::ordered_json figures_json(const LlamaFigures& figures) {
  return {{"prompt_tokens", figures.prompt_tokens},
          {"restored_tokens", figures.restored_tokens},
          {"host_tokens", figures.host_tokens},
          {"disk_tokens", figures.disk_tokens},
          {"remote_tokens", figures.remote_tokens},
          {"computed_tokens", figures.computed_tokens},
          {"ttft_ms", figures.ttft_ms},
          {"tokens", figures.tokens}};
}

LlamaFigures figures_from(const nlohmann::json& json) {
  LlamaFigures figures;
  json.at("prompt_tokens").get_to(figures.prompt_tokens);
  json.at("restored_tokens").get_to(figures.restored_tokens);
  json.at("host_tokens").get_to(figures.host_tokens);
  json.at("disk_tokens").get_to(figures.disk_tokens);
  json.at("remote_tokens").get_to(figures.remote_tokens);
  json.at("computed_tokens").get_to(figures.computed_tokens);
  json.at("ttft_ms").get_to(figures.ttft_ms);
  json.at("tokens").get_to(figures.tokens);
  return figures;
}

nlohmann::ordered_json model_json(const LlamaModel& model, const LlamaArguments& arguments) {
  return {{"model", model.description()}, {"file", file_name(arguments)}};
}

std::string json_line(const nlohmann::ordered_json& json) {
  return json.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

std::string model_text(const LlamaModel& model, const LlamaArguments& arguments) {
  return fmt::format("{} ({})", model.description(), file_name(arguments));
}

std::string threads_text(std::uint32_t threads) {
  return fmt::format("{} thread{}", threads, threads == 1 ? "" : "s");
}

std::string time_text(double ms) {
  if (ms < 10) return fmt::format("{:.1f} ms", ms);
  return ms < 1000 ? fmt::format("{:.0f} ms", ms) : fmt::format("{:.2f} s", ms / 1000);
}

std::string figures_text(const LlamaFigures& figures) {
  std::string from;
  const auto add = [&](const char* tier, std::uint64_t tokens) {
    if (tokens != 0) from += fmt::format("{}{} {}", from.empty() ? "" : ", ", tier, grouped_text(tokens));
  };
  add("remote", figures.remote_tokens);
  add("disk", figures.disk_tokens);
  add("memory", figures.host_tokens);
  return fmt::format("restored {} of {} tokens{}, computed {}; first token after {}",
                     grouped_text(figures.restored_tokens), grouped_text(figures.prompt_tokens),
                     from.empty() ? "" : fmt::format(" ({})", from), grouped_text(figures.computed_tokens),
                     time_text(figures.ttft_ms));
}

}  // namespace tiercel::apps
