#include "host_pools_view.h"

#include <algorithm>
#include <charconv>
#include <string_view>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/sizes.h"
#include "memory/memory_kind.h"
#include "model/json_text.h"
#include "model_arguments.h"
#include "os/text_file.h"

namespace tiercel::apps {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::size_t kSegmentsShown = 8;  // of each object, in text

tl::unexpected<Refusal> usage(std::string message) {
  return tl::unexpected(Refusal{kExitUsage, std::move(message)});
}
tl::unexpected<Refusal> usage(const Status& status) { return usage(status.message); }

tl::expected<MemoryKind, Refusal> kind_of(const HostPoolArguments& arguments) {
  MemoryKindOptions options{arguments.memory, arguments.allocator, arguments.backend, arguments.extra_config};
  if (!options.memory && !options.allocator && !options.extra_config) options.memory = "anonymous";
  const auto kind =
      resolve_memory_kind(options, [](const std::string& path) { return read_config_file(path); });
  if (!kind) return usage(kind.error());
  if (*kind == MemoryKind::kExternal)
    return usage("--memory external: where the caller's buffers lie is known to the program that has them");
  return *kind;
}

tl::expected<Capacity, Refusal> capacity_of(const HostPoolArguments& arguments) {
  if (arguments.capacity && arguments.pages)
    return usage("--capacity and --pages: wanted one of them: bytes of all pools, or pages of each");
  if (arguments.pages) {
    const auto pages = parse_count("--pages", *arguments.pages);
    if (!pages) return usage(pages.error());
    return PagesCapacity{*pages};
  }
  const auto bytes = parse_size(arguments.capacity.value_or("1GiB"));
  if (!bytes) return usage("--capacity: " + bytes.error().message);
  return TotalCapacity{*bytes};
}

// "4:10": layers 4 to 9.
tl::expected<Stage, Refusal> stage_of(const HostPoolArguments& arguments) {
  if (!arguments.stage) return Stage{};
  const std::string& text = *arguments.stage;
  const auto number = [](std::string_view digits, std::uint32_t& out) {
    const auto [end, fault] = std::from_chars(digits.data(), digits.data() + digits.size(), out);
    return fault == std::errc{} && end == digits.data() + digits.size();
  };
  Stage stage;
  const std::size_t colon = text.find(':');
  if (colon == std::string::npos || !number(std::string_view(text).substr(0, colon), stage.first) ||
      !number(std::string_view(text).substr(colon + 1), stage.end) || stage.first >= stage.end)
    return usage(
        fmt::format("--stage: wanted FIRST:END, layers FIRST to END - 1, is \"{}\"", printable(text)));
  return stage;
}

tl::expected<std::optional<std::uint64_t>, Refusal> page_of(const HostPoolArguments& arguments) {
  if (!arguments.page) return std::nullopt;
  if (*arguments.page == "0") return 0;
  const auto page = parse_count("--page", *arguments.page);
  if (!page) return usage(page.error());
  return *page;
}

Json segments_json(const HostPool& pool, std::uint64_t page) {
  Json objects = Json::array();
  for (const PageObject& object : page_segments(pool.layout, page)) {
    Json segments = Json::array();
    for (const Segment& segment : object.segments) {
      const SegmentPlace place = place_of(pool, segment);
      segments.push_back({{"buffer", segment.buffer},
                          {"buffer_offset", segment.offset},
                          {"allocation", place.allocation},
                          {"offset", place.offset},
                          {"length", segment.length}});
    }
    const TensorShape& tensor = pool.layout.shape.tensors[objects.size()];
    objects.push_back({{"component", tensor.name}, {"class", object.cls.value()}, {"segments", segments}});
  }
  return objects;
}

Json pool_json(const HostPoolView& view, const HostPool& pool) {
  const PoolShape& shape = pool.layout.shape;
  Json json = {{"name", shape.name},
               {"group", shape.group},
               {"class", shape.cls.value()},
               {"layout", layout_text(pool.layout.layout)},
               {"slots_of", view.plan.pools[pool.slots_of].name()},
               {shape.is_state() ? "snapshots" : "pages", pool.pages()},
               {shape.is_state() ? "snapshot_bytes" : "page_bytes", shape.page_bytes()},
               {"layers", shape.layers},
               {"components", Json::array()},
               {"buffers", Json::array()}};
  const auto counts = segments_per_page(pool.layout);
  for (std::size_t i = 0; i < shape.tensors.size(); ++i) {
    const TensorShape& tensor = shape.tensors[i];
    json["components"].push_back({{"name", tensor.name},
                                  {"tokens", tensor.tokens},
                                  {"heads", tensor.heads},
                                  {"dim", tensor.dim},
                                  {"element_bytes", tensor.element_bytes},
                                  {"segments_per_page", counts[i]}});
  }
  for (const BufferPlace& buffer : pool.buffers)
    json["buffers"].push_back(
        {{"allocation", buffer.allocation}, {"offset", buffer.offset}, {"bytes", buffer.bytes}});
  if (view.page && *view.page < pool.pages()) json["objects"] = segments_json(pool, *view.page);
  return json;
}

std::string shape_text(const TensorShape& tensor) {
  return fmt::format("{} [{} x {} x {}] {} B", tensor.name, tensor.tokens, tensor.heads, tensor.dim,
                     tensor.element_bytes);
}

std::string pool_text(const HostPoolView& view, const HostPool& pool) {
  const PoolShape& shape = pool.layout.shape;
  std::string text = fmt::format("\n  {}: {} {} of {}, {} layers, slots of {}\n    layout {}\n", shape.name,
                                 pool.pages(), shape.is_state() ? "snapshots" : "pages",
                                 format_size(shape.page_bytes()), shape.layers.size(),
                                 view.plan.pools[pool.slots_of].name(), layout_text(pool.layout.layout));
  const auto counts = segments_per_page(pool.layout);
  for (std::size_t i = 0; i < shape.tensors.size(); ++i)
    text += fmt::format("    {}: {} segment{} a page\n", shape_text(shape.tensors[i]), counts[i],
                        counts[i] == 1 ? "" : "s");
  std::uint64_t bytes = 0;
  for (const BufferPlace& buffer : pool.buffers) bytes += buffer.bytes;
  text += fmt::format("    {} buffer{}, {}\n", pool.buffers.size(), pool.buffers.size() == 1 ? "" : "s",
                      format_size(bytes));
  return text;
}

std::string page_text(const HostPool& pool, std::uint64_t page) {
  std::string text = fmt::format("\n  page {} of {}\n", page, pool.name());
  std::size_t number = 0;
  for (const PageObject& object : page_segments(pool.layout, page)) {
    text += fmt::format("    {}\n", pool.layout.shape.tensors[number++].name);
    for (std::size_t i = 0; i < std::min(object.segments.size(), kSegmentsShown); ++i) {
      const Segment& segment = object.segments[i];
      text += fmt::format("      buffer {} offset {} length {}\n", segment.buffer, segment.offset,
                          segment.length);
    }
    if (object.segments.size() > kSegmentsShown)
      text +=
          fmt::format("      … and {} more (--json lists all)\n", object.segments.size() - kSegmentsShown);
    if (object.segments.empty()) text += "      no bytes\n";
  }
  return text;
}

}  // namespace

