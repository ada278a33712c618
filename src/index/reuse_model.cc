#include "index/reuse_model.h"

#include <algorithm>
#include <bit>

#include "base/checked.h"
#include "base/prng.h"

namespace tiercel {
namespace {

// What the rates say before anything was seen, and how many trials that is worth.
constexpr double kLeavesOnTheWay = 0.01;  // per distance
constexpr double kLeavesWeight = 32;
constexpr double kEndIsResumed = 0.3;
constexpr double kEndWeightAll = 8, kEndWeight = 16;
constexpr double kTailWeight = 64;
constexpr double kVisitedAgain = 0.3;
constexpr double kAgainWeightAll = 4, kAgainWeight = 8;
constexpr double kPartialPage = 0.02;  // chance that a page that is not whole is seen again
constexpr double kVisitsMost = 16;     // expected of one stop
// Visits that the more general ages count as in those of a class. Points are few and each costs many pages:
// what tells classes apart has to be sure. Single pages are many and cheap, and gain from finer differences.
constexpr double kPriorVisitsByPages = 10, kPriorVisitsByPoints = 80;

std::size_t log2_up(std::uint64_t x) { return x <= 1 ? 0 : static_cast<std::size_t>(std::bit_width(x - 1)); }

std::uint8_t saturated(std::uint64_t x) { return static_cast<std::uint8_t>(std::min<std::uint64_t>(x, 255)); }

// Distances of one class within `fresh` pages; none where it reaches beyond their half.
struct DistanceRange {
  std::uint64_t low = 0, high = 0;
  bool any = false;
};
DistanceRange distances(std::size_t of_class, std::uint64_t fresh) {
  DistanceRange range;
  range.low = of_class == 0 ? 1 : (std::uint64_t{1} << (of_class - 1)) + 1;
  range.high = std::min(std::uint64_t{1} << of_class, fresh - 1);
  range.any = range.low * 2 <= fresh && range.high >= range.low;
  return range;
}

std::size_t visits_class(std::uint8_t visits) {
  return visits <= 1 ? 0 : visits == 2 ? 1 : visits <= 4 ? 2 : visits <= 8 ? 3 : 4;
}

}  // namespace

// ---- forecasts ----

Prospect Forecast::point(std::uint64_t length, std::uint64_t next) const {
  double missed = 1;
  for (const Stop& stop : stops) {
    if (stop.length < length || (next != 0 && stop.length >= next)) continue;
    // Visits of what is known are a sum over many requests, those of what is new a chance.
    const double chance = stop.length == there ? stop.visits / (1 + stop.visits) : stop.visits;
    missed *= 1 - std::min(1.0, chance);
  }
  return {length == there ? known_shape : fresh_shape, 1 - missed};
}

Prospect Forecast::beyond(std::uint64_t length, std::uint64_t next) const {
  return {fresh_shape, point(length + 1, next).chance};
}

Prospect Forecast::page(std::uint64_t length) const {
  if (length > full) return {fresh_shape, kPartialPage};
  double missed = 1;
  for (const Stop& stop : stops)
    if (stop.length >= length && stop.length > known) missed *= 1 - std::min(1.0, stop.visits);
  if (length <= known) return {known_shape, 1 - missed * (1 - known_chance)};
  return {fresh_shape, 1 - missed};
}

// ---- rates ----

double ReuseModel::Rate::mean(double prior, double weight) const {
  return std::min(1.0, (uses + prior * weight) / (trials + weight));
}

void ReuseModel::Distances::trial(std::size_t of_cell, std::size_t distance) {
  all[distance].trials += 1;
  kind[of_cell / kLengths][distance].trials += 1;
  cell[of_cell][distance].trials += 1;
}

void ReuseModel::Distances::use(std::size_t of_cell, std::size_t distance) {
  all[distance].uses += 1;
  kind[of_cell / kLengths][distance].uses += 1;
  cell[of_cell][distance].uses += 1;
}

double ReuseModel::Distances::chance(std::size_t of_cell, std::size_t distance) const {
  const double general = all[distance].mean(kLeavesOnTheWay, kLeavesWeight);
  const double of_kind = kind[of_cell / kLengths][distance].mean(general, kLeavesWeight);
  return cell[of_cell][distance].mean(of_kind, kLeavesWeight);
}

double ReuseModel::visited_again(std::size_t of_class) const {
  const std::size_t place = of_class / (kVisitCounts * kGaps);
  const double general = again_place_[place].mean(kVisitedAgain, kAgainWeightAll);
  const double by_visits = again_visits_[place][of_class / kGaps % kVisitCounts].mean(general, kAgainWeight);
  return again_[of_class].mean(by_visits, kAgainWeight);
}

double ReuseModel::known_chance(const Seen& seen) const {
  const double at_known = visited_again(visit_class(*seen.at));
  if (seen.pages_there == seen.known) return at_known;
  const bool visited = seen.there != nullptr && seen.there->stop != kOnTheWay;
  const double at_there = visited ? visited_again(visit_class(*seen.there))
                                  : again_place_[kPlaces - 1].mean(kVisitedAgain, kAgainWeightAll);
  return std::max(at_known, at_there);
}

double ReuseModel::end_chance(const Seen& seen) const {
  const double all = end_all_.mean(kEndIsResumed, kEndWeightAll);
  const double of_kind = end_kind_[seen.kind].mean(all, kEndWeightAll);
  const double by_tail = end_tail_[seen.tail].mean(all, kTailWeight) / all;
  return std::min(1.0, end_cell_[seen.cell].mean(of_kind, kEndWeight) * by_tail);
}

double ReuseModel::rate_of_new() const { return ages_.rate({kFirstShape, kEndIsResumed}, 0) / kEndIsResumed; }

// ---- notes ----

ReuseModel::ReuseModel(std::uint64_t entries)
    : notes_(ceil_div(entries, kWays) * kWays), ages_([] {
        std::vector<std::uint16_t> leans_on(kLaterShapes + kVisitClasses, kLaterShape);
        leans_on[kFirstShape] = leans_on[kLaterShape] = VisitAges::kLeansOnNone;
        for (std::uint16_t i = 0; i < kKinds; ++i) leans_on[kKindShapes + i] = kFirstShape;
        for (std::uint16_t i = 0; i < kCells; ++i)
          leans_on[kCellShapes + i] = static_cast<std::uint16_t>(kKindShapes + i / kLengths);
        return leans_on;
      }()) {}

std::uint64_t ReuseModel::nominal_bytes(std::uint64_t entries) {
  return ceil_div(entries, kWays) * kWays * kNoteBytes;
}

std::span<ReuseModel::Note> ReuseModel::set_of(std::uint64_t page) {
  const Uint128 sets = notes_.size() / kWays;
  return std::span(notes_).subspan(static_cast<std::size_t>((page * sets) >> 64) * kWays,
                                   notes_.empty() ? 0 : kWays);
}

ReuseModel::Note* ReuseModel::find(std::uint64_t page) {
  for (Note& note : set_of(page))
    if (note.page == page) return &note;
  return nullptr;
}

ReuseModel::Note& ReuseModel::insert(std::uint64_t page) {
  const std::span<Note> set = set_of(page);
  Note* victim = &set[0];
  for (Note& note : set) {
    if (note.page == page) return note;
    if (victim->page == 0) continue;
    // Differences, for the counts of requests go round.
    if (note.page == 0 || now() - note.last > now() - victim->last) victim = &note;
  }
  *victim = Note{};
  victim->page = page;
  return *victim;
}

std::size_t ReuseModel::visit_class(const Note& note) {
  const std::size_t place = note.stop != kEnd ? 2 : note.children == 0 ? 1 : 0;
  return (place * kVisitCounts + visits_class(note.visits)) * kGaps + note.gap;
}

std::uint16_t ReuseModel::later_shape(const Note& note) {
  return static_cast<std::uint16_t>(kLaterShapes + visit_class(note));
}

std::uint8_t ReuseModel::tail_class(const SeenRequest& request) {
  if (!request.tail_tokens) return kTails - 1;
  std::uint8_t share = 0;  // from a 16th of a page on, doubling
  while (share < kTails - 2 && *request.tail_tokens * 32 >= request.page_tokens << (share + 1)) ++share;
  return share;
}

Prospect ReuseModel::used(std::uint64_t page) const {
  const Note* note = const_cast<ReuseModel*>(this)->find(page);
  if (note == nullptr || note->visits == 0) return {kLaterShape, kVisitedAgain};
  return {later_shape(*note), visited_again(visit_class(*note))};
}

// ---- seeing a request ----

Forecast ReuseModel::learn(const SeenRequest& request) {
  ++requests_;
  if (request.by_points) ++by_points_;
  if (requests_ % kEpoch == 0) {
    ages_.refresh(2 * by_points_ >= kEpoch ? kPriorVisitsByPoints : kPriorVisitsByPages);
    by_points_ = 0;
    mature_visits();
  }
  const Seen seen = recognise(request);
  Forecast forecast = this->forecast(request, seen);
  if (seen.fresh() > 0) take_notes(request, seen);
  Pending& slot = pending_[now() % kMaturity];
  slot = Pending{};
  if (seen.fresh() > 0) {
    slot.live = true;
    slot.cell = seen.cell;
    slot.tail = seen.tail;
    slot.fresh = seen.fresh();
  }
  if (const Pending& oldest = pending_[requests_ % kMaturity]; oldest.live) mature(oldest);
  return forecast;
}

// What the past knows of the request, which counts as a visit where the request leaves it.
ReuseModel::Seen ReuseModel::recognise(const SeenRequest& request) {
  Seen seen;
  seen.full = request.first_page + request.pages.size();
  Note* at = nullptr;
  std::size_t known = request.pages.size();
  while (known > 0 && (at = find(request.pages[known - 1])) == nullptr) --known;
  seen.known = request.first_page + known;
  if (Note* older = older_place(request, seen.known)) {
    seen.known = request.resident;
    seen.kind = seen.fresh() == 0 ? kWhole : kBranch;
    at = older;
  } else if (at != nullptr) {
    if (at->children >= kHubChildren) {
      seen.kind = kOffHub;
    } else if (seen.fresh() == 0) {
      seen.kind = kWhole;
    } else if (at->stop == kEnd && at->visits == 0) {
      seen.turn = saturated(at->turn + std::uint64_t{1});
      seen.kind = seen.turn <= 1   ? kTurn1
                  : seen.turn == 2 ? kTurn2
                  : seen.turn <= 4 ? kTurns3to4
                                   : kTurnsMore;
    } else {
      seen.kind = at->stop == kEnd ? kEndAgain : kBranch;
    }
    visit(*at, seen.fresh() > 0);
    // Where the request really resumes is visited too: that place serves what stops beyond it.
    if (request.restorable > request.first_page && request.restorable < seen.known) {
      if (Note* from = find(request.pages[request.restorable - request.first_page - 1])) {
        if (from->stop == kOnTheWay) {
          from->stop = kLeftHere;
          from->visits = 1;
        }
        visit(*from, false);
      }
    }
  }
  seen.at = seen.there = at;
  seen.pages_there = seen.fresh() == 0 ? seen.known : std::min(seen.known, request.resident);
  if (seen.pages_there < seen.known)
    seen.there = seen.pages_there > request.first_page
                     ? find(request.pages[seen.pages_there - request.first_page - 1])
                     : nullptr;
  const std::size_t length = std::min(kLengths - 1, log2_up(seen.fresh()));
  seen.cell = static_cast<std::uint8_t>(seen.kind * kLengths + length);
  seen.tail = tail_class(request);
  return seen;
}

// Pages may be there that came before these notes (a restart, another node): where they end, requests part.
ReuseModel::Note* ReuseModel::older_place(const SeenRequest& request, std::uint64_t known) {
  const std::uint64_t full = request.first_page + request.pages.size();
  if (notes_.empty() || request.resident > full || request.resident <= known) return nullptr;
  Note& note = insert(request.pages[request.resident - request.first_page - 1]);
  note.owner = note.last = now();
  note.stop = kLeftHere;
  note.visits = 1;
  note.children = 1;
  return &note;
}

Forecast ReuseModel::forecast(const SeenRequest& request, const Seen& seen) const {
  Forecast forecast;
  forecast.known = seen.known;
  forecast.there = seen.pages_there;
  forecast.full = seen.full;
  forecast.fresh_shape = forecast.known_shape = static_cast<std::uint16_t>(kCellShapes + seen.cell);
  if (seen.at != nullptr) {
    forecast.known_shape = later_shape(*seen.at);
    forecast.known_chance = visited_again(visit_class(*seen.at));
    // Where what is there ends is where those who still have a use for it part.
    if (seen.pages_there > request.restorable) {
      const double chance = known_chance(seen);
      forecast.stops.push_back(
          {seen.pages_there, std::min(kVisitsMost, chance / std::max(1e-3, 1 - chance))});
    }
  }
  if (seen.fresh() > 0) add_fresh_stops(seen, forecast.stops);
  rate_stops(forecast);
  return forecast;
}

void ReuseModel::rate_stops(Forecast& forecast) const {
  for (Forecast::Stop& stop : forecast.stops) {
    const bool known = stop.length == forecast.there;
    const double chance = known ? stop.visits / (1 + stop.visits) : std::min(1.0, stop.visits);
    stop.rate = ages_.rate({known ? forecast.known_shape : forecast.fresh_shape, chance}, 0);
  }
}

void ReuseModel::add_fresh_stops(const Seen& seen, std::vector<Forecast::Stop>& stops) const {
  for (std::size_t b = 0; b < kDistances; ++b) {
    const DistanceRange range = distances(b, seen.fresh());
    if (!range.any) break;
    const double all = back_.all[b].mean(kLeavesOnTheWay, kLeavesWeight);
    const double by_tail = back_tail_[seen.tail][b].mean(all, kTailWeight) / all;
    const std::uint64_t from_back = seen.full - range.high;
    if (from_back > seen.known)
      stops.push_back({from_back, back_.chance(seen.cell, b) * by_tail, 0, 0, true});
    const std::uint64_t from_front = seen.known + range.low;
    if (from_front < from_back) stops.push_back({from_front, front_.chance(seen.cell, b), 0, 0, true});
  }
  const double end = end_chance(seen);
  stops.push_back({seen.full, end, end});
  std::stable_sort(stops.begin(), stops.end(),
                   [](const auto& a, const auto& b) { return a.length < b.length; });
}

void ReuseModel::take_notes(const SeenRequest& request, const Seen& seen) {
  if (notes_.empty()) return;
  for (std::uint64_t length = seen.known + 1; length <= seen.full; ++length) {
    Note& note = insert(request.pages[length - request.first_page - 1]);
    note.owner = note.last = now();
    note.back = saturated(seen.full - length);
    note.front = saturated(length - seen.known);
    note.children = length < seen.full ? 1 : 0;
    note.stop = length < seen.full ? kOnTheWay : kEnd;
    note.visits = 0;
    note.gap = 0;
    note.cell = seen.cell;
    note.tail = seen.tail & 7U;
    note.turn = seen.turn;
  }
}

// ---- learning ----

void ReuseModel::visit(Note& note, bool goes_on) {
  const std::uint32_t last_before = note.last;
  const std::uint32_t age = now() - last_before;
  if (note.children < kHubChildren)
    ages_.count(note.visits != 0 ? later_shape(note) : static_cast<std::uint16_t>(kCellShapes + note.cell),
                age);
  const std::size_t class_before = visit_class(note);
  note.gap = age < 64 ? 0 : age < 256 ? 1 : age < 1024 ? 2 : 3;
  note.last = now();
  count_use(note, class_before, last_before);
  note.visits = saturated(note.visits + std::uint64_t{1});
  if (goes_on) note.children = saturated(note.children + std::uint64_t{1});
  ++open_[visit_class(note)][now() / kEpoch % kEpochs];
}

void ReuseModel::count_use(Note& note, std::size_t class_before, std::uint32_t last_before) {
  const bool young = now() - note.owner < kMaturity - 1;
  Pending* pending = young ? &pending_[note.owner % kMaturity] : nullptr;
  if (note.stop == kOnTheWay) {
    const bool from_back = note.back <= note.front;
    const std::size_t distance = std::min(kDistances - 1, log2_up(from_back ? note.back : note.front));
    if (pending != nullptr) {
      std::uint16_t& seen = from_back ? pending->back : pending->front;
      seen = static_cast<std::uint16_t>(seen | 1U << distance);
    } else if (from_back) {
      use_back(note.cell, note.tail, distance);
    } else {
      front_.use(note.cell, distance);
    }
    note.stop = kLeftHere;
  } else if (note.visits == 0) {
    if (pending != nullptr)
      pending->end = true;
    else
      use_end(note.cell, note.tail);
  } else {
    again_[class_before].uses += 1;
    if (now() - last_before < kEpochs * kEpoch) {
      std::uint32_t& waiting = open_[class_before][last_before / kEpoch % kEpochs];
      if (waiting > 0) --waiting;
    }
  }
}

void ReuseModel::use_end(std::size_t cell, std::size_t tail) {
  end_cell_[cell].uses += 1;
  end_kind_[cell / kLengths].uses += 1;
  end_all_.uses += 1;
  end_tail_[tail].uses += 1;
}

void ReuseModel::use_back(std::size_t cell, std::size_t tail, std::size_t distance) {
  back_.use(cell, distance);
  back_tail_[tail][distance].uses += 1;
}

// The request becomes a trial, with what came of it so far; later visits are added as they come.
void ReuseModel::mature(const Pending& pending) {
  end_cell_[pending.cell].trials += 1;
  end_kind_[pending.cell / kLengths].trials += 1;
  end_all_.trials += 1;
  end_tail_[pending.tail].trials += 1;
  for (std::size_t b = 0; b < kDistances && distances(b, pending.fresh).any; ++b) {
    back_.trial(pending.cell, b);
    front_.trial(pending.cell, b);
    back_tail_[pending.tail][b].trials += 1;
  }
  if (pending.end) use_end(pending.cell, pending.tail);
  for (std::size_t b = 0; b < kDistances; ++b) {
    if ((pending.back >> b & 1) != 0) use_back(pending.cell, pending.tail, b);
    if ((pending.front >> b & 1) != 0) front_.use(pending.cell, b);
  }
}

// A visit without a next one is a trial as far as next visits of its class come by its age.
void ReuseModel::mature_visits() {
  const std::uint64_t epoch = requests_ / kEpoch;
  again_place_ = {};
  again_visits_ = {};
  for (std::size_t c = 0; c < kVisitClasses; ++c) {
    double trials = closed_[c] + again_[c].uses;
    for (std::size_t i = 0; i < kEpochs; ++i) {
      if (open_[c][i] == 0) continue;
      const std::uint64_t middle = kEpoch * ((epoch - i) % kEpochs) + kEpoch / 2;
      const auto age = static_cast<double>(middle);
      trials += open_[c][i] * ages_.share_by(static_cast<std::uint16_t>(kLaterShapes + c), age);
    }
    again_[c].trials = trials;
    const std::size_t place = c / (kVisitCounts * kGaps);
    for (Rate* general : {&again_visits_[place][c / kGaps % kVisitCounts], &again_place_[place]}) {
      general->uses += again_[c].uses;
      general->trials += trials;
    }
    std::uint32_t& oldest = open_[c][(epoch + 1) % kEpochs];  // its place is taken next
    closed_[c] += oldest;
    oldest = 0;
  }
}

}  // namespace tiercel
