#include "bench/bench.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <ctime>
#include <utility>

#include "base/check.h"

namespace tiercel {
namespace {

double quantile_of(std::vector<double> values, double share) {
  TIERCEL_CHECK(!values.empty() && share > 0 && share <= 1);
  const auto rank = static_cast<std::size_t>(std::ceil(share * static_cast<double>(values.size())));
  const auto place = values.begin() + static_cast<std::ptrdiff_t>(std::max<std::size_t>(rank, 1) - 1);
  std::nth_element(values.begin(), place, values.end());
  return *place;
}

double in_unit(BenchUnit unit, double nanoseconds, double bytes_per_operation) {
  switch (unit) {
    case BenchUnit::kNanoseconds:
      return nanoseconds;
    case BenchUnit::kGigabytes:
      return bytes_per_operation / nanoseconds;
    case BenchUnit::kMegabytes:
      return 1e3 * bytes_per_operation / nanoseconds;
    case BenchUnit::kMillions:
      return 1e3 / nanoseconds;
  }
  TIERCEL_CHECK(false);
  return 0;
}

double time_on(BenchClock clock) {
  if (clock == BenchClock::kWall) return now_nanoseconds();
  timespec time{};
  TIERCEL_CHECK(clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time) == 0);
  return 1e9 * static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec);
}

}  // namespace

double now_nanoseconds() {
  return std::chrono::duration<double, std::nano>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

double Samples::quantile(double share) const { return quantile_of(values_, share); }

void Comparison::add(std::size_t subject, double nanoseconds) {
  // A clock that did not move would make a ratio of 0 / 0.
  subjects_[subject].iterations.push_back(std::max(nanoseconds, 1.0) / static_cast<double>(operations_));
}

double Comparison::nanoseconds(std::size_t subject) const {
  return quantile_of(subjects_[subject].iterations, 0.5);
}

double Comparison::ratio(std::size_t subject, std::size_t limit) const {
  const std::vector<double>& ours = subjects_[subject].iterations;
  const std::vector<double>& theirs = subjects_[limit].iterations;
  std::vector<double> ratios;
  for (std::size_t i = 0; i < ours.size(); ++i) ratios.push_back(theirs[i] / ours[i]);
  return quantile_of(std::move(ratios), 0.5);
}

BenchRun::BenchRun(const BenchOptions& options, BenchProgress progress)
    : options_(options), progress_(std::move(progress)) {
  if (options_.quick) {
    options_.warm = 0;
    options_.counted = 1;
    options_.least_seconds = 0;
  }
  TIERCEL_CHECK(options_.counted >= 1);
}

bool BenchRun::enough(std::uint32_t iterations, double nanoseconds) const {
  constexpr std::uint32_t kMost = 501;
  if (iterations < options_.counted) return false;
  return nanoseconds >= options_.least_seconds * 1e9 || iterations >= kMost;
}

void BenchRun::progress(std::string_view what) {
  if (progress_) progress_(what);
}

void BenchRun::remark(const std::string& text) {
  TIERCEL_CHECK(!lines_.empty());
  std::string& note = lines_.back().note;
  note += (note.empty() ? "" : "; ") + text;
}

Comparison BenchRun::compare(std::string_view what, std::uint64_t operations,
                             std::span<const Subject> subjects, BenchClock clock) {
  TIERCEL_CHECK(operations > 0 && !subjects.empty());
  progress(what);
  Comparison result(operations, subjects.size());
  Samples discarded;
  double start_counted = 0;
  for (std::uint32_t iteration = 0;; ++iteration) {
    const bool counted = iteration >= options_.warm;
    if (iteration == options_.warm) start_counted = now_nanoseconds();
    if (counted && enough(iteration - options_.warm, now_nanoseconds() - start_counted)) break;
    for (std::size_t turn = 0; turn < subjects.size(); ++turn) {
      // Whoever runs first after a pause, or after a certain neighbour, must not always be the same.
      const std::size_t subject = (turn + iteration) % subjects.size();
      if (subjects[subject].prepare) subjects[subject].prepare();
      const double start = time_on(clock);
      subjects[subject].run(counted ? result.samples(subject) : discarded);
      const double end = time_on(clock);
      if (counted) result.add(subject, subjects[subject].took ? subjects[subject].took() : end - start);
    }
    discarded = Samples();
  }
  return result;
}

BenchLine line_of(const Comparison& comparison, std::string name, std::size_t ours, std::size_t limit,
                  BenchUnit unit, std::string unit_name, std::uint64_t bytes) {
  TIERCEL_CHECK((unit != BenchUnit::kGigabytes && unit != BenchUnit::kMegabytes) || bytes > 0);
  const double per_operation = static_cast<double>(bytes) / static_cast<double>(comparison.operations());
  BenchLine line;
  line.name = std::move(name);
  line.unit = std::move(unit_name);
  line.ours = in_unit(unit, comparison.nanoseconds(ours), per_operation);
  line.limit = in_unit(unit, comparison.nanoseconds(limit), per_operation);
  line.ratio = comparison.ratio(ours, limit);
  line.operations = comparison.operations();
  line.bytes = bytes;
  if (const Samples& samples = comparison.samples(ours); samples.count() > 0) {
    line.p50 = samples.quantile(0.5);
    line.p99 = samples.quantile(0.99);
  }
  return line;
}

void add_peer(BenchLine& line, const Comparison& comparison, std::size_t ours, std::size_t peer,
              BenchUnit unit, std::string peer_name) {
  line.peer_name = std::move(peer_name);
  line.peer = in_unit(unit, comparison.nanoseconds(peer),
                      static_cast<double>(line.bytes) / static_cast<double>(comparison.operations()));
  line.ratio_to_peer = comparison.ratio(ours, peer);
}

}  // namespace tiercel
