// The pools of a model: which groups share slots (host_pool_plan.h, stack_of).
#include <map>
#include <string>
#include <utility>
#include <variant>

#include <fmt/format.h>

#include "memory/host_pool_plan.h"
#include "model/json_text.h"

namespace tiercel {
namespace {

// Groups whose pages are there at the same time use the same slots: those of the first of them. One overload
// per kind, so that a new one does not compile before it has an answer.
struct SlotsOf {
  std::map<std::string, std::string>& first;  // pool by what it shares slots with
  const std::vector<PoolShape>& shapes;
  const std::string& name;
  std::string share(const std::string& domain) const {
    const auto [at, fresh] = first.emplace(domain, name);
    return fresh ? std::string{} : at->second;
  }
  std::string operator()(const FullKind&) const { return share("full"); }
  std::string operator()(const WindowKind& window) const {
    return share(fmt::format("window {}", window.tokens));
  }
  std::string operator()(const StateKind&) const { return share("state"); }
  std::string operator()(const FollowerKind& follower) const { return shapes[follower.of].name; }
};

// Values given by pool name, each to be used.
template <typename Value>
class ByName {
 public:
  ByName(std::string_view option, const std::vector<std::pair<std::string, Value>>& given) : option_(option) {
    for (const auto& [name, value] : given) {
      if (!values_.emplace(name, value).second && status_.ok())
        status_ = {
            Code::kInvalidArgument,
            fmt::format("host pools: {}: wanted each pool once, got '{}' twice", option_, printable(name))};
    }
  }
  const Value& take(const std::string& name, const Value& otherwise) {
    const auto found = values_.find(name);
    if (found == values_.end()) return otherwise;
    taken_.emplace(name, true);
    return found->second;
  }
  Status all_taken() const {
    if (!status_.ok()) return status_;
    for (const auto& [name, value] : values_)
      if (!taken_.contains(name))
        return {Code::kInvalidArgument,
                fmt::format("host pools: {}: the model has no pool '{}'", option_, printable(name))};
    return {};
  }

 private:
  std::string option_;
  std::map<std::string, Value> values_;
  std::map<std::string, bool> taken_;
  Status status_;
};

}  // namespace

HostPoolRequest request_of(const StorageForm& form, std::uint32_t group, Stage stage,
                           std::uint64_t full_pages_per_resume_point) {
  HostPoolRequest request;
  request.shape = pool_shape(form, group, stage);
  request.replicated = form.spec.groups[group].replicated;
  const ClassForm& cls = form.classes[request.shape.cls.value()];
  if (cls.required()) request.pages_per_resume_point = full_pages_per_resume_point;
  if (cls.is_window()) request.pages_per_resume_point = cls.window_pages();
  return request;
}

Result<std::vector<HostPoolRequest>> stack_of(const StorageForm& form, const StackOptions& options) {
  const std::vector<PoolShape> shapes = pool_shapes(form, options.stage);
  std::map<std::string, std::string> first;
  ByName<Layout> layouts("layouts", options.layouts);
  ByName<std::uint64_t> device_pages("device pages", options.device_pages);
  std::vector<HostPoolRequest> requests;
  for (const PoolShape& shape : shapes) {
    HostPoolRequest request =
        request_of(form, shape.group, options.stage, options.full_pages_per_resume_point);
    request.layout = layouts.take(shape.name, options.layout);
    request.slots_of = std::visit(SlotsOf{first, shapes, shape.name}, form.spec.groups[shape.group].kind);
    if (request.slots_of.empty()) request.device_pages = device_pages.take(shape.name, 0);
    requests.push_back(std::move(request));
  }
  TIERCEL_RETURN_IF_ERROR(layouts.all_taken());
  TIERCEL_RETURN_IF_ERROR(device_pages.all_taken());
  return requests;
}

}  // namespace tiercel
