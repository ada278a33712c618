// What the remote tier is opened with. Every default stands with its reason in docs/guide/defaults.md.
//
// Threads: plain values.
#pragma once

#include <cstdint>

#include "os/clock.h"
#include "remote/object_format.h"

namespace tiercel {

struct RemoteTierOptions {
  remote::RunLimits runs;                       // pages of an object
  std::uint64_t batch_bytes_max = 64ULL << 20;  // of objects moved by one batch (a larger object goes alone)
  Duration batch_deadline = std::chrono::seconds(1);  // of each batch: what is later is a miss
  std::uint32_t reads_in_flight = 4;                  // batches
  std::uint32_t writes_in_flight = 2;                 // batches
  double write_share = 0.5;  // of the exchange: writes under way; reads may have all of it
  // A record from so many bytes on moves between its place and the store without a copy, where the store
  // reaches it: pieces cost a request each, and from here on less than the copy does.
  std::uint64_t direct_bytes = 1ULL << 20;
  Duration gather_for = std::chrono::milliseconds(20);  // a page waits so long for the rest of its run
  std::uint32_t known_entries = 131072;                 // objects that are remembered as there, as absent
  Duration known_for = std::chrono::seconds(5);         // that an object is there
  Duration absent_for = std::chrono::seconds(1);        // that it is not
  Duration marker_refresh = std::chrono::seconds(5);    // when another node may have cleared a namespace
  // So many batches in a row that failed as a whole, and the tier is down; it is asked again after
  // `retry_after`, doubled each time up to `retry_after_max`.
  std::uint32_t errors_to_trip = 3;
  Duration retry_after = std::chrono::milliseconds(500);
  Duration retry_after_max = std::chrono::seconds(10);
};

}  // namespace tiercel
