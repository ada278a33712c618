// Another node on the same store, as little of it as the store sees: it computes the same pages anew, stores
// them under the same names, and clears. What it has of markers may be old.
//
// Threads: one thread.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "remote/remote_tier.h"
#include "remote/test_store_twin.h"
#include "sim/scene.h"

namespace tiercel::sim {

// Computations from here on are the neighbour's.
inline constexpr Computation kNeighboursComputation = Computation{1} << 40;

class Neighbour final {
 public:
  Neighbour(TwinObjects& objects, Scene& scene);
  ~Neighbour();
  void poll(const Scene& scene);
  void store(Scene& scene);                                 // pages of some prompt
  void store_again(Scene& scene, std::string_view object);  // what an object that went was of
  void clear(Scene& scene);                                 // a namespace, or all of a form
  void look_up(Scene& scene);
  void trouble(Scene& scene);
  void calm();
  void restless(const Scene& scene);
  bool idle() const;
  const RemoteTier& tier() const { return *tier_; }
  const StoreTwin& twin() const { return store_; }

 private:
  using Memory = std::vector<std::vector<std::byte>>;  // per shard
  RemoteSpaceId space_of(const Scene& scene, const Space& space);
  void note_generations(const Scene& scene);
  Memory record(const Scene& scene, const Prompt& page, ClassId cls, Computation computation) const;
  void append(Scene& scene, const Prompt& page, ClassId cls, Computation computation);

  StoreTwin store_;
  SimExecutor executor_;
  std::unique_ptr<RemoteTier> tier_;
  std::map<RemoteAppendId, Memory> appends_;
  // As the node numbered what it last stored: nobody keeps two nodes from choosing the same number.
  std::map<std::pair<PageId, ClassId>, std::uint32_t> generations_;
  std::uint64_t computations_ = 0;
};

}  // namespace tiercel::sim
