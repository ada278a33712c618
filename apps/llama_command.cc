#include "llama_command.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <initializer_list>
#include <iterator>
#include <memory>
#include <optional>
#include <string_view>
#include <system_error>
#include <thread>
#include <utility>

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <unistd.h>

#include "base/sizes.h"
#include "decode_plan.h"
#include "model_arguments.h"
#include "trace/report.h"

namespace tiercel::apps {
namespace {

constexpr std::size_t kLongestText = std::size_t{64} << 20;
constexpr std::uint64_t kMostTokens = 1 << 24;

// Options as typed.
struct LlamaTyped {
  std::string model;
  std::optional<std::string> cache, cache_bytes, host_bytes, tenant, page_tokens, snapshots, remote;
  std::optional<std::string> threads, context, batch, micro_batch, full_windows, flash, type_k, type_v;
  std::optional<std::string> chat_template, system, system_file, file, prompt;
  std::optional<std::string> prompt_tokens, seed, question_tokens, question_seed, answer_tokens, tokens, runs;
  std::optional<std::string> log;
  std::vector<std::string> loras;
  bool without_cache = false, exact = false, fast = false, json = false;
};

// What the subcommands differ in before they run.
enum class CacheChoice : std::uint8_t { kGiven, kGivenOrTemporary, kTemporary };
enum class PromptChoice : std::uint8_t { kNone, kSystem, kAny, kNeeded };

struct LlamaProgram {
  const char *name, *what, *example;
  CacheChoice cache = CacheChoice::kGivenOrTemporary;
  PromptChoice prompt = PromptChoice::kNone;
  std::uint32_t answer_tokens = 32;
  bool answer_option = true, json = true;
  bool remote = false;           // takes --remote; what measures and compares knows nothing of it
  const char* tokens = nullptr;  // of --tokens: one number, or a list
  bool chooses_mode() const { return cache == CacheChoice::kGiven; }  // the others run both
  bool lists() const {
    return tokens != nullptr && std::string_view(tokens).find(',') != std::string_view::npos;
  }
};

constexpr LlamaProgram kPrograms[] = {
    {.name = "chat",
     .what = "Talk to a model; what was said before is restored, not computed",
     .example = "tiercel llama chat -m MODEL.gguf --cache FOLDER --system-file manual.txt",
     .cache = CacheChoice::kGiven,
     .prompt = PromptChoice::kSystem,
     .answer_tokens = 512,
     .json = false,
     .remote = true},
    {.name = "ask",
     .what = "One answer",
     .example = "tiercel llama ask -m MODEL.gguf --cache FOLDER -f report.txt -p \"What is the conclusion?\" "
                "--exact",
     .cache = CacheChoice::kGiven,
     .prompt = PromptChoice::kNeeded,
     .answer_tokens = 64,
     .remote = true},
    {.name = "demo",
     .what = "Show what a cache does, each step in a process of its own, beside plain llama.cpp",
     .example = "tiercel llama demo -m MODEL.gguf",
     .remote = true,
     .tokens = "1500"},
    {.name = "compare",
     .what = "Compare logits and tokens: plain, first time with a cache, restored; over a made-up text if "
             "you give "
             "none",
     .example = "tiercel llama compare -m MODEL.gguf",
     .prompt = PromptChoice::kAny},
    {.name = "measure",
     .what = "Measure the time to the first token, on files in a temporary folder (TMPDIR says where)",
     .example = "tiercel llama measure -m MODEL.gguf --tokens 512,1500,4000 --threads 1,2 --runs 5 --json",
     .cache = CacheChoice::kTemporary,
     .answer_tokens = 4,
     .answer_option = false,
     .tokens = "512,1500,4000"},
};
constexpr std::size_t kProgramCount = std::size(kPrograms);
constexpr std::uint32_t kMeasuredRuns = 5;

constexpr const char* kNotes =
    R"(A cache is a folder. It holds prompts of any number of models and settings, and outlives the process; one process at a time
has it. --exact: every logit is that of llama.cpp without a cache, bit for bit. --fast (the default of chat and ask): the
longest prefix is restored. docs/guide/llamacpp.md says what holds when, and what it costs.)";

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

// Whether this user may keep a cache there. Asked first, so that each program says the same, before a model
// is loaded.
Checked check_folder(const std::string& folder) {
  std::error_code ignored;
  std::filesystem::path at = folder;
  if (std::filesystem::exists(at, ignored) && !std::filesystem::is_directory(at, ignored))
    return std::nullopt;
  const bool there = std::filesystem::is_directory(at, ignored);
  while (!std::filesystem::exists(at, ignored)) at = at.has_parent_path() ? at.parent_path() : ".";
  if (!std::filesystem::is_directory(at, ignored))
    return std::nullopt;  // the store says what is wrong with it
  std::string problem = access_problem(at.string(), W_OK | X_OK | (there ? R_OK : 0));
  for (const char* file : {"cache.tiercel", "cache.turn"})
    if (const auto path = at / file; problem.empty() && there && std::filesystem::exists(path, ignored))
      problem = access_problem(path.string(), R_OK | W_OK);
  if (problem.empty()) return std::nullopt;
  return Refusal{
      kExitFailed,
      fmt::format("--cache {}: {}; give a folder of your own, or change whose this is", folder, problem)};
}

Checked take_cache(const LlamaTyped& typed, const LlamaProgram& program, LlamaArguments& arguments) {
  arguments.cache = typed.cache.value_or("");
  arguments.without_cache = typed.without_cache;
  if (typed.cache && typed.cache->empty()) return usage("--cache: wanted a folder, got nothing");
  if (typed.cache && typed.without_cache) return usage("--cache and --no-cache are both given; one of them");
  if (program.cache == CacheChoice::kGiven && !typed.cache && !typed.without_cache)
    return usage("--cache FOLDER is missing: where the cache is, made when there is none; or say --no-cache");
  if (typed.exact && typed.fast) return usage("--exact and --fast are both given; one of them");
  arguments.exact = typed.exact;
  arguments.tenant = typed.tenant.value_or("");
  arguments.remote = typed.remote.value_or("");
  if (typed.remote && typed.without_cache) return usage("--remote needs --cache: it stands below a cache");
  if (typed.remote && typed.remote->empty())
    return usage("--remote: wanted an address, such as mooncake://HOST:PORT or posix:FOLDER, got nothing");
  if (auto refusal = take_size("--cache-bytes", typed.cache_bytes, arguments.cache_bytes)) return refusal;
  if (auto refusal = take_size("--host-bytes", typed.host_bytes, arguments.host_bytes)) return refusal;
  if (auto refusal = take_count("--snapshots", typed.snapshots, arguments.snapshots, 1000)) return refusal;
  std::string page = "16";
  if (auto refusal = take_word("--page-tokens", typed.page_tokens, {"16", "32", "64"}, page)) return refusal;
  arguments.page_tokens = page == "16" ? 16 : page == "32" ? 32 : 64;
  return std::nullopt;
}

// FILE, or FILE:SCALE.
Checked take_loras(const LlamaTyped& typed, LlamaArguments& arguments) {
  for (const std::string& text : typed.loras) {
    LoraArgument lora{text, 1};
    const std::size_t colon = text.rfind(':');
    if (colon != std::string::npos && text.find('/', colon) == std::string::npos) {
      lora.file = text.substr(0, colon);
      const char* const end = text.data() + text.size();
      const auto [stopped, error] = std::from_chars(text.data() + colon + 1, end, lora.scale);
      if (error != std::errc() || stopped != end || !std::isfinite(lora.scale))
        return usage(
            fmt::format("--lora: wanted a number after the colon, such as style.gguf:0.5, is \"{}\"", text));
    }
    if (lora.file.empty()) return usage("--lora: wanted FILE or FILE:SCALE, got no file");
    arguments.loras.push_back(std::move(lora));
  }
  return std::nullopt;
}

// What exact mode asks of the batches, by the adapter's rule and in the words of the command line.
Checked check_exact(const LlamaProgram& program, const LlamaArguments& arguments) {
  using llamacpp::kTileRows;
  if (arguments.without_cache || (program.chooses_mode() && !arguments.exact)) return std::nullopt;
  const char* remedy = program.chooses_mode() ? "; or use --fast" : "";
  const std::uint32_t at_once = std::min(arguments.micro_batch, arguments.batch);
  const auto taken = [&](std::uint32_t batch) { return llamacpp::why_not_exact(at_once, batch).empty(); };
  if (!taken(at_once))
    return usage(fmt::format("{}: exact mode wants a multiple of {}, {} at least, got {}{}",
                             at_once < arguments.micro_batch ? "--batch" : "--ubatch", kTileRows,
                             2 * kTileRows, at_once, remedy));
  if (!taken(arguments.batch))
    return usage(fmt::format("--batch: exact mode wants a multiple of --ubatch ({}), got {}{}",
                             arguments.micro_batch, arguments.batch, remedy));
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

Checked take_prompt(const LlamaTyped& typed, const LlamaProgram& program, LlamaArguments& arguments) {
  arguments.answer_tokens = program.answer_tokens;
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
  if (program.prompt == PromptChoice::kNeeded && !typed.prompt_tokens && !typed.prompt && !typed.file)
    return usage("-p PROMPT is missing: the question");
  if (auto refusal = take_file("--system-file", typed.system_file, arguments.system)) return refusal;
  return take_file("-f", typed.file, arguments.text_before);
}

Checked take_lists(const LlamaTyped& typed, const LlamaProgram& program, LlamaArguments& arguments) {
  const std::string all = arguments.threads > 1 ? fmt::format("1,{}", arguments.threads) : "1";
  if (auto refusal = take_list("--threads", typed.threads.value_or(all), arguments.measured_threads))
    return refusal;
  if (auto refusal = take_list("--tokens", typed.tokens.value_or(program.tokens), arguments.measured_tokens))
    return refusal;
  arguments.runs = kMeasuredRuns;
  return take_count("--runs", typed.runs, arguments.runs, 1000);
}

Checked take_all(const LlamaTyped& typed, const LlamaProgram& program, LlamaArguments& arguments) {
  arguments.model = typed.model;
  arguments.json = typed.json;
  if (typed.log) {
    std::string log = "cache";
    if (auto refusal = take_word("--log", typed.log, {"cache", "all"}, log)) return refusal;
    arguments.log = log == "all" ? Logged::kAll : Logged::kCache;
  }
  if (auto refusal = take_cache(typed, program, arguments)) return refusal;
  if (auto refusal = take_loras(typed, arguments)) return refusal;
  if (auto refusal = take_context(typed, arguments)) return refusal;
  if (auto refusal = check_exact(program, arguments)) return refusal;
  if (program.lists()) {
    if (auto refusal = take_lists(typed, program, arguments)) return refusal;
  } else {
    constexpr std::uint64_t kMostThreads = 4096;
    if (auto refusal = take_count("--threads", typed.threads, arguments.threads, kMostThreads))
      return refusal;
    if (program.tokens != nullptr)
      if (auto refusal =
              take_count("--tokens", typed.tokens.value_or(program.tokens), arguments.manual_tokens))
        return refusal;
  }
  if (auto refusal = take_prompt(typed, program, arguments)) return refusal;
  return arguments.cache.empty() ? std::nullopt : check_folder(arguments.cache);
}

// ---- options ----

void add_cache_options(CLI::App& app, LlamaTyped& typed, const LlamaProgram& program) {
  constexpr const char* kFolder = "the cache's folder, made when there is none";
  constexpr const char* kBytes = "of a new cache: bytes on disk, claimed at once, never exceeded";
  const bool given = program.cache == CacheChoice::kGiven;
  if (program.cache != CacheChoice::kTemporary)
    app.add_option(
           "--cache", typed.cache,
           fmt::format("{} ({})", kFolder,
                       given ? "needed, or --no-cache" : "default: a temporary one, removed at the end"))
        ->type_name("FOLDER");
  if (program.chooses_mode()) {
    app.add_flag("--no-cache", typed.without_cache, "plain llama.cpp, instead of --cache");
    app.add_flag("--exact", typed.exact, "every logit is that of llama.cpp without a cache, bit for bit");
    app.add_flag("--fast", typed.fast, "restore the longest prefix (default)");
  }
  app.add_option(
         "--cache-bytes", typed.cache_bytes,
         fmt::format("{} (default {})", kBytes, given ? "4GiB" : "1GiB of a temporary one, else 4GiB"))
      ->type_name("SIZE");
  app.add_option("--host-bytes", typed.host_bytes, "in memory (default 512MiB)")->type_name("SIZE");
  app.add_option("--page-tokens", typed.page_tokens, "tokens of a page: 16 (default), 32, 64")
      ->type_name("N");
  app.add_option("--snapshots", typed.snapshots,
                 "most snapshots of windows and recurrent states that one prompt takes (default 4)")
      ->type_name("N");
  if (program.remote)
    app.add_option("--remote", typed.remote,
                   fmt::format("below the cache: a store that other machines use, too: mooncake://HOST:PORT, "
                               "valkey://HOST:PORT, posix:FOLDER (default: {}none)",
                               given ? "TIERCEL_REMOTE, or " : ""))
        ->type_name("URL");
  app.add_option("--tenant", typed.tenant, "whose prompts they are; never shared with another's")
      ->type_name("NAME");
}

void add_context_options(CLI::App& app, LlamaTyped& typed) {
  app.add_option("-c,--ctx", typed.context,
                 "tokens of the context (default: as many as it takes; chat: 8192, or what the model was "
                 "trained for)")
      ->type_name("N");
  app.add_option("--lora", typed.loras,
                 "a LoRA adapter, with its scale (default 1); may be given several times")
      ->type_name("FILE[:SCALE]")
      ->allow_extra_args(false);
  app.add_option("--batch", typed.batch, "most tokens of one llama_decode (default 2048)")->type_name("N");
  app.add_option("--ubatch", typed.micro_batch, "most tokens computed at once (default 512)")->type_name("N");
  app.add_option("--swa-full", typed.full_windows,
                 "keep windows in full: on (default; exact mode needs it), off")
      ->type_name("on|off");
  app.add_option("--flash-attn", typed.flash, "auto (default), on, off")->type_name("WHEN");
  app.add_option("--type-k", typed.type_k, "type of cached keys: f16 (default), f32, bf16, q8_0 …")
      ->type_name("TYPE");
  app.add_option("--type-v", typed.type_v, "type of cached values")->type_name("TYPE");
  app.add_option("--log", typed.log,
                 "on stderr: what the cache has to say, in lines that begin \"cache:\"; all: llama.cpp, too")
      ->type_name("cache|all")
      ->expected(0, 1)
      ->default_str("cache");
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

void add_work_options(CLI::App& app, LlamaTyped& typed, const LlamaProgram& program) {
  const char* const count = program.lists() ? "N,N..." : "N";
  if (program.answer_option)
    app.add_option("-n,--answer-tokens", typed.answer_tokens,
                   fmt::format("most tokens of an answer (default {})", program.answer_tokens))
        ->type_name("N");
  if (program.tokens != nullptr)
    app.add_option("--tokens", typed.tokens, fmt::format("length of a prompt (default {})", program.tokens))
        ->type_name(count);
  if (program.lists())
    app.add_option("--runs", typed.runs,
                   fmt::format("of which the medians are printed (default {})", kMeasuredRuns))
        ->type_name("N");
  app.add_option(
         "-t,--threads", typed.threads,
         fmt::format("threads that compute (default: {}one for each core)", program.lists() ? "1, and " : ""))
      ->type_name(count);
  if (program.json) app.add_flag("--json", typed.json, "one JSON object instead of text");
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

static_assert(std::size(kRuns) == kProgramCount);

void add_options(CLI::App& app, LlamaTyped& typed, const LlamaProgram& program) {
  app.add_option("-m,--model", typed.model, "the model; of several parts the first")
      ->type_name("MODEL.gguf")
      ->required();
  if (program.prompt == PromptChoice::kSystem) add_system_options(app, typed);
  if (program.prompt == PromptChoice::kAny || program.prompt == PromptChoice::kNeeded)
    add_prompt_options(app, typed);
  add_work_options(app, typed, program);
  add_cache_options(app, typed, program);
  add_context_options(app, typed);
  app.footer(fmt::format("Examples:\n  {}\n{}", program.example, kNotes));
}

int run_program(const LlamaTyped& typed, std::size_t which) {
  LlamaArguments arguments;
  const LlamaProgram& program = kPrograms[which];
  if (const auto refusal = take_all(typed, program, arguments)) return fail("llama", *refusal);
  // What is shown or measured as the first time must be it, whatever a store has of yesterday.
  if (!program.chooses_mode()) ::unsetenv("TIERCEL_REMOTE");  // NOLINT(concurrency-mt-unsafe): no thread yet
  return kRuns[which](arguments);
}

}  // namespace

std::string size_text(std::uint64_t bytes) { return format_size(bytes); }
std::string grouped_text(std::uint64_t number) { return grouped(number); }

Command llama_command(CLI::App& parent) {
  // Owners: the parser's callbacks during the parse, the returned `run` afterwards.
  auto typed = std::make_shared<LlamaTyped>();
  CLI::App* app = parent.add_subcommand("llama", "Run llama.cpp with a cache that outlives the process");
  app->require_subcommand(1);
  std::string examples = "Examples:\n";
  std::vector<CLI::App*> apps;
  for (const LlamaProgram& program : kPrograms) {
    examples += fmt::format("  {}\n", program.example);
    apps.push_back(app->add_subcommand(program.name, program.what));
    add_options(*apps.back(), *typed, program);
  }
  app->footer(examples + kNotes);
  return {app, [typed, apps = std::move(apps)] {
            for (std::size_t i = 0; i < apps.size(); ++i)
              if (apps[i]->parsed()) return run_program(*typed, i);
            return kExitUsage;
          }};
}

}  // namespace tiercel::apps
