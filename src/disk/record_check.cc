#include "disk/record_check.h"

#include <cstdint>
#include <numeric>

#include <fmt/format.h>

#include "memory/record.h"
#include "os/block_device.h"

namespace tiercel::disk {
namespace {

constexpr std::size_t kClassesKept = 64;  // in full: a class may have thousands of runs

Status differs(std::string_view field, const auto& wanted, const auto& got) {
  return {Code::kDataCorrupt, fmt::format("record: {}: wanted {}, got {}", field, wanted, got)};
}

Status check_label(const RecordHeader& header, const Descriptor& d, std::uint16_t shard,
                   const DiskSpaceName* name) {
  const RecordLabel& label = header.label;
  if (label.key != d.key) return differs("key", to_hex(d.key), to_hex(label.key));
  if (label.cls != d.cls) return differs("class", d.cls.value(), label.cls.value());
  if (label.shard.value() != shard) return differs("shard", shard, label.shard.value());
  if (name == nullptr) return {};
  if (label.root != name->root) return differs("namespace", "that of the entry", "another");
  if (header.form != name->form) return differs("storage form", "that of the entry", "another");
  return {};
}

}  // namespace

const ClassForm* RecordCheck::class_of(const Descriptor& d, const DiskSpaceName& name) {
  if (d.cls.value() >= name.runs.size() || name.runs[d.cls.value()].empty()) return nullptr;
  if (classes_.size() >= kClassesKept) classes_.clear();
  const auto [found, is_new] = classes_.try_emplace({d.space, d.cls});
  ClassForm& cls = found->second;
  if (!is_new) return &cls;
  for (const std::uint64_t length : name.runs[d.cls.value()]) {
    LayerRun run;
    run.layer = static_cast<std::uint32_t>(cls.layers.size());
    run.offset = cls.record_bytes;
    run.length = length;
    cls.record_bytes += length;
    cls.layers.push_back(std::move(run));
  }
  return &cls;
}

Status RecordCheck::check(ByteView record, const Descriptor& d, std::uint16_t shard,
                          const DiskSpaceName* name, std::uint32_t& generation) {
  const auto parsed = parse_header(record);
  if (!parsed) return parsed.error();
  const RecordHeader& header = *parsed;
  if (Status status = check_label(header, d, shard, name); !status.ok()) return status;
  if (generation != 0 && header.label.generation != generation)
    return differs("generation", fmt::format("{}, as of the shards before", generation),
                   header.label.generation);
  generation = header.label.generation;
  const ClassForm* const cls = name == nullptr ? nullptr : class_of(d, *name);
  if (cls == nullptr) return {};
  if (header.payload_bytes != cls->record_bytes)
    return differs("payload bytes", cls->record_bytes, header.payload_bytes);
  if (header.run_checksums.size() != cls->layers.size())
    return differs("layer runs", cls->layers.size(), header.run_checksums.size());
  const std::uint64_t at = header_bytes(*cls);
  if (at > record.size() || header.kept_bytes > record.size() - at)
    return differs("kept bytes", fmt::format("what {} bytes hold", record.size()), header.kept_bytes);
  const ByteView payload = record.subspan(at, header.kept_bytes);
  for (std::size_t i = 0; i < cls->layers.size(); ++i) {
    Status status = check_run(header, *cls, i, run_checksum(cls->layers[i], payload));
    if (!status.ok()) return status;
  }
  return {};
}

}  // namespace tiercel::disk
