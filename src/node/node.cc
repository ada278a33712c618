// Opening: the node, forms, namespaces, engine memory.

#include "node/node.h"

#include <algorithm>

#include <fmt/format.h>

#include "base/check.h"
#include "base/checked.h"
#include "base/prng.h"
#include "device/device_pool.h"
#include "index/compact_index.h"
#include "node/state.h"

namespace tiercel {

std::uint64_t book_bytes(const NodeOptions& options) {
  const auto index = compact::plan_image(index_sizes(options));
  return (index ? index->bytes : kSizeMax / 2) + History::nominal_bytes(options.history_entries) +
         ReuseModel::nominal_bytes(options.advice_entries) + options.disk.host_bytes;
}

// A row for each record and a single for every fourth page: most models have one class for all pages beside
// the first, and the others near resume points only.
compact::Sizes index_sizes(const NodeOptions& options) {
  compact::Sizes sizes;
  sizes.pages_max = options.index_pages_max;
  sizes.strips =
      options.index_strips_max != 0
          ? options.index_strips_max
          : std::max<std::uint64_t>(64, ceil_div(options.index_pages_max, std::uint64_t{compact::kCells}));
  sizes.rows = sizes.strips;
  sizes.singles =
      std::min<std::uint64_t>(compact::kSinglesMax, std::max<std::uint64_t>(64, options.index_pages_max / 4));
  return sizes;
}

Node::Node(std::unique_ptr<State> state) : state_(std::move(state)) {}
Node::~Node() = default;

Node::State::State(NodeOptions node_options, World node_world, std::uint64_t extents,
                   std::unique_ptr<PageIndex> index)
    : options(node_options),
      world(node_world),
      space(SpaceOptions{node_options.extent_bytes, extents, 64}),
      history(node_options.history_entries),
      reuse(node_options.advice_entries),
      own_index(std::move(index)),
      pages(own_index != nullptr ? *own_index : *node_world.index),
      copies_done(std::make_shared<CopyDoneQueue>()) {
  PolicyOptions policy_options;
  policy_options.capacity_in_bytes = !options.pages_max.has_value();
  policy_options.capacity = options.pages_max
                                ? *options.pages_max
                                : options.record_bytes_max.value_or(extents * options.extent_bytes);
  policy_options.seed = world.seed;
  policy_options.reuse = &reuse;
  policy_options.bytes_now = [this](CandidateId point) { return point_payload(page_of(point)); };
  policy = make_policy(options.policy, policy_options);
  // Generations stand in records that outlive the node: those of two runs shall differ.
  if (world.disk != nullptr)
    last_generation = static_cast<std::uint32_t>(mix64(world.seed ^ world.disk->last_at()));
  stats.host_bytes_granted = options.host_bytes;
  stats.arena_bytes = extents * options.extent_bytes;
}

Result<Grant> divide_grant(NodeOptions options) {
  const auto bad = [](std::string why) { return error(Code::kInvalidArgument, "open: " + std::move(why)); };
  if (options.host_bytes == 0) return bad("host_bytes is 0; say how much host memory the cache may take");
  if (options.host_bytes > kSizeMax) return bad("host_bytes is above 2^63 - 1");
  if (options.extent_bytes < 512 || !std::has_single_bit(options.extent_bytes))
    return bad(
        fmt::format("extent_bytes is {}, wanted a power of two of at least 512", options.extent_bytes));
  if (options.sampled_one_in == 0) return bad("sampled_one_in is 0, wanted at least 1");
  if (!(options.client_share > 0 && options.client_share <= 1))
    return bad(fmt::format("client_share is {}, wanted above 0 and at most 1", options.client_share));
  if (options.index_pages_max == 0)
    options.index_pages_max = std::max<std::uint64_t>(1024, options.host_bytes / (64 << 10));
  if (options.history_entries == 0) options.history_entries = options.index_pages_max;
  constexpr std::uint64_t kEntriesMax = std::uint64_t{1} << 36;
  if (std::max({options.index_pages_max, options.history_entries, options.advice_entries}) > kEntriesMax)
    return bad(
        fmt::format("index_pages_max is {}, history_entries {}, advice_entries {}: wanted at most 2^36 each",
                    options.index_pages_max, options.history_entries, options.advice_entries));
  if (options.advice_entries == 0) options.advice_entries = 2 * options.index_pages_max;
  const std::uint64_t books = book_bytes(options);
  if (books > options.host_bytes || options.host_bytes - books < options.extent_bytes)
    return bad(fmt::format(
        "host_bytes is {}: index ({} pages), history ({} entries) and advice ({} entries) take {}, "
        "and at least one extent of {} must remain; give more or lower index_pages_max, "
        "history_entries and advice_entries",
        options.host_bytes, options.index_pages_max, options.history_entries, options.advice_entries, books,
        options.extent_bytes));
  const std::uint64_t extents = (options.host_bytes - books) / options.extent_bytes;
  if (extents >= UINT32_MAX)
    return bad(fmt::format("host_bytes is {}: more than 2^32 extents of {}; use larger extents",
                           options.host_bytes, options.extent_bytes));
  if (options.in_flight_bytes_max == 0) options.in_flight_bytes_max = extents * options.extent_bytes;
  return Grant{options, extents};
}

Result<std::unique_ptr<Node>> Node::open(NodeOptions options, World world) {
  TIERCEL_ASSIGN_OR_RETURN(const Grant grant, divide_grant(options));
  const std::uint64_t bytes = grant.extents * grant.options.extent_bytes;
  if (world.arena.size_bytes() < bytes)
    return error(Code::kInvalidArgument,
                 fmt::format("open: the arena has {} bytes, the grant needs {}; give a larger arena or less "
                             "host_bytes",
                             world.arena.size_bytes(), bytes));
  std::unique_ptr<PageIndex> index;
  if (world.index == nullptr) {
    TIERCEL_ASSIGN_OR_RETURN(index, CompactIndex::create(index_sizes(grant.options), world.seed));
  }
  return std::unique_ptr<Node>(
      new Node(std::make_unique<State>(grant.options, world, grant.extents, std::move(index))));
}

// With a disk, records of some length begin and end at whole blocks: the drive reads and writes them in
// place.
std::uint64_t Node::State::slot_of(const ClassForm& cls) const {
  constexpr std::uint64_t kInPlaceBytes = 64 << 10;
  const std::uint64_t bytes = slot_bytes(cls);
  return world.disk != nullptr && bytes >= kInPlaceBytes ? ceil_div(bytes, kBlockBytes) * kBlockBytes : bytes;
}

Result<FormId> Node::open_form(FormOptions options) {
  State& s = *state_;
  const std::uint32_t shards = options.spec.topology.shards();
  if (shards != options.shards_held)
    return error(
        Code::kUnsupported,
        fmt::format(
            "open_form: the topology has {} shards (tp {} x pp {} x cp {}) and this process holds {}; this "
            "version "
            "serves one process that holds them all, so open it with shards_held = {} or run one rank",
            shards, options.spec.topology.tp, options.spec.topology.pp, options.spec.topology.cp,
            options.shards_held, shards));
  if (shards > 64)
    return error(Code::kUnsupported, fmt::format("open_form: {} shards, at most 64 in one process", shards));
  TIERCEL_ASSIGN_OR_RETURN(StorageForm made, make_storage_form(std::move(options.spec)));
  for (const auto& [id, known] : s.forms)
    if (*known->form == made) return id;
  std::uint64_t records_a_page = 0;
  for (const ClassForm& cls : made.classes) records_a_page += cls.shards;
  if (records_a_page > kSetsMax)
    return error(Code::kUnsupported,
                 fmt::format("open_form: a page has {} records (classes x shards), at most {}",
                             records_a_page, kSetsMax));
  auto form = std::make_unique<Form>();
  const auto number = s.next_small_id();
  if (!number)
    return error(Code::kResourceExhausted, "open_form: 2^32 forms were opened; open the node anew");
  form->id = FormId(*number);
  form->form = std::make_shared<const StorageForm>(std::move(made));
  auto sets = static_cast<std::uint32_t>(form->form->classes.size());
  for (const ClassForm& cls : form->form->classes) {
    const Presence bit = Presence{1} << cls.id.value();
    if (cls.required()) form->required |= bit;
    if (cls.is_state()) form->states |= bit;
    if (cls.is_window()) form->windows |= bit;
    const std::uint64_t header = header_bytes(cls);
    const std::uint64_t slot = s.slot_of(cls);
    form->header_bytes.push_back(header);
    form->slot_bytes.push_back(slot);
    // One resume point: a page, the window before it, one snapshot; all shards of it.
    const std::uint64_t floor = std::max<std::uint64_t>(1, cls.window_pages()) * cls.shards;
    form->pools.push_back(s.space.add_pool(PoolSpec{slot, floor}));
    form->further_sets.push_back(sets);
    sets += cls.shards - 1U;
  }
  const FormId id = form->id;
  if (s.world.disk != nullptr) form->weights_epoch = s.world.disk->weights_epoch(form->form->fingerprint);
  s.forms.emplace(id, std::move(form));
  return id;
}

Result<NamespaceId> Node::open_namespace(SessionId session, FormId form_id, NamespaceOptions options) {
  State& s = *state_;
  const auto opened = s.sessions.find(session);
  if (opened == s.sessions.end())
    return error(Code::kInvalidArgument,
                 fmt::format("open_namespace: session {} is not open", session.value()));
  const auto form = s.forms.find(form_id);
  if (form == s.forms.end())
    return error(Code::kInvalidArgument, fmt::format("open_namespace: form {} is not open", form_id.value()));
  if (!options.identity.tenant_salt.empty())
    return error(Code::kInvalidArgument,
                 "open_namespace: tenant_salt must be empty in the identity; it is taken from the session");
  options.identity.tenant_salt = opened->second.options.tenant_salt;
  TIERCEL_RETURN_IF_ERROR(validate(options.identity));
  const std::uint64_t page_tokens = form->second->form->spec.page_tokens;
  if (options.identity.page_tokens != page_tokens)
    return error(Code::kInvalidArgument,
                 fmt::format("open_namespace: page_tokens is {} in the identity and {} in the form; a "
                             "namespace has one page size",
                             options.identity.page_tokens, page_tokens));
  auto ns = std::make_unique<Namespace>();
  ns->root = root_digest(options.identity);
  if (const auto known = s.namespace_by_content.find({ns->root, form_id});
      known != s.namespace_by_content.end()) {
    Namespace& again = s.space_of(known->second);
    again.bytes_min = options.bytes_min;
    again.bytes_max = options.bytes_max;
    return known->second;
  }
  const auto number = s.next_small_id();
  if (!number)
    return error(Code::kResourceExhausted, "open_namespace: 2^32 namespaces were opened; open the node anew");
  ns->id = NamespaceId(*number);
  ns->form = form->second.get();
  ns->identity = std::move(options.identity);
  ns->bytes_min = options.bytes_min;
  ns->bytes_max = options.bytes_max;
  ns->pages_mark = ns->combined_mark();
  s.open_on_disk(*ns);
  s.open_on_remote(*ns);
  const NamespaceId id = ns->id;
  s.namespace_by_content.emplace(std::pair(ns->root, form_id), id);
  s.namespaces.emplace(id, std::move(ns));
  return id;
}

const StorageForm& Node::form(FormId form) const { return *state_->forms.at(form)->form; }
const StorageForm& Node::form_of(NamespaceId ns) const { return *state_->namespaces.at(ns)->form->form; }
Digest Node::root(NamespaceId ns) const { return state_->namespaces.at(ns)->root; }

std::string Node::describe(NamespaceId ns) const {
  const Namespace& space = *state_->namespaces.at(ns);
  return canonical_text(space.identity) + space.form->form->canonical;
}

Status Node::register_memory(FormId form_id, DevicePool pool) {
  State& s = *state_;
  const auto at = s.forms.find(form_id);
  if (at == s.forms.end())
    return {Code::kInvalidArgument, fmt::format("register_memory: form {} is not open", form_id.value())};
  Form& form = *at->second;
  if (s.suspended)
    return {Code::kFailedPrecondition, "register_memory: the node is suspended; call resume first"};
  if (pool.cls.value() >= form.form->classes.size())
    return {Code::kInvalidArgument,
            fmt::format("register_memory: class {} does not exist", pool.cls.value())};
  const ClassForm& cls = form.form->classes[pool.cls.value()];
  if (pool.shard.value() >= cls.shards)
    return {Code::kInvalidArgument, fmt::format("register_memory: class {} has {} shards, not one number {}",
                                                cls.name, cls.shards, pool.shard.value())};
  if (Status status = validate(pool, cls, s.world.device.size_bytes()); !status.ok()) return status;
  if (Status status = unregister_memory(form_id, pool.cls, pool.shard);
      !status.ok() && status.code != Code::kNotFound)
    return status;
  const std::pair name(pool.cls, pool.shard);
  form.engine[name] = std::make_shared<const DevicePool>(std::move(pool));
  return {};
}

Status Node::unregister_memory(FormId form_id, ClassId cls, ShardId shard) {
  const auto at = state_->forms.find(form_id);
  if (at == state_->forms.end()) return {Code::kNotFound, "unregister_memory: the form is not open"};
  const auto pool = at->second->engine.find({cls, shard});
  if (pool == at->second->engine.end())
    return {Code::kNotFound, "unregister_memory: no memory is registered for this class and shard"};
  if (pool->second.use_count() > 1)
    return {Code::kFailedPrecondition,
            "unregister_memory: copies are using it; wait for their completions, cancel them, or suspend the "
            "node"};
  at->second->engine.erase(pool);
  return {};
}

}  // namespace tiercel
