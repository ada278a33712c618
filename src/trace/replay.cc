#include "trace/replay.h"

#include <algorithm>
#include <chrono>
#include <memory>
#include <utility>

#include <fmt/format.h>

#include "base/bytes.h"
#include "base/check.h"
#include "node/status_text.h"
#include "trace/bound.h"
#include "trace/replay_world.h"

namespace tiercel {
namespace {

template <typename Kind>
bool has_group(const ModelSpec& spec) {
  return std::any_of(spec.groups.begin(), spec.groups.end(),
                     [](const Group& group) { return std::holds_alternative<Kind>(group.kind); });
}

// One replay under way.
class Replayer final {
 public:
  Replayer(const Trace& trace, const ReplayOptions& options, ReplayWorld& world)
      : trace_(trace), options_(options), world_(world), rule_(snapshot_rule_of(options)) {
    for (const ClassForm& cls : form().classes) {
      if (cls.is_state()) report_.snapshot_bytes += cls.set_bytes();
      if (cls.is_window()) report_.window_bytes += cls.set_bytes();
      if (cls.is_state() && !first_state_) first_state_ = cls.id;
    }
    report_.page_bytes = form().page_bytes_required();
    report_.policy = policy_name(options.policy);
    report_.snapshots = snapshot_rule_name(rule_);
    report_.snapshot_every = options.snapshot_every.value_or(0);
    report_.skipped_lines = trace.skipped_lines;
    if (options.disk) {
      report_.disk.emplace();
      report_.disk->admission = disk_admission_name(options.disk->admission);
      report_.disk->write_policy = write_policy_name(options.disk->write_policy);
    }
    if (options.remote) report_.remote.emplace().address = printable_address(options.remote->address.url);
  }

  Result<ReplayReport> run(const ReplayProgress& progress) {
    const auto begin = std::chrono::steady_clock::now();
    for (const TraceRequest& request : trace_.requests) {
      if (options_.restart_at == report_.requests) {
        TIERCEL_RETURN_IF_ERROR(restart());
      }
      step(request);
      if (progress) progress(report_.requests, report_);
      if (options_.stop != nullptr && options_.stop->load()) return stopped();
    }
    report_.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    close();
    take_node_counts();
    check_sums();
    if (options_.bound) report_.bound_hit_pages = bound_hit_pages(trace_.requests, bound_capacity());
    return std::move(report_);
  }

 private:
  void step(const TraceRequest& request) {
    world_.clock().advance_to(std::chrono::milliseconds(static_cast<std::int64_t>(request.timestamp_ms)));
    request_ = RequestId(++report_.requests);
    const std::vector<Key> keys = keys_of(request);
    if (!expect_ok("request_begin", node().request_begin(world_.session(), request_))) return;
    MatchQuery query;
    query.session = world_.session();
    query.ns = world_.ns();
    query.request = request_;
    query.keys = keys;
    query.prompt_tokens = request.input_length;
    query.may_promote = world_.disk() != nullptr || world_.remote() != nullptr;
    const Result<TicketId> ticket = node().match(query);
    if (!expect_ok("match", ticket ? Status{} : ticket.error())) return;
    if (node().ticket(*ticket)->pending) await(*ticket);
    const TicketView view = *node().ticket(*ticket);
    count(request, view);
    load(*ticket, keys, view.length);
    PointQuery points{keys.size(), request.full_blocks(), view.length, view.known_pages};
    std::vector<std::uint64_t> advised;
    if (rule_ == SnapshotRule::kAdvice)
      advised = node().snapshot_advice(*ticket, {points.full_pages, 1, UINT64_MAX, points.hit_pages});
    points.advised = advised;
    node().release(*ticket);  // what it leased has been loaded
    store(keys, points);
    node().request_end(request_);
    world_.settle_all();
    if (!node().drain_completions().empty()) wrong("a completion of nothing that was asked");
    node().drain_events();
    check_limits();
  }

