// A page index image of arbitrary bytes: attaching refuses it or reading stays inside it, comes back, and
// reports no page whose whole key is not the one that was asked for. Half of the inputs get the header of a
// real image, so that what lies behind it is reached too.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <vector>

#include "base/check.h"
#include "index/compact_index.h"

namespace {

using namespace tiercel;

// Memory at a multiple of 64, as long as it has to be and no longer.
std::unique_ptr<std::byte, void (*)(void*)> aligned(std::size_t bytes) {
  return {static_cast<std::byte*>(std::aligned_alloc(64, (bytes / 64 + 1) * 64)), std::free};
}

void read(const IndexView& view) {
  std::vector<Key> keys;
  for (std::uint64_t strip = 0; strip < 4; ++strip)
    for (const auto& words : view.strip(strip).keys) keys.push_back(Key{{words[0].load(), words[1].load()}});
  keys.push_back(Key{{1, 2}});
  for (std::uint64_t strip = 0; strip < 2; ++strip) {
    const SpaceId space(view.strip(strip).space.load());
    std::vector<FoundPage> found(keys.size());
    view.read_chain(space, 0, keys, found);
    for (std::size_t i = 0; i < keys.size(); ++i) {
      if (found[i].page == kNoPage) continue;
      const auto& words = view.strip(found[i].page / 16).keys[found[i].page % 16];
      TIERCEL_CHECK(words[0].load() == keys[i].words[0] && words[1].load() == keys[i].words[1]);
      for (std::uint32_t set = 0; set < 4; ++set)
        view.address(found[i], SetNumber(static_cast<std::uint8_t>(set)));
    }
    std::vector<std::uint32_t> numbers(keys.size());
    view.find_chain(space, 5, keys, numbers);
    for (const Key& key : keys) view.find(space, key);
  }
  for (std::uint32_t page : {0U, 17U, 63U, 64U, 70000U, UINT32_MAX})
    for (std::uint32_t set : {0U, 1U, 255U})
      view.address(PageNumber(page), SetNumber(static_cast<std::uint8_t>(set)));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto own = aligned(size);
  std::memcpy(own.get(), data, size);
  if (const auto view = IndexView::attach({own.get(), size});
      view && view->plan().rows > view->plan().strips) {
    if (view->plan().rows - view->plan().strips >= 4 * sizeof(compact::Strip)) read(*view);
  }
  const compact::Sizes sizes{24, 4, 3, 5};
  const auto whole = CompactIndex::create(sizes, 1);
  TIERCEL_CHECK(whole.has_value());
  const ByteView image = (*whole)->image();
  // Behind the header comes the input; the marks stay, since whatever they say is right.
  const compact::Plan& plan = (*whole)->view().plan();
  const auto copy = aligned(image.size());
  std::memcpy(copy.get(), image.data(), image.size());
  const std::size_t stash = std::min<std::size_t>(size, 4 + 4 * std::size_t{compact::kStash});
  std::memcpy(copy.get() + offsetof(compact::Header, stash_used), data, stash);
  std::memcpy(copy.get() + plan.buckets, data + stash,
              std::min<std::size_t>(size - stash, plan.bytes - plan.buckets));
  const auto view = IndexView::attach({copy.get(), image.size()});
  TIERCEL_CHECK(view.has_value());
  read(*view);
  return 0;
}
