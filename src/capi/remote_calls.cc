// Calls of the ABI: the remote tier.
#include "capi/remote_calls.h"

#include <cstdlib>

#include "capi/handles.h"
#include "capi/options.h"

using namespace tiercel;        // NOLINT(google-build-using-namespace): the ABI's functions stand outside
using namespace tiercel::capi;  // NOLINT(google-build-using-namespace)

namespace {

// 0: the default that is there already.
template <typename Number>
void set(Number& to, Number from) {
  if (from != 0) to = from;
}
void set(Duration& to, std::uint64_t nanoseconds) {
  if (nanoseconds != 0) to = duration_of(nanoseconds);
}

void copy_tier(const RemoteStats& stats, tiercel_remote_stats& out) {
  out.exchange_bytes = stats.exchange_bytes;
  out.exchange_used_bytes = stats.exchange_used_bytes;
  out.unquiet_bytes = stats.unquiet_bytes;
  out.queued_bytes = stats.queued_bytes;
  out.lookups = stats.lookups;
  out.lookups_failed = stats.lookups_failed;
  out.names_asked = stats.names_asked;
  out.names_known = stats.names_known;
  out.reads = stats.reads;
  out.read_bytes = stats.read_bytes;
  out.reads_failed = stats.reads_failed;
  out.objects_read = stats.objects_read;
  out.object_bytes_read = stats.object_bytes_read;
  out.writes = stats.writes;
  out.written_bytes = stats.written_bytes;
  out.writes_failed = stats.writes_failed;
  out.objects_written = stats.objects_written;
  out.object_bytes_written = stats.object_bytes_written;
  out.direct_bytes = stats.direct_bytes;
  out.batches = stats.batches;
  out.batches_failed = stats.batches_failed;
  out.batches_late = stats.batches_late;
  out.damaged_objects = stats.damaged_objects;
  out.trips = stats.trips;
  out.clears = stats.clears;
  out.down = stats.down ? 1 : 0;
}

void copy_health(const RemoteHealth& health, tiercel_remote_stats& out) {
  out.batches_in_flight = health.batches_in_flight;
  out.starts = health.starts;
  out.kills = health.kills;
  out.pid = health.pid;
  out.ready = health.ready ? 1 : 0;
  write_text(health.why_not, out.why_not);
}

}  // namespace

Answer tiercel::capi::read_remote_options(const tiercel_remote_options* options, CoreOptions& core) {
  CoreRemote remote;
  tiercel_remote_options given{};
  if (options == nullptr) {
    const char* named = std::getenv("TIERCEL_REMOTE");  // NOLINT(concurrency-mt-unsafe): read at opening only
    if (named == nullptr || *named == '\0') return {};
    remote.address.url = named;
  } else {
    TIERCEL_RETURN_UNLESS_OK(read_options("remote", options, given));
    TIERCEL_RETURN_UNLESS_OK(read_text("remote: url", given.url, remote.address.url));
    if (remote.address.url.empty())
      return invalid("remote: url is NULL or empty; for example mooncake://127.0.0.1:50051");
  }
  TIERCEL_RETURN_UNLESS_OK(read_text("remote: connectors", given.connectors, remote.address.connectors));
  TIERCEL_RETURN_UNLESS_OK(read_text("remote: python", given.python, remote.address.python));
  if (given.config != nullptr)
    TIERCEL_RETURN_UNLESS_OK(read_text("remote: config", given.config, remote.address.config));
  set(remote.address.exchange_bytes, given.exchange_bytes);
  set(remote.tier.direct_bytes, given.direct_bytes);
  set(remote.tier.batch_bytes_max, given.batch_bytes_max);
  set(remote.tier.batch_deadline, given.batch_deadline_ns);
  set(remote.tier.runs.bytes_max, given.object_bytes_max);
  set(remote.tier.runs.pages_max, given.object_pages_max);
  set(remote.close_deadline, given.close_deadline_ns);
  remote.wait_ready = std::chrono::milliseconds(given.wait_ready_ms);
  RemoteSideOptions& side = core.node.remote;
  set(side.record_deadline, given.record_deadline_ns);
  set(side.selective_threshold, given.selective_threshold);
  TIERCEL_RETURN_UNLESS_OK(check_enum("remote: write_policy", given.write_policy, 0, TIERCEL_WRITE_BACK));
  if (given.write_policy != 0) side.write_policy = static_cast<WritePolicy>(given.write_policy - 1);
  core.remote = std::move(remote);
  return {};
}

tiercel_status tiercel_remote_stats_read(tiercel_node* node, tiercel_remote_stats* stats,
                                         tiercel_error* error) {
  return answer(error, [&]() -> Answer {
    TIERCEL_RETURN_UNLESS_OK(check(node));
    if (!node->core->has_remote())
      return unsupported(
          "remote_stats_read: the node has no remote tier; open it with "
          "tiercel_node_options.remote");
    tiercel_remote_stats out{};
    TIERCEL_RETURN_UNLESS_OK(node->core->locked([&](Live& live) -> Answer {
      const Stats& counted = live.node->stats();
      out.reading_bytes = counted.remote_reading_bytes;
      out.writing_bytes = counted.remote_writing_bytes;
      out.matches_waited = counted.remote_matches;
      out.hit_tokens = counted.remote_hit_tokens;
      out.writes_refused = counted.remote_refused;
      if (const RemoteTier* tier = node->core->remote()) {
        copy_tier(tier->stats(), out);
        copy_health(tier->health(), out);
        out.open = 1;
      }
      return {};
    }));
    return write_sized("remote_stats_read", out, stats);
  });
}
