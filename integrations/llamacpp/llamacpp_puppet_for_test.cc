#include "llamacpp_puppet_for_test.h"

#include <array>
#include <bit>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <utility>

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

namespace tiercel::llamacpp {
namespace {

constexpr const char* kPuppet = "--puppet";
constexpr std::size_t kArguments = 8;

std::vector<std::string> arguments_of(const std::string& model, Mode mode, const Shape& shape) {
  return {kPuppet,
          model,
          mode == Mode::kExact ? "exact" : "fast",
          std::to_string(shape.tokens),
          std::to_string(shape.sequences),
          shape.unified ? "unified" : "split",
          std::to_string(shape.micro_batch)};
}

std::string answer_line(const Prefilled& done, const Answer& answer) {
  std::string line =
      "answered " + std::to_string(done.restored.tokens) + " " + std::to_string(done.computed_tokens);
  for (const llama_token step : answer.steps) line += " " + std::to_string(step);
  std::array<char, 16> text{};
  for (const auto& row : answer.logits) {
    line += " |";
    for (const float logit : row) {
      std::snprintf(text.data(), text.size(), " %x", std::bit_cast<std::uint32_t>(logit));
      line += text.data();
    }
  }
  return line;
}

// A line's words, one after the other; empty behind the last one.
class Words {
 public:
  explicit Words(std::string_view line) : left_(line) {}
  std::string next() {
    left_.remove_prefix(std::min(left_.find_first_not_of(' '), left_.size()));
    const std::string_view word = left_.substr(0, left_.find(' '));
    left_.remove_prefix(word.size());
    return std::string(word);
  }
  std::uint64_t number() { return std::strtoull(next().c_str(), nullptr, 10); }

 private:
  std::string_view left_;
};

// What a puppet has, and does.
class Stage {
 public:
  explicit Stage(Engine engine) : engine_(std::move(engine)) {}
  std::string obey(const std::string& line) {
    Words words(line);
    const std::string what = words.next();
    if (what == "open") return open(words);
    if (what == "prefill" || what == "save_on") return prefill(words, what == "prefill");
    if (what == "close") return close();
    return "unknown " + line;
  }

 private:
  std::string open(Words& words) {
    StoreOptions options = store_options("");
    options.folder = words.next();
    options.wait_ns = words.number();
    auto opened = Store::open(options);
    if (!opened) return "refused " + opened.status().to_string();
    store_ = *opened;
    const Status used = engine_.cache->use(*opened);
    return used.ok() ? "opened" : "refused " + used.to_string();
  }
  std::string prefill(Words& words, bool with_answer) {
    const auto sequence = static_cast<llama_seq_id>(words.number());
    const std::uint64_t seed = words.number();
    const std::size_t count = words.number();
    const auto done = engine_.cache->prefill(sequence, text_of(engine_.model(), seed, count));
    if (!done) return "failed " + done.status().to_string();
    if (with_answer) return answer_line(*done, answer_of(engine_.context.get(), sequence, count));
    const Status flushed = store_ == nullptr ? Status{} : store_->flush();
    return flushed.ok() ? "stored " + std::to_string(count) : "failed " + flushed.to_string();
  }
  std::string close() {
    Status status = engine_.cache->use(nullptr);
    if (status.ok() && store_ != nullptr) status = store_->close();
    store_ = nullptr;
    return status.ok() ? "closed" : "failed " + status.to_string();
  }

  Engine engine_;
  std::shared_ptr<Store> store_;
};

// Of the parent's side only: what is open here is not for the child.
std::array<int, 2> make_pipe() {
  std::array<int, 2> ends{-1, -1};
  EXPECT_EQ(::pipe2(ends.data(), O_CLOEXEC), 0);
  return ends;
}

[[noreturn]] void become_puppet(const std::vector<std::string>& arguments, int in, int out) {
  std::vector<char*> argv;
  std::string self = "/proc/self/exe";
  argv.push_back(self.data());
  std::vector<std::string> copies = arguments;
  for (std::string& argument : copies) argv.push_back(argument.data());
  argv.push_back(nullptr);
  ::dup2(in, STDIN_FILENO);
  ::dup2(out, STDOUT_FILENO);
  ::execv(self.c_str(), argv.data());
  ::_exit(127);
}

}  // namespace

bool is_puppet(int argc, char** argv) { return argc > 1 && std::strcmp(argv[1], kPuppet) == 0; }

int puppet_main(int argc, char** argv) {
  if (static_cast<std::size_t>(argc) != kArguments) return 2;
  const std::vector<std::string> words(argv + 2, argv + argc);
  Shape shape;
  shape.tokens = static_cast<std::uint32_t>(std::stoul(words[2]));
  shape.sequences = static_cast<std::uint32_t>(std::stoul(words[3]));
  shape.unified = words[4] == "unified";
  shape.micro_batch = static_cast<std::uint32_t>(std::stoul(words[5]));
  Engine engine = attach(words[0], shape, words[1] == "exact" ? Mode::kExact : Mode::kFast);
  if (engine.cache == nullptr) return 3;
  Stage stage(std::move(engine));
  char* line = nullptr;
  std::size_t room = 0;
  ssize_t length = 0;
  while ((length = ::getline(&line, &room, stdin)) > 0) {
    std::printf("%s\n", stage.obey(std::string(line, static_cast<std::size_t>(length - 1))).c_str());
    std::fflush(stdout);
  }
  std::free(line);
  return 0;
}

Puppet::Puppet(const std::string& model, Mode mode, const Shape& shape) {
  const std::vector<std::string> arguments = arguments_of(model, mode, shape);
  const std::array<int, 2> in = make_pipe(), out = make_pipe();
  pid_ = ::fork();
  if (pid_ == 0) become_puppet(arguments, in[0], out[1]);
  EXPECT_GT(pid_, 0);
  ::close(in[0]);
  ::close(out[1]);
  to_ = ::fdopen(in[1], "w");
  from_ = ::fdopen(out[0], "r");
}

Puppet::~Puppet() {
  end();
  std::fclose(from_);
}

void Puppet::tell(const std::string& line) {
  std::fprintf(to_, "%s\n", line.c_str());
  std::fflush(to_);
}

std::string Puppet::hear() {
  char* line = nullptr;
  std::size_t room = 0;
  const ssize_t length = ::getline(&line, &room, from_);
  std::string heard = length > 0 ? std::string(line, static_cast<std::size_t>(length - 1)) : "";
  std::free(line);
  return heard;
}

void Puppet::kill_now() {
  if (pid_ > 0) ::kill(pid_, SIGKILL);
  end();
}

int Puppet::end() {
  if (to_ != nullptr) std::fclose(std::exchange(to_, nullptr));
  if (pid_ <= 0) return -1;
  const pid_t pid = std::exchange(pid_, -1);
  int status = 0;
  EXPECT_EQ(::waitpid(pid, &status, 0), pid);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

std::optional<PuppetAnswer> puppet_answer(const std::string& line) {
  Words words(line);
  if (words.next() != "answered") return {};
  PuppetAnswer out;
  out.restored = static_cast<std::uint32_t>(words.number());
  out.computed = static_cast<std::uint32_t>(words.number());
  for (std::string word = words.next(); !word.empty(); word = words.next()) {
    if (word == "|")
      out.answer.logits.emplace_back();
    else if (out.answer.logits.empty())
      out.answer.steps.push_back(static_cast<llama_token>(std::stol(word)));
    else
      out.answer.logits.back().push_back(
          std::bit_cast<float>(static_cast<std::uint32_t>(std::stoul(word, nullptr, 16))));
  }
  return out;
}

}  // namespace tiercel::llamacpp
