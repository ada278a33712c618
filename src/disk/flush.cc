// What is durable, and what makes it so.
#include <algorithm>
#include <utility>

#include "base/fault.h"
#include "disk/state.h"

namespace tiercel {
namespace {

bool only_controls(const std::vector<disk::Queued>& entries) {
  return std::none_of(entries.begin(), entries.end(), [](const disk::Queued& item) {
    return item.descriptor.kind == disk::EntryKind::kClassSet;
  });
}

}  // namespace

std::uint64_t DiskLog::State::ended_up_to() const {
  const bool early = TIERCEL_FAULT(clear_not_durable);
  std::uint64_t next = last_at + 1;  // the lowest that has not ended
  if (!early || !only_controls(gathered)) next = std::min(next, gathered_lowest);
  for (const auto& [id, segment] : going)
    if (!early || !only_controls(segment.entries)) next = std::min(next, segment.lowest);
  if (!early)
    for (const disk::Queued& item : again) next = std::min(next, item.descriptor.born);
  return next - 1;
}

std::uint64_t DiskLog::State::placed_up_to() const {
  std::uint64_t up_to = last_at;
  if (!gathered.empty()) up_to = gathered.front().at - 1;
  if (!going.empty()) up_to = std::min(up_to, going.begin()->second.first_at - 1);
  return up_to;
}

// Of the next flush that begins: it covers all that has ended by now.
std::uint64_t DiskLog::State::want_flush() {
  flush_wanted = std::max(flush_wanted, flushes_begun + 1);
  return flushes_begun + 1;
}

std::size_t DiskLog::State::flush_when_due() {
  if (flushing || drive.down() || options.read_only) return 0;
  const std::uint64_t up_to = ended_up_to();
  const bool asked = flush_wanted > flushes_begun;
  const bool soon = soon_at > durable_at && up_to >= soon_at;
  const bool much = unflushed_bytes >= options.flush_bytes;
  const bool long_ago = unflushed_since && clock.now() >= later(*unflushed_since, options.flush_after);
  if (!asked && !soon && !((much || long_ago) && up_to > durable_at)) return 0;
  ++flushes_begun;
  flushing = true;
  flush_covers_at = up_to;
  flush_covers_ended = segments_ended;
  unflushed_bytes = 0;
  unflushed_since.reset();
  BlockRequest request;
  request.work = BlockWork::kFlush;
  drive.start(std::move(request), [this](const Status& status) { flushed(status); });
  return 1;
}

void DiskLog::State::flushed(const Status& status) {
  flushing = false;
  if (status.ok()) {
    last_good_flush = flushes_begun;
    forget_written();
    durable_now(flush_covers_at);
    return;
  }
  // A flush that failed may have lost what it was to keep, and none after it says so: what is not durable by
  // now is not taken for written.
  last_bad_flush = flushes_begun;
  while (!written.empty()) cut(written.begin()->first);
}

// Of each region only from its start on: what stands behind a segment that is not durable is cut with it,
// should that fail.
void DiskLog::State::forget_written() {
  std::map<std::uint32_t, std::uint64_t> first;  // segment of a region that is not durable
  for (const auto& [id, segment] : going) first.try_emplace(segment.region, id);
  for (const auto& [id, segment] : written) {
    if (segment.ended <= flush_covers_ended) continue;
    std::uint64_t& lowest = first.try_emplace(segment.region, id).first->second;
    lowest = std::min(lowest, id);
  }
  std::erase_if(written, [&](const auto& item) {
    const auto blocks = first.find(item.second.region);
    return blocks == first.end() || item.first < blocks->second;
  });
}

void DiskLog::State::durable_now(std::uint64_t at) {
  if (at <= durable_at) return;
  durable_at = at;
  DiskEvent event;
  event.kind = DiskEvent::Kind::kDurable;
  event.at = at;
  events.push_back(std::move(event));
}

}  // namespace tiercel
