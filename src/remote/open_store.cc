#include "remote/open_store.h"

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <optional>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <unistd.h>

#include "remote/connector_process.h"
#include "remote/posix_store.h"

namespace tiercel {
namespace {

using Json = nlohmann::json;

constexpr std::string_view kWanted =
    "posix:FOLDER, mooncake://HOST:PORT, valkey://HOST:PORT, redis://HOST:PORT, memory: or program:PROGRAM";

struct Scheme {
  std::string_view name, connector;
};
constexpr Scheme kSchemes[] = {{"mooncake", "mooncake"}, {"valkey", "valkey"}, {"valkeys", "valkey"},
                               {"redis", "valkey"},      {"rediss", "valkey"}, {"memory", "memory"}};

class Surroundings final : public StoreSurroundings {
 public:
  bool exists(const std::string& path) const override { return ::access(path.c_str(), F_OK) == 0; }
  std::string environment(const std::string& name) const override {
    const char* value = std::getenv(name.c_str());  // NOLINT(concurrency-mt-unsafe): read at opening only
    return value == nullptr ? "" : value;
  }
  std::string program_folder() const override {
    char path[4096];
    const auto length = ::readlink("/proc/self/exe", path, sizeof path);
    if (length <= 0 || static_cast<std::size_t>(length) >= sizeof path) return "";
    const std::string program(path, static_cast<std::size_t>(length));
    return program.substr(0, program.rfind('/'));
  }
};

std::optional<std::string> decoded(std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%') {
      out.push_back(text[i]);
      continue;
    }
    const bool hex = i + 2 < text.size() && std::isxdigit(static_cast<unsigned char>(text[i + 1])) != 0 &&
                     std::isxdigit(static_cast<unsigned char>(text[i + 2])) != 0;
    if (!hex) return std::nullopt;
    out.push_back(static_cast<char>(std::stoi(std::string(text.substr(i + 1, 2)), nullptr, 16)));
    i += 2;
  }
  return out;
}

// Numbers and truth values as such, everything else as text.
Json value_of(const std::string& text) {
  if (text == "true" || text == "false") return text == "true";
  const bool digits =
      !text.empty() && text.size() < 18 && text.find_first_not_of("0123456789") == std::string::npos;
  return digits ? Json(std::stoull(text)) : Json(text);
}

tl::unexpected<Status> wrong(std::string_view url, std::string_view what) {
  return error(Code::kInvalidArgument, fmt::format("remote \"{}\": {}", printable_address(url), what));
}

Result<Json> options_of(const StoreAddress& address, std::string_view query) {
  Json options = Json::parse(address.config, nullptr, false);
  if (options.is_discarded() || !options.is_object())
    return wrong(address.url, "its configuration: wanted one JSON object, got something else");
  for (int number = 1; !query.empty(); ++number) {
    const std::string_view pair = query.substr(0, query.find('&'));
    query.remove_prefix(std::min(query.size(), pair.size() + 1));
    const std::size_t equals = pair.find('=');
    const auto name = decoded(pair.substr(0, equals));
    const auto value = decoded(equals == std::string_view::npos ? "" : pair.substr(equals + 1));
    // By its number: it may be the rest of a password that has a & in it.
    if (equals == std::string_view::npos || !name || name->empty() || !value)
      return wrong(address.url, fmt::format("option {} behind the ?: wanted NAME=VALUE (% and & in them as "
                                            "%25 and %26), got something else",
                                            number));
    options[*name] = value_of(*value);
  }
  return options;
}

Result<std::string> connectors_folder(const StoreAddress& address, const StoreSurroundings& around) {
  if (!address.connectors.empty()) return address.connectors;
  if (std::string named = around.environment("TIERCEL_CONNECTORS"); !named.empty()) return named;
  const std::string program = around.program_folder();
  for (const char* place : {"/../share/tiercel/connectors", "/../../../connectors"})
    if (!program.empty() && around.exists(program + place + "/tiercel_connector")) return program + place;
  return error(Code::kNotFound,
               fmt::format("remote \"{}\": no connectors beside {}; set TIERCEL_CONNECTORS to their folder",
                           printable_address(address.url), program.empty() ? "this program" : program));
}

std::string python_for(const StoreAddress& address, const StoreSurroundings& around,
                       const std::string& connectors) {
  if (!address.python.empty()) return address.python;
  if (std::string named = around.environment("TIERCEL_CONNECTOR_PYTHON"); !named.empty()) return named;
  const std::string made = connectors + "/../build/connectors/venv/bin/python";
  return around.exists(made) ? made : "python3";
}

}  // namespace

