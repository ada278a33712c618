// `tiercel llama measure`: time to the first token, cold and restored, beside llama.cpp's own file of a whole
// state.
#include <algorithm>
#include <functional>
#include <optional>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "llama_cache.h"
#include "llama_child.h"
#include "llama_manual.h"

namespace tiercel::apps {
namespace {

// One way to come to the first token: a time of each run.
struct Series {
  std::vector<double> ms;
  std::uint64_t restored_tokens = 0;
  void add(double time, std::uint64_t restored = 0) {
    ms.push_back(time);
    restored_tokens = restored;
  }
  std::optional<double> median() const {
    if (ms.empty()) return std::nullopt;
    std::vector<double> sorted = ms;
    std::sort(sorted.begin(), sorted.end());
    const std::size_t half = sorted.size() / 2;
    return sorted.size() % 2 == 1 ? sorted[half] : (sorted[half - 1] + sorted[half]) / 2;
  }
};

// Of one prompt length and number of threads.
struct Row {
  std::uint32_t tokens = 0, threads = 0;
  std::uint64_t prompt_tokens = 0, saved_bytes = 0, file_bytes = 0;
  Series plain, cold, host_exact, host_fast, disk_exact, disk_fast;
  Series save, close;                       // of fast mode; of the store, with what was left to write
  Series file_save, file_load, file_first;  // of llama.cpp's own file: loaded, and the first token after it
};

struct Measurement {
  const LlamaArguments& arguments;
  const std::atomic<bool>& stop;
  std::string folder;
  LlamaModel model;
  std::uint64_t token_bytes = 0, snapshot_bytes = 0;
  std::string memory;
  std::vector<Row> rows{};
};

using Failed = std::optional<Refusal>;

// A prompt that no other run has, and how a child is told of it.
struct MeasuredPrompt {
  std::vector<llama_token> tokens;
  std::vector<std::string> options;
};

LlamaResult<MeasuredPrompt> prompt_of(const Measurement& measurement, std::uint32_t tokens,
                                      std::uint64_t number) {
  MeasuredPrompt prompt;
  if (!measurement.model.has_vocabulary()) {
    measurement.model.append_random(prompt.tokens, tokens, number);
    prompt.options = {"--prompt-tokens", fmt::format("{}", tokens), "--seed", fmt::format("{}", number)};
    return prompt;
  }
  const auto manual =
      make_manual(measurement.model, fmt::format("Edition {}.", number), tokens, kFirstQuestion);
  if (!manual) return tl::unexpected(manual.error());
  LlamaArguments asked = measurement.arguments;
  asked.system = *manual;
  asked.prompt = kFirstQuestion;
  auto made = make_prompt(measurement.model, asked);
  if (!made) return tl::unexpected(made.error());
  prompt.tokens = *std::move(made);
  const std::string path = measurement.folder + "/manual.txt";
  if (!write_text(path, *manual)) return refuse(fmt::format("{} cannot be written", path));
  prompt.options = {"--system-file", path, "-p", kFirstQuestion};
  return prompt;
}

// Time from the prompt to the first token.
LlamaResult<double> first_token(const Measurement& measurement, const LlamaContext& context,
                                std::span<const llama_token> prompt,
                                const std::function<LlamaResult<LlamaPrefill>()>& prefill,
                                std::uint64_t& restored) {
  const SteadyTime start = std::chrono::steady_clock::now();
  const auto prefilled = prefill();
  if (!prefilled) return tl::unexpected(prefilled.error());
  if (prefilled->cancelled) return refuse("interrupted", kExitInterrupted);
  restored = prefilled->prefilled.restored.tokens;
  const auto done = answer(measurement.model, context, prompt, {.tokens = 1}, start);
  if (!done) return tl::unexpected(done.error());
  return done->ttft_ms;
}

Failed add_first_token(const Measurement& measurement, const LlamaContext& context,
                       std::span<const llama_token> prompt,
                       const std::function<LlamaResult<LlamaPrefill>()>& prefill, Series& series) {
  std::uint64_t restored = 0;
  const auto ms = first_token(measurement, context, prompt, prefill, restored);
  if (!ms) return ms.error();
  series.add(*ms, restored);
  return std::nullopt;
}

// llama.cpp's own: the whole state in a file, saved and loaded by hand. Not for states that cannot give back
// their last token.
void measure_file(const Measurement& measurement, const LlamaContext& context,
                  std::span<const llama_token> prompt, Row& row) {
  const std::string path = measurement.folder + "/state";
  SteadyTime start = std::chrono::steady_clock::now();
  const std::size_t written =
      llama_state_seq_save_file(context.get(), path.c_str(), 0, prompt.data(), prompt.size());
  if (written == 0) return;
  row.file_save.add(ms_since(start));
  row.file_bytes = written;
  llama_memory_t memory = llama_get_memory(context.get());
  llama_memory_seq_rm(memory, 0, -1, -1);
  std::vector<llama_token> tokens(prompt.size());
  std::size_t count = 0;
  start = std::chrono::steady_clock::now();
  if (llama_state_seq_load_file(context.get(), path.c_str(), 0, tokens.data(), tokens.size(), &count) == 0)
    return;
  row.file_load.add(ms_since(start));
  const auto last = static_cast<llama_pos>(prompt.size() - 1);
  if (!llama_memory_seq_rm(memory, 0, last, -1)) return;
  if (llama_decode(context.get(), llama_batch_get_one(&tokens.back(), 1)) != 0) return;
  if (const auto done = answer(measurement.model, context, prompt, {.tokens = 1}, start))
    row.file_first.add(done->ttft_ms, prompt.size() - 1);
}

Failed measure_plain(const Measurement& measurement, const MeasuredPrompt& prompt, Row& row) {
  const auto context =
      make_context(measurement.model, measurement.arguments, prompt.tokens.size() + 1, &measurement.stop);
  if (!context) return context.error();
  if (auto refusal = add_first_token(
          measurement, *context, prompt.tokens, [&] { return prefill_plain(*context, prompt.tokens); },
          row.plain))
    return refusal;
  measure_file(measurement, *context, prompt.tokens, row);
  return std::nullopt;
}

// Fast mode, attention only: computed without the store, so that saving has a time of its own.
Failed save_apart(const Measurement& measurement, const LlamaContext& context, llamacpp::ContextCache& cache,
                  const std::shared_ptr<llamacpp::Store>& store, const MeasuredPrompt& prompt, Row& row) {
  Series unused;
  if (auto refusal = add_first_token(
          measurement, context, prompt.tokens, [&] { return prefill_cached(cache, prompt.tokens); }, unused))
    return refusal;
  if (const Status status = cache.use(store); !status.ok()) return refuse(status).value();
  const SteadyTime start = std::chrono::steady_clock::now();
  const auto saved = cache.save(0, prompt.tokens);
  if (!saved) return refuse(saved.status()).value();
  row.save.add(ms_since(start));
  row.saved_bytes = saved->bytes;
  return std::nullopt;
}

Failed measure_cached(Measurement& measurement, const std::shared_ptr<llamacpp::Store>& store,
                      const MeasuredPrompt& prompt, llamacpp::Mode mode, Row& row) {
  const bool exact = mode == llamacpp::Mode::kExact;
  const auto context =
      make_context(measurement.model, measurement.arguments, prompt.tokens.size() + 1, &measurement.stop);
  if (!context) return context.error();
  const auto attached = attach_cache(measurement.model, *context, measurement.arguments, mode);
  if (!attached) return attached.error();
  llamacpp::ContextCache& cache = **attached;
  measurement.token_bytes = cache.token_bytes();
  measurement.snapshot_bytes = cache.snapshot_bytes();
  measurement.memory = llamacpp::sequence_kind_name(cache.sequence_kind());
  const auto prefill = [&] { return prefill_cached(cache, prompt.tokens); };
  if (!exact && cache.sequence_kind() == llamacpp::SequenceKind::kAttention) {
    if (auto refusal = save_apart(measurement, *context, cache, store, prompt, row)) return refusal;
  } else {
    if (const Status status = cache.use(store); !status.ok()) return refuse(status).value();
    Series unused;
    if (auto refusal =
            add_first_token(measurement, *context, prompt.tokens, prefill, exact ? row.cold : unused))
      return refusal;
  }
  return add_first_token(measurement, *context, prompt.tokens, prefill,
                         exact ? row.host_exact : row.host_fast);
}

Failed measure_children(const Measurement& measurement, const MeasuredPrompt& prompt, Row& row) {
  LlamaArguments arguments = measurement.arguments;
  arguments.cache = measurement.folder + "/cache";
  for (const bool exact : {true, false}) {
    std::vector<std::string> more = prompt.options;
    more.emplace_back(exact ? "--exact" : "--fast");
    const auto answer = ask_in_child(arguments, more, measurement.stop);
    if (!answer) return answer.error();
    (exact ? row.disk_exact : row.disk_fast).add(answer->figures.ttft_ms, answer->figures.restored_tokens);
  }
  return std::nullopt;
}

Failed measure_run(Measurement& measurement, std::uint64_t number, Row& row) {
  const auto prompt = prompt_of(measurement, row.tokens, number);
  if (!prompt) return prompt.error();
  row.prompt_tokens = prompt->tokens.size();
  if (auto refusal = measure_plain(measurement, *prompt, row)) return refusal;
  std::string held;
  const auto store = open_store(measurement.arguments, measurement.folder + "/cache", kWaitForStore, held);
  if (!store) return store.error();
  if (!*store) return Refusal{kExitFailed, held};
  if (auto refusal = measure_cached(measurement, *store, *prompt, llamacpp::Mode::kExact, row))
    return refusal;
  if (auto refusal = measure_cached(measurement, *store, *prompt, llamacpp::Mode::kFast, row)) return refusal;
  const SteadyTime start = std::chrono::steady_clock::now();
  if (const Status status = (*store)->close(); !status.ok()) return refuse(status).value();
  row.close.add(ms_since(start));
  return measure_children(measurement, *prompt, row);
}

// ---- reports ----

nlohmann::ordered_json series_json(const Series& series) {
  const auto median = series.median();
  return {{"median_ms", median ? nlohmann::ordered_json(*median) : nlohmann::ordered_json()},
          {"ms", series.ms},
          {"restored_tokens", series.restored_tokens}};
}

std::string measurement_json(const Measurement& measurement) {
  nlohmann::ordered_json json = model_json(measurement.model, measurement.arguments);
  json["memory"] = measurement.memory;
  json["token_bytes"] = measurement.token_bytes;
  json["snapshot_bytes"] = measurement.snapshot_bytes;
  json["runs"] = measurement.arguments.runs;
  json["rows"] = nlohmann::ordered_json::array();
  for (const Row& row : measurement.rows)
    json["rows"].push_back({{"tokens", row.tokens},
                            {"prompt_tokens", row.prompt_tokens},
                            {"threads", row.threads},
                            {"plain", series_json(row.plain)},
                            {"cold", series_json(row.cold)},
                            {"host_exact", series_json(row.host_exact)},
                            {"host_fast", series_json(row.host_fast)},
                            {"disk_exact", series_json(row.disk_exact)},
                            {"disk_fast", series_json(row.disk_fast)},
                            {"save", series_json(row.save)},
                            {"saved_bytes", row.saved_bytes},
                            {"close", series_json(row.close)},
                            {"file_save", series_json(row.file_save)},
                            {"file_load", series_json(row.file_load)},
                            {"file_first_token", series_json(row.file_first)},
                            {"file_bytes", row.file_bytes}});
  return json_line(json);
}

std::string cell(const Series& series, bool with_tokens = false) {
  const auto median = series.median();
  if (!median) return "-";
  return with_tokens ? fmt::format("{} ({})", time_text(*median), grouped_text(series.restored_tokens))
                     : time_text(*median);
}

std::string measurement_text(const Measurement& measurement) {
  std::string text = fmt::format(
      "{}, kept as {}: {} a token{}; medians of {} runs\n\ntime to the first token (tokens restored)\n",
      model_text(measurement.model, measurement.arguments), measurement.memory,
      size_text(measurement.token_bytes),
      measurement.snapshot_bytes == 0 ? std::string()
                                      : fmt::format(", {} a snapshot", size_text(measurement.snapshot_bytes)),
      measurement.arguments.runs);
  text += fmt::format("{:>7}{:>8}{:>10}{:>10}{:>18}{:>18}{:>18}{:>18}\n", "tokens", "threads", "plain",
                      "cold", "memory, exact", "memory, fast", "disk, exact", "disk, fast");
  for (const Row& row : measurement.rows)
    text += fmt::format("{:>7}{:>8}{:>10}{:>10}{:>18}{:>18}{:>18}{:>18}\n", grouped_text(row.prompt_tokens),
                        row.threads, cell(row.plain), cell(row.cold), cell(row.host_exact, true),
                        cell(row.host_fast, true), cell(row.disk_exact, true), cell(row.disk_fast, true));
  text += fmt::format(
      "\nsaving; beside it llama.cpp's own file of the whole state, one for each conversation, by hand\n"
      "{:>7}{:>8}{:>10}{:>12}{:>10}{:>12}{:>14}{:>12}{:>14}\n",
      "tokens", "threads", "save", "bytes", "close", "file: save", "bytes", "load", "first token");
  for (const Row& row : measurement.rows)
    text += fmt::format("{:>7}{:>8}{:>10}{:>12}{:>10}{:>12}{:>14}{:>12}{:>14}\n",
                        grouped_text(row.prompt_tokens), row.threads, cell(row.save),
                        size_text(row.saved_bytes), cell(row.close), cell(row.file_save),
                        size_text(row.file_bytes), cell(row.file_load), cell(row.file_first));
  text +=
      "cold: the first time with a cache, saving in it. memory: the same process. disk: another one, after "
      "the first has closed\n"
      "the cache; loading the model and opening the cache are not in it.\n";
  return text;
}

Failed measure_all(Measurement& measurement, LlamaArguments& arguments) {
  std::uint64_t number = 0;
  for (const std::uint32_t threads : arguments.measured_threads)
    for (const std::uint32_t tokens : arguments.measured_tokens) {
      arguments.threads = threads;
      Row row;
      row.tokens = tokens;
      row.threads = threads;
      for (std::uint32_t run = 0; run < arguments.runs; ++run) {
        show_step(arguments, fmt::format("{} tokens, {} threads: run {} of {} …", tokens, threads, run + 1,
                                         arguments.runs));
        if (auto refusal = measure_run(measurement, ++number, row)) return refusal;
        if (measurement.stop) return Refusal{kExitInterrupted, "interrupted"};
      }
      measurement.rows.push_back(std::move(row));
    }
  return std::nullopt;
}

}  // namespace

int llama_measure(const LlamaArguments& given) {
  const StopSignals signals;
  const TemporaryFolder folder;
  if (folder.path().empty()) return fail("llama", "no temporary folder can be made; TMPDIR says where");
  LlamaArguments arguments = given;
  if (arguments.cache_bytes == 0) arguments.cache_bytes = kTemporaryCacheBytes;
  auto model = LlamaModel::load(arguments);
  if (!model) return fail("llama", model.error());
  Measurement measurement{arguments, signals.asked(), folder.path(), *std::move(model), 0, 0, {}};
  const Failed refusal = measure_all(measurement, arguments);
  show_step(arguments, "");
  if (signals.status() != 0) return fail("llama", "interrupted, so there is no result", signals.status());
  if (refusal) return fail("llama", *refusal);
  return print("llama", arguments.json ? measurement_json(measurement) : measurement_text(measurement));
}

}  // namespace tiercel::apps
