// `tiercel llama ask` in a process of its own, for what is shown or measured across processes.
//
// Threads: main thread only.
#pragma once

#include <atomic>
#include <string>
#include <vector>

#include "llama_report.h"

namespace tiercel::apps {

// What `ask --json` said.
struct ChildAnswer {
  int pid = 0;
  LlamaFigures figures;
  double load_ms = 0, open_ms = 0;
  std::string text, logits_sha256;
  std::vector<std::string> notes;
};

// Runs it with what `arguments` says of model, context, cache and answer, and with `more`: the prompt, the
// mode. Returns when it has ended. `stop` is passed on as SIGINT. Errors: its last line on stderr.
LlamaResult<ChildAnswer> ask_in_child(const LlamaArguments& arguments, const std::vector<std::string>& more,
                                      const std::atomic<bool>& stop);

// Says on a terminal what is going on, over what was there; nothing: clears it.
void show_step(const LlamaArguments& arguments, std::string_view step);

}  // namespace tiercel::apps
