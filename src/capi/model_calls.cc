// Calls of the ABI: spec, form, namespace.
#include <string>

#include <tiercel/tiercel.h>

#include "capi/handles.h"
#include "capi/options.h"
#include "model/hf_config.h"
#include "model/spec_json.h"

using namespace tiercel;        // NOLINT(google-build-using-namespace): the ABI's functions stand outside
using namespace tiercel::capi;  // NOLINT(google-build-using-namespace)

namespace {

constexpr std::uint64_t kTextMax = std::uint64_t{16} << 20;
constexpr std::uint64_t kPartsMax = 4096;  // groups, components of a group, dimensions

std::optional<DType> dtype_of(tiercel_dtype dtype) {
  static_assert(static_cast<int>(DType::kU8) == TIERCEL_DTYPE_U8 - 1);
  if (dtype == TIERCEL_DTYPE_DEFAULT) return std::nullopt;
  return static_cast<DType>(dtype - 1);
}

Answer read_document(std::string_view name, const char* text, std::uint64_t size, std::string_view& out) {
  if (text == nullptr) return invalid(fmt::format("{}: the text is NULL", name));
  if (size > kTextMax) return invalid(fmt::format("{}: {} bytes, at most {}", name, size, kTextMax));
  out = std::string_view(text, static_cast<std::size_t>(size));
  return {};
}

Answer give_spec(Result<ModelSpec> made, tiercel_spec** spec) {
  if (!made) return made.error();
  auto handle = std::make_unique<tiercel_spec>();
  handle->spec = std::move(*made);
  *spec = handle.release();
  return {};
}

Answer write_string(std::string_view name, std::string_view value, char* text, std::uint64_t capacity,
                    std::uint64_t* count) {
  return write_list<char>(name, value, text, capacity, count);
}

}  // namespace

// ---- spec ----

tiercel_status tiercel_spec_from_config(const char* text, uint64_t size,
                                        const tiercel_config_options* options, tiercel_spec** spec,
                                        tiercel_error* error) {
  return answer(error, [&]() -> Answer {
    TIERCEL_RETURN_UNLESS_OK(check_out("spec_from_config: spec", spec));
    tiercel_config_options given{};
    TIERCEL_RETURN_UNLESS_OK(read_optional("spec_from_config", options, given));
    TIERCEL_RETURN_UNLESS_OK(check_enum("spec_from_config: dtype", given.dtype, 0, TIERCEL_DTYPE_U8));
    TIERCEL_RETURN_UNLESS_OK(
        check_enum("spec_from_config: state_dtype", given.state_dtype, 0, TIERCEL_DTYPE_U8));
    std::string_view document;
    TIERCEL_RETURN_UNLESS_OK(read_document("spec_from_config", text, size, document));
    HfOptions wanted;
    wanted.dtype = dtype_of(given.dtype).value_or(DType::kBf16);
    wanted.state_dtype = dtype_of(given.state_dtype);
    if (given.tp != 0) wanted.tp = given.tp;
    if (given.page_tokens != 0) wanted.page_tokens = given.page_tokens;
    return give_spec(read_hf_config(document, "config", wanted), spec);
  });
}

tiercel_status tiercel_spec_from_json(const char* text, uint64_t size, uint64_t page_tokens,
                                      tiercel_spec** spec, tiercel_error* error) {
  return answer(error, [&]() -> Answer {
    TIERCEL_RETURN_UNLESS_OK(check_out("spec_from_json: spec", spec));
    std::string_view document;
    TIERCEL_RETURN_UNLESS_OK(read_document("spec_from_json", text, size, document));
    const auto pages = page_tokens != 0 ? std::optional(page_tokens) : std::nullopt;
    return give_spec(read_spec_json(document, "spec", pages), spec);
  });
}

tiercel_status tiercel_spec_builder_create(const tiercel_spec_options* options,
                                           tiercel_spec_builder** builder, tiercel_error* error) {
  return answer(error, [&]() -> Answer {
    TIERCEL_RETURN_UNLESS_OK(check_out("spec_builder_create: builder", builder));
    tiercel_spec_options given{};
    TIERCEL_RETURN_UNLESS_OK(read_options("spec_builder_create", options, given));
    if (given.tp == 0 || given.pp == 0 || given.cp == 0)
      return invalid(fmt::format("spec_builder_create: tp {}, pp {}, cp {}: give each, 1 at least", given.tp,
                                 given.pp, given.cp));
    auto handle = std::make_unique<tiercel_spec_builder>();
    TIERCEL_RETURN_UNLESS_OK(
        read_text("spec_builder_create: model_type", given.model_type, handle->spec.model_type));
    handle->spec.page_tokens = given.page_tokens;
    handle->spec.topology = {given.tp, given.pp, given.cp};
    if (given.pages_per_record != 0) handle->spec.pages_per_record = given.pages_per_record;
    *builder = handle.release();
    return {};
  });
}

