#include "node/status_text.h"

#include <string>

#include <gtest/gtest.h>

namespace tiercel {
namespace {

bool has(const std::string& text, std::string_view word) { return text.find(word) != std::string::npos; }

TEST(StatusText, OfAFileSaysOnlyWhatTheFileSays) {
  DiskStats disk;
  disk.size_bytes = 64ULL << 20;
  disk.class_sets = 12;
  disk.removals = 3;
  disk.recovered_from_image = 10;
  disk.recovered_from_footers = 4;
  disk.recovered_from_tail = 5;
  const std::string text = disk_file_text(disk);
  EXPECT_TRUE(has(text, "12 class-sets that can be found"));
  EXPECT_TRUE(has(text, "3 removals remembered"));
  EXPECT_TRUE(has(text, "image 10, newer footers 4, end of the log 5")) << text;
  for (const char* word : {"oldest", "budget", "written", "refused", "faults", "not found"})
    EXPECT_FALSE(has(text, word)) << word << "\n" << text;
  disk.images_damaged = 1;
  EXPECT_TRUE(has(disk_file_text(disk), "1 images are damaged"));
}

TEST(StatusText, OfANodeSaysWhatItsDiskDoes) {
  DiskStats disk;
  const std::string text = status_text(Stats{}, &disk);
  for (const char* word : {"host", "disk", "oldest page", "written", "budget", "moved", "missed"})
    EXPECT_TRUE(has(text, word)) << word << "\n" << text;
  EXPECT_FALSE(has(text, "found by")) << text;
  EXPECT_FALSE(has(status_text(Stats{}, nullptr), "disk"));
}

}  // namespace
}  // namespace tiercel
