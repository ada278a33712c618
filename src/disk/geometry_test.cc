#include <functional>
#include <utility>

#include <gtest/gtest.h>

#include "base/prng.h"
#include "disk/disk_index.h"
#include "disk/format.h"
#include "disk/removals.h"
#include "os/block_device.h"

namespace tiercel::disk {
namespace {

constexpr std::uint64_t kKiB = 1ULL << 10;
constexpr std::uint64_t kMiB = 1ULL << 20;
constexpr std::uint64_t kGiB = 1ULL << 30;
constexpr std::uint64_t kTiB = 1ULL << 40;

// Parts follow each other without overlap, and nearly nothing is left over.
void expect_whole(const DiskGeometry& g) {
  EXPECT_EQ(check_geometry(g), Status{});
  EXPECT_EQ(g.image_offset[0], 2 * kBlockBytes);
  EXPECT_EQ(g.image_offset[1], g.image_offset[0] + g.image_bytes);
  EXPECT_EQ(g.regions_offset, g.image_offset[1] + g.image_bytes);
  const std::uint64_t end = g.regions_offset + g.regions * g.region_bytes;
  EXPECT_LE(end, g.size_bytes);
  EXPECT_LT(g.size_bytes - end, g.region_bytes);
  EXPECT_GT(g.host_bytes, g.index_buckets * kBucketBytes);
}

TEST(DiskGeometry, RegionsAreASixtyFourthOfTheDriveWithinBounds) {
  const std::pair<std::uint64_t, std::uint64_t> drives[] = {{8 * kMiB, kMiB},   {256 * kMiB, 32 * kMiB},
                                                            {kGiB, 64 * kMiB},  {8 * kGiB, 128 * kMiB},
                                                            {kTiB, 256 * kMiB}, {16 * kTiB, 256 * kMiB}};
  for (const auto& [size, region] : drives) {
    const DiskGeometry g = plan_geometry({}, size).value();
    expect_whole(g);
    EXPECT_EQ(g.region_bytes, region) << size;
  }
}

TEST(DiskGeometry, ASmallDriveIsNotEatenByItsImages) {
  const DiskGeometry g = plan_geometry({}, 8 * kMiB).value();
  EXPECT_EQ(g.index_buckets, 683U) << "4,096 entries, six a bucket";
  EXPECT_EQ(g.removals_max, 1024U);
  EXPECT_EQ(g.regions, 7U);
  EXPECT_LT(g.regions_offset, kMiB);
}

TEST(DiskGeometry, AnEntryForEach64KiBOfALargeDrive) {
  const DiskGeometry g = plan_geometry({}, kTiB).value();
  EXPECT_EQ(g.index_buckets, (kTiB / (64 * kKiB) + 5) / 6);
  EXPECT_EQ(g.removals_max, kTiB / (64 * kKiB) / 16);
  EXPECT_LT(g.regions_offset, kTiB / 500) << "two images of 0.07 % each";
}

TEST(DiskGeometry, AGibibyteOfHostMemoryServesATebibyte) {
  DiskLogOptions options;
  const DiskGeometry g = plan_geometry(options, kTiB).value();
  EXPECT_LT(g.host_bytes, kGiB);
  EXPECT_EQ(host_bytes_of(g, options), g.host_bytes);
  options.admission = DiskAdmission::kAll;
  EXPECT_LT(host_bytes_of(g, options), g.host_bytes) << "no filter of what was seen";
}

TEST(DiskGeometry, WhatIsAskedForIsKept) {
  DiskLogOptions options;
  options.region_bytes = 128 * kKiB;
  options.index_entries = 600;
  options.removals_max = 5;
  const DiskGeometry g = plan_geometry(options, 2 * kMiB + 4095).value();
  expect_whole(g);
  EXPECT_EQ(g.size_bytes, 2 * kMiB);
  EXPECT_EQ(g.region_bytes, 128 * kKiB);
  EXPECT_EQ(g.index_buckets, 100U);
  EXPECT_EQ(g.removals_max, 5U);
}

std::string refusal(const DiskLogOptions& options, std::uint64_t size) {
  const auto planned = plan_geometry(options, size);
  EXPECT_FALSE(planned.has_value()) << size;
  if (planned) return {};
  EXPECT_EQ(planned.error().code, Code::kInvalidArgument);
  EXPECT_EQ(planned.error().message.find('\n'), std::string::npos);
  return planned.error().message;
}

TEST(DiskGeometry, ATooSmallDriveIsToldTheSizeWanted) {
  for (const std::uint64_t size : {std::uint64_t{0}, std::uint64_t{1}, 4 * kKiB, 512 * kKiB}) {
    const std::string message = refusal({}, size);
    const std::string_view mark = "disk: size: wanted at least ";
    ASSERT_TRUE(message.starts_with(mark)) << message;
    const std::uint64_t wanted = std::stoull(message.substr(mark.size()));
    EXPECT_TRUE(plan_geometry({}, wanted)) << wanted;
    EXPECT_FALSE(plan_geometry({}, wanted - 1)) << wanted;
  }
}

TEST(DiskGeometry, ADriveBeyondWhatTheIndexCanNameIsRefused) {
  EXPECT_TRUE(plan_geometry({}, 16 * kTiB));
  EXPECT_NE(refusal({}, 17 * kTiB).find("16 TiB"), std::string::npos) << refusal({}, 17 * kTiB);
  refusal({}, UINT64_MAX);
  refusal({}, UINT64_MAX / 2);
}

TEST(DiskGeometry, OptionsThatMakeNoSenseAreNamed) {
  DiskLogOptions options;
  for (const std::uint64_t bytes : {std::uint64_t{1}, 4 * kKiB, 64 * kKiB + 1, 2 * kGiB, UINT64_MAX - 4095}) {
    options.region_bytes = bytes;
    EXPECT_TRUE(refusal(options, kGiB).starts_with("disk: region_bytes: ")) << bytes;
  }
  options.region_bytes = kGiB / 4;
  EXPECT_TRUE(refusal(options, kGiB).starts_with("disk: size: ")) << "four of them and the images";
  options = {};
  options.index_entries = UINT64_MAX;
  EXPECT_TRUE(refusal(options, kGiB).starts_with("disk: index_entries: "));
  options.index_entries = 1ULL << 40;
  EXPECT_TRUE(refusal(options, kGiB).starts_with("disk: size: "));
  options = {};
  options.removals_max = UINT64_MAX;
  EXPECT_TRUE(refusal(options, kGiB).starts_with("disk: removals_max: "));
}

TEST(DiskGeometry, WhateverIsPlannedFitsTogetherAndComesBackFromTheSuperblock) {
  Prng random(7);
  std::size_t planned = 0;
  for (int round = 0; round < 20000; ++round) {
    DiskLogOptions options;
    const std::uint64_t size = random.next() >> random.between(18, 60);
    if (random.chance(0.5)) options.region_bytes = (random.next() >> random.between(30, 50)) / 4096 * 4096;
    if (random.chance(0.5)) options.index_entries = random.next() >> random.between(20, 63);
    if (random.chance(0.5)) options.removals_max = random.next() >> random.between(20, 63);
    const auto geometry = plan_geometry(options, size);
    if (!geometry) continue;
    ++planned;
    ASSERT_NO_FATAL_FAILURE(expect_whole(*geometry));
    Superblock superblock;
    superblock.geometry = *geometry;
    superblock.geometry.host_bytes = 0;
    ASSERT_EQ(parse_superblock(encode(superblock)).value(), superblock);
  }
  EXPECT_GT(planned, 2000U);
}

TEST(DiskGeometry, NamesAndRemovalsFitTheCatalogueTogether) {
  for (const std::uint64_t size : {8 * kMiB, kGiB, kTiB}) {
    const DiskGeometry g = plan_geometry({}, size).value();
    const std::uint64_t names = names_bytes_max(g);
    EXPECT_GE(names, 64 * kKiB);
    const std::uint64_t spaces = (names - 16) / 72;  // names without any text
    EXPECT_LE(names + Removals::bytes_max(g.removals_max, spaces), g.catalogue_bytes);
  }
}

TEST(DiskGeometry, PartsOfAnImageFollowEachOther) {
  const ImageLayout layout = image_layout(4097, 12288);
  EXPECT_EQ(layout.catalogue_at, 4096U);
  EXPECT_EQ(layout.table_at, 4096U + 12288);
  EXPECT_EQ(layout.table_bytes, 4097U * 256);
  EXPECT_EQ(layout.chunks, 2U) << "1 MiB and 256 bytes";
  EXPECT_EQ(layout.checksums_at, layout.table_at + kMiB + 4096);
  EXPECT_EQ(layout.checksums_bytes, 12U);
  EXPECT_EQ(layout.bytes, layout.checksums_at + 4096);
}

TEST(DiskGeometry, OneThatDoesNotFitTogetherIsNamed) {
  using Change = std::pair<std::string, std::function<void(DiskGeometry&)>>;
  const Change changes[] = {
      {"size", [](DiskGeometry& g) { g.size_bytes -= 1; }},
      {"size", [](DiskGeometry& g) { g.size_bytes = UINT64_MAX - 4095; }},
      {"regions", [](DiskGeometry& g) { g.size_bytes = g.regions_offset; }},
      {"region bytes", [](DiskGeometry& g) { g.region_bytes = 0; }},
      {"region bytes", [](DiskGeometry& g) { g.region_bytes = 4096; }},
      {"region bytes", [](DiskGeometry& g) { g.region_bytes += 512; }},
      {"regions", [](DiskGeometry& g) { g.regions += 1; }},
      {"regions", [](DiskGeometry& g) { g.regions = 3; }},
      {"regions", [](DiskGeometry& g) { g.regions = UINT64_MAX; }},
      {"regions", [](DiskGeometry& g) { g.regions = 1ULL << 40; }},
      {"buckets", [](DiskGeometry& g) { g.index_buckets = 1; }},
      {"buckets", [](DiskGeometry& g) { g.index_buckets = UINT64_MAX; }},
      {"image bytes", [](DiskGeometry& g) { g.index_buckets += 16; }},
      {"image bytes", [](DiskGeometry& g) { g.image_bytes -= 4096; }},
      {"image bytes", [](DiskGeometry& g) { g.catalogue_bytes += 4096; }},
      {"catalogue bytes", [](DiskGeometry& g) { g.catalogue_bytes = 1ULL << 62; }},
      {"removals", [](DiskGeometry& g) { g.removals_max = 0; }},
      {"removals", [](DiskGeometry& g) { g.removals_max = UINT64_MAX; }},
      {"removals", [](DiskGeometry& g) { g.removals_max = g.catalogue_bytes / 28 + 1; }},
      {"first image", [](DiskGeometry& g) { g.image_offset[0] = 4096; }},
      {"second image", [](DiskGeometry& g) { g.image_offset[1] -= 4096; }},
      {"second image", [](DiskGeometry& g) { g.image_offset[1] = g.image_offset[0]; }},
      {"first region", [](DiskGeometry& g) { g.regions_offset -= 4096; }},
  };
  for (const auto& [field, change] : changes) {
    DiskGeometry g = plan_geometry({}, kGiB).value();
    change(g);
    const Status status = check_geometry(g);
    EXPECT_EQ(status.code, Code::kDataCorrupt) << field;
    EXPECT_TRUE(status.message.starts_with("superblock: " + field + ": wanted ")) << status.message;
  }
}

}  // namespace
}  // namespace tiercel::disk
