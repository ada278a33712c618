#include <fmt/format.h>

#include "sim/checkers.h"

namespace tiercel::sim {
namespace {

class ReadersChecker final : public Checker {
 public:
  std::string_view name() const override { return "readers"; }
  std::optional<std::string> check(const Scene& scene) override {
    if (auto wrong = scene.readers->check(scene)) return wrong;
    return check_forged(scene);
  }

 private:
  // A key that has the place and the tag of a page, and is not its key, is nobody's.
  static std::optional<std::string> check_forged(const Scene& scene) {
    const IndexView& view = scene.index->compact().view();
    const std::uint32_t tag_bits = 32 - view.plan().number_bits;
    for (const PageNumber page : scene.index->all_pages()) {
      const IndexedPage each = scene.index->read(page);
      Key forged = each.key;
      forged.words[1] ^= std::uint64_t{1} << (tag_bits + scene.view.step % 16);
      FoundPage found;
      view.read_chain(each.space, 0, {&forged, 1}, {&found, 1});
      if (view.find(each.space, forged) || found.page != kNoPage)
        return fmt::format("a key with the tag of page {} was taken for it", to_hex(each.key));
    }
    return std::nullopt;
  }
};

}  // namespace

std::unique_ptr<Checker> readers_checker() { return std::make_unique<ReadersChecker>(); }

}  // namespace tiercel::sim
