// A made-up trace through the node, and what of that time goes into saying why pages missed.
#include <algorithm>
#include <list>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include <fmt/format.h>

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

// A made-up trace and a cache with room for one page in ten of it.
struct Setting {
  std::string name;
  Trace trace;
  std::uint64_t pages = 0;
  StorageForm form;
  ReplayOptions options;
  std::vector<RequestWork> work;
};

// `page_bytes`: so much of each page really exists; 0: all of it.
Result<Setting> make_setting(std::uint64_t requests, std::uint64_t page_bytes) {
  GeneratorSpec spec;
  spec.requests = requests;
  Setting setting;
  setting.name = generator_text(spec);
  setting.trace = generate(spec);
  for (const TraceRequest& request : setting.trace.requests) setting.pages += request.blocks.size();
  setting.options.spec = one_full_group();
  setting.options.capacity_pages = std::max<std::uint64_t>(setting.pages / 10, 300);
  TIERCEL_ASSIGN_OR_RETURN(setting.form, make_storage_form(setting.options.spec));
  setting.options.page_bytes = page_bytes != 0 ? page_bytes : setting.form.page_bytes_required();
  setting.work = work_of(setting.trace, *setting.options.capacity_pages);
  return setting;
}

// A replay, then what reasons and history are of it.
Result<Comparison> compare(BenchRun& run, const Setting& setting) {
  Status status;
  const Subject subjects[] = {
      {"replay",
       [&](Samples&) {
         const Result<ReplayReport> report = replay(setting.trace, setting.options);
         if (!report)
           status = report.error();
         else if (!report->good())
           status = {Code::kInternal, report->wrong.empty() ? "a page came back wrong" : report->wrong[0]};
       },
       {}},
      {"reasons", [&](Samples&) { keep(say_why(setting.form, setting.work, setting.pages)); }, {}},
  };
  Comparison result =
      run.compare(fmt::format("{}, pages of {} bytes", setting.name, setting.options.page_bytes),
                  setting.pages, subjects, BenchClock::kThread);
  TIERCEL_RETURN_IF_ERROR(status);
  return result;
}

BenchLine share_line(const Setting& setting, const Comparison& result, std::string_view whose_pages) {
  BenchLine line;
  line.name = fmt::format("reasons and history, {} pages", whose_pages);
  line.unit = "% of it";
  line.ours = 100 / result.ratio(1, 0);
  line.target = "below 1";
  line.operations = setting.pages;
  line.note = fmt::format("{:.0f} of {:.0f} ns a page, in a replay with pages of {} bytes",
                          result.nanoseconds(1), result.nanoseconds(0), setting.options.page_bytes);
  return line;
}

}  // namespace

Status replay_bench(BenchRun& run) {
  constexpr std::uint64_t kThinBytes = 64;
  const Result<Setting> thin = make_setting(run.size(2000, 50), kThinBytes);
  if (!thin) return thin.error();
  const Result<Comparison> of_thin = compare(run, *thin);
  if (!of_thin) return of_thin.error();
  BenchLine speed;
  speed.name = fmt::format("{}, room for 1 page in 10", thin->name);
  speed.unit = "thousand pages/s";
  speed.ours = 1e6 / of_thin->nanoseconds(0);
  speed.operations = thin->pages;
  speed.note = fmt::format("pages of {} bytes: the node's own work, and the replay's around it", kThinBytes);
  run.add(std::move(speed));
  run.add(share_line(*thin, *of_thin, "thin"));
  // Few requests: here every byte of a page is written, checked, copied and compared.
  const Result<Setting> whole = make_setting(run.size(40, 2), 0);
  if (!whole) return whole.error();
  const Result<Comparison> of_whole = compare(run, *whole);
  if (!of_whole) return of_whole.error();
  run.add(share_line(*whole, *of_whole, "whole"));
  return {};
}

}  // namespace tiercel
