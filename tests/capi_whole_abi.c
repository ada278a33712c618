/* Every call of the C ABI from C11, in the order of an engine's life: open, model, memory, keys, store,
 * match, load, the rest, close. Ends with a sentence and 1 at the first thing that is not as it should be.
 * That every call of the header is called here is checked by capi_abi.py. */
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tiercel/tiercel.h>
#include <unistd.h>

enum { kPageTokens = 16, kPages = 4, kSlots = 8, kFullBytes = 2048, kStateBytes = 6144 };
#define SECOND ((uint64_t)1000000000)

static tiercel_error error;

static void expect(int condition, const char* what, int line) {
  if (condition) return;
  fprintf(stderr, "line %d: %s; last error: %s: %s\n", line, what, tiercel_status_name(error.code),
          error.message);
  exit(1); /* NOLINT(concurrency-mt-unsafe): at its end */
}
#define EXPECT(condition) expect((condition), #condition, __LINE__)
#define OK(call) expect((call) == TIERCEL_OK, #call, __LINE__)
#define FAILS(code, call) expect((call) == (code), #call " must be " #code, __LINE__)

static const char kSpec[] =
    "{\"tiercel_spec\": 1, \"model_type\": \"example\", \"page_tokens\": 16, \"topology\": {\"tp\": 1}, "
    "\"groups\": ["
    "{\"kind\": \"full\", \"layers\": [3], \"components\": [{\"name\": \"k\", \"shape\": [2, 16], \"dtype\": "
    "\"bf16\"},"
    "{\"name\": \"v\", \"shape\": [2, 16], \"dtype\": \"bf16\"}]},"
    "{\"kind\": \"state\", \"layers\": [[0, 2]], \"components\": [{\"name\": \"temporal\", \"shape\": [2, "
    "16, 16], "
    "\"dtype\": \"f32\"}]}]}";

static const tiercel_topology kWhole = {.tp_size = 1,
                                        .pp_size = 1,
                                        .cp_size = 1,
                                        .dcp_size = 1,
                                        .dp_size = 1,
                                        .last_layer = UINT32_MAX,
                                        .writer = 1};

/* The world of the test: one of each handle, and the engine's memory. */
static tiercel_node* node;
static tiercel_session* session;
static tiercel_form* form;
static tiercel_namespace* ns;
static tiercel_cq* cq;
static unsigned char full[2][kSlots][1024];  /* k and v */
static unsigned char state[3][kSlots][2048]; /* layers */
static tiercel_key keys[kPages];
static tiercel_probe probe;

static const tiercel_disk_options* disk; /* NULL: none */

static void open_all(tiercel_threading threading) {
  tiercel_node_options options = {.size = sizeof options};
  options.host_bytes = 16 << 20;
  options.threading = threading;
  options.disk = disk;
  OK(tiercel_node_open(&options, &node, &error));
  tiercel_session_options session_options = {
      .size = sizeof session_options, .name = "c", .tenant_salt = {"salt", 4}};
  OK(tiercel_session_open(node, &session_options, &session, &error));
  tiercel_spec* spec = NULL;
  OK(tiercel_spec_from_json(kSpec, sizeof kSpec - 1, 0, &spec, &error));
  tiercel_form_options form_options = {.size = sizeof form_options, .topology = kWhole};
  OK(tiercel_form_open(node, spec, &form_options, &form, &error));
  tiercel_spec_release(spec);
  tiercel_identity identity = {
      .size = sizeof identity, .model = "example", .weights = "revision-1", .dtype = "bf16"};
  OK(tiercel_namespace_open(session, form, &identity, &ns, &error));
  tiercel_cq_options cq_options = {.size = sizeof cq_options, .capacity = 1024};
  OK(tiercel_cq_create(node, &cq_options, &cq, &error));
}

static void close_all(void) {
  tiercel_cq_release(cq);
  tiercel_namespace_release(ns);
  tiercel_form_release(form);
  OK(tiercel_session_close(session, &error));
  OK(tiercel_node_close(node, &error));
}

