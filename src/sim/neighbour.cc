#include "sim/neighbour.h"

#include <algorithm>

#include "base/check.h"
#include "memory/record.h"
#include "sim/actions.h"

namespace tiercel::sim {
namespace {

constexpr std::uint64_t kSeed = 0x4E16B0;

Digest own_seed(std::uint64_t seed) {
  Digest digest{};
  store_le<std::uint64_t>(digest.data(), mix64(seed ^ kSeed));
  return digest;
}

}  // namespace

Neighbour::Neighbour(TwinObjects& objects, Scene& scene)
    : store_(objects, scene.clock, scene.scenario.remote->neighbours, mix64(scene.seed ^ kSeed)),
      executor_(scene.scenario.executor, mix64(scene.seed ^ kSeed) + 1) {
  RemoteTierOptions options = scene.scenario.remote->tier;
  options.known_for = std::chrono::milliseconds(10);  // it stores again what others have there
  auto opened = RemoteTier::open(options, store_, scene.clock, executor_, own_seed(scene.seed));
  TIERCEL_CHECK(opened.has_value());
  tier_ = std::move(*opened);
}

Neighbour::~Neighbour() = default;

void Neighbour::poll(const Scene& scene) {
  note_generations(scene);
  executor_.run_all();
  tier_->poll();
  for (const RemoteTierEvent& event : tier_->drain_events())
    if (event.kind == RemoteTierEvent::Kind::kWritten || event.kind == RemoteTierEvent::Kind::kLost)
      appends_.erase(event.append);
}

RemoteSpaceId Neighbour::space_of(const Scene& scene, const Space& space) {
  RemoteSpaceName name;
  name.root = scene.node->root(space.id);
  name.form = std::make_shared<const StorageForm>(scene.form_of(space));
  for (const ClassForm& cls : name.form->classes)
    name.record_bytes.push_back(header_bytes(cls) + cls.record_bytes);
  return tier_->open_space(name);
}

void Neighbour::note_generations(const Scene& scene) {
  for (const AuditResidence& each : scene.view.before.residences)
    if (const std::pair name{PageId{each.ns, each.key}, each.cls};
        each.storing || !generations_.contains(name))
      generations_[name] = each.generation;
}

Neighbour::Memory Neighbour::record(const Scene& scene, const Prompt& page, ClassId id,
                                    Computation computation) const {
  const Space& space = scene.spaces[page.ns];
  const StorageForm& form = scene.form_of(space);
  const ClassForm& cls = form.classes[id.value()];
  const auto generation = generations_.find({{space.id, page.key}, id});
  Memory memory;
  for (std::uint16_t shard = 0; shard < cls.shards; ++shard) {
    const std::vector<std::byte> payload =
        make_payload(cls, scene.record_name(space, page.key, id, ShardId(shard)), computation);
    RecordLabel label;
    label.root = scene.node->root(space.id);
    label.key = page.key;
    label.cls = id;
    label.shard = ShardId(shard);
    label.external = external_name(page.key);
    label.generation = generation != generations_.end() ? generation->second : 1;
    std::vector<std::byte>& bytes = memory.emplace_back(header_bytes(cls));
    encode_header(make_header(form, label, cls.record_bytes, run_checksums(cls, payload)), bytes);
    bytes.insert(bytes.end(), payload.begin(), payload.end());
  }
  return memory;
}

void Neighbour::append(Scene& scene, const Prompt& page, ClassId id, Computation computation) {
  const Space& space = scene.spaces[page.ns];
  Memory memory = record(scene, page, id, computation);
  RemoteEntry entry;
  entry.name = {space_of(scene, space), page.key, id};
  if (page.parent) entry.parent = scene.prompts[*page.parent].key;
  entry.length = page.length;
  for (std::vector<std::byte>& shard : memory) entry.shards.push_back({{shard.data(), shard.size()}});
  const RemoteAnswer answer = tier_->append(std::move(entry));
  if (answer.verdict != RemoteVerdict::kAccepted) return;
  appends_.emplace(answer.append, std::move(memory));
  StoreItem item;
  item.key = page.key;
  if (page.parent) item.parent = scene.prompts[*page.parent].key;
  item.length = page.length;
  item.cls = id;
  for (std::uint16_t shard = 0; shard < scene.form_of(space).classes[id.value()].shards; ++shard) {
    item.shard = ShardId(shard);
    scene.book.accepted({space.id, page.key}, item, computation);
  }
  scene.coverage.hit("neighbour_stored");
}

void Neighbour::store(Scene& scene) {
  if (scene.prompts.empty()) return;
  std::size_t at = scene.prng.below(scene.prompts.size());
  const Space& space = scene.spaces[scene.prompts[at].ns];
  if (space.dead) return;
  const Computation computation = kNeighboursComputation + ++computations_;
  const bool all = scene.prng.chance(0.7);
  for (std::uint64_t pages = all ? UINT64_MAX : scene.prng.between(1, 4); pages != 0; --pages) {
    const Prompt& page = scene.prompts[at];
    for (const ClassForm& cls : scene.form_of(space).classes)
      if (cls.required() || scene.prng.chance(0.6)) append(scene, page, cls.id, computation);
    if (!page.parent) break;
    at = *page.parent;
  }
}

// Where one shard's object went and another's is left, the two are of two computations then.
void Neighbour::store_again(Scene& scene, std::string_view object) {
  const Computation computation = kNeighboursComputation + ++computations_;
  for (const Prompt& page : scene.prompts) {
    if (object.find(to_hex(page.key)) == std::string_view::npos || scene.spaces[page.ns].dead) continue;
    for (const ClassForm& cls : scene.form_of(scene.spaces[page.ns]).classes)
      append(scene, page, cls.id, computation);
  }
}

void Neighbour::clear(Scene& scene) {
  const Space& space = scene.spaces[scene.prng.below(scene.spaces.size())];
  if (scene.prng.chance(0.7))
    tier_->clear(space_of(scene, space));
  else
    tier_->clear_form(scene.form_of(space).fingerprint);
  scene.coverage.hit("neighbour_cleared");
}

// So that it knows what is there, and does not store it again.
void Neighbour::look_up(Scene& scene) {
  if (scene.prompts.empty()) return;
  std::vector<Key> keys;
  std::size_t at = scene.prng.below(scene.prompts.size());
  const Space& space = scene.spaces[scene.prompts[at].ns];
  for (;; at = *scene.prompts[at].parent) {
    keys.push_back(scene.prompts[at].key);
    if (!scene.prompts[at].parent) break;
  }
  std::reverse(keys.begin(), keys.end());
  (void)tier_->look_up({space_of(scene, space), 0, keys, {}});
}

void Neighbour::trouble(Scene& scene) {
  if (!store_.health().ready)
    store_.revive();
  else if (store_.hung())
    store_.hang(false);
  else if (scene.prng.chance(0.5))
    store_.hang(true);
  else
    store_.kill();
}

void Neighbour::calm() {
  store_.calm();
  store_.nature().objects_bytes_max = UINT64_MAX;
}
void Neighbour::restless(const Scene& scene) { store_.nature() = scene.scenario.remote->neighbours; }

bool Neighbour::idle() const {
  return store_.under_way() == 0 && appends_.empty() && !tier_->clearing() && executor_.held() == 0 &&
         tier_->stats().exchange_used_bytes == 0;
}

}  // namespace tiercel::sim
