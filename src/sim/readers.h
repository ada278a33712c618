// Readers of the page index in other processes, simulated: each maps the index and the arena, asks nobody,
// leases what it found and reads it where it lies. Between any two of its steps, and in the middle of a read
// of the index, the node may do anything.
//
// Threads: one thread.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "index/index_view.h"
#include "index/lease_table.h"
#include "memory/space.h"
#include "node/node.h"

namespace tiercel::sim {

struct Scene;

// A record that a reader has leased.
struct ReadRecord {
  std::size_t space = 0;  // index into Scene::spaces
  Key key;
  ClassId cls;
  std::vector<ArenaSpan> spans;
  std::uint32_t sum = 0;  // of its bytes when it was leased
};

class Readers final {
 public:
  explicit Readers(std::uint32_t count);
  bool any() const { return !readers_.empty(); }
  LeaseTable* table() { return table_ ? &*table_ : nullptr; }
  void open();  // each gets its place

  // One step of one of them: look, lease what was looked at, read, touch, release, die.
  void act(Scene& scene);
  // The bytes of what is leased are those that were leased.
  std::optional<std::string> check(const Scene& scene) const;
  bool holds(NamespaceId ns, const Key& key, ClassId cls, const Scene& scene) const;
  void end_all();

 private:
  struct Look {
    std::size_t space = 0;
    ReaderSpace terms;
    std::vector<Key> keys;
    std::vector<FoundPage> found;
  };
  struct Reader {
    ClientPlace place;
    std::optional<LeaseClient> client;
    std::map<std::size_t, ReaderSpace> terms;  // by space: as the node told them once
    std::optional<Look> look;
    std::vector<std::uint32_t> slots;
    std::vector<ReadRecord> holds;
    std::optional<std::string> wrong;  // what it read that it never should have
  };

  void open(Reader& reader);
  void look(Scene& scene, Reader& reader);
  void lease(Scene& scene, Reader& reader);
  void read(Scene& scene, Reader& reader, std::size_t i);
  void release(Reader& reader);

  std::unique_ptr<std::byte, void (*)(void*)> memory_{nullptr, nullptr};
  MutableByteView region_;
  std::optional<LeaseTable> table_;
  std::vector<Reader> readers_;
  std::uint32_t pids_ = 100;
};

}  // namespace tiercel::sim
