// What a ContextCache is made of. Its calls are spread over context_cache.cc (the public face and computing),
// restoring.cc, saving.cc, and whole_states.cc (states that are not understood).
//
// Threads: one at a time.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <tiercel/llamacpp.hpp>

#include "decode_plan.h"
#include "identity.h"
#include "model_layout.h"
#include "sequence_state.h"

namespace tiercel::llamacpp {

// Bytes that are not cleared first, and stay for the next use: touching them for the first time takes longer
// than copying.
class Buffer {
 public:
  // The bytes given before are void.
  std::span<std::uint8_t> take(std::size_t size);

 private:
  std::unique_ptr<std::uint8_t[]> bytes_;
  std::size_t capacity_ = 0;
};

// Records as lists of pieces of a state, for a load or a store.
class RecordList {
 public:
  void begin() { firsts_.push_back(pieces_.size()); }
  std::vector<tiercel_segment>& pieces() { return pieces_; }
  // Good until the next change.
  std::span<const tiercel_record_memory> records();

 private:
  std::vector<tiercel_segment> pieces_;
  std::vector<std::size_t> firsts_;
  std::vector<tiercel_object> objects_;
  std::vector<tiercel_record_memory> records_;
};

inline constexpr std::uint64_t kOperationWait = 60'000'000'000;
// Beyond the deadline of what is brought up; a ticket answers by itself before that.
inline constexpr std::uint64_t kTicketWait = 30'000'000'000;

// The sum, or as long as can be said.
std::uint64_t longer(std::uint64_t wait_ns, std::uint64_t by_ns);

// Until a completion (0: the last one) was given, and nothing touches the operation's memory any more; what
// takes longer than `at_most_ns` is cancelled. Errors: those of waiting.
Status finish(Operation& operation, tiercel_completion_kind until, std::uint64_t at_most_ns = kOperationWait);

using Tokens = std::span<const llama_token>;

// What is known of a sequence between the calls.
struct SequenceMemory {
  // How many of `tokens`, from the first on, are those of the prompt.
  std::uint32_t same_as_prompt(Tokens tokens) const;

  std::vector<llama_token> prompt;     // of the last restore; what is said below is said of it
  std::uint32_t stored_tokens = 0;     // so many came from the store, or were stored since
  std::vector<std::uint32_t> advised;  // lengths at which the store thinks a snapshot worth its room
  std::map<std::uint32_t, std::vector<std::uint8_t>> snapshots;  // records by length, not stored yet
};

// Records of one class on their way into the store.
struct RecordBatch {
  std::uint32_t cls = 0;
  std::vector<std::uint32_t> lengths;  // of each record's prefix, in pages
  RecordList records;
  std::uint64_t visible_within_ns = kOperationWait;  // what is not by then is given up
};
struct StoredRecords {
  std::uint64_t stored = 0;         // by this call
  std::uint64_t refused = 0;        // neither by this call nor by an earlier one
  std::uint32_t first_refused = 0;  // length
  const char* refusal = nullptr;    // its name
};
// keys: of the prefixes of 1, 2, … pages.
Result<StoredRecords> store_records(Namespace& ns, std::span<const tiercel_key> keys, RecordBatch& batch);

struct ContextCache::State {
  llama_context* context = nullptr;
  ContextOptions options;
  bool own_cells = false;  // each sequence has some
  ModelLayout layout;
  Identity identity;
  std::map<llama_seq_id, SequenceMemory> sequences;
  Buffer state_bytes, record_bytes;

  // Of the store in use.
  std::shared_ptr<Store> store;
  Session session;
  Form form;
  Namespace pages;   // keys are chained over tokens
  Namespace pieces;  // whole states: keys are those of `pages`, and the number of the piece
  std::optional<std::uint32_t> page_class, snapshot_class;
  std::vector<tiercel_run_info> runs;  // of a page's record, in order

  bool exact() const { return options.mode == Mode::kExact; }
  bool has_store() const { return store != nullptr && store->is_open(); }
  PlanInput plan(std::size_t prompt_tokens) const;
  llama_memory_t memory() const { return llama_get_memory(context); }
  void say(const std::string& line) const;

