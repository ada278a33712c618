// `tiercel llama ask`: one answer, as text or as JSON.
#include <map>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <unistd.h>

#include "llama_session.h"

namespace tiercel::apps {
namespace {

struct AskReport {
  std::string memory, space;  // of the cache: what the context keeps, and its namespace
  std::size_t prompt_tokens = 0;
  LlamaPrefill prefill;
  Answer answer;
  llamacpp::Saved saved;  // of the answer
  double load_ms = 0, open_ms = 0;
  std::vector<std::string> notes;
};

const char* mode_name(const LlamaArguments& arguments) {
  return arguments.without_cache ? "plain" : arguments.exact ? "exact" : "fast";
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
  json["text"] = report.answer.text;
  json["tokens"] = report.answer.tokens;
  json["ended"] = report.answer.ended;
  json["logits_sha256"] = report.answer.logits_sha256;
  json["prompt_tokens"] = report.prompt_tokens;
  json["restored_tokens"] = restored.tokens;
  json["computed_tokens"] = prefilled.computed_tokens;
  json["limit_tokens"] = restored.limit;
  json["host_tokens"] = restored.host_tokens;
  json["disk_tokens"] = restored.disk_tokens;
  json["bytes"] = restored.bytes;
  json["pieces"] = prefilled.pieces;
  json["snapshots"] = prefilled.snapshots;
  json["missed"] = missed;
  json["saved"] = {{"tokens", report.saved.tokens},
                   {"pages", report.saved.pages},
                   {"snapshots", report.saved.snapshots},
                   {"bytes", report.saved.bytes}};
  json["ttft_ms"] = report.answer.ttft_ms;
  json["load_ms"] = report.load_ms;
  json["open_ms"] = report.open_ms;
  json["memory"] = report.memory;
  json["namespace"] = report.space;
  json["notes"] = report.notes;
  return json.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
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

// What was generated, in fast mode, and a close in order: the disk has everything then.
void end_cache(const LlamaArguments& arguments, Cached& cached, AskReport& report) {
  if (!cached.store) return;
  if (!arguments.exact && !report.prefill.cancelled) {
    const auto saved = cached.cache->save(0, report.answer.held);
    if (saved) report.saved = *saved;
    note(report, saved ? report.saved.note : saved.status().message);
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
  if (cached->store) note(report, report.prefill.prefilled.restored.note);
  if (report.prefill.cancelled) {
    report.answer.ended = "stopped";
  } else {
    AnswerOptions options{.tokens = arguments.answer_tokens, .stop = &stop, .hash_logits = arguments.json};
    if (!arguments.json) options.stream = write_stdout;
    auto done = answer(*model, *context, *prompt, options, start);
    if (!done) return done.error();
    report.answer = *std::move(done);
  }
  end_cache(arguments, *cached, report);
  return std::nullopt;
}

}  // namespace

int llama_ask(const LlamaArguments& arguments) {
  const StopSignals signals;
  AskReport report;
  const auto refusal = ask(arguments, signals.asked(), report);
  if (refusal) return fail("llama", refusal->message, refusal->status);
  if (signals.status() != 0)
    return fail("llama", "interrupted, so there is no whole answer", signals.status());
  if (arguments.json) return print("llama", report_json(arguments, report));
  const int printed = print("llama", "\n");
  for (const std::string& line : report.notes) remark("[" + line + "]");
  remark(fmt::format("[{}]",
                     prefill_text(report.prefill.prefilled, report.prompt_tokens, report.answer.ttft_ms)));
  return printed;
}

}  // namespace tiercel::apps
