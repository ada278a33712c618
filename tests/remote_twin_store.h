// The simulator's store on a real clock, for the contract; and stores that break it on purpose, each in one
// way, so that the contract is seen to notice.
//
// Threads: one.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <time.h>

#include "remote/connector_message.h"
#include "remote/test_store_twin.h"

namespace tiercel {

struct StoreFault {
  std::string_view name, what;
};
inline constexpr StoreFault kStoreFaults[] = {
    {"put_replaces", "a put changes an object that is there"},
    {"replace_keeps", "a replace leaves what is there"},
    {"one_fails_all", "one bad item fails its whole batch"},
    {"wrong_size_served", "a get of another size says ok"},
    {"last_twin_only", "of one name twice in a batch of gets the last is filled"},
    {"ends_twice", "a batch ends twice"},
    {"never_ends", "every fifth batch does not end"},
    {"deadline_ignored", "a batch whose deadline has passed is done all the same"},
    {"nonsense_taken", "a piece outside its region is accepted"},
    {"remove_lies", "a remove says ok and removes nothing"},
    {"exists_lies", "what is absent is said to be there"},
    {"shifted", "a get of more than one byte delivers them one place off"},
    {"writes_beside", "a get writes one byte behind its pieces"},
    {"forgets_last_byte", "a put loses the last byte"},
    {"names_short", "names are told apart by their first 40 bytes only"},
    {"takes_everything", "there is no end to the batches that are taken"},
    {"close_goes_on", "after close batches are taken"},
};

class TwinStore final : public RemoteStore {
 public:
  TwinStore(TwinObjects& objects, const Clock& real, std::string fault, std::uint64_t seed)
      : real_(real), fault_(std::move(fault)), twin_(objects, clock_, nature(fault_), seed) {}

  Result<RemoteBatchId> submit(RemoteBatch batch) override {
    sync();
    if (!is("nonsense_taken")) {
      const std::array<std::uint64_t, 2> regions{twin_.exchange_bytes(), 0};
      TIERCEL_RETURN_IF_ERROR(check_batch(batch, regions));
    }
    if (closed_ && !is("close_goes_on")) return error(Code::kUnavailable, "the store is closed");
    const bool late = batch.deadline <= real_.now();
    if (closed_ || (late && !is("deadline_ignored")) || nonsense(batch)) {
      const RemoteOutcome outcome = late ? RemoteOutcome::kLate : RemoteOutcome::kOk;
      return ended(batch, outcome);
    }
    if (late) batch.deadline = later(real_.now(), std::chrono::seconds(10));
    distort(batch);
    batches_.push_back({{}, batch});
    Result<RemoteBatchId> id = twin_.submit(std::move(batch));
    if (!id) {
      batches_.pop_back();
      return id;
    }
    batches_.back().first = RemoteBatchId(id->value() * 2);
    return batches_.back().first;
  }
  void cancel(RemoteBatchId batch) override { twin_.cancel(RemoteBatchId(batch.value() / 2)); }

  std::vector<RemoteEvent> drain() override {
    sync();
    std::vector<RemoteEvent> events = std::exchange(events_, {});
    for (RemoteEvent& event : twin_.drain()) {
      event.batch = RemoteBatchId(event.batch.value() * 2);
      if (event.kind == RemoteEvent::Kind::kDone) {
        if (is("never_ends") && ++ends_ % 5 == 0) continue;
        spoil(event);
        if (is("ends_twice")) events.push_back(event);
      }
      events.push_back(std::move(event));
    }
    return events;
  }
  void wait(Duration at_most) override {
    const Duration due = std::max<Duration>(twin_.next_due() - real_.now(), Duration(0));
    const Duration rest = std::min({at_most, due, Duration(std::chrono::milliseconds(5))});
    const timespec time{0, static_cast<long>(rest.count())};
    ::nanosleep(&time, nullptr);
    sync();
  }
  Time next_due() const override { return events_.empty() ? twin_.next_due() : real_.now(); }
  RemoteHealth health() const override {
    RemoteHealth health = twin_.health();
    health.ready = health.ready && (!closed_ || is("close_goes_on"));
    return health;
  }
  std::byte* exchange() override { return twin_.exchange(); }
  std::uint64_t exchange_bytes() const override { return twin_.exchange_bytes(); }
  void close(Duration at_most) override {
    closed_ = true;
    twin_.close(at_most);
  }

