// What a replay found, in print: one JSON object for programs, a page of text for people.
//
// Threads: pure functions.
#pragma once

#include <string>
#include <string_view>

#include "trace/replay.h"

namespace tiercel {

// One line, no newline. The fields of contract §9 and a few more; docs/guide/replay.md says what each means.
std::string report_json(const ReplayReport& report);

// Summary, and a table with each reason for which pages were missed. `trace` and `model` name what was
// replayed. `colour`: with ANSI emphasis, for a terminal.
std::string report_text(const ReplayReport& report, std::string_view trace, std::string_view model,
                        bool colour);

// "1,234,567".
std::string grouped(std::uint64_t number);

}  // namespace tiercel
