// `tiercel llama demo`: what a cache that outlives the process does, each step in a process of its own,
// beside plain llama.cpp.
#include <algorithm>
#include <array>
#include <filesystem>
#include <iterator>
#include <memory>
#include <optional>
#include <set>
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
  bool elsewhere = false;  // with a cache of its own: only the remote store is shared
};

constexpr Step kSteps[] = {
    {"plain", "plain llama.cpp", 'A', Way::kPlain},
    {"cold", "first time with the cache", 'A', Way::kExact},
    {"restored", "again, in a new process", 'A', Way::kExact},
    {"restored_other", "another question, in a new process", 'B', Way::kExact},
    {"plain", "plain llama.cpp", 'B', Way::kPlain},
    {"cold", "fast mode: first time", 'A', Way::kFast},
    {"restored", "fast mode: again, in a new process", 'A', Way::kFast},
    {"remote", "an empty cache, the same remote store", 'A', Way::kExact, true},
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
  nlohmann::ordered_json head;  // what the model is, in JSON and in words
  std::string model;
  std::uint64_t system_tokens = 0;
  std::vector<std::string> prompts[2];  // options of the questions A and B
  std::string elsewhere;                // a folder for the cache of another machine
  std::vector<Row> rows;
  std::size_t printed = 0;  // rows
  // Exact mode promises the bits; fast mode no words.
  bool exact_is_bitwise() const {
    return std::all_of(rows.begin(), rows.end(), [](const Row& row) {
      return row.step.way != Way::kExact || (row.same_answer() && row.same_logits);
    });
  }
  // If not, none of it shows anything.
  bool exact_restored() const {
    return std::any_of(rows.begin(), rows.end(), [](const Row& row) {
      return row.step.way == Way::kExact && row.answer.figures.restored_tokens != 0;
    });
  }
};

