// Calls of the ABI: the disk tier.
#include "capi/disk_calls.h"

#include <algorithm>

#include "capi/handles.h"
#include "capi/options.h"
#include "node/status_text.h"

using namespace tiercel;        // NOLINT(google-build-using-namespace): the ABI's functions stand outside
using namespace tiercel::capi;  // NOLINT(google-build-using-namespace)

namespace {

static_assert(static_cast<int>(DiskAdmission::kSecondTouch) == TIERCEL_ADMIT_SECOND_TOUCH - 1);
static_assert(static_cast<int>(PrefetchPolicy::kTimeout) == TIERCEL_PREFETCH_TIMEOUT - 1);

// 0: the default that is there already.
template <typename Number>
void set(Number& to, Number from) {
  if (from != 0) to = from;
}
void set(Duration& to, std::uint64_t nanoseconds) {
  if (nanoseconds != 0) to = duration_of(nanoseconds);
}
Answer set_share(std::string_view name, double& to, double from) {
  if (!(from >= 0 && from <= 1))
    return invalid(fmt::format("disk: {} is {}; wanted above 0, at most 1", name, from));
  if (from > 0) to = from;
  return {};
}

Answer no_disk(std::string_view call) {
  return unsupported(fmt::format("{}: the node has no disk; open it with tiercel_node_options.disk", call));
}

Answer check_prefetch(const tiercel_operation* operation, std::string_view call) {
  TIERCEL_RETURN_UNLESS_OK(check(operation));
  if (operation->operation->kind == OperationKind::kPrefetch) return {};
  return invalid(fmt::format("{}: the operation is no prefetch", call));
}

// body(Operation&) under the lock, once the prefetch has ended.
template <typename Body>
Answer with_result(const tiercel_operation* operation, std::string_view call, const Body& body) {
  bool ended = false;
  operation->core->peek([&](Live&) {
    ended = operation->operation->last;
    if (ended) body(*operation->operation);
  });
  if (ended) return {};
  return {TIERCEL_UNAVAILABLE, fmt::format("{}: the prefetch has not ended; wait for it", call)};
}

void copy_node_side(const Stats& stats, tiercel_disk_stats& out) {
  out.reading_bytes = stats.disk_reading_bytes;
  out.writing_bytes = stats.disk_writing_bytes;
  out.prefetch_bytes = stats.prefetch_bytes;
  out.matches_waited = stats.disk_matches;
  out.hit_tokens = stats.disk_hit_tokens;
  out.promoted = stats.promoted;
  out.promoted_bytes = stats.promoted_bytes;
  out.promotions_failed = stats.promotions_failed;
  out.promotions_joined = stats.promotions_joined;
  out.demoted = stats.demoted;
  out.demoted_bytes = stats.demoted_bytes;
  out.demotions_refused = stats.demotions_refused;
  out.prefetches = stats.prefetches;
  out.prefetched_pages = stats.prefetched_pages;
}

void copy_now(const DiskStats& stats, tiercel_disk_stats& out) {
  out.size_bytes = stats.size_bytes;
  out.live_bytes = stats.live_bytes;
  out.class_sets_now = stats.class_sets;
  out.index_entries = stats.index_entries;
  out.region_bytes = stats.region_bytes;
  out.regions = stats.regions;
  out.regions_free = stats.regions_free;
  out.host_bytes = stats.host_bytes;
  out.write_budget_bytes = stats.write_budget_bytes;
  out.write_budget_left = stats.write_budget_left;
  out.oldest_age_ns = static_cast<std::uint64_t>(stats.oldest_age.count());
  out.removals_now = stats.removals;
  out.down = stats.down ? 1 : 0;
  out.trips = stats.trips;
  out.io_errors = stats.io_errors;
  out.stalls = stats.stalls;
  out.recovered_class_sets = stats.recovered_class_sets;
  out.recovered_from_image = stats.recovered_from_image;
  out.recovered_from_footers = stats.recovered_from_footers;
  out.recovered_from_tail = stats.recovered_from_tail;
  out.recovery_read_bytes = stats.recovery_read_bytes;
  out.tail_segments_refused = stats.tail_segments_refused;
  out.footers_damaged = stats.footers_damaged;
  out.images_damaged = stats.images_damaged;
}

void copy_counts(const DiskStats& stats, tiercel_disk_stats& out) {
  const auto verdict = [&](DiskVerdict of) { return stats.verdicts[static_cast<std::size_t>(of)]; };
  out.appended = stats.appended;
  out.appended_bytes = stats.appended_bytes;
  out.written_bytes = stats.written_bytes;
  out.record_bytes = stats.record_bytes;
  out.directory_bytes = stats.directory_bytes;
  out.padding_bytes = stats.padding_bytes;
  out.footer_bytes = stats.footer_bytes;
  out.image_bytes = stats.image_bytes;
  out.reinserted = stats.reinserted;
  out.reinserted_bytes = stats.reinserted_bytes;
  out.lost = stats.lost;
  out.evicted = stats.evicted;
  out.regions_evicted = stats.regions_evicted;
  out.segments = stats.segments;
  out.flushes = stats.flushes;
  out.checkpoints = stats.checkpoints;
  out.refused_second_touch = verdict(DiskVerdict::kSecondTouch);
  out.refused_write_budget = verdict(DiskVerdict::kWriteBudget);
  out.refused_quota = verdict(DiskVerdict::kQuota);
  out.refused_too_large = verdict(DiskVerdict::kTooLarge);
  out.refused_no_room = verdict(DiskVerdict::kNoRoom);
  out.refused_rate_limited = verdict(DiskVerdict::kRateLimited);
  out.refused_tier_down = verdict(DiskVerdict::kTierDown);
  out.unrecorded = stats.unrecorded;
  out.reads = stats.reads;
  out.read_bytes = stats.read_bytes;
  out.read_failures = stats.read_failures;
}

}  // namespace

