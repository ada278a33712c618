// Our own JSON form of a model spec, for models that no reader knows and for tests: docs/guide/specs.md.
//
// Strict: a key that is not described there is an error, so that a misspelt one cannot be lost.
// Threads: pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/status.h"
#include "model/spec.h"

namespace tiercel {

// Whether `text` is (or means to be) a spec of ours: an object with the key "tiercel_spec".
bool is_spec_json(std::string_view text);

// The validated spec that `text` describes; with `page_tokens`, for that page size instead of its own.
// Errors: invalid_argument, one line that begins with `file` and names the field.
Result<ModelSpec> read_spec_json(std::string_view text, std::string_view file,
                                 std::optional<std::uint64_t> page_tokens = std::nullopt);

// The text that read_spec_json makes the same spec from, indented, with a last newline. Requires: a validated
// spec.
std::string write_spec_json(const ModelSpec& spec);

}  // namespace tiercel
