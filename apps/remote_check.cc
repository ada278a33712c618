#include "remote_check.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <sys/mman.h>
#include <sys/random.h>
#include <unistd.h>

#include "base/sizes.h"
#include "model/json_text.h"
#include "os/child_process.h"
#include "os/clock.h"
#include "os/fd.h"
#include "remote/connector_process.h"
#include "remote/open_store.h"

namespace tiercel::apps {
namespace {

constexpr Duration kReadyWithin = std::chrono::seconds(15);
constexpr Duration kBatchWithin = std::chrono::seconds(5);
constexpr Duration kLook = std::chrono::milliseconds(20);
constexpr std::uint64_t kExchangeBytes = 1 << 20;
constexpr std::uint64_t kObjectBytes = 64 << 10;
constexpr std::uint64_t kReadAt = 128 << 10;  // in the exchange

// ---- what to do ----

struct Remedy {
  std::string_view part;  // of what a connector said
  std::string_view text;
};
constexpr Remedy kRemedies[] = {
    {"library is missing",
     "run tools/connectors.sh: the environment that it makes is taken by itself; or set "
     "TIERCEL_CONNECTOR_PYTHON to a "
     "Python that has the library"},
    {"no master answers",
     "start one (mooncake_master --rpc_port=PORT) and let it listen where this machine reaches it, or "
     "correct the "
     "address"},
    {"a master that answers",
     "give the port of the master's --rpc_port (not that of its metrics), of a master of the version that is "
     "installed "
     "here"},
    {"no metadata server answers",
     "start it (mooncake_http_metadata_server --port PORT), or correct metadata_server; left out, peers ask "
     "each "
     "other"},
    {"mooncake_client", "start a mooncake_client on this machine, or leave client_server_address out"},
    {"no server at", "start it (valkey-server --port PORT), or correct the address"},
    {"refuses:",
     "correct user, password and database in the address (valkey://USER:PASSWORD@HOST:PORT/DATABASE)"},
    {"certificate", "name the authority (?tls_ca_file=FILE), or the server by the name in its certificate"},
    {"option", "correct what stands behind the ?; docs/guide/connectors.md lists the options"},
    {"no hello within",
     "what listens at that address does not answer as this store does: look at host and port, and at what "
     "the connector "
     "wrote"},
};
constexpr std::string_view kAnyRemedy = "docs/guide/connectors.md says what each connector needs";

std::string remedy_for(std::string_view said) {
  for (const Remedy& remedy : kRemedies)
    if (said.find(remedy.part) != std::string_view::npos) return std::string(remedy.text);
  return std::string(kAnyRemedy);
}

bool is_scheme(std::string_view url, std::string_view scheme) { return url.starts_with(scheme); }

std::string room_remedy(std::string_view url) {
  if (is_scheme(url, "mooncake"))
    return "somebody must lend memory: add ?global_segment_size=4GiB to the address, or run a "
           "mooncake_client "
           "--global_segment_size=4GB on some machine";
  if (is_scheme(url, "valkey") || is_scheme(url, "redis"))
    return "raise maxmemory, or let it evict (maxmemory-policy allkeys-lru)";
  return "make room there";
}

std::string failure_remedy(std::string_view url) {
  if (is_scheme(url, "mooncake"))
    return "a machine that lends memory cannot be reached from here: its local_hostname, its data ports "
           "(15000 to "
           "17000), or a metadata server that was restarted and has forgotten it (restart that peer, too)";
  if (is_scheme(url, "valkey") || is_scheme(url, "redis"))
    return "the user needs +get +set +strlen +unlink ~tiercel:*";
  return std::string(kAnyRemedy);
}

// ---- what the connector writes ----

// Its standard error, kept in memory, so that its last words can be told.
class Output {
 public:
  Output() : file_(::memfd_create("tiercel-doctor", MFD_CLOEXEC)) {}
  int file() const { return file_.get(); }
  std::string last_line() const {
    constexpr off_t kMost = 4096;
    const off_t end = ::lseek(file(), 0, SEEK_END);
    std::string text(static_cast<std::size_t>(std::clamp<off_t>(end, 0, kMost)), '\0');
    const ssize_t got = ::pread(file(), text.data(), text.size(), std::max<off_t>(end - kMost, 0));
    text.resize(static_cast<std::size_t>(std::max<ssize_t>(got, 0)));
    while (!text.empty() && text.back() == '\n') text.pop_back();
    const std::size_t at = text.rfind('\n');
    return at == std::string::npos ? text : text.substr(at + 1);
  }

 private:
  Fd file_;
};

// ---- the trial ----

struct Trial {
  const std::string& url;
  const SteadyClock clock;
  Check check{.name = "remote"};
  RemoteStore* store = nullptr;