// The two prompts: a question behind one long beginning. A model without a vocabulary gets random tokens.
std::optional<Refusal> make_prompts(const LlamaArguments& arguments, const std::string& folder, Demo& demo) {
  const auto model = LlamaModel::load(arguments, true);
  if (!model) return model.error();
  demo.head = model_json(*model, arguments);
  demo.model = model_text(*model, arguments);
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

std::optional<std::size_t> first_difference(const std::vector<std::int32_t>& a,
                                            const std::vector<std::int32_t>& b) {
  if (a == b) return std::nullopt;
  const auto ends = std::mismatch(a.begin(), a.end(), b.begin(), b.end());
  return static_cast<std::size_t>(ends.first - a.begin());
}

// Of the same question; null: not run yet.
const ChildAnswer* plain_answer(const Demo& demo, char question) {
  for (const Row& row : demo.rows)
    if (row.step.way == Way::kPlain && row.step.question == question) return &row.answer;
  return nullptr;
}

void compare_with(const ChildAnswer& plain, Row& row) {
  row.times_lower = plain.figures.ttft_ms / row.answer.figures.ttft_ms;
  row.differs_from = first_difference(plain.figures.tokens, row.answer.figures.tokens);
  row.same_logits = plain.logits_sha256 == row.answer.logits_sha256;
}

// ---- reports ----

std::string demo_json(const LlamaArguments& arguments, const Demo& demo) {
  nlohmann::ordered_json json = demo.head;
  json["threads"] = arguments.threads;
  json["system_tokens"] = demo.system_tokens;
  json["exact_restored"] = demo.exact_restored();
  json["good"] = demo.exact_restored() && demo.exact_is_bitwise();
  json["runs"] = nlohmann::ordered_json::array();
  for (const Row& row : demo.rows) {
    const ChildAnswer& answer = row.answer;
    nlohmann::ordered_json run = {{"run", row.step.run},
                                  {"text", row.step.text},
                                  {"question", std::string(1, row.step.question)},
                                  {"mode", way_name(row.step.way)},
                                  {"pid", answer.pid}};
    run.update(figures_json(answer.figures));
    run["load_ms"] = answer.load_ms;
    run["open_ms"] = answer.open_ms;
    run["times_lower"] = row.times_lower;
    run["same_answer"] = row.same_answer();
    run["differs_from"] =
        row.differs_from ? nlohmann::ordered_json(*row.differs_from) : nlohmann::ordered_json();
    run["same_logits"] = row.same_logits;
    run["logits_sha256"] = answer.logits_sha256;
    run["answer"] = answer.text;
    run["notes"] = answer.notes;
    json["runs"].push_back(std::move(run));
  }
  return json_line(json);
}

std::string head_text(const LlamaArguments& arguments, const Demo& demo) {
  return fmt::format(
             "{}, {}. Two questions, A and B, over one system prompt of {} tokens; each row is a process of "
             "its own.\n\n",
             demo.model, threads_text(arguments.threads), grouped_text(demo.system_tokens)) +
         fmt::format("   {:<36}{:>8}{:>8}{:>10}{:>10}{:>13}{:>9}  {:<15}{}\n", "", "process", "prompt",
                     "restored", "computed", "first token", "lower", "answer", "logits");
}

std::string row_text(const Row& row) {
  const ChildAnswer& answer = row.answer;
  const bool plain = row.step.way == Way::kPlain;
  return fmt::format("{}  {:<36}{:>8}{:>8}{:>10}{:>10}{:>13}{:>9}  {:<15}{}\n", row.step.question,
                     row.step.text, answer.pid, grouped_text(answer.figures.prompt_tokens),
                     grouped_text(answer.figures.restored_tokens),
                     grouped_text(answer.figures.computed_tokens), time_text(answer.figures.ttft_ms),
                     plain ? std::string("-") : fmt::format("{:.1f}x", row.times_lower),
                     plain               ? std::string("-")
                     : row.same_answer() ? std::string("same")
                                         : fmt::format("other from {}", *row.differs_from + 1),
                     plain                        ? "-"
                     : row.same_logits            ? "same bits"
                     : row.step.way == Way::kFast ? "other bits"
                                                  : "OTHER BITS");
}

std::string end_text(const Demo& demo) {
  double load_ms = 0, open_ms = 0;
  for (const Row& row : demo.rows) {
    load_ms = std::max(load_ms, row.answer.load_ms);
    open_ms = std::max(open_ms, row.answer.open_ms);
  }
  std::string text = fmt::format(
      "\nanswer, logits: of all steps, beside plain llama.cpp. First token: from the prompt on; not in it: "
      "loading the model (at most {}) and opening the cache (at most {}).\n",
      time_text(load_ms), time_text(open_ms));
  for (const std::size_t i : {std::size_t{0}, std::size_t{3}}) {
    const Row& row = demo.rows[i];
    const std::vector<std::string>& prompt = demo.prompts[row.step.question - 'A'];
    if (!row.answer.text.empty())
      text += fmt::format("\n{}: {}\n   {}\n", row.step.question, prompt.back(), row.answer.text);
  }
  std::set<std::string> said;
  for (const Row& row : demo.rows)
    for (const std::string& note : row.answer.notes)
      if (said.insert(note).second) text += fmt::format("note of process {}: {}\n", row.answer.pid, note);
  if (!demo.exact_restored())
    text +=
        "exact mode restored nothing, so this shows nothing: the prompt is too short (--tokens), or see the "
        "notes\n";
  return text;
}

// ---- running ----

// Each row as soon as it can be compared, in their order.
std::optional<Refusal> print_rows(Demo& demo) {
  for (; demo.printed < demo.rows.size(); ++demo.printed) {
    const Row& row = demo.rows[demo.printed];
    if (plain_answer(demo, row.step.question) == nullptr) break;
    if (!write_stdout(row_text(row))) return Refusal{kExitFailed, "standard output cannot be written"};
  }
  return std::nullopt;
}

std::optional<Refusal> run_steps(const LlamaArguments& arguments, const std::atomic<bool>& stop, Demo& demo) {
  if (!arguments.json && !write_stdout(head_text(arguments, demo)))
    return Refusal{kExitFailed, "standard output cannot be written"};
  const std::size_t steps = std::size(kSteps) - (arguments.remote.empty() ? 1 : 0);
  for (std::size_t i = 0; i < steps; ++i) {
    const Step& step = kSteps[i];
    show_step(arguments, fmt::format("[{} of {}] question {}, {} …", i + 1, steps, step.question, step.text));
    std::vector<std::string> more = demo.prompts[step.question - 'A'];
    LlamaArguments asked = arguments;
    asked.without_cache = step.way == Way::kPlain;
    if (step.elsewhere) {
      asked.cache = demo.elsewhere;
      if (asked.cache_bytes == 0) asked.cache_bytes = kTemporaryCacheBytes;
    }
    if (!asked.without_cache) more.emplace_back(step.way == Way::kExact ? "--exact" : "--fast");
    auto answer = ask_in_child(asked, more, stop);
    show_step(arguments, "");
    if (!answer) return answer.error();
    demo.rows.push_back({step, *std::move(answer)});
    for (Row& row : demo.rows)
      if (const ChildAnswer* plain = plain_answer(demo, row.step.question)) compare_with(*plain, row);
    if (arguments.json) continue;
    if (auto refusal = print_rows(demo)) return refusal;
  }
  return std::nullopt;
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
  demo.elsewhere = folder.path() + "/elsewhere";
  // What earlier demonstrations left in a remote store is not to be found: the first time is one.
  if (!arguments.remote.empty() && arguments.tenant.empty())
    arguments.tenant = "demo " + std::filesystem::path(folder.path()).filename().string();
  auto refusal = make_prompts(arguments, folder.path(), demo);
  if (!refusal) refusal = run_steps(arguments, signals.asked(), demo);
  if (signals.status() != 0) return fail("llama", "interrupted, so there is no result", signals.status());
  if (refusal) return fail("llama", *refusal);
  const int printed = print("llama", arguments.json ? demo_json(arguments, demo) : end_text(demo));
  if (printed != kExitOk || demo.exact_is_bitwise()) return printed;
  return fail(
      "llama",
      "an answer in exact mode is not that of plain llama.cpp; please report the model and this table");
}

}  // namespace tiercel::apps
