// What the past says about prefixes: where later requests stop following them, how often, after how long.
//
// A table of notes, one per page of a request, tells what is known of a new request: the deepest page with a
// note is where it leaves the past. From that follows what kind of request it is (new, a further turn, a
// branch, …); learnt rates per kind, length and distance from the start or end of what the request adds then
// say where later requests will leave *it*. A request counts as a trial only when it is kMaturity requests
// old: nobody is judged on a morning's silence.
//
// Sees keys and counts only: no clock, no outputs, nothing of what is resident.
//
// Threads: one thread. Cost: learn() looks at four notes per page, and O(kStopsMax) beside; the table is a
// constant kNoteBytes an entry, the rates are of fixed size (below 100 KiB).
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "index/visit_ages.h"

namespace tiercel {

struct SeenRequest {
  std::span<const std::uint64_t> pages;  // a hash of the key of each whole page from first_page on; never 0
  std::uint64_t first_page = 0;
  std::uint64_t restorable = 0;              // pages that it resumes with
  std::uint64_t resident = UINT64_MAX;       // first pages that are there, restorable or not
  bool by_points = false;                    // resumes only where a point is
  std::optional<std::uint64_t> tail_tokens;  // behind its last whole page, if known
  std::uint64_t page_tokens = 1;
};

// What is expected of one request, as of the moment it was seen.
struct Forecast {
  // A length at which later requests may leave this one.
  struct Stop {
    std::uint64_t length = 0;
    double visits = 0;     // expected
    double end_again = 0;  // of the last whole page: the chance that a later request shows it worth a point
    double rate = 0;       // visits per request of keeping it from now on, for the best time to keep it
    bool guess = false;    // of where later requests may leave, not where this one leaves or ends
  };
  std::uint64_t known = 0;  // pages that the past knows
  std::uint64_t there = 0;  // of those, pages that are there; all of them where the request adds nothing
  std::uint64_t full = 0;   // whole pages of the request
  std::vector<Stop> stops;  // ascending
  std::uint16_t fresh_shape = 0, known_shape = 0;
  double known_chance = 0;

  // Chance that a later request resumes at `length`, when the next longer resume point is at `next` (0:
  // none).
  Prospect point(std::uint64_t length, std::uint64_t next) const;
  // The same of a point at `length` that was there before, from what this request adds beyond it.
  Prospect beyond(std::uint64_t length, std::uint64_t next) const;
  // Chance that a later request comes at least as far as the page that ends at `length`.
  Prospect page(std::uint64_t length) const;
};

class ReuseModel final {
 public:
  static constexpr std::uint64_t kNoteBytes = 24;
  static constexpr std::uint64_t kMaturity = 256;  // requests
  static constexpr std::size_t kStopsMax = 20;

  // Notes of about `entries` pages, the longest unvisited of four overwritten first; 0: nothing is ever
  // known.
  explicit ReuseModel(std::uint64_t entries);
  // One request, seen once: forecasts it from the past, then takes note of it.
  Forecast learn(const SeenRequest& request);
  // What to expect of the prefix that ends with this page when it has just been resumed from.
  Prospect used(std::uint64_t page) const;
  const VisitAges& ages() const { return ages_; }
  // Visits per request that one expected visit of something new is worth: what room is priced in.
  double rate_of_new() const;
  std::uint64_t requests() const { return requests_; }  // seen so far: the clock of ages
  std::uint64_t nominal_bytes() const { return notes_.size() * kNoteBytes; }
  static std::uint64_t nominal_bytes(std::uint64_t entries);

 private:
  static constexpr std::size_t kWays = 4;
  static constexpr std::size_t kDistances = 9;      // log2 of pages from an end
  static constexpr std::size_t kLengths = 9;        // log2 of pages that a request adds
  static constexpr std::size_t kTails = 6;          // log2 of the tail's share of a page; unknown
  static constexpr std::size_t kVisitCounts = 5;    // 1, 2, 3–4, 5–8, more
  static constexpr std::size_t kGaps = 4;           // requests between the last two visits
  static constexpr std::size_t kEpochs = 64;        // for visits that wait for a next one
  static constexpr std::uint64_t kEpoch = 64;       // requests
  static constexpr std::uint8_t kHubChildren = 16;  // a prefix that all share: a system prompt
  enum Kind : std::uint8_t {
    kNew,
    kOffHub,     // leaves the past at a hub
    kTurn1,      // goes on where a request ended that nobody has gone on from
    kTurn2,      //
    kTurns3to4,  //
    kTurnsMore,  //
    kEndAgain,   // goes on where a request ended, as others did
    kBranch,     // leaves a request on its way
    kWhole,      // adds nothing
    kKinds
  };
  enum Stop : std::uint8_t { kOnTheWay, kEnd, kLeftHere };
  static constexpr std::size_t kCells = kKinds * kLengths;
  static constexpr std::size_t kPlaces = 3;  // an end that others went on from, one that none did, another
  static constexpr std::size_t kVisitClasses = kPlaces * kVisitCounts * kGaps;
  // Shapes of ages: all first visits, all later ones, by kind, by cell, by class of later visit.
  static constexpr std::uint16_t kFirstShape = 0, kLaterShape = 1, kKindShapes = 2;
  static constexpr std::uint16_t kCellShapes = kKindShapes + kKinds;
  static constexpr std::uint16_t kLaterShapes = kCellShapes + kCells;

