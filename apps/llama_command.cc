#include "llama_command.h"

#include <algorithm>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string_view>
#include <thread>
#include <utility>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "base/sizes.h"
#include "model_arguments.h"
#include "trace/report.h"

namespace tiercel::apps {
namespace {

constexpr const char* kExamples = R"(Examples:
  tiercel llama chat -m MODEL.gguf --cache cache --system-file manual.txt
  tiercel llama ask -m MODEL.gguf --cache cache -f report.txt -p "What is the conclusion?" --exact
  tiercel llama demo -m MODEL.gguf
  tiercel llama compare -m MODEL.gguf
  tiercel llama measure -m MODEL.gguf --tokens 512,1500,4000 --threads 1,2 --runs 5 --json
A cache is a folder. It holds prompts of any number of models and settings, and outlives the process; one process at a time
has it. --exact: every logit is that of llama.cpp without a cache, bit for bit. --fast (the default of chat and ask): the
longest prefix is restored. docs/guide/llamacpp.md says what holds when, and what it costs.)";

constexpr std::size_t kLongestText = std::size_t{64} << 20;
constexpr std::uint64_t kMostTokens = 1 << 24;

// Options as typed.
struct LlamaTyped {
  std::string model;
  std::optional<std::string> cache, cache_bytes, host_bytes, tenant, page_tokens, snapshots;
  std::optional<std::string> threads, context, batch, micro_batch, full_windows, flash, type_k, type_v;
  std::optional<std::string> chat_template, system, system_file, file, prompt;
  std::optional<std::string> prompt_tokens, seed, question_tokens, question_seed, answer_tokens, tokens, runs;
  bool without_cache = false, exact = false, fast = false, json = false, log = false;
};

// What the subcommands differ in before they run.
struct LlamaDefaults {
  bool exact = false;
  bool cache_needed = false;  // a temporary one will not do
  bool takes_prompt = false;
  std::uint32_t answer_tokens = 32;
  const char* tokens = nullptr;  // of --tokens: one number, or a list
};

using Checked = std::optional<Refusal>;

Checked usage(std::string message) { return Refusal{kExitUsage, std::move(message)}; }

template <typename Number>
Checked take_count(const char* option, const std::optional<std::string>& text, Number& value,
                   std::uint64_t most = kMostTokens) {
  if (!text) return std::nullopt;
  const auto parsed = parse_count(option, *text, most);
  if (!parsed) return usage(parsed.error().message);
  value = static_cast<Number>(*parsed);
  return std::nullopt;
}

Checked take_size(const char* option, const std::optional<std::string>& text, std::uint64_t& value) {
  if (!text) return std::nullopt;
  const auto parsed = parse_size(*text);
  if (!parsed) return usage(fmt::format("{}: {}", option, parsed.error().message));
  if (*parsed == 0) return usage(fmt::format("{}: wanted a size above 0, such as 4GiB", option));
  value = *parsed;
  return std::nullopt;
}

Checked take_word(const char* option, const std::optional<std::string>& text,
                  std::initializer_list<std::string_view> words, std::string& value) {
  if (!text) return std::nullopt;
  if (std::find(words.begin(), words.end(), *text) == words.end())
    return usage(fmt::format("{}: wanted one of {}, is \"{}\"", option, fmt::join(words, ", "), *text));
  value = *text;
  return std::nullopt;
}

Checked take_list(const char* option, std::string_view text, std::vector<std::uint32_t>& values) {
  values.clear();
  for (std::size_t at = 0; at <= text.size();) {
    const std::size_t end = std::min(text.find(',', at), text.size());
    std::uint32_t value = 0;
    if (auto refusal = take_count(option, std::string(text.substr(at, end - at)), value)) return refusal;
    values.push_back(value);
    at = end + 1;
  }
  return std::nullopt;
}

Checked take_file(const char* option, const std::optional<std::string>& path, std::string& text) {
  if (!path) return std::nullopt;
  auto read = read_file(*path, kLongestText);
  if (!read) return Refusal{kExitFailed, fmt::format("{}: {}", option, read.error().message)};
  if (read->size() > kLongestText)
    return Refusal{kExitFailed,
                   fmt::format("{}: {} is longer than {}", option, *path, format_size(kLongestText))};
  text = *std::move(read);
  return std::nullopt;
}

Checked take_cache(const LlamaTyped& typed, const LlamaDefaults& defaults, LlamaArguments& arguments) {
  arguments.cache = typed.cache.value_or("");
  arguments.without_cache = typed.without_cache;
  if (typed.cache && typed.cache->empty()) return usage("--cache: wanted a folder, got nothing");
  if (defaults.cache_needed && !typed.cache && !typed.without_cache)
    return usage("--cache FOLDER is missing: where the cache is, made when there is none; or say --no-cache");
  if (typed.exact && typed.fast) return usage("--exact and --fast are both given; one of them");
  arguments.exact = typed.exact || (defaults.exact && !typed.fast);
  arguments.tenant = typed.tenant.value_or("");
  if (auto refusal = take_size("--cache-bytes", typed.cache_bytes, arguments.cache_bytes)) return refusal;
  if (auto refusal = take_size("--host-bytes", typed.host_bytes, arguments.host_bytes)) return refusal;
  if (auto refusal = take_count("--snapshots", typed.snapshots, arguments.snapshots, 1000)) return refusal;
  std::string page = "16";
  if (auto refusal = take_word("--page-tokens", typed.page_tokens, {"16", "32", "64"}, page)) return refusal;
  arguments.page_tokens = page == "16" ? 16 : page == "32" ? 32 : 64;
  return std::nullopt;
}

Checked take_context(const LlamaTyped& typed, LlamaArguments& arguments) {
  arguments.threads = std::max(std::thread::hardware_concurrency(), 1U);
  if (auto refusal = take_count("--ctx", typed.context, arguments.context_tokens)) return refusal;
  if (auto refusal = take_count("--batch", typed.batch, arguments.batch)) return refusal;
  if (auto refusal = take_count("--ubatch", typed.micro_batch, arguments.micro_batch)) return refusal;
  std::string full = "on";
  if (auto refusal = take_word("--swa-full", typed.full_windows, {"on", "off"}, full)) return refusal;
  arguments.full_windows = full == "on";
  if (auto refusal = take_word("--flash-attn", typed.flash, {"auto", "on", "off"}, arguments.flash_attention))
    return refusal;
  for (const auto& [option, text, value] : {std::tuple{"--type-k", &typed.type_k, &arguments.type_k},
                                            std::tuple{"--type-v", &typed.type_v, &arguments.type_v}})
    if (auto refusal = take_word(
            option, *text, {"f32", "f16", "bf16", "q8_0", "q5_0", "q5_1", "q4_0", "q4_1", "iq4_nl"}, *value))
      return refusal;
  return std::nullopt;
}

Checked take_prompt(const LlamaTyped& typed, const LlamaDefaults& defaults, LlamaArguments& arguments) {
  arguments.answer_tokens = defaults.answer_tokens;
  arguments.chat_template = typed.chat_template.value_or("");
  arguments.prompt = typed.prompt.value_or("");
  arguments.system = typed.system.value_or("");
  constexpr std::uint64_t kAnySeed = UINT64_C(1) << 62;
  if (typed.system && typed.system_file)
    return usage("--system and --system-file are both given; one of them");
  if (auto refusal = take_count("-n", typed.answer_tokens, arguments.answer_tokens)) return refusal;
  if (auto refusal = take_count("--prompt-tokens", typed.prompt_tokens, arguments.prompt_tokens))
    return refusal;
  if (auto refusal = take_count("--question-tokens", typed.question_tokens, arguments.question_tokens))
    return refusal;
  if (auto refusal = take_count("--seed", typed.seed, arguments.seed, kAnySeed)) return refusal;
  if (auto refusal = take_count("--question-seed", typed.question_seed, arguments.question_seed, kAnySeed))
    return refusal;
  const bool text = typed.prompt || typed.file || typed.system || typed.system_file;
  if (typed.prompt_tokens && text)
    return usage(
        "--prompt-tokens is a prompt of random tokens; it goes with no text: leave -p, -f, --system out");
  if (!typed.prompt_tokens && (typed.question_tokens || typed.question_seed || typed.seed))
    return usage("--seed, --question-tokens and --question-seed need --prompt-tokens");
  if (defaults.takes_prompt && !typed.prompt_tokens && !typed.prompt && !typed.file)
    return usage("-p PROMPT is missing: the question");
  if (auto refusal = take_file("--system-file", typed.system_file, arguments.system)) return refusal;
  return take_file("-f", typed.file, arguments.text_before);
}

Checked take_all(const LlamaTyped& typed, const LlamaDefaults& defaults, LlamaArguments& arguments) {
  arguments.model = typed.model;
  arguments.json = typed.json;
  arguments.log = typed.log;
  if (auto refusal = take_cache(typed, defaults, arguments)) return refusal;
  if (auto refusal = take_context(typed, arguments)) return refusal;
  const bool lists =
      defaults.tokens != nullptr && std::string_view(defaults.tokens).find(',') != std::string_view::npos;
  constexpr std::uint64_t kMostThreads = 4096;
  if (!lists) {
    if (auto refusal = take_count("--threads", typed.threads, arguments.threads, kMostThreads))
      return refusal;
  } else {
    const std::string all = arguments.threads > 1 ? fmt::format("1,{}", arguments.threads) : "1";
    if (auto refusal = take_list("--threads", typed.threads.value_or(all), arguments.measured_threads))
      return refusal;
    if (auto refusal =
            take_list("--tokens", typed.tokens.value_or(defaults.tokens), arguments.measured_tokens))
      return refusal;
    arguments.runs = 5;
    if (auto refusal = take_count("--runs", typed.runs, arguments.runs, 1000)) return refusal;
  }
  if (defaults.tokens != nullptr && !lists)
    if (auto refusal =
            take_count("--tokens", typed.tokens.value_or(defaults.tokens), arguments.manual_tokens))
      return refusal;
  return take_prompt(typed, defaults, arguments);
}

// ---- options ----

void add_cache_options(CLI::App& app, LlamaTyped& typed) {
  app.add_option(
         "--cache-bytes", typed.cache_bytes,
         "of a new cache, as 4GiB: bytes on disk, claimed at once, never exceeded (default 4GiB; a temporary "
         "one: 1GiB)")
      ->type_name("SIZE");
  app.add_option("--host-bytes", typed.host_bytes, "in memory (default 512MiB)")->type_name("SIZE");
  app.add_option("--page-tokens", typed.page_tokens, "tokens of a page: 16 (default), 32, 64")
      ->type_name("N");
  app.add_option("--snapshots", typed.snapshots,
                 "most snapshots of windows and recurrent states that one prompt takes (default 4)")
      ->type_name("N");
  app.add_option("--tenant", typed.tenant, "whose prompts they are; never shared with another's")
      ->type_name("NAME");
}

void add_context_options(CLI::App& app, LlamaTyped& typed) {
  app.add_option("-c,--ctx", typed.context,
                 "tokens of the context (default: as many as it takes; chat: 8192, or what the model was "
                 "trained for)")
      ->type_name("N");
  app.add_option("--batch", typed.batch, "most tokens of one llama_decode (default 2048)")->type_name("N");
  app.add_option("--ubatch", typed.micro_batch, "most tokens computed at once (default 512)")->type_name("N");
  app.add_option("--swa-full", typed.full_windows,
                 "keep windows in full: on (default; exact mode needs it), off")
      ->type_name("on|off");
  app.add_option("--flash-attn", typed.flash, "auto (default), on, off")->type_name("WHEN");
  app.add_option("--type-k", typed.type_k, "type of cached keys: f16 (default), f32, bf16, q8_0 …")
      ->type_name("TYPE");
  app.add_option("--type-v", typed.type_v, "type of cached values")->type_name("TYPE");
  app.add_flag("--log", typed.log, "what the adapter and llama.cpp have to say, on stderr");
}

void add_system_options(CLI::App& app, LlamaTyped& typed) {
  app.add_option("--system", typed.system, "the system prompt")->type_name("TEXT");
  app.add_option("--system-file", typed.system_file, "the system prompt, from a file")->type_name("FILE");
  app.add_option("--template", typed.chat_template,
                 "chat template by llama.cpp's name (default: the model's own); none: the text as it is")
      ->type_name("NAME");
}

void add_prompt_options(CLI::App& app, LlamaTyped& typed) {
  app.add_option("-p,--prompt", typed.prompt, "the question")->type_name("PROMPT");
  app.add_option("-f,--file", typed.file, "text before the question; - is standard input")->type_name("FILE");
  add_system_options(app, typed);
  app.add_option("--prompt-tokens", typed.prompt_tokens, "instead of text: so many random tokens")
      ->type_name("N");
  app.add_option("--seed", typed.seed, "of them (default 1)")->type_name("S");
  app.add_option("--question-tokens", typed.question_tokens, "behind them so many other ones")
      ->type_name("N");
  app.add_option("--question-seed", typed.question_seed, "of those (default 2)")->type_name("S");
}

void add_answer_option(CLI::App& app, LlamaTyped& typed, const LlamaDefaults& defaults) {
  app.add_option("-n,--answer-tokens", typed.answer_tokens,
                 fmt::format("most tokens of an answer (default {})", defaults.answer_tokens))
      ->type_name("N");
}

#ifdef TIERCEL_WITH_LLAMA
constexpr int (*kRuns[])(const LlamaArguments&) = {llama_chat, llama_ask, llama_demo, llama_compare,
                                                   llama_measure};
#else
int is_missing(const LlamaArguments&) {
  return fail("llama",
              "this program was built without llama.cpp; build it with: cmake --preset release "
              "-DTIERCEL_WITH_LLAMA=ON && cmake --build --preset release --target tiercel");
}
constexpr int (*kRuns[])(const LlamaArguments&) = {is_missing, is_missing, is_missing, is_missing,
                                                   is_missing};
#endif

constexpr LlamaDefaults kChat{.cache_needed = true, .answer_tokens = 512};
constexpr LlamaDefaults kAsk{.cache_needed = true, .takes_prompt = true, .answer_tokens = 64};
constexpr LlamaDefaults kDemo{.exact = true, .answer_tokens = 32, .tokens = "1500"};
constexpr LlamaDefaults kCompare{.exact = true};
constexpr LlamaDefaults kMeasure{.exact = true, .answer_tokens = 4, .tokens = "512,1500,4000"};
constexpr const LlamaDefaults* kDefaults[] = {&kChat, &kAsk, &kDemo, &kCompare, &kMeasure};

int run_subcommand(const LlamaTyped& typed, std::size_t which) {
  LlamaArguments arguments;
  if (const auto refusal = take_all(typed, *kDefaults[which], arguments))
    return fail("llama", refusal->message, refusal->status);
  return kRuns[which](arguments);
}

// What each has of its own; the rest is the same for all.
void add_own_options(CLI::App* (&apps)[5], LlamaTyped& typed) {
  constexpr const char* kOwn = "the cache's folder, made when there is none";
  constexpr const char* kTemporary = "the cache's folder (default: a temporary one, removed at the end)";
  constexpr const char* kThreads = "threads that compute (default: one for each core)";
  auto& [chat, ask, demo, compare, measure] = apps;
  add_system_options(*chat, typed);
  add_prompt_options(*ask, typed);
  add_prompt_options(*compare, typed);
  for (CLI::App* app : {chat, ask, demo, compare})
    app->add_option("--cache", typed.cache, app == chat || app == ask ? kOwn : kTemporary)
        ->type_name("FOLDER");
  ask->add_flag("--no-cache", typed.without_cache, "plain llama.cpp");
  for (CLI::App* app : {chat, ask}) {
    app->add_flag("--exact", typed.exact, "every logit is that of llama.cpp without a cache, bit for bit");
    app->add_flag("--fast", typed.fast, "restore the longest prefix (default)");
  }
  demo->add_option("--tokens", typed.tokens, "length of a prompt (default 1500)")->type_name("N");
  measure->add_option("--tokens", typed.tokens, "lengths of prompts (default 512,1500,4000)")
      ->type_name("N,N...");
  measure->add_option("--runs", typed.runs, "of which the medians are printed (default 5)")->type_name("N");
  measure->add_option("-t,--threads", typed.threads, "numbers of threads (default 1 and one for each core)")
      ->type_name("N,N...");
  for (CLI::App* app : {chat, ask, demo, compare})
    app->add_option("-t,--threads", typed.threads, kThreads)->type_name("N");
}

void add_options(CLI::App* (&apps)[5], LlamaTyped& typed) {
  for (CLI::App* app : apps)
    app->add_option("-m,--model", typed.model, "the model; of several parts the first")
        ->type_name("MODEL.gguf")
        ->required();
  add_own_options(apps, typed);
  for (std::size_t i = 0; i < std::size(apps); ++i) {
    if (kDefaults[i] != &kMeasure) add_answer_option(*apps[i], typed, *kDefaults[i]);
    if (kDefaults[i] != &kChat) apps[i]->add_flag("--json", typed.json, "one JSON object instead of text");
    add_cache_options(*apps[i], typed);
    add_context_options(*apps[i], typed);
    apps[i]->footer(kExamples);
  }
}

}  // namespace

