// A program that uses the ABI, for tests: one node, one model with full attention and a state, its memory.
//
// Threads: used by one thread, where a test does not say otherwise.
#pragma once

#include <cstdint>
#include <cstring>
#include <filesystem>
#include <memory>
#include <numeric>
#include <string>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>
#include <poll.h>
#include <stdlib.h>
#include <tiercel/tiercel.h>

namespace tiercel::capi {

inline constexpr std::uint64_t kSecond = 1'000'000'000;
inline constexpr std::uint64_t kLong = 30 * kSecond;  // a deadline that only a broken build meets

// Expects success, and shows the message of what failed.
#define TIERCEL_OK_CALL(call)                                   \
  do {                                                          \
    tiercel_error tiercel_test_error_{};                        \
    tiercel_error* const error = &tiercel_test_error_;          \
    ASSERT_EQ(call, TIERCEL_OK) << tiercel_test_error_.message; \
  } while (false)

// A struct of the ABI with its size filled in.
template <typename T>
T sized() {
  T value{};
  value.size = sizeof(T);
  return value;
}

// Removed at the end with all that is in it.
class Folder {
 public:
  Folder() {
    std::string name = (std::filesystem::temp_directory_path() / "tiercel-capi.XXXXXX").string();
    EXPECT_NE(::mkdtemp(name.data()), nullptr);
    path_ = name;
  }
  ~Folder() { std::filesystem::remove_all(path_); }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  std::string of(const char* name) const { return (path_ / name).string(); }

 private:
  std::filesystem::path path_;
};

struct ProgramOptions {
  tiercel_threading threading = TIERCEL_THREADING_CONTROL;
  std::uint64_t host_bytes = 8 << 20;
  std::uint32_t copy_threads = 0;
  std::string salt;
  std::uint64_t slots = 64;
  bool registers = true;
  const tiercel_disk_options* disk = nullptr;
  const tiercel_remote_options* remote = nullptr;
};

// Full attention in layers 0 and 2 (k and v of 4 tokens × 32 bytes), a state of 256 bytes in layer 1.
class Program {
 public:
  static constexpr std::uint64_t kPageTokens = 4;
  static constexpr std::uint64_t kPart = 128;  // bytes of a component of a layer of a page
  static constexpr std::uint64_t kFullBytes = 4 * kPart;
  static constexpr std::uint64_t kStateBytes = 256;

  explicit Program(const ProgramOptions& options = {});
  ~Program();
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;
  void close();  // the node, before the other handles

  tiercel_namespace* open_namespace(tiercel_session* session, const char* adapter) const;
  // Keys of so many pages of a prompt that differs from others of another `seed`.
  static std::vector<tiercel_key> make_keys(const tiercel_namespace* ns, std::uint64_t pages,
                                            std::uint32_t seed);
  // Pages in slots first, first + 1, …, and the snapshot after the last of them in slot `first`.
  static std::vector<tiercel_store_item> items(const std::vector<tiercel_key>& keys, std::uint64_t first = 0);
  void register_memory();
  // Stores them and waits until they are visible.
  void store(const std::vector<tiercel_key>& keys, std::uint64_t first = 0);
  tiercel_ticket* match(const std::vector<tiercel_key>& keys, std::uint64_t request = 0);
  std::uint64_t length_of(const tiercel_ticket* ticket);
  std::uint64_t promoted_length(const std::vector<tiercel_key>& keys);
  std::vector<std::byte>& full() { return full_; }
  std::vector<std::byte>& state() { return state_; }
  void fill(std::uint32_t seed);

  ProgramOptions options;
  tiercel_node* node = nullptr;
  tiercel_session* session = nullptr;
  tiercel_form* form = nullptr;
  tiercel_namespace* ns = nullptr;

