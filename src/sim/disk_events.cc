// What the log tells, into the book; and what cannot be: ends of what never began, twice, out of order.
#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "sim/disk_scene.h"

namespace tiercel::sim {
namespace {

void append_ended(DiskScene& scene, const DiskEvent& event) {
  const auto at = scene.appends.find(event.append);
  if (at == scene.appends.end())
    return scene.complain("disk_ends",
                          fmt::format("append {} ended, which was not under way", event.append.value()));
  const std::size_t number = at->second.number;
  bury(scene, std::move(at->second.records));
  scene.appends.erase(at);
  scene.view.touched.push_back(scene.book.append(number).set.page);
  if (event.kind == DiskEvent::Kind::kLost) {
    scene.book.lost(number, event.status.code == Code::kResourceExhausted);
    scene.view.note += fmt::format(" lost {}", number);
    scene.coverage.hit("disk_lost");
    if (event.status.ok()) scene.complain("disk_ends", "an append was lost without a reason");
    return;
  }
  if (event.at > scene.log->last_at())
    scene.complain("disk_ends",
                   fmt::format("written at {}, the log ends at {}", event.at, scene.log->last_at()));
  scene.book.written(number, event.at);
  scene.view.note += fmt::format(" written {} at {}", number, event.at);
}

void read_ended(DiskScene& scene, const DiskEvent& event) {
  const auto at = scene.reads.find(event.read);
  if (at == scene.reads.end())
    return scene.complain("disk_ends",
                          fmt::format("read {} ended, which was not under way", event.read.value()));
  PendingRead read = std::move(at->second);
  scene.reads.erase(at);
  ReadSeen seen;
  seen.set = read.set;
  seen.expected = read.expected;
  seen.status = event.status;
  seen.drive_failed = failures(scene) != read.failed_before;
  if (event.status.ok()) judge_records(scene, read.records, seen);
  bury(scene, std::move(read.records));
  // Damage is met as by the tier above: what is damaged is dropped.
  if (event.status.ok() && !seen.verified && scene.scenario.lying) {
    scene.log->drop(scene.name_of(seen.set));
    scene.book.dropped(seen.set);
    scene.coverage.hit("disk_damage_met");
  }
  if (!event.status.ok()) scene.coverage.hit("disk_read_failed");
  scene.view.touched.push_back(seen.set.page);
  scene.view.reads.push_back(std::move(seen));
}

void durable(DiskScene& scene, const DiskEvent& event) {
  if (event.at < scene.durable_told)
    scene.complain("disk_ends", fmt::format("durable at {} after {}", event.at, scene.durable_told));
  if (event.at > scene.log->last_at())
    scene.complain("disk_ends",
                   fmt::format("durable at {}, the log ends at {}", event.at, scene.log->last_at()));
  scene.durable_told = event.at;
  scene.book.durable(event.at);
  scene.view.note += fmt::format(" durable {}", event.at);
}

void evicted(DiskScene& scene, const DiskEvent& event) {
  const auto set = scene.set_of(event.name);
  if (!set) return scene.complain("disk_found", "something unknown was evicted");
  scene.view.touched.push_back(set->page);
  if (scene.leaving) return scene.leaving->push_back(*set);
  scene.view.note += fmt::format(" evicted page {} class {}", set->page, set->cls.value());
  // The log cannot know what removals of pages above have killed: that leaves, too, unseen until then.
  const auto numbers = scene.book.sets().find(*set);
  const bool dead = numbers != scene.book.sets().end() &&
                    std::any_of(numbers->second.begin(), numbers->second.end(),
                                [&](std::size_t number) { return !scene.book.surely_alive(number); });
  // What a failed flush took back may have been dropped, or told before.
  if (!scene.book.present(*set) && !dead && event.status.ok() && !scene.scenario.lying)
    scene.complain("disk_found", fmt::format("page {} class {} was evicted, and was not there", set->page,
                                             set->cls.value()));
  scene.book.evicted(*set);
  scene.coverage.hit("disk_evicted");
}

}  // namespace

std::uint64_t failures(const DiskScene& scene) {
  return scene.drive->counts().failed + scene.drive->counts().stalled + scene.log->stats().trips;
}

void collect_disk_events(DiskScene& scene) {
  if (scene.log == nullptr) return;
  for (const DiskEvent& event : scene.log->drain_events()) {
    ++scene.view.events;
    switch (event.kind) {
      case DiskEvent::Kind::kWritten:
      case DiskEvent::Kind::kLost:
        append_ended(scene, event);
        break;
      case DiskEvent::Kind::kDurable:
        durable(scene, event);
        break;
      case DiskEvent::Kind::kRead:
        read_ended(scene, event);
        break;
      case DiskEvent::Kind::kEvicted:
        evicted(scene, event);
        break;
      case DiskEvent::Kind::kCheckpoint:
        scene.coverage.hit("disk_checkpoint");
        break;
    }
  }
  const DiskStats& stats = scene.log->stats();
  if (stats.removals_folded != scene.folded_seen) {
    scene.folded_seen = stats.removals_folded;
    scene.book.folded();
    scene.coverage.hit("disk_removals_folded");
  }
}

}  // namespace tiercel::sim