Answer tiercel::capi::read_disk_options(const tiercel_disk_options* options, CoreOptions& core) {
  if (options == nullptr) return {};
  tiercel_disk_options given{};
  TIERCEL_RETURN_UNLESS_OK(read_options("disk", options, given));
  CoreDisk disk;
  TIERCEL_RETURN_UNLESS_OK(read_text("disk: path", given.path, disk.path));
  if (disk.path.empty()) return invalid("disk: path is NULL or empty; name a file or a block device");
  disk.bytes = given.bytes;
  disk.log.region_bytes = given.region_bytes;
  disk.log.index_entries = given.index_entries;
  if (given.write_bytes_per_day != 0) disk.log.write_bytes_per_day = given.write_bytes_per_day;
  set(disk.log.queued_bytes_max, given.queued_bytes_max);
  set(disk.log.stall_after, given.stall_after_ns);
  set(disk.close_write_down, given.close_write_down_ns);
  disk.log.reinsert_after = given.reinsert_after;
  TIERCEL_RETURN_UNLESS_OK(check_enum("disk: admission", given.admission, 0, TIERCEL_ADMIT_SECOND_TOUCH));
  if (given.admission != 0) disk.log.admission = static_cast<DiskAdmission>(given.admission - 1);
  if (given.progress != nullptr)
    disk.progress = [call = given.progress, context = given.progress_context](
                        std::uint64_t done, std::uint64_t total) { call(context, done, total); };
  DiskTierOptions& tier = core.node.disk;
  TIERCEL_RETURN_UNLESS_OK(check_enum("disk: write_policy", given.write_policy, 0, TIERCEL_WRITE_BACK));
  if (given.write_policy != 0) tier.write_policy = static_cast<WritePolicy>(given.write_policy - 1);
  set(tier.selective_threshold, given.selective_threshold);
  set(tier.prefetch_threshold_tokens, given.prefetch_threshold_tokens);
  set(tier.prefetch_base, given.prefetch_base_ns);
  set(tier.prefetch_per_1024_tokens, given.prefetch_per_1024_tokens_ns);
  set(tier.record_deadline, given.record_deadline_ns);
  TIERCEL_RETURN_UNLESS_OK(set_share("prefetch_share", tier.prefetch_share, given.prefetch_share));
  TIERCEL_RETURN_UNLESS_OK(set_share("write_share", tier.write_share, given.write_share));
  TIERCEL_RETURN_UNLESS_OK(set_share("clean_share", tier.clean_share, given.clean_share));
  core.disk = std::move(disk);
  return {};
}

tiercel_status tiercel_node_write_down(tiercel_node* node, uint64_t deadline_ns, tiercel_write_down* report,
                                       tiercel_error* error) {
  return answer(error, [&]() -> Answer {
    TIERCEL_RETURN_UNLESS_OK(check(node));
    tiercel_write_down out{};
    TIERCEL_RETURN_UNLESS_OK(node->core->locked([&](Live& live) -> Answer {
      if (!node->core->disk_open(live)) return no_disk("write_down");
      if (report != nullptr) TIERCEL_RETURN_UNLESS_OK(write_sized("write_down", out, report));  // it can be
      const WriteDown done = node->core->write_down(live, duration_of(deadline_ns));
      out.class_sets = done.class_sets;
      out.bytes = done.bytes;
      out.left_class_sets = done.left_class_sets;
      out.took_ns = static_cast<std::uint64_t>(done.took.count());
      out.status = static_cast<tiercel_status>(done.status.code);
      write_text(done.status.message, out.message);
      return {};
    }));
    return report == nullptr ? Answer{} : write_sized("write_down", out, report);
  });
}

