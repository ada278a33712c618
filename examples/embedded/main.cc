// The cache inside your own engine, whole: a model with full attention and a recurrent state; one prompt is
// stored, a longer one is matched and loaded. The engine's memory is a host buffer here. Prints what came
// back and why the rest did not.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <thread>
#include <vector>

#include <fmt/format.h>

#include "base/prng.h"
#include "device/device_pool.h"
#include "model/spec_json.h"
#include "node/node.h"

namespace tiercel {
namespace {

constexpr const char* kSpec = R"({
  "tiercel_spec": 1, "model_type": "example", "page_tokens": 16, "topology": {"tp": 1},
  "groups": [
    {"kind": "full", "layers": [3], "components": [{"name": "k", "shape": [2, 16], "dtype": "bf16"},
                                                   {"name": "v", "shape": [2, 16], "dtype": "bf16"}]},
    {"kind": "state", "layers": [[0, 2]], "components": [{"name": "temporal", "shape": [2, 16, 16], "dtype": "f32"}]}
  ]})";
constexpr std::uint64_t kPageTokens = 16;
constexpr std::uint64_t kSlots = 64;  // of the engine's own memory, for each class
constexpr ClassId kFull(0), kState(1);

template <typename T>
T must(Result<T> result) {
  if (result) return std::move(*result);
  std::fprintf(stderr, "%s\n", result.error().to_string().c_str());
  std::exit(1);  // NOLINT(concurrency-mt-unsafe): only this thread ever ends the program
}
void must(const Status& status) {
  if (status.ok()) return;
  std::fprintf(stderr, "%s\n", status.to_string().c_str());
  std::exit(1);  // NOLINT(concurrency-mt-unsafe): only this thread ever ends the program
}

// Drives the node until the operation's completion of this kind is there.
Completion wait_for(Node& node, OperationId operation, CompletionKind kind) {
  while (true) {
    node.poll();
    for (Completion& completion : node.drain_completions())
      if (completion.operation == operation && completion.kind == kind) return std::move(completion);
    std::this_thread::yield();
  }
}

// What an engine would have computed: anything, as long as it can be told apart.
void pretend_to_compute(HostDevice& device) {
  Prng prng(7);
  for (std::byte& byte : device.bytes()) byte = static_cast<std::byte>(prng.next());
}

// Page i of the prompt lies in slot i of the class `full`; the snapshot after the last page in slot 0 of
// `state`.
StoreRequest store_request(SessionId session, NamespaceId ns, const std::vector<Key>& keys) {
  StoreRequest store;
  store.session = session;
  store.ns = ns;
  for (std::uint64_t page = 0; page < keys.size(); ++page) {
    StoreItem item;
    item.key = keys[page];
    if (page > 0) item.parent = keys[page - 1];
    item.length = page + 1;
    item.cls = kFull;
    item.slot = page;
    store.items.push_back(item);
    if (page + 1 < keys.size()) continue;
    item.cls = kState;
    item.slot = 0;
    store.items.push_back(item);
  }
  return store;
}

// Slots 0 to pages − 1 of `pool` hold what was computed.
bool holds(const DevicePool& pool, std::uint64_t pages, const std::vector<std::byte>& computed,
           HostDevice& device) {
  for (const DeviceRun& run : pool.runs)
    for (std::uint64_t slot = 0; slot < pages; ++slot) {
      const auto at = static_cast<std::ptrdiff_t>(run.base + slot * run.stride);
      if (!std::equal(computed.begin() + at, computed.begin() + at + static_cast<std::ptrdiff_t>(run.length),
                      device.bytes().begin() + at))
        return false;
    }
  return true;
}

LoadRequest load_request(TicketId ticket, std::uint64_t length) {
  LoadRequest load;
  load.ticket = ticket;
  load.length = length;
  LoadTarget pages{kFull, ShardId(0), {}};
  for (std::uint64_t page = 0; page < length; ++page) pages.slots.push_back(page);
  load.targets = {pages, LoadTarget{kState, ShardId(0), {0}}};
  return load;
}

