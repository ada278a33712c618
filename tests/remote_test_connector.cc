// A connector for tests: objects in its own memory, and names that make it misbehave, so that a test decides
// what happens when instead of waiting for it. Its configuration (all of it optional):
//   {"hello": "never" | "fail" | "twice" | "wrong" | "exit", "say": "why it cannot serve",
//    "capacity_bytes": N, "object_bytes_max": N}
// Names of an exists, first item: do.exit do.stop do.release do.twice do.unknown do.items do.status do.tail
// do.head do.noise. Of any item: "hold..." its batch waits for do.release (a cancel ends it), "firm..." waits
// whatever is said, "fail..." fails alone, "liar..." a get of it claims bytes that were not asked for.
// `stats` answers with the descriptors that are open and the environment.
#include <algorithm>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <dirent.h>
#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <poll.h>
#include <unistd.h>

#include "remote/connector_side.h"
#include "tiercel/connector.h"

namespace {

using namespace tiercel;  // NOLINT: a program of one file
using Json = nlohmann::json;

std::string read_line() {
  std::string line;
  char c = 0;
  while (::read(STDIN_FILENO, &c, 1) == 1 && c != '\n') line += c;
  return line;
}

class TestConnector {
 public:
  TestConnector(ConnectorSide side, const Json& config)
      : side_(std::move(side)),
        hello_(config.value("hello", "")),
        say_(config.value("say", "")),
        capacity_bytes_(config.value("capacity_bytes", std::uint64_t{1} << 40)),
        object_bytes_max_(config.value("object_bytes_max", std::uint64_t{1} << 40)) {}

  int run() {
    if (hello_ == "exit") return 5;
    if (hello_ == "wrong") {
      send({TIERCEL_CONNECTOR_DONE, 99, 0, "", {}});
    } else if (hello_ != "never") {
      const ConnectorCompletion hello{TIERCEL_CONNECTOR_HELLO, 0, hello_ == "fail" ? 7 : 0, say_, {}};
      send(hello);
      if (hello_ == "twice") send(hello);
    }
    for (;;) {
      pollfd asked[2] = {{STDIN_FILENO, POLLIN, 0}, {side_.request_event(), POLLIN, 0}};
      if (::poll(asked, 2, -1) < 0 && errno != EINTR) return 1;
      char gone = 0;
      if (asked[0].revents != 0 && ::read(STDIN_FILENO, &gone, 1) <= 0) return 0;  // the node is gone
      for (;;) {
        auto request = side_.take();
        if (!request) return 2;
        if (!*request) break;
        serve(std::move(**request));
      }
    }
  }

 private:
  void send(const ConnectorCompletion& completion) {
    while (!side_.complete(completion)) ::poll(nullptr, 0, 1);
  }

  void serve(ConnectorRequest request) {
    switch (request.verb) {
      case TIERCEL_CONNECTOR_CANCEL:
        cancel(request.batch);
        return;
      case TIERCEL_CONNECTOR_PING:
        send({TIERCEL_CONNECTOR_DONE, request.batch, 0, "", {}});
        return;
      case TIERCEL_CONNECTOR_STATS:
        send({TIERCEL_CONNECTOR_DONE, request.batch, 0, about_us(), {}});
        return;
      default:
        break;
    }
    if (!request.items.empty() && request.items[0].name.starts_with("do."))
      misbehave(request.items[0].name, request);
    const bool held = std::ranges::any_of(request.items, [](const RemoteItem& item) {
      return item.name.starts_with("hold") || item.name.starts_with("firm");
    });
    if (held)
      held_.push_back(std::move(request));
    else
      send(answer(request));
  }

  ConnectorCompletion answer(const ConnectorRequest& request) {
    ConnectorCompletion completion{TIERCEL_CONNECTOR_DONE, request.batch, 0, "", {}};
    for (const RemoteItem& item : request.items) completion.results.push_back(one(request.verb, item));
    return completion;
  }

  ConnectorResult one(std::uint16_t verb, const RemoteItem& item) {
    if (item.name.starts_with("fail")) return {TIERCEL_CONNECTOR_FAILED, 0};
    const auto found = objects_.find(item.name);
    const bool there = found != objects_.end();
    std::uint64_t size = 0;
    for (const RemotePiece& piece : item.pieces) size += piece.length;
    switch (verb) {
      case TIERCEL_CONNECTOR_EXISTS:
        return there ? ConnectorResult{TIERCEL_CONNECTOR_OK, found->second.size()}
                     : ConnectorResult{TIERCEL_CONNECTOR_ABSENT, 0};
      case TIERCEL_CONNECTOR_REMOVE:
        if (!there) return {TIERCEL_CONNECTOR_ABSENT, 0};
        used_ -= found->second.size();
        objects_.erase(found);
        return {TIERCEL_CONNECTOR_OK, 0};
      case TIERCEL_CONNECTOR_GET:
        if (!there) return {TIERCEL_CONNECTOR_ABSENT, 0};
        if (found->second.size() != size) return {TIERCEL_CONNECTOR_WRONG_SIZE, 0};
        return copy_out(item, found->second);
      default:
        return put(verb, item, size);
    }
  }

