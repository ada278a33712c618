#include "sim/scenario.h"

#include <algorithm>

#include "base/check.h"
#include "base/prng.h"
#include "model/storage_form.h"
#include "sim/disk_scenario.h"

namespace tiercel::sim {
namespace {

Component component(std::string name, std::vector<std::uint64_t> shape) {
  std::uint64_t bytes = 1;
  for (const std::uint64_t axis : shape) bytes *= axis;
  return {std::move(name), std::move(shape), DType::kU8, bytes};
}
Group full(std::vector<std::uint32_t> layers, std::uint64_t head_bytes) {
  return {FullKind{},
          Need::kRequired,
          std::move(layers),
          {component("k", {1, head_bytes}), component("v", {1, head_bytes})},
          false,
          1};
}
Group window(std::vector<std::uint32_t> layers, std::uint64_t tokens, std::uint64_t head_bytes) {
  Group group = full(std::move(layers), head_bytes);
  group.kind = WindowKind{tokens};
  group.need = Need::kSparse;
  return group;
}
Group state(std::vector<std::uint32_t> layers, std::uint64_t conv, std::uint64_t temporal) {
  return {StateKind{},
          Need::kSparse,
          std::move(layers),
          {component("conv0", {conv}), component("temporal", {temporal / 8, 8})},
          false,
          1};
}
Group index_keys(std::uint32_t of, std::vector<std::uint32_t> layers) {
  return {FollowerKind{of}, Need::kRequired, std::move(layers), {component("index_k", {2})}, true, 1};
}
Group draft(std::uint32_t of, std::vector<std::uint32_t> layers) {
  Group group{FollowerKind{of},
              Need::kOptional,
              std::move(layers),
              {component("k", {1, 2}), component("v", {1, 2})},
              false,
              1};
  return group;
}

ModelSpec model(std::uint64_t page_tokens, std::uint32_t tp, std::vector<Group> groups) {
  ModelSpec spec;
  spec.model_type = "simulated";
  spec.page_tokens = page_tokens;
  spec.topology = {tp, 1, 1};
  spec.groups = std::move(groups);
  for (const Group& group : spec.groups)
    if (group.need == Need::kOptional)
      spec.draft_layers.insert(spec.draft_layers.end(), group.layers.begin(), group.layers.end());
  return spec;
}

ModelSpec hybrid(std::uint64_t page_tokens, std::uint32_t tp) {
  return model(page_tokens, tp,
               {full({1, 5}, 2), window({2, 4}, page_tokens * 2 + 9, 2), state({0, 3}, 24, 160),
                index_keys(0, {1, 5}), draft(0, {6})});
}

constexpr SpecName kSpecs[] = {
    {"full", "one full group, page 16"},
    {"full_window", "full and a window of 3 pages, page 16"},
    {"full_state", "full and a recurrent state, page 64"},
    {"hybrid", "full, window, state, replicated index keys, draft; page 16, 2 shards"},
    {"window", "window only, page 64"},
    {"state", "state only, page 528"},
    {"sharded", "full and window, page 16, 2 shards"},
    {"adapters", "two models under 50 adapters, and one of them with a draft: another form"},
    {"big_snapshot", "full and a state whose snapshot takes several extents, page 528"},
    {"window_state", "window and state without a full group, page 16, 2 shards"},
    {"full_disk", "as full, over a disk"},
    {"hybrid_disk", "as hybrid, over a disk"},
    {"full_state_disk", "as full_state, over a disk"},
    {"adapters_disk", "as adapters, over a disk"},
    {"window_state_disk", "as window_state, over a disk"},
    {"state_disk", "as state, over a disk"},
    {"sharded_lying_disk", "as sharded, over a drive that lies"},
    {"full_remote", "as full, over a store that others use, too"},
    {"hybrid_remote", "as hybrid, over such a store"},
    {"state_remote", "as state, over such a store"},
    {"full_disk_remote", "as full, over a disk and such a store"},
};

bool over_remote(std::string_view name) { return name.ends_with("_remote"); }
std::string_view without_remote(std::string_view name) {
  if (over_remote(name)) name.remove_suffix(std::string_view("_remote").size());
  return name;
}
bool over_disk(std::string_view name) { return without_remote(name).ends_with("_disk"); }
bool over_lies(std::string_view name) { return without_remote(name).ends_with("_lying_disk"); }

std::vector<ScenarioModel> models_of(std::string_view name) {
  name = without_remote(name);
  if (over_lies(name)) name.remove_suffix(std::string_view("_lying_disk").size());
  if (over_disk(name)) name.remove_suffix(std::string_view("_disk").size());
  if (name == "full") return {{model(16, 1, {full({0, 1, 2}, 4)}), 2, "r1"}};
  if (name == "full_window") return {{model(16, 1, {full({1, 3}, 4), window({0, 2}, 40, 4)}), 2, "r1"}};
  if (name == "full_state") return {{model(64, 1, {full({1}, 2), state({0, 2}, 16, 400)}), 2, "r1"}};
  if (name == "hybrid") return {{hybrid(16, 2), 2, "r1"}};
  if (name == "window") return {{model(64, 1, {window({0, 1}, 150, 2)}), 2, "r1"}};
  if (name == "state") return {{model(528, 1, {state({0, 1}, 40, 320)}), 2, "r1"}};
  if (name == "sharded") return {{model(16, 2, {full({0, 2}, 3), window({1}, 33, 4)}), 2, "r1"}};
  if (name == "adapters")
    return {{model(16, 1, {full({0, 1}, 4)}), 25, "r1"},
            {model(16, 1, {full({0, 1}, 4), draft(0, {2})}), 10, "r1"},
            {model(64, 2, {full({1}, 2), state({0}, 16, 160)}), 15, "r2"}};
  if (name == "big_snapshot") return {{model(528, 1, {full({1}, 1), state({0}, 64, 9600)}), 2, "r1"}};
  if (name == "window_state") return {{model(16, 2, {window({1}, 40, 4), state({0, 2}, 16, 120)}), 2, "r1"}};
  TIERCEL_CHECK(name.empty());  // not one of spec_names()
  return {};
}

StorageForm form_of(const ScenarioModel& model) {
  auto form = make_storage_form(model.spec);
  TIERCEL_CHECK(form.has_value());
  return *std::move(form);
}

std::uint64_t largest_record(const std::vector<ScenarioModel>& models) {
  std::uint64_t largest = 0;
  for (const ScenarioModel& each : models) {
    const StorageForm form = form_of(each);
    for (const ClassForm& cls : form.classes) largest = std::max(largest, cls.record_bytes);
  }
  return largest;
}

std::uint64_t page_bytes(const std::vector<ScenarioModel>& models) {
  std::uint64_t bytes = 0;
  const StorageForm form = form_of(models.front());
  for (const ClassForm& cls : form.classes) bytes += cls.set_bytes();
  return bytes;
}

void choose_bounds(Scenario& scenario, Prng& prng) {
  NodeOptions& options = scenario.options;
  const std::uint64_t page = page_bytes(scenario.models);
  if (prng.chance(0.15)) options.record_bytes_max = page * prng.between(1, 8) + prng.below(page);
  if (prng.chance(0.03)) options.record_bytes_max = page / 2;
  if (prng.chance(0.15)) options.pages_max = prng.between(1, 10);
  const std::uint64_t largest = largest_record(scenario.models);
  if (prng.chance(0.3) || scenario.arena_bytes / 4 < largest)
    options.in_flight_bytes_max = largest * prng.between(1, 3);
  const double shares[] = {0.25, 0.5, 1.0};
  options.client_share = shares[prng.below(3)];
  if (prng.chance(0.15)) options.operations_max = static_cast<std::uint32_t>(prng.between(2, 5));
  if (prng.chance(0.15)) options.tickets_max = static_cast<std::uint32_t>(prng.between(2, 5));
  if (scenario.weather.lost_events) options.events_max = static_cast<std::uint32_t>(prng.between(2, 6));
  if (prng.chance(0.3)) options.move_bytes_max = options.extent_bytes * prng.below(3);
  if (prng.chance(0.3)) options.ticket_ttl = std::chrono::milliseconds(prng.between(200, 4000));
  if (prng.chance(0.4)) options.reservation_ttl = std::chrono::milliseconds(prng.between(200, 6000));
  if (prng.chance(0.3)) options.operation_deadline = std::chrono::milliseconds(prng.between(200, 4000));
  if (prng.chance(0.3)) options.snapshot_budget = prng.below(6);
  if (prng.chance(0.06)) options.requests_max = static_cast<std::uint32_t>(prng.between(2, 4));
  if (prng.chance(0.06)) options.completions_max = static_cast<std::uint32_t>(prng.between(1, 4));
  scenario.quotas = prng.chance(0.3);
}

void choose_size(Scenario& scenario, Prng& prng) {
  NodeOptions& options = scenario.options;
  const std::uint64_t extents_of_size[] = {4096, 8192, 16384};
  options.extent_bytes = scenario.spec == "big_snapshot" ? 4096 : extents_of_size[prng.below(3)];
  options.index_pages_max = prng.chance(0.15) ? prng.between(6, 20) : 1024;
  options.index_strips_max = prng.chance(0.2) ? prng.between(4, 24) : 0;
  scenario.history_complete = !prng.chance(0.15);
  options.history_entries = scenario.history_complete ? 8192 : prng.between(1, 12);
  // Between a handful of pages and, now and then, one extent less than the largest record needs.
  const std::uint64_t extents = prng.chance(0.1) ? prng.between(1, 4) : prng.between(6, 30);
  scenario.arena_bytes = extents * options.extent_bytes;
  options.advice_entries = 64;  // few, so that notes are overwritten
  options.host_bytes = scenario.arena_bytes + book_bytes(options);
}

ScenarioDisk choose_disk(Scenario& scenario, std::uint64_t seed) {
  Prng prng(mix64(seed ^ 0xD15C0));
  ScenarioDisk disk;
  disk.log.region_bytes = (64 << 10) * prng.between(1, 6);
  disk.log.segment_bytes = (16 << 10) * prng.between(1, 4);
  disk.log.index_entries = prng.chance(0.2) ? 256 : 4096;
  disk.bytes = disk.log.region_bytes * prng.between(6, 24) + (2 << 20);  // seldom full
  disk.log.admission = static_cast<DiskAdmission>(prng.below(3));
  if (prng.chance(0.15)) disk.log.write_bytes_per_day = prng.between(1, 64) << 18;
  disk.log.reinsert_after = prng.chance(0.3) ? static_cast<std::uint32_t>(prng.between(1, 4)) : 0;
  disk.log.reads_in_flight = static_cast<std::uint32_t>(prng.between(1, 16));
  disk.log.segments_in_flight = static_cast<std::uint32_t>(prng.between(1, 4));
  disk.log.flush_after = std::chrono::milliseconds(prng.between(5, 300));
  disk.troubled = prng.chance(0.4);
  disk.crashes = prng.chance(0.7);
  if (disk.troubled) disk.nature.read_error = disk.nature.write_error = 0.02;
  if (over_lies(scenario.spec)) {
    disk.nature.lost = disk.nature.misdirected = disk.nature.misread = 0.01;
    disk.nature.rot = 0.02;
    disk.nature.flip = 0.15;
  }
  DiskTierOptions& tier = scenario.options.disk;
  tier.write_policy = static_cast<WritePolicy>(prng.below(3));
  tier.prefetch_threshold_tokens = prng.chance(0.5) ? 0 : 256;
  tier.prefetch_base = std::chrono::milliseconds(prng.between(1, 300));
  tier.record_deadline = std::chrono::milliseconds(prng.between(50, 5000));
  if (prng.chance(0.5)) {  // so small that what is on the disk leaves it while the rest of it is in memory
    disk.log.region_bytes = 64 << 10;
    disk.log.segment_bytes = 16 << 10;
    disk.log.admission = DiskAdmission::kAll;
    disk.log.index_entries = 4096;
    // Superblocks and two images of about 300 KiB, and the regions.
    disk.bytes = (640 << 10) + disk.log.region_bytes * prng.between(4, 7);
  }
  scenario.readers = scenario.writers = 0;  // they are lost with everything else
  scenario.weather.lost_events = false;
  scenario.options.events_max = NodeOptions{}.events_max;
  scenario.options.off = false;
  return disk;
}

TwinNature choose_nature(Prng& prng) {
  TwinNature nature;
  nature.exchange_bytes = 32768U << prng.below(5);
  nature.batches_max = static_cast<std::uint32_t>(prng.chance(0.2) ? prng.between(1, 4) : 64);
  nature.latency_max = std::chrono::microseconds(prng.between(100, 5000));
  if (prng.chance(0.5)) nature.slow = 0.08;
  if (prng.chance(0.6)) nature.item_failed = prng.chance(0.5) ? 0.03 : 0.15;
  if (prng.chance(0.4)) nature.batch_down = 0.06;
  if (prng.chance(0.4)) nature.sizes_unknown = 0.5;
  nature.tears_late = 0.5;
  return nature;
}

ScenarioRemote choose_remote(Scenario& scenario, std::uint64_t seed) {
  Prng prng(mix64(seed ^ 0x4E307E));
  ScenarioRemote remote;
  remote.nature = choose_nature(prng);
  remote.neighbours = choose_nature(prng);
  remote.troubled = prng.chance(0.6);
  remote.spoilt = prng.chance(0.7);
  remote.clears = prng.chance(0.4);
  if (remote.spoilt) {
    remote.nature.damages = prng.chance(0.5) ? 0.03 : 0;
    remote.nature.misreads = prng.chance(0.7) ? 0.3 : 0;
    remote.nature.forgets = remote.neighbours.forgets = prng.chance(0.5) ? 0.05 : 0;
  }
  if (prng.chance(0.4))
    remote.nature.objects_bytes_max = remote.neighbours.objects_bytes_max = prng.between(8, 120) << 10;
  RemoteTierOptions& tier = remote.tier;
  tier.runs.pages_max = 1U << prng.below(4);
  tier.batch_deadline = std::chrono::milliseconds(prng.between(20, 1000));
  tier.batch_bytes_max = prng.chance(0.3) ? 8192 : 64 << 20;
  tier.reads_in_flight = static_cast<std::uint32_t>(prng.between(1, 4));
  tier.writes_in_flight = static_cast<std::uint32_t>(prng.between(1, 3));
  tier.gather_for = std::chrono::milliseconds(remote.clears ? prng.between(100, 600) : prng.between(1, 60));
  tier.known_for = std::chrono::milliseconds(prng.between(50, 5000));
  tier.absent_for = std::chrono::milliseconds(prng.between(10, 1000));
  tier.known_entries = prng.chance(0.2) ? 16 : 4096;
  tier.marker_refresh = std::chrono::milliseconds(prng.between(50, 2000));
  tier.retry_after = std::chrono::milliseconds(prng.between(20, 500));
  tier.retry_after_max = std::chrono::seconds(1);
  Prng places(mix64(seed ^ 0xD12EC7));
  remote.nature.reaches = places.chance(0.6);
  remote.neighbours.reaches = places.chance(0.3);
  tier.direct_bytes = places.chance(0.5) ? 1 : places.between(200, 4000);
  RemoteSideOptions& side = scenario.options.remote;
  side.write_policy = prng.chance(0.6) ? WritePolicy::kWriteThrough : static_cast<WritePolicy>(prng.below(3));
  side.record_deadline = std::chrono::milliseconds(prng.between(20, 5000));
  // So few pages in memory that most are asked for below, and few removals: each clears its namespace there.
  if (prng.chance(0.7)) scenario.options.pages_max = prng.between(4, 12);
  if (prng.chance(0.8)) scenario.options.record_bytes_max.reset();
  scenario.branches = prng.between(1, 2);
  scenario.prompt_pages_max = prng.between(3, 9);
  scenario.weather.removals = false;
  scenario.options.disk.prefetch_threshold_tokens = prng.chance(0.5) ? 0 : 256;
  scenario.options.disk.prefetch_base = std::chrono::milliseconds(prng.between(1, 300));
  scenario.weather.lost_events = false;
  scenario.options.events_max = NodeOptions{}.events_max;
  scenario.options.off = false;
  return remote;
}

}  // namespace

std::span<const SpecName> spec_names() { return kSpecs; }

std::string_view spec_of_seed(std::uint64_t seed) {
  const auto disk = disk_spec_names();
  const std::uint64_t number = seed % (std::size(kSpecs) + disk.size());
  return number < std::size(kSpecs) ? kSpecs[number].name : disk[number - std::size(kSpecs)].name;
}

Scenario make_scenario(std::string_view spec, std::uint64_t seed) {
  Prng prng(mix64(seed) ^ 0x5CE1A210);
  Scenario scenario;
  scenario.spec = spec;
  scenario.models = models_of(spec);
  NodeOptions& options = scenario.options;
  options.policy = static_cast<PolicyKind>(prng.below(4));
  options.write_policy = static_cast<WritePolicy>(prng.below(3));
  options.retention = prng.chance(0.3) ? SparseRetention::kAll : SparseRetention::kAtPoints;
  scenario.weather.damage = prng.chance(0.6);
  scenario.weather.device_errors = prng.chance(0.4);
  scenario.weather.lost_events = prng.chance(0.08);
  scenario.weather.slow_copies = prng.chance(0.25);
  scenario.weather.removals = prng.chance(0.3);
  scenario.weather.clock_jumps = prng.chance(0.7);
  // Where reads need not be verified, damage may be delivered by right: then nothing is damaged.
  if (!scenario.weather.damage) options.verification = static_cast<Verification>(prng.below(3));
  options.sampled_one_in = 3;
  if (prng.chance(0.2)) options.load_back_threshold_tokens = prng.between(0, 40);
  scenario.executor.in_order = prng.chance(0.2);
  scenario.executor.at_once = prng.chance(0.05);
  scenario.executor.held_back = scenario.weather.slow_copies ? 0.3 : 0.05;
  scenario.sessions = static_cast<std::uint32_t>(prng.between(1, 3));
  scenario.salts = scenario.sessions == 1 ? 1 : 2;
  scenario.prompt_pages_max = prng.between(4, 14);
  choose_size(scenario, prng);
  choose_bounds(scenario, prng);
  scenario.readers = static_cast<std::uint32_t>(prng.below(3));
  scenario.mapped_arena = prng.chance(0.25);
  options.off = prng.chance(0.02);
  Prng writers(mix64(seed ^ 0x3217E25));
  scenario.writers = writers.chance(0.5) ? 0 : static_cast<std::uint32_t>(writers.between(1, 3));
  if (writers.chance(0.5)) options.writer_grace = std::chrono::milliseconds(writers.below(3000));
  if (over_disk(spec)) scenario.disk = choose_disk(scenario, seed);
  if (over_remote(spec)) scenario.remote = choose_remote(scenario, seed);
  return scenario;
}

}  // namespace tiercel::sim
