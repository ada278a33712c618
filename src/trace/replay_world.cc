#include "trace/replay_world.h"

#include <algorithm>
#include <unordered_set>
#include <utility>

#include <fmt/format.h>

#include "base/checked.h"
#include "base/sizes.h"
#include "memory/record.h"

namespace tiercel {
namespace {

constexpr std::uint64_t kExtentBytes = 2ULL << 20;
constexpr std::uint64_t kSpare = 64;  // entries and extents beyond what is counted
// Time and memory go with the extents that records take. These are beyond any model and any trace of it, and
// still an affair of seconds: 32 GiB in one record, 512 TiB together.
constexpr std::uint64_t kRecordExtentsMax = 1ULL << 14;
constexpr std::uint64_t kExtentsMax = 1ULL << 28;

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

}  // namespace

Result<std::unique_ptr<ReplayWorld>> ReplayWorld::open(const Trace& trace, const ReplayOptions& options) {
  ModelSpec spec = options.spec;
  spec.topology = {1, 1, 1};  // one rank; its bytes are already those of one
  TIERCEL_ASSIGN_OR_RETURN(const StorageForm form, make_storage_form(spec));
  const Sizes sizes = sizes_of(trace);
  TIERCEL_ASSIGN_OR_RETURN(const std::uint64_t extents, extents_for(form, sizes, options.host_bytes));
  std::unique_ptr<ReplayWorld> world(new ReplayWorld);
  TIERCEL_ASSIGN_OR_RETURN(
      world->device_,
      PatternDevice::create(form, std::max<std::uint64_t>(sizes.longest_request, 1), options.page_bytes));
  NodeOptions node_options;
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
  world->arena_ = std::make_unique<ThinArena>(node_options.host_bytes, options.page_bytes);
  if (Status status = world->open_node(node_options, std::move(spec)); !status.ok())
    return tl::unexpected(std::move(status));
  return world;
}

Status ReplayWorld::open_node(const NodeOptions& node_options, ModelSpec spec) {
  const auto open_all = [&]() -> Result<NamespaceId> {
    TIERCEL_ASSIGN_OR_RETURN(node_, Node::open(node_options, World{clock_, executor_, *arena_, *device_}));
    TIERCEL_ASSIGN_OR_RETURN(session_, node_->open_session({"replay", "", std::nullopt}));
    const ContentIdentity identity = identity_of(spec);
    TIERCEL_ASSIGN_OR_RETURN(form_, node_->open_form({std::move(spec), 1}));
    for (const ClassForm& cls : node_->form(form_).classes)
      TIERCEL_RETURN_IF_ERROR(node_->register_memory(form_, device_->pool(cls.id)));
    return node_->open_namespace(session_, form_, {identity, 0, std::nullopt});
  };
  const Result<NamespaceId> ns = open_all();
  if (!ns) return ns.error();
  ns_ = *ns;
  return {};
}

}  // namespace tiercel