std::string printable_address(std::string_view url) {
  const std::string_view shown = url.substr(0, url.find('?'));
  const std::size_t colon = shown.find(':');
  const std::string_view scheme = shown.substr(0, colon);
  if (scheme == "posix" || scheme == "program") return std::string(shown);  // an @ in a path is one
  // Also where // or the scheme was forgotten: that is when it is shown.
  std::size_t host = shown.find("//");
  host = host != std::string_view::npos ? host + 2 : colon != std::string_view::npos ? colon + 1 : 0;
  // A password with a ? in it, or an option with a password: which of them nobody knows.
  if (url.find('@', shown.size()) != std::string_view::npos)
    return std::string(shown.substr(0, host)) + "...";
  const std::size_t at = shown.rfind('@');
  if (at == std::string_view::npos) return std::string(shown);
  return std::string(shown.substr(0, std::min(host, at))) + std::string(shown.substr(at + 1));
}

Result<StorePlan> plan_store(const StoreAddress& address, const StoreSurroundings& around) {
  const std::string_view url = address.url;
  const std::size_t colon = url.find(':');
  const std::string_view scheme = url.substr(0, colon);
  if (colon == std::string_view::npos || scheme.empty()) return wrong(url, fmt::format("wanted {}", kWanted));
  const std::size_t mark = url.find('?');
  const std::string_view query = mark == std::string_view::npos ? "" : url.substr(mark + 1);
  std::string_view rest = url.substr(colon + 1, mark == std::string_view::npos ? mark : mark - colon - 1);
  StorePlan plan;
  if (scheme == "posix") {
    if (rest.starts_with("//")) rest.remove_prefix(2);
    if (rest.empty()) return wrong(url, "wanted posix:FOLDER, got no folder");
    if (!query.empty()) return wrong(url, "a folder takes no options behind a ?");
    plan.kind = StorePlan::Kind::kFolder;
    plan.folder = rest;
    return plan;
  }
  TIERCEL_ASSIGN_OR_RETURN(Json options, options_of(address, query));
  if (scheme == "program") {
    if (rest.empty()) return wrong(url, "wanted program:PROGRAM, got no program");
    plan.argv = {std::string(rest)};
    plan.config = options.dump();
    return plan;
  }
  for (const Scheme& known : kSchemes) {
    if (known.name != scheme) continue;
    if (known.connector != "memory") {
      if (!rest.starts_with("//") || rest.size() == 2)
        return wrong(url, fmt::format("wanted {}://HOST:PORT", scheme));
      options["url"] = std::string(url.substr(0, mark));
    }
    TIERCEL_ASSIGN_OR_RETURN(const std::string folder, connectors_folder(address, around));
    const std::string connector = fmt::format("{}/{}", folder, known.connector);
    if (!around.exists(connector))
      return error(Code::kNotFound,
                   fmt::format("remote \"{}\": no connector at {}; TIERCEL_CONNECTORS or the "
                               "option says where they are",
                               printable_address(url), connector));
    plan.argv = {python_for(address, around, folder), connector};
    plan.config = options.dump();
    return plan;
  }
  return wrong(url, fmt::format("wanted {}, got the scheme \"{}\"", kWanted, scheme));
}

Result<StorePlan> plan_store(const StoreAddress& address) { return plan_store(address, Surroundings()); }

Result<std::unique_ptr<RemoteStore>> open_store(const StoreAddress& address, const Clock& clock,
                                                ChildProcesses& processes) {
  TIERCEL_ASSIGN_OR_RETURN(const StorePlan plan, plan_store(address));
  if (plan.kind == StorePlan::Kind::kFolder) {
    PosixStoreOptions options;
    options.folder = plan.folder;
    options.exchange_bytes = address.exchange_bytes;
    TIERCEL_ASSIGN_OR_RETURN(std::unique_ptr<RemoteStore> store, PosixStore::open(options, clock));
    return store;
  }
  ConnectorOptions options;
  options.argv = plan.argv;
  options.config = plan.config;
  options.exchange.data_bytes = address.exchange_bytes;
  options.arena = address.arena;
  options.output = address.output;
  TIERCEL_ASSIGN_OR_RETURN(std::unique_ptr<RemoteStore> store,
                           ConnectorProcess::open(options, clock, processes));
  return store;
}

}  // namespace tiercel
