#include "disk_kills_world.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include <fmt/format.h>

#include "base/check.h"
#include "base/prng.h"

namespace tiercel::kills {

ModelSpec hybrid_spec() {
  const auto opaque = [](std::string name, std::uint64_t bytes) {
    return Component{std::move(name), {}, {}, bytes, {}};
  };
  ModelSpec spec;
  spec.model_type = "kills";
  spec.page_tokens = 16;
  spec.topology = Topology{2, 1, 1};
  spec.groups.push_back(
      {FullKind{}, Need::kRequired, {0, 2}, {opaque("k", 2048), opaque("v", 2048)}, false, 1});
  spec.groups.push_back({WindowKind{18}, Need::kSparse, {1}, {opaque("k", 1024)}, false, 1});
  spec.groups.push_back({StateKind{}, Need::kSparse, {3, 4}, {opaque("temporal", 3000)}, false, 1});
  spec.groups.push_back({FollowerKind{0}, Need::kRequired, {0, 2}, {opaque("index_k", 256)}, true, 1});
  spec.groups.push_back({FollowerKind{0}, Need::kOptional, {5}, {opaque("k", 128)}, false, 1});
  return spec;
}

// Four trees: a trunk of six pages, a branch from its fourth one, two from its end.
Tree::Tree() {
  const auto grow = [&](std::optional<std::uint32_t> from, std::uint32_t pages) {
    std::vector<std::uint32_t> chain;
    for (std::optional<std::uint32_t> page = from; page; page = parent[*page]) chain.push_back(*page);
    std::reverse(chain.begin(), chain.end());
    for (std::uint32_t i = 0; i < pages; ++i) {
      parent.push_back(chain.empty() ? std::nullopt : std::optional(chain.back()));
      depth.push_back(chain.size());
      chain.push_back(static_cast<std::uint32_t>(parent.size() - 1));
    }
    return chain;
  };
  for (int tree = 0; tree < 4; ++tree) {
    const std::vector<std::uint32_t> trunk = grow({}, 6);
    chains.push_back(grow(trunk[3], 7));
    chains.push_back(grow(trunk[5], 5));
    chains.push_back(grow(trunk[5], 5));
  }
  TIERCEL_CHECK(parent.size() == kPages);
}

std::vector<std::uint32_t> tokens_of(std::uint32_t page, std::uint64_t page_tokens) {
  std::vector<std::uint32_t> tokens(page_tokens);
  for (std::size_t i = 0; i < tokens.size(); ++i) tokens[i] = page * 1000 + static_cast<std::uint32_t>(i);
  return tokens;
}

ContentIdentity identity_of(std::uint32_t space, std::uint64_t epoch, const StorageForm& form) {
  ContentIdentity identity;
  identity.model = "kills";
  identity.weights = fmt::format("weights-{}", space);
  identity.weights_epoch = epoch;
  identity.dtype = "bf16";
  identity.page_tokens = form.spec.page_tokens;
  return identity;
}

std::vector<Key> keys_of(const Tree& tree, const Digest& root, std::uint64_t page_tokens) {
  std::vector<Key> keys;
  std::vector<KeyChain> chains;
  for (std::uint32_t page = 0; page < tree.parent.size(); ++page) {
    KeyChain chain = tree.parent[page] ? chains[*tree.parent[page]] : start_chain(root);
    keys.push_back(extend_chain(chain, page_tokens, tokens_of(page, page_tokens)).value()[0]);
    chains.push_back(chain);
  }
  return keys;
}

// ---- contents ----

namespace {

std::uint64_t word_of(std::uint64_t number, const Key& key, ClassId cls, ShardId shard, std::uint64_t index) {
  if (index == 0) return number;
  return mix64(mix64(number ^ key.words[0]) ^ (std::uint64_t{cls.value()} << 48) ^
               (std::uint64_t{shard.value()} << 56) ^ index);
}

}  // namespace

std::vector<std::byte> content(std::uint64_t number, const Key& key, ClassId cls, ShardId shard,
                               std::uint64_t bytes) {
  TIERCEL_CHECK(bytes % 8 == 0);
  std::vector<std::byte> payload(bytes);
  for (std::uint64_t i = 0; i < bytes / 8; ++i) {
    const std::uint64_t word = word_of(number, key, cls, shard, i);
    std::memcpy(payload.data() + i * 8, &word, 8);
  }
  return payload;
}

std::optional<std::uint64_t> computation_of(ByteView payload, const Key& key, ClassId cls, ShardId shard) {
  std::uint64_t number = 0;
  std::memcpy(&number, payload.data(), 8);
  for (std::uint64_t i = 1; i < payload.size() / 8; ++i) {
    std::uint64_t word = 0;
    std::memcpy(&word, payload.data() + i * 8, 8);
    if (word != word_of(number, key, cls, shard, i)) return std::nullopt;
  }
  return number;
}

// ---- promises ----

BookSet& Promises::set(std::uint32_t number) const {
  return book_.spaces[number / kClasses / kPages].pages[number / kClasses % kPages].sets[number % kClasses];
}

std::uint64_t Promises::gone(std::uint32_t space, std::uint32_t page) const {
  std::uint64_t up_to = std::max<std::uint64_t>(book_.cleared_form, book_.spaces[space].cleared);
  for (std::optional<std::uint32_t> at = page; at; at = tree_.parent[*at])
    up_to = std::max<std::uint64_t>(up_to, book_.spaces[space].pages[*at].removed);
  return up_to;
}

std::uint64_t Promises::perhaps_gone(std::uint32_t space, std::uint32_t page) const {
  std::uint64_t up_to = std::max<std::uint64_t>(book_.clearing_form, book_.spaces[space].clearing);
  for (std::optional<std::uint32_t> at = page; at; at = tree_.parent[*at])
    up_to = std::max<std::uint64_t>(up_to, book_.spaces[space].pages[*at].removing);
  return up_to;
}

void Promises::promise(std::uint32_t number_of_set, std::uint64_t number, std::uint64_t region) {
  BookSet& at = set(number_of_set);
  if (at.durable > number) return;
  at.durable = 0;  // a kill between these lines leaves no promise
  at.region = region;
  at.writes = book_.region_writes[region].load();
  at.durable = number;
}

bool Promises::may_be_evicted(std::uint32_t space, std::uint32_t page, std::uint32_t cls) const {
  const BookSet& at = set(set_number(space, page, cls));
  return book_.region_writes[at.region] != at.writes;
}

bool Promises::must_be_there(std::uint32_t space, std::uint32_t page, std::uint32_t cls) const {
  const BookSet& at = set(set_number(space, page, cls));
  return at.durable > perhaps_gone(space, page) && !may_be_evicted(space, page, cls);
}

std::uint64_t Promises::next_number(std::optional<std::uint32_t> of_set) {
  const std::uint64_t number = book_.last + 1;
  TIERCEL_CHECK(number < kOwnersMax);
  book_.owners[number] = of_set ? *of_set + 1 : 0;
  book_.last = number;
  return number;
}

std::string Promises::wrong(std::uint32_t space, std::uint32_t page, std::uint32_t cls,
                            std::uint64_t number) const {
  if (number == 0 || number > book_.last || book_.owners[number] != set_number(space, page, cls) + 1)
    return fmt::format("computation {}, of which it never was", number);
  if (number <= book_.cleared_form)
    return fmt::format("computation {}; the form was cleared up to {}", number, book_.cleared_form.load());
  if (number <= book_.spaces[space].cleared)
    return fmt::format("computation {}; cleared was up to {}", number, book_.spaces[space].cleared.load());
  for (std::optional<std::uint32_t> at = page; at; at = tree_.parent[*at])
    if (number <= book_.spaces[space].pages[*at].removed)
      return fmt::format("computation {}; page {} was removed up to {}", number, *at,
                         book_.spaces[space].pages[*at].removed.load());
  return "";
}

// ---- a cache ----

Cache::~Cache() {
  node.reset();
  executor.reset();
  log.reset();
  mortal.reset();
  drive.reset();
}

Status Cache::open_drive(const std::string& path, const Plan& plan) {
  MappedArenaOptions options;
  options.kind = plan.registered ? MappingKind::kShared : MappingKind::kAnonymous;
  options.sizes.extent_bytes = kExtentBytes;
  options.sizes.extents = kHostBytes / kExtentBytes;
  options.epoch = plan.seed | 1;
  options.touch.threads = 1;
  auto opened_arena = MappedArena::open(options);
  if (!opened_arena) return opened_arena.error();
  arena = std::make_unique<MappedArena>(std::move(*opened_arena));
  BlockDeviceOptions wanted;
  wanted.file.path = path;
  wanted.file.bytes = plan.file_bytes;
  wanted.file.create = true;
  wanted.file.direct = plan.direct;
  wanted.engine = plan.engine;
  if (plan.registered) wanted.tuning.memory = {arena->mapping().bytes()};
  auto opened = open_block_device(wanted);
  if (!opened) return opened.error();
  drive = std::make_unique<OpenedBlockDevice>(std::move(*opened));
  return {};
}

Status Cache::open_node(const Plan& plan, Clock& clock) {
  device = std::make_unique<HostDevice>(kEngineSlots * (48ULL << 10));
  executor = std::make_unique<ThreadExecutor>(1);
  NodeOptions options;
  options.host_bytes = kHostBytes;
  options.extent_bytes = kExtentBytes;
  options.client_share = 1.0;
  options.index_pages_max = options.history_entries = options.advice_entries = 512;
  options.record_bytes_max = 2200ULL << 10;
  options.disk = plan.tier;
  auto opened = Node::open(options, World{clock, *executor, arena->extents(), *device, plan.seed, nullptr,
                                          nullptr, nullptr, log.get()});
  if (!opened) return opened.error();
  node = std::move(*opened);
  const auto new_session = node->open_session({"kills", "salt", {}});
  if (!new_session) return new_session.error();
  session = *new_session;
  const ModelSpec spec = hybrid_spec();
  const auto new_form = node->open_form({spec, spec.topology.shards()});
  if (!new_form) return new_form.error();
  form = *new_form;
  std::uint64_t base = 0;
  for (const ClassForm& cls : model().classes)
    for (std::uint16_t shard = 0; shard < cls.shards; ++shard) {
      auto pool = layer_first_pool(cls, ShardId(shard), base, kEngineSlots);
      if (!pool) return pool.error();
      base += kEngineSlots * cls.record_bytes;
      pools.push_back(*pool);
      if (Status status = node->register_memory(form, std::move(*pool)); !status.ok()) return status;
    }
  TIERCEL_CHECK(base <= device->size_bytes() && model().classes.size() == kClasses);
  return {};
}

Status Cache::open_spaces(std::uint64_t epoch) {
  for (std::uint32_t space = 0; space < kSpaces; ++space) {
    const auto opened = node->open_namespace(session, form, {identity_of(space, epoch, model()), 0, {}});
    if (!opened) return opened.error();
    spaces[space] = *opened;
  }
  return {};
}

void Cache::write_engine(const DevicePool& pool, std::uint64_t slot, ByteView payload) {
  for (const DeviceRun& run : pool.runs)
    std::memcpy(device->bytes().data() + run.base + slot * run.stride, payload.data() + run.payload_offset,
                run.length);
}

std::vector<std::byte> Cache::read_engine(const DevicePool& pool, std::uint64_t slot) const {
  std::vector<std::byte> payload(model().classes[pool.cls.value()].record_bytes);
  for (const DeviceRun& run : pool.runs)
    std::memcpy(payload.data() + run.payload_offset, device->bytes().data() + run.base + slot * run.stride,
                run.length);
  return payload;
}

}  // namespace tiercel::kills
