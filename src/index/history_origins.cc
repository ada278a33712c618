#include "index/history_origins.h"

#include <algorithm>

#include "base/prng.h"

namespace tiercel {

HistoryOrigins::HistoryOrigins(std::uint64_t events)
    : most_(std::min(events, kMost)), heads_(static_cast<std::size_t>(most_), kNone) {
  rows_.reserve(static_cast<std::size_t>(most_));
}

std::size_t HistoryOrigins::chain_of(const Origin& origin) const {
  const std::uint64_t names = std::uint64_t{origin.ns.value()} << 32 | origin.by.value();
  const std::uint64_t hash = mix64(names ^ mix64(origin.generation));
  return static_cast<std::size_t>((static_cast<Uint128>(hash) * heads_.size()) >> 64);
}

std::optional<std::uint16_t> HistoryOrigins::take(const Origin& origin) {
  if (last_ != kNone && rows_[last_].origin == origin) {
    ++rows_[last_].events;
    return last_;
  }
  if (most_ == 0) return std::nullopt;
  std::uint16_t& head = heads_[chain_of(origin)];
  for (std::uint16_t at = head; at != kNone; at = rows_[at].chained) {
    if (rows_[at].origin != origin) continue;
    ++rows_[at].events;
    return last_ = at;
  }
  std::uint16_t number = free_;
  if (number != kNone) {
    free_ = rows_[number].chained;
  } else {
    if (rows_.size() == most_) return std::nullopt;
    number = static_cast<std::uint16_t>(rows_.size());
    rows_.emplace_back();
  }
  rows_[number] = {origin, 1, head};
  head = number;
  return last_ = number;
}

void HistoryOrigins::release(std::uint16_t number) {
  Row& row = rows_[number];
  if (--row.events > 0) return;
  std::uint16_t* link = &heads_[chain_of(row.origin)];
  while (*link != number) link = &rows_[*link].chained;
  *link = row.chained;
  row.chained = free_;
  free_ = number;
  if (last_ == number) last_ = kNone;
}

std::uint64_t HistoryOrigins::bytes(std::uint64_t events) {
  return std::min(events, kMost) * (sizeof(Row) + sizeof(std::uint16_t));
}

}  // namespace tiercel
