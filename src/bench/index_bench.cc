// The page index at its full size: finding prefixes, alone, under a lease, and while another process changes
// it; storing and evicting at capacity.
#include <array>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include <fmt/format.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/check.h"
#include "base/prng.h"
#include "bench/benches.h"
#include "bench/index_parts.h"
#include "index/compact_index.h"
#include "index/lease_table.h"
#include "index/lru.h"

namespace tiercel {
namespace {

constexpr std::uint64_t kLookups = 64;  // prefixes an iteration

// Prefixes to ask for, other ones in each iteration, so that nothing of them is in a cache.
class Questions final {
 public:
  Questions(std::uint64_t chains_from, std::uint64_t chains_to)
      : from_(chains_from), to_(chains_to), keys_(kLookups) {}
  void renew() {
    for (ChainKeys& keys : keys_) fill(keys, prng_.between(from_, to_ - 1));
  }
  const std::vector<ChainKeys>& keys() const { return keys_; }

 private:
  Prng prng_{7};
  std::uint64_t from_, to_;
  std::vector<ChainKeys> keys_;
};

struct Found {
  std::uint64_t pages = 0, asked = 0;
};

// Reads prefixes as another process does; counts pages found, so that a miss shows.
Subject lookups(std::string name, const IndexView& view, Questions& questions, Found& counts) {
  return {std::move(name),
          [&](Samples& samples) {
            std::array<FoundPage, kChain> found;
            for (const ChainKeys& keys : questions.keys()) {
              const double start = now_nanoseconds();
              view.read_chain(kSpace, 0, keys, found);
              samples.add(now_nanoseconds() - start);
              for (const FoundPage& page : found) counts.pages += page.page != kNoPage ? 1 : 0;
              counts.asked += kChain;
            }
          },
          [&questions] { questions.renew(); }};
}

// As many cache lines as a prefix touches, at random places that are known beforehand: eight strips of six
// lines, eight buckets; for further classes eight rows of two.
Subject random_loads(const CompactIndex& index, std::uint32_t classes) {
  const ByteView memory = index.image();
  return {"independent loads",
          [memory, classes, prng = Prng(3)](Samples& samples) mutable {
            constexpr std::uint64_t kLine = 64;
            const std::uint64_t lines = memory.size() / kLine - 8;
            for (std::uint64_t i = 0; i < kLookups; ++i) {
              std::array<std::uint64_t, 3 * kChain / compact::kCells> places;
              for (std::uint64_t& place : places) place = prng.below(lines) * kLine;
              const std::size_t strips = kChain / compact::kCells;
              const double start = now_nanoseconds();
              std::uint64_t sum = 0;
              for (std::size_t p = 0; p < places.size(); ++p) {
                const std::uint64_t run = p < strips ? 6 : p < 2 * strips ? 1 : classes == 1 ? 0 : 2;
                for (std::uint64_t line = 0; line < run; ++line)
                  sum += static_cast<std::uint64_t>(memory[places[p] + line * kLine]);
              }
              keep(sum);
              samples.add(now_nanoseconds() - start);
            }
          },
          {}};
}

// What a store keyed by strings does, with a tenth of the pages.
class StringMap final {
 public:
  explicit StringMap(std::uint64_t chains) : chains_(chains) {
    for (std::uint64_t chain = 0; chain < chains; ++chain)
      for (std::uint64_t page = 0; page < kChain; ++page)
        map_.emplace(name(key_of(chain, page)), static_cast<std::uint32_t>(page));
  }
  Subject subject() {
    return {"unordered_map",
            [this](Samples& samples) {
              for (const auto& names : asked_) {
                const double start = now_nanoseconds();
                std::uint64_t sum = 0;
                for (const std::string& each : names) sum += map_.find(each)->second;
                keep(sum);
                samples.add(now_nanoseconds() - start);
              }
            },
            [this] {
              asked_.assign(kLookups, {});
              for (auto& names : asked_) {
                const std::uint64_t chain = prng_.below(chains_);
                for (std::uint64_t page = 0; page < kChain; ++page)
                  names.push_back(name(key_of(chain, page)));
              }
            }};
  }