 private:
  std::vector<std::byte> full_, state_;
};

tiercel_spec* make_test_spec();
tiercel_topology whole_topology();

inline Program::Program(const ProgramOptions& wanted) : options(wanted) {
  auto node_options = sized<tiercel_node_options>();
  node_options.host_bytes = options.host_bytes;
  node_options.threading = options.threading;
  node_options.copy_threads = options.copy_threads;
  node_options.client_share = 1;
  node_options.load_back_threshold_tokens = 1;
  node_options.disk = options.disk;
  node_options.remote = options.remote;
  tiercel_error error{};
  EXPECT_EQ(tiercel_node_open(&node_options, &node, &error), TIERCEL_OK) << error.message;
  auto session_options = sized<tiercel_session_options>();
  session_options.tenant_salt = {options.salt.data(), options.salt.size()};
  EXPECT_EQ(tiercel_session_open(node, &session_options, &session, &error), TIERCEL_OK) << error.message;
  tiercel_spec* const spec = make_test_spec();
  auto form_options = sized<tiercel_form_options>();
  form_options.topology = whole_topology();
  EXPECT_EQ(tiercel_form_open(node, spec, &form_options, &form, &error), TIERCEL_OK) << error.message;
  tiercel_spec_release(spec);
  ns = open_namespace(session, "");
  full_.resize(options.slots * kFullBytes);
  state_.resize(options.slots * kStateBytes);
  if (options.registers) register_memory();
}

inline Program::~Program() {
  tiercel_namespace_release(ns);
  tiercel_form_release(form);
  EXPECT_EQ(tiercel_session_close(session, nullptr), TIERCEL_OK);
  EXPECT_EQ(tiercel_node_close(node, nullptr), TIERCEL_OK);
}

inline void Program::close() {
  EXPECT_EQ(tiercel_node_close(node, nullptr), TIERCEL_OK);
  node = nullptr;
}

inline tiercel_namespace* Program::open_namespace(tiercel_session* of, const char* adapter) const {
  auto identity = sized<tiercel_identity>();
  identity.model = "test";
  identity.weights = "revision";
  identity.dtype = "bf16";
  identity.adapter = adapter;
  tiercel_namespace* opened = nullptr;
  tiercel_error error{};
  EXPECT_EQ(tiercel_namespace_open(of, form, &identity, &opened, &error), TIERCEL_OK) << error.message;
  return opened;
}

inline std::vector<tiercel_key> Program::make_keys(const tiercel_namespace* ns, std::uint64_t pages,
                                                   std::uint32_t seed) {
  std::vector<std::uint32_t> tokens(pages * kPageTokens);
  for (std::size_t i = 0; i < tokens.size(); ++i) tokens[i] = seed * 1000 + static_cast<std::uint32_t>(i);
  tiercel_key_chain chain{};
  EXPECT_EQ(tiercel_key_chain_start(ns, &chain, nullptr), TIERCEL_OK);
  std::vector<tiercel_key> keys(pages);
  std::uint64_t count = 0;
  EXPECT_EQ(tiercel_keys_from_tokens(ns, &chain, tokens.data(), tokens.size(), 1, nullptr, 0, keys.data(),
                                     pages, &count, nullptr, nullptr),
            TIERCEL_OK);
  EXPECT_EQ(count, pages);
  return keys;
}

inline std::vector<tiercel_store_item> Program::items(const std::vector<tiercel_key>& keys,
                                                      std::uint64_t first) {
  std::vector<tiercel_store_item> out;
  for (std::size_t page = 0; page < keys.size(); ++page) {
    tiercel_store_item& item = out.emplace_back(tiercel_store_item{});
    item.key = keys[page];
    if (page != 0) item.parent = keys[page - 1];
    item.length = page + 1;
    item.slot = first + page;
  }
  if (out.empty()) return out;
  tiercel_store_item snapshot = out.back();
  snapshot.class_id = 1;
  snapshot.slot = first;
  out.push_back(snapshot);
  return out;
}

inline void Program::register_memory() {
  const std::uint64_t stride = options.slots * kPart;
  std::vector<tiercel_memory_run> runs(2, tiercel_memory_run{});
  for (std::uint32_t component = 0; component < 2; ++component) {
    runs[component].base = full_.data() + component * stride;
    runs[component].slot_stride = kPart;
    runs[component].layer_stride = 2 * stride;
    runs[component].component = component;
    runs[component].layer = TIERCEL_WHOLE;
  }
  auto memory = sized<tiercel_memory_options>();
  memory.runs = runs.data();
  memory.run_count = 2;
  memory.slots = options.slots;
  tiercel_error error{};
  EXPECT_EQ(tiercel_register_memory(form, &memory, &error), TIERCEL_OK) << error.message;
  tiercel_memory_run whole{};
  whole.base = state_.data();
  whole.slot_stride = kStateBytes;
  whole.component = whole.layer = TIERCEL_WHOLE;
  memory.runs = &whole;
  memory.run_count = 1;
  memory.class_id = 1;
  EXPECT_EQ(tiercel_register_memory(form, &memory, &error), TIERCEL_OK) << error.message;
}

inline void Program::fill(std::uint32_t seed) {
  std::uint32_t value = seed * 2654435761U + 1;
  for (std::vector<std::byte>* bytes : {&full_, &state_})
    for (std::byte& byte : *bytes)
      byte = static_cast<std::byte>((value = value * 1664525U + 1013904223U) >> 24);
}

inline void Program::store(const std::vector<tiercel_key>& keys, std::uint64_t first) {
  const std::vector<tiercel_store_item> all = items(keys, first);
  auto store_options = sized<tiercel_store_options>();
  store_options.items = all.data();
  store_options.item_count = all.size();
  tiercel_operation* operation = nullptr;
  tiercel_error error{};
  ASSERT_EQ(tiercel_store(ns, &store_options, nullptr, &operation, &error), TIERCEL_OK) << error.message;
  EXPECT_EQ(tiercel_operation_wait(operation, TIERCEL_COMPLETION_VISIBLE, kLong, &error), TIERCEL_OK)
      << error.message;
  tiercel_operation_release(operation);
}

inline tiercel_ticket* Program::match(const std::vector<tiercel_key>& keys, std::uint64_t request) {
  auto match_options = sized<tiercel_match_options>();
  match_options.keys = keys.data();
  match_options.key_count = keys.size();
  match_options.limit_tokens = TIERCEL_NO_LIMIT;
  match_options.request = request;
  tiercel_ticket* ticket = nullptr;
  tiercel_error error{};
  EXPECT_EQ(tiercel_match(ns, &match_options, &ticket, &error), TIERCEL_OK) << error.message;
  return ticket;
}

inline std::uint64_t Program::length_of(const tiercel_ticket* ticket) {
  auto counts = sized<tiercel_ticket_counts>();
  EXPECT_EQ(tiercel_ticket_summary(ticket, &counts, nullptr), TIERCEL_OK);
  return counts.length;
}

// A match that may wait for the tiers below, and has. It ends on `cq` with user_data 77.
inline tiercel_ticket* promoted(tiercel_namespace* ns, const std::vector<tiercel_key>& keys,
                                tiercel_cq* cq = nullptr) {
  auto match = sized<tiercel_match_options>();
  match.keys = keys.data();
  match.key_count = keys.size();
  match.limit_tokens = TIERCEL_NO_LIMIT;
  match.may_promote = 1;
  match.cq = cq;
  match.user_data = 77;
  tiercel_ticket* ticket = nullptr;
  tiercel_error error{};
  EXPECT_EQ(tiercel_match(ns, &match, &ticket, &error), TIERCEL_OK) << error.message;
  EXPECT_EQ(tiercel_ticket_wait(ticket, kLong, &error), TIERCEL_OK) << error.message;
  return ticket;
}

inline std::uint64_t Program::promoted_length(const std::vector<tiercel_key>& keys) {
  tiercel_ticket* const ticket = promoted(ns, keys);
  const std::uint64_t length = length_of(ticket);
  tiercel_ticket_release(ticket);
  return length;
}

inline tiercel_spec* make_test_spec() {
  constexpr std::string_view kSpec = R"({"tiercel_spec": 1, "model_type": "test", "page_tokens": 4,
    "topology": {"tp": 1}, "groups": [
      {"kind": "full", "layers": [0, 2], "components": [{"name": "k", "shape": [16], "dtype": "bf16"},
                                                        {"name": "v", "shape": [16], "dtype": "bf16"}]},
      {"kind": "state", "layers": [1], "components": [{"name": "s", "shape": [64], "dtype": "f32"}]}]})";
  tiercel_spec* spec = nullptr;
  tiercel_error error{};
  EXPECT_EQ(tiercel_spec_from_json(kSpec.data(), kSpec.size(), 0, &spec, &error), TIERCEL_OK)
      << error.message;
  return spec;
}

