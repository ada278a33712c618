// What fuzz programs of the ABI read their calls from: bytes that nobody chose.
//
// Threads: single-threaded.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tiercel::capi {

template <typename T>
T sized() {
  T value{};
  value.size = sizeof(T);
  return value;
}

class FuzzInput {
 public:
  FuzzInput(const std::uint8_t* data, std::size_t size) : data_(data), size_(size) {}
  bool empty() const { return size_ == 0; }
  std::uint8_t u8() {
    if (size_ == 0) return 0;
    --size_;
    return *data_++;
  }
  // Mostly small, sometimes anything.
  std::uint64_t number() {
    const std::uint8_t first = u8();
    if (first < 0xF0) return first % 12;
    std::uint64_t value = 0;
    for (int i = 0; i < 8; ++i) value = value << 8 | u8();
    return first == 0xFF ? ~value : value;
  }
  std::uint32_t number32() { return static_cast<std::uint32_t>(number()); }
  template <typename T>
  void fill(T& to) {
    auto* const bytes = reinterpret_cast<std::uint8_t*>(&to);
    for (std::size_t i = 0; i < sizeof(T); ++i) bytes[i] = u8();
  }

 private:
  const std::uint8_t* data_;
  std::size_t size_;
};

}  // namespace tiercel::capi
