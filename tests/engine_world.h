// What the three engines' tests share: a node that is large enough, calls that must succeed, bytes that tell
// what they are, and damage.
//
// Threads: free functions over values; the node may be used from any.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <poll.h>
#include <tiercel/tiercel.hpp>

namespace engines {

using tiercel::sized;

inline constexpr std::uint64_t kSecond = 1'000'000'000;
inline constexpr std::uint64_t kLong = 30 * kSecond;  // a deadline that only a broken build meets

// The value of a call that must succeed; without one the test program ends with the message.
template <typename T>
T must(tiercel::Result<T> result) {
  EXPECT_TRUE(result.ok()) << result.status().to_string();
  return *std::move(result);
}
inline void must(const tiercel::Status& status) { EXPECT_TRUE(status.ok()) << status.to_string(); }

inline tiercel::Node open_node(std::uint64_t host_bytes) {
  auto options = sized<tiercel_node_options>();
  options.host_bytes = host_bytes;
  options.client_share = 1;
  options.load_back_threshold_tokens = 1;
  options.copy_threads = 2;
  return must(tiercel::Node::open(options));
}

// What an engine computes of `what`: any bytes, as long as those of different things differ.
inline void compute(std::span<unsigned char> bytes, std::uint64_t what) {
  std::uint64_t state = what * 0x9e3779b97f4a7c15U + 1;
  for (unsigned char& byte : bytes) {
    state = state * 6364136223846793005U + 1442695040888963407U;
    byte = static_cast<unsigned char>(state >> 56);
  }
}
inline bool holds(std::span<const unsigned char> bytes, std::uint64_t what) {
  std::vector<unsigned char> wanted(bytes.size());
  compute(wanted, what);
  return std::equal(bytes.begin(), bytes.end(), wanted.begin());
}
inline bool all_are(std::span<const unsigned char> bytes, unsigned char value) {
  return std::all_of(bytes.begin(), bytes.end(), [&](unsigned char byte) { return byte == value; });
}

inline bool readable(int fd, int timeout_ms) {
  pollfd wait{fd, POLLIN, 0};
  return ::poll(&wait, 1, timeout_ms) == 1 && (wait.revents & POLLIN) != 0;
}

// Stores one record in place, keeps where it lies, and breaks it later: what a failing memory module does.
// Everybody else loses the right to write there with the commit.
class DamagedRecord {
 public:
  void store(tiercel::Namespace& ns, const tiercel_store_item& item, std::span<const unsigned char> bytes) {
    tiercel::Reserved reserved = must(ns.reserve({&item, 1}));
    ASSERT_EQ(reserved.outcomes[0], TIERCEL_ITEM_ACCEPTED);
    spans_ = must(reserved.reservation.spans(0));
    for (const tiercel_segment& span : spans_) {
      ASSERT_LE(span.size, bytes.size());
      std::memcpy(span.data, bytes.data(), static_cast<std::size_t>(span.size));
      bytes = bytes.subspan(static_cast<std::size_t>(span.size));
    }
    EXPECT_TRUE(bytes.empty());
    const tiercel::Operation operation = must(reserved.reservation.commit());
    must(operation.wait(TIERCEL_COMPLETION_SOURCE_FREE, kLong));
  }
  // Requires: no load of it is under way.
  void strike() {
    ASSERT_FALSE(spans_.empty());
    auto* const byte = static_cast<unsigned char*>(spans_.back().data) + spans_.back().size - 1;
    *byte = static_cast<unsigned char>(*byte ^ 1);
  }

 private:
  std::vector<tiercel_segment> spans_;
};

}  // namespace engines
