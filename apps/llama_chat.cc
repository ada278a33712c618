// `tiercel llama chat`: a conversation in a terminal or a pipe. The store is open while a turn is computed,
// not while somebody types, so that other processes have their turns too.
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <optional>
#include <string>
#include <system_error>
#include <utility>

#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include "llama_cache.h"
#include "llama_report.h"

namespace tiercel::apps {
namespace {

constexpr std::chrono::seconds kWaitForTurn(2);         // somebody sits before it
constexpr std::chrono::seconds kWaitForRemoteAgain(1);  // that was not ready in the turn before
constexpr std::uint32_t kContextTokens = 8192;

// SIGINT ends the answer, a second one the program in good order, a third one at once; SIGTERM as two of
// them.
std::atomic<int> interrupts = 0;
std::atomic<int> last_signal = 0;
std::atomic<bool> stop_answer = false;
static_assert(std::atomic<int>::is_always_lock_free && std::atomic<bool>::is_always_lock_free);

extern "C" void on_chat_signal(int signal) {
  last_signal = signal;
  interrupts += signal == SIGTERM ? 2 : 1;
  stop_answer = true;
  if (interrupts > 2) _exit(signal == SIGTERM ? kExitTerminated : kExitInterrupted);
}

void take_signals() {
  for (const int signal : {SIGINT, SIGTERM}) {
    struct sigaction action = {};
    ::sigaction(signal, nullptr, &action);
    if (action.sa_handler == SIG_IGN) continue;
    action = {};
    action.sa_handler = on_chat_signal;  // reading a line ends with EINTR
    ::sigaction(signal, &action, nullptr);
  }
}

int signal_status() { return last_signal == SIGTERM ? kExitTerminated : kExitInterrupted; }

// Lines of standard input.
class Lines {
 public:
  enum class Got { kLine, kEnd, kSignal, kError };
  Got next(std::string& line) {
    for (;;) {
      if (const std::size_t end = buffer_.find('\n'); end != std::string::npos) {
        line = buffer_.substr(0, end);
        buffer_.erase(0, end + 1);
        return Got::kLine;
      }
      if (interrupts != 0) return Got::kSignal;
      char bytes[4096];
      const ssize_t count = ::read(STDIN_FILENO, bytes, sizeof(bytes));
      if (count < 0 && errno == EINTR) continue;
      if (count < 0) return Got::kError;
      if (count == 0 && interrupts != 0) return Got::kSignal;
      if (count == 0 && buffer_.empty()) return Got::kEnd;
      if (count == 0) buffer_ += '\n';  // the last line has no end
      buffer_.append(bytes, static_cast<std::size_t>(count));
    }
  }

 private:
  std::string buffer_;
};

class Chat {
 public:
  Chat(const LlamaArguments& arguments, LlamaModel model, LlamaContext context,
       std::unique_ptr<llamacpp::ContextCache> cache)
      : arguments_(arguments),
        model_(std::move(model)),
        context_(std::move(context)),
        cache_(std::move(cache)) {
    if (!arguments.system.empty()) messages_.push_back({"system", arguments.system});
  }

  // One question and its answer, which is on stdout when this returns. A turn that was stopped before its
  // first token, or has no room in the context, did not happen.
  std::optional<Refusal> turn(std::string question) {
    const SteadyTime start = std::chrono::steady_clock::now();
    messages_.push_back({"user", std::move(question)});
    const auto prompt = model_.tokenize(messages_);
    if (!prompt) return prompt.error();
    if (prompt->size() >= context_.tokens()) {
      messages_.pop_back();
      remark(fmt::format(
          "[the conversation would have {} tokens, the context has {}: this was not asked. Begin again, "
          "or give a larger --ctx]",
          grouped_text(prompt->size()), grouped_text(context_.tokens())));
      return std::nullopt;
    }
    if (!cache_) return compute(*prompt, nullptr, start);
    std::string held;
    auto store = open_store(arguments_, arguments_.cache, kWaitForTurn, held,
                            told_remote_.empty() ? kWaitForRemote : kWaitForRemoteAgain);
    if (!store) return store.error();
    if (!*store) remark(fmt::format("[{}: this turn goes on without it]", held));
    if (const Status status = cache_->use(*store); !status.ok()) return refuse(status).value();
    auto refusal = compute(*prompt, store->get(), start);
    if (const Status status = cache_->use(nullptr); !status.ok() && !refusal)
      refusal = refuse(status).value();
    if (*store)
      if (const Status status = (*store)->close(); !status.ok())
        remark(fmt::format("[closing the cache: {}]", status.message));
    return refusal;
  }