 private:
  static std::string name(const Key& key) {
    return to_hex(key) + "_tp0_pp0_model_bf16_kv_pages_0000001";
  }  // 68 bytes
  std::uint64_t chains_;
  Prng prng_{5};
  std::unordered_map<std::string, std::uint32_t> map_;
  std::vector<std::vector<std::string>> asked_;
};

// A process that evicts and stores, in half of the index, until it is ended.
class Writer final {
 public:
  explicit Writer(FullIndex& full) {
    // Mappings stay out of children (contract §4); this one is wanted there.
    madvise(full.memory().data(), full.memory().size(), MADV_DOFORK);
    const pid_t parent = getpid();
    pid_ = fork();
    if (pid_ != 0) return;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(0);
    const std::uint64_t half = full.chains() / 2;
    for (std::uint64_t round = 0; round < 100'000'000; ++round) {
      full.evict_chain(round < half ? round : full.chains() * 2 + round - half);
      full.store(full.chains() * 2 + round);
    }
    _exit(0);
  }
  ~Writer() {
    if (pid_ <= 0) return;
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  Writer(const Writer&) = delete;
  Writer& operator=(const Writer&) = delete;
  bool running() const { return pid_ > 0 && waitpid(pid_, nullptr, WNOHANG) == 0; }

 private:
  pid_t pid_ = -1;
};

BenchLine lookup_line(const Comparison& result, std::string name, std::string_view page_kind,
                      std::string note) {
  BenchLine line = line_of(result, std::move(name), 0, 1, BenchUnit::kNanoseconds, "ns/prefix");
  line.limit_name = "independent loads of as many lines";
  line.target = "p50 < 2 us";
  line.page_kind = page_kind;
  line.note = std::move(note);
  return line;
}

// Beside a map of strings: in a comparison of its own, since its memory drives ours out of the caches.
void add_string_map(BenchRun& run, BenchLine& line, const FullIndex& full, Questions& questions,
                    const IndexView& view) {
  run.progress("filling a map of strings");
  StringMap map(std::max<std::uint64_t>(1, full.chains() / 10));
  Found found;
  const Subject subjects[] = {lookups("lookup", view, questions, found), map.subject()};
  const Comparison beside = run.compare("beside a map of strings", kLookups, subjects);
  add_peer(line, beside, 0, 1, BenchUnit::kNanoseconds, "unordered_map<string>, a tenth of the pages");
}

Status match_lines(BenchRun& run, std::uint64_t pages, std::uint32_t classes) {
  const auto made = FullIndex::create(pages, classes, run);
  if (!made) return made.error();
  FullIndex* const full = made->get();
  const IndexView view = *IndexView::attach(full->index().image());
  const std::string of = classes == 1 ? "one class" : "three classes";
  Questions questions(full->chains() / 2, full->chains());  // the writer takes the others
  Found found;
  const Subject alone_subjects[] = {lookups("lookup", view, questions, found),
                                    random_loads(full->index(), classes)};
  const Comparison alone =
      run.compare(fmt::format("128 pages of {}, {}", pages, of), kLookups, alone_subjects);
  BenchLine line = lookup_line(alone, fmt::format("match 128 of {} pages, {}", pages, of), full->page_kind(),
                               "whole keys compared");
  if (found.pages != found.asked) return {Code::kInternal, "match: pages that are there were not found"};
  if (classes == 1) add_string_map(run, line, *full, questions, view);
  run.add(std::move(line));

  found = {};
  const Writer writer(*full);
  if (!writer.running()) return {Code::kUnavailable, "match: no second process could be started"};
  const Subject beside[] = {lookups("lookup", view, questions, found), random_loads(full->index(), classes)};
  const Comparison shared =
      run.compare(fmt::format("while another process writes, {}", of), kLookups, beside);
  if (!writer.running())
    return {Code::kInternal, "match: the process that writes ended before it was told to"};
  line = lookup_line(shared, fmt::format("match 128 of {} pages, {}, other process writing", pages, of),
                     full->page_kind(),
                     fmt::format("{:.2f} % found", 100.0 * static_cast<double>(found.pages) /
                                                       static_cast<double>(found.asked)));
  run.add(std::move(line));
  return {};
}

}  // namespace

Status match_bench(BenchRun& run) {
  const std::uint64_t pages = run.size(10'000'000 / kChain * kChain, 64 * kChain);
  for (const std::uint32_t classes : {1U, 3U})
    if (Status status = match_lines(run, pages, classes); !status.ok()) return status;
  return {};
}

Status insert_bench(BenchRun& run) {
  const std::uint64_t pages = run.size(10'000'000 / kChain * kChain, 64 * kChain);
  for (const std::uint32_t classes : {1U, 3U}) {
    const auto made = FullIndex::create(pages, classes, run);
    if (!made) return made.error();
    FullIndex* const full = made->get();
    std::uint64_t next = full->chains();
    const std::uint64_t chains = run.size(64, 4);
    const ByteView memory = full->index().image();
    const Subject subjects[] = {
        {"evict and insert",
         [&](Samples&) {
           for (std::uint64_t i = 0; i < chains; ++i) {
             for (std::uint64_t page = 0; page < kChain; ++page) full->evict();
             full->store(next++);
           }
         },
         {}},
        {"one random write and one random read",
         [&, prng = Prng(3)](Samples&) mutable {
           auto* bytes = const_cast<std::byte*>(memory.data()) + sizeof(compact::Header);
           std::uint64_t sum = 0;
           for (std::uint64_t i = 0; i < chains * kChain; ++i) {
             // Written back as it was: the limit leaves the index whole.
             auto* place = bytes + prng.below(memory.size() - 4096);
             __atomic_fetch_or(reinterpret_cast<unsigned char*>(place), 0, __ATOMIC_RELAXED);
             sum += static_cast<std::uint64_t>(bytes[prng.below(memory.size() - 4096)]);
           }
           keep(sum);
         },
         {}}};
    const Comparison result = run.compare(fmt::format("evict and insert, {} class(es)", classes),
                                          chains * kChain, subjects, BenchClock::kThread);
    BenchLine line = line_of(
        result,
        fmt::format("evict + insert at {} pages, {}", pages, classes == 1 ? "one class" : "three classes"), 0,
        1, BenchUnit::kMillions, "M/s");
    line.limit_name = "one random write and one random read";
    line.target = ">= 5 M/s";
    line.page_kind = full->page_kind();
    line.note =
        fmt::format("index {:.2f} bytes a page, lru {}",
                    static_cast<double>(memory.size()) / static_cast<double>(pages), LruPolicy::kPageBytes);
    run.add(std::move(line));
    if (auto wrong = run.quick() ? full->index().inconsistency() : std::nullopt)
      return {Code::kInternal, *wrong};
  }
  return {};
}

}  // namespace tiercel
