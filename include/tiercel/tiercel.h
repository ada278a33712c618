/* Tiercel: a hierarchical KV cache for LLM serving. The stable C ABI, version 1; the values are in types.h
 * and writers.h, the disk tier is in disk.h.
 *
 * What a program does: open a node, a session, the model's form and a namespace; register the engine's
 * memory; make keys from tokens; match, load, and store what was computed. Everything of a node lives in this
 * process.
 *
 * Rules for every call, said once:
 *   - Returns a tiercel_status. When it is not TIERCEL_OK, `error` (may be NULL) says why and no output was
 * touched.
 *   - Errors of every call: invalid_argument (a handle or required pointer is NULL, a handle of another kind,
 * an option or enumeration value makes no sense), failed_precondition (the node was closed), wrong_process
 * (the handle was made before a fork; in the child nothing of the node may be used or freed), internal.
 * Others are named at the call.
 *   - Threads: every call may be made from any thread at any time, also on one handle, except that a handle
 * may not be used while or after it is given back. None blocks, except those whose comment begins with
 * "Waits", which take a deadline, 0 meaning "only look", and opening and closing a node, building host pools
 * and giving a copy back, which take none, and removals and clears of a node with a disk. A call takes the
 * node's lock for as long as its stated cost.
 *   - Callbacks: none ever runs on a thread of ours.
 *   - Ownership: arrays that go in are read during the call only, except the memory of the engine itself,
 * which must stay as the call says. Handles are given back by the caller, also after their node was closed;
 * NULL is ignored there.
 *   - Arrays that come out: the caller gives `capacity` and gets in *count how many there are; at most
 * `capacity` are written. More than fitted is no error. With capacity 0 the array may be NULL.
 *   - Batches: lists that belong together and have other lengths are invalid_argument before anything is
 * touched; empty is success; the same key twice acts as two calls in a row.
 *   - The environment variable TIERCEL_OFF, set to anything but "" or "0" when a node is opened, turns its
 * cache off: every match misses (tier_down), exists finds nothing, stores are refused with unavailable.
 * Nothing else changes.
 */
#ifndef TIERCEL_TIERCEL_H
#define TIERCEL_TIERCEL_H

#include <tiercel/types.h>
#include <tiercel/writers.h>

#if defined(__GNUC__)
#define TIERCEL_API __attribute__((visibility("default")))
#else
#define TIERCEL_API
#endif