namespace {

Answer kind_of(const tiercel_group_options& given, GroupKind& kind) {
  switch (given.kind) {
    case TIERCEL_GROUP_FULL:
      kind = FullKind{};
      return {};
    case TIERCEL_GROUP_WINDOW:
      kind = WindowKind{given.window_tokens};
      return {};
    case TIERCEL_GROUP_STATE:
      kind = StateKind{};
      return {};
    case TIERCEL_GROUP_FOLLOWER:
      kind = FollowerKind{given.follows};
      return {};
    default:
      return check_enum("spec_builder_group: kind", given.kind, TIERCEL_GROUP_FULL, TIERCEL_GROUP_FOLLOWER);
  }
}

}  // namespace

tiercel_status tiercel_spec_builder_group(tiercel_spec_builder* builder, const tiercel_group_options* options,
                                          uint32_t* group, tiercel_error* error) {
  return answer(error, [&]() -> Answer {
    TIERCEL_RETURN_UNLESS_OK(check(builder));
    tiercel_group_options given{};
    TIERCEL_RETURN_UNLESS_OK(read_options("spec_builder_group", options, given));
    TIERCEL_RETURN_UNLESS_OK(check_enum("spec_builder_group: need", given.need, 0, TIERCEL_NEED_OPTIONAL));
    std::span<const std::uint32_t> layers;
    TIERCEL_RETURN_UNLESS_OK(
        read_list("spec_builder_group: layers", given.layers, given.layer_count, layers));
    if (layers.size() > kMaxLayerIds || builder->spec.groups.size() >= kPartsMax)
      return invalid(fmt::format("spec_builder_group: {} layers in a group, {} groups: too many",
                                 layers.size(), builder->spec.groups.size()));
    Group made;
    TIERCEL_RETURN_UNLESS_OK(kind_of(given, made.kind));
    static_assert(static_cast<int>(Need::kOptional) == TIERCEL_NEED_OPTIONAL);
    made.need = static_cast<Need>(given.need);
    // A window or state is never required: what zero means there is the only thing that it can mean.
    if (given.need == TIERCEL_NEED_REQUIRED &&
        (given.kind == TIERCEL_GROUP_WINDOW || given.kind == TIERCEL_GROUP_STATE))
      made.need = Need::kSparse;
    made.layers.assign(layers.begin(), layers.end());
    made.replicated = given.replicated != 0;
    if (given.tokens_per_entry != 0) made.tokens_per_entry = given.tokens_per_entry;
    builder->spec.groups.push_back(std::move(made));
    if (group != nullptr) *group = static_cast<std::uint32_t>(builder->spec.groups.size() - 1);
    return {};
  });
}

tiercel_status tiercel_spec_builder_component(tiercel_spec_builder* builder, uint32_t group,
                                              const tiercel_component_options* options,
                                              tiercel_error* error) {
  return answer(error, [&]() -> Answer {
    TIERCEL_RETURN_UNLESS_OK(check(builder));
    if (group >= builder->spec.groups.size())
      return invalid(fmt::format("spec_builder_component: group {} does not exist; there are {}", group,
                                 builder->spec.groups.size()));
    tiercel_component_options given{};
    TIERCEL_RETURN_UNLESS_OK(read_options("spec_builder_component", options, given));
    TIERCEL_RETURN_UNLESS_OK(check_reserved("spec_builder_component", given.reserved));
    TIERCEL_RETURN_UNLESS_OK(check_enum("spec_builder_component: dtype", given.dtype, 0, TIERCEL_DTYPE_U8));
    std::span<const std::uint64_t> shape;
    TIERCEL_RETURN_UNLESS_OK(
        read_list("spec_builder_component: shape", given.shape, given.shape_count, shape));
    Component made;
    TIERCEL_RETURN_UNLESS_OK(read_text("spec_builder_component: name", given.name, made.name));
    made.dtype = dtype_of(given.dtype);
    made.shape.assign(shape.begin(), shape.end());
    auto& components = builder->spec.groups[group].components;
    if (shape.size() > kPartsMax || components.size() >= kPartsMax)
      return invalid("spec_builder_component: too many dimensions or components");
    if (made.dtype) {
      if (given.opaque_bytes != 0)
        return invalid("spec_builder_component: opaque_bytes and a dtype; a component has one or the other");
      const auto bytes = shape_bytes(shape, *made.dtype);
      if (!bytes) return invalid("spec_builder_component: the shape's bytes pass 2^63 - 1");
      made.bytes_per_layer = *bytes;
    } else if (given.opaque_bytes == 0 && shape.empty()) {
      return unsupported(
          "spec_builder_component: opaque_bytes is 0: sizes taken from the first store are not built; give "
          "them");
    } else if (!shape.empty()) {
      return invalid("spec_builder_component: a shape needs a dtype");
    } else {
      made.bytes_per_layer = given.opaque_bytes;
    }
    components.push_back(std::move(made));
    return {};
  });
}

