// The bytes of class-sets in a run of the disk log: real records, whose content names their append.
#include <algorithm>

#include <fmt/format.h>

#include "base/check.h"
#include "memory/record.h"
#include "sim/disk_scene.h"

namespace tiercel::sim {
namespace {

// Shards in pieces: records stand in the arena as several spans.
void cut_into_pieces(Prng& prng, DiskRecords& records) {
  for (std::vector<std::byte>& shard : records.shards) {
    std::vector<BlockPiece> pieces;
    std::uint64_t done = 0;
    while (done < shard.size()) {
      const std::uint64_t left = shard.size() - done;
      const std::uint64_t length = pieces.size() < 2 && prng.chance(0.3) ? prng.between(1, left) : left;
      pieces.push_back({shard.data() + done, length});
      done += length;
    }
    records.pieces.push_back(std::move(pieces));
  }
}

RecordLabel label_of(const DiskScene& scene, const DiskSet& set, ShardId shard, std::uint32_t generation) {
  RecordLabel label;
  const DiskPage& page = scene.book.pages()[set.page];
  label.root = scene.spaces[page.space].name.root;
  label.key = page.key;
  label.cls = set.cls;
  label.shard = shard;
  label.generation = generation;
  return label;
}

RecordName record_name(const RecordLabel& label) {
  return {short_root(label.root), label.key, label.cls, label.shard};
}

const StorageForm& form_of(const DiskScene& scene, const DiskSet& set) {
  return scene.scenario.forms[scene.spaces[scene.book.pages()[set.page].space].form];
}

}  // namespace

DiskRecords make_disk_records(DiskScene& scene, const DiskSet& set, Computation computation) {
  const StorageForm& form = form_of(scene, set);
  const ClassForm& cls = scene.class_form(set);
  DiskRecords records;
  for (std::uint16_t i = 0; i < cls.shards; ++i) {
    const RecordLabel label = label_of(scene, set, ShardId(i), static_cast<std::uint32_t>(computation));
    const std::vector<std::byte> payload = make_payload(cls, record_name(label), computation);
    std::vector<std::byte> record(header_bytes(cls));
    encode_header(make_header(form, label, payload.size(), run_checksums(cls, payload)), record);
    record.insert(record.end(), payload.begin(), payload.end());
    records.shards.push_back(std::move(record));
  }
  cut_into_pieces(scene.prng, records);
  return records;
}

DiskRecords empty_disk_records(DiskScene& scene, const DiskSet& set) {
  const ClassForm& cls = scene.class_form(set);
  DiskRecords records;
  records.shards.assign(cls.shards, std::vector<std::byte>(header_bytes(cls) + cls.record_bytes, kUntouched));
  cut_into_pieces(scene.prng, records);
  return records;
}

DiskEntry disk_entry(DiskScene& scene, const DiskSet& set, const DiskRecords& records) {
  const DiskPage& page = scene.book.pages()[set.page];
  DiskEntry entry;
  entry.name = scene.name_of(set);
  if (page.parent && scene.prng.chance(0.85)) entry.parent = scene.book.pages()[*page.parent].key;
  if (scene.prng.chance(0.9)) entry.length = page.length;
  entry.record_bytes = records.shards.front().size();
  entry.shards = records.pieces;
  return entry;
}

void judge_records(const DiskScene& scene, const DiskRecords& records, ReadSeen& seen) {
  const StorageForm& form = form_of(scene, seen.set);
  const ClassForm& cls = scene.class_form(seen.set);
  std::uint32_t generation = 0;
  std::optional<Computation> computation;
  bool one = true;
  for (std::uint16_t i = 0; i < cls.shards; ++i) {
    const ByteView record = records.shards[i];
    const RecordLabel wanted = label_of(scene, seen.set, ShardId(i), generation);
    const auto header = decode_header(record, form, wanted, cls.record_bytes);
    if (!header) return;
    generation = header->label.generation;
    const ByteView payload = record.subspan(header_bytes(cls));
    for (std::size_t run = 0; run < cls.layers.size(); ++run)
      if (!check_run(*header, cls, run, run_checksum(cls.layers[run], payload)).ok()) return;
    const auto whose = whole_payload(cls, record_name(wanted), payload);
    if (i != 0 && whose != computation) one = false;
    computation = whose;
  }
  seen.verified = true;
  if (!one || !computation || *computation == 0 || *computation > scene.book.appends()) return;
  const std::size_t number = *computation - 1;
  if (scene.book.append(number).set == seen.set) seen.append = number;
}

void bury(DiskScene& scene, DiskRecords records) {
  for (std::vector<std::byte>& shard : records.shards) std::fill(shard.begin(), shard.end(), kPoison);
  scene.graveyard.push_back(std::move(records));
}

std::optional<std::string> graveyard_touched(DiskScene& scene) {
  for (const DiskRecords& records : scene.graveyard)
    for (const std::vector<std::byte>& shard : records.shards)
      if (std::any_of(shard.begin(), shard.end(), [](std::byte each) { return each != kPoison; }))
        return "memory that was given back was written to";
  if (scene.drive == nullptr || scene.drive->under_way() == 0) scene.graveyard.clear();
  return std::nullopt;
}

}  // namespace tiercel::sim