inline tiercel_topology whole_topology() {
  tiercel_topology topology{};
  topology.tp_size = topology.pp_size = topology.cp_size = topology.dcp_size = topology.dp_size = 1;
  topology.last_layer = UINT32_MAX;
  topology.writer = 1;
  return topology;
}

// ---- parts of calls ----

inline tiercel_store_options store_of(const std::vector<tiercel_store_item>& items) {
  auto options = sized<tiercel_store_options>();
  options.items = items.data();
  options.item_count = items.size();
  return options;
}

inline bool readable(const tiercel_cq* cq) {
  int fd = -1;
  EXPECT_EQ(tiercel_cq_fd(cq, &fd, nullptr), TIERCEL_OK);
  pollfd wait{fd, POLLIN, 0};
  return ::poll(&wait, 1, 0) == 1;
}

inline std::vector<tiercel_completion> drain(tiercel_cq* cq) {
  std::vector<tiercel_completion> out(256);
  std::uint64_t count = 0;
  EXPECT_EQ(tiercel_cq_drain(cq, out.data(), out.size(), &count, nullptr), TIERCEL_OK);
  out.resize(count);
  return out;
}

inline tiercel_cq* make_cq(tiercel_node* node, std::uint64_t capacity = 0) {
  auto options = sized<tiercel_cq_options>();
  options.capacity = capacity;
  tiercel_cq* cq = nullptr;
  EXPECT_EQ(tiercel_cq_create(node, &options, &cq, nullptr), TIERCEL_OK);
  return cq;
}

