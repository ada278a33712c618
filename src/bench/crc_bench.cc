// CRC-32C against memcpy of the same bytes.
#include <cstring>
#include <vector>

#include "base/crc32c.h"
#include "bench/benches.h"

namespace tiercel {

Status crc_bench(BenchRun& run) {
  const std::uint64_t bytes = run.size(64ULL << 20, 64ULL << 10);
  std::vector<std::byte> from(bytes, std::byte{1});
  std::vector<std::byte> to(bytes);
  const Subject subjects[] = {
      {"crc32c", [&](Samples&) { keep(crc32c(from)); }, {}},
      {"memcpy",
       [&](Samples&) {
         std::memcpy(to.data(), from.data(), bytes);
         keep(to.data());
       },
       {}},
  };
  const Comparison result = run.compare("checksumming", 1, subjects, BenchClock::kThread);
  BenchLine line = line_of(result, "crc32c", 0, 1, BenchUnit::kGigabytes, "GB/s", bytes);
  line.limit_name = "memcpy";
  run.add(std::move(line));
  return {};
}

}  // namespace tiercel
