// The world that a replay's node lives in: memory that keeps the first bytes of each record, an engine whose
// bytes follow from keys, copies at once, the trace's time. Sized so that nothing but the replay's own limits
// ever binds.
//
// Threads: one thread.
#pragma once

#include <cstdint>
#include <memory>

#include "base/status.h"
#include "memory/arena.h"
#include "node/node.h"
#include "os/clock.h"
#include "os/executor.h"
#include "trace/pattern_device.h"
#include "trace/replay.h"

namespace tiercel {

inline constexpr std::string_view kTraceKeyScheme = "trace-block-1";

class ReplayWorld final {
 public:
  // Errors: what the node says; resource_exhausted when a record, or all of the trace's, take more extents
  // than a replay could get through.
  static Result<std::unique_ptr<ReplayWorld>> open(const Trace& trace, const ReplayOptions& options);

  ManualClock& clock() { return clock_; }
  PatternDevice& device() { return *device_; }
  Node& node() { return *node_; }
  const StorageForm& form() const { return node_->form(form_); }
  SessionId session() const { return session_; }
  NamespaceId ns() const { return ns_; }

 private:
  ReplayWorld() = default;
  Status open_node(const NodeOptions& node_options, ModelSpec spec);

  ManualClock clock_;
  InlineExecutor executor_;
  std::unique_ptr<ThinArena> arena_;
  std::unique_ptr<PatternDevice> device_;
  std::unique_ptr<Node> node_;
  FormId form_;
  SessionId session_;
  NamespaceId ns_;
};

}  // namespace tiercel
