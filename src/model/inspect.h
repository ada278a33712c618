// A model's geometry in print: one JSON object for programs, a page of text for people.
//
// Threads: pure functions.
#pragma once

#include <string>

#include "model/spec.h"
#include "model/storage_form.h"

namespace tiercel {

// One line of JSON, no newline: model_type, page_tokens, tp, groups, no_cache_layers, draft_layers; the
// fields are described in docs/guide/inspect.md. Requires: a validated spec.
std::string inspect_json(const ModelSpec& spec);

// Several lines: groups, layers, bytes per token, page and snapshot, what 1 GiB holds, classes, storage form.
// `colour`: with ANSI emphasis, for a terminal.
std::string inspect_text(const StorageForm& form, bool colour);

}  // namespace tiercel
