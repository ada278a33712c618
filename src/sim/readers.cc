#include "sim/readers.h"

#include <algorithm>
#include <cstdlib>

#include <fmt/format.h>

#include "base/check.h"
#include "base/crc32c.h"
#include "memory/record.h"
#include "sim/actions.h"
#include "sim/faults.h"

namespace tiercel::sim {
namespace {

constexpr LeaseTableShape kShape{4, 64, 16, 1};

// What a reader in another process can know: the address, the class's sizes, the arena's shape.
std::optional<std::vector<ArenaSpan>> spans_at(const Scene& scene, const ClassForm& cls,
                                               SlotAddress address) {
  const std::uint64_t slot = slot_bytes(cls);
  const Audit& now = scene.view.before;
  if (slot > now.extent_bytes) return std::nullopt;  // further extents are known to the node alone
  return std::vector<ArenaSpan>{{slot_offset(address, slot, now.extent_bytes, now.extents_total), slot}};
}

std::vector<Key> keys_of(const Scene& scene, std::size_t prompt) {
  std::vector<Key> keys;
  for (std::optional<std::size_t> at = prompt; at; at = scene.prompts[*at].parent)
    keys.push_back(scene.prompts[*at].key);
  std::reverse(keys.begin(), keys.end());
  return keys;
}

}  // namespace

Readers::Readers(std::uint32_t count) : readers_(count) {
  if (count == 0) return;
  const auto bytes = LeaseTable::bytes(kShape);
  TIERCEL_CHECK(bytes.has_value());
  memory_ = std::unique_ptr<std::byte, void (*)(void*)>(
      static_cast<std::byte*>(std::aligned_alloc(4096, *bytes)), std::free);
  std::fill_n(memory_.get(), *bytes, std::byte{0});
  region_ = MutableByteView(memory_.get(), *bytes);
  auto table = LeaseTable::format(region_, kShape);
  TIERCEL_CHECK(table.has_value());
  table_ = std::move(*table);
}

void Readers::open() {
  for (Reader& reader : readers_) open(reader);
}

void Readers::open(Reader& reader) {
  const auto place = table_->add_client(++pids_);
  TIERCEL_CHECK(place.has_value());
  reader = Reader{};
  reader.place = *place;
  auto client = LeaseClient::attach(region_, *place);
  TIERCEL_CHECK(client.has_value());
  reader.client = std::move(*client);
}

void Readers::act(Scene& scene) {
  if (readers_.empty()) return;
  Reader& reader = readers_[scene.prng.below(readers_.size())];
  if (scene.prng.chance(0.02)) {  // killed: nothing of it remains
    scene.coverage.hit("reader_died");
    table_->remove_client(reader.place);
    return open(reader);
  }
  if (reader.look) return lease(scene, reader);
  if (!reader.holds.empty() || !reader.slots.empty()) {
    if (scene.prng.chance(0.5)) release(reader);
    return;
  }
  look(scene, reader);
}

// While it reads the index, the node may change it.
void Readers::look(Scene& scene, Reader& reader) {
  if (scene.prompts.empty()) return;
  const std::size_t prompt = scene.prng.below(scene.prompts.size());
  Look look;
  look.space = scene.prompts[prompt].ns;
  if (scene.spaces[look.space].dead) return;
  if (!reader.terms.contains(look.space))
    reader.terms[look.space] = scene.node->reader_space(scene.spaces[look.space].id);
  look.terms = reader.terms.at(look.space);
  const IndexView view = *IndexView::attach(scene.index->compact().image());
  look.keys = keys_of(scene, prompt);
  look.found.resize(look.keys.size());
  std::uint64_t pauses = scene.prng.chance(0.4) ? scene.prng.between(1, 3) : 0;
  const std::function<void()> meanwhile = [&scene, &pauses] {
    if (pauses == 0 || --pauses != 0) return;
    scene.coverage.hit("reader_interrupted");
    scene.prng.chance(0.5) ? replace_page(scene) : remove_leaf(scene);
  };
  on_pause(&meanwhile);
  view.read_chain(look.terms.space, 0, look.keys, look.found);
  on_pause(nullptr);
  reader.look = std::move(look);
}

void Readers::lease(Scene& scene, Reader& reader) {
  const Look look = *std::exchange(reader.look, std::nullopt);
  const IndexView view = *IndexView::attach(scene.index->compact().image());
  std::vector<std::size_t> leased;
  for (std::size_t i = 0; i < look.found.size(); ++i) {
    const FoundPage& page = look.found[i];
    if (page.page == kNoPage) continue;
    const auto slot = reader.client->lease(scene.index->lease_name(PageNumber(page.page)),
                                           view.generation(PageNumber(page.page)), page.generation);
    scene.coverage.hit(slot ? "reader_leased" : "reader_came_too_late");
    if (!slot) continue;
    reader.slots.push_back(*slot);
    leased.push_back(i);
  }
  const auto changed = [&](const ReaderMark& mark) { return view.mark(mark.id).load() != mark.value; };
  if (changed(look.terms.namespace_mark) || changed(look.terms.form_mark)) {
    scene.coverage.hit("reader_met_a_clear");
    reader.terms.erase(look.space);
    return release(reader);
  }
  reader.look = look;
  for (const std::size_t i : leased) read(scene, reader, i);
  reader.look.reset();
  if (!leased.empty() && scene.prng.chance(0.5))
    reader.client->touch(
        {look.found[leased.back()].page, static_cast<std::uint32_t>(leased.back() + 1), scene.clock.now()});
}

// Every class that was there when it looked is there under the lease, of this page and whole.
void Readers::read(Scene& scene, Reader& reader, std::size_t i) {
  const Look& look = *reader.look;
  const Space& space = scene.spaces[look.space];
  const StorageForm& form = scene.form_of(space);
  const IndexView& view = scene.index->compact().view();
  for (const ClassForm& cls : form.classes) {
    if ((look.found[i].classes >> cls.id.value() & 1) == 0) continue;
    if (!scene.node->exists(space.id, cls.id, look.keys[i])) {
      reader.wrong = fmt::format("class {} of page {} is out of sight", cls.name, to_hex(look.keys[i]));
      return;
    }
    const auto address = view.address(look.found[i], look.terms.first_sets[cls.id.value()]);
    if (!address) {
      reader.wrong =
          fmt::format("class {} of page {} is leased and not there", cls.name, to_hex(look.keys[i]));
      return;
    }
    const auto spans = spans_at(scene, cls, *address);
    const PageRecord* record = scene.book.find({space.id, look.keys[i]});
    if (!spans || record == nullptr || record->ever_damaged.contains(cls.id)) continue;
    const auto payload = scene.arena->read(*spans, header_bytes(cls), cls.record_bytes);
    if (!whole_payload(cls, scene.record_name(space, look.keys[i], cls.id, ShardId{}), payload)) {
      reader.wrong = fmt::format("class {} of page {} has other bytes", cls.name, to_hex(look.keys[i]));
      return;
    }
    reader.holds.push_back({look.space, look.keys[i], cls.id, *spans, crc32c(payload)});
  }
}

void Readers::release(Reader& reader) {
  for (const std::uint32_t slot : reader.slots) reader.client->release(slot);
  reader.slots.clear();
  reader.holds.clear();
}

void Readers::end_all() {
  for (Reader& reader : readers_) {
    table_->remove_client(reader.place);
    reader.look.reset();
    reader.slots.clear();
    reader.holds.clear();
  }
}

bool Readers::holds(NamespaceId ns, const Key& key, ClassId cls, const Scene& scene) const {
  for (const Reader& reader : readers_)
    for (const ReadRecord& each : reader.holds)
      if (scene.spaces[each.space].id == ns && each.key == key && each.cls == cls) return true;
  return false;
}

std::optional<std::string> Readers::check(const Scene& scene) const {
  for (const Reader& reader : readers_) {
    if (reader.wrong) return reader.wrong;
    for (const ReadRecord& each : reader.holds) {
      const ClassForm& cls = scene.form_of(scene.spaces[each.space]).classes[each.cls.value()];
      if (crc32c(scene.arena->read(each.spans, header_bytes(cls), cls.record_bytes)) != each.sum)
        return fmt::format("class {} of page {}: its bytes changed under a reader's lease", cls.name,
                           to_hex(each.key));
    }
  }
  return std::nullopt;
}

}  // namespace tiercel::sim
