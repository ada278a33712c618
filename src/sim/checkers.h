// The checkers: each looks at one promise after every step and says what is broken, from the audit, the
// answers, the bytes and the simulator's own books. One small file each.
//
// Threads: one thread.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "sim/scene.h"

namespace tiercel::sim {

class Checker {
 public:
  virtual ~Checker() = default;
  virtual std::string_view name() const = 0;
  // Returns: what is broken, in one line; nothing when all is well. Called once after every step.
  virtual std::optional<std::string> check(const Scene& scene) = 0;
};

// Each operation completes exactly once, in the right order, with one outcome per item.
std::unique_ptr<Checker> completions_checker();
// Sequence without holes; replayed events give what is visible.
std::unique_ptr<Checker> events_checker();
// Nothing older than a removal, a clear or a weight update is found, delivered or published.
std::unique_ptr<Checker> stale_checker();
// A page is visible only whole, a class-set only of one computation, an attach only on the life it was meant
// for.
std::unique_ptr<Checker> mixture_checker();
// What is leased, copied, reserved or quarantined keeps its slots and its bytes.
std::unique_ptr<Checker> leases_checker();
// What a load says it delivered is there; what was damaged is named and no hit.
std::unique_ptr<Checker> delivered_checker();
// Every byte is that of its namespace, key, class, layer and shard; what may not be written is not.
std::unique_ptr<Checker> bytes_checker();
// Index = residency = events = exists = match.
std::unique_ptr<Checker> index_checker();
// Every figure adds up and is within what was granted.
std::unique_ptr<Checker> budget_checker();
// Lengths are those of the resume rule, stated a second time.
std::unique_ptr<Checker> resume_checker();
// Each missed page has exactly one reason, and the right one.
std::unique_ptr<Checker> reasons_checker();
// By its deadline and one poll everything has ended.
std::unique_ptr<Checker> liveness_checker();
// When all clients have gone nothing is left of them; when all is cleared the arena is free.
std::unique_ptr<Checker> leaks_checker();
// Counters never decrease and agree with what happened.
std::unique_ptr<Checker> stats_checker();
// Pins, minima and maxima of namespaces, advice within what was asked.
std::unique_ptr<Checker> policy_checker();

// The compact page index says what the model says, to its owner and to readers of its memory, and that is
// what is resident.
std::unique_ptr<Checker> lookup_checker();

// The memory orders of leases, walked through in all interleavings, break none.
std::unique_ptr<Checker> orders_checker();

// Readers of the index get what they lease, whole, and it stays; nobody else's key is taken for a page's.
std::unique_ptr<Checker> readers_checker();

// No slot that a living process may write to is ever used again; a commit publishes what it names, nothing
// else.
std::unique_ptr<Checker> writers_checker();

// Whoever waits for a tier below is answered in time and once; what is under way is counted; what comes up is
// whole.
std::unique_ptr<Checker> below_checker();

// What was durable is there after a crash; what is attached to a page of the disk has that page.
std::unique_ptr<Checker> disk_tier_checker();

// Memory under a late batch is not reused; nothing of the store's work is left at rest.
std::unique_ptr<Checker> remote_tier_checker();

// The node finds nothing wrong in its own books.
std::unique_ptr<Checker> books_checker();

std::vector<std::unique_ptr<Checker>> all_checkers();

}  // namespace tiercel::sim