 private:
  std::optional<Refusal> compute(const std::vector<llama_token>& prompt, llamacpp::Store* store,
                                 SteadyTime start) {
    const auto prefill = cache_ ? prefill_cached(*cache_, prompt) : prefill_plain(context_, prompt);
    if (!prefill) return prefill.error();
    if (prefill->cancelled) {
      messages_.pop_back();
      remark(store == nullptr
                 ? "[stopped before the first token]"
                 : "[stopped before the first token; what was computed by then is in the cache]");
      return std::nullopt;
    }
    AnswerOptions options{.tokens = arguments_.answer_tokens, .stop = &stop_answer, .stream = write_stdout};
    auto done = answer(model_, context_, prompt, options, start);
    if (!done) return done.error();
    if (!write_stdout("\n")) return Refusal{kExitFailed, "standard output cannot be written"};
    remark(fmt::format("[{}]", figures_text(figures_of(prefill->prefilled, *done, prompt.size()))));
    if (done->ended == "context") remark("[the context is full: the answer ends here]");
    if (store != nullptr) save(*store, prompt.size(), prefill->prefilled.restored.note, *done);
    messages_.push_back({"assistant", std::move(done->text)});
    return std::nullopt;
  }

  void save(llamacpp::Store& store, std::size_t prompt_tokens, const std::string& note, const Answer& done) {
    if (!note.empty()) remark(fmt::format("[{}]", note));
    const std::string lack_of_remote = remote_lack(store);
    if (!lack_of_remote.empty() && lack_of_remote != told_remote_)
      remark(fmt::format("[{}]", lack_of_remote));
    told_remote_ = lack_of_remote;
    if (!arguments_.exact) {
      const auto saved = cache_->save(0, done.held);
      const std::string in_the_way = saved ? saved->note : saved.status().message;
      if (!in_the_way.empty()) remark(fmt::format("[{}]", in_the_way));
    }
    if (told_lack_) return;
    const auto lack = lacking_room(store, *cache_, context_, arguments_,
                                   arguments_.exact ? prompt_tokens : done.held.size());
    told_lack_ = lack.has_value();
    if (lack) remark(fmt::format("[{}]", lack_text(*lack)));
  }

  const LlamaArguments& arguments_;
  LlamaModel model_;
  LlamaContext context_;
  std::unique_ptr<llamacpp::ContextCache> cache_;  // ends before the context; null: plain llama.cpp
  std::vector<ChatMessage> messages_;
  bool told_lack_ = false;
  std::string told_remote_;  // of the last turn
};

LlamaResult<Chat> start_chat(const LlamaArguments& arguments) {
  auto model = LlamaModel::load(arguments);
  if (!model) return tl::unexpected(model.error());
  const std::uint32_t trained = model->trained_tokens();
  const std::uint32_t tokens = trained == 0 ? kContextTokens : std::min(trained, kContextTokens);
  const ChatMessage hello{"user", "hello"};
  if (const auto usable = model->tokenize(std::span(&hello, 1)); !usable)
    return tl::unexpected(usable.error());
  auto context = make_context(*model, arguments, arguments.context_tokens != 0 ? 1 : tokens, &stop_answer);
  if (!context) return tl::unexpected(context.error());
  std::unique_ptr<llamacpp::ContextCache> cache;
  if (!arguments.without_cache) {
    auto attached = attach_cache(*model, *context, arguments,
                                 arguments.exact ? llamacpp::Mode::kExact : llamacpp::Mode::kFast);
    if (!attached) return tl::unexpected(attached.error());
    cache = *std::move(attached);
  }
  return Chat(arguments, *std::move(model), *std::move(context), std::move(cache));
}

int talk(Chat& chat) {
  const bool terminal = isatty(STDIN_FILENO) == 1 && isatty(STDERR_FILENO) == 1;
  Lines lines;
  for (std::string line;;) {
    if (terminal) {
      const ssize_t written = ::write(STDERR_FILENO, "> ", 2);
      static_cast<void>(written);
    }
    const Lines::Got got = lines.next(line);
    if (terminal && got != Lines::Got::kLine) static_cast<void>(std::fputc('\n', stderr));
    if (got == Lines::Got::kEnd) return kExitOk;
    if (got == Lines::Got::kSignal) return signal_status();
    if (got == Lines::Got::kError)
      return fail("llama", "standard input: " + std::generic_category().message(errno));
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    if (const auto refusal = chat.turn(std::move(line))) return fail("llama", *refusal);
    if (interrupts > 1) return signal_status();
    interrupts = 0;
    stop_answer = false;
  }
}

}  // namespace

int llama_chat(const LlamaArguments& arguments) {
  take_signals();
  auto chat = start_chat(arguments);
  if (!chat) return fail("llama", chat.error());
  const std::string how =
      arguments.without_cache
          ? "no cache"
          : fmt::format("{} mode, cache in {}", arguments.exact ? "exact" : "fast", arguments.cache);
  if (isatty(STDIN_FILENO) == 1)
    remark(fmt::format("[{}. Ctrl-C ends an answer, twice the program; Ctrl-D ends it, too]", how));
  return talk(*chat);
}

}  // namespace tiercel::apps
