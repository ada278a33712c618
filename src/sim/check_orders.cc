#include <string>

#include <fmt/format.h>

#include "index/lease_orders.h"
#include "index/test_interleavings.h"
#include "index/test_store_buffers.h"
#include "sim/checkers.h"

namespace tiercel::sim {
namespace {

// One thread makes all calls here, so no run meets an order that is too weak. The orders themselves are
// walked through instead, as in index/lease_interleavings_test.cc, with one scan and on the machine that is
// quickest.
std::string broken_run() {
  const interleaving::Findings found =
      interleaving::explore(interleaving::StoreBuffers(interleaving::programs(lease_orders(), {.scans = 1})));
  return found.broken.empty() ? "" : fmt::format("{}: {}", found.broken, fmt::join(found.run, "; "));
}

class OrdersChecker final : public Checker {
 public:
  std::string_view name() const override { return "orders"; }

  std::optional<std::string> check(const Scene&) override {
    // They are the same in every run of this program.
    static const std::string kBroken = broken_run();
    if (kBroken.empty()) return std::nullopt;
    return kBroken;
  }
};

}  // namespace

std::unique_ptr<Checker> orders_checker() { return std::make_unique<OrdersChecker>(); }

}  // namespace tiercel::sim