  // Until disk and store have brought what the match can wait for: trace time stands still meanwhile.
  void await(TicketId ticket) {
    if (!world_.settle_match(ticket)) wrong("a match that is not answered");
    for (const Completion& completion : node().drain_completions())
      if (completion.kind == CompletionKind::kMatched && completion.ticket == ticket) return;
    wrong("a match that did not end");
  }

  Status restart() {
    add_life();
    Result<ReplayRestart> done = world_.restart();
    if (!done) return done.error();
    done->after_requests = report_.requests;
    left_at_restart_ += done->resident_pages;
    report_.restart = *done;
    return {};
  }
  // As a node ends: whoever looks into file and store finds what the report says.
  void close() {
    if (options_.restart_at && !report_.restart) report_.restart_not_reached = options_.restart_at;
    world_.close_remote();
    if (!report_.disk) return;
    const WriteDown down = node().write_down(std::chrono::hours(1));
    report_.disk->closed_written = down.class_sets;
    report_.disk->closed_left = down.left_class_sets;
    expect_ok("close", down.status);
  }
  // The disk keeps what it has, and what is resident.
  tl::unexpected<Status> stopped() {
    world_.close_remote();
    const WriteDown down = node().write_down(std::chrono::seconds(10));
    return error(Code::kCancelled, world_.disk() == nullptr
                                       ? std::string("stopped")
                                       : fmt::format("stopped; {} class-sets were written down, {} were left",
                                                     down.class_sets, down.left_class_sets));
  }

  std::vector<Key> keys_of(const TraceRequest& request) const {
    std::vector<std::byte> digests;
    digests.reserve(request.blocks.size() * sizeof(std::uint64_t));
    for (const std::uint64_t block : request.blocks) append_le(digests, block);
    auto keys = keys_from_digests(node().root(world_.ns()), kTraceKeyScheme, digests, sizeof(std::uint64_t),
                                  sizeof(std::uint64_t));
    TIERCEL_CHECK(keys.has_value());
    return std::move(*keys);
  }

  void count(const TraceRequest& request, const TicketView& view) {
    const std::uint64_t pages = request.blocks.size();
    std::uint64_t missed = 0;
    for (const Miss& miss : view.missed) {
      report_.missed[static_cast<std::size_t>(miss.reason)] += miss.pages;
      missed += miss.pages;
    }
    if (view.length + missed != pages)
      wrong(fmt::format("{} pages: {} hit and {} missed", pages, view.length, missed));
    if (view.hit_tokens != view.length * kTraceBlockTokens ||
        view.missed_tokens != missed * kTraceBlockTokens)
      wrong(fmt::format("{} pages hit as {} tokens, {} missed as {}", view.length, view.hit_tokens, missed,
                        view.missed_tokens));
    report_.pages += pages;
    report_.hit_pages += view.length;
    count_brought(view);
    if (report_.restart) {
      report_.restart->pages += pages;
      report_.restart->hit_pages += view.length;
    }
    report_.tokens += request.input_length;
    report_.hit_tokens += std::min(view.length * kTraceBlockTokens, request.input_length);
  }

  void count_brought(const TicketView& view) {
    const std::uint64_t remote = std::min(view.remote_pages, view.length);
    const std::uint64_t from_disk = view.promoted_pages - view.remote_pages;
    if (report_.remote) {
      report_.remote->brought_pages += view.remote_pages;
      report_.remote->hit_pages += remote;
    }
    if (report_.disk) {
      report_.disk->brought_pages += from_disk;
      report_.disk->hit_pages += std::min(from_disk, view.length - remote);
    }
  }

