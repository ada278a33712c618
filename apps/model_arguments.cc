#include "model_arguments.h"

#include <charconv>
#include <cstdio>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "base/checked.h"
#include "model/hf_config.h"
#include "model/json_text.h"
#include "model/spec_json.h"
#include "os/text_file.h"

namespace tiercel::apps {
namespace {

Result<DType> parse_dtype(std::string_view option, std::string_view text) {
  for (const DType dtype : {DType::kBf16, DType::kFp16, DType::kFp8, DType::kF32})
    if (dtype_name(dtype) == text) return dtype;
  return error(Code::kInvalidArgument,
               fmt::format("{}: wanted bf16, fp16, fp8 or f32, is \"{}\"", option, printable(text)));
}

Result<HfOptions> parse_options(const ModelArguments& arguments) {
  HfOptions options;
  if (arguments.dtype) {
    TIERCEL_ASSIGN_OR_RETURN(options.dtype, parse_dtype("--dtype", *arguments.dtype));
  }
  if (arguments.tp) {
    TIERCEL_ASSIGN_OR_RETURN(options.tp, parse_count("--tp", *arguments.tp, kMaxRanks));
  }
  if (arguments.page_tokens) {
    TIERCEL_ASSIGN_OR_RETURN(options.page_tokens, parse_count("--page-tokens", *arguments.page_tokens));
  }
  if (arguments.state_dtype) {
    TIERCEL_ASSIGN_OR_RETURN(options.state_dtype, parse_dtype("--state-dtype", *arguments.state_dtype));
  }
  return options;
}

Result<ModelSpec> load_spec(std::string_view text, std::string_view path, const ModelArguments& arguments,
                            std::uint64_t page_tokens) {
  return read_spec_json(text, path, arguments.page_tokens ? std::optional(page_tokens) : std::nullopt);
}

// The first option that says what a spec of our own says itself.
std::optional<std::string_view> option_beside_spec(const ModelArguments& arguments) {
  if (arguments.dtype) return "--dtype";
  if (arguments.tp) return "--tp";
  if (arguments.state_dtype) return "--state-dtype";
  if (arguments.draft_config) return "--draft-config";
  return std::nullopt;
}

Result<ModelSpec> load_config(std::string_view text, std::string_view path, const ModelArguments& arguments,
                              const HfOptions& options) {
  TIERCEL_ASSIGN_OR_RETURN(auto base, read_hf_config(text, path, options));
  if (!arguments.draft_config) return base;
  const std::string& draft_path = *arguments.draft_config;
  TIERCEL_ASSIGN_OR_RETURN(const std::string draft_text, read_file(draft_path, kMaxJsonBytes));
  TIERCEL_ASSIGN_OR_RETURN(const auto draft, read_hf_config(draft_text, draft_path, options));
  return with_draft(std::move(base), draft, draft_path);
}

}  // namespace

void add_model_options(CLI::App& app, ModelArguments& arguments) {
  app.add_option("--dtype", arguments.dtype, "dtype of keys and values: bf16 (default), fp16, fp8, f32")
      ->type_name("D");
  app.add_option("--tp", arguments.tp, "tensor-parallel ranks (default 1)")->type_name("N");
  app.add_option("--state-dtype", arguments.state_dtype,
                 "dtype of temporal states (default: the file's, else f32); never of convolution states")
      ->type_name("D");
}

void add_page_and_draft_options(CLI::App& app, ModelArguments& arguments) {
  app.add_option("--page-tokens", arguments.page_tokens, "tokens in a page (default 64)")->type_name("P");
  app.add_option("--draft-config", arguments.draft_config,
                 "configuration of a draft model, whose layers follow as optional groups")
      ->type_name("FILE");
}

tl::expected<ModelSpec, Refusal> load_model(std::string_view path, const ModelArguments& arguments) {
  const auto options = parse_options(arguments);
  if (!options) return tl::unexpected(Refusal{kExitUsage, options.error().message});
  const auto text = read_file(path, kMaxJsonBytes);
  if (!text) return tl::unexpected(Refusal{kExitFailed, text.error().message});
  const bool is_spec = is_spec_json(*text);
  if (const auto option = is_spec ? option_beside_spec(arguments) : std::nullopt)
    return tl::unexpected(
        Refusal{kExitUsage, fmt::format("{}: {}: this file is a spec, which says so itself", path, *option)});
  auto spec = is_spec ? load_spec(*text, path, arguments, options->page_tokens)
                      : load_config(*text, path, arguments, *options);
  if (!spec) return tl::unexpected(Refusal{kExitFailed, spec.error().message});
  return std::move(*spec);
}

Result<std::string> read_file(std::string_view path, std::size_t limit) {
  const std::string name(path);
  return path == "-" ? read_text(stdin, name, limit) : read_text_file(name, limit);
}

Result<std::uint64_t> parse_count(std::string_view option, std::string_view text, std::uint64_t most) {
  std::uint64_t value = 0;
  const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (problem == std::errc{} && end == text.data() + text.size() && value > 0 && value <= most) return value;
  const std::string wanted =
      most == kSizeMax ? "a positive integer" : fmt::format("an integer from 1 to {}", most);
  return error(Code::kInvalidArgument,
               fmt::format("{}: wanted {}, is \"{}\"", option, wanted, printable(text)));
}

}  // namespace tiercel::apps
