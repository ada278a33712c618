// What is worth a write: nearly three quarters of all pages are used once, and a drive wears out by writes.
//
// Threads: one thread.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "disk/disk_log.h"
#include "disk/disk_options.h"
#include "os/clock.h"

namespace tiercel::disk {

// Bytes that may be written in a day: a bucket that holds a day's worth at most, refilled evenly.
class WriteBudget final {
 public:
  WriteBudget(std::optional<std::uint64_t> bytes_per_day, Time now);
  std::uint64_t left(Time now) const;         // UINT64_MAX without a limit
  void spend(std::uint64_t bytes, Time now);  // may go below nothing: later refills pay for it
  bool limited() const { return bytes_per_day_.has_value(); }
  std::uint64_t bytes_per_day() const { return bytes_per_day_.value_or(0); }

 private:
  double left_at(Time now) const;

  std::optional<std::uint64_t> bytes_per_day_;
  double left_ = 0;
  Time at_{0};
};

// Who was seen before, by two filters of which the older is forgotten in turn: no false negative among the
// last `entries`, about one false positive in a hundred.
class SeenBefore final {
 public:
  explicit SeenBefore(std::uint64_t entries);
  bool note(const DiskName& name);  // whether it was seen before
  static std::uint64_t nominal_bytes(std::uint64_t entries);

 private:
  std::vector<std::uint64_t> now_, before_;
  std::uint64_t entries_;
  std::uint64_t noted_ = 0;
};

class Admission final {
 public:
  Admission(DiskAdmission rule, std::uint64_t entries, WriteBudget budget)
      : rule_(rule), seen_(rule == DiskAdmission::kAll ? 0 : entries), budget_(budget) {}
  // Whether a class-set of so many bytes is worth a write now. kClosing: only the write budget can refuse.
  // `room_unused`: a region that never held anything is left. Answers kAccepted, kSecondTouch, kWriteBudget.
  DiskVerdict judge(const DiskName& name, std::uint64_t bytes, DiskOffer offer, bool room_unused, Time now);
  WriteBudget& budget() { return budget_; }
  const WriteBudget& budget() const { return budget_; }

 private:
  DiskAdmission rule_;
  SeenBefore seen_;
  WriteBudget budget_;
};

}  // namespace tiercel::disk
