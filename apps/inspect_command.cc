#include "inspect_command.h"

#include <memory>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "host_pools_view.h"
#include "model/inspect.h"
#include "model/storage_form.h"
#include "model_arguments.h"

namespace tiercel::apps {
namespace {

constexpr const char* kExamples = R"(Examples:
  tiercel inspect config.json
  tiercel inspect --dtype fp8 --tp 8 --page-tokens 128 config.json
  tiercel inspect --json llama/config.json qwen/config.json
  tiercel inspect --draft-config draft/config.json config.json
  tiercel inspect examples/specs/hybrid.json
  tiercel inspect --host-pools --layout page_first --capacity 32GiB --memory shared config.json
  tiercel inspect --host-pools --layout vllm_nhd --pages 1024 --page 7 --json config.json
Exit status: 0; 1 when a file was refused (one line on stderr says which field and why, nothing is printed);
2 when the command line was: an option, its value, or one that does not go with the file.)";

struct InspectArguments {
  std::vector<std::string> files;
  bool json = false;
  ModelArguments model;
  HostPoolArguments pools;
};

// Options of host pools without --host-pools would be passed over in silence.
const char* lone_option(const HostPoolArguments& pools) {
  if (pools.wanted) return nullptr;
  if (pools.layout) return "--layout";
  if (pools.capacity) return "--capacity";
  if (pools.pages) return "--pages";
  if (pools.per_resume_point) return "--full-pages-per-resume-point";
  if (pools.memory) return "--memory";
  if (pools.allocator) return "--allocator";
  if (pools.backend) return "--backend";
  if (pools.extra_config) return "--extra-config";
  if (pools.stage) return "--stage";
  return pools.page ? "--page" : nullptr;
}

tl::expected<std::string, Refusal> describe(const std::string& file, const InspectArguments& arguments,
                                            bool colour) {
  auto spec = load_model(file, arguments.model);
  if (!spec) return tl::unexpected(std::move(spec.error()));
  if (arguments.json && !arguments.pools.wanted) return inspect_json(*spec) + "\n";
  const auto form = make_storage_form(std::move(*spec));
  if (!form) return tl::unexpected(Refusal{kExitFailed, fmt::format("{}: {}", file, form.error().message)});
  if (!arguments.pools.wanted) return inspect_text(*form, colour);
  const auto view = plan_view(*form, arguments.pools);
  if (!view)
    return tl::unexpected(view.error().status == kExitUsage
                              ? view.error()
                              : Refusal{kExitFailed, fmt::format("{}: {}", file, view.error().message)});
  if (arguments.json) {
    // One object a line, the model's with its pools behind.
    std::string model = inspect_json(form->spec);
    model.back() = ',';
    return model + host_pools_json(*view).substr(1) + "\n";
  }
  return inspect_text(*form, colour) + host_pools_text(*view);
}

// All files first, then the printing: a bad one leaves nothing on stdout.
int run_inspect(const InspectArguments& arguments) {
  if (const char* option = lone_option(arguments.pools))
    return fail("inspect", fmt::format("{} goes with --host-pools only", option), kExitUsage);
  const bool colour = stdout_wants_colour();
  std::string out;
  for (const std::string& file : arguments.files) {
    const auto text = describe(file, arguments, colour);
    if (!text) return fail("inspect", text.error().message, text.error().status);
    if (!arguments.json && !out.empty()) out += "\n";
    out += *text;
  }
  return print("inspect", out);
}

}  // namespace

Command inspect_command(CLI::App& parent) {
  // Owners: the parser's callbacks during the parse, the returned `run` afterwards.
  auto arguments = std::make_shared<InspectArguments>();
  CLI::App* app = parent.add_subcommand("inspect", "Print what a model keeps per token, page and snapshot");
  app->add_option("CONFIG.json", arguments->files,
                  "Hugging Face config.json, or a spec of our own (docs/guide/specs.md); - is standard input")
      ->required();
  app->add_flag("--json", arguments->json, "One JSON object a line instead of text");
  add_model_options(*app, arguments->model);
  add_page_and_draft_options(*app, arguments->model);
  add_host_pool_options(*app, arguments->pools);
  app->footer(kExamples);
  return {app, [arguments] { return run_inspect(*arguments); }};
}

}  // namespace tiercel::apps
