#include "model/layout.h"

#include <algorithm>
#include <bit>
#include <charconv>
#include <initializer_list>
#include <set>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/check.h"
#include "model/json_text.h"

namespace tiercel {

namespace {

constexpr std::array<std::string_view, kAxes> kAxisNames = {"component", "layer", "page",
                                                            "token",     "head",  "dim"};
constexpr std::uint64_t kPageAlignmentMax = 2U << 20;
constexpr std::size_t kTextMax = 1024;
constexpr std::size_t kComponentOrdersMax = 64;

struct NamedText {
  std::string_view name, text;
};
// The table of the header.
constexpr std::array<NamedText, 12> kNamed = {{
    {"layer_first", "component,layer,page,token,head,dim"},
    {"page_first", "component,page,token,layer,head,dim"},
    {"page_first_direct", "component,page,layer,token,head,dim"},
    {"page_head", "component,page,head,token,layer,dim"},
    {"page_first_kv_split", "component|page,layer,token,head,dim"},
    {"record", "page,layer,component,token,head,dim"},
    {"vllm_nhd", "layer|component,page,token,head,dim"},
    {"vllm_hnd", "layer|component,page,head,token,dim"},
    {"vllm_block_nhd", "layer|page,component,token,head,dim"},
    {"vllm_block_hnd", "layer|page,component,head,token,dim"},
    {"llama", "layer,component|page,token,head,dim"},
    {"llama_v_transposed", "layer,component|page,token,head,dim;v:head,dim,page,token"},
}};

Status wrong(std::string what) { return {Code::kInvalidArgument, "layout: " + std::move(what)}; }

std::optional<Axis> axis_from_name(std::string_view name) {
  const auto at = std::find(kAxisNames.begin(), kAxisNames.end(), name);
  if (at == kAxisNames.end()) return std::nullopt;
  return static_cast<Axis>(at - kAxisNames.begin());
}

// Axes separated by ',' or, where `bars` is given, one '|', whose place it is set to.
template <std::size_t N>
Result<std::array<Axis, N>> read_axes(std::string_view text, std::uint32_t* bar) {
  std::array<Axis, N> axes{};
  std::size_t count = 0;
  for (bool more = true; more; ++count) {
    const std::size_t end = text.find_first_of(",|");
    more = end != std::string_view::npos;
    const std::string_view name = text.substr(0, end);
    const auto axis = axis_from_name(name);
    if (!axis || count == N)
      return tl::unexpected(
          wrong(fmt::format("wanted {} of the axes {} with commas between, got \"{}\" at place {}", N,
                            fmt::join(kAxisNames, ", "), printable(name), count + 1)));
    axes[count] = *axis;
    if (!more) continue;
    if (text[end] == '|') {
      if (bar == nullptr || *bar != 0)
        return tl::unexpected(wrong("wanted at most one '|', behind the axes with buffers of their own"));
      *bar = static_cast<std::uint32_t>(count + 1);
    }
    text.remove_prefix(end + 1);
  }
  if (count != N) return tl::unexpected(wrong(fmt::format("wanted {} axes, got {}", N, count)));
  return axes;
}

Status read_part(std::string_view part, Layout& layout) {
  constexpr std::string_view kAlign = "align=";
  if (part.starts_with(kAlign)) {
    const std::string_view number = part.substr(kAlign.size());
    const auto [end, fault] =
        std::from_chars(number.data(), number.data() + number.size(), layout.page_alignment);
    if (fault != std::errc{} || end != number.data() + number.size())
      return wrong(fmt::format("align: wanted a number of bytes, got \"{}\"", printable(number)));
    return {};
  }
  const std::size_t colon = part.find(':');
  if (colon == std::string_view::npos)
    return wrong(
        fmt::format("wanted COMPONENT:AXES or align=BYTES behind a ';', got \"{}\"", printable(part)));
  auto order = read_axes<4>(part.substr(colon + 1), nullptr);
  if (!order) return order.error();
  layout.components.push_back({std::string(part.substr(0, colon)), *order});
  return {};
}

Result<Layout> read_layout(std::string_view text) {
  if (text.size() > kTextMax)
    return tl::unexpected(
        wrong(fmt::format("its text has {} characters, at most {}", text.size(), kTextMax)));
  Layout layout;
  layout.name = std::string(text);
  std::size_t end = text.find(';');
  TIERCEL_ASSIGN_OR_RETURN(layout.order, read_axes<kAxes>(text.substr(0, end), &layout.buffer_axes));
  while (end != std::string_view::npos) {
    text.remove_prefix(end + 1);
    end = text.find(';');
    TIERCEL_RETURN_IF_ERROR(read_part(text.substr(0, end), layout));
  }
  TIERCEL_RETURN_IF_ERROR(validate(layout));
  return layout;
}

template <std::size_t N>
bool each_once(const std::array<Axis, N>& order, std::initializer_list<Axis> of) {
  return std::all_of(of.begin(), of.end(),
                     [&](Axis axis) { return std::count(order.begin(), order.end(), axis) == 1; });
}

Status check_component_orders(const Layout& layout) {
  if (layout.components.empty()) return {};
  const auto first = std::span(layout.order).first(2);
  const auto buffers = std::span(layout.order).first(layout.buffer_axes);
  const auto has = [](std::span<const Axis> axes, Axis axis) {
    return std::find(axes.begin(), axes.end(), axis) != axes.end();
  };
  if (!has(first, Axis::kComponent) || !has(first, Axis::kLayer) || !has(buffers, Axis::kComponent))
    return wrong(
        "an order of one component needs component and layer as the first axes, and component among those "
        "with "
        "buffers of their own");
  if (layout.components.size() > kComponentOrdersMax)
    return wrong(
        fmt::format("{} orders of components, at most {}", layout.components.size(), kComponentOrdersMax));
  std::set<std::string_view> names;
  for (const Layout::ComponentOrder& each : layout.components) {
    if (!names.insert(each.component).second)
      return wrong(fmt::format("component {} has two orders", printable(each.component)));
    if (!each_once(each.order, {Axis::kPage, Axis::kToken, Axis::kHead, Axis::kDim}))
      return wrong(fmt::format("the order of component {} must have page, token, head and dim once each",
                               printable(each.component)));
  }
  return {};
}

}  // namespace

std::string_view axis_name(Axis axis) { return kAxisNames.at(static_cast<std::size_t>(axis)); }

std::span<const Layout> named_layouts() {
  static const std::vector<Layout> kLayouts = [] {
    std::vector<Layout> all;
    for (const NamedText& named : kNamed) {
      all.push_back(read_layout(named.text).value());
      all.back().name = named.name;
    }
    return all;
  }();
  return kLayouts;
}

Result<Layout> layout_from_text(std::string_view text) {
  const auto named = named_layouts();
  // A name may be followed by what an order may be followed by.
  const std::size_t end = text.find(';');
  const auto at = std::find_if(named.begin(), named.end(),
                               [&](const Layout& each) { return each.name == text.substr(0, end); });
  if (at == named.end()) {
    if (text.find_first_of(",|") != std::string_view::npos) return read_layout(text);
    std::vector<std::string_view> names;
    for (const Layout& each : named) names.push_back(each.name);
    return tl::unexpected(
        wrong(fmt::format("\"{}\" is none of {}, and no order of the axes {}", printable(text.substr(0, 64)),
                          fmt::join(names, ", "), fmt::join(kAxisNames, ","))));
  }
  if (end == std::string_view::npos) return *at;
  TIERCEL_ASSIGN_OR_RETURN(Layout layout, read_layout(layout_text(*at) + std::string(text.substr(end))));
  layout.name = std::string(text);
  return layout;
}

std::string layout_text(const Layout& layout) {
  std::string text;
  for (std::size_t i = 0; i < kAxes; ++i) {
    if (i != 0) text += i == layout.buffer_axes ? '|' : ',';
    text += axis_name(layout.order[i]);
  }
  for (const Layout::ComponentOrder& each : layout.components) {
    text += fmt::format(";{}:", each.component);
    for (std::size_t i = 0; i < each.order.size(); ++i)
      text += fmt::format("{}{}", i == 0 ? "" : ",", axis_name(each.order[i]));
  }
  if (layout.page_alignment != 1) text += fmt::format(";align={}", layout.page_alignment);
  return text;
}

Status validate(const Layout& layout) {
  if (!each_once(layout.order,
                 {Axis::kComponent, Axis::kLayer, Axis::kPage, Axis::kToken, Axis::kHead, Axis::kDim}))
    return wrong(fmt::format("wanted each of the axes {} once", fmt::join(kAxisNames, ", ")));
  if (layout.buffer_axes > 2) return wrong("at most component and layer can have buffers of their own");
  for (std::size_t i = 0; i < layout.buffer_axes; ++i)
    if (layout.order[i] != Axis::kComponent && layout.order[i] != Axis::kLayer)
      return wrong(fmt::format("{} cannot have buffers of its own: only component and layer can",
                               axis_name(layout.order[i])));
  if (!std::has_single_bit(layout.page_alignment) || layout.page_alignment > kPageAlignmentMax)
    return wrong(fmt::format("align: wanted a power of two up to {}, got {}", kPageAlignmentMax,
                             layout.page_alignment));
  return check_component_orders(layout);
}

}  // namespace tiercel
