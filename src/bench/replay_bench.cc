// A made-up trace through the node, and what of that time goes into saying why pages missed.
#include <algorithm>
#include <list>
#include <unordered_map>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "base/bytes.h"
#include "base/check.h"
#include "bench/benches.h"
#include "index/history.h"
#include "model/storage_form.h"
#include "node/reasons.h"
#include "trace/generator.h"
#include "trace/replay.h"

namespace tiercel {
namespace {

constexpr NamespaceId kNamespace(1);

// What the node asks of its history in the course of a replay under `lru`, in order.
struct RequestWork {
  std::vector<Key> keys;
  std::uint64_t hit = 0;     // the first so many are here; of the rest it is said why not
  std::vector<Key> evicted;  // to make room for the rest, which is stored
};

std::vector<RequestWork> work_of(const Trace& trace, std::uint64_t capacity) {
  std::vector<RequestWork> all;
  std::list<std::uint64_t> recency;  // most recent first
  std::unordered_map<std::uint64_t, std::list<std::uint64_t>::iterator> resident;
  const auto key_of = [](std::uint64_t block) { return Key{{block * 0x9E3779B97F4A7C15ULL, block}}; };
  for (const TraceRequest& request : trace.requests) {
    RequestWork work;
    for (const std::uint64_t block : request.blocks) work.keys.push_back(key_of(block));
    while (work.hit < request.blocks.size() && resident.contains(request.blocks[work.hit])) ++work.hit;
    for (const std::uint64_t block : request.blocks) {
      if (const auto at = resident.find(block); at != resident.end()) recency.erase(at->second);
      recency.push_front(block);
      resident[block] = recency.begin();
    }
    for (; resident.size() > capacity; recency.pop_back()) {
      work.evicted.push_back(key_of(recency.back()));
      resident.erase(recency.back());
    }
    all.push_back(std::move(work));
  }
  return all;
}

// Exactly these calls are what reasons and history add to a replay.
std::uint64_t say_why(const StorageForm& form, std::span<const RequestWork> requests, std::uint64_t entries) {
  History history(entries);
  std::uint64_t misses = 0;
  Time now{0};
  for (const RequestWork& request : requests) {
    now += std::chrono::milliseconds(1);
    std::vector<PageView> views(request.keys.size());
    for (std::size_t page = 0; page < views.size(); ++page) {
      PageView& view = views[page];
      view.resident = page < request.hit;
      if (view.resident) continue;
      view.past = history.why(kNamespace, request.keys[page]);
      view.own = reason_from(view.past.cause);
    }
    misses += judge(form, {views, 0, request.hit, views.size(), request.hit, 0, false}).size();
    for (const Key& key : request.evicted) history.left(kNamespace, key, {Cause::kEvicted, now, kNamespace});
    for (std::size_t page = request.hit; page < request.keys.size(); ++page)
      history.stored(kNamespace, request.keys[page], now);
  }
  return misses;
}

}  // namespace

Status replay_bench(BenchRun& run) {
  GeneratorSpec spec;
  spec.requests = run.size(2000, 50);
  const Trace trace = generate(spec);
  std::uint64_t pages = 0;
  for (const TraceRequest& request : trace.requests) pages += request.blocks.size();
  ReplayOptions options;
  options.spec = one_full_group();
  options.capacity_pages = std::max<std::uint64_t>(pages / 10, 300);
  options.page_bytes = 64;
  const std::vector<RequestWork> work = work_of(trace, *options.capacity_pages);
  const Result<StorageForm> form = make_storage_form(options.spec);
  if (!form) return form.error();
  Status status;
  const Subject subjects[] = {
      {"replay",
       [&](Samples&) {
         const Result<ReplayReport> report = replay(trace, options);
         if (!report)
           status = report.error();
         else if (!report->good())
           status = {Code::kInternal, report->wrong.empty() ? "a page came back wrong" : report->wrong[0]};
       },
       {}},
      {"reasons", [&](Samples&) { keep(say_why(*form, work, pages)); }, {}},
  };
  const Comparison result =
      run.compare(fmt::format("{} requests", spec.requests), pages, subjects, BenchClock::kThread);
  if (!status.ok()) return status;
  BenchLine speed;
  speed.name = fmt::format("{}, room for 1 page in 10", generator_text(spec));
  speed.unit = "thousand pages/s";
  speed.ours = 1e6 / result.nanoseconds(0);
  speed.operations = pages;
  speed.note =
      fmt::format("pages of {} bytes: the node's own work, and the replay's around it", options.page_bytes);
  run.add(std::move(speed));
  BenchLine share;
  share.name = "reasons and history";
  share.unit = "% of it";
  share.ours = 100 / result.ratio(1, 0);
  share.target = "below 1";
  share.operations = pages;
  constexpr double kBytesAPage = 1 << 20;
  constexpr double kBytesANanosecond = 20;  // one thread's memcpy, in round figures
  share.note = fmt::format("{:.0f} ns a page; copying a page of 1 MiB takes {:.0f} ns at 20 GB/s",
                           result.nanoseconds(1), kBytesAPage / kBytesANanosecond);
  run.add(std::move(share));
  return {};
}

}  // namespace tiercel
