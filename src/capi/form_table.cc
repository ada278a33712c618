#include "capi/form_table.h"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "base/checked.h"
#include "capi/options.h"
#include "device/device_pool.h"

namespace tiercel::capi {

namespace {

ClassTable make_class_table(const StorageForm& form, const ClassForm& cls) {
  ClassTable table;
  std::map<std::pair<std::uint32_t, std::uint32_t>, std::uint32_t> numbers;
  for (const LayerRun& layer : cls.layers)
    for (const ComponentRun& run : layer.components) {
      const Group& group = form.spec.groups[run.group];
      const Component& component = group.components[run.component];
      const auto next = static_cast<std::uint32_t>(table.components.size());
      const auto [number, fresh] = numbers.try_emplace({run.group, run.component}, next);
      if (fresh) table.components.push_back(component.name);
      tiercel_run_info info{};
      info.offset = run.offset;
      info.length = run.length;
      info.entries = component.dtype ? entries_per_record(form.spec, group, component) : 1;
      info.component = number->second;
      info.layer = layer.layer;
      table.runs.push_back(info);
    }
  return table;
}

Status bad(const ClassForm& cls, std::string_view what, std::string why) {
  return {Code::kInvalidArgument,
          fmt::format("{} of class {} (\"{}\"): {}", what, cls.id.value(), cls.name, why)};
}

}  // namespace

FormTable::FormTable(FormId form_id, const StorageForm& storage_form) : id(form_id), form(storage_form) {
  for (const ClassForm& cls : form.classes) classes.push_back(make_class_table(form, cls));
  for (ClassTable& table : classes)
    for (tiercel_run_info& run : table.runs) run.name = table.components[run.component].c_str();
}

Status check_class(const FormTable& table, std::uint32_t class_id, std::uint32_t shard) {
  if (class_id >= table.form.classes.size())
    return {Code::kInvalidArgument,
            fmt::format("class {} does not exist; the form has {}", class_id, table.form.classes.size())};
  const ClassForm& cls = table.form.classes[class_id];
  if (shard >= cls.shards)
    return {Code::kInvalidArgument, fmt::format("shard {} of class {} (\"{}\") does not exist; it has {}",
                                                shard, class_id, cls.name, cls.shards)};
  return {};
}

// ---- registered memory ----

namespace {

constexpr std::uint64_t kRunsMax = std::uint64_t{1} << 20;

// Which of the caller's runs describes each run of the class.
class RunFinder final {
 public:
  RunFinder(const ClassForm& cls, const tiercel_memory_options& options) : cls_(cls), options_(options) {}

  Status note_all() {
    for (std::uint64_t i = 0; i < options_.run_count; ++i) {
      const tiercel_memory_run& run = options_.runs[i];
      if (!by_name_.try_emplace({run.component, run.layer}, &run).second)
        return bad(cls_, "memory",
                   fmt::format("component {} of layer {} is described twice", run.component, run.layer));
    }
    return {};
  }
  Result<const tiercel_memory_run*> find(const tiercel_run_info& run) {
    const auto one = by_name_.find({run.component, run.layer});
    const auto every = by_name_.find({run.component, TIERCEL_WHOLE});
    if (one == by_name_.end() && every == by_name_.end())
      return tl::unexpected(bad(cls_, "memory",
                                fmt::format("component {} (\"{}\") of layer {} is not described",
                                            run.component, run.name, run.layer)));
    if (one != by_name_.end() && every != by_name_.end())
      return tl::unexpected(
          bad(cls_, "memory",
              fmt::format("component {} of layer {} is described twice", run.component, run.layer)));
    const tiercel_memory_run* found = one != by_name_.end() ? one->second : every->second;
    ++used_[found];
    return found;
  }
  std::uint64_t used() const { return used_.size(); }

