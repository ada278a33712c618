// Counters of the situations a run has met: a simulation that never meets one has proved nothing about it.
//
// Threads: plain values.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace tiercel::sim {

class Coverage final {
 public:
  Coverage() = default;  // none: what is added is counted
  // Every counter that must be met by runs of the node, or of the disk log alone, at 0.
  static Coverage of_node();
  static Coverage of_disk(bool lying);
  void must_meet(std::string_view name) { counts_.emplace(name, 0); }
  // Counted as the others; too rare to be asked of runs that are not made for it.
  void may_meet(std::string_view name) {
    must_meet(name);
    rare_.emplace(name);
  }
  // Requires: `name` is one of those.
  void hit(std::string_view name, std::uint64_t times = 1);
  void add(const Coverage& other);  // also its counters
  // "name count" lines, in order of name.
  std::string to_string() const;
  // Names of the counters that are 0, joined by a blank: of all that must be met, and of these. Empty when
  // all were met.
  std::string missing() const;
  std::string missing(const std::vector<std::string>& names) const;

 private:
  std::map<std::string, std::uint64_t, std::less<>> counts_;
  std::set<std::string, std::less<>> rare_;
};

}  // namespace tiercel::sim
