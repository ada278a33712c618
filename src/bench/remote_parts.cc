#include "bench/remote_parts.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <map>
#include <utility>

#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <nlohmann/json.hpp>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/check.h"
#include "base/sizes.h"
#include "os/mapping_calls.h"

namespace tiercel {
namespace {

using Json = nlohmann::json;

constexpr int kPatienceMs = 120'000;
constexpr std::size_t kRemovedAtOnce = 1024;

std::string_view word_of(RemoteVerb verb) {
  switch (verb) {
    case RemoteVerb::kExists:
      return "exists";
    case RemoteVerb::kGet:
      return "get";
    case RemoteVerb::kRemove:
      return "remove";
    default:
      return "put";
  }
}

// Where output of others goes: what matters they say in their first line.
class Nowhere final {
 public:
  Nowhere() : fd_(::open("/dev/null", O_WRONLY | O_CLOEXEC)) {}
  ~Nowhere() { ::close(fd_); }
  Nowhere(const Nowhere&) = delete;
  Nowhere& operator=(const Nowhere&) = delete;
  int fd() const { return fd_; }

 private:
  int fd_;
};

bool write_all(int fd, const void* data, std::size_t bytes) {
  const char* at = static_cast<const char*>(data);
  while (bytes != 0) {
    const ssize_t written = ::send(fd, at, bytes, MSG_NOSIGNAL);
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return false;
    at += written;
    bytes -= static_cast<std::size_t>(written);
  }
  return true;
}

bool read_all(int fd, void* data, std::size_t bytes) {
  char* at = static_cast<char*>(data);
  while (bytes != 0) {
    const ssize_t got = ::recv(fd, at, bytes, 0);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return false;
    at += got;
    bytes -= static_cast<std::size_t>(got);
  }
  return true;
}

tl::unexpected<Status> broken(std::string_view what) {
  return error(Code::kUnavailable, fmt::format("{}: {}", what, std::generic_category().message(errno)));
}

// The programs beside the connector of Mooncake.
Result<StorePlan> mooncake_plan(const std::string& url) { return plan_store({.url = url}); }

// ---- bare clients ----

class MooncakeBare final : public BareClient {
 public:
  explicit MooncakeBare(std::unique_ptr<ScriptProcess> script) : script_(std::move(script)) {}
  std::string name() const override { return "bare client"; }
  std::string pages() const override { return Json::parse(script_->first()).value("pages", ""); }
  Result<std::vector<double>> perform(const RemoteWork& work) override {
    const Json command = {
        {"do", word_of(work.verb)}, {"names", work.names}, {"bytes", work.length}, {"batch", work.batch}};
    TIERCEL_ASSIGN_OR_RETURN(const std::string line, script_->ask(command.dump()));
    const Json answer = Json::parse(line);
    if (answer.at("failed") != 0)
      return error(Code::kUnavailable,
                   fmt::format("the bare client: {} of {} objects: the library answers {}",
                               answer.at("failed").get<std::uint64_t>(), work.names.size(),
                               answer.at("code").get<std::int64_t>()));
    return answer.at("ns").get<std::vector<double>>();
  }
  Status remove(const std::vector<std::string>& names) override {
    const Json command = {{"do", "remove"}, {"names", names}, {"bytes", 0}, {"batch", kRemovedAtOnce}};
    const auto done = script_->ask(command.dump());
    return done ? Status{} : done.error();
  }

 private:
  std::unique_ptr<ScriptProcess> script_;
};

// A file for each object.
class FilesBare final : public BareClient {
 public:
  FilesBare(BenchFolder folder, Mapping memory) : folder_(std::move(folder)), memory_(std::move(memory)) {}
  std::string name() const override { return "plain files"; }
  std::string pages() const override { return std::string(page_kind_name(memory_.pages().kind)); }
  Result<std::vector<double>> perform(const RemoteWork& work) override {
    std::vector<double> times;
    for (std::size_t first = 0; first < work.names.size(); first += work.batch) {
      const double start = now_nanoseconds();
      for (std::size_t i = first; i < std::min(first + work.batch, work.names.size()); ++i)
        if (!one(work, work.names[i])) return error(Code::kUnavailable, "plain files: " + work.names[i]);
      times.push_back(now_nanoseconds() - start);
    }
    return times;
  }
  Status remove(const std::vector<std::string>& names) override {
    for (const std::string& name : names) ::unlink(folder_.file(name).c_str());
    return {};
  }

