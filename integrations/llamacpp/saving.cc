#include <algorithm>
#include <cstring>
#include <utility>

#include <fmt/format.h>

#include "context_state.h"

namespace tiercel::llamacpp {
namespace {

constexpr std::uint64_t kSnapshotWait = 200'000'000;
constexpr std::size_t kPagesAtOnce = 128;  // so that a long prompt does not need room for all of it at once

// Which of the prefixes (in pages, ascending) the store lacks in this class.
Result<std::vector<std::uint32_t>> absent(const Namespace& ns, std::uint32_t cls,
                                          const std::vector<tiercel_key>& keys,
                                          const std::vector<std::uint32_t>& lengths) {
  std::vector<tiercel_key> asked;
  asked.reserve(lengths.size());
  for (const std::uint32_t length : lengths) asked.push_back(keys[length - 1]);
  const auto there = ns.exists(cls, asked);
  if (!there) return there.status();
  std::vector<std::uint32_t> out;
  for (std::size_t i = 0; i < lengths.size(); ++i)
    if ((*there)[i] != TIERCEL_OK) out.push_back(lengths[i]);
  return out;
}

// What was not stored is no error: a cache may lack anything.
void note_failure(const Status& status, Saved& saved) {
  if (!status.ok()) saved.note = status.to_string();
}

bool stays(tiercel_outcome outcome) {
  return outcome == TIERCEL_ITEM_COMMITTED || outcome == TIERCEL_ITEM_ALREADY_PRESENT ||
         outcome == TIERCEL_ITEM_BEING_WRITTEN;
}

}  // namespace

Result<StoredRecords> store_records(Namespace& ns, std::span<const tiercel_key> keys, RecordBatch& batch) {
  StoredRecords done;
  if (batch.lengths.empty()) return done;
  const auto records = batch.records.records();
  std::vector<tiercel_store_item> items(batch.lengths.size());
  for (std::size_t i = 0; i < items.size(); ++i) {
    const std::uint32_t length = batch.lengths[i];
    items[i].key = keys[length - 1];
    if (length > 1) items[i].parent = keys[length - 2];
    items[i].length = length;
    items[i].record = records[i];
    items[i].class_id = batch.cls;
  }
  auto stored = ns.store(items);
  if (!stored) return stored.status();
  const Status status = finish(stored->operation, TIERCEL_COMPLETION_VISIBLE, batch.visible_within_ns);
  if (!status.ok() && status.code != TIERCEL_DEADLINE_EXCEEDED) return status;
  const auto outcomes = stored->operation.store_outcomes();  // what became of them
  if (!outcomes) return outcomes.status();
  for (std::size_t i = 0; i < items.size(); ++i) {
    done.stored += (*outcomes)[i] == TIERCEL_ITEM_COMMITTED ? 1 : 0;
    if (stays((*outcomes)[i])) continue;
    if (done.refused++ != 0) continue;
    done.first_refused = batch.lengths[i];
    done.refusal = tiercel_outcome_name((*outcomes)[i]);
  }
  return done;
}

bool ContextCache::State::keep_snapshot(llama_seq_id sequence, std::uint32_t length) {
  const bool recurrent = layout.kind == SequenceKind::kTail && !layout.has_attention;
  const bool whole = layout.kind == SequenceKind::kWhole;
  auto state =
      read_state(context, sequence,
                 recurrent || whole ? LLAMA_STATE_SEQ_FLAGS_NONE : LLAMA_STATE_SEQ_FLAGS_PARTIAL_ONLY);
  if (Status status = check_sequence_header(state); !status.ok()) {
    say("llama.cpp: no snapshot: " + status.to_string());
    return false;
  }
  if (whole) {
    sequences[sequence].snapshots[length] = std::move(state);
    return true;
  }
  const auto tail = pack_tail(layout, std::span(state).subspan(kSequenceHeaderBytes));
  if (!tail) {
    say("llama.cpp: no snapshot: " + tail.status().to_string());
    return false;
  }
  std::vector<std::uint8_t> record(layout.snapshot_bytes());
  const std::uint64_t size = tail->size();
  std::memcpy(record.data(), &size, kLengthBytes);
  std::copy(tail->begin(), tail->end(), record.begin() + kLengthBytes);
  sequences[sequence].snapshots[length] = std::move(record);
  return true;
}

void ContextCache::State::forget_other_snapshots(llama_seq_id sequence, Tokens tokens, std::uint32_t limit) {
  SequenceMemory& known = sequences[sequence];
  const std::uint32_t same = std::min(known.same_as_prompt(tokens), limit);
  std::erase_if(known.snapshots, [&](const auto& entry) { return entry.first > same; });
}

Status ContextCache::State::save_attention(llama_seq_id sequence, Tokens tokens,
                                           const std::vector<tiercel_key>& keys,
                                           const std::vector<std::uint32_t>& snapshots, Saved& saved) {
  // From where the store's own pages end. It may say that it has some of what comes then, too; but what was
  // not restored may be damaged. And the pages of snapshots, should they have left every tier since.
  const std::uint32_t known = sequences[sequence].stored_tokens / options.page_tokens;
  auto lacking = absent(pages, *page_class, keys, snapshots);
  if (!lacking) return note_failure(lacking.status(), saved), Status{};
  std::vector<std::uint32_t> lengths = *std::move(lacking);
  for (std::uint32_t length = known + 1; length <= keys.size(); ++length) lengths.push_back(length);
  std::sort(lengths.begin(), lengths.end());
  lengths.erase(std::unique(lengths.begin(), lengths.end()), lengths.end());
  if (lengths.empty()) return {};
  const std::size_t size = llama_state_seq_get_size_ext(context, sequence, LLAMA_STATE_SEQ_FLAGS_NONE);
  std::span<std::uint8_t> state = state_bytes.take(size);
  state = state.first(
      llama_state_seq_get_data_ext(context, state.data(), size, sequence, LLAMA_STATE_SEQ_FLAGS_NONE));
  const auto section = parse_attention(state, kSequenceHeaderBytes, layout.version, layout.has_values);
  if (!section || section->layout != layout.attention) {
    saved.note = "the state's layout is another than at the start";
    return {};
  }
  const auto rows = RowOfPosition::of(section->positions);
  if (!rows || section->positions.size() != tokens.size())
    return {TIERCEL_INVALID_ARGUMENT,
            fmt::format("llama.cpp: sequence {} does not have one cell for each position from 0 to {}: "
                        "what was shifted or cut in the middle cannot be stored",
                        sequence, tokens.size() - 1)};
  for (std::size_t from = 0; from < lengths.size(); from += kPagesAtOnce) {
    const auto batch_of = std::span(lengths).subspan(from, std::min(kPagesAtOnce, lengths.size() - from));
    RecordBatch batch;
    batch.cls = *page_class;
    batch.lengths.assign(batch_of.begin(), batch_of.end());
    for (const std::uint32_t length : batch.lengths)
      append_page(*section, *rows, length - 1, state.data(), batch.records);
    const auto done = store_records(pages, keys, batch);
    if (!done) return note_failure(done.status(), saved), Status{};
    saved.pages += done->stored;
    saved.bytes += done->stored * options.page_tokens * layout.attention.token_bytes();
    if (done->refused == 0) continue;
    saved.tokens = std::min(saved.tokens, (done->first_refused - 1) * options.page_tokens);
    saved.note = fmt::format("{} pages were not stored: {}", done->refused, done->refusal);
  }
  return {};
}

void ContextCache::State::save_snapshots(llama_seq_id sequence, const std::vector<tiercel_key>& keys,
                                         const std::vector<std::uint32_t>& lengths, Saved& saved) {
  std::map<std::uint32_t, std::vector<std::uint8_t>>& kept = sequences[sequence].snapshots;
  RecordBatch batch;
  batch.cls = *snapshot_class;
  // It waits for its page, which may have been evicted since: then it would wait for nothing.
  batch.visible_within_ns = kSnapshotWait;
  batch.lengths = lengths;
  for (const std::uint32_t length : lengths) {
    std::vector<std::uint8_t>& record = kept[length * options.page_tokens];
    batch.records.begin();
    batch.records.pieces().push_back({record.data(), record.size()});
  }
  const auto done = store_records(pages, keys, batch);
  kept.clear();
  if (!done) return note_failure(done.status(), saved);
  saved.snapshots += done->stored;
  saved.bytes += done->stored * layout.snapshot_bytes();
  if (done->refused != 0)
    saved.note = fmt::format("{} snapshots were not stored: {}", done->refused, done->refusal);
}

// Lengths (pages) of the snapshots that are there to be stored and that the store lacks.
Result<std::vector<std::uint32_t>> ContextCache::State::wanted_snapshots(llama_seq_id sequence, Tokens tokens,
                                                                         const std::vector<tiercel_key>& keys,
                                                                         bool of_now) {
  if (!snapshot_class) return std::vector<std::uint32_t>{};
  const std::uint32_t page_tokens = options.page_tokens;
  forget_other_snapshots(sequence, tokens, static_cast<std::uint32_t>(keys.size()) * page_tokens);
  const std::map<std::uint32_t, std::vector<std::uint8_t>>& kept = sequences[sequence].snapshots;
  std::vector<std::uint32_t> lengths;
  lengths.reserve(kept.size() + 1);
  for (const auto& [length, record] : kept) lengths.push_back(length / page_tokens);
  const bool whole_pages = keys.size() * page_tokens == tokens.size();
  const auto now = static_cast<std::uint32_t>(keys.size());
  if (of_now && whole_pages && (lengths.empty() || lengths.back() != now)) lengths.push_back(now);
  auto lacking = absent(pages, *snapshot_class, keys, lengths);
  if (!lacking || lacking->empty() || kept.contains(lacking->back() * page_tokens)) return lacking;
  if (!keep_snapshot(sequence, lacking->back() * page_tokens)) lacking->pop_back();
  return lacking;
}

Status ContextCache::State::save_pages(llama_seq_id sequence, Tokens tokens, std::uint32_t limit, bool of_now,
                                       Saved& saved) {
  if (limit == 0) return {};
  const auto keys = keys_of(tokens.first(limit));
  if (!keys) return note_failure(keys.status(), saved), Status{};
  const auto snapshots = wanted_snapshots(sequence, tokens, *keys, of_now);
  if (!snapshots) return note_failure(snapshots.status(), saved), Status{};
  saved.tokens = limit;
  if (page_class)
    if (Status status = save_attention(sequence, tokens, *keys, *snapshots, saved); !status.ok())
      return status;
  if (snapshot_class) save_snapshots(sequence, *keys, *snapshots, saved);
  std::uint32_t& stored = sequences[sequence].stored_tokens;
  stored = std::max(stored, saved.tokens);
  return {};
}

}  // namespace tiercel::llamacpp