  std::uint64_t us_since(Time begun) const {
    return static_cast<std::uint64_t>(
        std::chrono::duration_cast<std::chrono::microseconds>(clock.now() - begun).count());
  }
  void missing(std::string text, std::string remedy) {
    check.state = CheckState::kMissing;
    check.text = fmt::format("{}: {}", printable_address(url), text);
    check.remedy = std::move(remedy);
  }
};

// Without what the address says already, and without when it is tried again: it is not.
std::string essence(std::string why) {
  for (const std::string_view prefix : {"connector '", "remote \""}) {
    const std::string end = fmt::format("{}: ", prefix.back());
    const std::size_t at = why.find(end, prefix.size());
    if (why.starts_with(prefix) && at != std::string::npos) why.erase(0, at + end.size());
  }
  return why.substr(0, why.find("; started again in "));
}

// Until its first answer. Says why not, once it has failed to start once.
std::optional<std::string> wait_ready(Trial& trial) {
  const Time until = later(trial.clock.now(), kReadyWithin);
  RemoteHealth health = trial.store->health();
  while (!health.ready && trial.clock.now() < until) {
    const bool ended = health.pid == 0 || health.starts > 1;
    if (ended) break;
    trial.store->wait(kLook);
    static_cast<void>(trial.store->drain());
    health = trial.store->health();
  }
  if (health.ready) return std::nullopt;
  return essence(health.why_not);
}

RemoteResult one(Trial& trial, RemoteVerb verb, const std::string& name, std::uint64_t offset) {
  RemoteBatch batch;
  batch.verb = verb;
  batch.deadline = later(trial.clock.now(), kBatchWithin);
  const bool moves = verb == RemoteVerb::kPut || verb == RemoteVerb::kGet;
  batch.items.push_back({name, {}});
  if (moves) batch.items[0].pieces.push_back({0, offset, kObjectBytes});
  const Time until = later(batch.deadline, kBatchWithin);
  const auto id = trial.store->submit(std::move(batch));
  while (id && trial.clock.now() < until) {
    for (const RemoteEvent& event : trial.store->drain())
      if (event.kind == RemoteEvent::Kind::kDone && event.batch == *id && !event.results.empty())
        return event.results[0];
    trial.store->wait(kLook);
  }
  return {RemoteOutcome::kDown, 0};
}

// What an outcome other than the one that was wanted means.
void explain(Trial& trial, std::string_view did, RemoteOutcome outcome) {
  switch (outcome) {
    case RemoteOutcome::kNoRoom:
    case RemoteOutcome::kTooLarge:
      return trial.missing(fmt::format("it has no room for an object of {}", format_size(kObjectBytes)),
                           room_remedy(trial.url));
    case RemoteOutcome::kLate:
      return trial.missing(fmt::format("{}: no answer within 5 s", did),
                           "the server, or the machine that lends memory, hangs or is out of reach");
    case RemoteOutcome::kDown:
      return trial.missing(fmt::format("{}: the store is not reachable any more", did),
                           "look at its server: it answered a moment ago");
    case RemoteOutcome::kAbsent:
    case RemoteOutcome::kWrongSize:
      return trial.missing(fmt::format("{}: what was put a moment ago is not there", did),
                           "it forgets too soon to be of use: look at its limit of memory");
    default:
      return trial.missing(fmt::format("{}: {}", did, remote_outcome_name(outcome)),
                           failure_remedy(trial.url));
  }
}

std::string probe_name() {
  std::uint64_t random = 0;
  if (::getrandom(&random, sizeof random, 0) != sizeof random)
    random = static_cast<std::uint64_t>(::getpid());
  return fmt::format("tiercel.doctor.{:016x}", random);
}

std::string ms_text(std::uint64_t us) { return fmt::format("{:.1f} ms", static_cast<double>(us) / 1000); }

// A number of the store's own, by whichever of these names it has; 0 is a limit that there is not.
CheckValue store_number(const nlohmann::json& said, std::initializer_list<const char*> names) {
  const auto store = said.find("store");
  if (store == said.end() || !store->is_object()) return {};
  for (const char* name : names)
    if (const auto at = store->find(name); at != store->end() && at->is_number_unsigned())
      return at->get<std::uint64_t>();
  return {};
}

// What a connector says of its store's room, where it knows. Of a folder the file system says it.
void tell_room(Trial& trial) {
  auto* const connector = dynamic_cast<ConnectorProcess*>(trial.store);
  if (connector == nullptr) return;
  connector->ask_stats();
  const Time until = later(trial.clock.now(), kBatchWithin);
  while (connector->stats().empty() && connector->health().ready && trial.clock.now() < until) {
    connector->wait(kLook);
    static_cast<void>(connector->drain());
  }
  const auto said = parse_json(connector->stats());
  const nlohmann::json numbers = said && said->is_object() ? *said : nlohmann::json::object();
  const CheckValue used = store_number(numbers, {"bytes", "used_bytes"});
  CheckValue capacity = store_number(numbers, {"capacity_bytes", "maxmemory"});
  if (capacity == CheckValue(std::uint64_t{0})) capacity = {};
  trial.check.tell("used_bytes", used);
  trial.check.tell("capacity_bytes", capacity);
  if (capacity == CheckValue()) return;
  const std::string most = format_size(std::get<std::uint64_t>(capacity));
  trial.check.text += used == CheckValue()
                          ? fmt::format("; it holds {} at most", most)
                          : fmt::format("; {} of {} used", format_size(std::get<std::uint64_t>(used)), most);
}

// Put, read back, removed.
void try_object(Trial& trial, std::uint64_t ready_us) {
  const std::string name = probe_name();
  std::byte* const bytes = trial.store->exchange();
  for (std::uint64_t i = 0; i < kObjectBytes; ++i) bytes[i] = static_cast<std::byte>(i * 7 + i / 251);
  std::memset(bytes + kReadAt, 0, kObjectBytes);
  Time begun = trial.clock.now();
  const RemoteResult put = one(trial, RemoteVerb::kPut, name, 0);
  const std::uint64_t put_us = trial.us_since(begun);
  if (put.outcome != RemoteOutcome::kOk) {
    // It may be there all the same: a put that is late lands, one of several peers has failed.
    static_cast<void>(one(trial, RemoteVerb::kRemove, name, 0));
    return explain(trial, "storing an object", put.outcome);
  }
  begun = trial.clock.now();
  const RemoteResult got = one(trial, RemoteVerb::kGet, name, kReadAt);
  const std::uint64_t get_us = trial.us_since(begun);
  const RemoteResult removed = one(trial, RemoteVerb::kRemove, name, 0);
  if (got.outcome != RemoteOutcome::kOk) return explain(trial, "reading it back", got.outcome);
  if (std::memcmp(bytes, bytes + kReadAt, kObjectBytes) != 0)
    return trial.missing("what was read is not what was written",
                         "do not use this store: something between here and there changes bytes");
  if (removed.outcome != RemoteOutcome::kOk) return explain(trial, "removing it", removed.outcome);
  trial.check.text =
      fmt::format("{}: ready after {}; an object of {} was stored in {}, read back in {}, removed",
                  printable_address(trial.url), ms_text(ready_us), format_size(kObjectBytes), ms_text(put_us),
                  ms_text(get_us));
  trial.check.tell("put_us", put_us);
  trial.check.tell("get_us", get_us);
  tell_room(trial);
}

}  // namespace

tl::expected<Check, Refusal> check_remote(const std::string& url) {
  const Output output;
  Trial trial{.url = url};
  trial.check.tell("address", printable_address(url));
  StoreAddress address;
  address.url = url;
  address.exchange_bytes = kExchangeBytes;
  address.output = output.file();
  LinuxChildProcesses children;
  const Time begun = trial.clock.now();
  auto opened = open_store(address, trial.clock, children);
  if (!opened) {
    const Status& why = opened.error();
    if (why.code == Code::kInvalidArgument) return tl::unexpected(Refusal{kExitUsage, why.message});
    trial.missing(essence(why.message),
                  why.code == Code::kNotFound
                      ? "set TIERCEL_CONNECTORS to the folder of the connectors"
                      : "give a folder that this user may write to, on a file system with room");
    return std::move(trial.check);
  }
  trial.store = opened->get();
  if (const auto why_not = wait_ready(trial)) {
    const bool started = trial.store->health().starts != 0;
    const std::string last = output.last_line();
    const bool silent =
        why_not->find("exited") != std::string::npos || why_not->find("no hello") != std::string::npos;
    trial.missing(silent && !last.empty() ? fmt::format("{}; it wrote: {}", *why_not, last) : *why_not,
                  started ? remedy_for(*why_not)
                  : is_scheme(url, "program:")
                      ? "give the path of a program that this user may run"
                      : "install Python 3.11 or later, or set TIERCEL_CONNECTOR_PYTHON to one");
  } else {
    const std::uint64_t ready_us = trial.us_since(begun);
    trial.check.tell("ready_us", ready_us);
    try_object(trial, ready_us);
  }
  trial.store->close(std::chrono::seconds(2));
  trial.store = nullptr;
  return std::move(trial.check);
}

}  // namespace tiercel::apps