/* NOLINTBEGIN: names and constructs are those of C. */
#ifdef __cplusplus
extern "C" {
#endif

/* ---- names; pure ---- */
/* TIERCEL_ABI_VERSION of the library that was found. */
TIERCEL_API uint32_t tiercel_abi_version(void);
/* Printable, never NULL, live for ever: "invalid_argument", "not_admitted(no_room)", "already_present". Of a
 * value that the library does not know: "unknown". */
TIERCEL_API const char* tiercel_status_name(tiercel_status status);
TIERCEL_API const char* tiercel_reason_name(tiercel_reason reason);
TIERCEL_API const char* tiercel_outcome_name(tiercel_outcome outcome);

/* ---- node ---- */
/* Takes the memory and starts the threads that the options ask for.
 * Waits: while the arena is touched; `progress` may give it up. Errors: cancelled, resource_exhausted (the
 * machine or its control group has not that much memory; the disk has not that much room), unsupported (host
 * mode); with a disk also failed_precondition (another process has it, named by its pid; it holds something
 * else, or a log of another version or size, which is left as it is), io_error. Cost: O(host_bytes), in
 * parallel; with a disk also the image of its index and what was written since. */
TIERCEL_API tiercel_status tiercel_node_open(const tiercel_node_options* options, tiercel_node** node,
                                             tiercel_error* error);
/* Ends everything under way (each operation gets its last completion, calls that wait return cancelled),
 * gives memory and threads back, and the handle. Other handles of the node answer failed_precondition from
 * now on. Waits: for copies that run, which are short; with a disk for close_write_down at most, while
 * resident pages are written down. Errors: wrong_process (nothing is done or freed). */
TIERCEL_API tiercel_status tiercel_node_close(tiercel_node* node, tiercel_error* error);
/* Threading `caller`: does what is due, copies included, until nothing is or `budget_ns` is used up (at least
 * one step); *steps, when not NULL, is how many things it did. Under `control` it is not needed and does no
 * harm. Cost: the budget, and at most one copy of one record beyond. */
TIERCEL_API tiercel_status tiercel_poll(tiercel_node* node, uint64_t budget_ns, uint64_t* steps,
                                        tiercel_error* error);
/* A client: its tenant salt is mixed into every identity it opens, its memory is bounded. Options may be
 * NULL. */
TIERCEL_API tiercel_status tiercel_session_open(tiercel_node* node, const tiercel_session_options* options,
                                                tiercel_session** session, tiercel_error* error);
/* As if its process had exited: every ticket, reservation, load and store of it ends (with completions).
 * Frees. */
TIERCEL_API tiercel_status tiercel_session_close(tiercel_session* session, tiercel_error* error);

/* ---- model ---- */
/* The spec of a published `config.json` (text of `size` bytes). Options may be NULL. Errors: invalid_argument
 * that names the field. Cost: O(size). No node is needed. */
TIERCEL_API tiercel_status tiercel_spec_from_config(const char* text, uint64_t size,
                                                    const tiercel_config_options* options,
                                                    tiercel_spec** spec, tiercel_error* error);
/* The same of our own JSON form (docs/guide/specs.md); `page_tokens` not 0: for that page size instead of its
 * own. */
TIERCEL_API tiercel_status tiercel_spec_from_json(const char* text, uint64_t size, uint64_t page_tokens,
                                                  tiercel_spec** spec, tiercel_error* error);
/* Piece by piece: groups are numbered in the order of the calls, from 0; at most 4,096 of each thing. finish
 * checks the whole, leaves the builder as it is, and may be called again. A builder is for one thread at a
 * time. Errors: invalid_argument naming the field; unsupported: an opaque component of 0 bytes (its size
 * would come with the first store). */
TIERCEL_API tiercel_status tiercel_spec_builder_create(const tiercel_spec_options* options,
                                                       tiercel_spec_builder** builder, tiercel_error* error);
TIERCEL_API tiercel_status tiercel_spec_builder_group(tiercel_spec_builder* builder,
                                                      const tiercel_group_options* options, uint32_t* group,
                                                      tiercel_error* error);
TIERCEL_API tiercel_status tiercel_spec_builder_component(tiercel_spec_builder* builder, uint32_t group,
                                                          const tiercel_component_options* options,
                                                          tiercel_error* error);
TIERCEL_API tiercel_status tiercel_spec_builder_finish(const tiercel_spec_builder* builder,
                                                       tiercel_spec** spec, tiercel_error* error);
TIERCEL_API void tiercel_spec_builder_release(tiercel_spec_builder* builder);
/* JSON that tiercel_spec_from_json reads; *count is its length without a NUL, and none is written. */
TIERCEL_API tiercel_status tiercel_spec_to_json(const tiercel_spec* spec, char* text, uint64_t capacity,
                                                uint64_t* count, tiercel_error* error);
TIERCEL_API void tiercel_spec_release(tiercel_spec* spec);

/* The storage form of `spec` in this node: its classes. The same spec again is the same form.
 * Errors: unsupported: the topology needs shards that this process does not hold. */
TIERCEL_API tiercel_status tiercel_form_open(tiercel_node* node, const tiercel_spec* spec,
                                             const tiercel_form_options* options, tiercel_form** form,
                                             tiercel_error* error);
/* What the form consists of; constant, no lock. Errors: invalid_argument: no such class. */
TIERCEL_API tiercel_status tiercel_form_describe(const tiercel_form* form, tiercel_form_info* info,
                                                 tiercel_error* error);
TIERCEL_API tiercel_status tiercel_form_class(const tiercel_form* form, uint32_t class_id,
                                              tiercel_class_info* info, tiercel_error* error);
/* Every component of every layer, in record order. */
TIERCEL_API tiercel_status tiercel_form_runs(const tiercel_form* form, uint32_t class_id,
                                             tiercel_run_info* runs, uint64_t capacity, uint64_t* count,
                                             tiercel_error* error);
TIERCEL_API void tiercel_form_release(tiercel_form* form); /* the form itself stays in the node */

/* One content identity under one form, for one session. The same again is the same pages. Cost: O(1): ten
 * thousand adapters are ten thousand of these. Errors: invalid_argument naming the field; a weak key scheme
 * that is not allowed by name. */
TIERCEL_API tiercel_status tiercel_namespace_open(tiercel_session* session, tiercel_form* form,
                                                  const tiercel_identity* identity, tiercel_namespace** ns,
                                                  tiercel_error* error);
TIERCEL_API uint64_t
tiercel_namespace_id(const tiercel_namespace* ns); /* in events and reasons; 0 for NULL */
/* Identity and form, printable, the salt as its SHA-256; as tiercel_spec_to_json gives text. */
TIERCEL_API tiercel_status tiercel_namespace_describe(const tiercel_namespace* ns, char* text,
                                                      uint64_t capacity, uint64_t* count,
                                                      tiercel_error* error);
TIERCEL_API void tiercel_namespace_release(tiercel_namespace* ns); /* its pages stay */

/* ---- keys; no lock, any number of threads ---- */
/* The chain before the first page. */
TIERCEL_API tiercel_status tiercel_key_chain_start(const tiercel_namespace* ns, tiercel_key_chain* chain,
                                                   tiercel_error* error);
/* Extends *chain by the whole pages in `tokens` and gives their keys, oldest first; the tokens of a last
 * partial page are left alone. token_width 1: one id each; 2: pairs, `token_count` positions of two ids.
 * `extras`: one per new page, or NULL and 0. *probe, when not NULL: of the first page when the chain stood
 * before it, else zero. Errors: invalid_argument; resource_exhausted: capacity is below the number of new
 * pages (here nothing is written, and the chain stays). Cost: one SHA-256 over 4 bytes a token; nothing known
 * is hashed again. */
TIERCEL_API tiercel_status tiercel_keys_from_tokens(const tiercel_namespace* ns, tiercel_key_chain* chain,
                                                    const uint32_t* tokens, uint64_t token_count,
                                                    uint32_t token_width, const tiercel_extras* extras,
                                                    uint64_t extras_count, tiercel_key* keys,
                                                    uint64_t capacity, uint64_t* count, tiercel_probe* probe,
                                                    tiercel_error* error);
/* Keys of `count` digests of the engine's own scheme (the identity names it), `digest_bytes` each (1 to 64),
 * `stride` apart. They are not chained by us. *probe, when not NULL: of the first digest. Errors:
 * invalid_argument. */
TIERCEL_API tiercel_status tiercel_keys_from_digests(const tiercel_namespace* ns, const void* digests,
                                                     uint64_t count, uint64_t digest_bytes, uint64_t stride,
                                                     tiercel_key* keys, tiercel_probe* probe,
                                                     tiercel_error* error);

/* ---- match ---- */
/* Which prefix lengths can be restored; leases what the longest needs until the ticket is released, expires
 * (ticket_ttl) or its request ends. Ready at once, unless pages are brought up (may_promote): then it is
 * pending until they are there, or the deadline has passed and what came by then counts. With a cq one
 * completion comes, of status cancelled when the ticket ended before. Errors: resource_exhausted (tickets,
 * requests or completions that wait). Cost: O(keys × classes). */
TIERCEL_API tiercel_status tiercel_match(tiercel_namespace* ns, const tiercel_match_options* options,
                                         tiercel_ticket** ticket, tiercel_error* error);
/* Per key: TIERCEL_OK, or TIERCEL_NOT_FOUND when that class of the page is not visible, in any tier. No
 * lease, no use. */
TIERCEL_API tiercel_status tiercel_exists(const tiercel_namespace* ns, uint32_t class_id,
                                          const tiercel_key* keys, uint64_t key_count,
                                          tiercel_status* statuses, tiercel_error* error);
TIERCEL_API uint64_t tiercel_ticket_id(const tiercel_ticket* ticket); /* in completions; 0 for NULL */
TIERCEL_API tiercel_status tiercel_ticket_poll(const tiercel_ticket* ticket, tiercel_state* state,
                                               tiercel_error* error);
/* Waits until the ticket is not pending. Errors: deadline_exceeded; cancelled: it ended before it was ready.
 */
TIERCEL_API tiercel_status tiercel_ticket_wait(const tiercel_ticket* ticket, uint64_t deadline_ns,
                                               tiercel_error* error);
/* The answer stays readable when the ticket has ended; of one that ended while it was pending it is length 0.
 * Errors of these four: unavailable: pending.
 * lengths: ascending pages, always beginning with 0. resident: per class, pages of the query whose class-set
 * is in `tier`, whatever other tiers have it (unsupported for tiers that the node has not). reasons: every
 * page beyond the longest length, and the tail, exactly once. */
TIERCEL_API tiercel_status tiercel_ticket_lengths(const tiercel_ticket* ticket, uint64_t* lengths,
                                                  uint64_t capacity, uint64_t* count, tiercel_error* error);
TIERCEL_API tiercel_status tiercel_ticket_summary(const tiercel_ticket* ticket, tiercel_ticket_counts* counts,
                                                  tiercel_error* error);
TIERCEL_API tiercel_status tiercel_ticket_resident(const tiercel_ticket* ticket, tiercel_tier tier,
                                                   uint64_t* pages, uint64_t capacity, uint64_t* count,
                                                   tiercel_error* error);
TIERCEL_API tiercel_status tiercel_ticket_reasons(const tiercel_ticket* ticket, tiercel_miss* misses,
                                                  uint64_t capacity, uint64_t* count, tiercel_error* error);
/* Lengths at which a snapshot is expected to save more than its room is worth, ascending; the same question
 * has the same answer. Errors: not_found: the ticket has ended. */
TIERCEL_API tiercel_status tiercel_snapshot_advice(tiercel_ticket* ticket,
                                                   const tiercel_advice_options* options, uint64_t* lengths,
                                                   uint64_t capacity, uint64_t* count, tiercel_error* error);
/* Gives up a pending match and ends the ticket's leases (loads under way keep theirs). Idempotent. */
TIERCEL_API tiercel_status tiercel_ticket_cancel(tiercel_ticket* ticket, tiercel_error* error);
/* The handle; with the last handle of the ticket its leases too. */
TIERCEL_API void tiercel_ticket_release(tiercel_ticket* ticket);
/* A ticket as bytes, so that a scheduler can match and a worker load. Import makes another handle of the same
 * ticket, which must not have ended, in a session of the same node and tenant. The bytes grant nothing to
 * another tenant. Errors of import: invalid_argument (damaged), not_found (ended), unsupported (of another
 * node or process). */
TIERCEL_API tiercel_status tiercel_ticket_export(const tiercel_ticket* ticket, void* bytes, uint64_t capacity,
                                                 uint64_t* count, tiercel_error* error);
TIERCEL_API tiercel_status tiercel_ticket_import(tiercel_session* session, const void* bytes, uint64_t size,
                                                 tiercel_ticket** ticket, tiercel_error* error);

/* ---- the engine's memory ---- */
/* Where the slots of one class and shard lie; replaces an earlier registration. The memory must stay until it
 * is unregistered or the node is suspended or closed. Errors: failed_precondition (copies use the earlier
 * one, or loads and stores with memory of their own; suspended), unsupported (fd, device). Cost: O(runs ×
 * entries). */
TIERCEL_API tiercel_status tiercel_register_memory(tiercel_form* form, const tiercel_memory_options* options,
                                                   tiercel_error* error);
/* Waits until no operation uses it, then forgets it. Errors: not_found, deadline_exceeded (it stays
 * registered). */
TIERCEL_API tiercel_status tiercel_unregister_memory(tiercel_form* form, uint32_t class_id, uint32_t shard,
                                                     uint64_t deadline_ns, tiercel_error* error);
/* Waits until no store reads these slots any more: an engine that preempts may then reuse them.
 * Errors: deadline_exceeded. Cost: O(slots). */
TIERCEL_API tiercel_status tiercel_wait_sources(tiercel_form* form, uint32_t class_id, uint32_t shard,
                                                const uint64_t* slots, uint64_t slot_count,
                                                uint64_t deadline_ns, tiercel_error* error);
/* A number for `after_event`: what names it waits until it has fired. At most 65,536 have not fired
 * (resource_exhausted). fire is idempotent, and harmless from any thread. Operations end at their deadline
 * all the same. */
TIERCEL_API tiercel_status tiercel_event_create(tiercel_node* node, uint64_t* event, tiercel_error* error);
TIERCEL_API tiercel_status tiercel_event_fire(tiercel_node* node, uint64_t event, tiercel_error* error);

/* ---- load ---- */
/* Starts copying into the engine's memory what a resume at `length` needs of the target classes. The targets'
 * memory is the cache's until a completion with the flag QUIET. *operation: give it back at any time; NULL:
 * not wanted. whole: everything is verified, then the length is told, maybe shorter than asked. layered: a
 * layer's completion comes once that layer of every page is verified and in place; before the first the
 * length may shrink; after it damage fails the load (data_corrupt) and no later layer comes: discard that
 * forward pass. A page whose load failed for a request is not offered to that request again. Errors:
 * not_found (the ticket has ended), resource_exhausted, failed_precondition (memory not registered,
 * suspended), invalid_argument (length, targets, layers). Cost: O(pages × targets); bytes move on other
 * threads. */
TIERCEL_API tiercel_status tiercel_load(tiercel_ticket* ticket, const tiercel_load_options* options,
                                        tiercel_operation** operation, tiercel_error* error);

/* ---- operations: loads, stores, commits, suspensions ---- */
TIERCEL_API uint64_t
tiercel_operation_id(const tiercel_operation* operation); /* in completions; 0 for NULL */
TIERCEL_API tiercel_status tiercel_operation_poll(const tiercel_operation* operation, tiercel_state* state,
                                                  tiercel_error* error);
/* Waits until `until` was given: a completion kind, or 0: the last one. TIERCEL_COMPLETION_QUIESCENT here:
 * until nothing touches the operation's memory. Whether it went well is in the result. Errors:
 * deadline_exceeded; invalid_argument (the operation never has such a completion), cancelled (the node was
 * closed meanwhile). */
TIERCEL_API tiercel_status tiercel_operation_wait(const tiercel_operation* operation,
                                                  tiercel_completion_kind until, uint64_t deadline_ns,
                                                  tiercel_error* error);
/* Waits until `layer` is verified and in place, or the whole load ended well.
 * Errors: deadline_exceeded; what the load ended with when that layer will never come. */
TIERCEL_API tiercel_status tiercel_wait_layer(const tiercel_operation* operation, uint32_t layer,
                                              uint64_t deadline_ns, tiercel_error* error);
/* How it ended. Errors: unavailable: not yet (load: before `loaded`, store: before `source_free`). */
TIERCEL_API tiercel_status tiercel_operation_result_read(const tiercel_operation* operation,
                                                         tiercel_operation_result* result,
                                                         tiercel_error* error);
/* One per entry of target number `target`, in the order of tiercel_load_options. */
TIERCEL_API tiercel_status tiercel_load_outcomes(const tiercel_operation* operation, uint64_t target,
                                                 tiercel_load_outcome* outcomes, uint64_t capacity,
                                                 uint64_t* count, tiercel_error* error);
/* One per item: what tiercel_store answered, then what became of it. Readable at any time. */
TIERCEL_API tiercel_status tiercel_store_outcomes(const tiercel_operation* operation,
                                                  tiercel_outcome* outcomes, uint64_t capacity,
                                                  uint64_t* count, tiercel_error* error);
/* A request: the operation ends with `cancelled` (or with what was faster). Memory is the caller's again only
 * at the completion with the flag QUIET. */
TIERCEL_API tiercel_status tiercel_operation_cancel(tiercel_operation* operation, tiercel_error* error);
TIERCEL_API void tiercel_operation_release(tiercel_operation* operation); /* the handle only: it goes on */

/* ---- store ---- */
/* Reserves room and starts copying the items that are accepted. `outcomes` (one per item, may be NULL) is how
 * each was admitted; items that were refused need nothing more. Sources must stay until source_free. The
 * operation has exactly one `source_free` and one `visible`, also when nothing was accepted. *operation as in
 * tiercel_load. Errors: resource_exhausted (operations), failed_precondition (suspended), unavailable
 * (switched off). Cost: O(items), with a bounded amount of eviction for each; bytes move on other threads. */
TIERCEL_API tiercel_status tiercel_store(tiercel_namespace* ns, const tiercel_store_options* options,
                                         tiercel_outcome* outcomes, tiercel_operation** operation,
                                         tiercel_error* error);
/* For each key the class-sets that the write policy wants now, one bit per class. Storing what is not wanted
 * is allowed. */
TIERCEL_API tiercel_status tiercel_offer(tiercel_namespace* ns, const tiercel_offer_options* options,
                                         uint64_t* wanted, tiercel_error* error);
/* For writers that put bytes into the arena themselves: room for the items, seen by nobody until commit. Item
 * sources, after_event, deadline and cq are not read; the deadline is the node's reservation_ttl.
 * writer_pid: another process writes, which has mapped the arena's file (docs/guide/outside-writers.md). What
 * it holds and was not committed is never used again while it lives: at the deadline, at abort, and at the
 * end of request or session it is quarantined, charged to the session, until that process has exited (noticed
 * by the control thread within a tick, or by tiercel_poll) or tiercel_writer_stopped says that it writes no
 * more. When it exits the deadline comes near (writer_grace): what it had finished can be committed until
 * then. Errors: as tiercel_store; for a writer also not_found (it has exited), invalid_argument (this very
 * process, no process), resource_exhausted (descriptors), failed_precondition (the arena is not shared
 * memory), unsupported (the kernel has no pidfd). */
TIERCEL_API tiercel_status tiercel_reserve(tiercel_namespace* ns, const tiercel_store_options* options,
                                           tiercel_outcome* outcomes, tiercel_reservation** reservation,
                                           tiercel_error* error);
/* Where the payload of item number `item` is to be written, in record order: record_bytes in all. Writable
 * until commit, abort or the deadline (until then slots are quarantined, not reused). Errors: not_found: not
 * accepted, or ended. */
TIERCEL_API tiercel_status tiercel_reservation_spans(const tiercel_reservation* reservation, uint64_t item,
                                                     tiercel_segment* spans, uint64_t capacity,
                                                     uint64_t* count, tiercel_error* error);
/* The same as pieces of the arena's file, for another process: in the byte order of the writer's layout, a
 * name or an axis order ("layer_first", "page_first", "record" …: docs/guide/layouts.md; NULL: record order),
 * each piece one run of one component of one layer on both sides. The pieces are together the payload, each
 * byte once. Errors: also failed_precondition: the arena is private memory, open the node with memory_kind
 * TIERCEL_MEMORY_SHARED; invalid_argument: the layout; resource_exhausted: more than 2^22 pieces.
 * Cost: O(pieces). */
TIERCEL_API tiercel_status tiercel_reservation_segments(const tiercel_reservation* reservation, uint64_t item,
                                                        const char* layout, tiercel_file_segment* segments,
                                                        uint64_t capacity, uint64_t* count,
                                                        tiercel_error* error);
/* CRC-32C of bytes; with the sum of earlier bytes as `before` (else 0), of both in a row. Pure. */
TIERCEL_API uint32_t tiercel_crc32c(const void* data, uint64_t size, uint32_t before);
/* Checksums and publishes what has arrived, in place: an operation like a store's; the reservation has ended.
 * Options or their arrivals may be NULL: everything has arrived. With arrivals only what they name: the rest
 * ends as not_arrived, and with it every class-set of which it is a part. To name an item is to promise that
 * nobody writes to it any more. A page becomes visible when its required class-sets are whole. The writer's
 * checksums are compared with those of the bytes (damaged: the item is not visible), or trusted without
 * reading the payload. No byte is delivered by right of trust: a record with trusted checksums, or of another
 * process, is verified before anything of it is delivered unverified, whatever the node's verification, and
 * as long as that process lives. Errors: not_found (ended before), failed_precondition (its deadline passed;
 * the slots are given back, or when the outside writer has exited), invalid_argument (an item named twice or
 * not there, checksums that are not one for each layer; the reservation stays). */
TIERCEL_API tiercel_status tiercel_commit(tiercel_reservation* reservation,
                                          const tiercel_commit_options* options,
                                          tiercel_operation** operation, tiercel_error* error);
/* The same for sparse and optional class-sets that come after their page. Errors: also invalid_argument (an
 * item is of a required class), failed_precondition (neither the host tier nor the disk has a page any more,
 * or yet; the reservation stays). */
TIERCEL_API tiercel_status tiercel_attach(tiercel_reservation* reservation,
                                          const tiercel_commit_options* options,
                                          tiercel_operation** operation, tiercel_error* error);
/* Gives the room back; nothing is stored. The caller vouches for writers in this process only: what another
 * one may write to is quarantined. Idempotent; success after a commit, too, with no effect. */
TIERCEL_API tiercel_status tiercel_abort(tiercel_reservation* reservation, tiercel_error* error);
/* The caller vouches that the outside writer writes nothing more to this reservation, before or after its
 * end: what is quarantined of it returns now, and abort frees at once. Idempotent; without such a writer no
 * effect. */
TIERCEL_API tiercel_status tiercel_writer_stopped(tiercel_reservation* reservation, tiercel_error* error);
/* Other processes that hold slots, by pid. */
TIERCEL_API tiercel_status tiercel_writers_read(tiercel_node* node, tiercel_writer_info* writers,
                                                uint64_t capacity, uint64_t* count, tiercel_error* error);
TIERCEL_API void tiercel_reservation_release(
    tiercel_reservation* reservation); /* aborts what was not committed */

/* ---- requests ---- */
/* Errors: already_exists (under way), resource_exhausted, unsupported (priority, salt). Optional: a match or
 * store that names an unknown request begins it. */
TIERCEL_API tiercel_status tiercel_request_begin(tiercel_session* session,
                                                 const tiercel_request_options* options,
                                                 tiercel_error* error);
/* Ends its tickets; loads and stores go on. Unknown requests are success, here and below. */
TIERCEL_API tiercel_status tiercel_request_end(tiercel_session* session, uint64_t request,
                                               tiercel_error* error);
/* Ends all its tickets, loads, stores, reservations and prefetches. Idempotent. */
TIERCEL_API tiercel_status tiercel_request_abort(tiercel_session* session, uint64_t request,
                                                 tiercel_error* error);

/* ---- lifetime of pages; keys that are not resident are passed over; cost O(keys) unless said ---- */
/* Brings pages up from lower tiers, ahead of a match; disk.h says how to read what came. Its only completion
 * is `prefetched`. Errors: unsupported: the node has no lower tier; resource_exhausted; unavailable (switched
 * off). Cost: O(keys). */
TIERCEL_API tiercel_status tiercel_prefetch(tiercel_namespace* ns, const tiercel_prefetch_options* options,
                                            tiercel_operation** operation, tiercel_error* error);
/* Not evicted for `ttl_ns` (1 at least); removal still removes. */
TIERCEL_API tiercel_status tiercel_pin(tiercel_namespace* ns, const tiercel_key* keys, uint64_t key_count,
                                       uint64_t ttl_ns, tiercel_error* error);
TIERCEL_API tiercel_status tiercel_unpin(tiercel_namespace* ns, const tiercel_key* keys, uint64_t key_count,
                                         tiercel_error* error);
/* A use of these pages by `request` (0: by none). */
TIERCEL_API tiercel_status tiercel_touch(tiercel_namespace* ns, const tiercel_key* keys, uint64_t key_count,
                                         uint64_t request, tiercel_error* error);
/* Each page and its descendants are out of sight, in all classes and tiers, when this returns; memory returns
 * when leases end; a reservation made before cannot commit after. Cost: O(pages removed). */
TIERCEL_API tiercel_status tiercel_remove(tiercel_namespace* ns, const tiercel_key* keys, uint64_t key_count,
                                          tiercel_error* error);
/* All pages of the identity (for every session) are gone. Operations in flight end as stale. Cost: O(1). */
TIERCEL_API tiercel_status tiercel_invalidate(tiercel_namespace* ns, tiercel_error* error);
/* Everything under the form is gone; namespaces whose identity has an older epoch miss and refuse from now
 * on. O(1). */
TIERCEL_API tiercel_status tiercel_set_weights_epoch(tiercel_form* form, uint64_t epoch,
                                                     tiercel_error* error);
/* scope namespace: `ns` (form NULL); scope form: `form` (ns NULL). `tiers`: TIERCEL_TIER_ALL, or all tiers
 * that the node has; fewer are unsupported: what is cleared above would come back from below. Cost: O(1). */
TIERCEL_API tiercel_status tiercel_clear(tiercel_clear_scope scope, tiercel_namespace* ns, tiercel_form* form,
                                         tiercel_tier tiers, tiercel_error* error);
/* Waits until the copies of every store and commit begun before have ended, and what they accepted is durable
 * in each persistent tier. Errors: deadline_exceeded; with a disk what it says: unavailable, io_error. */
TIERCEL_API tiercel_status tiercel_flush(tiercel_node* node, uint64_t deadline_ns, tiercel_error* error);
/* Ends transfers and forgets all engine memory; cached bytes stay. `suspended` is the operation's completion:
 * the engine's memory is its own again. Options and operation may be NULL. Suspended already: completes at
 * once. resume allows work again; memory must be registered anew, at any address. */
TIERCEL_API tiercel_status tiercel_suspend(tiercel_node* node, const tiercel_commit_options* options,
                                           tiercel_operation** operation, tiercel_error* error);
TIERCEL_API tiercel_status tiercel_resume(tiercel_node* node, tiercel_error* error);

/* ---- completions ---- */
/* A queue of completions for any number of operations of the node; made for one thread that waits on its fd.
 * Options may be NULL. Errors: resource_exhausted (no descriptor left). */
TIERCEL_API tiercel_status tiercel_cq_create(tiercel_node* node, const tiercel_cq_options* options,
                                             tiercel_cq** cq, tiercel_error* error);
/* An eventfd, readable exactly while completions wait. Poll it, never read it: draining resets it. Owned by
 * the queue, which closes it. */
TIERCEL_API tiercel_status tiercel_cq_fd(const tiercel_cq* cq, int* fd, tiercel_error* error);
/* Takes out up to `capacity` completions, oldest first; here *count is how many were taken. Works on a closed
 * node until the queue is empty. */
TIERCEL_API tiercel_status tiercel_cq_drain(tiercel_cq* cq, tiercel_completion* completions,
                                            uint64_t capacity, uint64_t* count, tiercel_error* error);
/* What still comes for it is dropped. */
TIERCEL_API void tiercel_cq_release(tiercel_cq* cq);

/* ---- what the cache tells of itself ---- */
/* Takes out up to `capacity` events, oldest first (*count: how many). *lost: dropped since the last call
 * because nobody drained. */
TIERCEL_API tiercel_status tiercel_events_drain(tiercel_node* node, tiercel_cache_event* events,
                                                uint64_t capacity, uint64_t* count, uint64_t* lost,
                                                tiercel_error* error);
/* stats->size must be set. Cost: O(1). */
TIERCEL_API tiercel_status tiercel_stats_read(tiercel_node* node, tiercel_stats* stats, tiercel_error* error);
/* What is known of one page: resident class-sets, or why not. state->size must be set. */
TIERCEL_API tiercel_status tiercel_why(const tiercel_namespace* ns, const tiercel_key* key,
                                       tiercel_page_state* state, tiercel_error* error);

#ifdef __cplusplus
}
#endif
/* NOLINTEND */
#include <tiercel/disk.h> /* which needs all of the above */
#include <tiercel/host_pools.h>
#include <tiercel/remote.h>
#endif
