#include "sim/writers.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "base/check.h"
#include "memory/record.h"
#include "sim/scene.h"

namespace tiercel::sim {

class Writers::Watch final : public WatchedProcess {
 public:
  Watch(const Writers& all, std::uint64_t process) : all_(all), process_(process) {}
  bool exited() override { return !all_.lives(process_); }

 private:
  const Writers& all_;
  std::uint64_t process_;
};

Writers::Writers(std::uint32_t count) : count_(count) {
  for (std::uint32_t i = 0; i < count; ++i) start(++last_pid_);
}

void Writers::start(std::uint32_t pid) {
  pids_[pid] = ++last_process_;
  living_.insert(last_process_);
}

Result<std::unique_ptr<WatchedProcess>> Writers::watch(std::uint32_t pid) {
  const auto at = pids_.find(pid);
  if (at == pids_.end()) return error(Code::kNotFound, "simulated: no such process");
  return std::make_unique<Watch>(*this, at->second);
}

std::uint32_t Writers::choose(Prng& prng) const {
  return std::next(pids_.begin(), static_cast<std::ptrdiff_t>(prng.below(pids_.size())))->first;
}

void Writers::given_back(ReservationId reservation, std::size_t item) {
  std::erase_if(held_,
                [&](const HeldSlot& slot) { return slot.reservation == reservation && slot.item == item; });
}
void Writers::given_back(ReservationId reservation) {
  std::erase_if(held_, [&](const HeldSlot& slot) { return slot.reservation == reservation; });
}

void Writers::write(Scene& scene, HeldSlot& slot, bool torn) {
  const Space& space = scene.spaces[slot.space];
  const ClassForm& cls = scene.form_of(space).classes[slot.what.cls.value()];
  const auto payload = make_payload(
      cls, scene.record_name(space, slot.what.key, slot.what.cls, slot.what.shard), slot.computation);
  const std::uint64_t length = torn ? scene.prng.below(payload.size()) : payload.size();
  scene.arena->write(slot.spans, header_bytes(cls), ByteView(payload).first(length));
  slot.written = scene.arena->read(slot.spans, header_bytes(cls), cls.record_bytes);
}

void Writers::write(Scene& scene, ReservationId reservation, std::size_t item) {
  for (HeldSlot& slot : held_)
    if (slot.reservation == reservation && slot.item == item) write(scene, slot, false);
}

bool Writers::wrote_all(const Scene& scene, ReservationId reservation, std::size_t item) const {
  if (finished_.contains({reservation, item})) return true;
  return std::any_of(held_.begin(), held_.end(), [&](const HeldSlot& slot) {
    if (slot.reservation != reservation || slot.item != item || slot.written.empty()) return false;
    const Space& space = scene.spaces[slot.space];
    return whole_payload(scene.form_of(space).classes[slot.what.cls.value()],
                         scene.record_name(space, slot.what.key, slot.what.cls, slot.what.shard),
                         slot.written) == slot.computation;
  });
}

void Writers::kill(Scene& scene, std::uint64_t process) {
  for (HeldSlot& slot : held_)
    if (slot.process == process && scene.prng.chance(0.3)) write(scene, slot, true);
  for (const HeldSlot& slot : held_)
    if (slot.process == process && wrote_all(scene, slot.reservation, slot.item))
      finished_.emplace(slot.reservation, slot.item);
  std::erase_if(held_, [&](const HeldSlot& slot) { return slot.process == process; });
  living_.erase(process);
  const auto at =
      std::find_if(pids_.begin(), pids_.end(), [&](const auto& each) { return each.second == process; });
  const std::uint32_t pid = at->first;
  pids_.erase(at);
  const bool again = scene.prng.chance(0.3);
  if (!again) dead_pid_ = pid;
  start(again ? pid : ++last_pid_);
  scene.view.note = fmt::format("process {} (pid {}) died", process, pid);
  scene.coverage.hit("writer_died");
}

void Writers::act(Scene& scene) {
  if (!any()) return;
  if (held_.empty() || scene.prng.chance(0.12)) return kill(scene, process(choose(scene.prng)));
  HeldSlot& slot = held_[scene.prng.below(held_.size())];
  const auto reservation = scene.reservations.find(slot.reservation);
  const bool ended = reservation == scene.reservations.end() || reservation->second.ended;
  if (ended) scene.coverage.hit("writer_wrote_after_the_end");
  if (!ended && scene.clock.now() >= reservation->second.deadline)
    scene.coverage.hit("writer_wrote_after_the_deadline");
  scene.view.note = fmt::format("process {} writes item {} of reservation {}", slot.process, slot.item,
                                slot.reservation.value());
  write(scene, slot, scene.prng.chance(0.2));
}

void Writers::end_all() {
  held_.clear();
  living_.clear();
  pids_.clear();
  count_ = 0;
}

}  // namespace tiercel::sim
