#include "bench/bench.h"

#include <cmath>
#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "bench/benches.h"
#include "bench/print.h"

namespace tiercel {
namespace {

using testing::HasSubstr;

TEST(Bench, AQuantileIsASampleThatSoManyDoNotExceed) {
  Samples samples;
  for (const double value : {5.0, 1.0, 4.0, 2.0, 3.0}) samples.add(value);
  EXPECT_EQ(samples.quantile(0.5), 3);
  EXPECT_EQ(samples.quantile(0.01), 1);
  EXPECT_EQ(samples.quantile(0.81), 5);
  EXPECT_EQ(samples.quantile(1), 5);
}

TEST(Bench, ARatioIsTheMedianOfEachIterationsOwn) {
  Comparison comparison(10, 2);
  // The machine became three times slower in the second iteration: both sides did.
  for (const double factor : {1.0, 3.0, 1.0}) {
    comparison.add(0, 200 * factor);
    comparison.add(1, 100 * factor);
  }
  EXPECT_DOUBLE_EQ(comparison.ratio(0, 1), 0.5);
  EXPECT_DOUBLE_EQ(comparison.ratio(1, 0), 2);
  EXPECT_DOUBLE_EQ(comparison.nanoseconds(0), 20);
  BenchLine line = line_of(comparison, "n", 0, 1, BenchUnit::kGigabytes, "GB/s", 1000);
  EXPECT_DOUBLE_EQ(line.ours, 5);  // 100 bytes an operation of 20 ns
  EXPECT_DOUBLE_EQ(line.limit, 10);
  EXPECT_FALSE(line.p50);
  EXPECT_DOUBLE_EQ(line_of(comparison, "n", 0, 1, BenchUnit::kMillions, "M/s").ours, 50);
  add_peer(line, comparison, 0, 1, BenchUnit::kGigabytes, "other");
  EXPECT_DOUBLE_EQ(line.peer, 10);
  EXPECT_DOUBLE_EQ(line.ratio_to_peer, 0.5);
}

TEST(Bench, SubjectsTakeTurnsAndOnlyCountedIterationsLeaveSamples) {
  BenchRun run({.warm = 2, .counted = 3, .least_seconds = 0});
  std::string order;
  const Subject subjects[] = {
      {"a",
       [&](Samples& samples) {
         order += 'a';
         samples.add(7);
       },
       [&] { order += '.'; }},
      {"b", [&](Samples&) { order += 'b'; }, {}},
  };
  const Comparison result = run.compare("both", 4, subjects);
  EXPECT_EQ(order, ".abb.a.abb.a.ab");
  EXPECT_EQ(result.samples(0).count(), 3U);
  EXPECT_EQ(result.samples(1).count(), 0U);
  EXPECT_EQ(line_of(result, "n", 0, 1, BenchUnit::kNanoseconds, "ns").p99, 7);
}

TEST(Bench, ATableShowsWhatALineHasAndJsonLeavesTheRestOut) {
  BenchLine line;
  line.name = "copy";
  line.unit = "GB/s";
  line.ours = 12.345;
  const BenchResult plain[] = {{"get", {line}}};
  EXPECT_THAT(bench_table(plain, false), HasSubstr("\nget   ours  unit\ncopy  12.3  GB/s\n"));
  const auto json = nlohmann::json::parse(bench_json(plain, true));
  EXPECT_EQ(json["quick"], true);
  EXPECT_EQ(json["lines"][0].size(), 6U) << json.dump();
  line.limit = 24.69;
  line.limit_name = "memcpy";
  line.ratio = 0.5;
  line.p50 = 1500;
  line.peer_name = "other";
  line.ratio_to_peer = 2;
  const BenchResult full[] = {{"get", {line}}};
  EXPECT_THAT(bench_table(full, false),
              HasSubstr("copy  12.3   24.7  GB/s   0.50  1.50 us  limit: memcpy; 2.0 x other"));
  EXPECT_THAT(bench_table(full, true), HasSubstr("\033[1mget"));
}

TEST(Bench, ASubjectMaySayItselfWhatItTook) {
  BenchRun run({.warm = 1, .counted = 3, .least_seconds = 0});
  double took = 0;
  const Subject subjects[] = {{"a", [&](Samples&) { took += 100; }, {}, [&] { return took; }}};
  const Comparison result = run.compare("one", 10, subjects);
  EXPECT_DOUBLE_EQ(result.nanoseconds(0), 30);  // of 200, 300 and 400 for ten operations
  const BenchLine line = line_of(result, "n", 0, 0, BenchUnit::kMegabytes, "MB/s", 100);
  EXPECT_NEAR(line.ours, 1000.0 * 10 / 30, 1e-9);
  run.add(line);
  run.remark("first");
  run.remark("second");
  EXPECT_EQ(run.lines()[0].note, "first; second");
}

void expect_good(const Bench& bench, const BenchLine& line) {
  SCOPED_TRACE(std::string(bench.name) + ": " + line.name);
  EXPECT_FALSE(line.name.empty() || line.unit.empty());
  EXPECT_TRUE(std::isfinite(line.ours) && line.ours > 0) << line.ours;
  EXPECT_TRUE(std::isfinite(line.limit) && std::isfinite(line.ratio) && std::isfinite(line.ratio_to_peer));
  EXPECT_EQ(line.limit > 0, line.ratio > 0);
  EXPECT_EQ(line.limit > 0, !line.limit_name.empty());
  EXPECT_EQ(line.peer > 0, !line.peer_name.empty());
  EXPECT_GT(line.operations, 0U);
  EXPECT_EQ(line.p50.has_value(), line.p99.has_value());
  EXPECT_LE(line.p50.value_or(0), line.p99.value_or(0));
}

// Runs each for its shape; how fast this machine is today says nothing.
TEST(Bench, EveryOneRunsAndSaysWhatItMeasured) {
  std::set<std::string> names;
  for (const Bench& bench : benches()) {
    EXPECT_TRUE(names.insert(std::string(bench.name)).second) << bench.name << " is there twice";
    EXPECT_EQ(find_bench(bench.name)->run, bench.run);
    // A store that needs no server; with one: tests/cli_bench.py.
    BenchRun run({.quick = true, .remote = "memory:"});
    const Status status = bench.run(run);
    ASSERT_TRUE(status.ok()) << bench.name << ": " << status.message;
    EXPECT_FALSE(run.lines().empty()) << bench.name;
    std::set<std::string> lines;
    for (const BenchLine& line : run.lines()) {
      expect_good(bench, line);
      EXPECT_TRUE(lines.insert(line.name).second) << bench.name << ": " << line.name << " is there twice";
    }
  }
  EXPECT_EQ(find_bench("no such bench"), nullptr);
}

}  // namespace
}  // namespace tiercel