static void specs(void) {
  static const char kConfig[] =
      "{\"model_type\": \"llama\", \"num_hidden_layers\": 2, \"hidden_size\": 64, "
      "\"num_attention_heads\": 4, \"num_key_value_heads\": 2}";
  tiercel_spec *spec = NULL, *again = NULL;
  tiercel_config_options options = {.size = sizeof options, .page_tokens = 32, .dtype = TIERCEL_DTYPE_FP16};
  OK(tiercel_spec_from_config(kConfig, sizeof kConfig - 1, &options, &spec, &error));
  char text[4096];
  uint64_t count = 0, count_again = 0;
  OK(tiercel_spec_to_json(spec, text, sizeof text, &count, &error));
  EXPECT(count > 0 && count < sizeof text);
  OK(tiercel_spec_from_json(text, count, 0, &again, &error));
  OK(tiercel_spec_to_json(again, NULL, 0, &count_again, &error));
  EXPECT(count == count_again);
  tiercel_spec_release(spec);
  tiercel_spec_release(again);
  FAILS(TIERCEL_INVALID_ARGUMENT, tiercel_spec_from_json("{", 1, 0, &spec, &error));

  tiercel_spec_builder* builder = NULL;
  tiercel_spec_options spec_options = {
      .size = sizeof spec_options, .model_type = "built", .page_tokens = 16, .tp = 1, .pp = 1, .cp = 1};
  OK(tiercel_spec_builder_create(&spec_options, &builder, &error));
  const uint32_t layers[] = {0, 1};
  tiercel_group_options group_options = {
      .size = sizeof group_options, .layers = layers, .layer_count = 2, .kind = TIERCEL_GROUP_FULL};
  uint32_t group = 99;
  OK(tiercel_spec_builder_group(builder, &group_options, &group, &error));
  EXPECT(group == 0);
  tiercel_component_options component = {.size = sizeof component, .name = "record", .opaque_bytes = 512};
  OK(tiercel_spec_builder_component(builder, group, &component, &error));
  component.opaque_bytes = 0;
  FAILS(TIERCEL_UNSUPPORTED, tiercel_spec_builder_component(builder, group, &component, &error));
  OK(tiercel_spec_builder_finish(builder, &spec, &error));
  tiercel_spec_builder_release(builder);
  tiercel_spec_release(spec);
}

static void describe(void) {
  tiercel_form_info info = {.size = sizeof info};
  OK(tiercel_form_describe(form, &info, &error));
  EXPECT(info.classes == 2 && info.page_tokens == kPageTokens && info.page_bytes_required == kFullBytes);
  tiercel_class_info cls = {.size = sizeof cls};
  OK(tiercel_form_class(form, 1, &cls, &error));
  EXPECT(cls.record_bytes == kStateBytes && cls.retention == TIERCEL_CLASS_STATE &&
         strcmp(cls.name, "state") == 0);
  tiercel_run_info runs[4];
  uint64_t count = 0;
  OK(tiercel_form_runs(form, 0, runs, 4, &count, &error));
  EXPECT(count == 2 && runs[0].length == 1024 && strcmp(runs[1].name, "v") == 0 &&
         runs[1].entries == kPageTokens);
  char text[4096];
  OK(tiercel_namespace_describe(ns, text, sizeof text, &count, &error));
  EXPECT(count > 0 && tiercel_namespace_id(ns) != 0);
}

static void register_all(void) {
  tiercel_memory_run of_full[2] = {
      {.base = full[0], .slot_stride = 1024, .component = 0, .layer = 3},
      {.base = full[1], .slot_stride = 1024, .component = 1, .layer = TIERCEL_WHOLE}};
  tiercel_memory_options options = {.size = sizeof options, .runs = of_full, .run_count = 2, .slots = kSlots};
  OK(tiercel_register_memory(form, &options, &error));
  tiercel_memory_run of_state = {.base = state,
                                 .slot_stride = 2048,
                                 .layer_stride = sizeof state[0],
                                 .component = 0,
                                 .layer = TIERCEL_WHOLE};
  options.runs = &of_state;
  options.run_count = 1;
  options.class_id = 1;
  OK(tiercel_register_memory(form, &options, &error));
  options.source = TIERCEL_SOURCE_FD;
  FAILS(TIERCEL_UNSUPPORTED, tiercel_register_memory(form, &options, &error));
}

static void make_keys(void) {
  uint32_t tokens[kPages * kPageTokens + 3];
  for (uint32_t i = 0; i < sizeof tokens / sizeof *tokens; ++i) tokens[i] = 1000 + i;
  tiercel_key_chain chain;
  OK(tiercel_key_chain_start(ns, &chain, &error));
  uint64_t count = 0;
  OK(tiercel_keys_from_tokens(ns, &chain, tokens, (uint64_t)2 * kPageTokens, 1, NULL, 0, keys, kPages, &count,
                              &probe, &error));
  EXPECT(count == 2 && chain.pages == 2);
  OK(tiercel_keys_from_tokens(ns, &chain, tokens + (size_t)2 * kPageTokens, (uint64_t)2 * kPageTokens + 3, 1,
                              NULL, 0, keys + 2, 2, &count, NULL, &error));
  EXPECT(count == 2 && chain.pages == kPages);

  tiercel_identity external = {
      .size = sizeof external, .weights = "r", .dtype = "bf16", .scheme = "engine-sha256"};
  tiercel_namespace* digests = NULL;
  OK(tiercel_namespace_open(session, form, &external, &digests, &error));
  const unsigned char digest[2][32] = {{1}, {2}};
  tiercel_key two[2];
  OK(tiercel_keys_from_digests(digests, digest, 2, 32, 32, two, NULL, &error));
  EXPECT(memcmp(&two[0], &two[1], sizeof two[0]) != 0);
  tiercel_namespace_release(digests);
}

static void compute(void) {
  unsigned char* all[] = {&full[0][0][0], &state[0][0][0]};
  const size_t sizes[] = {sizeof full, sizeof state};
  for (size_t a = 0; a < 2; ++a)
    for (size_t i = 0; i < sizes[a]; ++i) all[a][i] = (unsigned char)(i * 31 + i / 256 + a);
}

