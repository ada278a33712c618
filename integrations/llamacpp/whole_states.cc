// States that are not understood: one object for each length, in pieces of 1 MiB. The first piece begins with
// the object's length and hash. The key of the first one is made of that of the prefix, the keys of the
// others also of the hash: pieces of two states of the same prefix are never put together.
#include <algorithm>
#include <array>
#include <cstring>
#include <numeric>
#include <utility>

#include <fmt/format.h>

#include "context_state.h"
#include "sha256.h"

namespace tiercel::llamacpp {
namespace {

constexpr std::uint64_t kLargestState = 1ULL << 36;  // what a record says is not believed beyond
constexpr int kCandidates = 4;                       // objects that are looked at: one may have lost pieces

struct ObjectHead {
  std::uint64_t bytes = 0;  // of the state
  Sha256Digest hash{};
};
constexpr std::size_t kHeadBytes = kLengthBytes + sizeof(Sha256Digest);
constexpr std::size_t kDigestBytes = sizeof(tiercel_key) + 4 + sizeof(Sha256Digest);

void write_head(const ObjectHead& head, std::span<std::uint8_t> piece) {
  std::memcpy(piece.data(), &head.bytes, kLengthBytes);
  std::copy(head.hash.begin(), head.hash.end(), piece.begin() + kLengthBytes);
}

ObjectHead read_head(std::span<const std::uint8_t> piece) {
  ObjectHead head;
  std::memcpy(&head.bytes, piece.data(), kLengthBytes);
  std::copy_n(piece.begin() + kLengthBytes, head.hash.size(), head.hash.begin());
  return head;
}

// Of pieces 0 … count−1.
std::vector<unsigned char> piece_digests(const tiercel_key& prefix, const Sha256Digest& hash,
                                         std::uint32_t count) {
  std::vector<unsigned char> digests(count * kDigestBytes);  // the first one's hash stays zero
  for (std::uint32_t i = 0; i < count; ++i) {
    unsigned char* at = digests.data() + i * kDigestBytes;
    std::memcpy(at, prefix.bytes, sizeof(prefix.bytes));
    std::memcpy(at + sizeof(prefix.bytes), &i, 4);
    if (i != 0) std::copy(hash.begin(), hash.end(), at + sizeof(prefix.bytes) + 4);
  }
  return digests;
}

std::uint32_t pieces_of(std::uint64_t state_bytes) {
  return static_cast<std::uint32_t>((kHeadBytes + state_bytes + kWholePieceBytes - 1) / kWholePieceBytes);
}

RecordList piece_records(std::span<std::uint8_t> bytes) {
  RecordList list;
  for (std::size_t at = 0; at < bytes.size(); at += kWholePieceBytes) {
    list.begin();
    list.pieces().push_back({bytes.data() + at, kWholePieceBytes});
  }
  return list;
}

// Pieces 0 … count−1 into `bytes`. Returns: whether all of them came; *from_disk: how many.
Result<bool> fetch(Namespace& ns, std::uint32_t cls, std::span<const tiercel_key> keys, std::uint64_t wait_ns,
                   std::span<std::uint8_t> bytes, std::uint64_t* from_disk) {
  auto asked = sized<tiercel_match_options>();
  asked.may_promote = 1;
  asked.deadline_ns = wait_ns;
  auto ticket = ns.match(keys, TIERCEL_NO_LIMIT, asked);
  if (!ticket) return ticket.status();
  if (Status status = ticket->wait(longer(wait_ns, kTicketWait)); !status.ok()) return status;
  const auto found = ticket->summary();
  if (!found) return found.status();
  if (found->length != keys.size()) return false;
  RecordList list = piece_records(bytes);
  const auto records = list.records();
  const tiercel_load_target target{nullptr, records.data(), records.size(), cls, 0, 0};
  auto load = ticket->load(keys.size(), std::span(&target, 1));
  if (!load) return load.status();
  if (Status status = finish(*load, 0); !status.ok()) return status;
  const auto result = load->result();
  if (!result) return result.status();
  *from_disk = found->disk_pages;
  return result->length == keys.size();
}

Result<bool> all_there(const Namespace& ns, std::uint32_t cls, std::span<const tiercel_key> keys) {
  const auto there = ns.exists(cls, keys);
  if (!there) return there.status();
  return std::all_of(there->begin(), there->end(),
                     [](tiercel_status status) { return status == TIERCEL_OK; });
}

}  // namespace

// The state of the prefix whose key is `prefix`, if all pieces of it come.
Result<bool> ContextCache::State::restore_object(llama_seq_id sequence, const tiercel_key& prefix,
                                                 std::uint32_t length, Restored& restored) {
  const auto first = pieces.keys_from_digests(piece_digests(prefix, {}, 1), kDigestBytes);
  if (!first) return first.status();
  std::uint64_t from_disk = 0;
  std::span<std::uint8_t> bytes = state_bytes.take(kWholePieceBytes);
  auto there = fetch(pieces, *page_class, *first, options.promote_wait_ns, bytes, &from_disk);
  if (!there || !*there) return there;
  const ObjectHead head = read_head(bytes);
  const std::uint32_t count = head.bytes > kLargestState ? 0 : pieces_of(head.bytes);
  const auto keys = pieces.keys_from_digests(piece_digests(prefix, head.hash, count), kDigestBytes);
  if (!keys) return keys.status();
  auto all = all_there(pieces, *page_class, *keys);  // before room is taken for them
  if (!all) return all;
  // As long as the first piece is there nothing whole would be stored in its place.
  if (count == 0 || !*all) return drop_object(*first, restored);
  bytes = state_bytes.take(count * kWholePieceBytes);
  const bool on_disk = from_disk != 0;
  there = fetch(pieces, *page_class, *keys, options.promote_wait_ns, bytes, &from_disk);
  if (!there) return there;
  if (!*there) return drop_object(*first, restored);
  if (!give_state(sequence, bytes.subspan(kHeadBytes, head.bytes), length)) {
    restored.note = fmt::format("llama.cpp refused a state of {} tokens; it was removed", length);
    return drop_object(*first, restored);
  }
  restored.tokens = length;
  restored.bytes = head.bytes;
  (on_disk || from_disk != 0 ? restored.disk_tokens : restored.host_tokens) = length;
  return true;
}

Result<bool> ContextCache::State::drop_object(std::span<const tiercel_key> first, Restored& restored) {
  const Status removed = pieces.remove(first);
  if (!removed.ok()) restored.note = removed.to_string();
  return false;
}

Status ContextCache::State::restore_whole(llama_seq_id sequence, Tokens prompt, Restored& restored) {
  const std::uint32_t unit = restore_unit(plan(prompt.size()));
  const auto keys = keys_of(prompt.first(restored.limit));
  if (!keys) return keys.status();
  std::vector<std::uint32_t> lengths;
  std::vector<unsigned char> digests;
  for (std::uint32_t length = restored.limit / unit * unit; length != 0; length -= unit) {
    lengths.push_back(length);
    const auto digest = piece_digests((*keys)[length / options.page_tokens - 1], {}, 1);
    digests.insert(digests.end(), digest.begin(), digest.end());
  }
  const auto first_pieces = pieces.keys_from_digests(digests, kDigestBytes);
  if (!first_pieces) return first_pieces.status();
  const auto there = pieces.exists(*page_class, *first_pieces);
  if (!there) return there.status();
  int tried = 0;
  for (std::size_t i = 0; i < lengths.size() && tried < kCandidates && restored.tokens == 0; ++i) {
    if ((*there)[i] != TIERCEL_OK) continue;
    ++tried;
    const auto done =
        restore_object(sequence, (*keys)[lengths[i] / options.page_tokens - 1], lengths[i], restored);
    if (!done) return done.status();
  }
  const auto computed = static_cast<std::uint32_t>(prompt.size()) - restored.tokens;
  const std::uint32_t beyond = static_cast<std::uint32_t>(prompt.size()) - restored.limit;
  if (beyond != 0) restored.missed.push_back({beyond, tiercel_reason_name(TIERCEL_REASON_LIMIT)});
  if (computed != beyond)
    restored.missed.push_back({computed - beyond, tiercel_reason_name(TIERCEL_REASON_STATE_MISSING)});
  return {};
}

Status ContextCache::State::save_object(const tiercel_key& prefix, std::span<const std::uint8_t> state,
                                        Saved& saved) {
  const ObjectHead head{state.size(), sha256(state)};
  const std::uint32_t count = pieces_of(head.bytes);
  const auto keys = pieces.keys_from_digests(piece_digests(prefix, head.hash, count), kDigestBytes);
  if (!keys) return keys.status();
  const auto there = all_there(pieces, *page_class, *keys);
  if (!there || *there) return there.status();
  const std::span<std::uint8_t> bytes = state_bytes.take(count * kWholePieceBytes);
  write_head(head, bytes);
  std::copy(state.begin(), state.end(), bytes.begin() + kHeadBytes);
  std::fill(bytes.begin() + kHeadBytes + static_cast<std::ptrdiff_t>(head.bytes), bytes.end(),
            std::uint8_t{0});
  RecordBatch batch;
  batch.cls = *page_class;
  batch.lengths.resize(count);
  std::iota(batch.lengths.begin(), batch.lengths.end(), 1U);
  batch.records = piece_records(bytes);
  const auto done = store_records(pieces, *keys, batch);
  if (!done) return done.status();
  saved.pages += done->stored;
  saved.bytes += done->stored * kWholePieceBytes;
  if (done->refused == 0) return {};
  return {TIERCEL_RESOURCE_EXHAUSTED, std::string("a whole state was not stored: ") + done->refusal};
}

Status ContextCache::State::save_whole(llama_seq_id sequence, Tokens tokens, std::uint32_t limit, bool of_now,
                                       Saved& saved) {
  const std::uint32_t page_tokens = options.page_tokens;
  forget_other_snapshots(sequence, tokens, limit);
  if (of_now && limit != 0 && limit == tokens.size()) keep_snapshot(sequence, limit);
  const auto states = std::exchange(sequences[sequence].snapshots, {});
  const auto keys = keys_of(tokens.first(limit));
  Status status = keys.status();
  for (const auto& [length, state] : states) {
    if (!status.ok()) break;
    status = save_object((*keys)[length / page_tokens - 1], state, saved);
    if (status.ok()) saved.tokens = length;
  }
  if (!status.ok()) saved.note = status.to_string();  // not stored is no error
  return {};
}

}  // namespace tiercel::llamacpp