tiercel_status tiercel_prefetch(tiercel_namespace* ns, const tiercel_prefetch_options* options,
                                tiercel_operation** operation, tiercel_error* error) {
  return answer(error, [&]() -> Answer {
    TIERCEL_RETURN_UNLESS_OK(check(ns));
    tiercel_prefetch_options given{};
    TIERCEL_RETURN_UNLESS_OK(read_options("prefetch", options, given));
    TIERCEL_RETURN_UNLESS_OK(check_reserved("prefetch", given.reserved));
    TIERCEL_RETURN_UNLESS_OK(
        check_enum("prefetch: policy", given.policy, TIERCEL_PREFETCH_BEST_EFFORT, TIERCEL_PREFETCH_TIMEOUT));
    std::span<const tiercel_key> keys;
    PrefetchRequest request;
    TIERCEL_RETURN_UNLESS_OK(read_list("prefetch: keys", given.keys, given.key_count, keys));
    TIERCEL_RETURN_UNLESS_OK(read_list("prefetch: held", given.held, given.held_count, request.held));
    if (!ns->core->has_disk() && !ns->core->has_remote())
      return unsupported("prefetch: the node has neither a disk nor a remote tier to fetch from");
    const std::vector<Key> names = keys_of(keys);
    request.session = ns->session;
    request.ns = ns->id;
    request.keys = names;
    request.first_page = given.first_page;
    request.policy = static_cast<PrefetchPolicy>(given.policy - 1);
    if (given.deadline_ns != 0) request.deadline = duration_of(given.deadline_ns);
    Start start;
    TIERCEL_RETURN_UNLESS_OK(
        start.prepare(ns->core, OperationKind::kPrefetch, given.cq, given.user_data, operation != nullptr));
    TIERCEL_RETURN_UNLESS_OK(ns->core->locked([&](Live& live) -> Answer {
      if (ns->core->off()) return {TIERCEL_UNAVAILABLE, "prefetch: the cache is switched off (TIERCEL_OFF)"};
      if (!ns->core->has_remote() && !ns->core->disk_open(live)) return no_disk("prefetch");
      RequestName name(live, ns->session, given.request);
      request.request = name.id();
      const auto id = live.node->prefetch(request);
      if (!id) return id.error();
      name.keep();
      start.begin(live, *id);
      ns->core->look_now();
      ns->core->expect(given.deadline_ns, live);
      return {};
    }));
    start.give(operation);
    return {};
  });
}

tiercel_status tiercel_prefetch_result_read(const tiercel_operation* operation,
                                            tiercel_prefetch_result* result, tiercel_error* error) {
  return answer(error, [&]() -> Answer {
    TIERCEL_RETURN_UNLESS_OK(check_prefetch(operation, "prefetch_result_read"));
    tiercel_prefetch_result out{};
    TIERCEL_RETURN_UNLESS_OK(with_result(operation, "prefetch_result_read", [&](const Operation& op) {
      out.wanted_pages = op.prefetch.wanted_pages;
      out.brought_pages = op.prefetch.brought_pages;
      out.length = op.prefetch.length;
      out.status = static_cast<tiercel_status>(op.prefetch.status.code);
      write_text(op.prefetch.status.message, out.message);
    }));
    return write_sized("prefetch_result_read", out, result);
  });
}

tiercel_status tiercel_prefetch_reasons(const tiercel_operation* operation, tiercel_miss* misses,
                                        uint64_t capacity, uint64_t* count, tiercel_error* error) {
  return answer(error, [&]() -> Answer {
    TIERCEL_RETURN_UNLESS_OK(check_prefetch(operation, "prefetch_reasons"));
    std::vector<tiercel_miss> out;
    TIERCEL_RETURN_UNLESS_OK(with_result(operation, "prefetch_reasons",
                                         [&](const Operation& op) { out = misses_of(op.prefetch.missed); }));
    return write_list<tiercel_miss>("prefetch_reasons", out, misses, capacity, count);
  });
}

tiercel_status tiercel_disk_stats_read(tiercel_node* node, tiercel_disk_stats* stats, tiercel_error* error) {
  return answer(error, [&]() -> Answer {
    TIERCEL_RETURN_UNLESS_OK(check(node));
    if (!node->core->has_disk()) return no_disk("disk_stats_read");
    tiercel_disk_stats out{};
    TIERCEL_RETURN_UNLESS_OK(node->core->locked([&](Live& live) -> Answer {
      copy_node_side(live.node->stats(), out);
      if (const DiskStats* disk = node->core->disk_stats()) {
        copy_now(*disk, out);
        copy_counts(*disk, out);
      }
      out.open = node->core->disk_open(live) ? 1 : 0;
      return {};
    }));
    return write_sized("disk_stats_read", out, stats);
  });
}

tiercel_status tiercel_status_text(tiercel_node* node, char* text, uint64_t capacity, uint64_t* count,
                                   tiercel_error* error) {
  return answer(error, [&]() -> Answer {
    TIERCEL_RETURN_UNLESS_OK(check(node));
    std::string out;
    TIERCEL_RETURN_UNLESS_OK(node->core->locked([&](Live& live) -> Answer {
      out = status_text(live.node->stats(), node->core->disk_stats(), node->core->remote()) +
            node->core->disk_text() + node->core->remote_text();
      return {};
    }));
    return write_list<char>("status_text", out, text, capacity, count);
  });
}