void add_host_pool_options(CLI::App& app, HostPoolArguments& arguments) {
  app.add_flag("--host-pools", arguments.wanted,
               "Also the host pools of an engine: sizes, buffers, segments");
  app.add_option("--layout", arguments.layout,
                 "order in memory: a name such as page_first, or axes (default: page_first_direct)")
      ->type_name("LAYOUT");
  app.add_option("--capacity", arguments.capacity, "bytes of all pools together, as 32GiB (default: 1GiB)")
      ->type_name("SIZE");
  app.add_option("--pages", arguments.pages, "instead: pages of each pool")->type_name("N");
  app.add_option("--full-pages-per-resume-point", arguments.per_resume_point,
                 "with --capacity: pages of full attention for each snapshot and window (default: 1)")
      ->type_name("N");
  app.add_option("--memory", arguments.memory,
                 "anonymous (default), hugepage, shared, pinned: one kind for all pools")
      ->type_name("KIND");
  app.add_option("--allocator", arguments.allocator, "the same, as engines' configurations name it")
      ->type_name("KIND");
  app.add_option("--backend", arguments.backend, "storage back end's name; never chooses memory")
      ->type_name("NAME");
  app.add_option("--extra-config", arguments.extra_config, "a JSON object or @FILE that may name the kind")
      ->type_name("CONFIG");
  app.add_option("--stage", arguments.stage, "layers of one pipeline stage, as 0:24 (default: all)")
      ->type_name("FIRST:END");
  app.add_option("--page", arguments.page, "and the segments of this page of each pool, from 0")
      ->type_name("N");
}

