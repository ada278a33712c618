// The model that a command line names: a Hugging Face configuration with its options, or a spec of our own.
//
// Threads: main thread only.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/checked.h"
#include "base/status.h"
#include "command.h"
#include "model/spec.h"

namespace tiercel::apps {

// Options as typed; absent ones have their defaults: bf16, 1, 64, the file's own.
struct ModelArguments {
  std::optional<std::string> dtype;
  std::optional<std::string> tp;
  std::optional<std::string> page_tokens;
  std::optional<std::string> state_dtype;
  std::optional<std::string> draft_config;
};

// --dtype, --tp, --state-dtype. Lives: `arguments` until after the parse.
void add_model_options(CLI::App& app, ModelArguments& arguments);
// --page-tokens, --draft-config.
void add_page_and_draft_options(CLI::App& app, ModelArguments& arguments);

// The validated model in file `path` ("-" is standard input), whichever of the two forms it has.
// Errors: one line. kExitUsage with the option, before any file is read, for a value that no file could go
// with; and for options that say again what a spec of our own says itself. Else kExitFailed with the file and
// the field.
tl::expected<ModelSpec, Refusal> load_model(std::string_view path, const ModelArguments& arguments);

// The bytes of file `path` ("-" is standard input), at most `limit` and one more, so that a caller sees that
// there are too many. Errors: io_error with the path and the system's reason.
Result<std::string> read_file(std::string_view path, std::size_t limit);

// An integer from 1 to `most`. Errors: invalid_argument that names `option`.
Result<std::uint64_t> parse_count(std::string_view option, std::string_view text,
                                  std::uint64_t most = kSizeMax);

}  // namespace tiercel::apps
