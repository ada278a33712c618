// The smallest program with a cache inside, in C++: four pages of a prompt and the state behind them are
// stored; a longer prompt is matched, what it shares is loaded back into memory that has lost it, and
// compared. Prints why the rest missed.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <vector>

#include <tiercel/tiercel.hpp>

namespace {

using tiercel::sized;

constexpr std::uint64_t kPages = 4, kPageTokens = 16, kSlots = 8, kSecond = 1'000'000'000;
constexpr const char* kModel = R"({
  "tiercel_spec": 1, "model_type": "example", "page_tokens": 16, "topology": {"tp": 1},
  "groups": [
    {"kind": "full", "layers": [3], "components": [{"name": "k", "shape": [2, 16], "dtype": "bf16"},
                                                   {"name": "v", "shape": [2, 16], "dtype": "bf16"}]},
    {"kind": "state", "layers": [[0, 2]], "components": [{"name": "temporal", "shape": [2, 16, 16], "dtype": "f32"}]}
  ]})";
enum : std::uint32_t { kFull, kState };  // classes, as the form numbers them

void must(const tiercel::Status& status) {
  if (status.ok()) return;
  std::fprintf(stderr, "%s\n", status.to_string().c_str());
  std::exit(1);  // NOLINT(concurrency-mt-unsafe): only this thread ever ends the program
}
template <typename T>
T must(tiercel::Result<T> result) {
  must(result.status());
  return *std::move(result);
}

using Bytes = std::vector<unsigned char>;

// The engine's memory of one class: whole records side by side.
Bytes register_slots(tiercel::Form& form, std::uint32_t class_id) {
  Bytes bytes(must(form.class_info(class_id)).record_bytes * kSlots);
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<unsigned char>(i * 31 + i / 256);
  tiercel_memory_run run{};
  run.base = bytes.data();
  run.slot_stride = bytes.size() / kSlots;
  run.component = run.layer = TIERCEL_WHOLE;
  auto options = sized<tiercel_memory_options>();
  options.class_id = class_id;
  options.slots = kSlots;
  must(form.register_memory({&run, 1}, options));
  return bytes;
}

// Page i lies in slot i; the state after the last of them in slot 0.
void store(tiercel::Namespace& ns, const std::vector<tiercel_key>& keys) {
  std::vector<tiercel_store_item> items(keys.size() + 1);
  for (std::size_t page = 0; page < keys.size(); ++page) {
    items[page].key = keys[page];
    if (page > 0) items[page].parent = keys[page - 1];
    items[page].length = page + 1;
    items[page].slot = page;
  }
  items.back() = items[keys.size() - 1];
  items.back().class_id = kState;
  items.back().slot = 0;
  const tiercel::Stored stored = must(ns.store(items));
  must(stored.operation.wait(TIERCEL_COMPLETION_VISIBLE, 10 * kSecond));
}

// Pages delivered.
std::uint64_t load(tiercel::Ticket& ticket, std::uint64_t length) {
  std::vector<std::uint64_t> slots(length);
  std::iota(slots.begin(), slots.end(), 0U);
  const std::uint64_t state = 0;
  const tiercel_load_target targets[] = {{slots.data(), nullptr, slots.size(), kFull, 0, 0},
                                         {&state, nullptr, 1, kState, 0, 0}};
  const tiercel::Operation operation = must(ticket.load(length, targets));
  must(operation.wait(0, 10 * kSecond));
  return must(operation.result()).length;
}

}  // namespace

int main() {
  auto options = sized<tiercel_node_options>();
  options.host_bytes = 16 << 20;
  tiercel::Node node = must(tiercel::Node::open(options));
  tiercel::Session session = must(node.open_session());
  tiercel::Form form = must(node.open_form(must(tiercel::Spec::from_json(kModel)), tiercel::one_rank()));
  Bytes full = register_slots(form, kFull), state = register_slots(form, kState);
  auto identity = sized<tiercel_identity>();
  identity.weights = "revision-1";
  identity.dtype = "bf16";
  tiercel::Namespace ns = must(session.open_namespace(form, identity));

  std::vector<std::uint32_t> prompt(kPages * kPageTokens);
  std::iota(prompt.begin(), prompt.end(), 1000U);
  tiercel_key_chain chain = must(ns.start_chain());
  std::vector<tiercel_key> keys = must(ns.keys_from_tokens(chain, prompt));
  store(ns, keys);

  // The next turn: two pages more, of which only the new tokens are hashed. The engine has lost its copy.
  const auto more = must(ns.keys_from_tokens(chain, std::vector<std::uint32_t>(2 * kPageTokens, 7)));
  keys.insert(keys.end(), more.begin(), more.end());
  const Bytes full_was = full, state_was = state;
  std::fill(full.begin(), full.end(), static_cast<unsigned char>(0));
  std::fill(state.begin(), state.end(), static_cast<unsigned char>(0));

  tiercel::Ticket ticket = must(ns.match(keys, TIERCEL_NO_LIMIT));
  const std::uint64_t length = load(ticket, must(ticket.summary()).length);
  for (const tiercel_miss& miss : must(ticket.reasons()))
    std::printf("%d pages missed from page %d on: %s\n", static_cast<int>(miss.pages),
                static_cast<int>(miss.first_page), tiercel_reason_name(miss.reason));
  const auto same = [](const Bytes& now, const Bytes& was, std::uint64_t slots) {
    return std::equal(now.begin(), now.begin() + static_cast<std::ptrdiff_t>(now.size() / kSlots * slots),
                      was.begin());
  };
  const bool equal = same(full, full_was, length) && same(state, state_was, 1);
  std::printf("%d pages and a snapshot loaded: %s\n", static_cast<int>(length),
              equal ? "every byte equal" : "BYTES DIFFER");
  must(node.close());  // before the memory that is registered with it goes
  return equal && length == kPages ? 0 : 1;
}