// All lengths that `ticket` could resume at, and why the rest of the query missed.
void print(const TicketView& ticket) {
  fmt::print("can be resumed at {} pages (all lengths: {})\n", ticket.length,
             fmt::join(ticket.lengths, ", "));
  for (const Miss& miss : ticket.missed)
    fmt::print("pages {} to {} missed: {}\n", miss.first_page, miss.first_page + miss.pages - 1,
               reason_name(miss.reason));
}

NamespaceId open_namespace(Node& node, SessionId session, FormId form) {
  ContentIdentity identity;
  identity.model = "example";
  identity.weights = "revision-1";
  identity.dtype = "bf16";
  identity.page_tokens = node.form(form).spec.page_tokens;
  return must(node.open_namespace(session, form, {identity, 0, {}}));
}

int run() {
  // The world that the node is given. All of it outlives the node.
  SteadyClock clock;
  ByteArena arena(16 << 20);
  HostDevice device(8 << 20);
  ThreadExecutor executor(2);
  NodeOptions options;
  options.host_bytes = arena.size_bytes();
  const auto node = must(Node::open(options, World{clock, executor, arena, device, 1}));

  const SessionId session = must(node->open_session({"example", "tenant-a", {}}));
  const FormId form = must(node->open_form({must(read_spec_json(kSpec, "example")), 1}));
  const NamespaceId ns = open_namespace(*node, session, form);
  std::vector<DevicePool> pools;
  std::uint64_t base = 0;
  for (const ClassForm& cls : node->form(form).classes) {
    pools.push_back(must(layer_first_pool(cls, ShardId(0), base, kSlots)));
    must(node->register_memory(form, pools.back()));
    base = end_address(pools.back());
  }

  // A prompt of four pages is computed and stored: its KV, and the state after its last token.
  std::vector<std::uint32_t> tokens(4 * kPageTokens);
  std::iota(tokens.begin(), tokens.end(), 1000U);
  KeyChain chain = start_chain(node->root(ns));
  std::vector<Key> keys = must(extend_chain(chain, kPageTokens, tokens));
  pretend_to_compute(device);
  const std::vector<std::byte> computed(device.bytes().begin(), device.bytes().end());
  const StoreAnswer stored = must(node->store(store_request(session, ns, keys)));
  wait_for(*node, stored.operation, CompletionKind::kVisible);

  // The next turn: the same prompt and two pages more. Only what is new is hashed.
  const std::vector<std::uint32_t> more(2 * kPageTokens, 7);
  const std::vector<Key> new_keys = must(extend_chain(chain, kPageTokens, more));
  keys.insert(keys.end(), new_keys.begin(), new_keys.end());
  MatchQuery query;
  query.session = session;
  query.ns = ns;
  query.keys = keys;
  const TicketId ticket = must(node->match(query));
  const std::uint64_t length = node->ticket(ticket)->length;
  fmt::print("{} pages asked\n", keys.size());
  print(*node->ticket(ticket));

  // The engine has lost its copy, and loads it.
  std::fill(device.bytes().begin(), device.bytes().end(), std::byte{0});
  const OperationId operation = must(node->load(load_request(ticket, length)));
  const LoadResult loaded = wait_for(*node, operation, CompletionKind::kLoaded).load.value();
  must(loaded.status);
  node->release(ticket);
  const bool equal = holds(pools[0], loaded.length, computed, device) && holds(pools[1], 1, computed, device);
  fmt::print("{} pages and a snapshot delivered: {}\n", loaded.length,
             equal ? "every byte equal" : "BYTES DIFFER");
  return equal && loaded.length == 4 ? 0 : 1;
}

}  // namespace
}  // namespace tiercel

int main() { return tiercel::run(); }
