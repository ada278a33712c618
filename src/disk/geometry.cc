// How a drive is divided.
#include <algorithm>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "base/checked.h"
#include "base/sizes.h"
#include "disk/admission.h"
#include "disk/disk_index.h"
#include "disk/format.h"
#include "disk/removals.h"
#include "os/block_device.h"

namespace tiercel::disk {
namespace {

constexpr std::uint64_t kKiB = 1ULL << 10;
constexpr std::uint64_t kMiB = 1ULL << 20;
constexpr std::uint64_t kRegionBytesMin = 64 * kKiB;
constexpr std::uint64_t kRegionsMin = 4;
// An entry of the index names a block behind the first region's start by 32 bits.
constexpr std::uint64_t kRegionsBytesMax = kBlockBytes << 32;
constexpr std::uint64_t kEntryBytesPlanned = 64 * kKiB;
constexpr std::uint64_t kIndexEntriesMin = 4096;
constexpr std::uint64_t kIndexEntriesMax = 1ULL << 40;
constexpr std::uint64_t kRemovalsMin = 1024;
constexpr std::uint64_t kNamesBytesMin = 64 * kKiB;
constexpr std::uint64_t kNamesBytesMax = 64 * kMiB;

std::uint64_t up(std::uint64_t bytes) { return ceil_div(bytes, kBlockBytes) * kBlockBytes; }
std::uint64_t down(std::uint64_t bytes) { return bytes / kBlockBytes * kBlockBytes; }

tl::unexpected<Status> refused(std::string message) {
  return error(Code::kInvalidArgument, "disk: " + std::move(message));
}

Status misfit(std::string_view field, std::string_view wanted, std::uint64_t got) {
  return {Code::kDataCorrupt, fmt::format("superblock: {}: wanted {}, got {}", field, wanted, got)};
}

// What Removals keep of a namespace (20 bytes) is less than a third of what the catalogue keeps of it (72 and
// more).
std::uint64_t area_for(std::uint64_t names_bytes, std::uint64_t removals_max) {
  return up(ceil_div(names_bytes * 4, 3) + Removals::bytes_max(removals_max, 0));
}

// `room`: of all regions.
Result<std::uint64_t> planned_region_bytes(std::uint64_t asked, std::uint64_t size, std::uint64_t room) {
  if (asked == 0) {
    const std::uint64_t wanted = std::min(std::clamp(size / 64, 64 * kMiB, 256 * kMiB), size / 8);
    return std::max(down(std::min(wanted, room / kRegionsMin)), kRegionBytesMin);
  }
  if (asked % kBlockBytes != 0 || asked < kRegionBytesMin || asked > size)
    return refused(fmt::format(
        "region_bytes: wanted a multiple of {} from {} on, four of which fit the drive's {}, got {}",
        kBlockBytes, kRegionBytesMin, size, asked));
  return asked;
}

}  // namespace

ImageLayout image_layout(std::uint64_t index_buckets, std::uint64_t catalogue_bytes) {
  ImageLayout layout;
  layout.catalogue_at = kBlockBytes;
  layout.catalogue_bytes = catalogue_bytes;
  layout.table_at = layout.catalogue_at + up(catalogue_bytes);
  layout.table_bytes = index_buckets * kBucketBytes;
  layout.chunks = ceil_div(layout.table_bytes, kImageChunkBytes);
  layout.checksums_at = layout.table_at + up(layout.table_bytes);
  layout.checksums_bytes = (layout.chunks + 1) * sizeof(std::uint32_t);
  layout.bytes = layout.checksums_at + up(layout.checksums_bytes);
  return layout;
}

std::uint64_t names_bytes_max(const DiskGeometry& geometry) {
  return (geometry.catalogue_bytes - Removals::bytes_max(geometry.removals_max, 0)) / 4 * 3;
}

std::uint64_t host_bytes_of(const DiskGeometry& geometry, const DiskLogOptions& options) {
  constexpr std::uint64_t kHugePage = 2 * kMiB;
  constexpr std::uint64_t kRemovalBytes = 64;  // a node of the table and its share of the buckets
  const std::uint64_t seen =
      options.admission == DiskAdmission::kAll ? 0 : geometry.index_buckets * kBucketEntriesPlanned;
  const std::uint64_t index = ceil_div(geometry.index_buckets * kBucketBytes, kHugePage) * kHugePage;
  const std::uint64_t descriptors = geometry.region_bytes / kEntryBytesPlanned * kDescriptorBytes;
  const std::uint64_t directories =
      options.segments_in_flight * directory_bytes(options.segment_bytes / kEntryBytesPlanned);
  return index + geometry.removals_max * kRemovalBytes + SeenBefore::nominal_bytes(seen) +
         geometry.catalogue_bytes + 2 * descriptors + directories + kImageChunkBytes;
}

Result<DiskGeometry> plan_geometry(const DiskLogOptions& options, std::uint64_t size_bytes) {
  if (size_bytes > kSizeMax)
    return refused(fmt::format("size: wanted at most {}, got {}", kSizeMax, size_bytes));
  DiskGeometry g;
  g.size_bytes = down(size_bytes);
  if (options.index_entries > kIndexEntriesMax)
    return refused(
        fmt::format("index_entries: wanted at most {}, got {}", kIndexEntriesMax, options.index_entries));
  const std::uint64_t entries = options.index_entries != 0
                                    ? options.index_entries
                                    : std::max(g.size_bytes / kEntryBytesPlanned, kIndexEntriesMin);
  if (options.removals_max > kIndexEntriesMax)
    return refused(
        fmt::format("removals_max: wanted at most {}, got {}", kIndexEntriesMax, options.removals_max));
  g.removals_max = options.removals_max != 0 ? options.removals_max : std::max(entries / 16, kRemovalsMin);
  g.index_buckets = std::max<std::uint64_t>(ceil_div(entries, kBucketEntriesPlanned), 2);
  g.catalogue_bytes =
      area_for(std::clamp(g.size_bytes / 1024, kNamesBytesMin, kNamesBytesMax), g.removals_max);
  g.image_bytes = image_layout(g.index_buckets, g.catalogue_bytes).bytes;
  g.image_offset[0] = 2 * kBlockBytes;
  g.image_offset[1] = g.image_offset[0] + g.image_bytes;
  g.regions_offset = g.image_offset[1] + g.image_bytes;
  const std::uint64_t room = g.size_bytes - std::min(g.size_bytes, g.regions_offset);
  TIERCEL_ASSIGN_OR_RETURN(g.region_bytes, planned_region_bytes(options.region_bytes, g.size_bytes, room));
  const auto fewest = checked_mul(kRegionsMin, g.region_bytes);
  const auto least = checked_add(g.regions_offset, fewest.value_or(kSizeMax));
  if (!least || *least > g.size_bytes)
    return refused(
        fmt::format("size: wanted at least {} for {} regions of {} and an index of {} entries, got {}; "
                    "give more, or smaller region_bytes or index_entries",
                    least.value_or(kSizeMax), kRegionsMin, g.region_bytes, entries, size_bytes));
  g.regions = (g.size_bytes - g.regions_offset) / g.region_bytes;
  if (g.regions * g.region_bytes > kRegionsBytesMax)
    return refused(fmt::format("size: wanted at most {} for the regions, got {}; divide the drive",
                               format_size(kRegionsBytesMax), format_size(g.regions * g.region_bytes)));
  g.host_bytes = host_bytes_of(g, options);
  return g;
}

Status check_geometry(const DiskGeometry& g) {
  const std::pair<std::string_view, std::uint64_t> sizes[] = {{"size", g.size_bytes},
                                                              {"region bytes", g.region_bytes},
                                                              {"catalogue bytes", g.catalogue_bytes},
                                                              {"first image", g.image_offset[0]},
                                                              {"second image", g.image_offset[1]},
                                                              {"image bytes", g.image_bytes},
                                                              {"first region", g.regions_offset}};
  for (const auto& [field, got] : sizes)
    if (got == 0 || got % kBlockBytes != 0 || got > kSizeMax)
      return misfit(field, fmt::format("a multiple of {}, not 0", kBlockBytes), got);
  if (g.region_bytes < kRegionBytesMin)
    return misfit("region bytes", fmt::format("at least {}", kRegionBytesMin), g.region_bytes);
  const auto regions_bytes = checked_mul(g.regions, g.region_bytes);
  if (g.regions < kRegionsMin || !regions_bytes || *regions_bytes > kRegionsBytesMax)
    return misfit("regions", fmt::format("{} or more, in 16 TiB", kRegionsMin), g.regions);
  const auto end = checked_add(g.regions_offset, *regions_bytes);
  if (!end || *end > g.size_bytes)
    return misfit("regions", fmt::format("so many that {} bytes hold them", g.size_bytes), g.regions);
  if (g.removals_max == 0 || g.removals_max > g.size_bytes / 16 ||
      Removals::bytes_max(g.removals_max, 0) > g.catalogue_bytes)
    return misfit("removals", fmt::format("1 to what {} bytes hold", g.catalogue_bytes), g.removals_max);
  if (g.index_buckets < 2 || g.index_buckets > g.size_bytes / kBucketBytes)
    return misfit("buckets", fmt::format("2 to what {} bytes hold", g.size_bytes), g.index_buckets);
  if (g.catalogue_bytes > g.size_bytes)
    return misfit("catalogue bytes", fmt::format("at most {}", g.size_bytes), g.catalogue_bytes);
  const std::uint64_t image = image_layout(g.index_buckets, g.catalogue_bytes).bytes;
  if (g.image_bytes != image) return misfit("image bytes", fmt::format("{}", image), g.image_bytes);
  if (g.image_offset[0] < 2 * kBlockBytes)
    return misfit("first image", "behind both superblocks", g.image_offset[0]);
  const auto second = checked_add(g.image_offset[0], g.image_bytes);
  if (!second || g.image_offset[1] < *second)
    return misfit("second image", "behind the first", g.image_offset[1]);
  const auto first_region = checked_add(g.image_offset[1], g.image_bytes);
  if (!first_region || g.regions_offset < *first_region)
    return misfit("first region", "behind both images", g.regions_offset);
  return {};
}

}  // namespace tiercel::disk