  // Loads the hit and compares every byte of it that exists.
  void load(TicketId ticket, const std::vector<Key>& keys, std::uint64_t length) {
    if (length == 0) return;
    LoadRequest request;
    request.ticket = ticket;
    request.length = length;
    for (const ClassForm& cls : form().classes) {
      LoadTarget target{cls.id, ShardId(0), {}};
      for (std::uint64_t page = cls.is_state() ? length - 1 : 0; page < length; ++page) {
        const bool wanted = needs(cls, length, page) || cls.optional();
        target.slots.push_back(wanted ? page : kSkipSlot);
        if (wanted) world_.device().poison(cls.id, page);
      }
      request.targets.push_back(std::move(target));
    }
    const std::vector<LoadTarget> targets = request.targets;
    const Result<OperationId> operation = node().load(std::move(request));
    std::optional<LoadResult> result;
    if (expect_ok("load", operation ? Status{} : operation.error())) {
      settle();
      for (Completion& completion : node().drain_completions())
        if (completion.kind == CompletionKind::kLoaded && completion.operation == *operation)
          result = std::move(completion.load);
      if (!result) wrong("a load that did not end");
    }
    std::uint64_t verified = 0;
    for (std::uint64_t page = 0; result && page < std::min(result->length, length); ++page)
      verified += arrived(targets, *result, keys[page], page, length) ? 1 : 0;
    report_.verified_pages += verified;
    report_.corrupt_pages += length - verified;
  }

  // Whether all of a page's records that the hit needs were delivered with the right bytes.
  bool arrived(const std::vector<LoadTarget>& targets, const LoadResult& result, const Key& key,
               std::uint64_t page, std::uint64_t length) {
    bool good = true;
    for (std::size_t i = 0; i < targets.size(); ++i) {
      const ClassForm& cls = form().classes[targets[i].cls.value()];
      const std::uint64_t entry = cls.is_state() ? 0 : page;
      if (targets[i].slots[entry] != page) continue;
      const ItemOutcome outcome = result.outcomes[i][entry];
      if (cls.optional() && outcome == ItemOutcome::kMissing) continue;
      const bool right = outcome == ItemOutcome::kDelivered && world_.device().holds(cls.id, page, key);
      report_.compared_bytes += std::min(cls.record_bytes, options_.page_bytes);
      if (right && first_state_ == cls.id && page + 1 == length) ++report_.verified_snapshots;
      good = good && right;
    }
    return good;
  }

  void store(const std::vector<Key>& keys, const PointQuery& query) {
    const std::vector<std::uint64_t> points = points_of(rule_, report_.snapshot_every, query);
    const std::vector<DueRecord> due = due_records(form(), {query, points, keeps_all_windows(options_)});
    for (std::span<const DueRecord> rest = due; !rest.empty();) {
      const std::span<const DueRecord> batch = rest.first(batch_size(rest));
      std::optional<StoreOutcome> refusal = store_batch(keys, batch);
      const bool below = report_.disk || report_.remote;
      if (refusal == StoreOutcome::kNoRoom && below) {  // what went may still have been written down
        world_.settle_all();
        refusal = store_batch(keys, batch);
      }
      if (refusal) return give_up(keys, rest, *refusal);
      rest = rest.subspan(batch.size());
    }
  }

  // The first record that does not fit ends a request's store, so where something may not fit, only records
  // that stand and fall together are stored in one call.
  std::size_t batch_size(std::span<const DueRecord> rest) const {
    if (!options_.capacity_pages && !options_.host_bytes) return rest.size();
    std::size_t size = 1;
    while (size < rest.size() && rest[size].page == rest[0].page && !sparse(rest[0]) && !sparse(rest[size]))
      ++size;
    return size;
  }
  bool sparse(const DueRecord& due) const { return form().classes[due.cls.value()].sparse(); }

