// Copies on their way to the executor and back, within the bytes that may be in flight.

#include <algorithm>

#include "base/check.h"
#include "base/fault.h"
#include "node/state.h"

namespace tiercel {

RecordPlace Node::State::place_of(const Residence& residence, ShardId shard) const {
  const Namespace& ns = *namespaces.at(residence.ns);
  RecordPlace place;
  place.form = ns.form->form;
  place.cls = residence.cls;
  place.spans = space.spans(residence.pool, residence.slots[shard.value()]);
  place.label.root = ns.root;
  place.label.key = residence.key;
  place.label.cls = residence.cls;
  place.label.shard = shard;
  place.label.generation = residence.generation;
  if (residence.page != nullptr) place.label.external = residence.page->external;
  return place;
}

void Node::State::queue_copy(PendingCopy copy, std::uint64_t after_event) {
  ++residences.at(copy.residence)->copies;
  const bool waits = after_event != 0 && !events_fired.contains(after_event);
  if (waits)
    waiting_for_event[after_event].push_back(std::move(copy));
  else
    pending_copies.push_back(std::move(copy));
}

void Node::State::pump() {
  while (!pending_copies.empty()) {
    PendingCopy& next = pending_copies.front();
    if (stats.in_flight_bytes + next.bytes > options.in_flight_bytes_max) return;
    stats.in_flight_bytes += next.bytes;
    running_copies[{next.operation, next.index}] =
        RunningCopy{next.residence, next.bytes, next.copy.kind, next.copy.verify, next.verifies};
    std::unique_ptr<Task> task = make_copy_task(next.operation, next.index, std::move(next.copy), world.arena,
                                                world.device, copies_done);
    pending_copies.pop_front();
    world.executor.submit(std::move(task));
  }
}

std::uint64_t Node::State::drop_pending(OperationId operation) {
  std::uint64_t dropped = 0;
  const auto ours = [&](const PendingCopy& copy) {
    if (copy.operation != operation) return false;
    if (Residence* set = residence(copy.residence); set != nullptr) --set->copies;
    ++dropped;
    return true;
  };
  std::erase_if(pending_copies, ours);
  for (auto at = waiting_for_event.begin(); at != waiting_for_event.end();) {
    std::erase_if(at->second, ours);
    at = at->second.empty() ? waiting_for_event.erase(at) : std::next(at);
  }
  return dropped;
}

std::size_t Node::State::finish_copies() {
  const std::vector<CopyDone> ended = copies_done->drain();
  for (const CopyDone& done : ended) {
    const auto running = running_copies.find({done.operation, done.index});
    TIERCEL_CHECK(running != running_copies.end());
    const RunningCopy copy = running->second;
    running_copies.erase(running);
    const auto load = loads.find(done.operation);
    const auto store = stores.find(done.operation);
    const bool forgets = TIERCEL_FAULT(forget_budget_return) && load != loads.end() && load->second.ending;
    if (!forgets) stats.in_flight_bytes -= copy.bytes;
    Residence* set = residence(copy.residence);
    if (set != nullptr && set->copies != 0) --set->copies;
    if (load != loads.end()) {
      load->second.items[done.index].status = done.status;
      if (done.status.ok() && set != nullptr) set->verified |= copy.verifies;
      if (done.status.ok() && copy.kind == CopyKind::kLoad)
        (copy.verify ? stats.verified_bytes : stats.unverified_bytes) += copy.bytes;
      if (--load->second.outstanding == 0) load_step(load->second);
    } else if (store != stores.end()) {
      const bool in_place = copy.kind == CopyKind::kSeal;
      if (done.status.ok()) ++(in_place ? stats.records_written_in_place : stats.records_copied_in);
      store_copy_done(store->second, done.index, done.status);
    } else if (copy.kind == CopyKind::kAdopt && set != nullptr) {
      adopt_done(*set, ShardId(static_cast<std::uint16_t>(done.index)), done.status, copy.verifies);
    }
    if (set = residence(copy.residence); set != nullptr) free_if_unused(*set);
  }
  return ended.size();
}

void Node::event_done(std::uint64_t event) {
  constexpr std::size_t kEventsMax = 65536;
  State& s = *state_;
  if (event == 0 || !s.events_fired.insert(event).second) return;
  s.events_fired_order.push_back(event);
  if (s.events_fired_order.size() > kEventsMax) {
    s.events_fired.erase(s.events_fired_order.front());
    s.events_fired_order.pop_front();
  }
  const auto waiting = s.waiting_for_event.find(event);
  if (waiting == s.waiting_for_event.end()) return;
  for (PendingCopy& copy : waiting->second) s.pending_copies.push_back(std::move(copy));
  s.waiting_for_event.erase(waiting);
  s.pump();
}

}  // namespace tiercel
