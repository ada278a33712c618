// What stands behind a node's lock: the node itself, and what its operations and tickets look like from
// outside. Completions of the node become those of the ABI here, each operation's last one exactly once.
//
// Threads: everything under the lock of Core (core.h), except Operation::handle.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <queue>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include <tiercel/types.h>

#include "capi/answer.h"
#include "capi/completion_queue.h"
#include "capi/engine_memory.h"
#include "capi/form_table.h"
#include "node/node.h"

namespace tiercel::capi {

enum class OperationKind : std::uint8_t { kLoad, kStore, kSuspend, kPrefetch, kFlush };

// A slot of registered memory that a store reads.
struct SourceSlot {
  FormId form;
  ClassId cls;
  ShardId shard;
  std::uint64_t slot = 0;
  friend auto operator<=>(const SourceSlot&, const SourceSlot&) = default;
};

struct Operation {
  OperationKind kind = OperationKind::kLoad;
  std::uint64_t id = 0;
  std::uint64_t user_data = 0;
  std::shared_ptr<CompletionQueue> cq;  // owners: its handle, and operations that complete into it
  std::atomic<tiercel_operation*> handle{nullptr};
  std::uint32_t given = 0;  // bit per completion kind
  bool last = false;        // the last completion was given
  bool quiescent = false;
  // Load.
  LoadResult load;
  std::vector<std::uint32_t> layers_ready;
  // Store.
  std::vector<StoreOutcome> outcomes;
  std::vector<SourceSlot> sources;   // until quiescent
  std::vector<BroughtSlot> brought;  // until quiescent
  bool tells_lower = false;          // `visible` is not its last completion
  std::uint64_t class_sets = 0;      // of it, that the disk has
  Status lower;                      // cancelled: the disk was closed before
  // Prefetch.
  PrefetchResult prefetch;
  // Flush.
  Status flushed;
};

struct Ticket {
  TicketId id;
  SessionId session;
  std::shared_ptr<const FormTable> form;
  std::uint32_t handles = 0;
  std::shared_ptr<CompletionQueue> cq;  // where its answer is told; may be null
  std::uint64_t user_data = 0;
  // From then on the two below are constant and may be read without the lock.
  std::atomic<bool> answered{false};
  TicketView view;
  Status status;  // cancelled: it ended before it was ready
};

// How one class and shard of a form is given its memory.
struct MemoryUse {
  bool registered = false;               // by register_memory
  std::optional<std::uint32_t> brought;  // virtual pool, once made
  bool brought_now = false;              // the node was told of the virtual pool
};

struct SessionInfo {
  std::string tenant_salt;
};

class Live final {
 public:
  Live(Clock& clock, EngineMemory& memory) : clock_(clock), memory_(memory) {}

  std::unique_ptr<Node> node;  // null once closed
  bool closing = false;        // no new call gets in
  bool disk_closed = false;    // written down
  std::array<std::byte, 16> instance{};
  std::map<SessionId, SessionInfo> sessions;
  std::map<FormId, std::shared_ptr<const FormTable>> forms;  // shared with the handles of each
  std::map<TicketId, std::shared_ptr<Ticket>> tickets;       // that have handles
  std::map<std::tuple<FormId, ClassId, ShardId>, MemoryUse> memory_uses;
  std::set<std::uint64_t> events;  // created, not fired
  std::uint64_t last_event = 0;
  std::deque<Event> cache_events;  // taken from the node, not drained
  std::uint64_t cache_events_lost = 0;

  // -- operations --
  // With nothing left to do for the node: completes at once. Requires: op.id is the node's, or 0 for none.
  void begin(const std::shared_ptr<Operation>& op);
  // Whether anything but the disk has still to do with what was begun.
  bool copies_under_way() const;
  std::vector<std::shared_ptr<Operation>> stores_under_way() const;
  bool reads(const SourceSlot& source) const { return sources_.contains(source); }
  void give_back(const std::vector<BroughtSlot>& slots);
  // Takes the node's completions. Returns: how many, those of suspend() included.
  std::size_t route();
  // They end as cancelled: nobody may wait for a drive for ever.
  void cancel_flushes();

  // -- tickets --
  // Of a match just made. With a view that is pending no more it is answered at once.
  void begin(const std::shared_ptr<Ticket>& ticket);
  // Of an operation begun before; complete at once where all is quiet already.
  void suspend();
  void resume();

  // -- requests: numbered by the session, known to the node by numbers of its own --
  RequestId request(SessionId session, std::uint64_t request);              // made when new; 0 is 0
  RequestId known_request(SessionId session, std::uint64_t request) const;  // 0 when unknown
  void forget_request(SessionId session, std::uint64_t request);
  void forget_requests(SessionId session);
  // Requires: known. Forgetting it forgets this too.
  void end_request_at(Time when, SessionId session, std::uint64_t request);
  std::size_t expire_requests();

  // -- time --
  void note_deadline(Time when) { deadlines_.push(when); }
  // When something may be due at the latest, if nothing is told before.
  Time next_due();

 private:
  using RequestKey = std::pair<SessionId, std::uint64_t>;
  using RequestEnds = std::multimap<Time, RequestKey>;
  struct KnownRequest {
    RequestId id;
    std::optional<RequestEnds::iterator> end;  // of a ttl
  };

  void give(const std::shared_ptr<Operation>& op, tiercel_completion_kind kind, bool last,
            std::uint32_t layer = 0);
  void become_quiescent(Operation& op);
  void take_completion(Completion& completion);
  void take_store(const std::shared_ptr<Operation>& op, Completion& completion);
  void answer_ticket(Ticket& ticket, const TicketView* view);
  void all_suspended();
  void forget(std::map<RequestKey, KnownRequest>::iterator at);

  Clock& clock_;
  EngineMemory& memory_;
  std::unordered_map<std::uint64_t, std::shared_ptr<Operation>> operations_;
  std::vector<std::shared_ptr<Operation>> suspensions_;
  std::map<TicketId, std::shared_ptr<Ticket>> pending_;
  bool suspended_ = false;         // suspend() was called last, not resume()
  bool quiet_ = false;             // its end was told
  std::size_t given_ = 0;          // completions since the last route()
  std::uint64_t last_own_id_ = 0;  // of operations that the node does not know
  std::map<SourceSlot, std::uint32_t> sources_;
  std::map<RequestKey, KnownRequest> requests_;
  std::uint64_t last_request_ = 0;
  RequestEnds request_ends_;
  std::priority_queue<Time, std::vector<Time>, std::greater<>> deadlines_;
};

// A session's request by its number in the node. One that was not known before is forgotten again, unless the
// node came to know it too.
class RequestName final {
 public:
  RequestName(Live& live, SessionId session, std::uint64_t request)
      : live_(live),
        session_(session),
        request_(request),
        forget_(request != 0 && live.known_request(session, request) == RequestId{}),
        id_(live.request(session, request)) {}
  ~RequestName() {
    if (forget_) live_.forget_request(session_, request_);
  }
  RequestName(const RequestName&) = delete;
  RequestName& operator=(const RequestName&) = delete;
  RequestId id() const { return id_; }
  void keep() { forget_ = false; }

 private:
  Live& live_;
  const SessionId session_;
  const std::uint64_t request_;
  bool forget_;
  const RequestId id_;
};

// Of a store: items whose bytes are in the cache.
std::uint64_t items_ok(const Operation& op);

}  // namespace tiercel::capi
