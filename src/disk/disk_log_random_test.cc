// Random operations, kills and power cuts against a simple model: what is found was appended, is whole and
// was not removed; what was promised durable and was not evicted or removed is found.
#include <algorithm>
#include <map>
#include <set>

#include <gtest/gtest.h>

#include "disk/test_log.h"

namespace tiercel {
namespace {

constexpr std::uint64_t kChains = 12, kPages = 8;

struct Page {
  std::uint64_t removals = 0;  // of it, of a page before it, of everything: content changes with each
  std::map<std::uint64_t, std::uint64_t> appended;  // by number of the log: removals then
  std::optional<std::uint64_t> durable;             // number of what was promised and is not gone
};

class RandomLog : public LogTest {
 protected:
  RandomLog() : LogTest(4 * kMiB) {
    options.region_bytes = 128ULL * 1024;
    options.index_entries = 512;
    options.removals_max = 64;
    options.segment_bytes = 64ULL * 1024;
    options.queued_bytes_max = 256ULL * 1024;
    options.flush_bytes = 128ULL * 1024;
  }

  void run(std::uint64_t seed, int steps) {
    Prng prng(seed);
    open();
    for (int step = 0; step < steps && !HasFatalFailure() && !HasNonfatalFailure(); ++step) {
      switch (prng.below(24)) {
        case 0:
          remove(prng);
          break;
        case 1:
          if (prng.below(8) == 0) clear();
          break;
        case 2:
          crash(prng);
          break;
        case 3:
          log->flush_soon();
          break;
        case 4:
          check_some(prng);
          break;
        case 5:
          if (prng.below(4) == 0) troubles(prng);
          break;
        default:
          append_some(prng);
      }
      for (std::uint64_t polls = prng.below(4); polls > 0; --polls) log->poll();
      clock.advance(std::chrono::milliseconds(prng.below(50)));
      follow();
    }
    calm();
    check_all();
  }

  std::uint64_t number(std::uint64_t chain, std::uint64_t page) const { return chain * 100 + page; }

  void append_some(Prng& prng) {
    const std::uint64_t chain = prng.below(kChains), page = prng.below(kPages);
    const std::uint64_t n = number(chain, page);
    const auto two = static_cast<std::uint16_t>(1 + page % 2);
    auto set = test_set(space, name, n, ClassId(0), two, pages[n].removals);
    const DiskAnswer answer = log->append(set->entry, DiskOffer::kComputed);
    if (answer.verdict != DiskVerdict::kAccepted) return;
    pages[n].appended[log->last_at()] = pages[n].removals;
    under_way[answer.append] = n;
    memory[answer.append] = std::move(set);
    if (prng.below(3) == 0) {
      log->touch({space, test_key(n), ClassId(0)});
      log->touch({space, test_key(n), ClassId(0)});
    }
  }

  void remove(Prng& prng) {
    const std::uint64_t chain = prng.below(kChains), page = prng.below(kPages);
    const auto at = log->remove(space, test_key(number(chain, page)));
    gone(chain, page);
    settle(at);
  }
  void clear() {
    const auto at = log->clear(space);
    for (std::uint64_t chain = 0; chain < kChains; ++chain) gone(chain, 0);
    settle(at);
  }
  void gone(std::uint64_t chain, std::uint64_t page) {
    for (std::uint64_t p = page; p < kPages; ++p) {
      Page& of = pages[number(chain, p)];
      ++of.removals;
      of.durable.reset();
    }
  }
  // A removal counts once it is durable; so it is waited for, with the drive in order.
  void settle(std::optional<std::uint64_t> at) {
    calm();
    if (!at) at = log->last_at();
    const Status status = log->settle(*at, kLong);
    ASSERT_TRUE(status.ok()) << status.to_string();
    follow();
  }
  void calm() {
    drive->failure = {};
    drive->held = {};
    for (int i = 0; i < 100; ++i) {
      log->poll();
      if (log->down()) clock.advance(std::chrono::seconds(31));
    }
    clock.advance(std::chrono::seconds(31));
    log->poll();
    follow();
  }
  void troubles(Prng& prng) {
    const std::uint64_t kind = prng.below(4);
    const auto rest = std::make_shared<std::uint64_t>(prng.below(4) + 1);
    drive->failure = [kind, rest](const BlockRequest& request) -> Status {
      const bool hit = (kind == 0 && request.work == BlockWork::kFlush) ||
                       (kind == 1 && request.work == BlockWork::kWrite) ||
                       (kind == 2 && request.work == BlockWork::kWrite) || kind == 3;
      if (!hit || *rest == 0) return {};
      --*rest;
      return {kind == 2 ? Code::kResourceExhausted : Code::kIoError, "injected"};
    };
  }

