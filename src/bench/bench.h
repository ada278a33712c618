// What a bench is made of: subjects that do the same work, a loop that runs them in turn, and lines that say
// how near ours comes to the limit measured beside it. Only ratios are compared: on a shared machine every
// absolute number moves, and both sides move together.
//
// Threads: one thread; a subject may use more inside its run.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "model/spec.h"

namespace tiercel {

// Keeps the optimiser from dropping what computed `value`.
template <typename T>
inline void keep(const T& value) {
  asm volatile("" : : "r,m"(value) : "memory");
}

// Durations of single operations.
class Samples final {
 public:
  void add(double nanoseconds) { values_.push_back(nanoseconds); }
  void reserve(std::size_t count) { values_.reserve(count); }
  std::size_t count() const { return values_.size(); }
  // The smallest sample that at least `share` of all do not exceed. Requires: a sample; 0 < share ≤ 1.
  double quantile(double share) const;

 private:
  std::vector<double> values_;
};

// What an iteration's time is. That of this thread leaves out what other programs took from it, which on a
// busy machine is most of the noise; it says nothing about work that waits, or runs on other threads.
enum class BenchClock : std::uint8_t { kWall, kThread };

// One way to do the work. Every subject of a comparison does the same number of operations on as much memory.
struct Subject {
  std::string name;
  std::function<void(Samples&)> run;  // one iteration; may add the time of each operation
  std::function<void()> prepare;      // not timed, before each run; may be empty
  // Nanoseconds that the last run took by its own word, for what runs in a process of its own; empty: the
  // bench's clock stands around the run.
  std::function<double()> took = {};
};

// What came of running subjects in turn; a subject is named by its position.
class Comparison final {
 public:
  Comparison(std::uint64_t operations, std::size_t subjects) : operations_(operations), subjects_(subjects) {}
  double nanoseconds(std::size_t subject) const;  // of one operation: the median over iterations
  // How near `subject` comes to `limit`: the median over iterations of the limit's time divided by the
  // subject's in the same iteration. 1: as fast; above 1: faster.
  double ratio(std::size_t subject, std::size_t limit) const;
  const Samples& samples(std::size_t subject) const { return subjects_[subject].samples; }
  std::uint64_t operations() const { return operations_; }
  void add(std::size_t subject, double nanoseconds);
  Samples& samples(std::size_t subject) { return subjects_[subject].samples; }

 private:
  struct Times {
    std::vector<double> iterations;  // nanoseconds of one operation, one entry per counted iteration
    Samples samples;
  };
  std::uint64_t operations_;
  std::vector<Times> subjects_;
};

enum class BenchUnit : std::uint8_t {
  kNanoseconds,  // of one operation
  kGigabytes,    // 10^9 bytes each second
  kMegabytes,    // 10^6 bytes each second
  kMillions,     // 10^6 operations each second
};

struct BenchLine {
  std::string name;  // what was done, as "get 128 KiB verified, 1 thread"
  std::string unit;  // of ours, limit and peer: "ns/page", "GB/s"
  double ours = 0;
  double limit = 0;        // 0: there is none
  std::string limit_name;  // what the limit is: "memcpy"
  double ratio = 0;        // 1: at the limit; above 1: beyond it. Without a limit 0
  std::string target;      // what we aim at, as "ratio >= 0.95"; empty: nothing
  std::string peer_name;   // somebody else's way to do the same; empty: none
  double peer = 0;
  double ratio_to_peer = 0;                 // above 1: ours is faster
  std::uint64_t operations = 0, bytes = 0;  // of one iteration
  std::optional<double> p50, p99;           // nanoseconds of one operation
  std::string page_kind;                    // of the memory under it: "2MiB", "4KiB"; empty: does not matter
  std::string note;
};

struct BenchModel {
  std::string name;
  ModelSpec spec;
};

struct BenchOptions {
  bool quick = false;  // tiny sizes, few iterations: lines have their shape, their numbers say nothing
  std::uint32_t warm = 5;
  std::uint32_t counted = 9;       // at least; more while `least_seconds` have not passed
  double least_seconds = 0.5;      // of counted iterations: many short ones outlast a neighbour's burst
  std::vector<BenchModel> models;  // for benches that can take somebody's models
  std::string folder = ".";        // where benches of drives put their files, and remove them
  std::uint64_t disk_bytes = 4ULL << 30;  // of the largest of those
  std::string remote;  // address of the store that remote measures; empty: what it starts itself
};

// Called with the bench's own words for what it does now; only for people who wait.
using BenchProgress = std::function<void(std::string_view what)>;

// What a bench is given: sizes, the loop, and where its lines go.
class BenchRun final {
 public:
  explicit BenchRun(const BenchOptions& options, BenchProgress progress = {});

  bool quick() const { return options_.quick; }
  const std::vector<BenchModel>& models() const { return options_.models; }
  const std::string& folder() const { return options_.folder; }
  std::uint64_t disk_bytes() const { return options_.disk_bytes; }
  const std::string& remote() const { return options_.remote; }
  std::uint64_t size(std::uint64_t full, std::uint64_t tiny) const { return options_.quick ? tiny : full; }

  // Runs all subjects in turn, in each iteration in another order, first warm and then counted ones. An
  // iteration does `operations` of the bench's operations and should take about a millisecond: long against
  // the clock, short against what disturbs it.
  Comparison compare(std::string_view what, std::uint64_t operations, std::span<const Subject> subjects,
                     BenchClock clock = BenchClock::kWall);

  // Says what goes on, where a bench works long outside compare().
  void progress(std::string_view what);
  void add(BenchLine line) { lines_.push_back(std::move(line)); }
  // To the note of the last line. Requires: there is one.
  void remark(const std::string& text);
  const std::vector<BenchLine>& lines() const { return lines_; }

 private:
  bool enough(std::uint32_t iterations, double nanoseconds) const;
  BenchOptions options_;
  BenchProgress progress_;
  std::vector<BenchLine> lines_;
};

// The line of subject `ours` against subject `limit` of a comparison: numbers, ratio, bytes, and p50 and p99
// when it has samples. `bytes`: of one iteration; kGigabytes and kMegabytes need them. `unit_name` is
// printed.
BenchLine line_of(const Comparison& comparison, std::string name, std::size_t ours, std::size_t limit,
                  BenchUnit unit, std::string unit_name, std::uint64_t bytes = 0);
// Sets peer and ratio_to_peer of a line made from the same comparison.
void add_peer(BenchLine& line, const Comparison& comparison, std::size_t ours, std::size_t peer,
              BenchUnit unit, std::string peer_name);

// Nanoseconds since some start, for timing single operations. Cost: about 30 ns.
double now_nanoseconds();

}  // namespace tiercel