static void fill_items(tiercel_store_item* items) {
  for (uint64_t page = 0; page < kPages; ++page) {
    memset(&items[page], 0, sizeof items[page]);
    items[page].key = keys[page];
    if (page > 0) items[page].parent = keys[page - 1];
    items[page].length = page + 1;
    items[page].slot = page;
  }
  items[kPages] = items[kPages - 1];
  items[kPages].class_id = 1;
  items[kPages].slot = 5;
}

/* The completion of `kind` of this operation, with whatever comes before it taken out too. */
static tiercel_completion next_completion(uint64_t operation, tiercel_completion_kind kind) {
  for (;;) {
    int fd = -1;
    OK(tiercel_cq_fd(cq, &fd, &error));
    struct pollfd wait = {.fd = fd, .events = POLLIN};
    uint64_t steps = 0;
    OK(tiercel_poll(node, SECOND / 1000, &steps, &error));
    if (poll(&wait, 1, 1) <= 0) continue;
    tiercel_completion completion;
    uint64_t count = 0;
    OK(tiercel_cq_drain(cq, &completion, 1, &count, &error));
    EXPECT(count == 1);
    if (completion.operation == operation && completion.kind == kind) return completion;
  }
}

static void store_all(void) {
  uint64_t wanted[kPages] = {0};
  tiercel_offer_options offer = {
      .size = sizeof offer, .keys = keys, .key_count = kPages, .event = TIERCEL_OFFER_COMPUTED};
  OK(tiercel_offer(ns, &offer, wanted, &error));
  EXPECT(wanted[0] == 1 && wanted[kPages - 1] == 3);

  tiercel_store_item items[kPages + 1];
  fill_items(items);
  uint64_t event = 0;
  OK(tiercel_event_create(node, &event, &error));
  tiercel_store_options options = {.size = sizeof options, .items = items, .item_count = kPages + 1};
  options.after_event = event;
  options.cq = cq;
  options.user_data = 42;
  tiercel_outcome outcomes[kPages + 1];
  tiercel_operation* operation = NULL;
  OK(tiercel_store(ns, &options, outcomes, &operation, &error));
  for (int i = 0; i <= kPages; ++i) EXPECT(outcomes[i] == TIERCEL_ITEM_ACCEPTED);
  const uint64_t slot = 0;
  FAILS(TIERCEL_DEADLINE_EXCEEDED, tiercel_wait_sources(form, 0, 0, &slot, 1, 0, &error));
  FAILS(TIERCEL_DEADLINE_EXCEEDED, tiercel_flush(node, 0, &error));
  FAILS(TIERCEL_DEADLINE_EXCEEDED, tiercel_operation_wait(operation, 0, 0, &error));
  compute(); /* what the event stands for */
  OK(tiercel_event_fire(node, event, &error));
  OK(tiercel_operation_wait(operation, TIERCEL_COMPLETION_SOURCE_FREE, 10 * SECOND, &error));
  OK(tiercel_wait_sources(form, 0, 0, &slot, 1, 10 * SECOND, &error));
  OK(tiercel_flush(node, 10 * SECOND, &error));
  const tiercel_completion last =
      next_completion(tiercel_operation_id(operation), TIERCEL_COMPLETION_VISIBLE);
  EXPECT(last.user_data == 42 && last.handle == operation && last.items_ok == kPages + 1);
  EXPECT((last.flags & TIERCEL_COMPLETION_LAST) != 0 && (last.flags & TIERCEL_COMPLETION_QUIET) != 0);
  uint64_t count = 0;
  OK(tiercel_store_outcomes(operation, outcomes, kPages + 1, &count, &error));
  EXPECT(count == kPages + 1 && outcomes[0] == TIERCEL_ITEM_COMMITTED);
  EXPECT(strcmp(tiercel_outcome_name(outcomes[0]), "committed") == 0);
  tiercel_operation_release(operation);

  tiercel_status there[kPages];
  OK(tiercel_exists(ns, 1, keys, kPages, there, &error));
  EXPECT(there[0] == TIERCEL_NOT_FOUND && there[kPages - 1] == TIERCEL_OK);
}

static tiercel_ticket* match_all(uint64_t request) {
  tiercel_match_options options = {.size = sizeof options, .keys = keys, .key_count = kPages};
  options.limit_tokens = TIERCEL_NO_LIMIT;
  options.probe = &probe;
  options.request = request;
  options.prompt_tokens = kPages * kPageTokens + 3;
  tiercel_ticket* ticket = NULL;
  OK(tiercel_match(ns, &options, &ticket, &error));
  return ticket;
}

