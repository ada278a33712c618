// Sequences of calls of the ABI with whatever numbers the input holds: no call crashes, each operation
// completes exactly once, and a ticket from outside is only accepted when it is one. Pointers are real and
// lists as long as they say; everything else is the fuzzer's.
#include <array>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include <tiercel/tiercel.h>
#include <unistd.h>

#include "base/check.h"
#include "capi/test_fuzz_input.h"

namespace {

constexpr char kSpec[] =
    R"({"tiercel_spec": 1, "model_type": "t", "page_tokens": 4, "topology": {"tp": 1}, "groups": [
  {"kind": "full", "layers": [0, 2], "components": [{"name": "k", "shape": [16], "dtype": "bf16"}]},
  {"kind": "state", "layers": [1], "components": [{"name": "s", "shape": [64], "dtype": "f32"}]}]})";
constexpr std::uint64_t kSlots = 8, kRecordBytes = 256, kCallsMax = 64;

using Input = tiercel::capi::FuzzInput;
using tiercel::capi::sized;

// One small file, made anew for each input that wants it.
const char* disk_path() {
  static const std::string kPath =
      (std::filesystem::temp_directory_path() / ("tiercel-abi-fuzz." + std::to_string(::getpid()))).string();
  return kPath.c_str();
}
tiercel_disk_options small_disk() {
  auto disk = sized<tiercel_disk_options>();
  disk.path = disk_path();
  disk.bytes = 4 << 20;
  disk.index_entries = 4096;
  disk.prefetch_threshold_tokens = 1;
  disk.admission = TIERCEL_ADMIT_ALL;
  return disk;
}

class Caller {
 public:
  explicit Caller(Input& input) : input_(input) { open(); }
  ~Caller() {
    close();
    ::unlink(disk_path());
  }
  Caller(const Caller&) = delete;
  Caller& operator=(const Caller&) = delete;

  void call() {
    switch (input_.u8() % 16) {
      case 0:
        return import();
      case 1:
        return structs();
      case 2:
        return store(false);
      case 3:
        return store(true);
      case 4:
        return match();
      case 5:
        return load();
      case 6:
        return reservation();
      case 7:
        return operation();
      case 8:
        return pages();
      case 9:
        return events();
      case 10:
        return memory();
      case 11:
        return suspension();
      case 12:
        return keys();
      case 13:
        return lower();
      case 14:
        return disk_words();
      default:
        drive();
    }
  }

 private:
  static void must(tiercel_status status) { TIERCEL_CHECK(status == TIERCEL_OK); }
  // A disk that was written down records no removal any more.
  void must_hold(tiercel_status status) const {
    TIERCEL_CHECK(status == TIERCEL_OK || (opened_with_disk_ && !has_disk_ && status == TIERCEL_UNAVAILABLE));
  }
  tiercel_key key() {
    tiercel_key out{};
    out.bytes[0] = static_cast<std::uint8_t>(input_.u8() % 8);
    return out;
  }

  void open() {
    auto options = sized<tiercel_node_options>();
    options.host_bytes = 1 << 20;
    options.extent_bytes = 1 << 14;
    options.index_pages_max = options.history_entries = options.advice_entries = 64;
    options.threading = TIERCEL_THREADING_CALLER;
    options.memory_kind = input_.u8() % 4 == 0 ? TIERCEL_MEMORY_SHARED : TIERCEL_MEMORY_ANONYMOUS;
    if (input_.u8() % 2 == 0) options.disk = &disk_;
    auto refused = sized<tiercel_node_options>();
    refused.host_bytes = 1 << 20;
    tiercel_disk_options odd = disk_;
    odd.path = "/dev/null/nothing";
    input_.fill(odd.region_bytes);
    input_.fill(odd.prefetch_share);
    odd.admission = input_.number32();
    odd.write_policy = input_.number32();
    refused.disk = &odd;
    TIERCEL_CHECK(tiercel_node_open(&refused, &node_, nullptr) != TIERCEL_OK);
    if (options.disk != nullptr) options.host_bytes = 8 << 20;  // and its index
    must(tiercel_node_open(&options, &node_, nullptr));
    has_disk_ = opened_with_disk_ = options.disk != nullptr;
    must(tiercel_session_open(node_, nullptr, &session_, nullptr));
    tiercel_spec* spec = nullptr;
    must(tiercel_spec_from_json(kSpec, sizeof kSpec - 1, 0, &spec, nullptr));
    auto form = sized<tiercel_form_options>();
    auto& t = form.topology;
    t.writer = 1;
    t.tp_size = t.pp_size = t.cp_size = t.dcp_size = t.dp_size = 1;
    t.last_layer = UINT32_MAX;
    must(tiercel_form_open(node_, spec, &form, &form_, nullptr));
    tiercel_spec_release(spec);
    auto identity = sized<tiercel_identity>();
    identity.weights = identity.dtype = "x";
    must(tiercel_namespace_open(session_, form_, &identity, &ns_, nullptr));
    must(tiercel_cq_create(node_, nullptr, &cq_, nullptr));
    register_memory();
  }
  void register_memory() {
    for (std::uint32_t cls = 0; cls < 2; ++cls) {
      tiercel_memory_run run{};
      run.base = memory_[cls].data();
      run.slot_stride = kRecordBytes;
      run.component = run.layer = TIERCEL_WHOLE;
      auto options = sized<tiercel_memory_options>();
      options.runs = &run;
      options.run_count = 1;
      options.slots = kSlots;
      options.class_id = cls;
      static_cast<void>(tiercel_register_memory(form_, &options, nullptr));  // refused while copies use it
    }
  }

