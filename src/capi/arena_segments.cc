#include "capi/arena_segments.h"

#include <algorithm>

#include <fmt/format.h>

#include "base/check.h"
#include "capi/options.h"
#include "model/pool_layout.h"
#include "model/pool_shape.h"
#include "model/record_runs.h"

namespace tiercel::capi {

namespace {

// Appends a run, cut where a component of a layer ends in the payload. `named`: those, ascending and without
// a gap.
void append_named(std::span<const tiercel_run_info> named, const RecordRun& run, std::vector<NamedRun>& out) {
  auto at = std::upper_bound(
      named.begin(), named.end(), run.payload_offset,
      [](std::uint64_t offset, const tiercel_run_info& each) { return offset < each.offset; });
  TIERCEL_CHECK(at != named.begin());
  --at;
  for (std::uint64_t done = 0; done < run.length; ++at) {
    const std::uint64_t offset = run.payload_offset + done;
    const std::uint64_t length = std::min(run.length - done, at->offset + at->length - offset);
    out.push_back({offset, length, at->component, at->layer});
    done += length;
  }
}

}  // namespace

Result<std::vector<NamedRun>> named_runs_of(const FormTable& table, std::uint32_t class_id,
                                            std::string_view layout_name) {
  const ClassForm& cls = table.form.classes.at(class_id);
  TIERCEL_ASSIGN_OR_RETURN(const Layout layout, layout_from_text(layout_name));
  std::vector<NamedRun> out;
  for (const std::uint32_t group : cls.groups) {
    TIERCEL_ASSIGN_OR_RETURN(const PoolLayout pool, lay_out(pool_shape(table.form, group), layout, 1));
    TIERCEL_ASSIGN_OR_RETURN(std::vector<RecordRun> runs, record_runs(cls, pool));
    std::sort(runs.begin(), runs.end(), [](const RecordRun& a, const RecordRun& b) {
      return std::pair(a.buffer, a.offset) < std::pair(b.buffer, b.offset);
    });
    for (const RecordRun& run : runs) append_named(table.classes[class_id].runs, run, out);
    if (out.size() > kListMax)
      return error(Code::kResourceExhausted,
                   fmt::format("layout {}: a record of class {} would be more than {} pieces; use a layout "
                               "that keeps more of it together",
                               layout_name, cls.name, kListMax));
  }
  return out;
}

std::vector<tiercel_file_segment> file_segments(std::span<const NamedRun> fragments,
                                                std::uint64_t header_bytes, std::span<const ArenaSpan> spans,
                                                std::uint64_t extents_at, int fd) {
  std::vector<tiercel_file_segment> out;
  out.reserve(fragments.size());
  for (const NamedRun& fragment : fragments) {
    std::uint64_t position = header_bytes + fragment.offset;  // in the record
    auto span = spans.begin();
    while (position >= span->length) position -= (span++)->length;
    for (std::uint64_t done = 0; done < fragment.length; ++span, position = 0) {
      tiercel_file_segment& piece = out.emplace_back(tiercel_file_segment{});
      piece.offset = extents_at + span->offset + position;
      piece.length = std::min(fragment.length - done, span->length - position);
      piece.payload_offset = fragment.offset + done;
      piece.component = fragment.component;
      piece.layer = fragment.layer;
      piece.fd = fd;
      done += piece.length;
    }
  }
  return out;
}

}  // namespace tiercel::capi
