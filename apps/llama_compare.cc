// `tiercel llama compare`: whether exact mode is exact with this model, on this machine, with these settings.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <optional>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "llama_cache.h"
#include "llama_child.h"
#include "llama_manual.h"

namespace tiercel::apps {
namespace {

struct ComparedRun {
  const char* name = "";
  const char* mode = "";
  llamacpp::Prefilled prefilled;
  Answer answer;
  std::vector<std::vector<float>> logits;
  // Beside plain llama.cpp.
  bool bitwise = true;
  double max_difference = 0;
  std::optional<std::size_t> first_differing_token;
};

struct Comparison {
  const LlamaArguments& arguments;
  const std::atomic<bool>& stop;
  std::string folder;
  LlamaModel model;
  std::vector<llama_token> prompt;
  std::shared_ptr<llamacpp::Store> store;
  std::string memory, space;
  std::vector<ComparedRun> runs{};
};

// Up to the first step whose token differs: after that one the steps do not compare.
void compare_with(const ComparedRun& plain, ComparedRun& run) {
  const std::size_t steps = std::min(plain.logits.size(), run.logits.size());
  for (std::size_t step = 0; step < steps && !run.first_differing_token; ++step) {
    const std::vector<float>& ours = run.logits[step];
    const std::vector<float>& theirs = plain.logits[step];
    if (std::memcmp(ours.data(), theirs.data(), ours.size() * sizeof(float)) != 0) run.bitwise = false;
    for (std::size_t i = 0; i < ours.size(); ++i)
      run.max_difference = std::max(run.max_difference, static_cast<double>(std::fabs(ours[i] - theirs[i])));
    if (run.answer.tokens[step] != plain.answer.tokens[step]) run.first_differing_token = step;
  }
  if (!run.first_differing_token && plain.logits.size() != run.logits.size())
    run.first_differing_token = steps;
  if (run.first_differing_token) run.bitwise = false;
}

std::optional<Refusal> open_again(Comparison& comparison) {
  if (comparison.store)
    if (const Status status = comparison.store->close(); !status.ok()) return refuse(status).value();
  comparison.store.reset();
  std::string held;
  auto store = open_store(comparison.arguments, comparison.folder, kWaitForStore, held);
  if (!store) return store.error();
  if (!*store) return Refusal{kExitFailed, held};
  comparison.store = *std::move(store);
  return std::nullopt;
}

// In a new context. Without a mode: plain llama.cpp.
std::optional<Refusal> run_one(Comparison& comparison, const char* name, std::optional<llamacpp::Mode> mode) {
  show_step(comparison.arguments, fmt::format("{} …", name));
  ComparedRun run;
  run.name = name;
  run.mode = !mode ? "plain" : *mode == llamacpp::Mode::kExact ? "exact" : "fast";
  const auto context =
      make_context(comparison.model, comparison.arguments,
                   comparison.prompt.size() + comparison.arguments.answer_tokens, &comparison.stop);
  if (!context) return context.error();
  std::unique_ptr<llamacpp::ContextCache> cache;
  if (mode) {
    auto attached = attach_cache(comparison.model, *context, comparison.arguments, *mode);
    if (!attached) return attached.error();
    cache = *std::move(attached);
    if (const Status status = cache->use(comparison.store); !status.ok()) return refuse(status).value();
    comparison.memory = llamacpp::sequence_kind_name(cache->sequence_kind());
    comparison.space = cache->namespace_text();
  }
  const SteadyTime start = std::chrono::steady_clock::now();
  auto prefill =
      cache ? prefill_cached(*cache, comparison.prompt) : prefill_plain(*context, comparison.prompt);
  if (!prefill) return prefill.error();
  if (prefill->cancelled) return Refusal{kExitInterrupted, "interrupted"};
  run.prefilled = std::move(prefill->prefilled);
  const AnswerOptions options{
      .tokens = comparison.arguments.answer_tokens, .stop = &comparison.stop, .logits = &run.logits};
  auto done = answer(comparison.model, *context, comparison.prompt, options, start);
  if (!done) return done.error();
  run.answer = *std::move(done);
  if (!comparison.runs.empty()) compare_with(comparison.runs.front(), run);
  comparison.runs.push_back(std::move(run));
  show_step(comparison.arguments, "");
  return std::nullopt;
}

std::optional<Refusal> run_all(Comparison& comparison) {
  using llamacpp::Mode;
  if (auto refusal = run_one(comparison, "plain llama.cpp", std::nullopt)) return refusal;
  if (auto refusal = open_again(comparison)) return refusal;
  if (auto refusal = run_one(comparison, "first time with the cache", Mode::kExact)) return refusal;
  if (auto refusal = run_one(comparison, "restored from memory", Mode::kExact)) return refusal;
  if (auto refusal = open_again(comparison)) return refusal;
  if (auto refusal = run_one(comparison, "restored from disk", Mode::kExact)) return refusal;
  if (auto refusal = run_one(comparison, "first time with the cache", Mode::kFast)) return refusal;
  return run_one(comparison, "restored from memory", Mode::kFast);
}

// Without a text: a made-up one, so long that there is something to restore.
std::optional<Refusal> fill_prompt(const LlamaModel& model, LlamaArguments& arguments) {
  constexpr std::uint32_t kManualTokens = 1000;
  if (arguments.prompt_tokens != 0 || !arguments.system.empty() || !arguments.text_before.empty())
    return std::nullopt;
  if (arguments.prompt.empty()) arguments.prompt = kFirstQuestion;
  auto manual = make_manual(model, "Edition 1.", kManualTokens, arguments.prompt);
  if (!manual) return manual.error();
  arguments.system = *std::move(manual);
  return std::nullopt;
}

// Whether exact mode had something to restore.
bool something_restored(const Comparison& comparison) {
  return std::any_of(comparison.runs.begin(), comparison.runs.end(), [](const ComparedRun& run) {
    return run.prefilled.restored.tokens != 0 && std::string_view(run.mode) == "exact";
  });
}

bool exact_is_bitwise(const Comparison& comparison) {
  return std::all_of(comparison.runs.begin(), comparison.runs.end(), [](const ComparedRun& run) {
    return run.bitwise || std::string_view(run.mode) != "exact";
  });
}

std::string comparison_json(const Comparison& comparison) {
  nlohmann::ordered_json json = model_json(comparison.model, comparison.arguments);
  json["memory"] = comparison.memory;
  json["threads"] = comparison.arguments.threads;
  json["prompt_tokens"] = comparison.prompt.size();
  json["exact_restored"] = something_restored(comparison);  // if not, the next line shows nothing
  json["exact_is_bitwise"] = exact_is_bitwise(comparison);
  json["runs"] = nlohmann::ordered_json::array();
  for (const ComparedRun& run : comparison.runs) {
    nlohmann::ordered_json row;
    row["run"] = run.name;
    row["mode"] = run.mode;
    row.update(figures_json(figures_of(run.prefilled, run.answer, comparison.prompt.size())));
    row["pieces"] = run.prefilled.pieces;
    row["text"] = run.answer.text;
    row["bitwise"] = run.bitwise;
    row["max_difference"] = run.max_difference;
    row["first_differing_token"] = run.first_differing_token
                                       ? nlohmann::ordered_json(*run.first_differing_token)
                                       : nlohmann::ordered_json();
    row["note"] = run.prefilled.restored.note;
    json["runs"].push_back(std::move(row));
  }
  return json_line(json);
}

std::string comparison_text(const Comparison& comparison) {
  std::string text =
      fmt::format("{}, kept as {}; a prompt of {} tokens, {} steps of the answer, {}\n\n",
                  model_text(comparison.model, comparison.arguments), comparison.memory,
                  grouped_text(comparison.prompt.size()), comparison.runs.front().answer.tokens.size(),
                  threads_text(comparison.arguments.threads));
  text += fmt::format("{:<34}{:>9}{:>9}{:>13}  {:<9}{:>16}  {}\n", "", "restored", "computed", "first token",
                      "logits", "largest diff.", "tokens");
  for (const ComparedRun& run : comparison.runs) {
    const bool plain = std::string_view(run.mode) == "plain";
    const std::string name = plain ? run.name : fmt::format("{}: {}", run.mode, run.name);
    text += fmt::format(
        "{:<34}{:>9}{:>9}{:>13}  {:<9}{:>16}  {}\n", name, grouped_text(run.prefilled.restored.tokens),
        grouped_text(run.prefilled.computed_tokens), time_text(run.answer.ttft_ms),
        plain         ? "-"
        : run.bitwise ? "same bits"
                      : "differ",
        plain ? std::string("-") : fmt::format("{:g}", run.max_difference),
        plain                       ? "-"
        : run.first_differing_token ? fmt::format("differ from number {} on", *run.first_differing_token + 1)
                                    : std::string("same"));
  }
  for (const ComparedRun& run : comparison.runs)
    if (!run.prefilled.restored.note.empty())
      text += fmt::format("note, {} {}: {}\n", run.mode, run.name, run.prefilled.restored.note);
  if (!exact_is_bitwise(comparison))
    return text + "\nexact mode is NOT bitwise equal to plain llama.cpp here\n";
  if (!something_restored(comparison))
    return text + "\nexact mode restored nothing, so this shows nothing: the prompt is too short\n";
  return text + "\nexact mode is bitwise equal to plain llama.cpp here\n";
}

}  // namespace

int llama_compare(const LlamaArguments& given) {
  const StopSignals signals;
  const TemporaryFolder folder;
  if (folder.path().empty()) return fail("llama", "no temporary folder can be made; TMPDIR says where");
  LlamaArguments arguments = given;
  if (arguments.cache.empty() && arguments.cache_bytes == 0) arguments.cache_bytes = kTemporaryCacheBytes;
  const std::string where = arguments.cache.empty() ? folder.path() + "/cache" : arguments.cache;
  auto model = LlamaModel::load(arguments);
  if (!model) return fail("llama", model.error());
  if (const auto refusal = fill_prompt(*model, arguments)) return fail("llama", *refusal);
  auto prompt = make_prompt(*model, arguments);
  if (!prompt) return fail("llama", prompt.error());
  Comparison comparison{arguments, signals.asked(), where, *std::move(model), *std::move(prompt), {}, {}, {}};
  const auto refusal = run_all(comparison);
  show_step(arguments, "");
  if (comparison.store)
    if (const Status status = comparison.store->close(); !status.ok())
      remark("closing the cache: " + status.message);
  if (signals.status() != 0) return fail("llama", "interrupted, so there is no result", signals.status());
  if (refusal) return fail("llama", *refusal);
  const int printed =
      print("llama", arguments.json ? comparison_json(comparison) : comparison_text(comparison));
  if (printed != kExitOk || exact_is_bitwise(comparison)) return printed;
  return fail("llama", "exact mode is not bitwise here; please report the model, the flags and this table");
}

}  // namespace tiercel::apps
