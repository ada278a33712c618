// Areas of a store's exchange: who uses which bytes until when. First fit, in steps of 4 KiB.
//
// Threads: one thread.
#pragma once

#include <cstdint>
#include <map>
#include <optional>

namespace tiercel::remote {

struct Area {
  std::uint64_t offset = 0, length = 0;  // length as it was asked for
};

class ExchangeSpace final {
 public:
  explicit ExchangeSpace(std::uint64_t bytes);
  // nothing: no free piece is long enough. Requires: length is not 0. Cost: the free pieces.
  std::optional<Area> take(std::uint64_t length);
  // Requires: taken, and not given back yet.
  void give_back(const Area& area);
  std::uint64_t size_bytes() const { return bytes_; }
  std::uint64_t used_bytes() const { return used_; }

 private:
  std::uint64_t bytes_ = 0, used_ = 0;
  std::map<std::uint64_t, std::uint64_t> free_;   // offset → length, merged
  std::map<std::uint64_t, std::uint64_t> taken_;  // offset → length
};

}  // namespace tiercel::remote