static void read_ticket(tiercel_ticket* ticket) {
  tiercel_state ready = TIERCEL_STATE_PENDING;
  OK(tiercel_ticket_poll(ticket, &ready, &error));
  EXPECT(ready == TIERCEL_STATE_READY && tiercel_ticket_id(ticket) != 0);
  OK(tiercel_ticket_wait(ticket, SECOND, &error));
  uint64_t lengths[4], count = 0;
  OK(tiercel_ticket_lengths(ticket, lengths, 4, &count, &error));
  EXPECT(count == 2 && lengths[0] == 0 && lengths[1] == kPages);
  tiercel_ticket_counts counts = {.size = sizeof counts};
  OK(tiercel_ticket_summary(ticket, &counts, &error));
  EXPECT(counts.length == kPages && counts.hit_tokens == (uint64_t)kPages * kPageTokens &&
         counts.missed_tokens == 3);
  uint64_t resident[2];
  OK(tiercel_ticket_resident(ticket, TIERCEL_TIER_HOST, resident, 2, &count, &error));
  EXPECT(count == 2 && resident[0] == kPages && resident[1] == 1);
  FAILS(TIERCEL_UNSUPPORTED, tiercel_ticket_resident(ticket, TIERCEL_TIER_DISK, resident, 2, &count, &error));
  tiercel_miss misses[2];
  OK(tiercel_ticket_reasons(ticket, misses, 2, &count, &error));
  EXPECT(count == 1 && misses[0].reason == TIERCEL_REASON_TAIL && misses[0].tokens == 3);
  EXPECT(strcmp(tiercel_reason_name(misses[0].reason), "tail") == 0);
  tiercel_advice_options advice = {.size = sizeof advice, .pages = kPages, .at_most = 2};
  OK(tiercel_snapshot_advice(ticket, &advice, lengths, 4, &count, &error));
}

static void load_all(void) {
  tiercel_request_options request = {.size = sizeof request, .id = 7, .ttl_ns = 60 * SECOND};
  OK(tiercel_request_begin(session, &request, &error));
  FAILS(TIERCEL_ALREADY_EXISTS, tiercel_request_begin(session, &request, &error));
  tiercel_ticket* ticket = match_all(7);
  read_ticket(ticket);
  unsigned char bytes[64];
  uint64_t size = 0;
  OK(tiercel_ticket_export(ticket, bytes, sizeof bytes, &size, &error));
  tiercel_ticket* worker = NULL;
  OK(tiercel_ticket_import(session, bytes, size, &worker, &error));
  tiercel_ticket_release(ticket);

  static unsigned char full_was[sizeof full], state_was[sizeof state];
  memcpy(full_was, full, sizeof full);
  memcpy(state_was, state, sizeof state);
  memset(full, 0, sizeof full);
  memset(state, 0, sizeof state);
  const uint64_t slots[kPages] = {0, 1, 2, 3};
  const uint64_t snapshot = 5;
  const tiercel_load_target targets[2] = {{.slots = slots, .count = kPages},
                                          {.slots = &snapshot, .count = 1, .class_id = 1}};
  tiercel_load_options options = {
      .size = sizeof options, .length = kPages, .targets = targets, .target_count = 2};
  options.mode = TIERCEL_LOAD_MODE_LAYERED;
  options.cq = cq;
  tiercel_operation* operation = NULL;
  OK(tiercel_load(worker, &options, &operation, &error));
  for (uint32_t layer = 0; layer < 4; ++layer) OK(tiercel_wait_layer(operation, layer, 10 * SECOND, &error));
  OK(tiercel_operation_wait(operation, 0, 10 * SECOND, &error));
  tiercel_state done = TIERCEL_STATE_PENDING;
  OK(tiercel_operation_poll(operation, &done, &error));
  EXPECT(done == TIERCEL_STATE_READY);
  tiercel_operation_result result = {.size = sizeof result};
  OK(tiercel_operation_result_read(operation, &result, &error));
  EXPECT(result.status == TIERCEL_OK && result.length == kPages && result.quiescent != 0);
  tiercel_load_outcome outcomes[kPages];
  uint64_t count = 0;
  OK(tiercel_load_outcomes(operation, 0, outcomes, kPages, &count, &error));
  EXPECT(count == kPages && outcomes[0] == TIERCEL_ENTRY_DELIVERED);
  for (int part = 0; part < 2; ++part)
    EXPECT(memcmp(full[part], full_was + (size_t)part * sizeof full[0], (size_t)kPages * 1024) == 0);
  for (int layer = 0; layer < 3; ++layer)
    EXPECT(memcmp(state[layer][5], state_was + (size_t)layer * sizeof state[0] + (size_t)5 * 2048, 2048) ==
           0);
  OK(tiercel_operation_cancel(operation, &error)); /* too late: no effect */
  tiercel_operation_release(operation);
  OK(tiercel_ticket_cancel(worker, &error));
  tiercel_ticket_release(worker);
  OK(tiercel_request_end(session, 7, &error));
  OK(tiercel_request_abort(session, 7, &error));
}