std::string size_text(std::uint64_t bytes) { return format_size(bytes); }
std::string grouped_text(std::uint64_t number) { return grouped(number); }

Command llama_command(CLI::App& parent) {
  // Owners: the parser's callbacks during the parse, the returned `run` afterwards.
  auto typed = std::make_shared<LlamaTyped>();
  CLI::App* app = parent.add_subcommand("llama", "Run llama.cpp with a cache that outlives the process");
  app->require_subcommand(1);
  app->footer(kExamples);
  CLI::App* apps[5] = {
      app->add_subcommand("chat", "Talk to a model; what was said before is restored, not computed"),
      app->add_subcommand("ask", "One answer"),
      app->add_subcommand(
          "demo", "Show what a cache does, each step in a process of its own, beside plain llama.cpp"),
      app->add_subcommand("compare",
                          "Compare logits and tokens: plain, first time with a cache, restored; over a "
                          "made-up text if you give none"),
      app->add_subcommand(
          "measure",
          "Measure the time to the first token, on files in a temporary folder (TMPDIR says where)"),
  };
  add_options(apps, *typed);
  return {app, [typed, apps = std::vector<CLI::App*>(std::begin(apps), std::end(apps))] {
            for (std::size_t i = 0; i < apps.size(); ++i)
              if (apps[i]->parsed()) return run_subcommand(*typed, i);
            return kExitUsage;
          }};
}

}  // namespace tiercel::apps