 private:
  bool one(const RemoteWork& work, const std::string& name) {
    const std::string path = folder_.file(name);
    if (work.verb == RemoteVerb::kExists) return ::access(path.c_str(), F_OK) == 0;
    if (at_ + work.length > memory_.size_bytes()) at_ = 0;
    std::byte* place = memory_.bytes().data() + std::exchange(at_, at_ + work.length);
    const bool put = work.verb == RemoteVerb::kPut;
    const int fd = ::open(path.c_str(), (put ? O_WRONLY | O_CREAT | O_TRUNC : O_RDONLY) | O_CLOEXEC, 0600);
    const auto wanted = static_cast<ssize_t>(work.length);
    const bool whole = fd >= 0 && (put ? ::pwrite(fd, place, work.length, 0) == wanted
                                       : ::pread(fd, place, work.length, 0) == wanted);
    if (fd >= 0) ::close(fd);
    return whole;
  }
  BenchFolder folder_;
  Mapping memory_;
  std::uint64_t at_ = 0;
};

}  // namespace

// ---- a script ----

Result<std::unique_ptr<ScriptProcess>> ScriptProcess::start(std::vector<std::string> arguments) {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) return broken("a socket");
  std::unique_ptr<ScriptProcess> script(new ScriptProcess);
  script->socket_ = ends[0];
  const Nowhere nowhere;
  arguments.emplace_back("3");
  const std::string program = arguments.size() > 1 ? arguments[1] : arguments[0];
  ChildOptions options{.argv = std::move(arguments),
                       .environment = {},
                       .descriptors = {ends[1]},
                       .output = nowhere.fd(),
                       .input = {}};
  auto child = script->processes_.start(options);
  ::close(ends[1]);
  if (!child) return tl::unexpected(std::move(child.error()));
  script->child_ = std::move(*child);
  TIERCEL_ASSIGN_OR_RETURN(script->first_, script->read_line());
  if (const Json told = Json::parse(script->first_); told.contains("error"))
    return error(Code::kUnavailable, told.value("error", program + " does not say why"));
  return script;
}

ScriptProcess::~ScriptProcess() {
  if (socket_ >= 0) ::close(socket_);
  if (!child_) return;
  child_->close_input();
  child_->wait(std::chrono::seconds(5));
}

// One that can be parsed.
Result<std::string> ScriptProcess::read_line() {
  for (;;) {
    if (const std::size_t end = rest_.find('\n'); end != std::string::npos) {
      std::string line = rest_.substr(0, end);
      rest_.erase(0, end + 1);
      if (!Json::accept(line)) return error(Code::kUnavailable, "a script of ours says what is no JSON");
      return line;
    }
    pollfd asked{socket_, POLLIN, 0};
    if (::poll(&asked, 1, kPatienceMs) <= 0) return error(Code::kUnavailable, "a script of ours hangs");
    char piece[65536];
    const ssize_t got = ::recv(socket_, piece, sizeof piece, 0);
    if (got <= 0) {
      child_->wait(std::chrono::seconds(1));
      return error(Code::kUnavailable,
                   fmt::format("a script of ours {}", child_->exited() ? child_->end() : "went silent"));
    }
    rest_.append(piece, static_cast<std::size_t>(got));
  }
}

Result<std::string> ScriptProcess::ask(std::string command) {
  command += '\n';
  if (!write_all(socket_, command.data(), command.size())) return broken("a script of ours");
  return read_line();
}

// ---- servers and clients ----

Result<MooncakeCluster> start_mooncake(std::uint64_t lent_bytes) {
  TIERCEL_ASSIGN_OR_RETURN(const StorePlan plan, mooncake_plan("mooncake://127.0.0.1:1"));
  MooncakeCluster cluster;
  TIERCEL_ASSIGN_OR_RETURN(cluster.script, ScriptProcess::start({plan.argv[0], plan.argv[1] + "/cluster.py",
                                                                 fmt::format("{}", lent_bytes)}));
  const Json told = Json::parse(cluster.script->first());
  cluster.url = "mooncake://" + told.at("master").get<std::string>();
  cluster.peer = told.at("peer").get<std::string>();
  cluster.master_pid = told.at("pids").at("master").get<std::uint32_t>();
  cluster.peer_pid = told.at("pids").at("peer").get<std::uint32_t>();
  return cluster;
}

