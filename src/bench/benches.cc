#include "bench/benches.h"

namespace tiercel {

std::span<const Bench> benches() {
  static constexpr Bench kBenches[] = {
      {"crc", "CRC-32C of memory, alone and while copying, against memcpy", crc_bench},
  };
  return kBenches;
}

const Bench* find_bench(std::string_view name) {
  for (const Bench& bench : benches())
    if (bench.name == name) return &bench;
  return nullptr;
}

}  // namespace tiercel
