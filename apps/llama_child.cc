#include "llama_child.h"

#include <array>
#include <cerrno>
#include <cstdio>
#include <system_error>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include "os/fd.h"

extern char** environ;

namespace tiercel::apps {
namespace {

constexpr const char* kSelf = "/proc/self/exe";

class Pipe {
 public:
  Pipe() {
    int ends[2];
    if (::pipe2(ends, O_CLOEXEC) != 0) return;
    read_end_ = Fd(ends[0]);
    write_end_ = Fd(ends[1]);
  }
  int read_end() const { return read_end_.get(); }
  int write_end() const { return write_end_.get(); }
  void close_write_end() { write_end_.reset(); }

 private:
  Fd read_end_, write_end_;
};

struct Ended {
  int pid = 0, status = 0;
  std::string out, err;
};

// Reads both until they end. SIGINT is passed on once, and the child ends in its own way.
void read_both(int pid, const Pipe& out, const Pipe& err, const std::atomic<bool>& stop, Ended& ended) {
  std::array<pollfd, 2> files{pollfd{out.read_end(), POLLIN, 0}, pollfd{err.read_end(), POLLIN, 0}};
  const std::array<std::string*, 2> texts{&ended.out, &ended.err};
  bool told = false;
  while (files[0].fd >= 0 || files[1].fd >= 0) {
    if (stop && !std::exchange(told, true)) ::kill(pid, SIGINT);
    constexpr int kLookAgainMs = 100;
    if (::poll(files.data(), files.size(), kLookAgainMs) <= 0) continue;
    for (std::size_t i = 0; i < files.size(); ++i) {
      if (files[i].fd < 0 || files[i].revents == 0) continue;
      char bytes[4096];
      const ssize_t count = ::read(files[i].fd, bytes, sizeof(bytes));
      if (count > 0) texts[i]->append(bytes, static_cast<std::size_t>(count));
      if (count == 0 || (count < 0 && errno != EINTR)) files[i].fd = -1;
    }
  }
}

LlamaResult<Ended> run_self(std::vector<std::string> arguments, const std::atomic<bool>& stop) {
  Pipe out, err;
  if (out.read_end() < 0 || err.read_end() < 0)
    return refuse("no pipe for a child process; too many open files?");
  arguments.insert(arguments.begin(), "tiercel");
  std::vector<char*> words;
  words.reserve(arguments.size() + 1);
  for (std::string& argument : arguments) words.push_back(argument.data());
  words.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&actions, out.write_end(), STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&actions, err.write_end(), STDERR_FILENO);
  Ended ended;
  const int problem = ::posix_spawn(&ended.pid, kSelf, &actions, nullptr, words.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  if (problem != 0)
    return refuse(fmt::format("{} cannot be started: {}", kSelf, std::generic_category().message(problem)));
  out.close_write_end();
  err.close_write_end();
  read_both(ended.pid, out, err, stop, ended);
  while (::waitpid(ended.pid, &ended.status, 0) < 0 && errno == EINTR) {
  }
  return ended;
}

std::string last_line(std::string text) {
  while (!text.empty() && text.back() == '\n') text.pop_back();
  const std::size_t at = text.rfind('\n');
  return at == std::string::npos ? text : text.substr(at + 1);
}

// What the child has to know, as options.
std::vector<std::string> options_of(const LlamaArguments& arguments) {
  std::vector<std::string> words = {"llama", "ask", "--json", "-m", arguments.model};
  const auto add = [&](const char* option, const std::string& value) {
    words.emplace_back(option);
    words.push_back(value);
  };
  if (arguments.without_cache)
    words.emplace_back("--no-cache");
  else
    add("--cache", arguments.cache);
  if (arguments.cache_bytes != 0) add("--cache-bytes", fmt::format("{}", arguments.cache_bytes));
  if (arguments.host_bytes != 0) add("--host-bytes", fmt::format("{}", arguments.host_bytes));
  for (const LoraArgument& lora : arguments.loras) add("--lora", fmt::format("{}:{}", lora.file, lora.scale));
  add("--page-tokens", fmt::format("{}", arguments.page_tokens));
  add("--snapshots", fmt::format("{}", arguments.snapshots));
  if (!arguments.tenant.empty()) add("--tenant", arguments.tenant);
  if (!arguments.remote.empty() && !arguments.without_cache) add("--remote", arguments.remote);
  add("-t", fmt::format("{}", arguments.threads));
  if (arguments.context_tokens != 0) add("-c", fmt::format("{}", arguments.context_tokens));
  add("--batch", fmt::format("{}", arguments.batch));
  add("--ubatch", fmt::format("{}", arguments.micro_batch));
  add("--swa-full", arguments.full_windows ? "on" : "off");
  add("--flash-attn", arguments.flash_attention);
  add("--type-k", arguments.type_k);
  add("--type-v", arguments.type_v);
  add("-n", fmt::format("{}", arguments.answer_tokens));
  return words;
}

ChildAnswer answer_of(int pid, const nlohmann::json& json) {
  ChildAnswer answer;
  answer.pid = pid;
  answer.figures = figures_from(json);
  answer.load_ms = json.at("load_ms");
  answer.open_ms = json.at("open_ms");
  answer.text = json.at("text");
  answer.logits_sha256 = json.at("logits_sha256");
  answer.notes = json.at("notes").get<std::vector<std::string>>();
  return answer;
}

}  // namespace

LlamaResult<ChildAnswer> ask_in_child(const LlamaArguments& arguments, const std::vector<std::string>& more,
                                      const std::atomic<bool>& stop) {
  std::vector<std::string> words = options_of(arguments);
  words.insert(words.end(), more.begin(), more.end());
  const auto ended = run_self(std::move(words), stop);
  if (!ended) return tl::unexpected(ended.error());
  if (stop) return refuse("interrupted, so there is no result", kExitInterrupted);
  if (!WIFEXITED(ended->status) || WEXITSTATUS(ended->status) != 0) {
    const std::string how = WIFEXITED(ended->status) ? fmt::format("status {}", WEXITSTATUS(ended->status))
                                                     : fmt::format("signal {}", WTERMSIG(ended->status));
    return refuse(
        fmt::format("a child process ({}) ended with {}: {}", ended->pid, how, last_line(ended->err)));
  }
  const auto json = nlohmann::json::parse(ended->out, nullptr, false);
  if (json.is_discarded())
    return refuse(fmt::format("a child process ({}) did not answer in JSON", ended->pid));
  return answer_of(ended->pid, json);
}

void show_step(const LlamaArguments& arguments, std::string_view step) {
  if (arguments.log != Logged::kNothing || isatty(STDERR_FILENO) != 1) return;
  const std::string text = fmt::format("\r\033[K{}", step);
  std::fwrite(text.data(), 1, text.size(), stderr);
}

}  // namespace tiercel::apps
