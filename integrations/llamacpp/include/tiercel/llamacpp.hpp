// Tiercel for llama.cpp: a prefix cache that outlives the process, for any program that calls llama_decode.
//
//   auto store = tiercel::llamacpp::Store::open({.folder = "cache"});
//   auto cache = tiercel::llamacpp::ContextCache::attach(ctx, params, {.model_files = {"model.gguf"}});
//   if (store && cache) (*cache)->use(*store);
//   (*cache)->prefill(0, prompt);          // instead of llama_decode over the prompt; logits: its last
//   token's
//   ... generate as ever ...
//   (*cache)->save(0, prompt_and_answer);  // fast mode: what was generated, too
//
// What is cached: attention rows in pages of 16 tokens, shared by every prompt that begins alike; window
// cells and recurrent states as snapshots, each for one length. Memory kinds that are not understood are kept
// whole, one object for each length. docs/guide/llamacpp.md says what is bitwise equal to plain llama.cpp and
// what is not.
//
// Sequences: a sequence that is given to restore() or prefill() is emptied first. Positions must be 0, 1, 2
// …: what was shifted (llama_memory_seq_add, seq_div) must not be saved. n_rs_seq must be 0. After a sequence
// was changed by anything but appending (seq_rm, seq_cp, a state set by hand) call forget().
//
// Errors: a cache may always answer "nothing": what it lacks, what is damaged, what cannot be stored are no
// errors but a shorter restored length, or less saved, with a reason. Only Store::open fails where another
// process has the folder (unavailable): go on without a store then. Errors of the other calls are what
// llama.cpp refused to compute, and arguments that make no sense.
//
// Threads: a ContextCache like its llama_context: one thread at a time. A Store: any, but close() and the
// destructor must be alone with it: no call of a ContextCache that uses it meanwhile.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <llama.h>
#include <tiercel/tiercel.hpp>

namespace tiercel::llamacpp {

using Log = std::function<void(const std::string& line)>;

// ---- the store ----

struct StoreOptions {
  std::string folder;  // required; made if there is none (0700). One file of cache_bytes
  // On disk, claimed at once, never exceeded. 0: 4 GiB of a new store, of an existing one what it has.
  // Another size than it has is an error.
  std::uint64_t cache_bytes = 0;
  std::uint64_t host_bytes = 512ULL << 20;  // in memory
  std::uint64_t wait_ns = 5'000'000'000;    // for another process that has it
  // Below the disk, a store that other machines reach, too: mooncake://HOST:PORT, valkey://HOST:PORT,
  // posix:FOLDER … (docs/guide/connectors.md). Empty: what the environment's TIERCEL_REMOTE says, or none.
  // Opening waits at most so long until it is ready, and goes on without it; it is asked again by itself.
  std::string remote;
  std::uint64_t remote_wait_ns = 3'000'000'000;
  // Claiming and touching take a moment; as in tiercel_node_options.
  tiercel_progress progress = nullptr;
  void* progress_context = nullptr;
};

// A node over a folder. One process at a time has it: a program that wants to share it with others opens it
// for each prompt and lets it go again (`tiercel llama chat` does).
class Store {
 public:
  // Waits: for another process, wait_ns at most; while memory is touched. Errors: those of tiercel_node_open,
  // except that a folder which another process has is unavailable (its pid is named); io_error (the folder).
  static Result<std::shared_ptr<Store>> open(const StoreOptions& options);
  ~Store();  // as close()
  Store(const Store&) = delete;
  Store& operator=(const Store&) = delete;

