#include "sim/scene.h"

#include <algorithm>

#include <fmt/format.h>

#include "base/check.h"
#include "memory/record.h"
#include "sim/scene_below.h"
#include "sim/scene_disk.h"
#include "sim/scene_remote.h"

namespace tiercel::sim {

Scene::~Scene() = default;
Scene::Scene(Scenario chosen, std::uint64_t seed_value)
    : scenario(std::move(chosen)), seed(seed_value), prng(mix64(seed_value)) {}

const Model& Scene::model_of(const Space& space) const {
  const auto found =
      std::find_if(models.begin(), models.end(), [&](const Model& each) { return each.id == space.form; });
  TIERCEL_CHECK(found != models.end());
  return *found;
}

std::optional<Computation> Scene::stored_computation(const Space& space, const AuditResidence& residence,
                                                     ShardId shard) const {
  const ClassForm& cls = form_of(space).classes[residence.cls.value()];
  const auto payload = arena->read(residence.spans[shard.value()], header_bytes(cls), cls.record_bytes);
  return whole_payload(cls, record_name(space, residence.key, residence.cls, shard), payload);
}

std::optional<Computation> Scene::stored_computation(const Space& space,
                                                     const AuditResidence& residence) const {
  std::optional<Computation> first;
  for (std::size_t shard = 0; shard < residence.spans.size(); ++shard) {
    const auto computation = stored_computation(space, residence, ShardId(static_cast<std::uint16_t>(shard)));
    if (!computation || (first && *first != *computation)) return std::nullopt;
    first = computation;
  }
  return first;
}

SessionOptions session_options(const Scene& scene, std::uint32_t salt, const std::string& name) {
  SessionOptions options;
  options.name = name;
  options.tenant_salt = fmt::format("tenant-{}", salt);
  if (scene.scenario.quotas && salt == 0) options.bytes_max = scene.scenario.arena_bytes / 3;
  return options;
}

Result<std::size_t> open_space(Scene& scene, std::size_t model, std::uint32_t salt, std::uint32_t adapter) {
  const Model& under = scene.models[model];
  Space space;
  space.form = under.id;
  space.salt = salt;
  ContentIdentity& identity = space.identity;
  identity.model = "simulated";
  identity.weights = scene.scenario.models[model].weights;
  identity.weights_epoch = under.epoch;
  identity.dtype = "u8";
  identity.page_tokens = under.form.spec.page_tokens;
  if (adapter != 0) identity.adapter = fmt::format("adapter-{}", adapter);
  NamespaceOptions options;
  options.identity = identity;
  if (scene.scenario.quotas) {
    std::uint64_t page = 0;
    for (const ClassForm& cls : under.form.classes) page += cls.set_bytes();
    if (scene.prng.chance(0.5)) options.bytes_min = space.bytes_min = page * scene.prng.between(1, 2);
    if (scene.prng.chance(0.5)) options.bytes_max = space.bytes_max = page * scene.prng.between(2, 6);
  }
  const auto client = std::find_if(scene.clients.begin(), scene.clients.end(),
                                   [&](const Client& each) { return each.salt == salt; });
  TIERCEL_CHECK(client != scene.clients.end());
  TIERCEL_ASSIGN_OR_RETURN(space.id, scene.node->open_namespace(client->id, under.id, options));
  space.root = short_root(scene.node->root(space.id));
  scene.space_of[space.id] = scene.spaces.size();
  scene.spaces.push_back(std::move(space));
  return scene.spaces.size() - 1;
}

namespace {

// What the node is opened in; the disk below it stays what it is.
Status open_world(Scene& scene, std::uint64_t device_bytes) {
  const Scenario& scenario = scene.scenario;
  const std::uint64_t life = scene.disk != nullptr ? scene.disk->restarts : 0;
  scene.engine.reset();
  scene.device = std::make_unique<SimDevice>(device_bytes);
  scene.arena =
      std::make_unique<SimArena>(scenario.options.extent_bytes,
                                 scenario.arena_bytes / scenario.options.extent_bytes, scenario.mapped_arena);
  scene.executor = std::make_unique<SimExecutor>(scenario.executor, mix64(scene.seed ^ 0xE0) + life);
  scene.engine = std::make_unique<Engine>(*scene.device);
  scene.index = std::make_unique<ComparedIndex>(index_sizes(scenario.options), scene.seed);
  scene.readers = std::make_unique<Readers>(scenario.readers);
  scene.writers = std::make_unique<Writers>(scenario.writers);
  if ((scenario.disk || scenario.remote) && scene.below == nullptr)
    scene.below = std::make_unique<SceneBelow>();
  if (scenario.disk)
    if (Status status = open_scene_disk(scene); !status.ok()) return status;
  if (scenario.remote)
    if (Status status = open_scene_remote(scene); !status.ok()) return status;
  World world{scene.clock,       *scene.executor,   *scene.arena,           *scene.device,
              scene.seed + life, scene.index.get(), scene.readers->table(), scene.writers.get()};
  if (scene.disk != nullptr) world.disk = scene.disk->log.get();
  if (scene.remote != nullptr) world.remote = scene.remote->tier.get();
  scene.readers->open();
  auto node = Node::open(scenario.options, world);
  if (!node) return node.error();
  scene.node = std::move(*node);
  return {};
}

Status open_clients(Scene& scene) {
  for (Client& client : scene.clients) {
    auto session = scene.node->open_session(session_options(scene, client.salt, client.name));
    if (!session) return session.error();
    client.id = *session;
  }
  return {};
}

Result<FormId> open_model(Scene& scene, const ScenarioModel& model, const StorageForm& form) {
  FormOptions options;
  options.spec = model.spec;
  options.shards_held = options.spec.topology.shards();
  TIERCEL_ASSIGN_OR_RETURN(const FormId id, scene.node->open_form(options));
  scene.engine->add_form(id, form);
  for (const auto& [cls, shard] : scene.engine->pools_of(id))
    TIERCEL_RETURN_IF_ERROR(scene.node->register_memory(id, scene.engine->pool(id, cls, shard)));
  return id;
}

}  // namespace

Status open_scene(Scene& scene) {
  const auto open = [&]() -> Result<bool> {
    const Scenario& scenario = scene.scenario;
    std::uint64_t device_bytes = 0;
    std::vector<StorageForm> forms;
    for (const ScenarioModel& each : scenario.models) {
      TIERCEL_ASSIGN_OR_RETURN(StorageForm form, make_storage_form(each.spec));
      device_bytes += Engine::bytes_needed(form);
      forms.push_back(std::move(form));
    }
    TIERCEL_RETURN_IF_ERROR(open_world(scene, device_bytes));
    for (std::uint32_t i = 0; i < scenario.sessions; ++i)
      scene.clients.push_back({SessionId{}, i % scenario.salts, fmt::format("client-{}", i), 0});
    TIERCEL_RETURN_IF_ERROR(open_clients(scene));
    for (std::size_t i = 0; i < forms.size(); ++i) {
      TIERCEL_ASSIGN_OR_RETURN(const FormId id, open_model(scene, scenario.models[i], forms[i]));
      scene.models.push_back({id, std::move(forms[i]), 0});
      for (std::uint32_t adapter = 0; adapter < scenario.models[i].adapters; ++adapter)
        TIERCEL_RETURN_IF_ERROR(open_space(scene, i, adapter % scenario.salts, adapter / scenario.salts));
    }
    return true;
  };
  const Result<bool> opened = open();
  if (!scene.scenario.history_complete) scene.book.forgotten_possible();
  return opened ? Status{} : opened.error();
}

Status reopen_scene(Scene& scene) {
  const auto open = [&]() -> Result<bool> {
    const std::uint64_t device_bytes = scene.device->size_bytes();
    TIERCEL_RETURN_IF_ERROR(open_world(scene, device_bytes));
    TIERCEL_RETURN_IF_ERROR(open_clients(scene));
    std::map<FormId, FormId> now_called;
    for (std::size_t i = 0; i < scene.models.size(); ++i) {
      Model& model = scene.models[i];
      TIERCEL_ASSIGN_OR_RETURN(const FormId id, open_model(scene, scene.scenario.models[i], model.form));
      now_called[model.id] = id;
      model.id = id;
    }
    scene.space_of.clear();
    for (std::size_t i = 0; i < scene.spaces.size(); ++i) {
      Space& space = scene.spaces[i];
      space.form = now_called.at(space.form);
      const auto client = std::find_if(scene.clients.begin(), scene.clients.end(),
                                       [&](const Client& each) { return each.salt == space.salt; });
      NamespaceOptions options{space.identity, space.bytes_min, space.bytes_max};
      TIERCEL_ASSIGN_OR_RETURN(space.id, scene.node->open_namespace(client->id, space.form, options));
      scene.space_of[space.id] = i;
    }
    return true;
  };
  const Result<bool> opened = open();
  return opened ? Status{} : opened.error();
}

std::size_t prompt_below(Scene& scene, std::size_t space, std::optional<std::size_t> parent,
                         std::size_t branch) {
  const auto& siblings = parent ? scene.prompts[*parent].next : scene.spaces[space].first_pages;
  if (branch < siblings.size()) return siblings[branch];
  const Space& in = scene.spaces[space];
  Prompt prompt;
  prompt.ns = space;
  prompt.parent = parent;
  prompt.chain = parent ? scene.prompts[*parent].chain : start_chain(scene.node->root(in.id));
  prompt.token_seed = mix64((parent ? scene.prompts[*parent].token_seed : 7) * 31 + siblings.size());
  const std::uint64_t page_tokens = scene.form_of(in).spec.page_tokens;
  std::vector<std::uint32_t> tokens(page_tokens);
  Prng stream(prompt.token_seed);
  for (std::uint32_t& token : tokens) token = static_cast<std::uint32_t>(stream.next());
  const auto keys = extend_chain(prompt.chain, page_tokens, std::span<const std::uint32_t>(tokens));
  TIERCEL_CHECK(keys.has_value() && keys->size() == 1);
  prompt.key = keys->front();
  prompt.length = parent ? scene.prompts[*parent].length + 1 : 1;
  if (!parent) prompt.probe = probe_from_tokens(std::span<const std::uint32_t>(tokens));
  scene.prompts.push_back(std::move(prompt));
  const std::size_t made = scene.prompts.size() - 1;
  (parent ? scene.prompts[*parent].next : scene.spaces[space].first_pages).push_back(made);
  return made;
}

}  // namespace tiercel::sim
