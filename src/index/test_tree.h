// For tests of policies: a small node that keeps pages in a tree and tells a policy what a node tells it. A
// page is named by its whole prefix, so "ab" is the child of "a"; a request is the name of its last page.
//
// Threads: one thread. Requires: the policy outlives the tree.
#pragma once

#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/prng.h"
#include "index/policy.h"

namespace tiercel {

inline Key test_key(std::string_view name) {
  std::uint64_t hash = mix64(name.size() + 1);
  for (const char c : name) hash = mix64(hash ^ static_cast<unsigned char>(c));
  return Key{{hash, mix64(hash + 1)}};
}

class TestTree final {
 public:
  // Room for `capacity` pages, each of one byte.
  TestTree(EvictionPolicy& policy, std::uint64_t capacity) : policy_(policy), capacity_(capacity) {}

  // Touches what is resident of the request's pages, makes room and stores the rest, root first; what finds
  // no room is not stored. Returns: names of the victims, in order.
  std::vector<std::string> request(const std::string& path) {
    const Access access{++sequence_, Time{0}};
    std::size_t known = 0;
    while (known < path.size() && pages_.contains(path.substr(0, known + 1))) {
      policy_.touched(pages_.at(path.substr(0, ++known)).id, access);
    }
    std::vector<std::string> victims;
    const auto others = [&](CandidateId id) { return !path.starts_with(names_.at(id)); };
    while (pages_.size() + (path.size() - known) > capacity_) {
      const auto id = policy_.victim(access, others);
      if (!id) break;
      victims.push_back(names_.at(*id));
      evict(*id);
    }
    for (; known < path.size() && pages_.size() < capacity_; ++known)
      store(path.substr(0, known + 1), access);
    return victims;
  }

  bool resident(const std::string& name) const { return pages_.contains(name); }
  std::size_t size() const { return pages_.size(); }

 private:
  struct Page {
    CandidateId id;
    std::uint64_t children = 0;
  };

  void store(const std::string& name, const Access& access) {
    const CandidateId id = candidate_id(++last_page_);
    Candidate candidate{id, CandidateKind::kPage, test_key(name), 1, name.size(), id, std::nullopt};
    const auto parent = pages_.find(name.substr(0, name.size() - 1));
    if (parent != pages_.end()) candidate.parent = parent->second.id;
    policy_.stored(candidate, access);
    policy_.set_evictable(id, true);
    if (parent != pages_.end() && parent->second.children++ == 0) {
      policy_.set_evictable(parent->second.id, false);
    }
    pages_.emplace(name, Page{id});
    names_.emplace(id, name);
  }

  void evict(CandidateId id) {
    const std::string name = names_.at(id);
    policy_.departed(id, Departure::kEvicted);
    names_.erase(id);
    pages_.erase(name);
    const auto parent = pages_.find(name.substr(0, name.size() - 1));
    if (parent != pages_.end() && --parent->second.children == 0) {
      policy_.set_evictable(parent->second.id, true);
    }
  }

  EvictionPolicy& policy_;
  std::uint64_t capacity_;
  std::unordered_map<std::string, Page> pages_;
  std::unordered_map<CandidateId, std::string> names_;
  std::uint64_t sequence_ = 0;
  std::uint64_t last_page_ = 0;
};

}  // namespace tiercel
