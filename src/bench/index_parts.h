// A page index as full as it gets, for those who look for prefixes in it or change it.
//
// Threads: one; a child process that shares its memory may go on with it.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "base/prng.h"
#include "base/status.h"
#include "bench/bench.h"
#include "index/compact_index.h"
#include "index/lru.h"
#include "os/mapping.h"

namespace tiercel {

inline constexpr std::uint64_t kChain = 128;      // pages of one prefix
inline constexpr std::uint64_t kPointEvery = 16;  // pages: a snapshot, where there is a state class
inline constexpr SpaceId kSpace{1};

using ChainKeys = std::array<Key, kChain>;

inline Key key_of(std::uint64_t chain, std::uint64_t page) {
  const std::uint64_t seed = chain * kChain + page;
  return Key{{mix64(seed * 2 + 1), mix64(seed * 2 + 2)}};
}
inline void fill(ChainKeys& keys, std::uint64_t chain) {
  for (std::uint64_t page = 0; page < kChain; ++page) keys[page] = key_of(chain, page);
}

// An index full of whole chains, in memory that a child process shares.
class FullIndex final {
 public:
  // `classes`: 1 = full attention; 3 = with index keys at every page and a snapshot at every 16th.
  static Result<std::unique_ptr<FullIndex>> create(std::uint64_t pages, std::uint32_t classes, BenchRun& run);

  CompactIndex& index() { return *index_; }
  MutableByteView memory() { return memory_.bytes(); }
  LruPolicy& lru() { return lru_; }
  std::uint64_t chains() const { return index_->pages() / kChain; }
  std::string_view page_kind() const { return page_kind_name(memory_.pages().kind); }

  // What a node does when a request of new pages has been computed.
  void store(std::uint64_t chain);
  // The least recent page that has no child goes.
  void evict();
  void evict_chain(std::uint64_t chain);

 private:
  FullIndex() = default;
  void evict(PageNumber page);

  std::uint32_t& parent_of(PageNumber page);

  Mapping memory_;
  std::unique_ptr<CompactIndex> index_;
  LruPolicy lru_;
  std::vector<std::uint32_t> parents_;
  std::uint32_t classes_ = 1;
  std::uint64_t sequence_ = 0;
};

}  // namespace tiercel
