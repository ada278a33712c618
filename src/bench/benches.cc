#include "bench/benches.h"

namespace tiercel {

std::span<const Bench> benches() {
  static constexpr Bench kBenches[] = {
      {"match", "prefixes found in an index of ten million pages, alone and while another process writes",
       match_bench},
      {"insert", "pages evicted and stored in a full index, against bare memory accesses", insert_bench},
      {"hash", "keys of pages against bare SHA-256 blocks", hash_bench},
      {"get", "records out of the arena into engine memory, verified and not, against memcpy", get_bench},
      {"put", "records from engine memory into the arena, with checksums, against memcpy", put_bench},
      {"replay", "a made-up trace through the node; what reasons and history take of it", replay_bench},
      {"copy", "pages between pools of different layouts, fragment by fragment, against memcpy", copy_bench},
      {"crc", "CRC-32C of memory, alone and while copying, against memcpy", crc_bench},
      {"arena", "opening an arena, all of it touched, against memset; mapping it once more", arena_bench},
      {"disk", "a drive through the disk tier's engine and log, against a bare io_uring loop", disk_bench},
      {"remote", "a store on other machines through its connector, against its bare client; time to a miss",
       remote_bench},
  };
  return kBenches;
}

const Bench* find_bench(std::string_view name) {
  for (const Bench& bench : benches())
    if (bench.name == name) return &bench;
  return nullptr;
}

}  // namespace tiercel