Result<std::unique_ptr<BareClient>> open_bare(const std::string& url, std::uint64_t memory_bytes,
                                              BenchRun& run) {
  if (scheme_of(url) == "posix") {
    TIERCEL_ASSIGN_OR_RETURN(BenchFolder folder, BenchFolder::create(run.folder()));
    TIERCEL_ASSIGN_OR_RETURN(Mapping memory, Mapping::open({.bytes = memory_bytes}));
    return std::make_unique<FilesBare>(std::move(folder), std::move(memory));
  }
  if (scheme_of(url) != "mooncake") return nullptr;
  TIERCEL_ASSIGN_OR_RETURN(const StorePlan plan, mooncake_plan(url));
  TIERCEL_ASSIGN_OR_RETURN(auto script, ScriptProcess::start({plan.argv[0], plan.argv[1] + "/bare.py",
                                                              plan.config, fmt::format("{}", memory_bytes)}));
  return std::make_unique<MooncakeBare>(std::move(script));
}

// ---- the raw socket ----

Result<std::unique_ptr<RawSocket>> RawSocket::open(std::uint64_t memory_bytes) {
  std::unique_ptr<RawSocket> raw(new RawSocket);
  TIERCEL_ASSIGN_OR_RETURN(raw->here_, Mapping::open({.bytes = memory_bytes}));
  TIERCEL_ASSIGN_OR_RETURN(raw->there_, Mapping::open({.bytes = memory_bytes}));
  const int listening = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  auto* name = reinterpret_cast<sockaddr*>(&address);
  bool good = listening >= 0 && ::bind(listening, name, size) == 0 && ::listen(listening, 1) == 0 &&
              ::getsockname(listening, name, &size) == 0;
  raw->client_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  good = good && raw->client_ >= 0 && ::connect(raw->client_, name, size) == 0;
  if (good) raw->server_ = ::accept4(listening, nullptr, nullptr, SOCK_CLOEXEC);
  if (listening >= 0) ::close(listening);
  if (!good || raw->server_ < 0) return broken("a connection over 127.0.0.1");
  const int on = 1;
  for (const int end : {raw->client_, raw->server_})
    ::setsockopt(end, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  raw->thread_ = std::thread([own = raw.get()] { own->serve(); });
  return raw;
}

RawSocket::~RawSocket() {
  if (client_ >= 0) ::shutdown(client_, SHUT_RDWR);
  if (thread_.joinable()) thread_.join();
  for (const int end : {client_, server_})
    if (end >= 0) ::close(end);
}

void RawSocket::serve() {
  std::uint64_t request[3];
  while (read_all(server_, request, sizeof request)) {
    std::byte* place = there_.bytes().data() + request[2];
    if (request[0] == 0 ? !write_all(server_, place, request[1])
                        : !read_all(server_, place, request[1]) || !write_all(server_, request, 1))
      return;
  }
}

bool RawSocket::move(std::uint64_t direction, std::uint64_t bytes) {
  if (at_ + bytes > here_.size_bytes()) at_ = 0;
  const std::uint64_t request[3] = {direction, bytes, at_};
  std::byte* place = here_.bytes().data() + std::exchange(at_, at_ + bytes);
  if (!write_all(client_, request, sizeof request)) return false;
  if (direction == 0) return read_all(client_, place, bytes);
  char answer = 0;
  return write_all(client_, place, bytes) && read_all(client_, &answer, 1);
}

// ---- a store ----

Result<std::unique_ptr<BenchStore>> BenchStore::open(const std::string& url, BenchRun& run,
                                                     std::uint64_t exchange_bytes, const ArenaGrant& arena) {
  run.progress("opening " + printable_address(url));
  std::unique_ptr<BenchStore> made(new BenchStore);
  const Nowhere nowhere;
  StoreAddress address{.url = url};
  address.exchange_bytes = exchange_bytes;
  address.arena = arena;
  address.output = nowhere.fd();
  TIERCEL_ASSIGN_OR_RETURN(made->store_, open_store(address, made->clock_, made->processes_));
  if (Status status = made->await_ready(); !status.ok()) return tl::unexpected(std::move(status));
  std::memset(made->store_->exchange(), 0x5A, made->store_->exchange_bytes());
  made->pages_ = page_kind_at(made->store_->exchange(), made->store_->exchange_bytes());
  return made;
}

Status BenchStore::await_ready() {
  const Time until = later(clock_.now(), std::chrono::seconds(15));
  RemoteHealth health = store_->health();
  const std::uint64_t kills = health.kills;
  // The first answer, good or not, is enough: it would be the same again.
  while (!health.ready && clock_.now() < until && health.kills == kills) {
    store_->wait(std::chrono::milliseconds(50));
    store_->drain();
    health = store_->health();
  }
  return health.ready ? Status{} : Status{Code::kUnavailable, health.why_not};
}

Result<std::vector<RemoteResult>> BenchStore::call(RemoteBatch batch) {
  TIERCEL_ASSIGN_OR_RETURN(const RemoteBatchId id, store_->submit(std::move(batch)));
  for (;;) {
    for (RemoteEvent& event : store_->drain())
      if (event.kind == RemoteEvent::Kind::kDone && event.batch == id) return std::move(event.results);
    store_->wait(std::chrono::seconds(1));
  }
}

RemoteBatch BenchStore::batch_of(const RemoteWork& work, std::size_t first) {
  RemoteBatch batch{work.verb, {}, later(clock_.now(), std::chrono::seconds(30))};
  const std::size_t end = std::min(first + work.batch, work.names.size());
  batch.items.reserve(end - first);
  for (std::size_t i = first; i < end; ++i) {
    RemoteItem item{work.names[i], {}};
    if (work.verb != RemoteVerb::kExists) {
      if (at_ + work.length > store_->exchange_bytes()) at_ = 0;
      const std::uint64_t piece = work.length / work.pieces;
      for (std::size_t each = 0; each < work.pieces; ++each)
        item.pieces.push_back({0, std::exchange(at_, at_ + piece), piece});
    }
    batch.items.push_back(std::move(item));
  }
  return batch;
}

Status BenchStore::perform(const RemoteWork& work, Samples& samples) {
  std::map<RemoteBatchId, double> begun;
  Status status;
  for (std::size_t next = 0; next < work.names.size() || !begun.empty();) {
    for (; next < work.names.size() && begun.size() < work.at_once; next += work.batch) {
      const double start = now_nanoseconds();
      const auto id = store_->submit(batch_of(work, next));
      if (!id) return id.error();
      begun.emplace(*id, start);
    }
    for (const RemoteEvent& event : store_->drain()) {
      const auto batch = begun.find(event.batch);
      if (event.kind != RemoteEvent::Kind::kDone || batch == begun.end()) continue;
      samples.add(now_nanoseconds() - batch->second);
      begun.erase(batch);
      for (const RemoteResult& result : event.results)
        if (result.outcome != RemoteOutcome::kOk)
          status = {Code::kUnavailable,
                    fmt::format("{} of an object of {}: {}", word_of(work.verb), format_size(work.length),
                                remote_outcome_name(result.outcome))};
    }
    if (begun.size() == work.at_once || (next >= work.names.size() && !begun.empty()))
      store_->wait(std::chrono::seconds(1));
  }
  return status;
}

Status BenchStore::remove(const std::vector<std::string>& names) {
  for (std::size_t first = 0; first < names.size(); first += kRemovedAtOnce) {
    RemoteBatch batch{RemoteVerb::kRemove, {}, later(clock_.now(), std::chrono::seconds(30))};
    for (std::size_t i = first; i < std::min(first + kRemovedAtOnce, names.size()); ++i)
      batch.items.push_back({names[i], {}});
    if (const auto done = call(std::move(batch)); !done) return done.error();
  }
  return {};
}

// ---- names and pages ----

std::vector<std::string> numbered(const std::string& prefix, std::size_t count) {
  std::vector<std::string> names;
  names.reserve(count);
  for (std::size_t i = 0; i < count; ++i) names.push_back(fmt::format("{}.{}", prefix, i));
  return names;
}

std::string page_kind_at(const std::byte* data, std::uint64_t bytes) {
  const auto huge = LinuxMappingCalls().huge_bytes(data, bytes);
  if (!huge) return "";
  return *huge == 0 ? "4 KiB" : *huge >= bytes ? "2 MiB" : "mixed";
}

std::string scheme_of(const std::string& url) { return url.substr(0, url.find(':')); }

}  // namespace tiercel
