#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <system_error>
#include <thread>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <tiercel/llamacpp.hpp>
#include <unistd.h>

namespace tiercel::llamacpp {
namespace {

constexpr std::uint64_t kNewStoreBytes = 4ULL << 30;
constexpr std::uint64_t kLongestWaitNs = 365ULL * 24 * 3600 * 1'000'000'000;  // as good as for ever
constexpr auto kLookAgain = std::chrono::milliseconds(10);

// The turn of a process: an advisory lock on a file of its own, so that who waits need not try to open a log.
class Turn {
 public:
  Turn() = default;
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;
  ~Turn() { end(); }
  // Also when it did not come: opening the log then tells who has it, or what is wrong with the folder.
  void wait(const std::string& path, std::chrono::steady_clock::time_point until) {
    file_ = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    while (file_ >= 0 && ::flock(file_, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK &&
           std::chrono::steady_clock::now() < until)
      std::this_thread::sleep_for(kLookAgain);
  }
  void end() {
    if (file_ >= 0) ::close(std::exchange(file_, -1));
  }

 private:
  int file_ = -1;
};

Status make_folder(const std::string& folder) {
  if (folder.empty()) return {TIERCEL_INVALID_ARGUMENT, "store: no folder is given"};
  std::error_code error;
  const std::filesystem::path above = std::filesystem::path(folder).parent_path();
  if (!above.empty()) std::filesystem::create_directories(above, error);
  // Made first and looked at then: another process may make it at this moment. 0700: prompts can be told from
  // what is cached of them.
  const int failure = ::mkdir(folder.c_str(), 0700) == 0 ? 0 : errno;
  if (std::filesystem::is_directory(folder, error)) return {};
  if (failure == EEXIST)
    return {
        TIERCEL_INVALID_ARGUMENT,
        fmt::format("store {}: this is no folder; give one, or a path where there is nothing yet", folder)};
  return {TIERCEL_IO_ERROR, fmt::format("store {}: the folder cannot be made: {}", folder,
                                        std::error_code(failure, std::generic_category()).message())};
}

std::string remote_address(const StoreOptions& options) {
  if (!options.remote.empty()) return options.remote;
  const char* named = std::getenv("TIERCEL_REMOTE");  // NOLINT(concurrency-mt-unsafe): read at opening only
  return named == nullptr ? "" : named;
}

// The code alone does not tell: a log of another size is a failed precondition, too.
bool is_held(const Status& status) {
  return status.code == TIERCEL_FAILED_PRECONDITION && status.message.find("in use by ") != std::string::npos;
}

}  // namespace

struct Store::State {
  Turn turn;
  std::atomic<bool> open = false;
  Node node;
};

Result<std::shared_ptr<Store>> Store::open(const StoreOptions& options) {
  if (Status status = make_folder(options.folder); !status.ok()) return status;
  std::shared_ptr<Store> store(new Store);
  store->state_ = std::make_unique<State>();
  State& state = *store->state_;
  const std::string log = options.folder + "/cache.tiercel";
  const auto until = std::chrono::steady_clock::now() +
                     std::chrono::nanoseconds(std::min<std::uint64_t>(options.wait_ns, kLongestWaitNs));
  state.turn.wait(options.folder + "/cache.turn", until);
  auto disk = sized<tiercel_disk_options>();
  disk.path = log.c_str();
  std::error_code ignored;
  const bool made = std::filesystem::exists(log, ignored) && std::filesystem::file_size(log, ignored) != 0;
  disk.bytes = options.cache_bytes != 0 || made ? options.cache_bytes : kNewStoreBytes;
  disk.progress = options.progress;
  disk.progress_context = options.progress_context;
  auto node = sized<tiercel_node_options>();
  node.host_bytes = options.host_bytes;
  node.client_share = 1;                // its clients are contexts of one program
  node.load_back_threshold_tokens = 1;  // computing a token takes longer than loading it
  node.progress = options.progress;
  node.progress_context = options.progress_context;
  node.disk = &disk;
  // The node would take the environment's address by itself, but not wait for the store behind it.
  const std::string address = remote_address(options);
  auto remote = sized<tiercel_remote_options>();
  remote.url = address.c_str();
  remote.wait_ready_ms =
      static_cast<std::uint32_t>(std::min<std::uint64_t>(options.remote_wait_ns / 1'000'000, UINT32_MAX));
  if (!address.empty()) node.remote = &remote;
  auto opened = Node::open(node);
  // Whoever only looks at the log (`tiercel disk ls`) takes no turn.
  while (!opened && is_held(opened.status()) && std::chrono::steady_clock::now() < until) {
    std::this_thread::sleep_for(kLookAgain);
    opened = Node::open(node);
  }
  if (!opened && is_held(opened.status())) return Status{TIERCEL_UNAVAILABLE, opened.status().message};
  if (!opened) return opened.status();
  state.node = *std::move(opened);
  state.open = true;
  return store;
}

Store::~Store() {
  if (state_) static_cast<void>(close());
}

Status Store::flush(std::uint64_t deadline_ns) { return state_->node.flush(deadline_ns); }

Status Store::close() {
  if (!state_->open.exchange(false)) return {};
  Status status = state_->node.close();
  state_->turn.end();
  return status;
}

bool Store::is_open() const { return state_->open; }

Node& Store::node() { return state_->node; }

}  // namespace tiercel::llamacpp
