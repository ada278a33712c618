// What a drive holds, read from superblocks, image, footers and the end of the log, without
// changing a byte. Nothing that is read is believed before it was checked.
//
// Threads: one thread.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/ids.h"
#include "base/status.h"
#include "disk/catalogue.h"
#include "disk/disk_index.h"
#include "disk/disk_options.h"
#include "disk/drive_io.h"
#include "disk/format.h"
#include "disk/record_check.h"
#include "disk/removals.h"

namespace tiercel::disk {

// Numbers and lives of a new opening begin so far above all that was seen: what the last opening wrote and
// this one could not read must stay older than everything new, should it be readable again.
inline constexpr std::uint64_t kNumbersApart = 1ULL << 20;
inline constexpr std::uint64_t kLivesApart = 1ULL << 16;

// A region as it was found.
struct RegionFound {
  std::uint64_t life = 0;      // 0: it holds nothing
  std::uint64_t first_at = 0;  // no entry of it has a lower number
  std::uint64_t last_at = 0;   // nor a higher one; 0: holds no entry
  std::uint64_t last_control_at =
      0;  // the same of entries that are not class-sets; 0: none that the image lacks
  std::uint64_t oldest_born = UINT64_MAX;  // of the class-sets in it that the index names
  std::uint32_t entries = 0;               // of its footer; 0: the footer was not read
  bool header_damaged = false;
};

// A region without a footer, as far as its segments are in order.
struct TailFound {
  // What the opening makes of it, so that what it left out stays out: goes on behind a mark, gets a footer,
  // or holds nothing.
  enum class Becomes : std::uint8_t { kOpen, kSealed, kEmpty };
  Becomes becomes = Becomes::kSealed;
  std::uint32_t region = 0;
  std::uint32_t next_block = 1;        // behind the last segment that counts
  std::vector<Descriptor> entries;     // those that count
  std::vector<Descriptor> left_out;    // of the segments in order, those that do not and that no mark names
  std::optional<std::string> refused;  // why the next segment does not count; none: there is none
};

struct RecoveryCounts {
  std::uint64_t from_image = 0, from_footers = 0, from_tail = 0;
  std::uint64_t segments_refused = 0, images_damaged = 0;
  std::uint64_t no_room = 0;  // class-sets for which the index had no place
};

struct Recovered {
  Superblock superblock;
  std::optional<DiskIndex> index;
  std::optional<Catalogue> catalogue;
  std::optional<Removals> removals;
  std::vector<RegionFound> regions;
  std::vector<std::uint32_t> order;  // those with a life, oldest first
  std::vector<TailFound> tails;      // oldest first
  std::uint64_t last_at = 0;         // highest number seen anywhere
  std::uint64_t last_life = 0;
  std::uint64_t image_from_at = 0;    // everything up to it is in the image; 0: no image
  std::uint64_t image_from_life = 0;  // of regions with a lower life nothing counts that it does not name
  std::uint64_t last_image = 0;       // highest sequence of an image that was heard of
  bool image_lost = false;            // there was one, and none could be read
  // Blocks of a class-set, by namespace and class, where one was seen.
  std::map<std::pair<std::uint32_t, ClassId>, std::uint32_t> set_blocks;
  RecoveryCounts counts;
};

class Recovery final {
 public:
  explicit Recovery(DriveIo& io) : io_(io) {}

  // Nothing: the drive is blank. Errors: as DiskLog::open().
  Result<std::optional<Superblock>> find_superblock();
  // `tolerant`: what cannot be read is taken for damaged; else it is an error, since what the log promised
  // may stand there. Errors: io_error; resource_exhausted. Requires: a superblock was found.
  Status recover(const Superblock& superblock, bool tolerant);

  // One image and nothing else, whether or not a superblock names it; what it says of regions is not held
  // against them. Errors: what is wrong with it.
  Status load_image_alone(const Superblock& superblock, std::uint32_t slot);

  Recovered& found() { return found_; }
  std::uint64_t region_offset(std::uint32_t region) const;
  std::uint64_t region_blocks() const { return found_.superblock.geometry.region_bytes / kBlockBytes; }

  // A region's footer, whole. Errors: io_error, data_corrupt.
  Result<Footer> read_footer(std::uint32_t region);
  // A region's segments, one behind the other, as far as they are in order, whether or not they are whole.
  TailFound scan(std::uint32_t region);
  // A kName entry's payload. Errors: io_error, data_corrupt.
  Result<std::pair<DiskSpaceId, DiskSpaceName>> read_name(std::uint32_t region, const Descriptor& descriptor);
  // As the log's catalogue has it, or any directory that was read; null: nobody knows it.
  const DiskSpaceName* name_of(DiskSpaceId space) const;
  // A class-set's records, as in RecordCheck. `read`: read already, from its `first` block on, and not so
  // far that any of them lies behind it.
  struct BlocksRead {
    std::uint64_t first = 0;
    std::vector<std::byte> bytes;  // none: nothing was read
  };
  Status verify(std::uint32_t region, const Descriptor& descriptor, const BlocksRead& read);
  // Blocks of a region: those that were read, or into `memory`. Errors: those of the drive.
  Result<ByteView> blocks(std::uint32_t region, std::uint64_t block, std::uint64_t count,
                          const BlocksRead& read, std::vector<std::byte>& memory);

 private:
  friend class TailScan;
  struct Replay {
    std::uint32_t region = 0;
    std::vector<Descriptor> entries;
    bool tail = false;
  };
  Status load_image(std::uint32_t slot, std::uint64_t sequence_least, std::uint64_t sequence_most);
  Status load_names(const ImageHeader& header, std::uint64_t offset, std::uint32_t crc);
  Status load_table(const ImageHeader& header, std::uint64_t offset, ByteView checksums);
  bool take_if_there(const IndexEntry& entry);
  Status claim(const DiskGeometry& geometry);
  Status load_any_image();
  void read_regions();
  void order_regions();
  std::vector<std::uint32_t> newer_than_image();
  std::vector<Replay> collect();
  void see_names(std::uint32_t region, const std::vector<Descriptor>& entries);
  Status learn_name(std::uint32_t region, const Descriptor& descriptor);
  void learn_names(const std::vector<Replay>& replays);
  void learn_from_records(const std::vector<Replay>& replays);
  bool remove(const Replay& replay);
  void put(const Replay& replay);
  void put(const Replay& replay, const Descriptor& descriptor);
  void note(const Descriptor& descriptor, std::uint32_t region);

  DriveIo& io_;
  Recovered found_;
  RecordCheck records_;
  std::uint64_t image_life_ = 0;
  std::vector<bool> image_spaces_;  // by low numbers: whether the image names it
  // Of directories and footers, whether or not they count; by region and block. Bounded in all.
  using NameEntry = std::pair<DiskSpaceId, DiskSpaceName>;
  std::map<std::pair<std::uint32_t, std::uint32_t>, NameEntry> names_read_;
  std::map<DiskSpaceId, const DiskSpaceName*> names_seen_;  // of those
  std::size_t runs_read_ = 0;
};

}  // namespace tiercel::disk