  ConnectorResult copy_out(const RemoteItem& item, const std::vector<std::byte>& from) {
    std::uint64_t at = 0;
    for (const RemotePiece& piece : item.pieces) {
      std::memcpy(side_.memory(piece).data(), from.data() + at, piece.length);
      at += piece.length;
    }
    return {TIERCEL_CONNECTOR_OK, item.name.starts_with("liar") ? at + 1 : at};
  }

  ConnectorResult put(std::uint16_t verb, const RemoteItem& item, std::uint64_t size) {
    if (size > object_bytes_max_) return {TIERCEL_CONNECTOR_TOO_LARGE, 0};
    const auto found = objects_.find(item.name);
    const bool there = found != objects_.end();
    if (there && verb == TIERCEL_CONNECTOR_PUT) return {TIERCEL_CONNECTOR_OK, 0};
    const std::uint64_t before = there ? found->second.size() : 0;
    if (used_ - before + size > capacity_bytes_) return {TIERCEL_CONNECTOR_NO_ROOM, 0};
    std::vector<std::byte> bytes;
    bytes.reserve(size);
    for (const RemotePiece& piece : item.pieces) append_bytes(bytes, side_.memory(piece));
    used_ = used_ - before + size;
    objects_[item.name] = std::move(bytes);
    return {TIERCEL_CONNECTOR_OK, 0};
  }

  void cancel(std::uint64_t batch) {
    const auto found = std::ranges::find(held_, batch, &ConnectorRequest::batch);
    if (found == held_.end() || found->items[0].name.starts_with("firm")) return;
    const std::vector<ConnectorResult> results(found->items.size(), {TIERCEL_CONNECTOR_CANCELLED, 0});
    send({TIERCEL_CONNECTOR_DONE, batch, 0, "", results});
    held_.erase(found);
  }

  void misbehave(const std::string& what, const ConnectorRequest& request) {
    auto* header = reinterpret_cast<tiercel_connector_exchange*>(side_.exchange());
    const ConnectorCompletion right{
        TIERCEL_CONNECTOR_DONE, request.batch, 0, "", {{TIERCEL_CONNECTOR_ABSENT, 0}}};
    if (what == "do.exit") ::_exit(7);
    if (what == "do.stop") ::raise(SIGSTOP);
    if (what == "do.twice") send(right);
    if (what == "do.unknown") send({TIERCEL_CONNECTOR_DONE, request.batch + 1000, 0, "", {}});
    if (what == "do.items") send({TIERCEL_CONNECTOR_DONE, request.batch, 0, "", {}});
    if (what == "do.status") send({TIERCEL_CONNECTOR_DONE, request.batch, 0, "", {{77, 0}}});
    if (what == "do.tail") header->completion_tail = 1U << 30;
    if (what == "do.head") header->request_head += 1U << 30;
    while (what == "do.tail" || what == "do.head") ::pause();  // its next message would put it right again
    if (what == "do.noise") {
      std::vector<std::byte> noise(64, std::byte{0xA5});
      store_le(noise.data(), std::uint32_t{64});
      side_.complete_raw(noise);
    }
    if (what == "do.release")
      for (const ConnectorRequest& held : std::exchange(held_, {})) send(answer(held));
  }

  static std::string about_us() {
    Json text;
    if (DIR* folder = ::opendir("/proc/self/fd"); folder != nullptr) {
      while (const dirent* entry = ::readdir(folder))  // NOLINT(concurrency-mt-unsafe): one thread
        if (entry->d_name[0] != '.' && std::atoi(entry->d_name) != ::dirfd(folder))
          text["descriptors"].push_back(std::atoi(entry->d_name));
      ::closedir(folder);
    }
    const char* extra = std::getenv("TIERCEL_TEST_EXTRA");  // NOLINT(concurrency-mt-unsafe): one thread
    text["extra"] = extra != nullptr ? extra : "";
    text["own_group"] = ::getpgrp() == ::getpid();
    return text.dump();
  }

  ConnectorSide side_;
  std::string hello_, say_;
  std::uint64_t capacity_bytes_, object_bytes_max_, used_ = 0;
  std::map<std::string, std::vector<std::byte>> objects_;
  std::vector<ConnectorRequest> held_;
};

}  // namespace

int main() {
  const char* environment = std::getenv("TIERCEL_CONNECTOR");  // NOLINT(concurrency-mt-unsafe): one thread
  if (environment == nullptr) {
    std::fputs("remote_test_connector: a connector, started by a node (tiercel/connector.h)\n", stderr);
    return 64;
  }
  const Json config = Json::parse(read_line(), nullptr, false);
  auto side = ConnectorSide::attach(environment);
  if (!side || !config.is_object()) {
    fmt::print(stderr, "remote_test_connector: {}\n", side ? "no configuration" : side.error().to_string());
    return 1;
  }
  return TestConnector(std::move(*side), config).run();
}