  // One page that was part of a request.
  struct Note {
    std::uint64_t page = 0;                 // 0: free
    std::uint32_t owner = 0, last = 0;      // request that brought it; last visit or that
    std::uint8_t back = 0, front = 0;       // distance from the end, the start, of what its owner added
    std::uint8_t children = 0, visits = 0;  // saturating
    std::uint8_t cell = 0, turn = 0;        // of its owner
    std::uint8_t stop : 2 = 0, tail : 3 = 0, gap : 2 = 0;
  };
  static_assert(sizeof(Note) == kNoteBytes);

  struct Rate {
    double uses = 0, trials = 0;
    double mean(double prior, double weight) const;
  };
  // Chance per distance: by cell, leaning on its kind, leaning on all.
  struct Distances {
    std::array<Rate, kDistances> all;
    std::array<std::array<Rate, kDistances>, kKinds> kind;
    std::array<std::array<Rate, kDistances>, kCells> cell;
    void trial(std::size_t of_cell, std::size_t distance);
    void use(std::size_t of_cell, std::size_t distance);
    double chance(std::size_t of_cell, std::size_t distance) const;
  };
  // A request too young to be a trial, and what came of it so far.
  struct Pending {
    bool live = false;
    std::uint8_t cell = 0, tail = 0;
    std::uint64_t fresh = 0;
    bool end = false;
    std::uint16_t back = 0, front = 0;  // bit per distance
  };
  // The request being seen.
  struct Seen {
    const Note* at = nullptr;     // of the deepest known page
    const Note* there = nullptr;  // of the deepest that is there
    std::uint64_t known = 0, full = 0, pages_there = 0;
    std::uint8_t kind = kNew, turn = 0, cell = 0, tail = 0;
    std::uint64_t fresh() const { return full - known; }
  };

  static std::size_t visit_class(const Note& note);
  static std::uint16_t later_shape(const Note& note);
  static std::uint8_t tail_class(const SeenRequest& request);
  std::span<Note> set_of(std::uint64_t page);
  Note* find(std::uint64_t page);
  Note& insert(std::uint64_t page);  // requires: the table is not empty
  std::uint32_t now() const { return static_cast<std::uint32_t>(requests_ - 1); }

  Seen recognise(const SeenRequest& request);
  Note* older_place(const SeenRequest& request, std::uint64_t known);
  void visit(Note& note, bool goes_on);
  void count_use(Note& note, std::size_t class_before, std::uint32_t last_before);
  void take_notes(const SeenRequest& request, const Seen& seen);
  Forecast forecast(const SeenRequest& request, const Seen& seen) const;
  void rate_stops(Forecast& forecast) const;
  void add_fresh_stops(const Seen& seen, std::vector<Forecast::Stop>& stops) const;
  double end_chance(const Seen& seen) const;
  double known_chance(const Seen& seen) const;
  double visited_again(std::size_t of_class) const;
  void use_end(std::size_t cell, std::size_t tail);
  void use_back(std::size_t cell, std::size_t tail, std::size_t distance);
  void mature(const Pending& pending);
  void mature_visits();

  std::vector<Note> notes_;
  VisitAges ages_;
  std::uint64_t requests_ = 0;
  std::uint64_t by_points_ = 0;  // requests of this epoch
  std::array<Pending, kMaturity> pending_{};
  Distances back_, front_;
  std::array<std::array<Rate, kDistances>, kTails> back_tail_{};
  std::array<Rate, kTails> end_tail_{};
  std::array<Rate, kCells> end_cell_{};
  std::array<Rate, kKinds> end_kind_{};
  Rate end_all_;
  std::array<Rate, kVisitClasses> again_{};
  std::array<std::array<Rate, kVisitCounts>, kPlaces> again_visits_{};
  std::array<Rate, kPlaces> again_place_{};
  // Visits without a next one: by class and epoch, and those older than all epochs.
  std::array<std::array<std::uint32_t, kEpochs>, kVisitClasses> open_{};
  std::array<double, kVisitClasses> closed_{};
};

}  // namespace tiercel