inline std::uint64_t make_event(tiercel_node* node) {
  std::uint64_t event = 0;
  EXPECT_EQ(tiercel_event_create(node, &event, nullptr), TIERCEL_OK);
  return event;
}

// Loads `length` pages and the snapshot into slots first, first + 1, …; the snapshot into `first`.
inline tiercel_operation* load(tiercel_ticket* ticket, std::uint64_t length, std::uint64_t first = 0,
                               tiercel_cq* cq = nullptr, std::uint64_t after_event = 0) {
  std::vector<std::uint64_t> slots(length);
  std::iota(slots.begin(), slots.end(), first);
  tiercel_load_target targets[2] = {};
  targets[0].slots = slots.data();
  targets[0].count = slots.size();
  targets[1].slots = &first;
  targets[1].count = 1;
  targets[1].class_id = 1;
  auto options = sized<tiercel_load_options>();
  options.length = length;
  options.targets = targets;
  options.target_count = 2;
  options.cq = cq;
  options.after_event = after_event;
  tiercel_operation* operation = nullptr;
  tiercel_error error{};
  EXPECT_EQ(tiercel_load(ticket, &options, &operation, &error), TIERCEL_OK) << error.message;
  return operation;
}

inline tiercel_operation_result result_of(const tiercel_operation* operation) {
  auto result = sized<tiercel_operation_result>();
  EXPECT_EQ(tiercel_operation_result_read(operation, &result, nullptr), TIERCEL_OK);
  return result;
}

}  // namespace tiercel::capi