tl::expected<HostPoolView, Refusal> plan_view(const StorageForm& form, const HostPoolArguments& arguments) {
  HostPoolPlanOptions options;
  StackOptions stack;
  const auto layout = layout_from_text(arguments.layout.value_or("page_first_direct"));
  if (!layout) return usage("--layout: " + layout.error().message);
  stack.layout = *layout;
  const auto kind = kind_of(arguments);
  if (!kind) return tl::unexpected(kind.error());
  options.kind = *kind;
  const auto capacity = capacity_of(arguments);
  if (!capacity) return tl::unexpected(capacity.error());
  options.capacity = *capacity;
  const auto stage = stage_of(arguments);
  if (!stage) return tl::unexpected(stage.error());
  stack.stage = *stage;
  if (arguments.per_resume_point) {
    const auto pages = parse_count("--full-pages-per-resume-point", *arguments.per_resume_point);
    if (!pages) return usage(pages.error());
    stack.full_pages_per_resume_point = *pages;
  }
  const auto page = page_of(arguments);
  if (!page) return tl::unexpected(page.error());

  const auto failed = [](const Status& status) {
    return tl::unexpected(Refusal{kExitFailed, status.message});
  };
  const auto requests = stack_of(form, stack);
  if (!requests) return failed(requests.error());
  auto plan = plan_host_pools(*requests, options);
  if (!plan) return failed(plan.error());
  const bool there = std::any_of(plan->pools.begin(), plan->pools.end(),
                                 [&](const HostPool& pool) { return !*page || **page < pool.pages(); });
  if (!there) return failed({Code::kInvalidArgument, fmt::format("--page {}: no pool has so many", **page)});
  return HostPoolView{std::move(*plan), *page};
}

std::string host_pools_json(const HostPoolView& view) {
  Json json = {{"memory", memory_kind_name(view.plan.kind)}, {"required_bytes", required_bytes(view.plan)},
               {"mapped_bytes", mapped_bytes(view.plan)},    {"layer_end", view.plan.layer_end()},
               {"allocations", view.plan.allocations},       {"pools", Json::array()}};
  for (const HostPool& pool : view.plan.pools) json["pools"].push_back(pool_json(view, pool));
  return Json{{"host_pools", std::move(json)}}.dump();
}

std::string host_pools_text(const HostPoolView& view) {
  std::string text =
      fmt::format("\nHost pools: {} memory, {} required, {} mapped, {} allocation{}, layers below {}\n",
                  memory_kind_name(view.plan.kind), format_size(required_bytes(view.plan)),
                  format_size(mapped_bytes(view.plan)), view.plan.allocations.size(),
                  view.plan.allocations.size() == 1 ? "" : "s", view.plan.layer_end());
  for (const HostPool& pool : view.plan.pools) text += pool_text(view, pool);
  if (!view.page) return text;
  for (const HostPool& pool : view.plan.pools)
    if (*view.page < pool.pages()) text += page_text(pool, *view.page);
  return text;
}

}  // namespace tiercel::apps