  // context_cache.cc
  Status check_arguments(llama_seq_id sequence, Tokens tokens) const;
  bool others_hold_cells(llama_seq_id sequence) const;
  // Exact mode: what is in its way with this sequence now; empty: nothing.
  std::string why_not_exact_now(llama_seq_id sequence) const;
  // Whether nothing else lies between the sequence's cells.
  bool alone(llama_seq_id sequence) const;
  void clear_sequence(llama_seq_id sequence);
  Status open_namespaces();
  Status decode(llama_seq_id sequence, Tokens prompt, std::uint32_t from, std::uint32_t count);
  std::vector<std::uint32_t> stops(llama_seq_id sequence, const PlanInput& input,
                                   std::uint32_t restored) const;

  // Of `tokens`, which the sequence holds, the first `storable`. `of_now`: a snapshot of the sequence as it
  // is may be taken, too.
  Result<Saved> save(llama_seq_id sequence, Tokens tokens, std::uint32_t storable, bool of_now);

  // restoring.cc
  Result<std::vector<tiercel_key>> keys_of(Tokens tokens) const;
  Status restore_pages(llama_seq_id sequence, Tokens prompt, Restored& restored);
  // Loads what a resume at `length` pages needs, and gives it to llama.cpp; *bytes: of that state. Returns:
  // pages that were really delivered; fewer than asked: the sequence is as it was.
  Result<std::uint32_t> load_state(llama_seq_id sequence, Ticket& ticket, std::uint32_t length,
                                   std::uint64_t& bytes);
  Result<std::vector<std::uint8_t>> tail_of_record(std::span<const std::uint8_t> record) const;
  // Lengths above `from`, of a prompt of so many pages.
  void take_advice(llama_seq_id sequence, Ticket& ticket, std::size_t pages_asked, std::uint32_t from);
  // Gives llama.cpp the state. Returns: whether the sequence has `length` tokens now; else it is empty.
  bool give_state(llama_seq_id sequence, std::span<const std::uint8_t> state, std::uint32_t length);
  void append_page(const AttentionSection& section, const RowOfPosition& rows, std::uint32_t page,
                   std::uint8_t* state, RecordList& list) const;

  // saving.cc
  // Keeps a snapshot of now, `length` tokens, until it is stored. Returns: whether there is one.
  bool keep_snapshot(llama_seq_id sequence, std::uint32_t length);
  // Of snapshots that are kept, forgets those that do not belong to these tokens, or lie beyond `limit` of
  // them.
  void forget_other_snapshots(llama_seq_id sequence, Tokens tokens, std::uint32_t limit);
  Result<std::vector<std::uint32_t>> wanted_snapshots(llama_seq_id sequence, Tokens tokens,
                                                      const std::vector<tiercel_key>& keys, bool of_now);
  Status save_attention(llama_seq_id sequence, Tokens tokens, const std::vector<tiercel_key>& keys,
                        const std::vector<std::uint32_t>& snapshots, Saved& saved);
  void save_snapshots(llama_seq_id sequence, const std::vector<tiercel_key>& keys,
                      const std::vector<std::uint32_t>& lengths, Saved& saved);
  Status save_pages(llama_seq_id sequence, Tokens tokens, std::uint32_t limit, bool of_now, Saved& saved);

  // whole_states.cc
  Status restore_whole(llama_seq_id sequence, Tokens prompt, Restored& restored);
  Result<bool> restore_object(llama_seq_id sequence, const tiercel_key& prefix, std::uint32_t length,
                              Restored& restored);
  // Removes an object that is not whole, or was refused. Returns: false.
  Result<bool> drop_object(std::span<const tiercel_key> first, Restored& restored);
  Status save_object(const tiercel_key& prefix, std::span<const std::uint8_t> state, Saved& saved);
  Status save_whole(llama_seq_id sequence, Tokens tokens, std::uint32_t limit, bool of_now, Saved& saved);
};

}  // namespace tiercel::llamacpp
