// A store under test: batches run to their ends with bounded patience, memory that knows what must be in it.
//
// Threads: one.
#pragma once

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "base/prng.h"
#include "os/clock.h"
#include "remote/remote_store.h"

namespace tiercel {

// However slow the machine is: an upper limit, never what a test measures.
inline Duration store_patience = std::chrono::seconds(60);

inline std::string outcomes_text(const std::vector<RemoteResult>& results) {
  std::string text;
  for (const RemoteResult& result : results)
    text += fmt::format("{}{}", text.empty() ? "" : " ", remote_outcome_name(result.outcome));
  return text;
}

// The end of each batch of one store, each told once and in order.
class StoreBed {
 public:
  explicit StoreBed(RemoteStore& store) : StoreBed(store, steady_) {}
  // `clock`: the store's.
  StoreBed(RemoteStore& store, const Clock& clock) : store_(store), clock_(clock) {}

  Time now() const { return clock_.now(); }
  Time soon() const { return later(now(), store_patience / 2); }

  // Whether `holds` comes true; drains meanwhile.
  template <typename Holds>
  bool until(Holds holds) {
    const Time limit = later(steady_.now(), store_patience);
    for (;;) {
      collect();
      if (holds()) return true;
      if (steady_.now() >= limit) return false;
      store_.wait(std::chrono::milliseconds(50));
    }
  }
  bool until_ready() {
    return until([&] { return store_.health().ready; });
  }
  bool until_quiet() {
    return until([&] { return unended_.empty() && unquiet_.empty(); });
  }

  // Submits as soon as there is room; 0 where it is refused for another reason (a test failure).
  RemoteBatchId submit(const RemoteBatch& batch) {
    RemoteBatchId id;
    Status refused;
    const bool taken = until([&] {
      auto submitted = store_.submit(batch);
      if (submitted) id = *submitted;
      refused = submitted ? Status{} : submitted.error();
      return refused.code != Code::kResourceExhausted;
    });
    EXPECT_TRUE(taken && refused.ok()) << refused.to_string();
    if (refused.ok()) add(id, batch.items.size());
    return id;
  }
  void add(RemoteBatchId id, std::size_t items) {
    EXPECT_TRUE(unended_.emplace(id.value(), items).second) << "an id was used twice: " << id.value();
  }

  std::vector<RemoteResult> end_of(RemoteBatchId id) {
    if (until([&] { return unended_.count(id.value()) == 0; })) return results_[id.value()];
    ADD_FAILURE() << "batch " << id.value() << " does not end";
    return std::vector<RemoteResult>(unended_[id.value()]);
  }
  bool ended(RemoteBatchId id) const { return unended_.count(id.value()) == 0; }
  bool quiet(RemoteBatchId id) const { return ended(id) && unquiet_.count(id.value()) == 0; }

  // Its outcomes, as words.
  std::string run(RemoteVerb verb, std::vector<RemoteItem> items) {
    return outcomes_text(run_results(verb, std::move(items)));
  }
  std::vector<RemoteResult> run_results(RemoteVerb verb, std::vector<RemoteItem> items) {
    return end_of(submit({verb, std::move(items), soon()}));
  }

  void collect() {
    for (RemoteEvent& event : store_.drain()) {
      const std::uint64_t id = event.batch.value();
      if (event.kind == RemoteEvent::Kind::kQuiet) {
        EXPECT_EQ(unquiet_.erase(id), 1U) << "quiet was told of batch " << id << ", which was not unquiet";
        continue;
      }
      const auto found = unended_.find(id);
      if (found == unended_.end()) {
        ADD_FAILURE() << "an end was told of batch " << id << ", which is not under way";
        continue;
      }
      EXPECT_EQ(event.results.size(), found->second) << "results of batch " << id;
      if (!event.quiet) unquiet_.insert(id);
      unended_.erase(found);
      results_[id] = std::move(event.results);
    }
  }

 private:
  RemoteStore& store_;
  SteadyClock steady_;
  const Clock& clock_;
  std::map<std::uint64_t, std::size_t> unended_;
  std::set<std::uint64_t> unquiet_;
  std::map<std::uint64_t, std::vector<RemoteResult>> results_;
};

}  // namespace tiercel
