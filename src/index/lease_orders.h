// The memory order of every step of the lease protocol (docs/decisions/0007). The code that runs and the
// tests that walk through all interleavings take them from here, so an order that is changed is an order that
// is tested.
//
// Threads: constants.
#pragma once

#include <atomic>

#include "base/fault.h"

namespace tiercel {

struct LeaseOrders {
  // The reader, in this order. `words_high` says how many of its words a client has ever used.
  std::memory_order look = std::memory_order_acquire;      // load of the strip's version
  std::memory_order read = std::memory_order_acquire;      // load of a word of the strip
  std::memory_order known = std::memory_order_seq_cst;     // load of the client's words_high
  std::memory_order raise = std::memory_order_seq_cst;     // store of it, when this word is the highest yet
  std::memory_order publish = std::memory_order_seq_cst;   // store of the lease word
  std::memory_order validate = std::memory_order_seq_cst;  // second load of the version
  std::memory_order clear = std::memory_order_release;     // store of 0: the lease ends, or was not got
  // The evictor, in this order.
  std::memory_order hide = std::memory_order_seq_cst;   // store of an odd version, before the page's words go
  std::memory_order write = std::memory_order_release;  // store of a word of the strip
  std::memory_order settle = std::memory_order_release;  // store of the next even version
  std::memory_order count = std::memory_order_seq_cst;   // load of a client's words_high
  std::memory_order scan = std::memory_order_seq_cst;    // load of a lease word
  // A change that takes nothing out of sight (a page joins the strip).
  std::memory_order open = std::memory_order_relaxed;  // store of an odd version

  bool scan_after_hide = true;         // the evictor hides first, then scans
  bool validate_after_publish = true;  // the reader publishes first, then looks again
};

inline constexpr LeaseOrders kLeaseOrders;
// The deliberate faults `weak_lease_order` and `scan_before_bump`.
inline constexpr LeaseOrders kWeakLeaseOrders{.publish = std::memory_order_release};
inline constexpr LeaseOrders kScanFirstLeaseOrders{.scan_after_hide = false};

// Those that this program runs with. Cost: a constant where there are no fault points.
inline const LeaseOrders& lease_orders() {
  if (TIERCEL_FAULT(weak_lease_order)) return kWeakLeaseOrders;
  if (TIERCEL_FAULT(scan_before_bump)) return kScanFirstLeaseOrders;
  return kLeaseOrders;
}

}  // namespace tiercel