  // Until everything saved before is on disk. Errors: those of tiercel_flush.
  Status flush(std::uint64_t deadline_ns = 10'000'000'000);
  // Writes down what the disk has not, stores what the remote store has not (five seconds at most), and ends;
  // idempotent. Every ContextCache that uses it restores nothing
  // from now on.
  Status close();
  bool is_open() const;
  Node& node();

 private:
  Store() = default;
  struct State;
  std::unique_ptr<State> state_;
};

// ---- a context ----

enum class Mode : std::uint8_t {
  kExact,  // every logit is that of plain llama.cpp without a cache, bit for bit
  kFast    // the longest prefix; the same values up to rounding, so a long answer may take another turn
};

struct LoraAdapter {  // as set on the context
  std::string file;
  float scale = 1;
};

struct ContextOptions {
  std::vector<std::string> model_files;  // required: the GGUF, all of its parts in order
  Mode mode = Mode::kFast;
  std::uint32_t page_tokens = 16;          // 16, 32 or 64
  std::uint32_t snapshots_per_prompt = 4;  // most that one prefill takes; window, recurrent, hybrid models
  std::uint64_t promote_wait_ns = 10'000'000'000;  // for pages on their way from disk and remote store
  std::vector<LoraAdapter> adapters;
  // Whatever else changes what is computed: control vectors, overridden metadata, devices that layers are on.
  std::vector<std::pair<std::string, std::string>> other;
  std::string tenant;   // prompts of another one are never shared; empty: none
  bool opaque = false;  // keep whole states although the layout is understood (for tests and comparison)
  // While the model files are hashed for the first time: which, and how many bytes of it so far.
  std::function<void(const std::string& file, std::uint64_t bytes)> hashing;
  Log log;  // a line at a time, without a line end; empty: nowhere
};

// What a context keeps of a sequence.
enum class SequenceKind : std::uint8_t {
  kAttention,         // pages
  kAttentionAndTail,  // pages, and snapshots of window cells and recurrent states
  kTail,              // snapshots only: recurrent models, or all layers windowed
  kWhole              // not understood: whole states
};
const char* sequence_kind_name(SequenceKind kind);  // "pages", "pages+snapshots", "snapshots", "whole states"

struct Missed {
  std::uint64_t tokens = 0;
  std::string reason;  // of the closed list: "never_stored", "limit", "state_missing" …
};

// What restore() came to. Whatever it is, the sequence has exactly `tokens` tokens now.
struct Restored {
  std::uint32_t tokens = 0;
  std::uint32_t limit = 0;  // most that the mode allows to restore of this prompt
  std::uint32_t host_tokens = 0, disk_tokens = 0, remote_tokens = 0;  // by where they came from
  std::uint64_t bytes = 0;                                            // of the state that llama.cpp was given
  std::string note;  // one line when something was in the way ("the store was closed"), else empty
  std::vector<Missed>
      missed;  // each token of the prompt that was not restored, by reason; without a store: none
};

// What prefill() came to.
struct Prefilled {
  Restored restored;
  std::uint32_t computed_tokens = 0;  // by llama_decode
  std::vector<std::uint32_t> pieces;  // tokens of each call of it, in order
  std::uint32_t snapshots = 0;        // taken on the way
};

// What save() came to.
struct Saved {
  std::uint32_t tokens = 0;  // of the sequence that the store has now, as far as this call knows
  std::uint64_t pages = 0, snapshots = 0;  // newly stored; pages of whole states are pieces of 1 MiB
  std::uint64_t bytes = 0;                 // newly stored
  std::string note;                        // what was in the way, else empty
};

class ContextCache {
 public:
  // Looks at the context once: hash of the model files, self-test of the state's layout (two tokens are
  // computed in sequence 0, which must be empty, and removed again; the context's logits are lost). `context`
  // stays the caller's and must outlive this; `params`: those that it was made with. LoRA adapters and
  // control vectors that are set or changed later are not noticed, and would mix what must not be mixed:
  // attach again. Errors: invalid_argument (model_files or page_tokens; n_rs_seq; in exact mode n_ubatch,
  // n_batch, a window that is not full-size or no multiple of 64), failed_precondition (sequence 0 is not
  // empty), not_found, io_error (files), unsupported (an encoder, a context without memory), internal
  // (llama_decode failed). Cost: a hash of the files when it is not known yet; one llama_decode of two
  // tokens.
  static Result<std::unique_ptr<ContextCache>> attach(llama_context* context,
                                                      const llama_context_params& params,
                                                      ContextOptions options);
  ~ContextCache();

  // From now on in this store; null: in none. Errors: those of tiercel_form_open and tiercel_namespace_open.
  Status use(std::shared_ptr<Store> store);

  // Empties the sequence and gives it the longest usable prefix of `prompt`; at least the last token is left
  // to compute. Errors: invalid_argument (sequence; a token that the model has not; a prompt longer than the
  // context). Waits: for pages on their way from disk and remote store, promote_wait_ns at most
  // for each of three attempts. Cost: O(pages × layers) (with values transposed also × their width), and the
  // bytes once.
  Result<Restored> restore(llama_seq_id sequence, std::span<const llama_token> prompt);

  // restore(), then llama_decode over the rest, split where the mode wants it and where snapshots are worth
  // taking (the store's advice), then save() of the prompt. Logits: of the last token, as
  // llama_get_logits_ith(-1) gives them. Errors: also cancelled (the context's abort callback; what was
  // computed by then is saved), resource_exhausted (no cells left), internal (llama_decode failed). What
  // could not be restored or saved is in the notes.
  Result<Prefilled> prefill(llama_seq_id sequence, std::span<const llama_token> prompt);

  // Stores what of `tokens` the store has not: the sequence holds them at positions 0, 1, 2 … now. In exact
  // mode only what prefill() computed the plain way; the rest is passed over. Windows and recurrent states:
  // only snapshots that prefill() took, and in fast mode one of now, when the length is a whole number of
  // pages. Returns when the bytes are copied; Store::flush and close() make them durable, the disk takes them
  // by itself anyway. Errors: invalid_argument (the sequence ends elsewhere, or has cells shifted or missing;
  // other tokens than its prompt had). Cost: a copy of the sequence's state, and the new bytes once more.
  Result<Saved> save(llama_seq_id sequence, std::span<const llama_token> tokens);

  // Forgets what it knows of a sequence: its prompt, which tokens were computed the plain way, snapshots not
  // saved yet. In exact mode nothing of it is saved any more until the next prefill().
  void forget(llama_seq_id sequence);

  Mode mode() const;
  SequenceKind sequence_kind() const;
  std::string namespace_text() const;    // printable; names everything that changes bytes
  std::uint64_t token_bytes() const;     // of pages, per token
  std::uint64_t snapshot_bytes() const;  // of a record; 0: none

 private:
  ContextCache();
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace tiercel::llamacpp
