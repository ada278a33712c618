#include "trace/replay_world.h"

#include <algorithm>
#include <chrono>
#include <iterator>
#include <unordered_set>
#include <utility>

#include <fmt/format.h>
#include <sys/random.h>
#include <unistd.h>

#include "base/checked.h"
#include "base/sizes.h"
#include "memory/record.h"
#include "os/block_open.h"

namespace tiercel {
namespace {

constexpr std::uint64_t kExtentBytes = 2ULL << 20;
constexpr std::uint64_t kSpare = 64;  // entries and extents beyond what is counted
// Time and memory go with the extents that records take. These are beyond any model and any trace of it, and
// still an affair of seconds: 32 GiB in one record, 512 TiB together.
constexpr std::uint64_t kRecordExtentsMax = 1ULL << 14;
constexpr std::uint64_t kExtentsMax = 1ULL << 28;
// In a store's time.
constexpr Duration kLook = std::chrono::milliseconds(10);
constexpr Duration kCloseRemote = std::chrono::seconds(5);
constexpr Duration kLongest = std::chrono::minutes(2);

struct Sizes {
  std::uint64_t unique_pages = 0;
  std::uint64_t longest_request = 0;
};

Sizes sizes_of(const Trace& trace) {
  Sizes sizes;
  std::unordered_set<std::uint64_t> seen;
  for (const TraceRequest& request : trace.requests) {
    seen.insert(request.blocks.begin(), request.blocks.end());
    sizes.longest_request = std::max<std::uint64_t>(sizes.longest_request, request.blocks.size());
  }
  sizes.unique_pages = seen.size();
  return sizes;
}

// Extents that suffice whatever comes: a class takes a new one only when all of its own are full, so its
// share is that of the most records it ever had at once. Errors: resource_exhausted.
Result<std::uint64_t> extents_for(const StorageForm& form, const Sizes& sizes,
                                  std::optional<std::uint64_t> host_bytes) {
  std::uint64_t total = kSpare;
  for (const ClassForm& cls : form.classes) {
    std::uint64_t records = sizes.unique_pages;
    if (host_bytes) records = std::min(records, *host_bytes / cls.record_bytes + 1);
    const std::uint64_t slot =
        checked_add(cls.record_bytes, header_bytes(cls) + kRecordAlignment).value_or(kSizeMax);
    const std::uint64_t extents_each = ceil_div(slot, kExtentBytes);
    if (extents_each > kRecordExtentsMax)
      return error(
          Code::kResourceExhausted,
          fmt::format("model {}, class {}: a record has {}, which is {} extents of {}; a replay takes "
                      "at most {} ({}): use smaller components or fewer layers",
                      form.spec.model_type, cls.name, format_size(cls.record_bytes), extents_each,
                      format_size(kExtentBytes), kRecordExtentsMax,
                      format_size(kRecordExtentsMax * kExtentBytes)));
    const auto extents =
        slot <= kExtentBytes
            ? ceil_div(records, std::min(kExtentBytes / slot, slots_per_extent_max(kExtentsMax))) + 1
            : checked_mul(records, extents_each).value_or(kSizeMax);
    total = std::min(total + std::min(extents, kSizeMax), kSizeMax);
  }
  if (total > kExtentsMax)
    return error(
        Code::kResourceExhausted,
        fmt::format("model {}: the trace's {} pages take {} extents of {}; a replay takes at most {} "
                    "({}): use a smaller --host-bytes",
                    form.spec.model_type, sizes.unique_pages, total, format_size(kExtentBytes), kExtentsMax,
                    format_size(kExtentsMax * kExtentBytes)));
  return total;
}

ContentIdentity identity_of(const ModelSpec& spec) {
  ContentIdentity identity;
  identity.model = spec.model_type.empty() ? "replay" : spec.model_type;
  identity.weights = "replay";
  identity.dtype = "as in the spec";
  identity.page_tokens = spec.page_tokens;
  // Ids are numbers of this trace, not digests: allowed by name, for one replay.
  identity.scheme = {std::string(kTraceKeyScheme), "none", "", "u64 le", kTraceBlockTokens, true};
  return identity;
}

// Room in the index for as many records as the drive holds, small as they are here.
std::uint64_t index_entries(const StorageForm& form, const ReplayOptions& options) {
  std::uint64_t smallest = kSizeMax;
  for (const ClassForm& cls : form.classes) {
    const std::uint64_t record = header_bytes(cls) + std::min(cls.record_bytes, options.page_bytes);
    smallest = std::min(smallest, ceil_div(record, kBlockBytes) * kBlockBytes * cls.shards);
  }
  constexpr std::uint64_t kLeast = 4096;
  return std::max(options.disk->bytes / smallest, kLeast);
}

}  // namespace

bool TurnDrive::end_turn() {
  if (under_way_ == 0) return false;
  std::vector<BlockDone> ended;
  while (ended.size() < under_way_) {
    drive_->wait(std::chrono::seconds(1));
    for (BlockDone& done : drive_->drain()) ended.push_back(std::move(done));
  }
  under_way_ = 0;
  std::sort(ended.begin(), ended.end(), [](const BlockDone& a, const BlockDone& b) { return a.id < b.id; });
  ended_.insert(ended_.end(), std::make_move_iterator(ended.begin()), std::make_move_iterator(ended.end()));
  return true;
}

Result<std::unique_ptr<ReplayWorld>> ReplayWorld::open(const Trace& trace, const ReplayOptions& options) {
  ModelSpec spec = options.spec;
  spec.topology = {1, 1, 1};  // one rank; its bytes are already those of one
  TIERCEL_ASSIGN_OR_RETURN(const StorageForm form, make_storage_form(spec));
  const Sizes sizes = sizes_of(trace);
  TIERCEL_ASSIGN_OR_RETURN(const std::uint64_t extents, extents_for(form, sizes, options.host_bytes));
  std::unique_ptr<ReplayWorld> world(new ReplayWorld);
  world->spec_ = std::move(spec);
  world->page_bytes_ = options.page_bytes;
  TIERCEL_ASSIGN_OR_RETURN(
      world->device_,
      PatternDevice::create(form, std::max<std::uint64_t>(sizes.longest_request, 1), options.page_bytes));
  NodeOptions& node_options = world->node_options_;
  node_options.index_pages_max = sizes.unique_pages + kSpare;
  node_options.index_strips_max = node_options.index_pages_max;  // however short the chains
  node_options.history_entries = sizes.unique_pages + kSpare;    // nothing is ever forgotten
  node_options.advice_entries = 4 * (sizes.unique_pages + kSpare);
  node_options.host_bytes = (extents + ceil_div(book_bytes(node_options), kExtentBytes)) * kExtentBytes;
  node_options.extent_bytes = kExtentBytes;
  node_options.record_bytes_max = options.host_bytes;
  node_options.pages_max = options.capacity_pages;
  node_options.snapshot_budget = options.snapshot_budget;
  node_options.in_flight_bytes_max = node_options.host_bytes;
  node_options.client_share = 1.0;
  node_options.policy = options.policy;
  node_options.retention = keeps_all_windows(options) ? SparseRetention::kAll : SparseRetention::kAtPoints;
  if (options.disk) {
    world->disk_options_ = options.disk;
    world->log_options_.admission = options.disk->admission;
    world->log_options_.index_entries = index_entries(form, options);
    // Trace time stands still while the drive works: what is due by the clock alone must not be needed.
    node_options.disk.write_policy = options.disk->write_policy;
    node_options.disk.write_share = 1.0;
  }
  world->remote_options_ = options.remote;
  if (Status status = world->open_all(); !status.ok()) return tl::unexpected(std::move(status));
  if (options.disk || (options.remote && !options.remote->warm))
    TIERCEL_RETURN_IF_ERROR(world->node_->clear(world->ns_));
  return world;
}

Status ReplayWorld::open_all() {
  if (disk_options_) {
    if (Status status = open_disk(); !status.ok()) return status;
  }
  if (remote_options_) {
    if (Status status = open_remote(); !status.ok()) return status;
  }
  arena_ = std::make_unique<ThinArena>(node_options_.host_bytes + node_options_.disk.host_bytes, page_bytes_);
  return open_node();
}

Status ReplayWorld::open_disk() {
  BlockDeviceOptions options;
  options.file.path = disk_options_->path;
  options.file.bytes = disk_options_->bytes;
  options.file.create = disk_options_->bytes != 0;
  auto opened = open_block_device(options);
  if (!opened) return opened.error();
  drive_ = std::make_unique<TurnDrive>(std::move(opened->device));
  Digest uuid{};
  if (::getrandom(uuid.data(), uuid.size(), 0) != static_cast<ssize_t>(uuid.size()))
    return {Code::kInternal, "the system gives no random bytes"};
  auto log = DiskLog::open(log_options_, *drive_, clock_, uuid);
  if (!log) {
    if (opened->created) ::unlink(disk_options_->path.c_str());
    return log.error();
  }
  log_ = std::move(*log);
  node_options_.disk.host_bytes = ceil_div(log_->geometry().host_bytes, kExtentBytes) * kExtentBytes;
  return {};
}

Status ReplayWorld::open_remote() {
  const ReplayRemoteOptions& wanted = *remote_options_;
  auto store = open_store(wanted.address, store_clock_, children_);
  if (!store) return store.error();
  store_ = std::move(*store);
  const Time until = later(store_clock_.now(), wanted.wait_ready);
  RemoteHealth health = store_->health();
  while (!health.ready && health.pid != 0 && health.starts == 1 && store_clock_.now() < until) {
    store_->wait(kLook);
    static_cast<void>(store_->drain());
    health = store_->health();
  }
  if (!health.ready)
    return {Code::kUnavailable,
            fmt::format("remote \"{}\": it is not ready: {}; tiercel doctor --remote tries it",
                        printable_address(wanted.address.url), health.why_not)};
  Digest seed{};
  if (::getrandom(seed.data(), seed.size(), 0) != static_cast<ssize_t>(seed.size()))
    return {Code::kInternal, "the system gives no random bytes"};
  auto tier = RemoteTier::open(wanted.tier, *store_, store_clock_, executor_, seed);
  if (!tier) return tier.error();
  remote_ = std::move(*tier);
  return {};
}

Status ReplayWorld::open_node() {
  const auto open_all = [&]() -> Result<NamespaceId> {
    World world{clock_, executor_, *arena_, *device_};
    world.disk = log_.get();
    world.remote = remote_.get();
    NodeOptions node_options = node_options_;
    node_options.host_bytes += node_options.disk.host_bytes;
    TIERCEL_ASSIGN_OR_RETURN(node_, Node::open(node_options, world));
    TIERCEL_ASSIGN_OR_RETURN(session_, node_->open_session({"replay", "", std::nullopt}));
    const ContentIdentity identity = identity_of(spec_);
    TIERCEL_ASSIGN_OR_RETURN(form_, node_->open_form({spec_, 1}));
    for (const ClassForm& cls : node_->form(form_).classes)
      TIERCEL_RETURN_IF_ERROR(node_->register_memory(form_, device_->pool(cls.id)));
    return node_->open_namespace(session_, form_, {identity, 0, std::nullopt});
  };
  const Result<NamespaceId> ns = open_all();
  if (!ns) return ns.error();
  ns_ = *ns;
  return {};
}

void ReplayWorld::settle() {
  while (node_->poll() != 0) {
  }
}

bool ReplayWorld::storing() const {
  return remote_ != nullptr && !remote_->down() && (remote_->writing() || node_->storing_remotely());
}

void ReplayWorld::settle_all() {
  const Time until = later(store_clock_.now(), kLongest);
  for (;;) {
    settle();
    if (drive_ != nullptr && drive_->end_turn()) continue;
    if (!storing() || store_clock_.now() >= until) return;
    remote_->flush_soon();
    if (node_->poll() == 0) remote_->wait(kLook);
  }
}

bool ReplayWorld::settle_match(TicketId ticket) {
  const Time until = later(store_clock_.now(), kLongest);
  for (;;) {
    settle_all();
    if (!node_->ticket(ticket)->pending) return true;
    if (remote_ == nullptr || store_clock_.now() >= until) return false;
    remote_->wait(kLook);
  }
}

void ReplayWorld::close_remote() {
  if (remote_ == nullptr) return;
  settle_all();
  node_->close_remote(kCloseRemote);
  settle();
}

Result<ReplayRestart> ReplayWorld::restart() {
  using Watch = std::chrono::steady_clock;
  const auto seconds = [](Watch::time_point since) {
    return std::chrono::duration<double>(Watch::now() - since).count();
  };
  ReplayRestart done;
  done.resident_pages = node_->stats().pages_visible;
  const auto closing = Watch::now();
  const WriteDown down = node_->write_down(std::chrono::hours(1));
  if (!down.status.ok()) return tl::unexpected(down.status);
  done.written_class_sets = down.class_sets;
  done.left_class_sets = down.left_class_sets;
  close_remote();
  node_.reset();
  remote_.reset();
  store_.reset();
  log_.reset();
  drive_.reset();
  done.close_seconds = seconds(closing);
  const auto opening = Watch::now();
  if (Status status = open_all(); !status.ok()) return tl::unexpected(std::move(status));
  done.open_seconds = seconds(opening);
  if (log_ != nullptr) done.recovered_class_sets = log_->stats().recovered_class_sets;
  return done;
}

}  // namespace tiercel