 private:
  static TwinNature nature(std::string_view fault) {
    TwinNature nature;
    nature.exchange_bytes = 64U << 20;
    nature.latency_max = std::chrono::microseconds(200);
    if (fault == "takes_everything") nature.batches_max = UINT32_MAX;
    return nature;
  }
  bool is(std::string_view fault) const { return fault_ == fault; }
  void sync() { clock_.advance_to(real_.now()); }

  Result<RemoteBatchId> ended(const RemoteBatch& batch, RemoteOutcome outcome) {
    RemoteEvent event;
    event.batch = RemoteBatchId(++own_ * 2 + 1);
    event.results.assign(batch.items.size(), RemoteResult{outcome, 0});
    events_.push_back(event);
    return event.batch;
  }
  bool nonsense(const RemoteBatch& batch) const {
    const std::array<std::uint64_t, 2> regions{twin_.exchange_bytes(), 0};
    return is("nonsense_taken") && !check_batch(batch, regions).ok();
  }

  void distort(RemoteBatch& batch) {
    if (is("put_replaces") && batch.verb == RemoteVerb::kPut)
      batch.verb = RemoteVerb::kReplace;
    else if (is("replace_keeps") && batch.verb == RemoteVerb::kReplace)
      batch.verb = RemoteVerb::kPut;
    if (is("remove_lies") && batch.verb == RemoteVerb::kRemove) batch.verb = RemoteVerb::kExists;
    for (RemoteItem& item : batch.items)
      if (is("names_short")) item.name.resize(std::min<std::size_t>(item.name.size(), 40));
    const bool put = batch.verb == RemoteVerb::kPut || batch.verb == RemoteVerb::kReplace;
    for (RemoteItem& item : batch.items)
      if (is("forgets_last_byte") && put && item.pieces.back().length > 1) --item.pieces.back().length;
  }

  void spoil(RemoteEvent& event) {
    const auto at = std::find_if(batches_.begin(), batches_.end(),
                                 [&](const auto& each) { return each.first == event.batch; });
    if (at == batches_.end()) return;
    const RemoteBatch batch = std::move(at->second);
    batches_.erase(at);
    bool bad = false;
    for (std::size_t i = 0; i < batch.items.size(); ++i) {
      RemoteResult& result = event.results[i];
      if (is("exists_lies") && batch.verb == RemoteVerb::kExists) result = {RemoteOutcome::kOk, 0};
      if (is("wrong_size_served") && result.outcome == RemoteOutcome::kWrongSize)
        result = {RemoteOutcome::kOk, batch.items[i].pieces[0].length};
      if (closed_ && result.outcome == RemoteOutcome::kDown) result.outcome = RemoteOutcome::kCancelled;
      bad |= result.outcome != RemoteOutcome::kOk;
      if (batch.verb == RemoteVerb::kGet && result.outcome == RemoteOutcome::kOk) spoil_bytes(batch, i);
    }
    if (is("one_fails_all") && bad)
      for (RemoteResult& result : event.results) result = {RemoteOutcome::kFailed, 0};
  }
  void spoil_bytes(const RemoteBatch& batch, std::size_t i) {
    const RemotePiece& piece = batch.items[i].pieces.back();
    std::byte* const memory = twin_.exchange() + piece.offset;
    const auto length = static_cast<std::size_t>(piece.length);
    if (is("shifted") && length > 1) std::rotate(memory, memory + 1, memory + length);
    if (is("writes_beside") && piece.offset + length < twin_.exchange_bytes())
      memory[length] ^= std::byte{0x55};
    if (!is("last_twin_only")) return;
    const bool again =
        std::any_of(batch.items.begin() + static_cast<std::ptrdiff_t>(i) + 1, batch.items.end(),
                    [&](const RemoteItem& item) { return item.name == batch.items[i].name; });
    if (again) std::memset(memory, 0xEE, length);
  }

  const Clock& real_;
  ManualClock clock_;
  std::string fault_;
  StoreTwin twin_;
  std::vector<std::pair<RemoteBatchId, RemoteBatch>> batches_;
  std::vector<RemoteEvent> events_;
  std::uint64_t own_ = 0, ends_ = 0;
  bool closed_ = false;
};

}  // namespace tiercel