/* A fifth page written in place, then a snapshot attached to the second. */
static void reserve_all(void) {
  tiercel_store_item item;
  memset(&item, 0, sizeof item);
  item.key.bytes[0] = 99;
  item.parent = keys[kPages - 1];
  item.length = kPages + 1;
  tiercel_store_options options = {.size = sizeof options, .items = &item, .item_count = 1};
  tiercel_reservation* reservation = NULL;
  tiercel_outcome outcome = TIERCEL_ITEM_INVALID;
  OK(tiercel_reserve(ns, &options, &outcome, &reservation, &error));
  EXPECT(outcome == TIERCEL_ITEM_ACCEPTED);
  tiercel_segment spans[4];
  uint64_t count = 0, bytes = 0;
  OK(tiercel_reservation_spans(reservation, 0, spans, 4, &count, &error));
  for (uint64_t i = 0; i < count; ++i) {
    memset(spans[i].data, 7, (size_t)spans[i].size);
    bytes += spans[i].size;
  }
  EXPECT(bytes == kFullBytes);
  tiercel_operation* operation = NULL;
  FAILS(TIERCEL_FAILED_PRECONDITION,
        tiercel_reservation_segments(reservation, 0, "layer_first", NULL, 0, &count, &error));
  const uint8_t nine[] = "123456789"; /* whose sum everybody names */
  EXPECT(tiercel_crc32c(nine, 9, 0) == 0xe3069283u);
  EXPECT(tiercel_crc32c(nine + 4, 5, tiercel_crc32c(nine, 4, 0)) == 0xe3069283u);
  OK(tiercel_writer_stopped(reservation, &error));
  tiercel_writer_info writers[4];
  OK(tiercel_writers_read(node, writers, 4, &count, &error));
  EXPECT(count == 0);
  const tiercel_arrival arrival = {.item = 0};
  const tiercel_commit_options named = {.size = sizeof named, .arrivals = &arrival, .arrival_count = 1};
  OK(tiercel_commit(reservation, &named, &operation, &error));
  OK(tiercel_operation_wait(operation, TIERCEL_COMPLETION_VISIBLE, 10 * SECOND, &error));
  tiercel_operation_release(operation);
  FAILS(TIERCEL_NOT_FOUND, tiercel_commit(reservation, NULL, NULL, &error));
  tiercel_reservation_release(reservation);

  item.key = keys[1];
  item.parent = keys[0];
  item.length = 2;
  item.class_id = 1;
  OK(tiercel_reserve(ns, &options, &outcome, &reservation, &error));
  OK(tiercel_attach(reservation, NULL, &operation, &error));
  OK(tiercel_operation_wait(operation, TIERCEL_COMPLETION_VISIBLE, 10 * SECOND, &error));
  tiercel_operation_release(operation);
  OK(tiercel_abort(reservation, &error));
  tiercel_reservation_release(reservation);
  tiercel_status there = TIERCEL_NOT_FOUND;
  OK(tiercel_exists(ns, 1, &keys[1], 1, &there, &error));
  EXPECT(there == TIERCEL_OK);
}

static void pages(void) {
  tiercel_prefetch_options prefetch = {
      .size = sizeof prefetch, .keys = keys, .key_count = 1, .policy = TIERCEL_PREFETCH_BEST_EFFORT};
  FAILS(TIERCEL_UNSUPPORTED, tiercel_prefetch(ns, &prefetch, NULL, &error));
  OK(tiercel_pin(ns, keys, kPages, SECOND, &error));
  tiercel_stats stats = {.size = sizeof stats};
  OK(tiercel_stats_read(node, &stats, &error));
  EXPECT(stats.pinned_pages == kPages && stats.pages_visible_now == kPages + 1 && stats.off == 0);
  OK(tiercel_unpin(ns, keys, kPages, &error));
  OK(tiercel_touch(ns, keys, kPages, 0, &error));
  OK(tiercel_remove(ns, &keys[2], 1, &error));
  tiercel_page_state page = {.size = sizeof page};
  OK(tiercel_why(ns, &keys[3], &page, &error));
  EXPECT(page.resident == 0 && page.reason == TIERCEL_REASON_REMOVED);
  OK(tiercel_invalidate(ns, &error));
  OK(tiercel_clear(TIERCEL_CLEAR_NAMESPACE, ns, NULL, TIERCEL_TIER_ALL, &error));
  OK(tiercel_clear(TIERCEL_CLEAR_FORM, NULL, form, TIERCEL_TIER_HOST, &error));
  FAILS(TIERCEL_UNSUPPORTED, tiercel_clear(TIERCEL_CLEAR_FORM, NULL, form, TIERCEL_TIER_DISK, &error));
  tiercel_cache_event events[64];
  uint64_t count = 0, lost = 1;
  OK(tiercel_events_drain(node, events, 64, &count, &lost, &error));
  EXPECT(count >= kPages && lost == 0 && events[0].kind == TIERCEL_EVENT_STORED &&
         events[0].page_tokens == kPageTokens);
  OK(tiercel_set_weights_epoch(form, 2, &error));
}

