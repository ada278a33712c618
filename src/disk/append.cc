// What is written, and when it is refused.
#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/checked.h"
#include "base/fault.h"
#include "disk/state.h"

namespace tiercel {
std::uint64_t disk::stride_blocks(std::uint64_t record_bytes) { return ceil_div(record_bytes, kBlockBytes); }

DiskAnswer DiskLog::State::append(const DiskEntry& entry, DiskOffer offer) {
  const std::uint64_t blocks = disk::stride_blocks(entry.record_bytes) * entry.shards.size();
  TIERCEL_CHECK(!entry.shards.empty() && entry.shards.size() <= UINT16_MAX && entry.record_bytes > 0);
  TIERCEL_CHECK(entry.name.cls.value() < 256 && catalogue.name(entry.name.space) != nullptr);
  const DiskVerdict verdict = judge(entry, offer, blocks);
  ++stats.verdicts[static_cast<std::size_t>(verdict)];
  if (verdict != DiskVerdict::kAccepted) return {verdict, {}};

  disk::Queued item;
  Descriptor& d = item.descriptor;
  d.cls = entry.name.cls;
  d.space = entry.name.space.value();
  d.key = entry.name.key;
  d.parent = entry.parent;
  d.length = entry.length;
  d.shards = static_cast<std::uint16_t>(entry.shards.size());
  d.blocks = static_cast<std::uint32_t>(blocks);
  item.append = DiskAppendId(++last_append);
  item.record_bytes = entry.record_bytes;
  item.shards = entry.shards;
  count_of(d.space, d.cls).blocks = d.blocks;
  queued_bytes += blocks * kBlockBytes;
  ++stats.appended;
  stats.appended_bytes += entry.record_bytes * entry.shards.size();
  spend(blocks * kBlockBytes);
  const DiskAppendId append = item.append;
  enqueue(std::move(item));
  queued[entry.name] = last_at;
  write_segments();
  return {DiskVerdict::kAccepted, append};
}

// Whether writing it again would change nothing. A class-set that any removal of its namespace may have
// reached (through a page before it, which the log does not know) is written again.
bool DiskLog::State::is_there(const DiskName& name) const {
  if (const auto found = queued.find(name); found != queued.end())
    if (!removals.dead_in_middle(name.space, found->second)) return true;
  return find(name, false).has_value();
}

DiskVerdict DiskLog::State::judge(const DiskEntry& entry, DiskOffer offer, std::uint64_t blocks) {
  if (drive.down() || options.read_only || closing) return DiskVerdict::kTierDown;
  if (is_there(entry.name)) return DiskVerdict::kAlreadyThere;
  const std::uint64_t around =
      1 + (disk::directory_bytes(1) + disk::footer_bytes(1)) / kBlockBytes;  // header, directory, footer
  if (blocks + around > region_blocks()) return DiskVerdict::kTooLarge;
  const std::uint64_t bytes = blocks * kBlockBytes;
  if (queued_bytes != 0 && queued_bytes + bytes > options.queued_bytes_max) return DiskVerdict::kRateLimited;
  if (drive.blocks_writes()) return DiskVerdict::kRateLimited;  // it is asked again soon
  const DiskVerdict verdict = admission.judge(entry.name, bytes, offer, !free.empty(), clock.now());
  if (verdict != DiskVerdict::kAccepted) return verdict;
  if (index.size() >= index.capacity() || last_at >= disk::kAtMax) return DiskVerdict::kNoRoom;
  if (log_name(entry.name.space) && make_place(blocks, false)) return DiskVerdict::kAccepted;
  const bool soon = ready || preparing || !free.empty() || !sealed.empty();
  return soon ? DiskVerdict::kRateLimited : DiskVerdict::kQuota;
}

// Requires: make_place() said that there is room.
void DiskLog::State::enqueue(disk::Queued item) {
  item.at = ++last_at;
  if (item.descriptor.born == 0) item.descriptor.born = item.at;
  gathered_blocks += item.descriptor.blocks;
  note_gathered(item);
  gathered.push_back(std::move(item));
}

void DiskLog::State::note_gathered(const disk::Queued& item) {
  const bool control = item.descriptor.kind != disk::EntryKind::kClassSet;
  gathered_lowest = std::min({gathered_lowest, item.at, control ? item.descriptor.born : item.at});
}

bool DiskLog::State::log_control(Descriptor descriptor, std::shared_ptr<std::vector<std::byte>> payload) {
  if (options.read_only || closing || last_at >= disk::kAtMax) return false;
  if (!make_place(descriptor.blocks, true)) return false;
  disk::Queued item;
  item.descriptor = descriptor;
  item.payload = std::move(payload);
  enqueue(std::move(item));
  return true;
}

// Its entry comes before whatever uses it.
bool DiskLog::State::log_name(DiskSpaceId space) {
  if (name_logged.contains(space)) return true;
  auto payload =
      std::make_shared<std::vector<std::byte>>(disk::Catalogue::encode_name(space, *catalogue.name(space)));
  payload->resize(disk::stride_blocks(payload->size()) * kBlockBytes);
  Descriptor d;
  d.kind = disk::EntryKind::kName;
  d.space = space.value();
  d.blocks = static_cast<std::uint32_t>(payload->size() / kBlockBytes);
  if (!log_control(d, std::move(payload))) return false;
  name_logged.insert(space);
  return true;
}

// The number that a removal has now. One that cannot be recorded beats all that is there, and takes no number
// from the log.
std::optional<std::uint64_t> DiskLog::State::log_removal(Descriptor descriptor) {
  if (TIERCEL_FAULT(removal_not_logged)) return last_at;
  const bool told = !drive.down() && log_control(descriptor, nullptr);
  if (told) return last_at;
  ++stats.unrecorded;
  // Written when the drive is back, if it may: but nobody is told that it will be.
  if (drive.down()) log_control(descriptor, nullptr);
  return std::nullopt;
}

std::optional<std::uint64_t> DiskLog::State::remove(DiskSpaceId space, const Key& key) {
  TIERCEL_CHECK(catalogue.name(space) != nullptr);
  Descriptor d;
  d.kind = disk::EntryKind::kRemovePage;
  d.space = space.value();
  d.key = key;
  const std::uint64_t before = last_at;
  const std::optional<std::uint64_t> told = log_removal(d);
  const std::uint64_t at = last_at > before ? last_at : std::min(before + 1, disk::kAtMax);
  removals.remove_page(space, key, at);
  const disk::DiskIndex::Hits hits = index.find_all(space, key);
  for (std::size_t i = 0; i < hits.count; ++i)
    if (hits.entries[i].born < at) forget(hits.entries[i], false);
  return told;
}

std::optional<std::uint64_t> DiskLog::State::clear(DiskSpaceId space) {
  TIERCEL_CHECK(catalogue.name(space) != nullptr);
  Descriptor d;
  d.kind = disk::EntryKind::kClearSpace;
  d.space = space.value();
  const std::uint64_t before = last_at;
  const std::optional<std::uint64_t> told = log_removal(d);
  removals.clear_space(space, last_at > before ? last_at : std::min(before + 1, disk::kAtMax));
  sweep_from = 0;
  return told;
}

std::optional<std::uint64_t> DiskLog::State::clear_form(const Digest& form, std::uint64_t weights_epoch) {
  Descriptor d;
  d.kind = disk::EntryKind::kClearForm;
  d.length = weights_epoch;
  disk::set_form(d, form);
  const std::uint64_t before = last_at;
  const std::optional<std::uint64_t> told = log_removal(d);
  const std::uint64_t at = last_at > before ? last_at : std::min(before + 1, disk::kAtMax);
  catalogue.note_form(form, at, weights_epoch);
  for (const DiskSpaceId space : catalogue.of_form(form)) removals.clear_space(space, at);
  sweep_from = 0;
  return told;
}

Result<DiskSpaceId> DiskLog::open_space(const DiskSpaceName& name) {
  State& s = *state_;
  DiskSpaceName kept = name;
  // What cannot be kept of the runs is not: its records cannot be verified without the model.
  if (kept.runs.size() > disk::kSpaceClassesMax || disk::runs_of(kept) > disk::kSpaceRunsMax ||
      disk::Catalogue::encode_name(DiskSpaceId(1), kept).size() > disk::kNameBlocksMax * kBlockBytes)
    kept.runs.clear();
  if (const auto known = s.catalogue.find(kept.root, kept.form)) {
    const DiskSpaceName& there = *s.catalogue.name(*known);
    if (there.text.empty() && there.runs.empty() && !s.options.read_only) {
      static_cast<void>(s.catalogue.learn(*known, kept));
      s.name_logged.erase(*known);
    }
    return *known;
  }
  if (s.options.read_only || s.closing)
    return error(Code::kUnavailable,
                 "disk: the namespace is not in this log, which is open for reading only");
  const auto added = s.catalogue.add(kept);
  if (!added)
    return error(
        Code::kResourceExhausted,
        "disk: the catalogue of namespaces is full; drop some (tiercel disk drop), or make a new log");
  // A form that was cleared before has nothing in a namespace that is new.
  return *added;
}

}  // namespace tiercel
