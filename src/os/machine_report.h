// What a machine's abilities mean for a cache: one check for each, with its state, a sentence, a one-line
// remedy for each lack, and the values it was judged by, under names that stay. docs/guide/doctor.md lists
// them.
//
// Threads: pure functions and values.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "os/machine.h"

namespace tiercel {

enum class CheckState : unsigned char {
  kOk,
  kNote,     // neither good nor bad: worth knowing
  kLack,     // works without it, slower or narrower
  kMissing,  // nothing works without it
};
std::string_view check_state_name(CheckState state);  // "ok"

// monostate: not known.
using CheckValue = std::variant<std::monostate, bool, std::uint64_t, std::string, std::vector<std::uint64_t>>;

struct Check {
  std::string_view name;  // "io_uring"
  CheckState state = CheckState::kOk;
  std::string text;    // one line
  std::string remedy;  // one line; not empty when something is lacking or missing
  std::vector<std::pair<std::string_view, CheckValue>> values;

  // A copy, not a move: g++ 12 takes moving one for reading what another alternative left unset.
  void tell(std::string_view of, const CheckValue& value) { values.emplace_back(of, value); }
};

// What is needed first; always the same checks, and of each the same values, in the same order.
std::vector<Check> check_machine(const Machine& machine);

// Whether nothing is missing.
bool is_ready(const std::vector<Check>& checks);

}  // namespace tiercel
