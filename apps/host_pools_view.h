// The host pools of a model as `tiercel inspect` shows them: planned, not allocated.
//
// Threads: main thread only.
#pragma once

#include <optional>
#include <string>

#include "command.h"
#include "memory/host_pool_plan.h"
#include "model/storage_form.h"

namespace tiercel::apps {

// Options as typed.
struct HostPoolArguments {
  bool wanted = false;
  std::optional<std::string> layout, capacity, pages, per_resume_point, memory, allocator, backend,
      extra_config, page, stage;
};

// --host-pools and what goes with it. Lives: `arguments` until after the parse.
void add_host_pool_options(CLI::App& app, HostPoolArguments& arguments);

// The options checked and their model planned. Errors: one line; kExitUsage naming the option, kExitFailed
// for what does not go with the model.
struct HostPoolView {
  HostPoolPlan plan;
  std::optional<std::uint64_t> page;  // whose segments are shown
};
tl::expected<HostPoolView, Refusal> plan_view(const StorageForm& form, const HostPoolArguments& arguments);

// One line of JSON, no newline; the fields are described in docs/guide/inspect.md.
std::string host_pools_json(const HostPoolView& view);
// Pools, buffers and bytes as a table; the page's segments, shortened where they are many.
std::string host_pools_text(const HostPoolView& view);

}  // namespace tiercel::apps
