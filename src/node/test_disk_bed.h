// A drive that outlives the nodes that are opened on it, for tests of the node over a disk.
//
// Threads: one thread.
#pragma once

#include <memory>
#include <vector>

#include <gtest/gtest.h>

#include "disk/test_block_device.h"
#include "node/test_world.h"

namespace tiercel {

inline DiskLogOptions small_log() {
  DiskLogOptions options;
  options.region_bytes = 1 << 20;
  options.segment_bytes = 64 << 10;
  options.index_entries = 8192;
  options.admission = DiskAdmission::kAll;
  return options;
}

inline TestModel hybrid_model() {
  TestModel model;
  model.window_pages = 2;
  model.state = true;
  model.index_keys = true;
  model.draft = true;
  return model;
}

// A drive that outlives the nodes that are opened on it, one after the other.
class DiskBed {
 public:
  explicit DiskBed(const TestModel& model = {}, std::uint64_t drive_bytes = 32 << 20)
      : drive(drive_bytes, clock) {
    options.spec = test_spec(model);
  }
  ~DiskBed() { end(); }

  TestWorld& open() {
    Digest uuid{};
    uuid[0] = std::byte{7};
    auto opened = DiskLog::open(log_options, drive, clock, uuid);
    EXPECT_TRUE(opened) << opened.error().to_string();
    log = std::move(*opened);
    options.disk = log.get();
    world = std::make_unique<TestWorld>(options);
    return *world;
  }
  // As after a crash of the process: what is not on the drive is gone.
  void end() {
    if (world != nullptr) world->lose_node();
    log.reset();  // what the drive has under way still reads the arena
    world.reset();
  }
  TestWorld& reopen() {
    end();
    return open();
  }
  void settle() {
    for (int i = 0; i < 64; ++i) world->node().poll();
  }
  void make_durable() {
    ASSERT_TRUE(world->node().flush());
    settle();
    EXPECT_EQ(log->durable_at(), log->last_at());
  }

  MatchQuery query(const std::vector<Key>& keys) {
    MatchQuery query;
    query.session = world->session();
    query.ns = world->ns();
    query.keys = keys;
    query.may_promote = true;
    return query;
  }
  TicketId promoted(const std::vector<Key>& keys) {
    const TicketId ticket = world->node().match(query(keys)).value();
    settle();
    EXPECT_FALSE(world->view(ticket).pending);
    return ticket;
  }

  // The first `reads` reads from now on end, no more.
  void hold_reads_after(std::uint64_t reads) {
    left = reads;
    drive.held = [this](const BlockRequest& request) {
      if (request.work != BlockWork::kRead) return false;
      if (left == 0) return true;
      --left;
      return false;
    };
  }
  void hold_no_more() { drive.held = {}; }

  ManualClock clock;
  TestBlockDevice drive;
  std::uint64_t left = 0;
  DiskLogOptions log_options = small_log();
  TestOptions options;
  std::unique_ptr<DiskLog> log;
  std::unique_ptr<TestWorld> world;
};

inline std::uint64_t missed_for(const TicketView& view, Reason reason) {
  std::uint64_t pages = 0;
  for (const Miss& miss : view.missed) pages += miss.reason == reason ? miss.pages : 0;
  return pages;
}

}  // namespace tiercel
