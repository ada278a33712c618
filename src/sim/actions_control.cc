// Removal, clearing, weight updates, pins, memory registration, suspension, ends of sessions.

#include <algorithm>

#include <fmt/format.h>

#include "base/check.h"
#include "sim/actions.h"
#include "sim/scene_below.h"
#include "sim/scene_disk.h"
#include "sim/scene_remote.h"

namespace tiercel::sim {
namespace {

std::vector<PageId> visible_pages(const Scene& scene) {
  std::vector<PageId> pages;
  for (const auto& [page, record] : scene.book.pages())
    if (record.visible) pages.push_back(page);
  return pages;
}

bool work_under_way(const Scene& scene, NamespaceId ns, bool loads) {
  return std::any_of(scene.operations.begin(), scene.operations.end(), [&](const auto& each) {
    const SimOperation& operation = each.second;
    return !operation.ended() && scene.spaces[operation.space].id == ns &&
           (operation.kind == SimOperation::Kind::kLoad) == loads;
  });
}

// Pages of which records are being written now.
std::set<PageId> being_written(const Scene& scene) {
  std::set<PageId> pages;
  for (const AuditResidence& each : scene.view.before.residences)
    if ((each.state == ResidenceState::kWriting || each.state == ResidenceState::kStaged) &&
        !scene.cleared_generations.contains(each.generation))
      pages.insert({each.ns, each.key});
  return pages;
}

// The page and all that must go with it, what is still being written included.
std::set<PageId> tree_of(const Scene& scene, const PageId& top) {
  std::set<PageId> tree{top};
  for (const PageId& page : scene.book.descendants(top)) tree.insert(page);
  const auto writing = being_written(scene);
  for (bool grown = true; grown;) {
    grown = false;
    for (const PageId& page : writing) {
      const auto parent = scene.book.parent(page);
      if (parent && tree.contains(*parent) && tree.insert(page).second) grown = true;
    }
  }
  return tree;
}

// Pages below `top` of which only lower tiers have anything: the disk knows the whole of a chain, and what a
// store has goes with its namespace.
std::vector<PageId> tree_below(const Scene& scene, const PageId& top) {
  std::vector<PageId> tree;
  if (scene.below == nullptr) return tree;
  std::set<PageId> in_memory;
  for (const AuditResidence& each : scene.view.before.residences)
    if (each.state != ResidenceState::kHidden) in_memory.insert({each.ns, each.key});
  const std::size_t space = scene.space_of.at(top.ns);
  std::set<std::size_t> below;
  for (std::size_t i = 0; i < scene.prompts.size(); ++i) {  // children come after their parents
    const Prompt& each = scene.prompts[i];
    const bool child = each.parent && below.contains(*each.parent);
    if (each.ns != space || (each.key != top.key && !child)) continue;
    below.insert(i);
    if (const PageId page{top.ns, each.key}; !in_memory.contains(page)) tree.push_back(page);
  }
  return tree;
}

// Without a lower tier there is nothing that could fail. A store is asked again as long as the node lives.
void note_record(Scene& scene, const Status& status) {
  if (status.ok()) return;
  TIERCEL_CHECK(scene.below != nullptr && status.code == Code::kUnavailable);
  if (status.message.find("the remote store") != std::string::npos) {
    TIERCEL_CHECK(scene.remote != nullptr && scene.remote->tier->clearing());
    scene.coverage.hit("remote_clear_unconfirmed");
    return;
  }
  TIERCEL_CHECK(scene.disk != nullptr);
  scene.disk->unrecorded = true;
  scene.coverage.hit("node_removal_unrecorded");
}

void clear_space(Scene& scene, const Space& space) {
  for (const AuditResidence& each : scene.view.before.residences)
    if (each.ns == space.id) scene.cleared_generations.insert(each.generation);
  scene.cleared_spaces.insert(space.id);
  scene.view.note += fmt::format("namespace {} ", space.id.value());
  if (work_under_way(scene, space.id, false)) scene.coverage.hit("clear_with_work_under_way");
  scene.book.cleared(space.id);
}

void remove_tree(Scene& scene, const PageId& top) {
  std::set<PageId> tree = tree_of(scene, top);
  for (const PageId& page : tree_below(scene, top)) tree.insert(page);
  for (const PageId& page : tree) scene.view.note += to_hex(page.key).substr(0, 6) + " ";
  note_record(scene, scene.node->remove(top.ns, std::span(&top.key, 1)));
  for (const PageId& page : tree) {
    scene.book.removed(page);
    scene.pins.erase(page);
  }
  ++scene.disturbances;
}

bool pool_in_use(const Scene& scene, FormId form, ClassId cls, ShardId shard) {
  return !scene.engine->idle(form, cls, shard);
}

void end_session_work(Scene& scene, SessionId session) {
  for (auto& [id, ticket] : scene.tickets)
    if (ticket.session == session) ticket.gone = true;
  for (auto& [id, reservation] : scene.reservations)
    if (reservation.session == session) reservation.ended = true;
  for (auto& [id, operation] : scene.operations)
    if (operation.session == session) operation.session_closed = true;
}

}  // namespace

void remove_page(Scene& scene) {
  PageId top;
  const std::vector<PageId> visible = visible_pages(scene);
  const auto writing = being_written(scene);
  if (!writing.empty() && scene.prng.chance(0.3)) {
    top = *std::next(writing.begin(), static_cast<std::ptrdiff_t>(scene.prng.below(writing.size())));
  } else if (!visible.empty()) {
    top = visible[scene.prng.below(visible.size())];
  } else {
    return;
  }
  if (work_under_way(scene, top.ns, true)) scene.coverage.hit("remove_with_load");
  if (writing.contains(top)) scene.coverage.hit("remove_with_store");
  remove_tree(scene, top);
}

void remove_awaited(Scene& scene) {
  const auto& matches = scene.below->matches;
  if (matches.empty() || (scene.disk != nullptr && scene.scenario.disk->nature.lies())) return;
  const auto at = std::next(matches.begin(), static_cast<std::ptrdiff_t>(scene.prng.below(matches.size())));
  const SimTicket& ticket = *at->second.ticket;
  if (ticket.keys.empty()) return;
  scene.coverage.hit("remove_with_promotion");
  remove_tree(scene, {scene.spaces[ticket.space].id, ticket.keys[scene.prng.below(ticket.keys.size())]});
}

void remove_leaf(Scene& scene) {
  std::vector<PageId> leaves;
  for (const PageId& page : visible_pages(scene))
    if (scene.book.descendants(page).empty()) leaves.push_back(page);
  if (!leaves.empty()) remove_tree(scene, leaves[scene.prng.below(leaves.size())]);
}

// A page goes while one of its sparse records is on its way, and comes back at once without it.
void replace_page(Scene& scene) {
  std::vector<const AuditResidence*> late;
  for (const AuditResidence& each : scene.view.before.residences) {
    const Space& space = scene.spaces[scene.space_of.at(each.ns)];
    const ClassForm& cls = scene.form_of(space).classes[each.cls.value()];
    if (each.state == ResidenceState::kWriting && each.page_visible && !cls.required() && each.copies != 0 &&
        !space.dead)
      late.push_back(&each);
  }
  if (late.empty()) return;
  const AuditResidence& chosen = *late[scene.prng.below(late.size())];
  const PageId page{chosen.ns, chosen.key};
  const std::size_t space = scene.space_of.at(page.ns);
  const auto prompt = std::find_if(scene.prompts.begin(), scene.prompts.end(), [&](const Prompt& each) {
    return each.ns == space && each.key == page.key;
  });
  const auto client = std::find_if(scene.clients.begin(), scene.clients.end(),
                                   [&](const Client& each) { return each.salt == scene.spaces[space].salt; });
  remove_tree(scene, page);
  SimRequest request = new_request(scene, static_cast<std::size_t>(client - scene.clients.begin()), space);
  for (const ClassForm& cls : scene.form_of(scene.spaces[space]).classes)
    for (std::uint16_t shard = 0; shard < cls.shards; ++shard)
      if (cls.required())
        request.to_store.push_back(make_item(scene, static_cast<std::size_t>(prompt - scene.prompts.begin()),
                                             cls.id, ShardId(shard)));
  request.matched = request.urgent = true;
  scene.requests.push_back(std::move(request));
}

void clear_form(Scene& scene, const Model& model) {
  note_record(scene, scene.node->clear(model.id));
  for (const Space& space : scene.spaces)
    if (space.form == model.id) clear_space(scene, space);
}

void clear_pages(Scene& scene) {
  ++scene.disturbances;
  if (scene.prng.chance(0.2)) return clear_form(scene, scene.models[scene.prng.below(scene.models.size())]);
  // One that has something to clear, if there is any.
  const std::vector<PageId> visible = visible_pages(scene);
  const Space& space = visible.empty()
                           ? scene.spaces[scene.prng.below(scene.spaces.size())]
                           : scene.spaces[scene.space_of.at(visible[scene.prng.below(visible.size())].ns)];
  if (scene.prng.chance(0.5))
    note_record(scene, scene.node->clear(space.id));
  else
    note_record(scene, scene.node->invalidate(space.id));
  clear_space(scene, space);
}

// Rather where the first page of a chain is on its way: behind one that is not there nothing is asked for.
void clear_storing(Scene& scene) {
  if (!scene.scenario.remote->clears) return;
  const AuditResidence* chosen = nullptr;
  for (const AuditResidence& each : scene.view.before.residences)
    if (each.storing && (chosen == nullptr || !scene.book.parent({each.ns, each.key}))) chosen = &each;
  if (chosen == nullptr) return;
  const Space& space = scene.spaces[scene.space_of.at(chosen->ns)];
  ++scene.disturbances;
  scene.coverage.hit("remote_cleared_while_storing");
  note_record(scene, scene.node->clear(space.id));
  clear_space(scene, space);
}

void next_epoch(Scene& scene) {
  constexpr std::uint64_t kEpochs = 6;
  const std::size_t index = scene.prng.below(scene.models.size());
  Model& model = scene.models[index];
  if (model.epoch == kEpochs) return;
  ++scene.disturbances;
  ++model.epoch;
  bool busy = false;
  for (Space& space : scene.spaces) {
    if (space.form != model.id || space.dead) continue;
    busy = busy || work_under_way(scene, space.id, false) || work_under_way(scene, space.id, true);
    space.dead = true;
    clear_space(scene, space);
  }
  if (busy) scene.coverage.hit("epoch_with_work_under_way");
  note_record(scene, scene.node->set_weights_epoch(model.id, model.epoch));
  for (std::uint32_t salt = 0; salt < scene.scenario.salts; ++salt)
    TIERCEL_CHECK(open_space(scene, index, salt, 0).has_value());
}

void pin_pages(Scene& scene) {
  const std::vector<PageId> visible = visible_pages(scene);
  if (visible.empty()) return;
  const PageId page = visible[scene.prng.below(visible.size())];
  const std::vector<Key> keys{page.key};
  if (scene.prng.chance(0.2)) {
    scene.node->unpin(page.ns, keys);
    scene.pins.erase(page);
    return;
  }
  scene.view.note = to_hex(page.key).substr(0, 6);
  const Duration ttl = std::chrono::milliseconds(scene.prng.between(10, 3000));
  scene.node->pin(page.ns, keys, ttl);
  // A shorter pin over a longer one: only the shorter is held against the node.
  const Time until = scene.clock.now() + ttl;
  const auto old = scene.pins.find(page);
  scene.pins[page] =
      old != scene.pins.end() && old->second > scene.clock.now() ? std::min(old->second, until) : until;
  scene.coverage.hit("pinned");
}

void touch_pages(Scene& scene) {
  const std::vector<PageId> visible = visible_pages(scene);
  if (visible.empty()) return;
  const PageId page = visible[scene.prng.below(visible.size())];
  const std::vector<Key> keys{page.key};
  scene.node->touch(page.ns, keys);
}

void replace_memory(Scene& scene) {
  if (scene.suspended || scene.suspending) return;
  const Model& model = scene.models[scene.prng.below(scene.models.size())];
  const auto pools = scene.engine->pools_of(model.id);
  const auto [cls, shard] = pools[scene.prng.below(pools.size())];
  if (pool_in_use(scene, model.id, cls, shard)) {
    // The same addresses again: refused while copies use them, else nothing changes.
    const Status status = scene.node->register_memory(model.id, scene.engine->pool(model.id, cls, shard));
    if (!status.ok()) {
      TIERCEL_CHECK(status.code == Code::kFailedPrecondition);
      scene.coverage.hit("memory_replacement_refused");
    }
    return;
  }
  scene.engine->relocate(model.id, cls, shard);
  const Status status = scene.node->register_memory(model.id, scene.engine->pool(model.id, cls, shard));
  if (status.ok()) {
    scene.coverage.hit("memory_replaced");
  } else {
    TIERCEL_CHECK(status.code == Code::kFailedPrecondition);
    scene.engine->relocate(model.id, cls, shard);
  }
}

// After a resume everything is registered anew, some of it elsewhere.
void reopen_memory(Scene& scene) {
  for (const Model& model : scene.models)
    for (const auto& [cls, shard] : scene.engine->pools_of(model.id)) {
      if (!pool_in_use(scene, model.id, cls, shard) && scene.prng.chance(0.5))
        scene.engine->relocate(model.id, cls, shard);
      TIERCEL_CHECK(scene.node->register_memory(model.id, scene.engine->pool(model.id, cls, shard)).ok());
    }
}

void suspend_or_resume(Scene& scene) {
  if (scene.suspending) return;
  if (scene.suspended) {
    scene.node->resume();
    scene.suspended = false;
    reopen_memory(scene);
    return;
  }
  if (scene.executor->held() != 0) scene.coverage.hit("suspended_with_transfers");
  scene.node->suspend();
  scene.suspending = true;
}

Status close_client(Scene& scene, std::size_t client) {
  const SessionId session = scene.clients[client].id;
  scene.view.note = fmt::format("session {}", session.value());
  if (std::any_of(scene.operations.begin(), scene.operations.end(),
                  [&](const auto& each) { return each.second.session == session && !each.second.ended(); }))
    scene.coverage.hit("session_closed_with_work");
  Status closed = scene.node->close_session(session);
  scene.clients[client].id = SessionId{};
  end_session_work(scene, session);
  std::erase_if(scene.requests, [&](const SimRequest& each) { return each.client == client; });
  return closed;
}

void close_session(Scene& scene) {
  const std::size_t client = scene.prng.below(scene.clients.size());
  TIERCEL_CHECK(close_client(scene, client).ok());
  Client& again = scene.clients[client];
  const auto opened = scene.node->open_session(session_options(scene, again.salt, again.name));
  TIERCEL_CHECK(opened.has_value());
  again.id = *opened;
}

}  // namespace tiercel::sim
