#include "trace/bound.h"

#include <algorithm>
#include <map>
#include <set>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "base/exhaustive.h"
#include "trace/generator.h"

namespace tiercel {
namespace {

// The best of every way to choose what stays after each request.
class BruteForce final {
 public:
  BruteForce(const std::vector<TraceRequest>& requests, std::uint64_t capacity)
      : requests_(requests), capacity_(capacity) {}
  std::uint64_t best() { return best_from(0, {}); }

 private:
  using Cache = std::set<std::uint64_t>;

  std::uint64_t best_from(std::size_t at, const Cache& cache) {
    if (at == requests_.size()) return 0;
    const auto [known, fresh] = known_.try_emplace({at, cache}, 0);
    if (!fresh) return known->second;
    const auto& blocks = requests_[at].blocks;
    // A page is served only with everything before it.
    std::uint64_t hits = 0;
    while (hits < blocks.size() && cache.contains(blocks[hits])) ++hits;
    std::vector<std::uint64_t> candidates(cache.begin(), cache.end());
    for (const std::uint64_t block : blocks)
      if (!cache.contains(block)) candidates.push_back(block);
    std::uint64_t best = 0;
    for (std::uint64_t subset = 0; subset < std::uint64_t{1} << candidates.size(); ++subset) {
      Cache kept;
      for (std::size_t i = 0; i < candidates.size(); ++i)
        if ((subset >> i & 1) != 0) kept.insert(candidates[i]);
      if (kept.size() <= capacity_) best = std::max(best, best_from(at + 1, kept));
    }
    return known_[{at, cache}] = hits + best;
  }

  const std::vector<TraceRequest>& requests_;
  std::uint64_t capacity_;
  std::map<std::pair<std::size_t, Cache>, std::uint64_t> known_;
};

TEST(Bound, IsTheBestThatAnyChoiceReaches) {
  // Every trace of up to four requests over these chains (a tree: 0-1-2, 0-1-3, 0-4, 5-6), at every capacity.
  const std::vector<std::vector<std::uint64_t>> chains = {{0, 1, 2}, {0, 1, 3}, {0, 4}, {5, 6}, {0}};
  Exhaustive every;
  std::uint64_t cases = 0;
  while (every.next()) {
    std::vector<TraceRequest> requests;
    const std::uint64_t count = every.choose(5);
    for (std::uint64_t i = 0; i < count; ++i)
      requests.push_back({0, 0, 0, chains[every.choose(chains.size())]});
    for (std::uint64_t capacity = 0; capacity <= 5; ++capacity, ++cases)
      ASSERT_EQ(bound_hit_pages(requests, capacity), BruteForce(requests, capacity).best())
          << "capacity " << capacity;
  }
  EXPECT_EQ(cases, 6U * (1 + 5 + 25 + 125 + 625));
  fmt::print("{} traces and capacities\n", cases);
}

TEST(Bound, WithoutALimitIsTheIdealRatio) {
  for (const char* spec : {"conversation:2000:2", "synthetic:1000:2"}) {
    const Trace trace = generate(*parse_generator(spec));
    const TraceStatistics statistics = statistics_of(trace.requests);
    EXPECT_EQ(bound_hit_pages(trace.requests, std::nullopt), statistics.ideal_hits);
    EXPECT_EQ(bound_hit_pages(trace.requests, statistics.unique_blocks), statistics.ideal_hits);
    EXPECT_LT(bound_hit_pages(trace.requests, statistics.unique_blocks / 20), statistics.ideal_hits);
    EXPECT_EQ(bound_hit_pages(trace.requests, 0), 0U);
  }
}

}  // namespace
}  // namespace tiercel