  void crash(Prng& prng) {
    follow();
    drive->failure = {};
    drive->held = {};
    const std::uint64_t how = prng.below(5);
    if (how == 0) {
      const Status status = log->close(kLong);
      if (status.ok()) follow();
      log.reset();
    } else if (how < 4) {
      drive->cut_power();
    }
    open();
    memory.clear();
    under_way.clear();
    written.clear();  // what was not durable by now was not promised
    events.clear();
    check_all();
  }

  void follow() {
    for (DiskEvent& event : log->drain_events()) {
      const std::uint64_t n = event.name.key == Key{} ? 0 : of_key(event.name.key);
      if (event.kind == DiskEvent::Kind::kWritten) {
        written[event.at] = n;
        ASSERT_EQ(memory.erase(event.append), 1U);
      } else if (event.kind == DiskEvent::Kind::kLost) {
        ASSERT_EQ(memory.erase(event.append), 1U);
      } else if (event.kind == DiskEvent::Kind::kEvicted) {
        pages[n].durable.reset();
        std::erase_if(written, [&](const auto& item) { return item.second == n; });
      } else if (event.kind == DiskEvent::Kind::kDurable) {
        for (auto it = written.begin(); it != written.end() && it->first <= event.at;
             it = written.erase(it)) {
          Page& page = pages[it->second];
          if (page.appended[it->first] == page.removals) page.durable = it->first;
        }
      } else if (event.kind == DiskEvent::Kind::kRead) {
        events.push_back(event);
      }
    }
  }
  std::uint64_t of_key(const Key& key) const {
    for (std::uint64_t chain = 0; chain < kChains; ++chain)
      for (std::uint64_t page = 0; page < kPages; ++page)
        if (test_key(number(chain, page)) == key) return number(chain, page);
    ADD_FAILURE() << "an event of an unknown key";
    return 0;
  }

  void check_some(Prng& prng) {
    calm();
    check_chain(prng.below(kChains));
  }
  void check_all() {
    for (std::uint64_t chain = 0; chain < kChains; ++chain) check_chain(chain);
  }
  void check_chain(std::uint64_t chain) {
    std::vector<Key> keys;
    for (std::uint64_t page = 0; page < kPages; ++page) keys.push_back(test_key(number(chain, page)));
    std::vector<Presence> presence(kPages);
    log->find_chain(space, 0, keys, presence);
    for (std::uint64_t p = 0; p < kPages; ++p) {
      const std::uint64_t n = number(chain, p);
      const Page& page = pages[n];
      if (page.durable) {
        ASSERT_TRUE(presence[p] & 1U) << "number " << n << " was durable at " << *page.durable;
      }
      if ((presence[p] & 1U) == 0) continue;
      read_and_compare(n, p, page);
      if (HasFatalFailure()) return;
    }
  }
  void read_and_compare(std::uint64_t n, std::uint64_t p, const Page& page) {
    const auto two = static_cast<std::uint16_t>(1 + p % 2);
    const auto wanted = test_set(space, name, n, ClassId(0), two, page.removals);
    TestSet into = wanted->blank();
    const auto id = log->read(into.entry, true);
    if (!id) {  // evicted while the pages before it were read
      ASSERT_FALSE(found(n));
      return;
    }
    for (int i = 0; i < 20; ++i) {
      log->poll();
      follow();
      const auto end = std::find_if(events.begin(), events.end(),
                                    [&](const DiskEvent& event) { return event.read == *id; });
      if (end == events.end()) continue;
      ASSERT_TRUE(end->status.ok()) << end->status.to_string();
      ASSERT_TRUE(into.records == wanted->records)
          << "number " << n << ": other bytes than were appended last";
      return;
    }
    FAIL() << "a read did not end";
  }

  std::map<std::uint64_t, Page> pages;
  std::map<DiskAppendId, std::uint64_t> under_way;
  std::map<std::uint64_t, std::uint64_t> written;  // number of the log: number
};

TEST_F(RandomLog, AgreesWithTheModel) {
  const char* const asked =
      std::getenv("TIERCEL_RANDOM_SEEDS");  // NOLINT(concurrency-mt-unsafe): nothing sets it
  const std::uint64_t seeds = asked != nullptr ? std::strtoull(asked, nullptr, 10) : 12;
  for (std::uint64_t seed = 1; seed <= seeds && !HasFailure(); ++seed) {
    SCOPED_TRACE(seed);
    log.reset();
    options.reinsert_after = seed % 2 == 0 ? 2 : 0;
    drive = std::make_unique<TestBlockDevice>(4 * kMiB, clock);
    pages.clear();
    written.clear();
    memory.clear();
    events.clear();
    run(seed, 1000);
  }
}

}  // namespace
}  // namespace tiercel
