#include "index/policy.h"

#include <array>

#include "base/check.h"
#include "index/lru.h"
#include "index/s3fifo.h"
#include "index/tinylfu.h"
#include "index/value_policy.h"

namespace tiercel {
namespace {

constexpr std::array kKinds = {PolicyKind::kLru, PolicyKind::kS3Fifo, PolicyKind::kTinyLfu,
                               PolicyKind::kValue};

}  // namespace

std::string_view policy_name(PolicyKind kind) {
  switch (kind) {
    case PolicyKind::kLru:
      return "lru";
    case PolicyKind::kS3Fifo:
      return "s3fifo";
    case PolicyKind::kTinyLfu:
      return "tinylfu";
    case PolicyKind::kValue:
      return "value";
  }
  TIERCEL_CHECK(false);
}

std::optional<PolicyKind> policy_from_name(std::string_view name) {
  for (const PolicyKind kind : kKinds) {
    if (policy_name(kind) == name) return kind;
  }
  return std::nullopt;
}

std::unique_ptr<EvictionPolicy> make_policy(PolicyKind kind, const PolicyOptions& options) {
  switch (kind) {
    case PolicyKind::kLru:
      return std::make_unique<LruPolicy>();
    case PolicyKind::kS3Fifo:
      return std::make_unique<S3FifoPolicy>(options);
    case PolicyKind::kTinyLfu:
      return std::make_unique<TinyLfuPolicy>(options);
    case PolicyKind::kValue:
      return std::make_unique<ValuePolicy>(options);
  }
  TIERCEL_CHECK(false);
}

}  // namespace tiercel
