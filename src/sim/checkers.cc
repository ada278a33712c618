#include "sim/checkers.h"

namespace tiercel::sim {

// In this order: what is broken at the root speaks before what follows from it.
std::vector<std::unique_ptr<Checker>> all_checkers() {
  std::vector<std::unique_ptr<Checker>> all;
  all.push_back(completions_checker());
  all.push_back(writers_checker());
  all.push_back(leases_checker());
  all.push_back(stale_checker());
  all.push_back(events_checker());
  all.push_back(mixture_checker());
  all.push_back(delivered_checker());
  all.push_back(bytes_checker());
  all.push_back(index_checker());
  all.push_back(budget_checker());
  all.push_back(resume_checker());
  all.push_back(reasons_checker());
  all.push_back(liveness_checker());
  all.push_back(leaks_checker());
  all.push_back(stats_checker());
  all.push_back(policy_checker());
  all.push_back(below_checker());
  all.push_back(disk_tier_checker());
  all.push_back(remote_tier_checker());
  all.push_back(books_checker());
  all.push_back(orders_checker());
  all.push_back(lookup_checker());
  all.push_back(readers_checker());
  return all;
}

}  // namespace tiercel::sim
