// Any text at all as a layout: refused in one line, or written back to the same layout; a small pool laid out
// by it has every byte of a page once.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/check.h"
#include "model/pool_layout.h"

namespace {

tiercel::PoolShape small_pool() {
  tiercel::PoolShape shape;
  shape.name = "full";
  shape.page_tokens = 2;
  shape.layers = {0, 3};
  for (const char* name : {"k", "v"}) {
    tiercel::TensorShape tensor;
    tensor.name = name;
    tensor.tokens = 2;
    tensor.heads = 2;
    tensor.dim = 3;
    tensor.element_bytes = 2;
    shape.tensors.push_back(tensor);
  }
  return shape;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto layout = tiercel::layout_from_text(text);
  if (!layout) {
    TIERCEL_CHECK(layout.error().message.starts_with("layout: "));
    TIERCEL_CHECK(layout.error().message.find('\n') == std::string::npos);
    return 0;
  }
  auto again = tiercel::layout_from_text(tiercel::layout_text(*layout));
  TIERCEL_CHECK(again.has_value());
  again->name = layout->name;
  TIERCEL_CHECK(*again == *layout);
  const auto pool = tiercel::lay_out(small_pool(), *layout, 3);
  TIERCEL_CHECK(pool.has_value());
  std::uint64_t bytes = 0;
  for (const tiercel::PageObject& object : tiercel::page_segments(*pool, 2))
    for (const tiercel::Segment& segment : object.segments) {
      TIERCEL_CHECK(segment.offset + segment.length <= pool->buffer_bytes.at(segment.buffer));
      bytes += segment.length;
    }
  TIERCEL_CHECK(bytes == pool->shape.page_bytes());
  return 0;
}