/* ---- host pools: no node is needed ---- */
/* Everything is in the host tier: into memory that has lost it. */
static void load_all_of_disk(void) {
  memset(full, 0, sizeof full);
  memset(state, 0, sizeof state);
  tiercel_ticket* ticket = match_all(0);
  const uint64_t slots[kPages] = {0, 1, 2, 3}, snapshot = 5;
  const tiercel_load_target targets[2] = {{.slots = slots, .count = kPages},
                                          {.slots = &snapshot, .count = 1, .class_id = 1}};
  tiercel_load_options options = {
      .size = sizeof options, .length = kPages, .targets = targets, .target_count = 2};
  tiercel_operation* operation = NULL;
  OK(tiercel_load(ticket, &options, &operation, &error));
  OK(tiercel_operation_wait(operation, 0, 10 * SECOND, &error));
  tiercel_operation_result result = {.size = sizeof result};
  OK(tiercel_operation_result_read(operation, &result, &error));
  EXPECT(result.status == TIERCEL_OK && result.length == kPages);
  tiercel_operation_release(operation);
  tiercel_ticket_release(ticket);
  static unsigned char full_is[sizeof full], state_is[sizeof state];
  memcpy(full_is, full, sizeof full);
  memcpy(state_is, state, sizeof state);
  compute();
  for (int part = 0; part < 2; ++part)
    EXPECT(memcmp(full_is + (size_t)part * sizeof full[0], full[part], kPages * sizeof full[0][0]) == 0);
  for (int layer = 0; layer < 3; ++layer)
    EXPECT(memcmp(state_is + (size_t)layer * sizeof state[0] + 5 * sizeof state[0][0], state[layer][5],
                  sizeof state[0][0]) == 0);
}

/* What a program stores, loses with its process, and finds again. */
static void disk_write(void) {
  compute();
  tiercel_store_item items[kPages + 1];
  fill_items(items);
  tiercel_store_options options = {.size = sizeof options, .items = items, .item_count = kPages + 1};
  options.cq = cq;
  options.tell_lower = 1;
  tiercel_operation* operation = NULL;
  OK(tiercel_store(ns, &options, NULL, &operation, &error));
  OK(tiercel_operation_wait(operation, TIERCEL_COMPLETION_ACCEPTED, 10 * SECOND, &error));
  OK(tiercel_operation_wait(operation, TIERCEL_COMPLETION_DURABLE, 10 * SECOND, &error));
  const tiercel_completion last =
      next_completion(tiercel_operation_id(operation), TIERCEL_COMPLETION_DURABLE);
  EXPECT(last.length == kPages + 1 && last.tier == TIERCEL_TIER_DISK && last.status == TIERCEL_OK);
  EXPECT((last.flags & TIERCEL_COMPLETION_LAST) != 0);
  tiercel_operation_release(operation);
  OK(tiercel_flush(node, 10 * SECOND, &error));
  tiercel_disk_stats stats = {.size = sizeof stats};
  OK(tiercel_disk_stats_read(node, &stats, &error));
  EXPECT(stats.open == 1 && stats.down == 0 && stats.class_sets_now == kPages + 1);
  tiercel_remote_stats remote = {.size = sizeof remote};
  FAILS(TIERCEL_UNSUPPORTED, tiercel_remote_stats_read(node, &remote, &error));
  char text[4096];
  uint64_t count = 0;
  OK(tiercel_status_text(node, text, sizeof text, &count, &error));
  EXPECT(count > 0 && count < sizeof text && memcmp(text, "host", 4) == 0);

  tiercel_node_options again = {.size = sizeof again, .host_bytes = 16 << 20, .disk = disk};
  tiercel_node* second = NULL;
  FAILS(TIERCEL_FAILED_PRECONDITION, tiercel_node_open(&again, &second, &error));
  tiercel_write_down report = {.size = sizeof report};
  OK(tiercel_node_write_down(node, 10 * SECOND, &report, &error));
  EXPECT(report.status == TIERCEL_OK && report.left_class_sets == 0);
  FAILS(TIERCEL_UNSUPPORTED, tiercel_node_write_down(node, SECOND, NULL, &error));
}

static void disk_prefetch(void) {
  tiercel_prefetch_options options = {.size = sizeof options, .keys = keys, .key_count = kPages, .cq = cq};
  options.policy = TIERCEL_PREFETCH_WAIT_COMPLETE;
  tiercel_operation* operation = NULL;
  OK(tiercel_prefetch(ns, &options, &operation, &error));
  OK(tiercel_operation_wait(operation, TIERCEL_COMPLETION_PREFETCHED, 10 * SECOND, &error));
  tiercel_prefetch_result result = {.size = sizeof result};
  OK(tiercel_prefetch_result_read(operation, &result, &error));
  EXPECT(result.status == TIERCEL_OK && result.wanted_pages == kPages && result.length == kPages);
  tiercel_miss misses[2];
  uint64_t count = 9;
  OK(tiercel_prefetch_reasons(operation, misses, 2, &count, &error));
  EXPECT(count == 0);
  tiercel_operation_release(operation);
}

/* Brought up by the match that asks for it. */
static void disk_match(void) {
  tiercel_match_options options = {.size = sizeof options, .keys = keys, .key_count = kPages, .cq = cq};
  options.limit_tokens = TIERCEL_NO_LIMIT;
  options.may_promote = 1;
  tiercel_ticket* ticket = NULL;
  OK(tiercel_match(ns, &options, &ticket, &error));
  OK(tiercel_ticket_wait(ticket, 10 * SECOND, &error));
  const tiercel_completion told = next_completion(tiercel_ticket_id(ticket), TIERCEL_COMPLETION_TICKET);
  EXPECT(told.length == kPages && told.status == TIERCEL_OK);
  tiercel_ticket_counts counts = {.size = sizeof counts};
  OK(tiercel_ticket_summary(ticket, &counts, &error));
  EXPECT(counts.length == kPages && counts.disk_pages == kPages && counts.host_pages == 0);
  uint64_t there[2], count = 0;
  OK(tiercel_ticket_resident(ticket, TIERCEL_TIER_DISK, there, 2, &count, &error));
  EXPECT(count == 2 && there[0] == kPages && there[1] == 1);
  tiercel_ticket_release(ticket);
}

