// A log on a drive in memory, and class-sets with real records for it.
//
// Threads: one thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "base/prng.h"
#include "disk/disk_log.h"
#include "disk/test_block_device.h"
#include "memory/record.h"

namespace tiercel {

inline Digest test_digest(std::uint64_t seed) {
  Digest digest;
  for (std::size_t i = 0; i < digest.size(); ++i) digest[i] = static_cast<std::byte>(mix64(seed + i) & 0xFF);
  return digest;
}
inline Key test_key(std::uint64_t number) { return Key{{mix64(number), mix64(number ^ 0x5555)}}; }

// Layer runs of each class of the test's form, in bytes.
inline const std::vector<std::vector<std::uint64_t>>& test_runs() {
  static const std::vector<std::vector<std::uint64_t>> kRuns = {{3000, 3000, 1500}, {700}};
  return kRuns;
}
inline DiskSpaceName test_space(std::uint64_t seed = 1) {
  return {test_digest(seed), test_digest(77), "space " + std::to_string(seed), test_runs()};
}

// A class-set's records, which stay where they are.
struct TestSet {
  DiskEntry entry;
  std::vector<std::vector<std::byte>> records;  // of each shard

  // Memory to read into, of the same shape.
  TestSet blank() const {
    TestSet into;
    into.entry = entry;
    for (const auto& record : records) into.records.emplace_back(record.size(), std::byte{0xEE});
    into.point();
    return into;
  }
  void point() {
    entry.shards.clear();
    for (auto& record : records) {  // in two pieces, as in an arena of small extents
      const std::size_t first = record.size() / 3;
      entry.shards.push_back({{record.data(), first}, {record.data() + first, record.size() - first}});
    }
    entry.record_bytes = records.front().size();
  }
};

inline std::unique_ptr<TestSet> test_set(DiskSpaceId space, const DiskSpaceName& name, std::uint64_t number,
                                         ClassId cls = ClassId(0), std::uint16_t shards = 1,
                                         std::uint64_t seed = 0) {
  auto set = std::make_unique<TestSet>();
  set->entry.name = {space, test_key(number), cls};
  ClassForm form;
  form.id = cls;
  for (const std::uint64_t length : test_runs()[cls.value()]) {
    LayerRun run;
    run.offset = form.record_bytes;
    run.length = length;
    form.record_bytes += length;
    form.layers.push_back(run);
  }
  Prng prng(number * 1000 + seed);
  for (std::uint16_t shard = 0; shard < shards; ++shard) {
    std::vector<std::byte> payload(form.record_bytes);
    for (std::byte& b : payload) b = static_cast<std::byte>(prng.next() & 0xFF);
    RecordHeader header;
    header.label = {name.root, set->entry.name.key, cls, ShardId(shard), 7, {}};
    header.form = name.form;
    header.payload_bytes = header.kept_bytes = form.record_bytes;
    header.run_checksums = run_checksums(form, payload);
    std::vector<std::byte> record(header_bytes(form));
    encode_header(header, record);
    record.insert(record.end(), payload.begin(), payload.end());
    set->records.push_back(std::move(record));
  }
  set->point();
  return set;
}

class LogTest : public ::testing::Test {
 protected:
  static constexpr std::uint64_t kMiB = 1ULL << 20;
  static constexpr Duration kLong = std::chrono::seconds(60);

  LogTest() {
    options.region_bytes = 256ULL * 1024;
    options.index_entries = 4096;
    options.admission = DiskAdmission::kAll;
  }
  explicit LogTest(std::uint64_t drive_bytes) : LogTest() {
    drive = std::make_unique<TestBlockDevice>(drive_bytes, clock);
  }
  void open() {
    log.reset();
    auto opened = DiskLog::open(options, *drive, clock, test_digest(4711));
    ASSERT_TRUE(opened.has_value()) << opened.error().to_string();
    log = std::move(*opened);
    if (options.read_only) return;
    const auto id = log->open_space(name);
    ASSERT_TRUE(id.has_value()) << id.error().to_string();
    space = *id;
  }
  // Without a last flush or image, as when the process is killed: what was written is there.
  void reopen() {
    log.reset();
    open();
  }
  // What was not flushed is lost, too.
  void lose_power() {
    drive->cut_power();
    open();
  }

  DiskAnswer append(std::uint64_t number, ClassId cls = ClassId(0), std::uint16_t shards = 1,
                    std::uint64_t seed = 0) {
    auto set = test_set(space, name, number, cls, shards, seed);
    const DiskAnswer answer = log->append(set->entry, DiskOffer::kComputed);
    if (answer.verdict == DiskVerdict::kAccepted) memory[answer.append] = std::move(set);
    return answer;
  }
  // Until nothing happens any more.
  void poll_all() {
    for (int i = 0; i < 1000 && log->poll() != 0; ++i) take_events();
    take_events();
  }
  void take_events() {
    for (DiskEvent& event : log->drain_events()) {
      if (event.kind == DiskEvent::Kind::kWritten || event.kind == DiskEvent::Kind::kLost) {
        // Its memory is free: nothing may touch it from here on.
        EXPECT_EQ(memory.erase(event.append), 1U);
      }
      events.push_back(std::move(event));
    }
  }
  std::size_t count(DiskEvent::Kind kind) const {
    std::size_t n = 0;
    for (const DiskEvent& event : events) n += event.kind == kind ? 1 : 0;
    return n;
  }
  DiskName name_of(std::uint64_t number, ClassId cls = ClassId(0)) const {
    return {space, test_key(number), cls};
  }
  bool found(std::uint64_t number, ClassId cls = ClassId(0)) const {
    return log->find(name_of(number, cls), true).has_value();
  }
  // What was appended under that number is there, byte for byte.
  void expect_bytes(std::uint64_t number, ClassId cls = ClassId(0), std::uint16_t shards = 1,
                    std::uint64_t seed = 0) {
    const auto wanted = test_set(space, name, number, cls, shards, seed);
    TestSet into = wanted->blank();
    into.point();
    const auto id = log->read(into.entry, true);
    ASSERT_TRUE(id.has_value()) << "number " << number;
    poll_all();
    bool ended = false;
    for (const DiskEvent& event : events)
      if (event.kind == DiskEvent::Kind::kRead && event.read == *id) {
        EXPECT_TRUE(event.status.ok()) << event.status.to_string();
        ended = true;
      }
    EXPECT_TRUE(ended);
    EXPECT_EQ(into.records, wanted->records) << "number " << number;
  }

  ManualClock clock;
  DiskLogOptions options;
  std::unique_ptr<TestBlockDevice> drive;
  std::unique_ptr<DiskLog> log;
  DiskSpaceName name = test_space();
  DiskSpaceId space;
  std::map<DiskAppendId, std::unique_ptr<TestSet>> memory;
  std::vector<DiskEvent> events;
};

}  // namespace tiercel
