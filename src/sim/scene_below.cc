#include "sim/scene_below.h"

#include <algorithm>

#include <fmt/format.h>

#include "sim/scene_disk.h"
#include "sim/scene_remote.h"

namespace tiercel::sim {

void choose_promotion(Scene& scene, MatchQuery& query) {
  if (scene.below == nullptr || !scene.prng.chance(0.7)) return;
  query.may_promote = true;
  if (scene.prng.chance(0.5)) query.deadline = std::chrono::milliseconds(scene.prng.between(1, 800));
}

void prefetch_pages(Scene& scene) {
  if (scene.requests.empty()) return;
  const SimRequest& request = scene.requests[scene.prng.below(scene.requests.size())];
  if (request.path.empty()) return;
  std::vector<Key> keys;
  keys.reserve(request.path.size());
  for (const std::size_t prompt : request.path) keys.push_back(scene.prompts[prompt].key);
  PrefetchRequest call;
  call.session = scene.clients[request.client].id;
  call.ns = scene.spaces[request.space].id;
  if (scene.prng.chance(0.5)) call.request = request.id;
  call.keys = keys;
  call.policy = static_cast<PrefetchPolicy>(scene.prng.below(3));
  const Duration patience = scene.prng.chance(0.5)
                                ? Duration(std::chrono::milliseconds(scene.prng.between(1, 800)))
                                : scene.scenario.options.operation_deadline;
  call.deadline = patience;
  const SimWaiting waiting{{}, scene.clock.now() + patience, 0};
  const auto answer = scene.node->prefetch(call);
  if (!answer) return;
  scene.coverage.hit("node_prefetch");
  scene.below->prefetches.emplace(*answer, waiting);
  if (scene.prng.chance(0.2)) {
    scene.node->cancel(*answer);
    scene.coverage.hit("node_prefetch_cancelled");
  }
}

bool below_is_idle(const Scene& scene) {
  if (!scene.below->matches.empty() || !scene.below->prefetches.empty()) return false;
  return (scene.disk == nullptr || disk_is_idle(scene)) && (scene.remote == nullptr || remote_is_idle(scene));
}

void advance_below(Scene& scene) {
  if (scene.remote != nullptr && (scene.disk == nullptr || scene.prng.chance(0.5)))
    return advance_store(scene);
  advance_drive(scene);
}

// ---- what came of them ----

namespace {

void match_ended(Scene& scene, const Completion& completion) {
  SceneBelow& below = *scene.below;
  const auto at = below.matches.find(completion.ticket);
  if (at == below.matches.end()) {
    below.wrong.push_back(
        fmt::format("ticket {} is ready twice, or was never pending", completion.ticket.value()));
    return;
  }
  auto waiting = below.matches.extract(at);
  SimTicket ticket = std::move(waiting.mapped().ticket.value());
  waiting.mapped().ticket.reset();
  if (completion.status.code == Code::kDeadlineExceeded) scene.coverage.hit("node_match_deadline");
  const TicketView* view = scene.node->ticket(completion.ticket);
  const auto request =
      std::find_if(scene.requests.begin(), scene.requests.end(),
                   [&](const SimRequest& each) { return each.waits_for == completion.ticket; });
  if (request != scene.requests.end()) request->waits_for.reset();
  if (view == nullptr) return;  // it was released
  ticket.view = *view;
  ticket.matched = scene.clock.now();
  ticket.step = scene.view.step;
  if (view->promoted_pages != 0) scene.coverage.hit("node_promoted");
  if (view->remote_pages != 0) scene.coverage.hit("remote_promoted");
  if (request != scene.requests.end()) {
    request->next_page = view->length;
    if (view->length > ticket.first_page) request->to_load = ticket.id;
  }
  below.answered.insert(std::move(waiting));
  scene.tickets.emplace(ticket.id, std::move(ticket));
}

}  // namespace

void settle_below(Scene& scene) {
  if (scene.below == nullptr) return;
  scene.below->answered.clear();
  for (const Completion& completion : scene.view.completions) {
    if (completion.kind == CompletionKind::kMatched) match_ended(scene, completion);
    if (completion.kind == CompletionKind::kPrefetched &&
        scene.below->prefetches.erase(completion.operation) == 0)
      scene.below->wrong.push_back(fmt::format("prefetch {} has ended twice", completion.operation.value()));
  }
}

}  // namespace tiercel::sim
