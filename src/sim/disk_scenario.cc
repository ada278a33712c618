#include "sim/disk_scenario.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/prng.h"

namespace tiercel::sim {
namespace {

constexpr SpecName kSpecs[] = {
    {"disk", "the disk log alone on a drive that fails but does not lie"},
    {"disk_lying", "the disk log alone on a drive that loses, misplaces and changes what it was given"},
};

StorageForm form_of(const ModelSpec& spec) {
  auto form = make_storage_form(spec);
  TIERCEL_CHECK(form.has_value());
  return *std::move(form);
}

// Records of one block, of several, of one and of two shards.
std::vector<StorageForm> all_forms() {
  std::vector<StorageForm> forms;
  forms.push_back(form_of(make_scenario("hybrid", 1).models.front().spec));
  forms.push_back(form_of(make_scenario("big_snapshot", 1).models.front().spec));
  ModelSpec large = make_scenario("sharded", 1).models.front().spec;
  for (Component& each : large.groups.front().components) {
    each.shape = {1, 150};
    each.bytes_per_layer = 150;
  }
  forms.push_back(form_of(large));
  return forms;
}

void choose_options(DiskScenario& scenario, Prng& prng) {
  DiskLogOptions& options = scenario.options;
  options.region_bytes = 65536 * prng.between(1, 2);
  const std::uint64_t segments[] = {16384, 32768, 65536, 262144};
  options.segment_bytes = segments[prng.below(4)];
  options.index_entries = prng.between(200, 600);
  options.removals_max = prng.chance(0.2) ? prng.between(4, 12) : 512;
  const DiskAdmission rules[] = {DiskAdmission::kAll, DiskAdmission::kAll, DiskAdmission::kAuto,
                                 DiskAdmission::kSecondTouch};
  options.admission = rules[prng.below(4)];
  if (prng.chance(0.25)) options.write_bytes_per_day = prng.between(1, 20) * 50'000;
  options.reinsert_after = prng.chance(0.5) ? 0 : static_cast<std::uint32_t>(prng.between(1, 2));
  options.segments_in_flight = static_cast<std::uint32_t>(prng.between(1, 4));
  options.reads_in_flight = static_cast<std::uint32_t>(prng.between(1, 8));
  options.queued_bytes_max = prng.chance(0.3) ? prng.between(40'000, 120'000) : 1 << 20;
  options.flush_bytes = prng.between(1, 8) * 32768;
  options.flush_after = std::chrono::milliseconds(prng.between(5, 200));
  options.checkpoint_regions = prng.chance(0.3) ? 0 : static_cast<std::uint32_t>(prng.between(1, 4));
}

void choose_nature(DiskScenario& scenario, Prng& prng) {
  DriveNature& nature = scenario.nature;
  nature.depth = static_cast<std::uint32_t>(prng.chance(0.2) ? prng.between(1, 4) : prng.between(8, 64));
  if (prng.chance(0.2)) nature.latency_max = Duration{0};
  nature.late = prng.chance(0.3) ? 0.4 : 0.05;
  // Later than an image takes, so that there are gaps before what it names.
  if (prng.chance(0.25)) nature.late_max = std::chrono::milliseconds(400);
  if (scenario.troubled) {
    if (prng.chance(0.5)) nature.read_error = 0.01;
    if (prng.chance(0.5)) nature.write_error = 0.01;
    if (prng.chance(0.5)) nature.flush_error = 0.01;
    if (prng.chance(0.3)) nature.no_space = 0.01;
    if (prng.chance(0.3)) nature.stall = 0.003;
  }
  if (!scenario.lying) return;
  if (prng.chance(0.5)) nature.lost = 0.01;
  if (prng.chance(0.5)) nature.misdirected = 0.01;
  if (prng.chance(0.5)) nature.misread = 0.01;
  nature.rot = prng.chance(0.5) ? 0.05 : 0.005;
}

}  // namespace

std::span<const SpecName> disk_spec_names() { return kSpecs; }

bool is_disk_spec(std::string_view spec) {
  return std::any_of(std::begin(kSpecs), std::end(kSpecs),
                     [&](const SpecName& each) { return each.name == spec; });
}

DiskScenario make_disk_scenario(std::string_view spec, std::uint64_t seed) {
  Prng prng(mix64(seed) ^ 0xD15C5CE1);
  DiskScenario scenario;
  scenario.lying = spec == "disk_lying";
  scenario.forms = all_forms();
  scenario.spaces = static_cast<std::uint32_t>(prng.between(2, 5));
  scenario.troubled = prng.chance(0.4);
  scenario.crashes = prng.chance(0.85);
  const double removals[] = {0.0, 0.02, 0.02, 0.08};
  scenario.removals = removals[prng.below(4)];
  scenario.pages_max = prng.between(20, 120);
  choose_options(scenario, prng);
  scenario.uniform = prng.chance(0.2);
  if (scenario.uniform) {
    scenario.spaces = 1;
    scenario.forms.erase(scenario.forms.begin());
    scenario.options.segment_bytes = 8192;
    scenario.options.segments_in_flight = static_cast<std::uint32_t>(prng.between(3, 6));
  }
  if (prng.chance(0.3)) {  // much is written before it is flushed
    scenario.options.flush_bytes = 1 << 20;
    scenario.options.flush_after = std::chrono::seconds(5);
  }
  choose_nature(scenario, prng);
  // Superblocks, two images of about 140 KiB, and the regions.
  scenario.drive_bytes = (std::uint64_t{512} << 10) + prng.between(4, 14) * scenario.options.region_bytes;
  return scenario;
}

}  // namespace tiercel::sim