tiercel_status tiercel_spec_builder_finish(const tiercel_spec_builder* builder, tiercel_spec** spec,
                                           tiercel_error* error) {
  return answer(error, [&]() -> Answer {
    TIERCEL_RETURN_UNLESS_OK(check(builder));
    TIERCEL_RETURN_UNLESS_OK(check_out("spec_builder_finish: spec", spec));
    if (Status status = validate(builder->spec); !status.ok()) return status;
    return give_spec(builder->spec, spec);
  });
}

void tiercel_spec_builder_release(tiercel_spec_builder* builder) { free_handle(builder); }

tiercel_status tiercel_spec_to_json(const tiercel_spec* spec, char* text, uint64_t capacity, uint64_t* count,
                                    tiercel_error* error) {
  return answer(error, [&]() -> Answer {
    TIERCEL_RETURN_UNLESS_OK(check(spec));
    return write_string("spec_to_json", write_spec_json(spec->spec), text, capacity, count);
  });
}

void tiercel_spec_release(tiercel_spec* spec) { free_handle(spec); }

// ---- form ----

namespace {

// Errors: invalid_argument: a size or rank makes no sense, or is not the spec's; unsupported: shards
// elsewhere.
Answer check_topology(const tiercel_topology& t, const ModelSpec& spec) {
  struct Axis {
    std::string_view name;
    std::uint32_t size, rank, wanted;
  };
  const Axis axes[] = {{"tp", t.tp_size, t.tp_rank, spec.topology.tp},
                       {"pp", t.pp_size, t.pp_rank, spec.topology.pp},
                       {"cp", t.cp_size, t.cp_rank, spec.topology.cp},
                       {"dcp", t.dcp_size, t.dcp_rank, t.dcp_size},
                       {"dp", t.dp_size, t.dp_rank, t.dp_size}};
  for (const Axis& axis : axes) {
    if (axis.size == 0)
      return invalid(fmt::format("form_open: {}_size is 0; give it, 1 at least", axis.name));
    if (axis.rank != TIERCEL_ALL_RANKS && axis.rank >= axis.size)
      return invalid(
          fmt::format("form_open: {0}_rank is {1}, wanted 0 to {2} (below {0}_size), or TIERCEL_ALL_RANKS",
                      axis.name, axis.rank, axis.size - 1));
    if (axis.size != axis.wanted)
      return invalid(
          fmt::format("form_open: {}_size is {}, the spec's is {}", axis.name, axis.size, axis.wanted));
  }
  if (t.first_layer > t.last_layer)
    return invalid(fmt::format("form_open: layers {} to {}; give 0 and UINT32_MAX for all", t.first_layer,
                               t.last_layer));
  for (const Axis& axis : axes)
    if (axis.name != "dp" && axis.size > 1 && axis.rank != TIERCEL_ALL_RANKS)
      return unsupported(
          fmt::format("form_open: rank {} of {} {} ranks; this library serves a process that holds all of "
                      "them (TIERCEL_ALL_RANKS)",
                      axis.rank, axis.size, axis.name));
  if (t.dcp_size > 1)
    return unsupported(
        fmt::format("form_open: dcp_size is {}, wanted 1: decode context parallelism is not built; go on "
                    "without the cache",
                    t.dcp_size));
  if (t.replicated != 0)
    return unsupported(
        fmt::format("form_open: replicated is {}, wanted 0: replicated classes that other processes hold too "
                    "are not built; open the form in one process that holds all ranks",
                    t.replicated));
  if (t.writer == 0)
    return unsupported(
        "form_open: writer is 0, wanted 1: a process that leaves replicated classes to another is not built; "
        "set it");
  for (const Group& group : spec.groups)
    if (t.first_layer > group.layers.front() || t.last_layer < group.layers.back())
      return unsupported(
          fmt::format("form_open: layers {} to {} are a part of the model; this library serves a process "
                      "that holds all",
                      t.first_layer, t.last_layer));
  return {};
}

}  // namespace