  void import() {
    std::array<std::uint8_t, 36> bytes{};
    if (ticket_ != nullptr) {
      std::uint64_t size = 0;
      must(tiercel_ticket_export(ticket_, bytes.data(), bytes.size(), &size, nullptr));
    }
    const std::uint64_t at = input_.number() % bytes.size();
    const std::uint8_t flip = input_.u8();
    bytes[at] ^= flip;
    tiercel_ticket* imported = nullptr;
    const tiercel_status status =
        tiercel_ticket_import(session_, bytes.data(), bytes.size(), &imported, nullptr);
    TIERCEL_CHECK(status != TIERCEL_OK || (ticket_ != nullptr && flip == 0));
    tiercel_ticket_release(imported);
  }

  // Structs without pointers, with every byte from the input.
  void structs() {
    struct {
      tiercel_cq_options known;
      std::uint64_t more[3];
    } cq;
    input_.fill(cq);
    if (input_.u8() % 2 == 0) cq.known.size = sizeof cq;
    tiercel_cq* made = nullptr;
    if (cq.known.size <= sizeof cq || cq.known.size % 8 != 0 || cq.known.size > (1 << 20))
      static_cast<void>(tiercel_cq_create(node_, &cq.known, &made, nullptr));
    tiercel_cq_release(made);
    auto form = sized<tiercel_form_options>();
    input_.fill(form.topology);
    tiercel_spec* spec = nullptr;
    must(tiercel_spec_from_json(kSpec, sizeof kSpec - 1, input_.number() % 9 * 4, &spec, nullptr));
    tiercel_form* other = nullptr;
    static_cast<void>(tiercel_form_open(node_, spec, &form, &other, nullptr));
    tiercel_form_release(other);
    tiercel_spec_release(spec);
    tiercel_run_info runs[2];
    std::uint64_t count = 0;
    static_cast<void>(tiercel_form_runs(form_, input_.number32(), runs, 2, &count, nullptr));
  }

  void store(bool reserve) {
    std::array<tiercel_store_item, 4> items{};
    for (tiercel_store_item& item : items) {
      item.key = key();
      item.parent = key();
      item.length = input_.number();
      item.class_id = input_.number32() % 3;
      item.shard = input_.number32();
      item.slot = input_.number();
      item.bytes = input_.u8() % 4 == 0 ? input_.number() : 0;
      item.resume_point = input_.u8();
    }
    auto options = sized<tiercel_store_options>();
    options.request = input_.number();
    options.items = items.data();
    options.item_count = input_.u8() % 5;
    options.after_event = input_.number();
    options.deadline_ns = input_.number();
    options.cq = cq_;
    if (has_disk_) options.tell_lower = input_.u8() % 2;
    std::array<tiercel_outcome, 4> outcomes{};
    if (reserve) {
      tiercel_reservation_release(reservation_);
      reservation_ = nullptr;
      // A process that lives as long as this one, which holds what is given up; or none.
      options.writer_pid = input_.u8() % 4 == 0 ? 1 : 0;
      static_cast<void>(tiercel_reserve(ns_, &options, outcomes.data(), &reservation_, nullptr));
      return;
    }
    tiercel_operation* made = nullptr;
    if (tiercel_store(ns_, &options, outcomes.data(), &made, nullptr) == TIERCEL_OK) begun(made);
  }

