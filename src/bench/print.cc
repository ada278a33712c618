#include "bench/print.h"

#include <algorithm>
#include <cstdio>
#include <memory>
#include <optional>
#include <thread>

#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <sched.h>

namespace tiercel {
namespace {

// Three significant digits, never in scientific form.
std::string short_number(double value) {
  if (value >= 100) return fmt::format("{:.0f}", value);
  if (value >= 10) return fmt::format("{:.1f}", value);
  return fmt::format("{:.2f}", value);
}

std::string duration_text(const std::optional<double>& nanoseconds) {
  if (!nanoseconds) return "";
  if (*nanoseconds >= 1e6) return short_number(*nanoseconds / 1e6) + " ms";
  if (*nanoseconds >= 1e3) return short_number(*nanoseconds / 1e3) + " us";
  return short_number(*nanoseconds) + " ns";
}

using Row = std::vector<std::string>;

Row row_of(const BenchLine& line) {
  std::string note = line.note;
  if (!line.peer_name.empty())
    note = fmt::format("{:.1f} x {} ({}){}{}", line.ratio_to_peer, line.peer_name, short_number(line.peer),
                       note.empty() ? "" : "; ", note);
  const bool limited = line.limit > 0;
  return {line.name,
          short_number(line.ours),
          limited ? short_number(line.limit) : "",
          line.unit,
          limited ? fmt::format("{:.2f}", line.ratio) : "",
          line.target,
          duration_text(line.p50),
          duration_text(line.p99),
          line.page_kind,
          limited ? "limit: " + line.limit_name + (note.empty() ? "" : "; " + note) : note};
}

// Columns with digits are flush right.
constexpr bool kRight[] = {false, true, true, false, true, false, true, true, false, false};

std::string joined(const Row& row, const std::vector<std::size_t>& widths) {
  std::string out;
  for (std::size_t column = 0; column < row.size(); ++column) {
    if (widths[column] == 0) continue;
    out += kRight[column] ? fmt::format("{:>{}}  ", row[column], widths[column])
                          : fmt::format("{:<{}}  ", row[column], widths[column]);
  }
  while (!out.empty() && out.back() == ' ') out.pop_back();
  return out + "\n";
}

nlohmann::ordered_json line_json(const std::string& bench, const BenchLine& line) {
  nlohmann::ordered_json json;
  json["bench"] = bench;
  json["name"] = line.name;
  json["unit"] = line.unit;
  json["ours"] = line.ours;
  if (line.limit > 0) {
    json["limit"] = line.limit;
    json["limit_name"] = line.limit_name;
    json["ratio"] = line.ratio;
  }
  if (!line.target.empty()) json["target"] = line.target;
  if (!line.peer_name.empty()) {
    json["peer"] = line.peer;
    json["peer_name"] = line.peer_name;
    json["ratio_to_peer"] = line.ratio_to_peer;
  }
  json["operations"] = line.operations;
  json["bytes"] = line.bytes;
  if (line.p50) json["p50_ns"] = *line.p50;
  if (line.p99) json["p99_ns"] = *line.p99;
  if (!line.page_kind.empty()) json["page_kind"] = line.page_kind;
  if (!line.note.empty()) json["note"] = line.note;
  return json;
}

}  // namespace

std::string processor_name() {
  struct Close {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };
  const std::unique_ptr<std::FILE, Close> file(std::fopen("/proc/cpuinfo", "r"));
  char text[512];
  while (file && std::fgets(text, sizeof text, file.get()) != nullptr) {
    const std::string_view line(text);
    const std::size_t colon = line.find(": ");
    if (line.starts_with("model name") && colon != std::string_view::npos)
      return std::string(line.substr(colon + 2, line.size() - colon - 3));
  }
  return "unknown processor";
}

unsigned usable_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof set, &set) != 0) return std::max(1U, std::thread::hardware_concurrency());
  return static_cast<unsigned>(CPU_COUNT(&set));
}

std::string bench_table(std::span<const BenchResult> results, bool colour) {
  const std::string_view bold = colour ? "\033[1m" : "";
  const std::string_view plain = colour ? "\033[0m" : "";
  const Row head = {"", "ours", "limit", "unit", "ratio", "target", "p50", "p99", "pages", "beside it"};
  std::vector<std::size_t> widths(head.size(), 0);
  const auto widen = [&](const Row& row) {
    for (std::size_t column = 0; column < row.size(); ++column)
      widths[column] = std::max(widths[column], row[column].size());
  };
  for (const BenchResult& result : results)
    for (const BenchLine& line : result.lines) widen(row_of(line));
  for (std::size_t column = 0; column < head.size(); ++column)
    if (widths[column] != 0) widths[column] = std::max(widths[column], head[column].size());

  std::string out = fmt::format("{}, {} cores\n", processor_name(), usable_cores());
  for (const BenchResult& result : results) {
    Row titled = head;
    titled[0] = result.bench;
    out += fmt::format("\n{}{}{}", bold, joined(titled, widths), plain);
    for (const BenchLine& line : result.lines) out += joined(row_of(line), widths);
  }
  return out;
}

std::string bench_json(std::span<const BenchResult> results, bool quick) {
  nlohmann::ordered_json json;
  json["processor"] = processor_name();
  json["cores"] = usable_cores();
  json["quick"] = quick;
  json["lines"] = nlohmann::ordered_json::array();
  for (const BenchResult& result : results)
    for (const BenchLine& line : result.lines) json["lines"].push_back(line_json(result.bench, line));
  return json.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

}  // namespace tiercel
