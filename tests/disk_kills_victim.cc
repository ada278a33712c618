#include "disk_kills_victim.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <utility>

#include <fmt/format.h>
#include <unistd.h>

namespace tiercel::kills {
namespace {

constexpr std::byte kNothing{0xEE};
constexpr int kFailed = 3;

std::size_t open_files() {
  const std::filesystem::directory_iterator all("/proc/self/fd");
  return static_cast<std::size_t>(std::distance(begin(all), end(all)));
}

}  // namespace

Victim::Victim(std::string folder, const Plan& plan, Book& book)
    : folder_(std::move(folder)),
      plan_(plan),
      book_(book),
      form_(make_storage_form(hybrid_spec()).value()),
      promises_(book, tree_),
      dies_at_(plan.kill.from_work ? Time::max() : later(clock_.now(), plan.kill.after)),
      random_(plan.seed) {}

void Victim::fail(const std::string& what) {
  const std::string text = what.substr(0, book_.failure.size() - 1);
  std::memcpy(book_.failure.data(), text.data(), text.size());
  fmt::print(stderr, "failed: {}\n", what);
  std::fflush(stderr);
  ::_exit(kFailed);
}

void Victim::require(const Status& status, std::string_view call) {
  if (!status.ok()) fail(fmt::format("{}: {}", call, status.to_string()));
}

void Victim::audit_only() {
  open();
  close();
}

void Victim::work_until_killed() {
  files_open_ = open_files();
  open();
  phase(kWorking);
  if (plan_.kill.from_work) dies_at_ = later(clock_.now(), plan_.kill.after);
  cache_->mortal->dies_at(dies_at_);
  for (;;) step();
}

void Victim::step() {
  const std::uint64_t what = random_.below(1000);
  const auto space = static_cast<std::uint32_t>(random_.below(kSpaces));
  const auto chain = static_cast<std::uint32_t>(random_.below(tree_.chains.size()));
  if (what < 500)
    store_some();
  else if (what < 720)
    look_up(space, chain, {});
  else if (what < 800)
    fetch();
  else if (what < 880)
    remove_one();
  else if (what < 888)
    clear_one();
  else if (what < 892)
    next_epoch();
  else if (what < 940) {
    if (cache_->node->flush(std::chrono::seconds(10))) ++flushes_;
  } else if (what < 960)
    settle();
  else if (what < 966)
    close_and_reopen();
  else
    promise_durable();
  pump(false);
}

// ---- what comes back ----

void Victim::pump(bool may_wait) {
  const std::size_t done = cache_->node->poll();
  const std::vector<Completion> completions = cache_->node->drain_completions();
  for (const Completion& completion : completions) take(completion);
  if (may_wait && done == 0 && completions.empty()) cache_->mortal->wait(std::chrono::microseconds(200));
}

void Victim::take(const Completion& completion) {
  const auto store = stores_.find(completion.operation);
  switch (completion.kind) {
    case CompletionKind::kSourceFree:
      if (store == stores_.end()) fail("a store ended that was none");
      for (const std::uint64_t slot : store->second.slots) slot_busy_[slot] = false;
      break;
    case CompletionKind::kDurable:
      if (store == stores_.end()) fail("a store became durable that was none");
      if (completion.class_sets == store->second.sets.size()) promise_store(store->second);
      stores_.erase(store);
      break;
    case CompletionKind::kFlushed:
      --flushes_;
      if (!completion.status.ok()) break;
      promise_durable();
      book_.count(Count::kFlushes);
      break;
    case CompletionKind::kPrefetched:
      --fetches_;
      book_.count(Count::kPrefetches);
      break;
    case CompletionKind::kLoaded:
      loaded_.emplace(completion.operation, *completion.load);
      break;
    default:
      break;
  }
}

void Victim::promise_store(const Store& store) {
  const DiskGeometry& geometry = cache_->log->geometry();
  for (const auto& [set, number] : store.sets) {
    const std::uint32_t space = set / kClasses / kPages, page = set / kClasses % kPages;
    if (number <= promises_.perhaps_gone(space, page)) continue;
    const DiskName name{disk_spaces_[space], keys_[space][page],
                        ClassId(static_cast<std::uint16_t>(set % kClasses))};
    const auto found = cache_->log->find(name, true);
    if (!found) continue;  // it has left with its region between being durable and being told so
    promises_.promise(set, number, (found->offset - geometry.regions_offset) / geometry.region_bytes);
    book_.count(Count::kDurable);
  }
}

// Whatever can be found and lies before the last flush.
void Victim::promise_durable() {
  const DiskLog& log = *cache_->log;
  const DiskGeometry& geometry = log.geometry();
  for (std::uint32_t space = 0; space < kSpaces; ++space) {
    if (disk_spaces_[space] == DiskSpaceId{}) continue;
    for (std::uint32_t chain = 0; chain < tree_.chains.size(); ++chain) {
      const std::vector<Key> keys = chain_keys(space, chain);
      std::vector<Presence> presence(keys.size());
      log.find_chain(disk_spaces_[space], 0, keys, presence);
      for (std::size_t i = 0; i < keys.size(); ++i)
        for (std::uint16_t cls = 0; cls < kClasses; ++cls) {
          if ((presence[i] >> cls & 1) == 0) continue;
          const auto found = log.find({disk_spaces_[space], keys[i], ClassId(cls)}, true);
          if (!found || found->born > log.durable_at()) continue;
          promises_.promise(set_number(space, tree_.chains[chain][i], cls), book_.last,
                            (found->offset - geometry.regions_offset) / geometry.region_bytes);
        }
    }
  }
}

// ---- storing ----

std::vector<Key> Victim::chain_keys(std::uint32_t space, std::uint32_t chain) const {
  std::vector<Key> keys;
  for (const std::uint32_t page : tree_.chains[chain]) keys.push_back(keys_[space][page]);
  return keys;
}

std::optional<std::uint64_t> Victim::free_slot() {
  const auto at = std::find(slot_busy_.begin(), slot_busy_.end(), false);
  if (at == slot_busy_.end()) return {};
  *at = true;
  return static_cast<std::uint64_t>(at - slot_busy_.begin());
}

// A part of a conversation; its classes together or one after the other.
void Victim::store_some() {
  const auto space = static_cast<std::uint32_t>(random_.below(kSpaces));
  const std::vector<std::uint32_t>& chain = tree_.chains[random_.below(tree_.chains.size())];
  // Always from its beginning: a removal cannot reach what was stored without its parents.
  const std::size_t to = random_.between(1, chain.size());
  for (std::size_t at = 0; at < to; ++at) {
    std::vector<std::uint32_t> classes;
    for (const ClassForm& cls : form_.classes) {
      if (cls.is_state() && (at + 1) % 3 != 0 && at + 1 != to) continue;
      if (!cls.required() && random_.chance(0.15)) continue;
      classes.push_back(cls.id.value());
    }
    if (random_.chance(0.5)) {
      store_page(space, chain[at], classes);
    } else {
      if (random_.chance(0.5)) std::reverse(classes.begin(), classes.end());
      for (const std::uint32_t cls : classes) store_page(space, chain[at], {cls});
    }
    if (random_.chance(0.7)) pump(false);
  }
}

void Victim::store_page(std::uint32_t space, std::uint32_t page, const std::vector<std::uint32_t>& classes) {
  std::optional<std::uint64_t> slot = free_slot();
  wait_until("stores do not free their sources:", [&] { return slot || (slot = free_slot()); });
  StoreRequest request;
  request.session = cache_->session;
  request.ns = cache_->spaces[space];
  request.request = RequestId(++requests_);
  request.tell_lower = true;
  std::map<std::uint32_t, std::uint64_t> numbers;
  for (const DevicePool& pool : cache_->pools) {
    if (std::find(classes.begin(), classes.end(), pool.cls.value()) == classes.end()) continue;
    const std::uint32_t set = set_number(space, page, pool.cls.value());
    if (!numbers.contains(set)) numbers[set] = promises_.next_number(set);
    const Key& key = keys_[space][page];
    cache_->write_engine(
        pool, *slot,
        content(numbers[set], key, pool.cls, pool.shard, form_.classes[pool.cls.value()].record_bytes));
    StoreItem item;
    item.key = key;
    if (tree_.parent[page]) item.parent = keys_[space][*tree_.parent[page]];
    item.length = tree_.depth[page] + 1;
    item.cls = pool.cls;
    item.shard = pool.shard;
    item.slot = *slot;
    request.items.push_back(item);
  }
  const auto answer = cache_->node->store(request);
  if (!answer) fail(fmt::format("store: {}", answer.error().to_string()));
  Store store;
  store.slots = {*slot};
  for (std::size_t i = 0; i < request.items.size(); ++i) {
    const std::uint32_t set = set_number(space, page, request.items[i].cls.value());
    if (answer->outcomes[i] == StoreOutcome::kAccepted && request.items[i].shard == ShardId(0))
      store.sets.emplace_back(set, numbers[set]);
  }
  if (answer->operation == OperationId{}) {
    slot_busy_[*slot] = false;
    return;
  }
  book_.count(Count::kStores);
  stores_.emplace(answer->operation, std::move(store));
}

// ---- finding ----

// `expected`: exactly so many pages.
void Victim::look_up(std::uint32_t space, std::uint32_t chain, std::optional<std::uint64_t> expected) {
  const std::vector<Key> keys = chain_keys(space, chain);
  MatchQuery query;
  query.session = cache_->session;
  query.ns = cache_->spaces[space];
  query.request = RequestId(++requests_);
  query.keys = keys;
  query.may_promote = expected || random_.chance(0.8);
  query.deadline = expected || random_.chance(0.7) ? kPatience : std::chrono::milliseconds(1);
  const auto ticket = cache_->node->match(query);
  if (!ticket) fail(fmt::format("match: {}", ticket.error().to_string()));
  const std::uint64_t evicted = cache_->log->stats().evicted;
  const TicketView* view = cache_->node->ticket(*ticket);
  if (expected || !random_.chance(0.1))
    wait_until("a match does not end:", [&] {
      view = cache_->node->ticket(*ticket);
      return view == nullptr || !view->pending;
    });
  const std::uint64_t length = view == nullptr || view->pending ? 0 : view->length;
  if (expected && length != *expected && cache_->log->stats().evicted == evicted)
    fail(fmt::format("space {}, conversation {}: the log allows {} pages, a match found {}", space, chain,
                     *expected, length));
  const std::uint64_t loaded = length == 0 ? 0 : load(space, chain, *ticket, length);
  if (expected && loaded != length) fail(fmt::format("of {} pages found {} were loaded", length, loaded));
  cache_->node->release(*ticket);
}

std::uint64_t Victim::load(std::uint32_t space, std::uint32_t chain, TicketId ticket, std::uint64_t length) {
  for (const DevicePool& pool : cache_->pools) {
    const std::vector<std::byte> nothing(form_.classes[pool.cls.value()].record_bytes, kNothing);
    for (std::uint64_t i = 0; i < length; ++i) cache_->write_engine(pool, kStoreSlots + i, nothing);
  }
  LoadRequest request;
  request.ticket = ticket;
  request.length = length;
  for (const DevicePool& pool : cache_->pools) {
    LoadTarget target{pool.cls, pool.shard, {}};
    const std::uint64_t slots = form_.classes[pool.cls.value()].is_state() ? 1 : length;
    for (std::uint64_t i = 0; i < slots; ++i) target.slots.push_back(kStoreSlots + i);
    request.targets.push_back(std::move(target));
  }
  const auto operation = cache_->node->load(request);
  if (!operation) fail(fmt::format("load: {}", operation.error().to_string()));
  wait_until("a load does not end:", [&] { return loaded_.contains(*operation); });
  const LoadResult result = std::move(loaded_.extract(*operation).mapped());
  require(result.status, "load");
  std::map<std::uint32_t, std::uint64_t> numbers;
  for (std::size_t i = 0; i < request.targets.size(); ++i) {
    const DevicePool& pool = cache_->pools[i];
    for (std::size_t at = 0; at < result.outcomes[i].size(); ++at) {
      if (result.outcomes[i][at] != ItemOutcome::kDelivered) continue;
      const bool state = form_.classes[pool.cls.value()].is_state();
      const std::uint32_t page = tree_.chains[chain][state ? result.length - 1 : at];
      const auto number = computation_of(cache_->read_engine(pool, request.targets[i].slots[at]),
                                         keys_[space][page], pool.cls, pool.shard);
      const std::uint32_t set = set_number(space, page, pool.cls.value());
      if (!number) fail(fmt::format("loaded page {} class {} is no computation's", page, pool.cls.value()));
      if (numbers.emplace(set, *number).first->second != *number)
        fail(fmt::format("loaded page {} class {} is of two computations", page, pool.cls.value()));
      const std::string wrong = promises_.wrong(space, page, pool.cls.value(), *number);
      if (!wrong.empty()) fail(fmt::format("loaded page {} class {}: {}", page, pool.cls.value(), wrong));
    }
  }
  book_.count(Count::kLoads);
  return result.length;
}

void Victim::fetch() {
  const auto space = static_cast<std::uint32_t>(random_.below(kSpaces));
  const std::vector<Key> keys =
      chain_keys(space, static_cast<std::uint32_t>(random_.below(tree_.chains.size())));
  PrefetchRequest request;
  request.session = cache_->session;
  request.ns = cache_->spaces[space];
  request.keys = keys;
  request.policy = static_cast<PrefetchPolicy>(random_.below(3));
  if (random_.chance(0.3)) request.deadline = std::chrono::microseconds(300);
  const auto operation = cache_->node->prefetch(request);
  if (!operation) fail(fmt::format("prefetch: {}", operation.error().to_string()));
  ++fetches_;
  if (random_.chance(0.3)) cache_->node->cancel(*operation);
}

// ---- removing ----

void Victim::remove_one() {
  const auto space = static_cast<std::uint32_t>(random_.below(kSpaces));
  const auto page = static_cast<std::uint32_t>(random_.below(kPages));
  // Where there is no room to keep one more, everything older may be cleared instead.
  if (cache_->log->stats().removals + 2 >= cache_->log->geometry().removals_max)
    book_.clearing_form = book_.last.load();
  BookPage& entry = book_.spaces[space].pages[page];
  entry.removing = book_.last.load();
  book_.count(Count::kUnsettled);
  const Status status = cache_->node->remove(cache_->spaces[space], std::span(&keys_[space][page], 1));
  book_.uncount(Count::kUnsettled);
  if (!status.ok()) return book_.count(Count::kRefused);
  entry.removed = entry.removing.load();
  book_.count(Count::kRemovals);
}

void Victim::clear_one() {
  const auto space = static_cast<std::uint32_t>(random_.below(kSpaces));
  BookSpace& entry = book_.spaces[space];
  entry.clearing = book_.last.load();
  book_.count(Count::kUnsettled);
  const Status status = cache_->node->clear(cache_->spaces[space]);
  book_.uncount(Count::kUnsettled);
  if (!status.ok()) return book_.count(Count::kRefused);
  entry.cleared = entry.clearing.load();
  book_.count(Count::kClears);
}

void Victim::next_epoch() {
  book_.clearing_form = book_.last.load();
  book_.epoch_begun = epoch_ + 1;
  if (!cache_->node->set_weights_epoch(cache_->form, epoch_ + 1).ok()) fail("a weights epoch was refused");
  book_.cleared_form = book_.clearing_form.load();
  book_.epoch_done = ++epoch_;
  book_.count(Count::kEpochs);
  require(cache_->open_spaces(epoch_), "open the namespaces of the next epoch");
  const std::vector<DiskLog::SpaceView> views = cache_->log->spaces();
  for (std::uint32_t space = 0; space < kSpaces; ++space) {
    const Digest root = cache_->node->root(cache_->spaces[space]);
    keys_[space] = keys_of(tree_, root, form_.spec.page_tokens);
    disk_spaces_[space] = {};
    for (const DiskLog::SpaceView& view : views)
      if (view.name.root == root) disk_spaces_[space] = view.id;
  }
}

// ---- closing ----

void Victim::close() {
  phase(kClosing);
  settle();
  const WriteDown report = cache_->node->write_down(std::chrono::seconds(10));
  require(report.status, "close");
  promise_durable();
  cache_.reset();
  check_folder();
  book_.count(Count::kCloses);
  stores_.clear();
  fetches_ = flushes_ = 0;
}

void Victim::close_and_reopen() {
  close();
  if (files_open_ != 0 && open_files() != files_open_)
    fail(fmt::format("{} files were open before, {} after closing", files_open_, open_files()));
  open();
  phase(kWorking);
}

}  // namespace tiercel::kills
