// `tiercel llama demo`: what a cache that outlives the process does, each step in a process of its own,
// beside plain llama.cpp.
#include <algorithm>
#include <array>
#include <filesystem>
#include <iterator>
#include <memory>
#include <optional>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "llama_child.h"
#include "llama_manual.h"

namespace tiercel::apps {
namespace {

enum class Way { kPlain, kExact, kFast };

struct Step {
  const char* run;  // in JSON
  const char* text;
  char question;
  Way way;
};

constexpr Step kSteps[] = {
    {"plain", "plain llama.cpp", 'A', Way::kPlain},
    {"cold", "first time with the cache", 'A', Way::kExact},
    {"restored", "again, in a new process", 'A', Way::kExact},
    {"restored_other", "another question, in a new process", 'B', Way::kExact},
    {"plain", "plain llama.cpp", 'B', Way::kPlain},
    {"cold", "fast mode: first time", 'A', Way::kFast},
    {"restored", "fast mode: again, in a new process", 'A', Way::kFast},
};

const char* way_name(Way way) { return way == Way::kPlain ? "plain" : way == Way::kExact ? "exact" : "fast"; }

struct Row {
  Step step;
  ChildAnswer answer;
  double times_lower = 1;
  // As plain llama.cpp's?
  std::optional<std::size_t> differs_from;  // the number of the first token that is another
  bool same_logits = true;
  bool same_answer() const { return !differs_from; }
};

struct Demo {
  std::string model;  // what it is
  std::uint64_t system_tokens = 0;
  std::vector<std::string> prompts[2];  // options of the questions A and B
  std::vector<Row> rows;
  // Exact mode promises the bits; fast mode no words.
  bool good() const {
    for (const Row& row : rows)
      if (row.step.way == Way::kExact && !(row.same_answer() && row.same_logits)) return false;
    return true;
  }
};

// The two prompts: a question behind one long beginning. A model without a vocabulary gets random tokens.
std::optional<Refusal> make_prompts(const LlamaArguments& arguments, const std::string& folder, Demo& demo) {
  const auto model = LlamaModel::load(arguments, true);
  if (!model) return model.error();
  demo.model = model->description();
  if (!model->has_vocabulary()) {
    constexpr std::uint32_t kQuestion = 16;
    demo.system_tokens = arguments.manual_tokens > kQuestion ? arguments.manual_tokens - kQuestion : 1;
    for (int i = 0; i < 2; ++i)
      demo.prompts[i] = {"--prompt-tokens",   fmt::format("{}", demo.system_tokens),
                         "--question-tokens", fmt::format("{}", kQuestion),
                         "--question-seed",   fmt::format("{}", i + 2)};
    return std::nullopt;
  }
  const auto manual = make_manual(*model, "Edition 1.", arguments.manual_tokens, kFirstQuestion);
  if (!manual) return manual.error();
  const std::string path = folder + "/manual.txt";
  if (!write_text(path, *manual)) return Refusal{kExitFailed, fmt::format("{} cannot be written", path)};
  if (const auto tokens = model->tokenize(*manual)) demo.system_tokens = tokens->size();
  const char* const questions[] = {kFirstQuestion, kOtherQuestion};
  for (int i = 0; i < 2; ++i) demo.prompts[i] = {"--system-file", path, "-p", questions[i]};
  return std::nullopt;
}

std::optional<Refusal> run_steps(const LlamaArguments& arguments, const std::atomic<bool>& stop, Demo& demo) {
  for (std::size_t i = 0; i < std::size(kSteps); ++i) {
    const Step& step = kSteps[i];
    show_step(arguments, fmt::format("[{} of {}] question {}, {} …", i + 1, std::size(kSteps), step.question,
                                     step.text));
    std::vector<std::string> more = demo.prompts[step.question - 'A'];
    more.emplace_back(step.way == Way::kPlain   ? "--no-cache"
                      : step.way == Way::kExact ? "--exact"
                                                : "--fast");
    auto answer = ask_in_child(arguments, more, stop);
    show_step(arguments, "");
    if (!answer) return answer.error();
    demo.rows.push_back({step, *std::move(answer)});
  }
  return std::nullopt;
}

std::optional<std::size_t> first_difference(const std::vector<std::int32_t>& a,
                                            const std::vector<std::int32_t>& b) {
  if (a == b) return std::nullopt;
  const auto ends = std::mismatch(a.begin(), a.end(), b.begin(), b.end());
  return static_cast<std::size_t>(ends.first - a.begin());
}

void compare_rows(Demo& demo) {
  for (Row& row : demo.rows)
    for (const Row& plain : demo.rows) {
      if (plain.step.way != Way::kPlain || plain.step.question != row.step.question) continue;
      row.times_lower = plain.answer.ttft_ms / row.answer.ttft_ms;
      row.differs_from = first_difference(plain.answer.tokens, row.answer.tokens);
      row.same_logits = plain.answer.logits_sha256 == row.answer.logits_sha256;
    }
}

std::string demo_json(const LlamaArguments& arguments, const Demo& demo) {
  nlohmann::ordered_json json;
  json["model"] = demo.model;
  json["file"] = std::filesystem::path(arguments.model).filename().string();
  json["threads"] = arguments.threads;
  json["system_tokens"] = demo.system_tokens;
  json["good"] = demo.good();
  json["runs"] = nlohmann::ordered_json::array();
  for (const Row& row : demo.rows) {
    const ChildAnswer& answer = row.answer;
    json["runs"].push_back({{"run", row.step.run},
                            {"text", row.step.text},
                            {"question", std::string(1, row.step.question)},
                            {"mode", way_name(row.step.way)},
                            {"pid", answer.pid},
                            {"prompt_tokens", answer.prompt_tokens},
                            {"restored_tokens", answer.restored_tokens},
                            {"disk_tokens", answer.disk_tokens},
                            {"computed_tokens", answer.computed_tokens},
                            {"ttft_ms", answer.ttft_ms},
                            {"load_ms", answer.load_ms},
                            {"open_ms", answer.open_ms},
                            {"times_lower", row.times_lower},
                            {"same_answer", row.same_answer()},
                            {"differs_from", row.differs_from ? nlohmann::ordered_json(*row.differs_from)
                                                              : nlohmann::ordered_json()},
                            {"same_logits", row.same_logits},
                            {"logits_sha256", answer.logits_sha256},
                            {"tokens", answer.tokens},
                            {"answer", answer.text},
                            {"notes", answer.notes}});
  }
  return json.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

std::string row_text(const Row& row) {
  const ChildAnswer& answer = row.answer;
  const bool plain = row.step.way == Way::kPlain;
  return fmt::format("{}  {:<36}{:>8}{:>8}{:>10}{:>10}{:>13}{:>9}  {:<15}{}\n", row.step.question,
                     row.step.text, answer.pid, grouped_text(answer.prompt_tokens),
                     grouped_text(answer.restored_tokens), grouped_text(answer.computed_tokens),
                     time_text(answer.ttft_ms),
                     plain ? std::string("-") : fmt::format("{:.1f}x", row.times_lower),
                     plain               ? std::string("-")
                     : row.same_answer() ? std::string("same")
                                         : fmt::format("other from {}", *row.differs_from + 1),
                     plain                        ? "-"
                     : row.same_logits            ? "same bits"
                     : row.step.way == Way::kFast ? "other bits"
                                                  : "OTHER BITS");
}

std::string demo_text(const LlamaArguments& arguments, const Demo& demo) {
  std::string text = fmt::format(
      "{} ({}), {} thread{}. Two questions, A and B, over one system prompt of {} tokens; each row is "
      "a process of its own.\n\n",
      demo.model, std::filesystem::path(arguments.model).filename().string(), arguments.threads,
      arguments.threads == 1 ? "" : "s", grouped_text(demo.system_tokens));
  text += fmt::format("   {:<36}{:>8}{:>8}{:>10}{:>10}{:>13}{:>9}  {:<15}{}\n", "", "process", "prompt",
                      "restored", "computed", "first token", "lower", "answer", "logits");
  double load_ms = 0, open_ms = 0;
  for (const Row& row : demo.rows) {
    text += row_text(row);
    load_ms = std::max(load_ms, row.answer.load_ms);
    open_ms = std::max(open_ms, row.answer.open_ms);
  }
  text += fmt::format(
      "\nanswer, logits: of all steps, beside plain llama.cpp. First token: from the prompt on; not in it: "
      "loading the "
      "model (at most {}) and opening the cache (at most {}).\n",
      time_text(load_ms), time_text(open_ms));
  for (const std::size_t i : {std::size_t{0}, std::size_t{3}}) {
    const Row& row = demo.rows[i];
    const std::vector<std::string>& prompt = demo.prompts[row.step.question - 'A'];
    if (!row.answer.text.empty())
      text += fmt::format("\n{}: {}\n   {}\n", row.step.question, prompt.back(), row.answer.text);
  }
  for (const Row& row : demo.rows)
    for (const std::string& note : row.answer.notes)
      text += fmt::format("note of process {}: {}\n", row.answer.pid, note);
  return text;
}

}  // namespace

int llama_demo(const LlamaArguments& given) {
  const StopSignals signals;
  const TemporaryFolder folder;
  if (folder.path().empty()) return fail("llama", "no temporary folder can be made; TMPDIR says where");
  LlamaArguments arguments = given;
  if (arguments.cache.empty()) {
    arguments.cache = folder.path() + "/cache";
    if (arguments.cache_bytes == 0) arguments.cache_bytes = kTemporaryCacheBytes;
  }
  Demo demo;
  auto refusal = make_prompts(arguments, folder.path(), demo);
  if (!refusal) refusal = run_steps(arguments, signals.asked(), demo);
  if (signals.status() != 0) return fail("llama", "interrupted, so there is no result", signals.status());
  if (refusal) return fail("llama", refusal->message, refusal->status);
  compare_rows(demo);
  const int printed =
      print("llama", arguments.json ? demo_json(arguments, demo) : demo_text(arguments, demo));
  if (printed != kExitOk || demo.good()) return printed;
  return fail(
      "llama",
      "an answer in exact mode is not that of plain llama.cpp; please report the model and this table");
}

}  // namespace tiercel::apps
