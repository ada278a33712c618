// The world's own doings, and which action comes next.

#include <algorithm>

#include <fmt/format.h>

#include "base/check.h"
#include "memory/record.h"
#include "sim/actions.h"
#include "sim/scene_below.h"
#include "sim/scene_disk.h"
#include "sim/scene_remote.h"

namespace tiercel::sim {
namespace {

// When the workload changes its ways, pages at the ends of old prompts go one by one: holes everywhere.
void remove_often(Scene& scene) {
  if (scene.scenario.weather.removals && scene.view.step % kPhaseSteps < kPhaseSteps / 2) remove_leaf(scene);
}

struct Choice {
  std::string_view name;
  void (*act)(Scene&);
  std::uint64_t weight;
};
constexpr Choice kChoices[] = {
    {"advance_request", advance_request, 600},
    {"run_tasks", run_tasks, 260},
    {"poll", poll_node, 250},
    {"start_load", start_load, 70},
    {"use_reservation", use_reservation, 40},
    {"reserve", reserve_pages, 30},
    {"fire_event", fire_event, 40},
    {"cancel", cancel_operation, 14},
    {"abort_request", abort_request, 10},
    {"attach_later", attach_later, 24},
    {"offer", offer_pages, 16},
    {"give_up_storing", give_up_storing, 6},
    {"advice", ask_advice, 8},
    {"release_ticket", release_ticket, 24},
    {"remove", remove_page, 9},
    {"remove_often", remove_often, 60},
    {"replace_page", replace_page, 14},
    {"clear", clear_pages, 3},
    {"next_epoch", next_epoch, 2},
    {"pin", pin_pages, 10},
    {"touch", touch_pages, 5},
    {"replace_memory", replace_memory, 8},
    {"suspend_or_resume", suspend_or_resume, 3},
    {"close_session", close_session, 3},
    {"jump_clock", jump_clock, 12},
    {"damage", damage_record, 24},
    {"reader", act_reader, 120},
    {"fail_device", fail_device, 10},
    {"writer", act_writer, 70},  // last: runs without writers are as if it were not there
};
// In runs over a disk, so often beside all others.
constexpr Choice kDiskChoices[] = {
    {"advance_drive", advance_drive, 300}, {"prefetch", prefetch_pages, 25},       {"flush", flush_disk, 6},
    {"trouble_drive", trouble_drive, 4},   {"remove_awaited", remove_awaited, 40},
};

// In runs over a store, too.
constexpr Choice kRemoteChoices[] = {
    {"advance_store", advance_store, 400},       {"prefetch", prefetch_pages, 25},
    {"trouble_store", trouble_store, 16},        {"spoil_store", spoil_store, 12},
    {"neighbour_stores", neighbour_stores, 140}, {"neighbour_looks", neighbour_looks, 12},
    {"neighbour_clears", neighbour_clears, 1},   {"remove_awaited", remove_awaited, 3},
    {"clear_storing", clear_storing, 10},
};

const Choice* choose_of(Scene& scene, std::span<const Choice> choices) {
  std::uint64_t total = 0;
  for (const Choice& choice : choices) total += choice.weight;
  std::uint64_t at = scene.prng.below(total);
  const Choice* chosen = choices.data();
  while (at >= chosen->weight) at -= (chosen++)->weight;
  return chosen;
}

const Choice* choose_for_below(Scene& scene) {
  if (scene.remote != nullptr && scene.prng.chance(0.35)) return choose_of(scene, kRemoteChoices);
  if (scene.disk != nullptr && scene.prng.chance(0.3)) return choose_of(scene, kDiskChoices);
  return nullptr;
}

// A record that a layered load has still to read, after its first layer was told.
struct Victim {
  const AuditResidence* residence = nullptr;
  const SimOperation* load = nullptr;
};
Victim read_by_layered_load(const Scene& scene, const std::vector<const AuditResidence*>& from) {
  for (const auto& [id, operation] : scene.operations) {
    if (operation.kind != SimOperation::Kind::kLoad || operation.ended() || operation.ready.empty()) continue;
    const SimTicket& ticket = scene.tickets.at(operation.ticket);
    for (const AuditResidence* each : from) {
      if (each->ns != scene.spaces[ticket.space].id) continue;
      const auto key = std::find(ticket.keys.begin(), ticket.keys.end(), each->key);
      if (key == ticket.keys.end()) continue;
      const auto page = ticket.first_page + static_cast<std::uint64_t>(key - ticket.keys.begin());
      if (page < operation.load.length && ticket.leases.contains({page, each->cls}))
        return {each, &operation};
    }
  }
  return {};
}

// A byte of the payload, or of the header's first words; of a layer that is still to come, if there is such a
// load.
std::uint64_t position_to_damage(Scene& scene, const ClassForm& cls, const SimOperation* load) {
  if (load == nullptr && scene.prng.chance(0.2)) {
    scene.coverage.hit("damage_header");
    return scene.prng.below(16);
  }
  scene.coverage.hit("damage_payload");
  if (load != nullptr)
    for (const LayerRun& run : cls.layers)
      if (!load->ready.contains(run.layer))
        return header_bytes(cls) + run.offset + scene.prng.below(run.length);
  return header_bytes(cls) + scene.prng.below(cls.record_bytes);
}

}  // namespace

void act_reader(Scene& scene) { scene.readers->act(scene); }
void act_writer(Scene& scene) { scene.writers->act(scene); }

void run_tasks(Scene& scene) { scene.executor->run_some(scene.prng.between(1, 10)); }

void poll_node(Scene& scene) {
  const std::uint64_t ran = scene.executor->ran();
  scene.node->poll();
  scene.ran_before_poll = ran;
  scene.view.polled = true;
}

void jump_clock(Scene& scene) {
  if (!scene.scenario.weather.clock_jumps) return;
  const bool far = scene.prng.chance(0.15);
  scene.clock.advance(
      std::chrono::milliseconds(far ? scene.prng.between(9000, 45000) : scene.prng.between(100, 3000)));
}

void damage_record(Scene& scene) {
  if (!scene.scenario.weather.damage || scene.calm) return;
  std::vector<const AuditResidence*> sound;
  for (const AuditResidence& each : scene.view.before.residences) {
    if (each.state != ResidenceState::kResident || !each.page_visible || each.writing || each.storing)
      continue;
    const PageRecord* record = scene.book.find({each.ns, each.key});
    if (record != nullptr && record->visible && !record->damaged.contains(each.cls) &&
        !scene.readers->holds(each.ns, each.key, each.cls, scene))
      sound.push_back(&each);
  }
  if (sound.empty()) return;
  const Victim read = read_by_layered_load(scene, sound);
  const bool chosen = read.residence != nullptr && scene.prng.chance(0.7);
  const AuditResidence* victim = chosen ? read.residence : sound[scene.prng.below(sound.size())];
  const Space& space = scene.spaces[scene.space_of.at(victim->ns)];
  const ClassForm& cls = scene.form_of(space).classes[victim->cls.value()];
  const auto& spans = victim->spans[scene.prng.below(victim->spans.size())];
  scene.view.note = fmt::format("page {} class {}", to_hex(victim->key).substr(0, 6), cls.name);
  scene.arena->damage(spans, position_to_damage(scene, cls, chosen ? read.load : nullptr));
  scene.book.damaged({victim->ns, victim->key}, victim->cls);
  ++scene.disturbances;
}

void fail_device(Scene& scene) {
  if (!scene.scenario.weather.device_errors || scene.calm) return;
  if (scene.prng.chance(0.5))
    scene.device->fail_read(scene.prng.below(12));
  else
    scene.device->fail_write(scene.prng.below(12));
}

std::string act(Scene& scene) {
  if (scene.suspended && scene.prng.chance(0.06)) {  // an engine does not sleep for long
    suspend_or_resume(scene);
    return "resume";
  }
  // A drive that lies about a removal gives back what was removed, and nobody can know: there none is made.
  const bool keeps_all = scene.disk != nullptr && scene.scenario.disk->nature.lies();
  const auto removes = [](const Choice& choice) {
    return choice.act == remove_page || choice.act == remove_often || choice.act == replace_page ||
           choice.act == clear_pages || choice.act == next_epoch;
  };
  if (const Choice* choice = choose_for_below(scene)) {
    scene.clock.advance(std::chrono::milliseconds(scene.prng.below(20)));
    choice->act(scene);
    return std::string(choice->name);
  }
  std::uint64_t total = 0;
  for (const Choice& choice : kChoices)
    if (choice.act != act_writer || scene.writers->any()) total += choice.weight;
  std::uint64_t at = scene.prng.below(total);
  for (const Choice& choice : kChoices) {
    if (at < choice.weight) {
      scene.clock.advance(std::chrono::milliseconds(scene.prng.below(20)));
      if (keeps_all && removes(choice)) return "nothing";
      // Each takes its whole namespace out of a store's reach: with fewer there is something to be reached.
      if (scene.remote != nullptr && removes(choice) && scene.prng.chance(0.85)) return "nothing";
      choice.act(scene);
      return std::string(choice.name);
    }
    at -= choice.weight;
  }
  return "nothing";
}

}  // namespace tiercel::sim