  // Returns: why the batch's first refused record was refused.
  std::optional<StoreOutcome> store_batch(const std::vector<Key>& keys, std::span<const DueRecord> batch) {
    StoreRequest request;
    request.session = world_.session();
    request.ns = world_.ns();
    request.request = request_;
    for (const DueRecord& due : batch) {
      world_.device().fill(due.cls, due.page, keys[due.page]);
      StoreItem item;
      item.key = keys[due.page];
      if (due.page > 0) item.parent = keys[due.page - 1];
      item.length = due.page + 1;
      item.cls = due.cls;
      item.slot = due.page;
      item.bytes = form().classes[due.cls.value()].record_bytes;
      item.resume_point = due.resume_point;
      request.items.push_back(item);
    }
    const Result<StoreAnswer> answer = node().store(request);
    if (!expect_ok("store", answer ? Status{} : answer.error())) return std::nullopt;
    std::vector<StoreOutcome> outcomes = answer->outcomes;
    bool ended = answer->operation == OperationId{} || store_ended(answer->operation, outcomes);
    const std::optional<StoreOutcome> refusal = count_stored(batch, outcomes);
    if (!ended && refusal) {  // the rest of a page that lacks a required record: nobody will complete it
      node().request_abort(request_);
      ended = store_ended(answer->operation, outcomes);
    }
    if (!ended) wrong("a store that did not end");
    return refusal;
  }

  // Whether everything that will ever be visible of a store is; `outcomes` then say what became of its
  // records.
  bool store_ended(OperationId operation, std::vector<StoreOutcome>& outcomes) {
    settle();
    bool ended = false;
    for (Completion& completion : node().drain_completions()) {
      if (completion.operation != operation) continue;
      ended = ended || completion.kind == CompletionKind::kVisible;
      if (completion.store.size() == outcomes.size()) outcomes = std::move(completion.store);
    }
    return ended;
  }

  std::optional<StoreOutcome> count_stored(std::span<const DueRecord> batch,
                                           std::span<const StoreOutcome> outcomes) {
    std::optional<StoreOutcome> refusal;
    for (std::size_t i = 0; i < batch.size(); ++i) {
      switch (outcomes[i]) {
        case StoreOutcome::kCommitted:
          if (first_state_ == batch[i].cls) ++report_.snapshots_made;
          break;
        case StoreOutcome::kAlreadyPresent:
          break;
        case StoreOutcome::kNoRoom:
        case StoreOutcome::kTooLarge:
          if (!refusal) refusal = outcomes[i];
          break;
        default:
          wrong(fmt::format("a record's store ended as {}", outcome_name(outcomes[i])));
      }
    }
    return refusal;
  }

  void give_up(const std::vector<Key>& keys, std::span<const DueRecord> rest, StoreOutcome refusal) {
    std::vector<Key> pages;
    for (std::size_t i = 0; i < rest.size(); ++i)
      if (i == 0 || rest[i].page > rest[i - 1].page) pages.push_back(keys[rest[i].page]);
    node().not_stored(world_.ns(), pages, refusal);
  }

  void settle() { world_.settle(); }
  Node& node() const { return world_.node(); }
  const StorageForm& form() const { return world_.form(); }

  // The limits hold after every request, not only at the end.
  void check_limits() {
    const Stats& stats = node().stats();
    if (options_.capacity_pages && stats.pages_visible > *options_.capacity_pages)
      wrong(fmt::format("{} pages are resident", stats.pages_visible));
    if (options_.host_bytes && stats.payload_bytes > *options_.host_bytes)
      wrong(fmt::format("{} bytes are resident", stats.payload_bytes));
    if (stats.leased_bytes != 0 || stats.in_flight_bytes != 0 || stats.reserved_bytes != 0)
      wrong("leases, copies or reservations outlived their request");
  }

