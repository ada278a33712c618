// Writers in other processes, simulated: each was told where the payloads of a reservation go, and writes
// there whenever it likes as long as it lives: in time, after the deadline, after the end of the reservation,
// half a record before it dies. The numbers of dead ones are given to others.
//
// Threads: one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "base/prng.h"
#include "memory/space.h"
#include "node/node.h"
#include "os/processes.h"
#include "sim/content.h"

namespace tiercel::sim {

struct Scene;

// A slot that a process may write to, until it has exited or somebody said that it will not any more.
struct HeldSlot {
  std::uint64_t process = 0;  // never given out again, as its pid is
  ReservationId reservation;
  std::size_t item = 0;
  std::size_t space = 0;  // index into Scene::spaces
  StoreItem what;
  Computation computation = 0;
  std::vector<ArenaSpan> spans;
  std::vector<std::byte> written;  // the payload as it stands since its last write; empty: it wrote nothing
};

class Writers final : public Processes {
 public:
  explicit Writers(std::uint32_t count);
  bool any() const { return count_ != 0; }
  Result<std::unique_ptr<WatchedProcess>> watch(std::uint32_t pid) override;

  // The pid of one that lives.
  std::uint32_t choose(Prng& prng) const;
  std::uint32_t dead_pid() const { return dead_pid_; }  // 0: there is none
  std::uint64_t process(std::uint32_t pid) const { return pids_.at(pid); }
  bool lives(std::uint64_t process) const { return living_.contains(process); }
  void told(HeldSlot slot) { held_.push_back(std::move(slot)); }
  // Nobody writes there any more: it was committed by name, or its writer has said so.
  void given_back(ReservationId reservation, std::size_t item);
  void given_back(ReservationId reservation);
  // The whole payload of one item, if its process lives.
  void write(Scene& scene, ReservationId reservation, std::size_t item);
  bool wrote_all(const Scene& scene, ReservationId reservation, std::size_t item) const;

  // One of them writes, whether it should or not; or dies, perhaps in the middle of a record.
  void act(Scene& scene);
  void end_all();
  const std::vector<HeldSlot>& held() const { return held_; }  // of those that live

 private:
  class Watch;
  void write(Scene& scene, HeldSlot& slot, bool torn);
  void kill(Scene& scene, std::uint64_t process);
  void start(std::uint32_t pid);

  std::uint32_t count_;
  std::map<std::uint32_t, std::uint64_t> pids_;  // of the living
  std::set<std::uint64_t> living_;
  std::uint32_t last_pid_ = 100;
  std::uint64_t last_process_ = 0;
  std::uint32_t dead_pid_ = 0;
  std::vector<HeldSlot> held_;
  std::set<std::pair<ReservationId, std::size_t>> finished_;  // by processes that died since
};

}  // namespace tiercel::sim
