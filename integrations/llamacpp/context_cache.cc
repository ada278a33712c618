#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include <fmt/format.h>
#include <ggml.h>

#include "context_state.h"
#include "token_batch.h"

namespace tiercel::llamacpp {
namespace {

// A restored window cache is compacted; the kernel of one row divides its cells among the threads.
constexpr const char* kWindowThreads =
    "with windows only one thread repeats the bits of a single token; set n_threads to 1";

Status invalid(std::string message) { return {TIERCEL_INVALID_ARGUMENT, std::move(message)}; }

// What exact mode cannot do with this context; empty: nothing.
std::string exact_refusal(llama_context* context, const llama_context_params& params) {
  std::string batches = why_not_exact(llama_n_ubatch(context), llama_n_batch(context));
  if (!batches.empty()) return batches;
  const std::int32_t window = llama_model_n_swa(llama_get_model(context));
  if (window <= 0) return "";
  if (!params.swa_full) return "the window cache is a ring: cells move when it is restored; set swa_full";
  if (llama_n_threads(context) > 1) return std::string(kWindowThreads);
  if (window % static_cast<std::int32_t>(kTileRows) != 0)
    return fmt::format("the window of {} tokens is no multiple of {}: restored cells would stand elsewhere",
                       window, kTileRows);
  return "";
}

Status check_context(llama_context* context, const llama_context_params& params,
                     const ContextOptions& options) {
  if (context == nullptr) return invalid("llama.cpp: no context");
  if (llama_get_memory(context) == nullptr)
    return {TIERCEL_UNSUPPORTED,
            "llama.cpp: this context has no memory of sequences (an encoder?): nothing can be cached"};
  if (options.model_files.empty())
    return invalid("llama.cpp: model_files is empty: the weights must be named");
  if (options.page_tokens != 16 && options.page_tokens != 32 && options.page_tokens != 64)
    return invalid(fmt::format("llama.cpp: page_tokens is {}: wanted 16, 32 or 64", options.page_tokens));
  if (llama_n_batch(context) < 2 || llama_n_ubatch(context) < 2)
    return invalid(
        "llama.cpp: n_batch and n_ubatch must be 2 at least: two tokens are computed at once to look at "
        "their state");
  if (llama_n_rs_seq(context) != 0)
    return invalid(
        "llama.cpp: n_rs_seq is not 0: restored states cannot be rolled back; open the context without it");
  if (llama_memory_seq_pos_max(llama_get_memory(context), 0) >= 0)
    return {TIERCEL_FAILED_PRECONDITION,
            "llama.cpp: sequence 0 is not empty: attach before anything is computed, or empty it"};
  if (options.mode == Mode::kFast) return {};
  const std::string refusal = exact_refusal(context, params);
  return refusal.empty() ? Status{} : invalid("llama.cpp: exact mode: " + refusal + "; or use fast mode");
}

}  // namespace

const char* sequence_kind_name(SequenceKind kind) {
  constexpr std::array<const char*, 4> kNames = {"pages", "pages+snapshots", "snapshots", "whole states"};
  return kNames[static_cast<std::size_t>(kind)];
}

std::span<std::uint8_t> Buffer::take(std::size_t size) {
  if (size > capacity_) {
    bytes_ = std::make_unique_for_overwrite<std::uint8_t[]>(size);
    capacity_ = size;
  }
  return {bytes_.get(), size};
}

std::span<const tiercel_record_memory> RecordList::records() {
  objects_.clear();
  records_.clear();
  for (std::size_t i = 0; i < firsts_.size(); ++i) {
    const std::size_t end = i + 1 < firsts_.size() ? firsts_[i + 1] : pieces_.size();
    objects_.push_back({pieces_.data() + firsts_[i], end - firsts_[i], TIERCEL_WHOLE, 0});
  }
  for (const tiercel_object& object : objects_) records_.push_back({&object, 1});
  return records_;
}

// ---- attaching ----

ContextCache::ContextCache() : state_(std::make_unique<State>()) {}
ContextCache::~ContextCache() = default;

Result<std::unique_ptr<ContextCache>> ContextCache::attach(llama_context* context,
                                                           const llama_context_params& params,
                                                           ContextOptions options) {
  if (Status status = check_context(context, params, options); !status.ok()) return status;
  std::unique_ptr<ContextCache> cache(new ContextCache);
  State& state = *cache->state_;
  state.context = context;
  state.options = std::move(options);
  state.own_cells = !params.kv_unified && params.n_seq_max > 1;
  auto layout = probe_layout(context, state.options.opaque);
  if (!layout) return layout.status();
  state.layout = *std::move(layout);
  if (state.layout.kind == SequenceKind::kWhole)
    state.say("llama.cpp: sequence states are kept whole, one object for each length: " +
              state.layout.why_whole);
  auto identity = make_identity(context, params, state.options, state.layout);
  if (!identity) return identity.status();
  state.identity = *std::move(identity);
  state.say(fmt::format("llama.cpp: {}, {} bytes a token, {} bytes a snapshot, {} mode",
                        sequence_kind_name(state.layout.kind), cache->token_bytes(), cache->snapshot_bytes(),
                        state.exact() ? "exact" : "fast"));
  return cache;
}

void ContextCache::State::say(const std::string& line) const {
  if (options.log) options.log(line);
}

PlanInput ContextCache::State::plan(std::size_t prompt_tokens) const {
  return {static_cast<std::uint32_t>(prompt_tokens), llama_n_ubatch(context), options.page_tokens, exact()};
}

Mode ContextCache::mode() const { return state_->options.mode; }
SequenceKind ContextCache::sequence_kind() const { return state_->layout.kind; }
std::string ContextCache::namespace_text() const {
  return state_->identity.text() + fmt::format("page_tokens: {}\nmemory: {}\n", state_->options.page_tokens,
                                               sequence_kind_name(sequence_kind()));
}
std::uint64_t ContextCache::token_bytes() const { return state_->layout.attention.token_bytes(); }
std::uint64_t ContextCache::snapshot_bytes() const { return state_->layout.snapshot_bytes(); }
void ContextCache::forget(llama_seq_id sequence) { state_->sequences.erase(sequence); }

// ---- the store ----

Status ContextCache::use(std::shared_ptr<Store> store) {
  State& state = *state_;
  state.pages = {};
  state.pieces = {};
  state.form = {};
  state.runs.clear();  // they name components of the form
  state.session = {};
  state.store = std::move(store);
  if (!state.has_store()) return {};
  Status status = state.open_namespaces();
  if (!status.ok()) state.store = nullptr;
  return status;
}

Status ContextCache::State::open_namespaces() {
  auto spec = make_spec(layout, options.page_tokens);
  if (!spec) return spec.status();
  auto opened = store->node().open_form(*spec, one_rank());
  if (!opened) return opened.status();
  form = *std::move(opened);
  const auto info = form.describe();
  if (!info) return info.status();
  page_class.reset();
  snapshot_class.reset();
  for (std::uint32_t i = 0; i < info->classes; ++i) {
    const auto cls = form.class_info(i);
    if (!cls) return cls.status();
    (cls->retention == TIERCEL_CLASS_STATE ? snapshot_class : page_class) = i;
  }
  if (page_class) {
    auto all = form.runs(*page_class);
    if (!all) return all.status();
    runs = *std::move(all);
  }
  auto client = sized<tiercel_session_options>();
  client.name = "llama.cpp";
  client.tenant_salt = {options.tenant.data(), options.tenant.size()};
  auto joined = store->node().open_session(&client);
  if (!joined) return joined.status();
  session = *std::move(joined);
  std::vector<tiercel_pair> pairs;
  tiercel_identity view = identity_view(identity, pairs);
  auto chained = session.open_namespace(form, view);
  if (!chained) return chained.status();
  pages = *std::move(chained);
  if (layout.kind != SequenceKind::kWhole) return {};
  view.scheme = "tiercel llama.cpp state pieces";
  view.scheme_algorithm = "sha256";
  view.scheme_encoding = "key of the prefix, u32 number of the piece, SHA-256 of the state";
  auto external = session.open_namespace(form, view);
  if (!external) return external.status();
  pieces = *std::move(external);
  return {};
}

// ---- sequences ----

Status ContextCache::State::check_arguments(llama_seq_id sequence, Tokens tokens) const {
  if (sequence < 0 || static_cast<std::uint32_t>(sequence) >= llama_n_seq_max(context))
    return invalid(fmt::format("llama.cpp: sequence {}: the context has 0 to {}", sequence,
                               llama_n_seq_max(context) - 1));
  if (tokens.size() > llama_n_ctx_seq(context))
    return invalid(fmt::format("llama.cpp: {} tokens do not fit: the context has room for {} a sequence",
                               tokens.size(), llama_n_ctx_seq(context)));
  const std::int32_t vocabulary = llama_vocab_n_tokens(llama_model_get_vocab(llama_get_model(context)));
  for (std::size_t i = 0; i < tokens.size(); ++i)
    if (tokens[i] < 0 || tokens[i] >= vocabulary)
      return invalid(fmt::format(
          "llama.cpp: token {} is {}: the model has 0 to {}; what is no text (an image) has no key", i,
          tokens[i], vocabulary - 1));
  return {};
}

bool ContextCache::State::others_hold_cells(llama_seq_id sequence) const {
  for (llama_seq_id other = 0; static_cast<std::uint32_t>(other) < llama_n_seq_max(context); ++other)
    if (other != sequence && llama_memory_seq_pos_max(memory(), other) >= 0) return true;
  return false;
}

std::string ContextCache::State::why_not_exact_now(llama_seq_id sequence) const {
  if (!exact()) return "";
  if (!alone(sequence)) return "other sequences share the cells of this one";
  const bool windows = llama_model_n_swa(llama_get_model(context)) > 0;
  return windows && llama_n_threads(context) > 1 ? kWindowThreads : "";  // it may have been set since
}

bool ContextCache::State::alone(llama_seq_id sequence) const {
  const bool no_cells = layout.kind == SequenceKind::kTail && !layout.has_attention;
  return own_cells || no_cells || !others_hold_cells(sequence);
}

void ContextCache::State::clear_sequence(llama_seq_id sequence) {
  llama_memory_seq_rm(memory(), sequence, -1, -1);
  if (!others_hold_cells(sequence)) llama_memory_clear(memory(), false);  // from the first cell on again
}

std::uint32_t SequenceMemory::same_as_prompt(Tokens tokens) const {
  const auto differs = std::mismatch(tokens.begin(), tokens.end(), prompt.begin(), prompt.end()).first;
  return static_cast<std::uint32_t>(differs - tokens.begin());
}

// ---- restore, prefill, save ----

Result<Restored> ContextCache::restore(llama_seq_id sequence, std::span<const llama_token> prompt) {
  State& state = *state_;
  if (Status status = state.check_arguments(sequence, prompt); !status.ok()) return status;
  state.sequences[sequence] = {};
  state.sequences[sequence].prompt.assign(prompt.begin(), prompt.end());
  state.clear_sequence(sequence);
  Restored restored;
  restored.limit = longest_restore(state.plan(prompt.size()));
  if (!state.has_store()) {
    restored.note = state.store == nullptr ? "no store is in use" : "the store was closed";
    return restored;
  }
  const std::string not_now = state.why_not_exact_now(sequence);
  Status status;
  if (!not_now.empty())
    status = {TIERCEL_FAILED_PRECONDITION, "exact mode: " + not_now + "; nothing is restored"};
  else
    status = state.layout.kind == SequenceKind::kWhole ? state.restore_whole(sequence, prompt, restored)
                                                       : state.restore_pages(sequence, prompt, restored);
  if (!status.ok()) {  // a cache may always answer "nothing"
    state.clear_sequence(sequence);
    restored = {};
    restored.limit = longest_restore(state.plan(prompt.size()));
    restored.note = status.message.empty() ? status.to_string() : status.message;
    const tiercel_reason reason = status.code == TIERCEL_DATA_CORRUPT          ? TIERCEL_REASON_DAMAGED
                                  : status.code == TIERCEL_FAILED_PRECONDITION ? TIERCEL_REASON_LIMIT
                                                                               : TIERCEL_REASON_TIER_DOWN;
    if (!prompt.empty()) restored.missed.push_back({prompt.size(), tiercel_reason_name(reason)});
  }
  if (!restored.note.empty()) state.say("llama.cpp: " + restored.note);
  state.sequences[sequence].stored_tokens = restored.tokens;
  return restored;
}

std::vector<std::uint32_t> ContextCache::State::stops(llama_seq_id sequence, const PlanInput& input,
                                                      std::uint32_t restored) const {
  if (!has_store() || options.snapshots_per_prompt == 0) return {};
  if (layout.kind == SequenceKind::kAttention) return {};
  std::vector<std::uint32_t> lengths;
  if (const auto known = sequences.find(sequence); known != sequences.end()) lengths = known->second.advised;
  const std::uint32_t end = longest_restore(input);  // the same prompt again, or what goes on from it
  std::erase_if(lengths, [&](std::uint32_t length) {
    return length <= restored || length >= end || !may_snapshot_at(input, length);
  });
  std::sort(lengths.begin(), lengths.end());
  lengths.erase(std::unique(lengths.begin(), lengths.end()), lengths.end());
  if (lengths.size() >= options.snapshots_per_prompt) lengths.resize(options.snapshots_per_prompt - 1);
  if (end > restored) lengths.push_back(end);
  return lengths;
}

Status ContextCache::State::decode(llama_seq_id sequence, Tokens prompt, std::uint32_t from,
                                   std::uint32_t count) {
  const bool last = from + count == prompt.size();
  TokenBatch batch(sequence, prompt.subspan(from, count), static_cast<llama_pos>(from), last);
  const std::int32_t code = llama_decode(context, batch.get());
  if (code == 0) return {};
  // What of this batch was computed is taken back, so that the sequence ends where the last one did.
  const bool taken_back = llama_memory_seq_rm(memory(), sequence, static_cast<llama_pos>(from), -1);
  if (!taken_back || llama_memory_seq_pos_max(memory(), sequence) != static_cast<llama_pos>(from) - 1)
    clear_sequence(sequence);
  if (code == kDecodeAborted) return {TIERCEL_CANCELLED, "llama.cpp: the abort callback ended llama_decode"};
  if (code == kDecodeNoSlot)
    return {TIERCEL_RESOURCE_EXHAUSTED,
            "llama.cpp: no room in the context for the batch; use a larger n_ctx, or empty sequences"};
  return {TIERCEL_INTERNAL, fmt::format("llama.cpp: llama_decode answered {}", code)};
}

Result<Prefilled> ContextCache::prefill(llama_seq_id sequence, std::span<const llama_token> prompt) {
  State& state = *state_;
  auto restored = restore(sequence, prompt);
  if (!restored) return restored.status();
  const PlanInput input = state.plan(prompt.size());
  Prefilled done;
  done.restored = *std::move(restored);
  const std::vector<std::uint32_t> stops = state.stops(sequence, input, done.restored.tokens);
  const bool plain = state.exact() && state.why_not_exact_now(sequence).empty();
  std::uint32_t plain_tokens = plain ? done.restored.tokens : 0;
  std::uint32_t at = done.restored.tokens;
  Status failed;
  for (const std::uint32_t count : decode_pieces(input, at, stops)) {
    failed = state.decode(sequence, prompt, at, count);
    if (!failed.ok()) break;
    at += count;
    done.pieces.push_back(count);
    done.computed_tokens += count;
    if (plain) plain_tokens = std::min(at, tiled_tokens(input.prompt_tokens, input.micro_batch));
    if (std::binary_search(stops.begin(), stops.end(), at))
      done.snapshots += state.keep_snapshot(sequence, at) ? 1 : 0;
  }
  if (!failed.ok() && llama_memory_seq_pos_max(state.memory(), sequence) != static_cast<llama_pos>(at) - 1) {
    at = 0;  // it could not be cut back, and is empty now
    forget(sequence);
  }
  if (at != 0 && state.has_store()) {
    const auto saved =
        state.save(sequence, prompt.first(at), state.exact() ? std::min(at, plain_tokens) : at, false);
    const std::string note = saved ? saved->note : saved.status().to_string();
    if (done.restored.note.empty()) done.restored.note = note;
  }
  if (!failed.ok()) return failed;
  return done;
}

Result<Saved> ContextCache::save(llama_seq_id sequence, std::span<const llama_token> tokens) {
  State& state = *state_;
  if (Status status = state.check_arguments(sequence, tokens); !status.ok()) return status;
  const llama_pos last = llama_memory_seq_pos_max(state.memory(), sequence);
  if (last != static_cast<llama_pos>(tokens.size()) - 1)
    return invalid(fmt::format("llama.cpp: save of {} tokens, but sequence {} ends at position {}",
                               tokens.size(), sequence, last));
  if (const auto known = state.sequences.find(sequence); known != state.sequences.end()) {
    const std::uint32_t same = known->second.same_as_prompt(tokens);
    if (same < std::min(tokens.size(), known->second.prompt.size()))
      return invalid(fmt::format(
          "llama.cpp: token {} of sequence {} is another than the prompt had; if the sequence was cut "
          "back and went on differently, forget() it first",
          same, sequence));
  }
  // In exact mode nobody can say how these cells came about since; prefill() stored what it vouches for.
  auto saved =
      state.save(sequence, tokens, state.exact() ? 0 : static_cast<std::uint32_t>(tokens.size()), true);
  if (saved && saved->note.empty())
    saved->tokens = std::max(saved->tokens, state.sequences[sequence].stored_tokens);
  return saved;
}

Result<Saved> ContextCache::State::save(llama_seq_id sequence, Tokens tokens, std::uint32_t storable,
                                        bool of_now) {
  Saved saved;
  if (!has_store()) {
    saved.note = store == nullptr ? "no store is in use" : "the store was closed";
    return saved;
  }
  if (tokens.empty() || storable == 0) return saved;
  const std::uint32_t limit = storable / options.page_tokens * options.page_tokens;
  const bool now = of_now && options.snapshots_per_prompt != 0;
  Status status = layout.kind == SequenceKind::kWhole ? save_whole(sequence, tokens, limit, now, saved)
                                                      : save_pages(sequence, tokens, limit, now, saved);
  if (!status.ok()) return status;
  if (!saved.note.empty()) say("llama.cpp: " + saved.note);
  return saved;
}

}  // namespace tiercel::llamacpp
