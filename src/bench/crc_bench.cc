// CRC-32C of memory that lies in no cache, alone and on the way of a copy.
#include <cstring>
#include <string>
#include <utility>

#include "base/crc32c.h"
#include "bench/benches.h"
#include "os/mapping.h"

namespace tiercel {

Status crc_bench(BenchRun& run) {
  const std::uint64_t bytes = run.size(64 << 20, 64 << 10);
  MappingOptions options;
  options.bytes = 2 * bytes;
  Result<Mapping> memory = Mapping::open(options);
  if (!memory) return memory.error();
  std::byte* to = memory->bytes().data();
  const ByteView from(to + bytes, bytes);
  const Subject subjects[] = {
      {"memcpy",
       [&](Samples&) {
         std::memcpy(to, from.data(), bytes);
         keep(to);
       },
       {}},
      {"crc32c", [&](Samples&) { keep(crc32c(from)); }, {}},
      {"crc32c_copy",
       [&](Samples&) {
         keep(crc32c_copy(to, from, 0, WritePath::kPastCache));
         copy_fence();
       },
       {}},
      {"memcpy, then crc32c",
       [&](Samples&) {
         std::memcpy(to, from.data(), bytes);
         keep(crc32c(ByteView(to, bytes)));
       },
       {}},
      {"words",
       [&](Samples&) {
         using detail::Crc32cBody;
         const bool has = detail::crc32c_has(Crc32cBody::kWords);
         keep(detail::crc32c_by(has ? Crc32cBody::kWords : Crc32cBody::kTables, nullptr, from, 0,
                                WritePath::kCached));
       },
       {}},
  };
  const Comparison result = run.compare("64 MiB", 1, subjects, BenchClock::kThread);
  const auto add = [&](std::string name, std::size_t ours, std::size_t peer, std::string peer_name) {
    constexpr auto kUnit = BenchUnit::kGigabytes;
    BenchLine line = line_of(result, std::move(name), ours, 0, kUnit, "GB/s", bytes);
    line.limit_name = "memcpy";
    line.page_kind = page_kind_name(memory->pages().kind);
    add_peer(line, result, ours, peer, kUnit, std::move(peer_name));
    run.add(std::move(line));
  };
  add("checksum", 1, 4, "word after word");
  add("copy and checksum", 2, 3, "memcpy, then checksum");
  return {};
}

}  // namespace tiercel
