#include "sim/checkers.h"

namespace tiercel::sim {
namespace {

class BooksChecker final : public Checker {
 public:
  std::string_view name() const override { return "books"; }
  std::optional<std::string> check(const Scene& scene) override { return scene.view.after.inconsistency; }
};

}  // namespace

std::unique_ptr<Checker> books_checker() { return std::make_unique<BooksChecker>(); }

}  // namespace tiercel::sim
