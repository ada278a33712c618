// A drive in whose operations its process dies: before, in the middle of or after the one that was chosen;
// and, where the power is to fail as well, with a volatile cache: what was written and not flushed is kept in
// memory, and only a part of it, chosen block by block and in any order, is on the drive in the end.
//
// Threads: as BlockDevice.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "base/prng.h"
#include "disk/disk_options.h"
#include "disk_kills_book.h"
#include "disk_kills_plan.h"
#include "os/block_device.h"
#include "os/clock.h"

namespace tiercel::kills {

class MortalDevice final : public BlockDevice {
 public:
  // All of these outlive it. Operations are counted over all devices of a process, by `met`.
  struct Met {
    std::uint64_t operations = 0;
    std::array<std::uint64_t, kPoints.size()> points{};
  };
  MortalDevice(BlockDevice& inner, const DiskGeometry& geometry, const Plan& plan, Book& book, Met& met,
               Clock& clock, Time dies_at);
  // Everything that was written is on the drive: an end without a crash.
  ~MortalDevice() override;

  std::uint64_t size_bytes() const override { return inner_.size_bytes(); }
  bool submit(BlockRequest request) override;
  std::vector<BlockDone> drain() override;
  void wait(Duration at_most) override;
  // From now on it dies at this moment, too.
  void dies_at(Time when) { dies_at_ = when; }

 private:
  struct Waiting {  // accepted; its end was not told
    BlockRequest request;
    std::size_t covers = 0;  // a flush: so many of cached_, from the oldest on
  };
  struct Cached {
    std::uint64_t offset = 0;
    std::vector<std::byte> bytes;
  };
  Target target_of(const BlockRequest& request) const;
  void meet(const BlockRequest& request);
  void die_in(const BlockRequest& request, Moment moment, std::size_t point);
  [[noreturn]] void die(std::size_t point);
  void die_if_late();
  void note_header(const BlockRequest& request);

  Status run_now(BlockRequest request);
  void write_now(std::uint64_t offset, std::vector<std::byte> bytes);
  void write_part(const Cached& write, double share);
  Status end(Waiting waiting);
  void read_through(const BlockRequest& request);
  void lose_power();

  BlockDevice& inner_;
  const DiskGeometry geometry_;
  const Plan& plan_;
  Book& book_;
  Met& met_;
  Clock& clock_;
  Time dies_at_;
  Prng random_;
  bool must_end_one_ = false;
  std::vector<Waiting> waiting_;
  std::vector<Cached> cached_;
  std::vector<BlockDone> ends_of_others_;  // came while one operation was waited for
};

}  // namespace tiercel::kills