tiercel_status tiercel_form_open(tiercel_node* node, const tiercel_spec* spec,
                                 const tiercel_form_options* options, tiercel_form** form,
                                 tiercel_error* error) {
  return answer(error, [&]() -> Answer {
    TIERCEL_RETURN_UNLESS_OK(check(node));
    TIERCEL_RETURN_UNLESS_OK(check(spec));
    TIERCEL_RETURN_UNLESS_OK(check_out("form_open: form", form));
    tiercel_form_options given{};
    TIERCEL_RETURN_UNLESS_OK(read_options("form_open", options, given));
    TIERCEL_RETURN_UNLESS_OK(check_topology(given.topology, spec->spec));
    auto handle = std::make_unique<tiercel_form>();
    handle->core = node->core;
    TIERCEL_RETURN_UNLESS_OK(node->core->locked([&](Live& live) -> Answer {
      const auto opened = live.node->open_form({spec->spec, spec->spec.topology.shards()});
      if (!opened) return opened.error();
      auto& table = live.forms[*opened];
      if (table == nullptr) table = std::make_shared<const FormTable>(*opened, live.node->form(*opened));
      handle->table = table;
      return {};
    }));
    *form = handle.release();
    return {};
  });
}

tiercel_status tiercel_form_describe(const tiercel_form* form, tiercel_form_info* info,
                                     tiercel_error* error) {
  return answer(error, [&]() -> Answer {
    TIERCEL_RETURN_UNLESS_OK(check(form));
    tiercel_form_info out{};
    out.page_tokens = form->table->form.spec.page_tokens;
    out.classes = form->table->form.classes.size();
    out.page_bytes_required = form->table->form.page_bytes_required();
    return write_sized("form_describe", out, info);
  });
}

tiercel_status tiercel_form_class(const tiercel_form* form, uint32_t class_id, tiercel_class_info* info,
                                  tiercel_error* error) {
  return answer(error, [&]() -> Answer {
    TIERCEL_RETURN_UNLESS_OK(check(form));
    TIERCEL_RETURN_UNLESS_OK(check_class(*form->table, class_id, 0));
    const ClassForm& cls = form->table->form.classes[class_id];
    const ClassTable& table = form->table->classes[class_id];
    tiercel_class_info out{};
    out.name = cls.name.c_str();
    out.record_bytes = cls.record_bytes;
    if (const auto* window = std::get_if<WindowRetention>(&cls.retention))
      out.window_tokens = window->window_tokens;
    out.window_pages = cls.window_pages();
    out.runs = table.runs.size();
    out.shards = cls.shards;
    out.components = static_cast<std::uint32_t>(table.components.size());
    out.replicated = cls.replicated ? 1 : 0;
    out.retention = cls.required()    ? TIERCEL_CLASS_REQUIRED
                    : cls.is_window() ? TIERCEL_CLASS_WINDOW
                    : cls.is_state()  ? TIERCEL_CLASS_STATE
                                      : TIERCEL_CLASS_OPTIONAL;
    return write_sized("form_class", out, info);
  });
}

tiercel_status tiercel_form_runs(const tiercel_form* form, uint32_t class_id, tiercel_run_info* runs,
                                 uint64_t capacity, uint64_t* count, tiercel_error* error) {
  return answer(error, [&]() -> Answer {
    TIERCEL_RETURN_UNLESS_OK(check(form));
    TIERCEL_RETURN_UNLESS_OK(check_class(*form->table, class_id, 0));
    return write_list<tiercel_run_info>("form_runs", form->table->classes[class_id].runs, runs, capacity,
                                        count);
  });
}

void tiercel_form_release(tiercel_form* form) { free_handle(form); }

// ---- namespace ----