static void with_disk(tiercel_threading threading) {
  const char* folder = getenv("TMPDIR"); /* NOLINT(concurrency-mt-unsafe): nobody sets it */
  char path[512];
  snprintf(path, sizeof path, "%s/tiercel-whole-abi.XXXXXX", folder != NULL ? folder : "/tmp");
  const int fd = mkstemp(path);
  EXPECT(fd >= 0 && close(fd) == 0 && unlink(path) == 0);
  tiercel_disk_options options = {.size = sizeof options, .path = path, .bytes = 16 << 20};
  options.prefetch_threshold_tokens = 1;
  options.write_policy = TIERCEL_WRITE_THROUGH;
  disk = &options;
  open_all(threading);
  register_all();
  make_keys();
  disk_write();
  close_all();

  open_all(threading); /* another process would find the same */
  register_all();
  disk_prefetch();
  load_all_of_disk();
  close_all();

  open_all(threading);
  register_all();
  disk_match();
  load_all_of_disk();
  FAILS(TIERCEL_UNSUPPORTED, tiercel_clear(TIERCEL_CLEAR_NAMESPACE, ns, NULL, TIERCEL_TIER_HOST, &error));
  OK(tiercel_clear(TIERCEL_CLEAR_NAMESPACE, ns, NULL, TIERCEL_TIER_ALL, &error));
  tiercel_status there[kPages];
  OK(tiercel_exists(ns, 0, keys, kPages, there, &error));
  EXPECT(there[0] == TIERCEL_NOT_FOUND);
  close_all();
  disk = NULL;
  EXPECT(unlink(path) == 0);
}

static tiercel_host_pools* open_pools(const tiercel_spec* spec, const char* layout, const char* memory) {
  const tiercel_host_pools_options options = {
      .size = sizeof options, .layout = layout, .memory = memory, .pages = kSlots};
  tiercel_host_pools* pools = NULL;
  OK(tiercel_host_pools_open(spec, &options, &pools, &error));
  return pools;
}

static void suspend_all(void) {
  OK(tiercel_unregister_memory(form, 1, 0, SECOND, &error));
  FAILS(TIERCEL_NOT_FOUND, tiercel_unregister_memory(form, 1, 0, SECOND, &error));
  tiercel_spec* spec = NULL;
  OK(tiercel_spec_from_json(kSpec, sizeof kSpec - 1, 0, &spec, &error));
  tiercel_host_pools* pools = open_pools(spec, "page_first", "anonymous");
  OK(tiercel_register_host_pools(form, 1, 0, pools, &error));
  OK(tiercel_unregister_memory(form, 1, 0, SECOND, &error));
  tiercel_host_pools_release(pools);
  tiercel_spec_release(spec);
  tiercel_commit_options options = {.size = sizeof options, .cq = cq};
  tiercel_operation* operation = NULL;
  OK(tiercel_suspend(node, &options, &operation, &error));
  OK(tiercel_operation_wait(operation, TIERCEL_COMPLETION_SUSPENDED, 10 * SECOND, &error));
  next_completion(tiercel_operation_id(operation), TIERCEL_COMPLETION_SUSPENDED);
  tiercel_operation_release(operation);
  OK(tiercel_resume(node, &error));
}

static void life(tiercel_threading threading) {
  open_all(threading);
  describe();
  register_all();
  make_keys();
  store_all();
  load_all();
  reserve_all();
  pages();
  suspend_all();
  close_all();
}

static void look_at_pools(const tiercel_spec* spec, tiercel_host_pools* pools) {
  tiercel_host_pools_info info = {.size = sizeof info};
  OK(tiercel_host_pools_describe(pools, &info, &error));
  EXPECT(info.pools == 2 && info.fd >= 0 && info.memory_kind == TIERCEL_MEMORY_SHARED && info.layer_end == 4);
  EXPECT(info.required_bytes == (uint64_t)kSlots * (kFullBytes + kStateBytes));
  tiercel_host_pool_info pool = {.size = sizeof pool};
  OK(tiercel_host_pools_pool(pools, 1, &pool, &error));
  EXPECT(strcmp(pool.name, "state") == 0 && pool.page_bytes == kStateBytes && pool.page_tokens == 0);
  uint32_t layers[4];
  uint64_t count = 0;
  OK(tiercel_host_pools_layers(pools, 1, layers, 4, &count, &error));
  EXPECT(count == 3 && layers[2] == 2);
  tiercel_pool_buffer buffers[8];
  OK(tiercel_host_pools_buffers(pools, TIERCEL_ALL_POOLS, buffers, 8, &count, &error));
  EXPECT(count == 2 && buffers[1].pool == 1 && buffers[1].data != NULL);
  tiercel_segment range;
  OK(tiercel_host_pools_ranges(pools, &range, 1, &count, &error));
  EXPECT(count == 1 && range.size >= info.required_bytes);
  tiercel_pool_segment segments[4];
  OK(tiercel_host_pools_segments(pools, 0, 2, segments, 4, &count, &error));
  EXPECT(count == 2 && segments[0].component == 0 && segments[1].component == 1);
  uint32_t aligned = 9;
  OK(tiercel_host_pools_is_aligned(pools, 0, 1024, &aligned, &error));
  EXPECT(aligned == 1);
  OK(tiercel_host_pools_text(pools, NULL, 0, &count, &error));
  EXPECT(count > 0);
  const tiercel_host_pools_options options = {
      .size = sizeof options, .layout = "page_first", .memory = "shared", .pages = kSlots};
  tiercel_host_pools* other = NULL;
  OK(tiercel_host_pools_attach(spec, &options, info.fd, info.fingerprint, &other, &error));
  tiercel_host_pools_release(other);
}