  void match() {
    tiercel_ticket_release(ticket_);
    ticket_ = nullptr;
    std::array<tiercel_key, 4> keys{};
    for (tiercel_key& k : keys) k = key();
    const std::uint64_t held[2] = {input_.number(), input_.number()};
    auto options = sized<tiercel_match_options>();
    options.request = input_.number();
    options.keys = keys.data();
    options.key_count = input_.u8() % 5;
    options.may_promote = input_.u8() % 2;
    options.deadline_ns = input_.number();
    options.first_page = input_.number();
    options.held = held;
    options.held_count = input_.u8() % 3;
    options.limit_tokens = input_.u8() % 2 == 0 ? TIERCEL_NO_LIMIT : input_.number();
    options.prompt_tokens = input_.number();
    if (tiercel_match(ns_, &options, &ticket_, nullptr) != TIERCEL_OK) return;
    auto advice = sized<tiercel_advice_options>();
    input_.fill(advice.from);
    advice.pages = input_.number();
    advice.multiple_of = input_.number();
    std::uint64_t lengths[4], count = 0;
    const tiercel_status pending = tiercel_snapshot_advice(ticket_, &advice, lengths, 4, &count, nullptr);
    TIERCEL_CHECK(pending == TIERCEL_OK || (has_disk_ && pending == TIERCEL_UNAVAILABLE));
    if (input_.u8() % 2 == 0) static_cast<void>(tiercel_ticket_wait(ticket_, 1'000'000'000, nullptr));
    static_cast<void>(tiercel_ticket_resident(ticket_, input_.u8() % 5, lengths, 4, &count, nullptr));
  }

  void load() {
    if (ticket_ == nullptr) return;
    std::array<std::uint64_t, 4> slots{};
    for (std::uint64_t& slot : slots) slot = input_.u8() % 4 == 0 ? TIERCEL_SKIP : input_.number();
    std::array<tiercel_load_target, 2> targets{};
    for (tiercel_load_target& target : targets) {
      target.slots = slots.data();
      target.count = input_.u8() % 5;
      target.class_id = input_.number32() % 3;
      target.shard = input_.number32();
    }
    const std::array<std::uint32_t, 3> layers = {input_.number32(), 1, 0};
    auto options = sized<tiercel_load_options>();
    options.length = input_.number();
    options.targets = targets.data();
    options.target_count = input_.u8() % 3;
    options.layers = layers.data();
    options.layer_count = input_.u8() % 4;
    options.after_event = input_.number();
    options.deadline_ns = input_.number();
    options.mode = input_.u8() % 4;
    options.cq = cq_;
    tiercel_operation* made = nullptr;
    if (tiercel_load(ticket_, &options, &made, nullptr) == TIERCEL_OK) begun(made);
  }

  void reservation() {
    if (reservation_ == nullptr) return;
    auto options = sized<tiercel_commit_options>();
    options.cq = cq_;
    const std::uint32_t sums[3] = {input_.number32(), 0, 0};
    tiercel_arrival arrivals[2] = {};
    for (tiercel_arrival& arrival : arrivals) {
      arrival.item = input_.u8() % 4 == 0 ? input_.number() : input_.u8() % 4;
      arrival.checksum_count = input_.u8() % 4;
      arrival.checksums = sums;
    }
    options.arrivals = arrivals;
    options.arrival_count = input_.u8() % 3;
    options.trust_checksums = input_.u8() % 2;
    if (input_.u8() % 4 == 0) must(tiercel_writer_stopped(reservation_, nullptr));
    tiercel_segment spans[4];
    std::uint64_t count = 0;
    if (tiercel_reservation_spans(reservation_, input_.number(), spans, 4, &count, nullptr) == TIERCEL_OK)
      for (std::uint64_t i = 0; i < count && i < 4; ++i) std::memset(spans[i].data, 1, spans[i].size);
    tiercel_file_segment pieces[16];
    static_cast<void>(tiercel_reservation_segments(reservation_, input_.number(),
                                                   input_.u8() % 2 == 0 ? nullptr : "layer_first", pieces, 16,
                                                   &count, nullptr));
    tiercel_writer_info writers[2];
    must(tiercel_writers_read(node_, writers, 2, &count, nullptr));
    tiercel_operation* made = nullptr;
    const std::uint8_t which = input_.u8() % 3;
    const tiercel_status status = which == 0   ? tiercel_commit(reservation_, &options, &made, nullptr)
                                  : which == 1 ? tiercel_attach(reservation_, &options, &made, nullptr)
                                               : tiercel_abort(reservation_, nullptr);
    if (status == TIERCEL_OK && which != 2) begun(made);
  }

  void operation() {
    if (operations_.empty()) return;
    tiercel_operation* const one = operations_[input_.u8() % operations_.size()];
    if (input_.u8() % 2 == 0) must(tiercel_operation_cancel(one, nullptr));
    static_cast<void>(tiercel_operation_wait(one, input_.number32(), 0, nullptr));
    static_cast<void>(tiercel_wait_layer(one, input_.number32(), 0, nullptr));
    auto result = sized<tiercel_operation_result>();
    static_cast<void>(tiercel_operation_result_read(one, &result, nullptr));
    std::uint32_t outcomes[4];
    std::uint64_t count = 0;
    static_cast<void>(tiercel_load_outcomes(one, input_.number(), outcomes, 4, &count, nullptr));
    static_cast<void>(tiercel_store_outcomes(one, outcomes, 4, &count, nullptr));
    auto brought = sized<tiercel_prefetch_result>();
    static_cast<void>(tiercel_prefetch_result_read(one, &brought, nullptr));
    tiercel_miss misses[2];
    static_cast<void>(tiercel_prefetch_reasons(one, misses, 2, &count, nullptr));
  }

  void lower() {
    std::array<tiercel_key, 4> keys{};
    for (tiercel_key& k : keys) k = key();
    const std::uint64_t held[2] = {input_.number(), input_.number()};
    auto options = sized<tiercel_prefetch_options>();
    options.request = input_.number();
    options.keys = keys.data();
    options.key_count = input_.u8() % 5;
    options.deadline_ns = input_.number();
    options.first_page = input_.number();
    options.held = held;
    options.held_count = input_.u8() % 3;
    options.policy = input_.u8() % 5;
    options.cq = cq_;
    tiercel_operation* made = nullptr;
    const tiercel_status status = tiercel_prefetch(ns_, &options, &made, nullptr);
    TIERCEL_CHECK(has_disk_ || status != TIERCEL_OK);
    if (status == TIERCEL_OK) begun(made);
  }
  void disk_words() {
    auto stats = sized<tiercel_disk_stats>();
    TIERCEL_CHECK(tiercel_disk_stats_read(node_, &stats, nullptr) ==
                  (opened_with_disk_ ? TIERCEL_OK : TIERCEL_UNSUPPORTED));
    char text[64];
    std::uint64_t count = 0;
    must(tiercel_status_text(node_, text, sizeof text, &count, nullptr));
    if (input_.u8() % 2 == 0) static_cast<void>(tiercel_flush(node_, 1'000'000, nullptr));
    if (input_.u8() % 8 != 0) return;
    auto report = sized<tiercel_write_down>();
    TIERCEL_CHECK(tiercel_node_write_down(node_, 1'000'000'000, &report, nullptr) ==
                  (has_disk_ ? TIERCEL_OK : TIERCEL_UNSUPPORTED));
    has_disk_ = false;
  }

  void pages() {
    const tiercel_key k = key();
    auto state = sized<tiercel_page_state>();
    must(tiercel_why(ns_, &k, &state, nullptr));
    switch (input_.u8() % 9) {
      case 0:
        return must_hold(tiercel_remove(ns_, &k, 1, nullptr));
      case 1:
        return static_cast<void>(tiercel_pin(ns_, &k, 1, input_.number(), nullptr));
      case 2:
        return must(tiercel_unpin(ns_, &k, 1, nullptr));
      case 3:
        return must(tiercel_touch(ns_, &k, 1, input_.number(), nullptr));
      case 4:
        return must_hold(tiercel_invalidate(ns_, nullptr));
      case 5:
        return static_cast<void>(tiercel_clear(input_.number32(), ns_, nullptr, input_.number32(), nullptr));
      case 6:
        return must_hold(tiercel_set_weights_epoch(form_, input_.number() % 2, nullptr));
      case 7:
        return must(tiercel_request_abort(session_, input_.number(), nullptr));
      default:
        return must(tiercel_request_end(session_, input_.number(), nullptr));
    }
  }

  void events() {
    std::uint64_t event = input_.number();
    if (input_.u8() % 2 == 0)
      must(tiercel_event_create(node_, &event, nullptr));
    else
      static_cast<void>(tiercel_event_fire(node_, event, nullptr));
    tiercel_cache_event out[3];
    std::uint64_t count = 0, lost = 0;
    must(tiercel_events_drain(node_, out, input_.u8() % 4, &count, &lost, nullptr));
  }

  // Anything may be described; nothing may be copied while it is not really ours.
  void memory() {
    std::array<tiercel_memory_run, 2> runs{};
    for (tiercel_memory_run& run : runs) {
      input_.fill(run.slot_stride);
      run.base = memory_[0].data();
      run.layer_stride = input_.number();
      run.entry_stride = input_.number();
      run.component = input_.u8() % 2 == 0 ? TIERCEL_WHOLE : input_.number32();
      run.layer = input_.u8() % 2 == 0 ? TIERCEL_WHOLE : input_.number32();
    }
    auto options = sized<tiercel_memory_options>();
    options.runs = runs.data();
    options.run_count = input_.u8() % 3;
    options.slots = input_.number();
    options.class_id = input_.number32();
    options.shard = input_.number32();
    static_cast<void>(tiercel_register_memory(form_, &options, nullptr));
    register_memory();
  }

  void suspension() {
    auto options = sized<tiercel_commit_options>();
    options.cq = cq_;
    tiercel_operation* made = nullptr;
    must(tiercel_suspend(node_, &options, &made, nullptr));
    begun(made);
    must(tiercel_operation_wait(made, 0, TIERCEL_FOREVER, nullptr));
    must(tiercel_resume(node_, nullptr));
    register_memory();
  }

  void keys() {
    std::array<std::uint32_t, 16> tokens{};
    std::array<tiercel_key, 4> out{};
    tiercel_key_chain chain{};
    input_.fill(chain);
    std::uint64_t count = 0;
    static_cast<void>(tiercel_keys_from_tokens(ns_, &chain, tokens.data(), input_.u8() % 9, input_.number32(),
                                               nullptr, 0, out.data(), input_.u8() % 5, &count, nullptr,
                                               nullptr));
    std::array<std::uint64_t, 4> wanted{};
    auto options = sized<tiercel_offer_options>();
    const std::uint64_t points[2] = {input_.number(), input_.number()};
    options.keys = out.data();
    options.key_count = input_.u8() % 5;
    options.first_page = input_.number();
    options.points = points;
    options.point_count = input_.u8() % 3;
    options.event = input_.number32();
    static_cast<void>(tiercel_offer(ns_, &options, wanted.data(), nullptr));
  }

  void begun(tiercel_operation* made) {
    operations_.push_back(made);
    ++begun_[tiercel_operation_id(made)];
  }
  void drive() {
    must(tiercel_poll(node_, 1'000'000, nullptr, nullptr));
    drain();
  }
  void drain() {
    tiercel_completion completions[8];
    for (std::uint64_t count = 8; count == 8;) {
      must(tiercel_cq_drain(cq_, completions, 8, &count, nullptr));
      for (std::uint64_t i = 0; i < count; ++i)
        if ((completions[i].flags & TIERCEL_COMPLETION_LAST) != 0) ++ended_[completions[i].operation];
    }
  }
  void close() {
    must(tiercel_node_close(node_, nullptr));
    drain();
    TIERCEL_CHECK(begun_ == ended_);
    for (tiercel_operation* one : operations_) tiercel_operation_release(one);
    tiercel_reservation_release(reservation_);
    tiercel_ticket_release(ticket_);
    tiercel_cq_release(cq_);
    tiercel_namespace_release(ns_);
    tiercel_form_release(form_);
    must(tiercel_session_close(session_, nullptr));
  }

  Input& input_;
  tiercel_disk_options disk_ = small_disk();
  bool has_disk_ = false, opened_with_disk_ = false;
  std::array<std::array<std::uint8_t, kSlots * kRecordBytes>, 2> memory_{};
  tiercel_node* node_ = nullptr;
  tiercel_session* session_ = nullptr;
  tiercel_form* form_ = nullptr;
  tiercel_namespace* ns_ = nullptr;
  tiercel_cq* cq_ = nullptr;
  tiercel_ticket* ticket_ = nullptr;
  tiercel_reservation* reservation_ = nullptr;
  std::vector<tiercel_operation*> operations_;
  std::map<std::uint64_t, int> begun_, ended_;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  Input input(data, size);
  Caller caller(input);
  for (std::uint64_t calls = 0; calls < kCallsMax && !input.empty(); ++calls) caller.call();
  return 0;
}
