// What can happen in a simulated world: one step is one of these, chosen by weight. Each makes at most one
// call that changes the node's state, so that whatever follows is that call's doing.
//
// Threads: one thread.
#pragma once

#include <string>

#include "sim/scene.h"

namespace tiercel::sim {

inline constexpr std::uint64_t kPhaseSteps = 150;  // so long the workload keeps its ways

// Chooses and carries out one action. Returns: its name.
std::string act(Scene& scene);

// After a step's answers are known and before they are judged: what its match leased, and with what bytes.
void note_match(Scene& scene);
// After the judgement: operations that ended give their engine slots back, tickets that expired are gone.
void settle(Scene& scene);

// -- requests --
void advance_request(Scene& scene);
void abort_request(Scene& scene);
void attach_later(Scene& scene);
void offer_pages(Scene& scene);
void give_up_storing(Scene& scene);
void ask_advice(Scene& scene);
void release_ticket(Scene& scene);
// Ends a request's tickets, reservations and work in the simulator's own books.
void forget_request(Scene& scene, RequestId request, bool aborted);
StoreItem make_item(const Scene& scene, std::size_t prompt, ClassId cls, ShardId shard);
SimRequest new_request(Scene& scene, std::size_t client, std::size_t space);
bool choose_client_and_space(Scene& scene, std::size_t& client, std::size_t& space);
// What the engine itself calls a page: nothing, or bytes that follow from its key.
ExternalDigest external_name(const Key& key);
void note_answer(Scene& scene, const SimRequest& request, const StoreItem& item, StoreOutcome outcome);

// -- loads and reservations --
void start_load(Scene& scene);
void load_ticket(Scene& scene, TicketId ticket);
void reserve_pages(Scene& scene);
void use_reservation(Scene& scene);
void cancel_operation(Scene& scene);
void fire_event(Scene& scene);
void fire_all_events(Scene& scene);

// -- control --
void remove_page(Scene& scene);
void remove_leaf(Scene& scene);
void remove_awaited(Scene& scene);  // a page that a match waits for; over a lower tier
void replace_page(Scene& scene);
void clear_pages(Scene& scene);
void clear_storing(Scene& scene);  // a namespace of which something is on its way to a store
void clear_form(Scene& scene, const Model& model);
void next_epoch(Scene& scene);
void pin_pages(Scene& scene);
void touch_pages(Scene& scene);
void replace_memory(Scene& scene);
void suspend_or_resume(Scene& scene);
void close_session(Scene& scene);
void reopen_memory(Scene& scene);
Status close_client(Scene& scene, std::size_t client);

// -- the world --
void act_reader(Scene& scene);
void act_writer(Scene& scene);
void run_tasks(Scene& scene);
void poll_node(Scene& scene);
void jump_clock(Scene& scene);
void damage_record(Scene& scene);
void fail_device(Scene& scene);

}  // namespace tiercel::sim
