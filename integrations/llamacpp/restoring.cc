#include <algorithm>
#include <cstring>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "context_state.h"

namespace tiercel::llamacpp {
namespace {

constexpr int kAttempts =
    3;  // pages that turn out to be damaged shorten the prefix; so often it is tried again

// The longest of `lengths` (pages, ascending) that is a multiple of `unit` pages.
std::uint32_t longest_of(const std::vector<std::uint64_t>& lengths, std::uint32_t unit) {
  for (auto length = lengths.rbegin(); length != lengths.rend(); ++length)
    if (*length % unit == 0) return static_cast<std::uint32_t>(*length);
  return 0;
}

void report(const std::vector<tiercel_miss>& misses, std::uint64_t not_taken, Restored& restored) {
  const auto add = [&](std::uint64_t tokens, const char* reason) {
    if (tokens == 0) return;
    const auto known = std::find_if(restored.missed.begin(), restored.missed.end(),
                                    [&](const Missed& missed) { return missed.reason == reason; });
    if (known != restored.missed.end())
      known->tokens += tokens;
    else
      restored.missed.push_back({tokens, reason});
  };
  for (const tiercel_miss& miss : misses) add(miss.tokens, tiercel_reason_name(miss.reason));
  add(not_taken, tiercel_reason_name(TIERCEL_REASON_LIMIT));
}

}  // namespace

Result<std::vector<tiercel_key>> ContextCache::State::keys_of(Tokens tokens) const {
  auto chain = pages.start_chain();
  if (!chain) return chain.status();
  return pages.keys_from_tokens(*chain,
                                {reinterpret_cast<const std::uint32_t*>(tokens.data()), tokens.size()});
}

std::uint64_t longer(std::uint64_t wait_ns, std::uint64_t by_ns) {
  return wait_ns > UINT64_MAX - by_ns ? wait_ns : wait_ns + by_ns;
}

Status finish(Operation& operation, tiercel_completion_kind until, std::uint64_t at_most_ns) {
  Status status = operation.wait(until, at_most_ns);
  if (!status.ok()) static_cast<void>(operation.cancel());
  // Our memory is its source or target: nothing goes on before it is let go.
  while (operation.wait(TIERCEL_COMPLETION_QUIESCENT, kOperationWait).code == TIERCEL_DEADLINE_EXCEEDED) {
  }
  return status;
}

void ContextCache::State::append_page(const AttentionSection& section, const RowOfPosition& rows,
                                      std::uint32_t page, std::uint8_t* state, RecordList& list) const {
  list.begin();
  for (const tiercel_run_info& run : runs) {
    const auto append = run.name == std::string_view("k") ? append_key_pieces : append_value_pieces;
    append(section, rows, run.layer, page * options.page_tokens, options.page_tokens, state, list.pieces());
  }
}

bool ContextCache::State::give_state(llama_seq_id sequence, std::span<const std::uint8_t> state,
                                     std::uint32_t length) {
  const std::size_t taken =
      llama_state_seq_set_data_ext(context, state.data(), state.size(), sequence, LLAMA_STATE_SEQ_FLAGS_NONE);
  if (taken == state.size() &&
      llama_memory_seq_pos_max(memory(), sequence) == static_cast<llama_pos>(length) - 1)
    return true;
  clear_sequence(sequence);  // after a refusal anything may be there
  return false;
}

// The state is put together where it will be read: each page's rows go to their places in it at once.
Result<std::uint32_t> ContextCache::State::load_state(llama_seq_id sequence, Ticket& ticket,
                                                      std::uint32_t length, std::uint64_t& bytes) {
  const std::uint32_t tokens = length * options.page_tokens;
  const std::size_t base = layout.has_attention ? attention_bytes(layout.attention, tokens) : 0;
  // One stream more is four bytes more in the tail.
  const std::size_t most =
      kSequenceHeaderBytes + base + layout.tail_bytes_max + 4 * std::size_t{layout.attention.streams};
  const std::span<std::uint8_t> state = state_bytes.take(most);
  const std::span<std::uint8_t> record = record_bytes.take(layout.snapshot_bytes());
  write_sequence_header(state, sequence);
  std::vector<tiercel_load_target> targets;
  RecordList page_records, snapshot_record;
  if (layout.has_attention) {
    const AttentionSection section =
        frame_attention(layout.attention, 0, tokens, sequence, state, kSequenceHeaderBytes);
    for (std::uint32_t page = 0; page_class && page < length; ++page)
      append_page(section, RowOfPosition(), page, state.data(), page_records);
  }
  const auto add = [&](std::uint32_t cls, RecordList& list) {
    const auto records = list.records();
    targets.push_back({nullptr, records.data(), records.size(), cls, 0, 0});
  };
  if (page_class) add(*page_class, page_records);
  if (snapshot_class) {
    snapshot_record.begin();
    snapshot_record.pieces().push_back({record.data(), record.size()});
    add(*snapshot_class, snapshot_record);
  }
  auto load = ticket.load(length, targets);
  if (!load) return load.status();
  if (Status status = finish(*load, 0); !status.ok()) return status;
  const auto result = load->result();
  if (!result) return result.status();
  if (result->length != length) return static_cast<std::uint32_t>(result->length);
  std::size_t size = kSequenceHeaderBytes + base;
  if (snapshot_class) {
    const auto tail = tail_of_record(record);
    if (!tail) return tail.status();
    if (size + tail->size() > state.size())
      return Status{TIERCEL_DATA_CORRUPT, "llama.cpp: a snapshot larger than it can be"};
    std::copy(tail->begin(), tail->end(), state.begin() + static_cast<std::ptrdiff_t>(size));
    size += tail->size();
  }
  if (!give_state(sequence, state.first(size), tokens))
    return Status{
        TIERCEL_FAILED_PRECONDITION,
        "llama.cpp refused the restored state: it may have no room for it; the sequence was emptied"};
  bytes = size;
  return length;
}

Result<std::vector<std::uint8_t>> ContextCache::State::tail_of_record(
    std::span<const std::uint8_t> record) const {
  std::uint64_t length = 0;
  std::memcpy(&length, record.data(), kLengthBytes);
  if (length > record.size() - kLengthBytes)
    return Status{TIERCEL_DATA_CORRUPT, fmt::format("llama.cpp: a snapshot says {} bytes in a record of {}",
                                                    length, record.size())};
  return unpack_tail(layout, record.subspan(kLengthBytes, length), layout.attention.streams);
}

void ContextCache::State::take_advice(llama_seq_id sequence, Ticket& ticket, std::size_t pages_asked,
                                      std::uint32_t from) {
  if (!snapshot_class) return;
  auto advice = sized<tiercel_advice_options>();
  advice.pages = pages_asked;
  advice.multiple_of = kTileRows / options.page_tokens;
  advice.at_most = options.snapshots_per_prompt;
  advice.from = from;
  const auto lengths = ticket.snapshot_advice(advice);
  if (!lengths) return;
  std::vector<std::uint32_t>& advised = sequences[sequence].advised;
  advised.clear();
  for (const std::uint64_t length : *lengths)
    advised.push_back(static_cast<std::uint32_t>(length) * options.page_tokens);
}

Status ContextCache::State::restore_pages(llama_seq_id sequence, Tokens prompt, Restored& restored) {
  const std::uint32_t page_tokens = options.page_tokens;
  const std::uint32_t unit = restore_unit(plan(prompt.size())) / page_tokens;
  const auto keys = keys_of(prompt);
  if (!keys) return keys.status();
  std::uint64_t limit = restored.limit, from_disk = 0, from_remote = 0;
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    auto asked = sized<tiercel_match_options>();
    asked.prompt_tokens = prompt.size();
    asked.may_promote = 1;
    asked.deadline_ns = options.promote_wait_ns;
    auto ticket = pages.match(*keys, limit, asked);
    if (!ticket) return ticket.status();
    if (Status status = ticket->wait(longer(options.promote_wait_ns, kTicketWait)); !status.ok())
      return status;
    const auto lengths = ticket->lengths();
    const auto found = ticket->summary();
    const auto misses = ticket->reasons();
    if (!lengths || !found || !misses)
      return !lengths ? lengths.status() : !found ? found.status() : misses.status();
    const std::uint32_t length = longest_of(*lengths, unit);
    take_advice(sequence, *ticket, keys->size(), length);
    // Of snapshots alone the page that has one stands for its whole prefix. What an earlier attempt brought
    // up is in memory by now.
    const auto stands_for = [&](std::uint64_t found_pages) {
      return page_class || found_pages == 0 ? found_pages : length;
    };
    from_disk = std::max(from_disk, stands_for(found->disk_pages));
    from_remote = std::max(from_remote, stands_for(found->remote_pages));
    restored.missed.clear();
    report(*misses, (found->length - length) * page_tokens, restored);
    if (length == 0) return {};
    const auto loaded = load_state(sequence, *ticket, length, restored.bytes);
    if (!loaded) return loaded.status();
    if (*loaded == length) {
      restored.tokens = length * page_tokens;
      const auto remote = static_cast<std::uint32_t>(std::min<std::uint64_t>(from_remote, length));
      const auto disk = static_cast<std::uint32_t>(std::min<std::uint64_t>(from_disk, length - remote));
      restored.remote_tokens = remote * page_tokens;
      restored.disk_tokens = disk * page_tokens;
      restored.host_tokens = restored.tokens - restored.remote_tokens - restored.disk_tokens;
      return {};
    }
    // What was damaged is not offered again, and is missed for that reason; the last time only less is asked.
    if (attempt + 2 == kAttempts) limit = std::uint64_t{*loaded} * page_tokens;
  }
  return {TIERCEL_DATA_CORRUPT,
          fmt::format("llama.cpp: pages turned out to be damaged {} times in a row", kAttempts)};
}

}  // namespace tiercel::llamacpp