 private:
  const ClassForm& cls_;
  const tiercel_memory_options& options_;
  std::map<std::pair<std::uint32_t, std::uint32_t>, const tiercel_memory_run*> by_name_;
  std::map<const tiercel_memory_run*, std::uint64_t> used_;
};

Status check_run(const ClassForm& cls, const tiercel_memory_run& run, std::uint64_t number) {
  const std::string name = fmt::format("run {}", number);
  for (const std::uint64_t reserved : run.reserved)
    if (Answer zero = check_reserved(name, reserved); !zero.ok()) return bad(cls, "memory", zero.message);
  if (run.base == nullptr) return bad(cls, "memory", name + ": base is NULL; give the address of its slot 0");
  if (run.head_count != 0 || run.head_stride != 0)
    return {Code::kUnsupported,
            fmt::format("memory of class {} (\"{}\"): {}: head_count is {}, head_stride {}, wanted 0: pages "
                        "that lie head by head are not built; register memory that lies token by token, or "
                        "give records in segments",
                        cls.id.value(), cls.name, name, run.head_count, run.head_stride)};
  return {};
}

std::uint64_t address_of(const void* base) { return reinterpret_cast<std::uintptr_t>(base); }

// One run of the class, entry by entry where they do not lie side by side.
Status append_runs(const ClassForm& cls, const tiercel_run_info& info, const tiercel_memory_run& run,
                   std::uint64_t nth_layer, std::vector<DeviceRun>& out) {
  const auto ahead = checked_mul(nth_layer, run.layer_stride);
  const auto base = ahead ? checked_add(address_of(run.base), *ahead) : std::nullopt;
  const std::uint64_t entries = run.entry_stride == 0 ? 1 : info.entries;
  const std::uint64_t length = info.length / entries;
  if (run.entry_stride != 0 && run.entry_stride < length)
    return bad(cls, "memory",
               fmt::format("entry_stride {} is less than an entry's {} bytes", run.entry_stride, length));
  if (out.size() + entries > kRunsMax)
    return bad(cls, "memory", fmt::format("more than {} pieces; use dense entries", kRunsMax));
  for (std::uint64_t e = 0; e < entries; ++e) {
    const auto step = checked_mul(e, run.entry_stride);
    const auto at = base && step ? checked_add(*base, *step) : std::nullopt;
    if (!at) return bad(cls, "memory", fmt::format("the addresses of layer {} wrap", info.layer));
    out.push_back({info.offset + e * length, length, *at, run.slot_stride});
  }
  return {};
}

}  // namespace

Result<DevicePool> make_device_pool(const FormTable& table, const tiercel_memory_options& options) {
  const ClassForm& cls = table.form.classes[options.class_id];
  DevicePool pool{cls.id, ShardId(static_cast<std::uint16_t>(options.shard)), options.slots, {}};
  for (std::uint64_t i = 0; i < options.run_count; ++i)
    TIERCEL_RETURN_IF_ERROR(check_run(cls, options.runs[i], i));
  if (options.run_count == 1 && options.runs[0].component == TIERCEL_WHOLE) {
    const tiercel_memory_run& run = options.runs[0];
    if (run.layer != TIERCEL_WHOLE || run.layer_stride != 0 || run.entry_stride != 0)
      return tl::unexpected(bad(cls, "memory", "whole records have no layers or entries of their own"));
    pool.runs.push_back({0, cls.record_bytes, address_of(run.base), run.slot_stride});
  } else {
    RunFinder finder(cls, options);
    TIERCEL_RETURN_IF_ERROR(finder.note_all());
    std::map<const tiercel_memory_run*, std::uint64_t> layers_seen;
    for (const tiercel_run_info& info : table.classes[options.class_id].runs) {
      TIERCEL_ASSIGN_OR_RETURN(const tiercel_memory_run* const run, finder.find(info));
      TIERCEL_RETURN_IF_ERROR(append_runs(cls, info, *run, layers_seen[run]++, pool.runs));
    }
    if (finder.used() != options.run_count)
      return tl::unexpected(bad(cls, "memory",
                                fmt::format("{} of {} runs describe nothing that the class has",
                                            options.run_count - finder.used(), options.run_count)));
  }
  TIERCEL_RETURN_IF_ERROR(validate(pool, cls, EngineMemory::kBroughtBase));
  return pool;
}

// ---- records in pieces ----

namespace {

// Lays one object's bytes over the runs that it names.
Status append_object(const ClassTable& table, const ClassForm& cls, const tiercel_object& object,
                     Pieces& pieces, bool* fits) {
  std::uint64_t segment = 0, used = 0;
  const auto lay = [&](std::uint64_t offset, std::uint64_t length) {
    while (length != 0) {
      while (segment < object.segment_count && used == object.segments[segment].size) {
        ++segment;
        used = 0;
      }
      if (segment == object.segment_count) {
        *fits = false;
        return;
      }
      const std::uint64_t part = std::min(length, object.segments[segment].size - used);
      pieces.push_back({offset, part, static_cast<std::byte*>(object.segments[segment].data) + used});
      used += part;
      offset += part;
      length -= part;
    }
  };
  if (object.component == TIERCEL_WHOLE) {
    lay(0, cls.record_bytes);
  } else {
    for (const tiercel_run_info& run : table.runs)
      if (run.component == object.component && *fits) lay(run.offset, run.length);
  }
  while (segment < object.segment_count && used == object.segments[segment].size) {
    ++segment;
    used = 0;
  }
  if (segment != object.segment_count) *fits = false;
  return {};
}

Status check_object(const ClassTable& table, const ClassForm& cls, const tiercel_object& object, bool alone) {
  if (Answer zero = check_reserved("an object", object.reserved); !zero.ok())
    return bad(cls, "record", zero.message);
  if (object.component == TIERCEL_WHOLE ? !alone : object.component >= table.components.size())
    return bad(cls, "record",
               fmt::format("component {} of an object does not exist, or stands beside a whole record; "
                           "the class has {}",
                           object.component, table.components.size()));
  std::span<const tiercel_segment> segments;
  if (Answer list = read_list("segments", object.segments, object.segment_count, segments); !list.ok())
    return bad(cls, "record", list.message);
  for (const tiercel_segment& segment : segments)
    if (segment.data == nullptr && segment.size != 0) return bad(cls, "record", "a segment's data is NULL");
  return {};
}

}  // namespace

Result<Pieces> make_pieces(const FormTable& table, std::uint32_t class_id,
                           const tiercel_record_memory& record, bool* fits) {
  const ClassForm& cls = table.form.classes[class_id];
  const ClassTable& classes = table.classes[class_id];
  std::span<const tiercel_object> objects;
  if (Answer list = read_list("objects", record.objects, record.object_count, objects); !list.ok())
    return tl::unexpected(bad(cls, "record", list.message));
  std::vector<bool> seen(classes.components.size());
  Pieces pieces;
  *fits = true;
  for (const tiercel_object& object : objects) {
    TIERCEL_RETURN_IF_ERROR(check_object(classes, cls, object, objects.size() == 1));
    if (object.component != TIERCEL_WHOLE) {
      if (seen[object.component])
        return tl::unexpected(
            bad(cls, "record", fmt::format("component {} is given twice", object.component)));
      seen[object.component] = true;
    }
    TIERCEL_RETURN_IF_ERROR(append_object(classes, cls, object, pieces, fits));
  }
  std::uint64_t bytes = 0;
  for (const Piece& piece : pieces) bytes += piece.size;
  *fits = *fits && bytes == cls.record_bytes;
  std::sort(pieces.begin(), pieces.end(), [](const Piece& a, const Piece& b) { return a.offset < b.offset; });
  return pieces;
}

}  // namespace tiercel::capi