  // The counts of one opening of the node.
  void add_life() {
    const Stats& stats = node().stats();
    report_.stored_pages += stats.pages_stored;
    report_.evicted_pages += stats.pages_evicted;
    report_.snapshots_evicted += stats.snapshots_evicted;
    report_.peak_bytes = std::max(report_.peak_bytes, stats.resident_bytes_peak);
    node_hit_tokens_ += stats.hit_tokens;
    add_remote(stats);
    if (!report_.disk) return;
    report_.disk->stored_class_sets += stats.demoted;
    report_.disk->refused_class_sets += stats.demotions_refused;
    report_.disk->promoted_class_sets += stats.promoted - stats.remote_promoted;
  }
  void add_remote(const Stats& stats) {
    if (!report_.remote) return;
    ReplayRemoteReport& all = *report_.remote;
    all.stored_class_sets += stats.remote_demoted;
    all.refused_class_sets += stats.remote_refused;
    all.promoted_class_sets += stats.remote_promoted;
    const RemoteStats& own = world_.remote()->stats();
    for (const auto count : {&RemoteStats::lookups, &RemoteStats::names_asked, &RemoteStats::names_known,
                             &RemoteStats::objects_read, &RemoteStats::object_bytes_read,
                             &RemoteStats::objects_written, &RemoteStats::object_bytes_written,
                             &RemoteStats::batches, &RemoteStats::batches_failed, &RemoteStats::batches_late,
                             &RemoteStats::damaged_objects, &RemoteStats::writes_failed, &RemoteStats::trips})
      all.tier.*count += own.*count;
    const RemoteHealth health = world_.remote()->health();
    all.starts += health.starts;
    all.kills += health.kills;
  }
  void take_node_counts() {
    add_life();
    const Stats& stats = node().stats();
    report_.resident_pages = stats.pages_visible;
    report_.resident_bytes = stats.resident_bytes;
    report_.fragmentation_bytes = stats.fragmentation_bytes;
    const DiskStats* const disk = world_.disk() != nullptr ? &world_.disk()->stats() : nullptr;
    if (disk != nullptr) report_.disk->log = *disk;
    if (options_.status) report_.status = status_text(stats, disk, world_.remote());
  }

  void check_sums() {
    const Stats& stats = node().stats();
    const auto equal = [&](std::string_view what, std::uint64_t is, std::uint64_t should) {
      if (is != should) wrong(fmt::format("{}: {}, should be {}", what, is, should));
    };
    std::uint64_t missed = 0;
    for (const std::uint64_t pages : report_.missed) missed += pages;
    equal("hit_pages + missed", report_.hit_pages + missed, report_.pages);
    equal("stored_pages - evicted_pages", report_.stored_pages - report_.evicted_pages - left_at_restart_,
          report_.resident_pages);
    equal("verified_pages + corrupt_pages", report_.verified_pages + report_.corrupt_pages,
          report_.hit_pages);
    equal("missed as unknown_past", report_.missed[static_cast<std::size_t>(Reason::kUnknownPast)], 0);
    equal("hit tokens by the node's count", node_hit_tokens_, report_.hit_pages * kTraceBlockTokens);
    if (first_state_ && !report_.disk && !report_.remote &&
        std::count_if(form().classes.begin(), form().classes.end(),
                      [](const ClassForm& cls) { return cls.is_state(); }) == 1)
      equal("snapshots_made - snapshots_evicted", report_.snapshots_made - report_.snapshots_evicted,
            stats.snapshots_resident);
    if (options_.snapshot_budget && !options_.snapshot_every &&
        report_.snapshots_made > *options_.snapshot_budget)
      wrong(fmt::format("{} snapshots were made", report_.snapshots_made));
    if (const auto found = node().audit().inconsistency) wrong(*found);
  }

  // Pages of full attention that fit the budget; without full attention, or a budget, any number does.
  std::optional<std::uint64_t> bound_capacity() const {
    if (options_.capacity_pages || !options_.host_bytes || report_.page_bytes == 0)
      return options_.capacity_pages;
    return *options_.host_bytes / report_.page_bytes;
  }

  bool expect_ok(std::string_view call, const Status& status) {
    if (!status.ok()) wrong(fmt::format("{}: {}", call, status.to_string()));
    return status.ok();
  }
  void wrong(std::string what) {
    constexpr std::size_t kKept = 20;  // enough to see the pattern
    if (report_.wrong.size() < kKept)
      report_.wrong.push_back(fmt::format("request {}: {}", report_.requests, std::move(what)));
  }