namespace {

Answer read_scheme(const tiercel_identity& given, ContentIdentity& identity) {
  const bool external = given.scheme != nullptr;
  if (!external && (given.scheme_algorithm != nullptr || given.scheme_seed != nullptr ||
                    given.scheme_encoding != nullptr || given.scheme_granule_tokens != 0))
    return invalid("namespace_open: parts of a key scheme without its name");
  if (!external) return {};
  KeyScheme& scheme = identity.scheme;
  TIERCEL_RETURN_UNLESS_OK(read_text("namespace_open: scheme", given.scheme, scheme.name));
  if (given.scheme_algorithm != nullptr)
    TIERCEL_RETURN_UNLESS_OK(
        read_text("namespace_open: scheme_algorithm", given.scheme_algorithm, scheme.algorithm));
  TIERCEL_RETURN_UNLESS_OK(read_text("namespace_open: scheme_seed", given.scheme_seed, scheme.seed));
  TIERCEL_RETURN_UNLESS_OK(
      read_text("namespace_open: scheme_encoding", given.scheme_encoding, scheme.encoding));
  scheme.granule_tokens = given.scheme_granule_tokens;
  scheme.allow_weak = given.scheme_allow_weak != 0;
  if (scheme.name.empty() || scheme.name == KeyScheme{}.name)
    return invalid("namespace_open: scheme: an engine's own scheme needs a name of its own");
  return {};
}

Answer read_identity(const tiercel_identity& given, ContentIdentity& identity) {
  const struct {
    std::string_view name;
    const char* from;
    std::string* to;
  } texts[] = {{"model", given.model, &identity.model},
               {"weights", given.weights, &identity.weights},
               {"dtype", given.dtype, &identity.dtype},
               {"quantisation", given.quantisation, &identity.quantisation},
               {"rope", given.rope, &identity.rope},
               {"attention", given.attention, &identity.attention},
               {"adapter", given.adapter, &identity.adapter}};
  for (const auto& text : texts)
    TIERCEL_RETURN_UNLESS_OK(read_text(fmt::format("namespace_open: {}", text.name), text.from, *text.to));
  identity.weights_epoch = given.weights_epoch;
  std::span<const tiercel_pair> pairs;
  TIERCEL_RETURN_UNLESS_OK(read_list("namespace_open: other", given.other, given.other_count, pairs));
  if (pairs.size() > kPartsMax)
    return invalid(fmt::format("namespace_open: other: at most {} pairs", kPartsMax));
  for (const tiercel_pair& pair : pairs) {
    std::string name, value;
    TIERCEL_RETURN_UNLESS_OK(read_text("namespace_open: other: name", pair.name, name));
    TIERCEL_RETURN_UNLESS_OK(read_text("namespace_open: other: value", pair.value, value));
    if (name.empty()) return invalid("namespace_open: other: a name is empty");
    if (!identity.other.emplace(std::move(name), std::move(value)).second)
      return invalid(fmt::format("namespace_open: other: \"{}\" is given twice", pair.name));
  }
  return read_scheme(given, identity);
}

}  // namespace

tiercel_status tiercel_namespace_open(tiercel_session* session, tiercel_form* form,
                                      const tiercel_identity* identity, tiercel_namespace** ns,
                                      tiercel_error* error) {
  return answer(error, [&]() -> Answer {
    TIERCEL_RETURN_UNLESS_OK(check(session));
    TIERCEL_RETURN_UNLESS_OK(check(form));
    TIERCEL_RETURN_UNLESS_OK(check_out("namespace_open: ns", ns));
    if (session->core != form->core)
      return invalid("namespace_open: session and form are of different nodes");
    tiercel_identity given{};
    TIERCEL_RETURN_UNLESS_OK(read_options("namespace_open", identity, given));
    TIERCEL_RETURN_UNLESS_OK(check_reserved("namespace_open", given.reserved));
    NamespaceOptions wanted;
    TIERCEL_RETURN_UNLESS_OK(read_identity(given, wanted.identity));
    wanted.identity.page_tokens =
        given.page_tokens != 0 ? given.page_tokens : form->table->form.spec.page_tokens;
    wanted.bytes_min = given.bytes_min;
    if (given.bytes_max != 0) wanted.bytes_max = given.bytes_max;
    auto handle = std::make_unique<tiercel_namespace>();
    handle->core = session->core;
    handle->table = form->table;
    handle->session = session->id;
    if (given.scheme != nullptr) handle->scheme = wanted.identity.scheme.name;
    TIERCEL_RETURN_UNLESS_OK(session->core->locked([&](Live& live) -> Answer {
      const auto opened = live.node->open_namespace(session->id, form->table->id, wanted);
      if (!opened) return opened.error();
      handle->id = *opened;
      handle->root = live.node->root(*opened);
      return {};
    }));
    *ns = handle.release();
    return {};
  });
}

uint64_t tiercel_namespace_id(const tiercel_namespace* ns) { return mine(ns) ? ns->id.value() : 0; }

tiercel_status tiercel_namespace_describe(const tiercel_namespace* ns, char* text, uint64_t capacity,
                                          uint64_t* count, tiercel_error* error) {
  return answer(error, [&]() -> Answer {
    TIERCEL_RETURN_UNLESS_OK(check(ns));
    std::string described;
    TIERCEL_RETURN_UNLESS_OK(ns->core->locked([&](Live& live) -> Answer {
      described = live.node->describe(ns->id);
      return {};
    }));
    return write_string("namespace_describe", described, text, capacity, count);
  });
}

void tiercel_namespace_release(tiercel_namespace* ns) { free_handle(ns); }
