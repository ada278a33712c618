/* The smallest program with a cache inside, in C: four pages of a prompt are stored, matched, loaded back
 * into memory that has lost them, and compared. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tiercel/tiercel.h>

enum { kPages = 4, kPageTokens = 16, kPageBytes = 2048 }; /* 16 tokens, k and v, 2 heads of 16 × bf16 */
static const uint64_t kSecond = 1000000000;

static const char kModel[] =
    "{\"tiercel_spec\": 1, \"model_type\": \"example\", \"page_tokens\": 16, \"topology\": {\"tp\": 1},"
    " \"groups\": [{\"kind\": \"full\", \"layers\": [0], \"components\": ["
    "{\"name\": \"k\", \"shape\": [2, 16], \"dtype\": \"bf16\"},"
    "{\"name\": \"v\", \"shape\": [2, 16], \"dtype\": \"bf16\"}]}]}";

static unsigned char memory[kPages][kPageBytes]; /* the engine's: page i of the prompt lies in slot i */
static tiercel_error error;

static void must(tiercel_status status) {
  if (status == TIERCEL_OK) return;
  fprintf(stderr, "%s: %s\n", tiercel_status_name(status), error.message);
  exit(1); /* NOLINT(concurrency-mt-unsafe): one thread */
}

/* A node, a session, the model's form, and a namespace for these weights. */
static tiercel_node* node;
static tiercel_session* session;
static tiercel_form* form;
static tiercel_namespace* ns;

static void open_all(void) {
  tiercel_node_options options = {.size = sizeof options, .host_bytes = 16 << 20};
  must(tiercel_node_open(&options, &node, &error));
  must(tiercel_session_open(node, NULL, &session, &error));

  tiercel_spec* spec = NULL;
  must(tiercel_spec_from_json(kModel, sizeof kModel - 1, 0, &spec, &error));
  tiercel_form_options whole = {.size = sizeof whole};
  whole.topology = (tiercel_topology){.tp_size = 1, .pp_size = 1, .cp_size = 1, .dcp_size = 1, .dp_size = 1};
  whole.topology.last_layer = UINT32_MAX;
  whole.topology.writer = 1;
  must(tiercel_form_open(node, spec, &whole, &form, &error));
  tiercel_spec_release(spec);

  tiercel_identity identity = {.size = sizeof identity, .weights = "revision-1", .dtype = "bf16"};
  must(tiercel_namespace_open(session, form, &identity, &ns, &error));

  tiercel_memory_run run = {.base = memory, .slot_stride = kPageBytes};
  run.component = run.layer = TIERCEL_WHOLE;
  tiercel_memory_options slots = {.size = sizeof slots, .runs = &run, .run_count = 1, .slots = kPages};
  must(tiercel_register_memory(form, &slots, &error));
}

static void close_all(void) {
  tiercel_namespace_release(ns);
  tiercel_form_release(form);
  must(tiercel_session_close(session, &error));
  must(tiercel_node_close(node, &error));
}

static void store(const tiercel_key* keys) {
  tiercel_store_item items[kPages];
  memset(items, 0, sizeof items);
  for (uint64_t page = 0; page < kPages; ++page) {
    items[page].key = keys[page];
    if (page > 0) items[page].parent = keys[page - 1];
    items[page].length = page + 1;
    items[page].slot = page;
  }
  tiercel_store_options options = {.size = sizeof options, .items = items, .item_count = kPages};
  tiercel_operation* operation = NULL;
  must(tiercel_store(ns, &options, NULL, &operation, &error));
  must(tiercel_operation_wait(operation, TIERCEL_COMPLETION_VISIBLE, 10 * kSecond, &error));
  tiercel_operation_release(operation);
}

/* How many pages came back. */
static uint64_t match_and_load(const tiercel_key* keys) {
  tiercel_match_options question = {.size = sizeof question, .keys = keys, .key_count = kPages};
  question.limit_tokens = TIERCEL_NO_LIMIT;
  tiercel_ticket* ticket = NULL;
  must(tiercel_match(ns, &question, &ticket, &error));
  tiercel_ticket_counts found = {.size = sizeof found};
  must(tiercel_ticket_summary(ticket, &found, &error));

  const uint64_t slots[kPages] = {0, 1, 2, 3};
  const tiercel_load_target target = {.slots = slots, .count = kPages};
  tiercel_load_options options = {.size = sizeof options, .length = found.length};
  options.targets = &target;
  options.target_count = 1;
  tiercel_operation* operation = NULL;
  must(tiercel_load(ticket, &options, &operation, &error));
  must(tiercel_operation_wait(operation, 0, 10 * kSecond, &error));
  tiercel_operation_result result = {.size = sizeof result};
  must(tiercel_operation_result_read(operation, &result, &error));
  must(result.status);
  tiercel_operation_release(operation);
  tiercel_ticket_release(ticket);
  return result.length;
}

int main(void) {
  open_all();
  uint32_t prompt[kPages * kPageTokens];
  for (uint32_t i = 0; i < kPages * kPageTokens; ++i) prompt[i] = 1000 + i;
  tiercel_key_chain chain;
  tiercel_key keys[kPages];
  uint64_t count = 0;
  must(tiercel_key_chain_start(ns, &chain, &error));
  must(tiercel_keys_from_tokens(ns, &chain, prompt, sizeof prompt / sizeof *prompt, 1, NULL, 0, keys, kPages,
                                &count, NULL, &error));

  static unsigned char computed[sizeof memory];
  for (size_t i = 0; i < sizeof memory; ++i) computed[i] = (unsigned char)(i * 31 + i / 256);
  memcpy(memory, computed, sizeof memory);
  store(keys);
  memset(memory, 0, sizeof memory); /* the engine has lost its copy */
  const uint64_t length = match_and_load(keys);
  const int equal = memcmp(memory, computed, sizeof memory) == 0;
  printf("%d pages stored, %d loaded: %s\n", (int)count, (int)length,
         equal ? "every byte equal" : "BYTES DIFFER");
  close_all();
  return equal && length == kPages ? 0 : 1;
}
