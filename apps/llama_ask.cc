// `tiercel llama ask`: one answer, as text or as JSON.
#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <unistd.h>

#include "llama_cache.h"
#include "llama_report.h"

namespace tiercel::apps {
namespace {

struct AskReport {
  std::string memory, space;  // of the cache: what the context keeps, and its namespace
  std::size_t prompt_tokens = 0;
  LlamaPrefill prefill;
  Answer answer;
  std::uint64_t kept_tokens = 0;  // of prompt and answer, that the cache has now
  LlamaSaved saved;               // of them, by this call
  std::optional<LlamaLack> lack;
  double load_ms = 0, open_ms = 0;
  std::vector<std::string> notes;
  LlamaFigures figures() const { return figures_of(prefill.prefilled, answer, prompt_tokens); }
};

const char* mode_name(const LlamaArguments& arguments) {
  return arguments.without_cache ? "plain" : arguments.exact ? "exact" : "fast";
}

nlohmann::ordered_json lack_json(const std::optional<LlamaLack>& lack) {
  if (!lack) return nullptr;
  return {{"wanted_bytes", lack->wanted_bytes},
          {"room_bytes", lack->room_bytes},
          {"enough_bytes", lack->enough_bytes}};
}

std::string report_json(const LlamaArguments& arguments, const AskReport& report) {
  const llamacpp::Prefilled& prefilled = report.prefill.prefilled;
  const llamacpp::Restored& restored = prefilled.restored;
  std::map<std::string, std::uint64_t> missed;
  for (const llamacpp::Missed& part : restored.missed) missed[part.reason] += part.tokens;
  nlohmann::ordered_json json;
  json["mode"] = mode_name(arguments);
  json["pid"] = ::getpid();
  json["threads"] = arguments.threads;
  json.update(figures_json(report.figures()));
  json["text"] = report.answer.text;
  json["ended"] = report.answer.ended;
  json["logits_sha256"] = report.answer.logits_sha256;
  json["limit_tokens"] = restored.limit;
  json["bytes"] = restored.bytes;
  json["pieces"] = prefilled.pieces;
  json["snapshots"] = prefilled.snapshots;
  json["missed"] = missed;
  json["kept_tokens"] = report.kept_tokens;
  json["saved"] = {{"tokens", report.saved.tokens},
                   {"class_sets", report.saved.class_sets},
                   {"bytes", report.saved.bytes}};
  json["too_small"] = lack_json(report.lack);
  json["load_ms"] = report.load_ms;
  json["open_ms"] = report.open_ms;
  json["memory"] = report.memory;
  json["namespace"] = report.space;
  json["notes"] = report.notes;
  return json_line(json);
}

void note(AskReport& report, const std::string& line) {
  if (!line.empty()) report.notes.push_back(line);
}

// The cache of a context, and the store that it uses.
struct Cached {
  std::unique_ptr<llamacpp::ContextCache> cache;
  std::shared_ptr<llamacpp::Store> store;
};

LlamaResult<Cached> open_cache(const LlamaModel& model, const LlamaContext& context,
                               const LlamaArguments& arguments, AskReport& report) {
  Cached cached;
  if (arguments.without_cache) return cached;
  auto cache = attach_cache(model, context, arguments,
                            arguments.exact ? llamacpp::Mode::kExact : llamacpp::Mode::kFast);
  if (!cache) return tl::unexpected(cache.error());
  cached.cache = *std::move(cache);
  report.memory = llamacpp::sequence_kind_name(cached.cache->sequence_kind());
  report.space = cached.cache->namespace_text();
  const SteadyTime start = std::chrono::steady_clock::now();
  std::string held;
  auto store = open_store(arguments, arguments.cache, kWaitForStore, held);
  if (!store) return tl::unexpected(store.error());
  cached.store = *std::move(store);
  if (!cached.store) note(report, held + ": this answer is computed without it");
  if (const Status status = cached.cache->use(cached.store); !status.ok()) return refuse(status);
  report.open_ms = ms_since(start);
  return cached;
}

// What was generated, in fast mode, and a close in order: the disk has everything then, and so has the remote
// store, as far as it took it in time.
void end_cache(const LlamaArguments& arguments, const LlamaContext& context, Cached& cached,
               AskReport& report) {
  if (!cached.store) return;
  if (!report.prefill.cancelled) {
    const auto kept = cached.cache->save(0, report.answer.held);
    note(report, kept ? kept->note : kept.status().message);
    const std::uint64_t had = report.prefill.prefilled.restored.tokens;
    report.kept_tokens = kept ? std::max<std::uint64_t>(kept->tokens, had) : had;
    report.saved = saved_since_open(*cached.store, *cached.cache, arguments, report.kept_tokens - had);
    report.lack = lacking_room(*cached.store, *cached.cache, context, arguments,
                               arguments.exact ? report.prompt_tokens : report.answer.held.size());
    if (report.lack) note(report, lack_text(*report.lack));
  }
  if (const Status status = cached.store->close(); !status.ok())
    note(report, "closing the cache: " + status.message);
}

std::optional<Refusal> ask(const LlamaArguments& arguments, const std::atomic<bool>& stop,
                           AskReport& report) {
  const SteadyTime begun = std::chrono::steady_clock::now();
  const auto model = LlamaModel::load(arguments);
  if (!model) return model.error();
  const auto prompt = make_prompt(*model, arguments);
  if (!prompt) return prompt.error();
  report.prompt_tokens = prompt->size();
  const auto context = make_context(*model, arguments, prompt->size() + arguments.answer_tokens, &stop);
  if (!context) return context.error();
  if (prompt->size() + arguments.answer_tokens > model->trained_tokens() && model->trained_tokens() != 0)
    note(report, fmt::format("prompt and answer are longer than the {} tokens that the model was trained for",
                             grouped_text(model->trained_tokens())));
  auto cached = open_cache(*model, *context, arguments, report);
  if (!cached) return cached.error();
  report.load_ms = ms_since(begun) - report.open_ms;

  const SteadyTime start = std::chrono::steady_clock::now();
  auto prefilled = cached->cache ? prefill_cached(*cached->cache, *prompt) : prefill_plain(*context, *prompt);
  if (!prefilled) return prefilled.error();
  report.prefill = *std::move(prefilled);
  if (cached->store) {
    note(report, report.prefill.prefilled.restored.note);
    note(report, remote_lack(*cached->store));
  }
  if (report.prefill.cancelled) {
    report.answer.ended = "stopped";
  } else {
    AnswerOptions options{.tokens = arguments.answer_tokens, .stop = &stop, .hash_logits = arguments.json};
    if (!arguments.json) options.stream = write_stdout;
    auto done = answer(*model, *context, *prompt, options, start);
    if (!done) return done.error();
    report.answer = *std::move(done);
  }
  end_cache(arguments, *context, *cached, report);
  return std::nullopt;
}

}  // namespace

int llama_ask(const LlamaArguments& arguments) {
  const StopSignals signals;
  AskReport report;
  const auto refusal = ask(arguments, signals.asked(), report);
  if (refusal) return fail("llama", *refusal);
  if (signals.status() != 0)
    return fail("llama", "interrupted, so there is no whole answer", signals.status());
  if (arguments.json) return print("llama", report_json(arguments, report));
  const int printed = print("llama", "\n");
  for (const std::string& line : report.notes) remark("[" + line + "]");
  remark(fmt::format("[{}]", figures_text(report.figures())));
  return printed;
}

}  // namespace tiercel::apps