static void slots_and_sequences(tiercel_host_pools* pools) {
  uint64_t slots[2] = {9, 9};
  const tiercel_slot_list list = {.slots = slots, .count = 2, .pool = 1};
  OK(tiercel_host_pools_take(pools, &list, 1, &error));
  EXPECT(slots[0] == 0 && slots[1] == 1);
  OK(tiercel_host_pools_give(pools, &list, 1, &error));
  tiercel_sequence* sequence = NULL;
  OK(tiercel_sequence_open(pools, 0, &sequence, &error));
  uint64_t tokens[kPageTokens + 1];
  OK(tiercel_sequence_append(sequence, kPageTokens + 1, tokens, &error));
  EXPECT(tokens[kPageTokens] == kPageTokens);
  uint64_t pages[2], count = 0;
  OK(tiercel_sequence_pages(sequence, pages, 2, &count, &error));
  EXPECT(count == 2);
  tiercel_pool_segment entry;
  OK(tiercel_sequence_entry(sequence, 0, 0, 3, kPageTokens, &entry, 1, &count, &error));
  EXPECT(count == 1 && entry.size == 64);
  tiercel_sequence_release(sequence);
}

static void copy_pools(tiercel_host_pools* from, tiercel_host_pools* to) {
  const uint64_t pages[2] = {1, 2};
  const tiercel_copy_part parts[2] = {
      {.source = pages, .target = pages, .count = 2},
      {.source = pages, .target = pages, .count = 2, .source_pool = 1, .target_pool = 1}};
  const tiercel_host_pools* const sources[1] = {from};
  const tiercel_copy_options options = {.size = sizeof options,
                                        .sources = sources,
                                        .source_count = 1,
                                        .target = to,
                                        .parts = parts,
                                        .part_count = 2,
                                        .sums = 1};
  tiercel_copy* copy = NULL;
  OK(tiercel_copy_start(&options, &copy, &error));
  OK(tiercel_copy_wait_layer(copy, 3, 30 * SECOND, &error));
  uint32_t sums[2], layers[4];
  uint64_t count = 0;
  OK(tiercel_copy_sums(copy, 0, 3, sums, 2, &count, &error));
  EXPECT(count == 2);
  OK(tiercel_copy_wait(copy, 30 * SECOND, &error));
  OK(tiercel_copy_layers(copy, layers, 4, &count, &error));
  EXPECT(count == 4);
  OK(tiercel_copy_cancel(copy, &error));
  tiercel_copy_release(copy);
}

static void host_pools(void) {
  tiercel_spec* spec = NULL;
  OK(tiercel_spec_from_json(kSpec, sizeof kSpec - 1, 0, &spec, &error));
  tiercel_host_pools* pools = open_pools(spec, "page_first", "shared");
  look_at_pools(spec, pools);
  slots_and_sequences(pools);

  const tiercel_host_pools_options options = {
      .size = sizeof options, .layout = "layer_first", .memory = "anonymous", .pages = kSlots};
  tiercel_host_pools_builder* builder = NULL;
  tiercel_host_pools* built = NULL;
  OK(tiercel_host_pools_builder_create(spec, &options, &builder, &error));
  for (uint32_t group = 0; group < 2; ++group) {
    const tiercel_host_pool_options pool = {.size = sizeof pool, .group = group};
    uint32_t number = 9;
    OK(tiercel_host_pools_builder_add(builder, &pool, &number, &error));
    EXPECT(number == group);
  }
  OK(tiercel_host_pools_builder_seal(builder, &built, &error));
  FAILS(TIERCEL_FAILED_PRECONDITION, tiercel_host_pools_builder_seal(builder, &built, &error));
  tiercel_host_pools_builder_release(builder);
  copy_pools(pools, built);
  tiercel_host_pools_release(built);
  tiercel_host_pools_release(pools);
  tiercel_spec_release(spec);
}

int main(void) {
  EXPECT(tiercel_abi_version() == TIERCEL_ABI_VERSION);
  specs();
  life(TIERCEL_THREADING_CONTROL);
  life(TIERCEL_THREADING_CALLER);
  with_disk(TIERCEL_THREADING_CONTROL);
  with_disk(TIERCEL_THREADING_CALLER);
  host_pools();
  printf("the whole ABI, twice\n");
  return 0;
}
