// The pictures of docs/guide/layouts.md and its table say what the library computes: tools/draw_layouts.py
// counts the same places in its own way and writes them into each picture's <desc>.
#include <cstdint>
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include "model/layout.h"
#include "model/pool_layout.h"

namespace tiercel {
namespace {

// Empty: no such file.
std::string text_of(const std::string& name) {
  std::string text;
  std::FILE* file = std::fopen((std::string(TIERCEL_SOURCE_DIR "/") + name).c_str(), "rb");
  if (file == nullptr) return text;
  for (int byte = std::fgetc(file); byte != EOF; byte = std::fgetc(file)) text += static_cast<char>(byte);
  std::fclose(file);
  return text;
}

PoolShape keys_and_values(std::uint32_t layers, const TensorShape& tensor) {
  PoolShape shape;
  shape.name = "full";
  shape.page_tokens = tensor.tokens;
  for (std::uint32_t layer = 0; layer < layers; ++layer) shape.layers.push_back(layer);
  shape.tensors = {tensor, tensor};
  shape.tensors[0].name = "k";
  shape.tensors[1].name = "v";
  shape.tensors[1].component = 1;
  return shape;
}

TensorShape tensor(std::uint64_t tokens, std::uint64_t heads, std::uint64_t dim, std::uint64_t bytes) {
  TensorShape shape;
  shape.tokens = tokens;
  shape.heads = heads;
  shape.dim = dim;
  shape.element_bytes = bytes;
  return shape;
}

std::string described(const PoolLayout& pool, std::size_t number, std::uint64_t page) {
  const TensorPlace& place = pool.places[number];
  std::string text = fmt::format(
      "{}: buffer {}, {} further for each layer, offset {}, steps layer {}, page {}, token {}, head {}, dim "
      "{}; "
      "page {}:",
      pool.shape.tensors[number].name, place.first_buffer, place.layer_buffers, place.offset, place.layer,
      place.page, place.token, place.head, place.dim, page);
  const std::vector<PageObject> objects = page_segments(pool, page);
  for (const Segment& segment : objects[number].segments)
    text += fmt::format(" {}:{}+{}", segment.buffer, segment.offset, segment.length);
  return text;
}

TEST(LayoutPictures, EachSaysWhereTheLibraryPutsItsBytes) {
  for (const Layout& layout : named_layouts()) {
    const auto pool = lay_out(keys_and_values(2, tensor(2, 2, 2, 1)), layout, 3);
    ASSERT_TRUE(pool) << layout.name;
    const std::string picture = text_of(fmt::format("docs/img/layouts/{}.svg", layout.name));
    ASSERT_FALSE(picture.empty()) << layout.name << ": no picture; run tools/draw_layouts.py";
    const std::string buffers = fmt::format("buffers of {} bytes\n", fmt::join(pool->buffer_bytes, " "));
    EXPECT_NE(picture.find(buffers), std::string::npos) << layout.name << ": " << buffers;
    for (std::size_t number = 0; number < 2; ++number) {
      const std::string line = described(*pool, number, 1) + "\n";
      EXPECT_NE(picture.find(line), std::string::npos) << layout.name << ": " << line;
    }
    EXPECT_NE(picture.find(">" + layout_text(layout) + "<"), std::string::npos) << layout.name;
  }
}

std::string size_text(std::uint64_t bytes) {
  for (const auto& [unit, name] : {std::pair{std::uint64_t{1} << 20, "MiB"}, {std::uint64_t{1} << 10, "KiB"}})
    if (bytes % unit == 0) return fmt::format("{} {}", bytes / unit, name);
  return fmt::format("{} B", bytes);
}

// Thousands have a comma; the table has none above a million.
std::string count_text(std::uint64_t count) {
  return count < 1000 ? std::to_string(count) : fmt::format("{},{:03}", count / 1000, count % 1000);
}

TEST(LayoutPictures, TheTableCountsTheSegmentsThatTheLibraryGives) {
  const std::string guide = text_of("docs/guide/layouts.md");
  for (const Layout& layout : named_layouts()) {
    const auto pool = lay_out(keys_and_values(32, tensor(64, 8, 128, 2)), layout, 1024);
    ASSERT_TRUE(pool) << layout.name;
    std::vector<std::string> texts;
    for (const PageObject& object : page_segments(*pool, 7))
      texts.push_back(fmt::format("{} × {}", count_text(object.segments.size()),
                                  size_text(object.segments.front().length)));
    const std::string pages =
        texts[0] == texts[1] ? texts[0] : fmt::format("k: {}<br>v: {}", texts[0], texts[1]);
    const std::string begin =
        fmt::format("\n| `{}` | {} | {} | ", layout.name, pool->buffer_bytes.size(), pages);
    const std::size_t row = guide.find(begin);
    ASSERT_NE(row, std::string::npos) << begin;
    const std::string line = guide.substr(row + 1, guide.find('\n', row + 1) - row - 1);
    EXPECT_TRUE(line.ends_with(is_page_aligned(*pool, 4096) ? " yes |" : " no |")) << line;
  }
}

}  // namespace
}  // namespace tiercel
