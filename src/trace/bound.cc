#include "trace/bound.h"

#include <set>
#include <unordered_map>
#include <utility>
#include <vector>

namespace tiercel {
namespace {

constexpr std::uint64_t kNever = UINT64_MAX;

// When a page is used next (by which request), and how deep it stands in its chain: the last of a set goes
// first.
struct Value {
  std::uint64_t next_use = kNever;
  std::uint64_t depth = 0;
  std::uint64_t block = 0;
  friend auto operator<=>(const Value&, const Value&) = default;
};

// For each reference, in order, the next request that uses its block again.
std::vector<std::uint64_t> next_uses(std::span<const TraceRequest> requests) {
  std::size_t references = 0;
  for (const TraceRequest& request : requests) references += request.blocks.size();
  std::vector<std::uint64_t> next(references, kNever);
  std::unordered_map<std::uint64_t, std::uint64_t> coming;
  std::size_t at = references;
  for (std::size_t r = requests.size(); r-- > 0;)
    for (std::size_t i = requests[r].blocks.size(); i-- > 0;) {
      const auto [entry, is_new] = coming.try_emplace(requests[r].blocks[i], r);
      if (!is_new) next[at - 1] = std::exchange(entry->second, r);
      --at;
    }
  return next;
}

}  // namespace

std::uint64_t bound_hit_pages(std::span<const TraceRequest> requests,
                              std::optional<std::uint64_t> capacity_pages) {
  const std::vector<std::uint64_t> next = next_uses(requests);
  std::set<Value> cache;
  std::unordered_map<std::uint64_t, Value> cached;
  std::uint64_t hits = 0;
  std::size_t at = 0;
  for (const TraceRequest& request : requests) {
    for (std::size_t i = 0; i < request.blocks.size(); ++i, ++at) {
      const Value value{next[at], i, request.blocks[i]};
      if (const auto known = cached.find(value.block); known != cached.end()) {
        ++hits;
        cache.erase(known->second);
        known->second = value;
        cache.insert(value);
        continue;
      }
      if (capacity_pages && cache.size() >= *capacity_pages) {
        if (cache.empty() || *cache.rbegin() < value) continue;
        cached.erase(cache.rbegin()->block);
        cache.erase(std::prev(cache.end()));
      }
      cache.insert(value);
      cached.emplace(value.block, value);
    }
  }
  return hits;
}

}  // namespace tiercel
