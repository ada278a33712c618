// What the processes of disk_kills were promised, in a file that all of them map: SIGKILL leaves every store
// to it as it was made. A promise is entered after it was given, what may end one before it is asked for.
//
// Computations are numbered; no number is given twice. A number says when something was, too: whatever was
// computed before a removal has a lower one.
//
// Threads: one writes; the parent reads counters, all of which are atomics.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/status.h"
#include "disk_kills_plan.h"

namespace tiercel::kills {

inline constexpr std::uint32_t kSpaces = 2;
inline constexpr std::uint32_t kPages = 92;
inline constexpr std::uint32_t kClasses = 5;
inline constexpr std::uint32_t kRegionsMax = 512;
inline constexpr std::uint32_t kOwnersMax = 1U << 22;

using Word = std::atomic<std::uint64_t>;
static_assert(Word::is_always_lock_free);

// One class-set of one page.
struct BookSet {
  Word durable;  // promised at this number; 0: never
  Word region;   // where it lay then
  Word writes;   // how often that region's header had been begun by then: more means that it may be gone
};
struct BookPage {
  Word removing, removed;  // up to these numbers it and all below may have gone; have gone
  std::array<BookSet, kClasses> sets;
};
struct BookSpace {
  Word clearing, cleared;
  std::array<BookPage, kPages> pages;
};

// What is counted, for the summary.
enum class Count : std::uint8_t {
  kOpenings,
  kAudits,
  kFoundSets,     // read back byte for byte by an audit
  kPromisedSets,  // of those, that had to be there
  kEvictedSets,   // promised, and gone with a region that was begun anew
  kMatches,       // of an audit: brought up through the node, and its bytes compared
  kStores,
  kDurable,  // class-sets of stores that were promised
  kLoads,
  kRemovals,
  kUnsettled,  // removals, clears and epochs that a kill interrupted
  kClears,
  kEpochs,
  kFlushes,
  kPrefetches,
  kCloses,
  kRegions,  // begun
  kChecks,   // of a whole log, before it is opened
  kRefused,  // removals that the drive did not take in time
  kNumber
};
std::string_view count_name(Count count);

struct Book {
  Word last;  // computation
  Word clearing_form, cleared_form;
  Word epoch_begun, epoch_done;
  Word log_made;
  Word phase;
  std::array<Word, kRegionsMax> region_writes;
  std::array<Word, static_cast<std::size_t>(Count::kNumber)> counts;
  std::array<BookSpace, kSpaces> spaces;
  std::array<Word, kPointCount> kills_at;
  std::array<char, 4096> failure;
  std::array<std::atomic<std::uint32_t>, kOwnersMax> owners;  // of each computation: set_number() + 1

  void count(Count what, std::uint64_t by = 1) { counts[static_cast<std::size_t>(what)] += by; }
  void uncount(Count what) { --counts[static_cast<std::size_t>(what)]; }
  std::uint64_t counted(Count what) const { return counts[static_cast<std::size_t>(what)]; }
};

constexpr std::uint32_t set_number(std::uint32_t space, std::uint32_t page, std::uint32_t cls) {
  return (space * kPages + page) * kClasses + cls;
}

// Where a process is.
enum Phase : std::uint64_t { kStarting, kRecovering, kAuditing, kWorking, kClosing, kWaiting };

// The file of a book, mapped for as long as this lives.
class OpenBook final {
 public:
  // A new one is all zeros.
  static Result<OpenBook> open(const std::string& path);
  OpenBook(OpenBook&& other) noexcept;
  OpenBook& operator=(OpenBook&&) = delete;
  ~OpenBook();
  Book& operator*() const { return *book_; }
  Book* operator->() const { return book_; }

 private:
  explicit OpenBook(Book* book) : book_(book) {}
  Book* book_;
};

}  // namespace tiercel::kills
