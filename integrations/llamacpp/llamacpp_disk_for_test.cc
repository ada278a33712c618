#include "llamacpp_disk_for_test.h"

#include <array>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <memory>

#include <gtest/gtest.h>

namespace tiercel::llamacpp {
namespace {

constexpr std::uint64_t kBlock = 4096;

std::uint32_t u32(const unsigned char* at) {
  std::uint32_t value = 0;
  std::memcpy(&value, at, sizeof(value));  // little-endian machines only, as llama.cpp's states
  return value;
}

// Of the block that begins there; class_id UINT32_MAX: it is no record.
DiskRecord record_at(const unsigned char* block, std::uint64_t at) {
  DiskRecord record;
  record.class_id = UINT32_MAX;
  if (std::memcmp(block, "TIERCREC", 8) != 0) return record;
  const std::uint64_t runs = u32(block + 12);
  record.at = at;
  record.header_bytes = (188 + 4 * runs + 63) / 64 * 64;
  std::memcpy(record.key.bytes, block + 80, sizeof(record.key.bytes));
  record.class_id = u32(block + 96) & 0xFFFF;
  record.payload_bytes = u32(block + 112);
  const bool fits = record.header_bytes <= kBlock;
  if (!fits || tiercel_crc32c(block, record.header_bytes - 4, 0) != u32(block + record.header_bytes - 4))
    record.class_id = UINT32_MAX;
  return record;
}

using File = std::unique_ptr<std::FILE, int (*)(std::FILE*)>;
File opened(const std::string& path, const char* mode, std::uint64_t at = 0) {
  File file(std::fopen(path.c_str(), mode), std::fclose);
  if (file == nullptr || std::fseek(file.get(), static_cast<long>(at), SEEK_SET) != 0)
    ADD_FAILURE() << path << " at " << at;
  return file;
}

template <typename See>  // see(block, at)
void each_block(const std::string& path, See see) {
  const File file = opened(path, "rb");
  std::vector<unsigned char> block(kBlock);
  for (std::uint64_t at = 0; std::fread(block.data(), kBlock, 1, file.get()) == 1; at += kBlock)
    see(block.data(), at);
}

}  // namespace

LogFile::LogFile(const std::string& folder) {
  for (const auto& entry : std::filesystem::directory_iterator(folder))
    if (entry.is_regular_file() && entry.file_size() >= kBlock) path_ = entry.path().string();
  EXPECT_FALSE(path_.empty()) << folder << " has no log";
}

std::uint64_t LogFile::size() const { return std::filesystem::file_size(path_); }

std::vector<DiskRecord> LogFile::records() const {
  std::vector<DiskRecord> records;
  each_block(path_, [&](const unsigned char* block, std::uint64_t at) {
    const DiskRecord record = record_at(block, at);
    if (record.class_id != UINT32_MAX) records.push_back(record);
  });
  return records;
}

std::uint64_t LogFile::used() const {
  std::uint64_t end = 0;
  const std::vector<unsigned char> zeros(kBlock);
  each_block(path_, [&](const unsigned char* block, std::uint64_t at) {
    if (std::memcmp(block, zeros.data(), kBlock) != 0) end = at + kBlock;
  });
  return end;
}

void LogFile::flip(std::uint64_t at, unsigned bit) const {
  const int byte = std::fgetc(opened(path_, "rb", at).get());
  ASSERT_NE(byte, EOF) << at;
  const auto flipped = static_cast<int>(static_cast<unsigned>(byte) ^ (1U << bit));
  EXPECT_EQ(std::fputc(flipped, opened(path_, "r+b", at).get()), flipped);
}

void LogFile::overwrite(std::uint64_t at, std::uint64_t bytes) const {
  const std::vector<unsigned char> zeros(bytes);
  EXPECT_EQ(std::fwrite(zeros.data(), 1, bytes, opened(path_, "r+b", at).get()), bytes);
}

void LogFile::cut(std::uint64_t size) const { std::filesystem::resize_file(path_, size); }

void copy_store(const std::string& from, const std::string& to) {
  std::filesystem::remove_all(to);
  std::filesystem::copy(from, to, std::filesystem::copy_options::recursive);
}

}  // namespace tiercel::llamacpp