  const Trace& trace_;
  const ReplayOptions& options_;
  ReplayWorld& world_;
  SnapshotRule rule_;
  std::optional<ClassId> first_state_;  // snapshots are counted by it
  RequestId request_;
  std::uint64_t node_hit_tokens_ = 0;  // of all openings
  std::uint64_t left_at_restart_ = 0;  // pages that the host tier lost
  ReplayReport report_;
};

}  // namespace

std::string_view write_policy_name(WritePolicy policy) {
  switch (policy) {
    case WritePolicy::kWriteThrough:
      return "write_through";
    case WritePolicy::kWriteThroughSelective:
      return "write_through_selective";
    case WritePolicy::kWriteBack:
      return "write_back";
  }
  return "";
}

ModelSpec one_full_group() {
  ModelSpec spec;
  spec.model_type = "one full group";
  spec.page_tokens = kTraceBlockTokens;
  spec.topology = {1, 1, 1};
  Group group;
  group.kind = FullKind{};
  group.layers = {0};
  group.components = {{"kv", {1024}, DType::kBf16, 2048}};
  spec.groups.push_back(std::move(group));
  return spec;
}

SnapshotRule snapshot_rule_of(const ReplayOptions& options) {
  if (options.snapshots) return *options.snapshots;
  const bool windows_only = has_group<WindowKind>(options.spec) && !has_group<StateKind>(options.spec);
  return windows_only ? SnapshotRule::kAll : SnapshotRule::kEnd;
}

bool keeps_all_windows(const ReplayOptions& options) {
  return snapshot_rule_of(options) == SnapshotRule::kAll && has_group<WindowKind>(options.spec) &&
         !has_group<StateKind>(options.spec);
}

Status check_options(const ReplayOptions& options) {
  const auto bad = [](std::string what) { return Status{Code::kInvalidArgument, std::move(what)}; };
  const bool sparse = has_group<WindowKind>(options.spec) || has_group<StateKind>(options.spec);
  if (options.capacity_pages && options.host_bytes)
    return bad("--capacity-pages and --host-bytes are both given; one of them limits a replay");
  if (options.capacity_pages == 0)
    return bad("--capacity-pages must be at least 1 page, got 0; leave it out for no limit");
  if (options.host_bytes == 0)
    return bad("--host-bytes must be at least 1 byte, got 0; leave it out for no limit");
  if (options.snapshots && !sparse)
    return bad(
        "--snapshots: this model has no state and no window, so there is nothing to snapshot; leave it out");
  if (options.snapshot_every && !sparse)
    return bad(
        "--snapshot-every: this model has no state and no window, so there is nothing to snapshot; leave it "
        "out");
  if (options.snapshot_every == 0) return bad("--snapshot-every must be at least 1 page, got 0");
  if (options.snapshots == SnapshotRule::kBranch && !has_group<FullKind>(options.spec))
    return bad(
        "--snapshots branch: this model has no full group, so nothing says where a request leaves what is "
        "known; use end, all or advice");
  if (options.snapshot_budget && options.snapshots != SnapshotRule::kAdvice)
    return bad("--snapshot-budget limits what is advised; it needs --snapshots advice");
  if (options.disk && options.disk->path.empty()) return bad("--disk: the path is empty");
  if (options.restart_at && !options.disk && !options.remote)
    return bad("--restart-at needs --disk or --remote: without them nothing is warm after it");
  if (options.remote && options.remote->warm && options.disk)
    return bad("--remote-warm goes with no --disk: what the disk has is cleared, and so all of it");
  if (options.restart_at == 0) return bad("--restart-at must be at least 1 request, got 0");
  if (options.page_bytes == 0) return bad("--page-bytes must be at least 1, got 0");
  if (options.spec.page_tokens != kTraceBlockTokens)
    return bad(fmt::format("page tokens must be {}, a block of the trace, got {}", kTraceBlockTokens,
                           options.spec.page_tokens));
  return {};
}

Result<ReplayReport> replay(const Trace& trace, const ReplayOptions& options,
                            const ReplayProgress& progress) {
  TIERCEL_RETURN_IF_ERROR(check_options(options));
  TIERCEL_ASSIGN_OR_RETURN(const std::unique_ptr<ReplayWorld> world, ReplayWorld::open(trace, options));
  return Replayer(trace, options, *world).run(progress);
}

}  // namespace tiercel
