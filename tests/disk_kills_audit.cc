// What a process of disk_kills does first: is what was promised there, and nothing else?

#include <algorithm>
#include <filesystem>
#include <utility>

#include <fmt/format.h>

#include "base/checked.h"
#include "disk/check.h"
#include "disk/format.h"
#include "disk_kills_victim.h"
#include "memory/record.h"

namespace tiercel::kills {
namespace {

constexpr std::string_view kSalt = "salt";
constexpr std::size_t kReadsAtOnce = 24;

std::string name_of(std::uint32_t space, std::uint32_t page, std::uint32_t cls) {
  return fmt::format("space {} page {} class {}", space, page, cls);
}

}  // namespace

// Nothing but the log and the book: no file that a dead process left.
void Victim::check_folder() {
  for (const auto& entry : std::filesystem::directory_iterator(folder_)) {
    const std::string name = entry.path().filename();
    if (name != "log" && name != "book" && !name.ends_with(".before"))
      fail(fmt::format("a file was left over: {}", name));
    if (name == "log" && entry.file_size() != plan_.file_bytes)
      fail(fmt::format("the log's file has {} bytes, claimed were {}", entry.file_size(), plan_.file_bytes));
  }
}

void Victim::open() {
  phase(kRecovering);
  cache_ = std::make_unique<Cache>();
  open_log();
  phase(kAuditing);
  audit_log();
  require(cache_->open_node(plan_, clock_), "open the node");
  require(cache_->open_spaces(epoch_), "open the namespaces");
  for (std::uint32_t space = 0; space < kSpaces; ++space)
    keys_[space] = keys_of(tree_, cache_->node->root(cache_->spaces[space]), form_.spec.page_tokens);
  audit_node();
  book_.count(Count::kAudits);
}

void Victim::open_log() {
  require(cache_->open_drive(folder_ + "/log", plan_), "open the drive");
  check_folder();
  const auto geometry = disk::plan_geometry(plan_.log, plan_.file_bytes);
  if (!geometry) fail(geometry.error().to_string());
  cache_->mortal =
      std::make_unique<MortalDevice>(*cache_->drive->device, *geometry, plan_, book_, met_, clock_, dies_at_);
  if (random_.chance(0.1)) check_drive();
  Digest uuid{};
  for (std::byte& byte : uuid) byte = static_cast<std::byte>(random_.next());
  auto opened = DiskLog::open(plan_.log, *cache_->mortal, clock_, uuid);
  if (!opened) fail(fmt::format("the log does not open: {}", opened.error().to_string()));
  cache_->log = std::move(*opened);
  const DiskGeometry& got = cache_->log->geometry();
  if (got.regions_offset != geometry->regions_offset || got.region_bytes != geometry->region_bytes)
    fail("the log has another geometry than it was made with");
  book_.log_made = 1;
  book_.count(Count::kOpenings);
}

// As `tiercel disk check` does: a killed process leaves nothing damaged that is found or needed. (A
// superblock that it was writing is not: there is the other one.)
void Victim::check_drive() {
  const auto report = check_disk(*cache_->mortal, clock_, {});
  if (!report && book_.log_made == 0) return;
  if (!report) fail(fmt::format("check: {}", report.error().to_string()));
  if (report->damaged_found != 0)
    fail(fmt::format("check: of {} class-sets that an opening finds {} are damaged", report->class_sets,
                     report->damaged_found));
  if (report->image && !report->images[*report->image].damage.empty())
    fail(fmt::format("check: the image that an opening reads: {}", report->images[*report->image].damage));
  book_.count(Count::kChecks);
}

// A change of epoch that a kill interrupted has come about or it has not; from now on it stays so.
void Victim::audit_epoch() {
  const std::uint64_t before = book_.epoch_done, begun = book_.epoch_begun;
  epoch_ = cache_->log->weights_epoch(form_.fingerprint);
  if (epoch_ != before && epoch_ != begun)
    fail(fmt::format("the weights' epoch is {}; {} was set, {} begun", epoch_, before, begun));
  if (before == begun) return;
  book_.count(Count::kUnsettled);
  if (epoch_ == begun) book_.cleared_form = std::max<std::uint64_t>(book_.cleared_form, book_.clearing_form);
  book_.epoch_done = epoch_;
  book_.epoch_begun = epoch_;
}

void Victim::audit_log() {
  audit_epoch();
  evicted_.clear();
  // Removals that were too many to be kept one by one take others with them.
  if (cache_->log->stats().removals_folded != 0) book_.clearing_form = book_.last.load();
  promises_.next_number({});  // what is promised from here on is younger than every removal
  const std::vector<DiskLog::SpaceView> views = cache_->log->spaces();
  std::vector<Digest> roots;
  for (std::uint32_t space = 0; space < kSpaces; ++space) {
    ContentIdentity identity = identity_of(space, epoch_, form_);
    identity.tenant_salt = kSalt;
    roots.push_back(root_digest(identity));
    keys_[space] = keys_of(tree_, roots.back(), form_.spec.page_tokens);
    disk_spaces_[space] = {};
    for (const DiskLog::SpaceView& view : views)
      if (view.name.root == roots.back() && view.name.form == form_.fingerprint)
        disk_spaces_[space] = view.id;
  }
  for (const DiskLog::SpaceView& view : views) {
    if (std::find(roots.begin(), roots.end(), view.name.root) != roots.end() || view.class_sets == 0)
      continue;
    fail(fmt::format("{} class-sets of an older weights epoch are still there", view.class_sets));
  }
  for (std::uint32_t space = 0; space < kSpaces; ++space) {
    audit_space(space, disk_spaces_[space]);
    if (disk_spaces_[space] != DiskSpaceId{}) audit_reads(space, disk_spaces_[space]);
  }
  promise_durable();
}

// What can be found, and whether it is all that must be.
void Victim::audit_space(std::uint32_t space, DiskSpaceId id) {
  std::array<Presence, kPages>& found = found_[space];
  found.fill(0);
  for (std::uint32_t chain = 0; id != DiskSpaceId{} && chain < tree_.chains.size(); ++chain) {
    const std::vector<Key> keys = chain_keys(space, chain);
    std::vector<Presence> presence(keys.size());
    cache_->log->find_chain(id, 0, keys, presence);
    for (std::size_t i = 0; i < keys.size(); ++i) found[tree_.chains[chain][i]] |= presence[i];
  }
  // A region that is about to be begun anew: its class-sets leave the index first.
  for (const DiskEvent& event : cache_->log->drain_events())
    if (event.kind == DiskEvent::Kind::kEvicted) evicted_.insert(event.name);
  for (std::uint32_t page = 0; page < kPages; ++page)
    for (std::uint32_t cls = 0; cls < kClasses; ++cls) {
      const bool there = (found[page] >> cls & 1) != 0;
      const BookSet& promised = book_.spaces[space].pages[page].sets[cls];
      if (promised.durable > promises_.perhaps_gone(space, page) && !there &&
          promises_.may_be_evicted(space, page, cls))
        book_.count(Count::kEvictedSets);
      if (!promises_.must_be_there(space, page, cls)) continue;
      if (evicted_.contains({id, keys_[space][page], ClassId(static_cast<std::uint16_t>(cls))})) continue;
      if (!there)
        fail(fmt::format(
            "{} was promised durable at {} (in region {}, not begun anew since) and is not there; "
            "removals up to {} may hold",
            name_of(space, page, cls), promised.durable.load(), promised.region.load(),
            promises_.perhaps_gone(space, page)));
      book_.count(Count::kPromisedSets);
    }
}

DiskEntry Victim::entry_for(DiskSpaceId id, std::uint32_t space, std::uint32_t page, std::uint32_t cls,
                            std::vector<std::vector<std::byte>>& memory) const {
  const ClassForm& model = form_.classes[cls];
  DiskEntry entry;
  entry.name = {id, keys_[space][page], ClassId(static_cast<std::uint16_t>(cls))};
  entry.record_bytes = ceil_div(header_bytes(model) + model.record_bytes, kBlockBytes) * kBlockBytes;
  for (std::uint16_t shard = 0; shard < model.shards; ++shard) {
    std::vector<std::byte>& bytes = memory.emplace_back(entry.record_bytes, std::byte{0xEE});
    entry.shards.push_back({{bytes.data(), bytes.size()}});
  }
  return entry;
}

void Victim::audit_bytes(std::uint32_t space, std::uint32_t page, std::uint32_t cls, const DiskEntry& entry) {
  const ClassForm& model = form_.classes[cls];
  std::optional<std::uint64_t> number;
  for (std::uint16_t shard = 0; shard < model.shards; ++shard) {
    const BlockPiece& piece = entry.shards[shard][0];
    const ByteView payload(piece.data + header_bytes(model), model.record_bytes);
    const auto got = computation_of(payload, entry.name.key, entry.name.cls, ShardId(shard));
    if (!got) fail(fmt::format("{}: shard {} is no computation's", name_of(space, page, cls), shard));
    if (number && *number != *got)
      fail(fmt::format("{}: shards of computations {} and {}", name_of(space, page, cls), *number, *got));
    number = got;
  }
  const std::string wrong = promises_.wrong(space, page, cls, *number);
  if (!wrong.empty()) fail(fmt::format("{}: {}", name_of(space, page, cls), wrong));
  book_.count(Count::kFoundSets);
}

void Victim::audit_reads(std::uint32_t space, DiskSpaceId id) {
  struct Read {
    std::uint32_t page = 0, cls = 0;
    std::vector<std::vector<std::byte>> memory;
    DiskEntry entry;
  };
  std::vector<std::pair<std::uint32_t, std::uint32_t>> wanted;
  for (std::uint32_t page = 0; page < kPages; ++page)
    for (std::uint32_t cls = 0; cls < kClasses; ++cls)
      if ((found_[space][page] >> cls & 1) != 0) wanted.emplace_back(page, cls);
  std::map<DiskReadId, Read> reads;
  const Time limit = later(clock_.now(), kPatience);
  while (!wanted.empty() || !reads.empty()) {
    while (!wanted.empty() && reads.size() < kReadsAtOnce) {
      Read read;
      std::tie(read.page, read.cls) = wanted.back();
      read.entry = entry_for(id, space, read.page, read.cls, read.memory);
      const auto begun = cache_->log->read(read.entry, true);
      if (!begun && !cache_->log->find(read.entry.name, true)) {  // it has left with its region since
        wanted.pop_back();
        continue;
      }
      if (!begun && reads.empty())
        fail(fmt::format("{} can be found and not be read", name_of(space, read.page, read.cls)));
      if (!begun) break;
      wanted.pop_back();
      reads.emplace(*begun, std::move(read));
    }
    if (cache_->log->poll() == 0) cache_->mortal->wait(std::chrono::milliseconds(1));
    for (const DiskEvent& event : cache_->log->drain_events()) {
      if (event.kind == DiskEvent::Kind::kEvicted) evicted_.insert(event.name);
      const auto at = reads.find(event.read);
      if (event.kind != DiskEvent::Kind::kRead || at == reads.end()) continue;
      const Read& read = at->second;
      if (!event.status.ok())
        fail(fmt::format("{}: {}", name_of(space, read.page, read.cls), event.status.to_string()));
      audit_bytes(space, read.page, read.cls, read.entry);
      reads.erase(at);
    }
    if (clock_.now() > limit) fail("reads of an audit do not end");
  }
}

// Three conversations through the node: exactly as long as what the log has of them allows, unless some of it
// leaves with its region just then.
void Victim::audit_node() {
  slot_busy_.assign(kStoreSlots, false);
  for (int turn = 0; turn < 3; ++turn) {
    const auto space = static_cast<std::uint32_t>(random_.below(kSpaces));
    const auto chain = static_cast<std::uint32_t>(random_.below(tree_.chains.size()));
    std::vector<Presence> pages(tree_.chains[chain].size());
    if (disk_spaces_[space] != DiskSpaceId{})
      cache_->log->find_chain(disk_spaces_[space], 0, chain_keys(space, chain), pages);
    look_up(space, chain, restorable(form_, ResumeQuery{pages, 0, {}, UINT64_MAX}).longest);
    book_.count(Count::kMatches);
  }
  settle();
}

std::string Victim::held() const {
  const Stats& stats = cache_->node->stats();
  return fmt::format(
      "reading {}, writing {}, prefetch {}, in flight {}, leased {}, reserved {} bytes; {} stores, "
      "{} prefetches",
      stats.disk_reading_bytes, stats.disk_writing_bytes, stats.prefetch_bytes, stats.in_flight_bytes,
      stats.leased_bytes, stats.reserved_bytes, stores_.size(), fetches_);
}

// When nothing is under way nothing may be held.
void Victim::settle() {
  const Node& node = *cache_->node;
  wait_until("held after everything ended:", [&] {
    const Stats& stats = node.stats();
    return stats.disk_reading_bytes + stats.disk_writing_bytes + stats.prefetch_bytes +
               stats.in_flight_bytes + stats.leased_bytes + stats.reserved_bytes + stores_.size() +
               fetches_ ==
           0;
  });
  if (const auto wrong = node.audit().inconsistency; wrong) fail(fmt::format("the node's books: {}", *wrong));
}

}  // namespace tiercel::kills
