// Damage on the disk, and records that are missing: a shorter restored prefix or none, never a wrong logit.
// H02: every record that a length needs, or that length is no hit. H03: what is lost between finding and
// loading.
#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <ostream>
#include <random>
#include <string>
#include <vector>

#include "llamacpp_bed_for_test.h"
#include "llamacpp_disk_for_test.h"

namespace tiercel::llamacpp {
namespace {

constexpr std::uint32_t kSaved = 448, kPageTokens = 16, kTile = 64;

// Of each memory kind one: pages, window cells, states alone, pages and states, whole states.
struct Kind {
  const char* model;
  bool whole;
};
constexpr Kind kKinds[] = {{"llama", false}, {"llama_swa", false}, {"mamba", false},
                           {"lfm2", false},  {"mla", false},       {"llama", true}};
std::string name_of(const testing::TestParamInfo<Kind>& each) {
  return std::string(each.param.model) + (each.param.whole ? "_whole" : "");
}

class LlamaDamage : public testing::TestWithParam<Kind> {
 protected:
  void SetUp() override {
    engine_ =
        std::make_unique<Engine>(attach_tiny(GetParam().model, {}, Mode::kExact, [](ContextOptions& options) {
          options.opaque = GetParam().whole;
        }));
    prompt_ = text_of(engine_->model(), 1, kSaved);
    save();
    log_ = std::make_unique<LogFile>(folder_.file("intact"));
    records_ = log_->records();
    ASSERT_FALSE(records_.empty());
  }

  // Two prompts, of which one is the beginning of the other one: two snapshots at least.
  void save() {
    const auto store = open_store(options_of("intact"));
    ASSERT_TRUE(engine_->cache->use(store).ok());
    right_turn(*engine_, 0, Text(prompt_.begin(), prompt_.begin() + 256));
    right_turn(*engine_, 0, prompt_);
    pages_ = pages_of(*engine_, *store, prompt_).keys;
    ASSERT_TRUE(engine_->cache->use(nullptr).ok());
    ASSERT_TRUE(store->close().ok());
  }
  StoreOptions options_of(const std::string& name) const {
    StoreOptions options = store_options(folder_.file(name));
    options.cache_bytes = GetParam().whole ? 16 * kMiB : 4 * kMiB;
    options.host_bytes = 16 * kMiB;
    return options;
  }

  // Of a damaged copy: what the same prompt restores. The answers must be right, and again in a second round.
  std::uint32_t restored_after(const std::function<void(const LogFile&)>& damage) {
    copy_store(folder_.file("intact"), folder_.file("damaged"));
    damage(LogFile(folder_.file("damaged")));
    const auto opened = Store::open(options_of("damaged"));
    if (!opened) return 0;  // a program goes on without
    EXPECT_TRUE(engine_->cache->use(*opened).ok());
    const std::uint32_t restored = right_turn(*engine_, 0, prompt_).prefilled.restored.tokens;
    EXPECT_EQ(right_turn(*engine_, 0, prompt_).prefilled.restored.tokens, engine_->longest(kSaved))
        << "it was saved again";
    EXPECT_TRUE(engine_->cache->use(nullptr).ok());
    EXPECT_TRUE((*opened)->close().ok());
    return restored;
  }
  bool is_snapshot(const DiskRecord& record) const {
    return engine_->cache->sequence_kind() != SequenceKind::kAttention &&
           record.payload_bytes == engine_->cache->snapshot_bytes();
  }
  // Of a page: its first token; of a snapshot: that of the last page before it.
  std::uint32_t token_of(const DiskRecord& record) const {
    const auto same = [&](const tiercel_key& key) {
      return std::equal(key.bytes, key.bytes + 16, record.key.bytes);
    };
    const auto found = std::find_if(pages_.begin(), pages_.end(), same);
    return found == pages_.end() ? kSaved : static_cast<std::uint32_t>(found - pages_.begin()) * kPageTokens;
  }
  // What may be restored at most when this record is lost.
  std::uint32_t most_without(const DiskRecord& record) const {
    if (GetParam().whole) return engine_->longest(kSaved);  // one of them is that length's; see below
    if (!is_snapshot(record)) return token_of(record) / kTile * kTile;
    const bool longest = token_of(record) + kPageTokens == engine_->longest(kSaved);
    return engine_->longest(kSaved) - (longest ? kTile : 0);
  }

  // Of pages alone it is known what must be restored, not only what may be.
  void expect_lost(const DiskRecord& record, std::uint32_t restored) const {
    const std::uint32_t most = std::min(most_without(record), engine_->longest(kSaved));
    EXPECT_LE(restored, most);
    if (engine_->cache->sequence_kind() == SequenceKind::kAttention) {
      EXPECT_EQ(restored, most);
    }
  }

  Folder folder_;
  std::unique_ptr<Engine> engine_;
  Text prompt_;
  std::unique_ptr<LogFile> log_;
  std::vector<DiskRecord> records_;
  std::vector<tiercel_key> pages_;
};

TEST_P(LlamaDamage, WithoutAnyTheLongestLengthIsRestoredFromTheDisk) {
  EXPECT_EQ(restored_after([](const LogFile&) {}), engine_->longest(kSaved));
}

TEST_P(LlamaDamage, ABitOfARecord) {
  for (std::size_t i = 0; i<records_.size(); i += records_.size()> 8 ? 5 : 1) {
    const DiskRecord& record = records_[i];
    const std::uint64_t places[] = {record.at + 3, record.at + 100, record.at + record.header_bytes,
                                    record.at + record.header_bytes + record.payload_bytes - 1};
    const std::uint64_t place = places[i % std::size(places)];
    SCOPED_TRACE("record " + std::to_string(i) + " of class " + std::to_string(record.class_id) + ", byte " +
                 std::to_string(place - record.at));
    const std::uint32_t restored =
        restored_after([&](const LogFile& log) { log.flip(place, static_cast<unsigned>(i % 8)); });
    expect_lost(record, restored);
  }
}

TEST_P(LlamaDamage, EachPlaceOfOneRecord) {
  const DiskRecord& record = records_[records_.size() / 2];
  const std::uint64_t bytes = record.header_bytes + record.payload_bytes;
  for (const std::uint64_t place :
       {std::uint64_t{0}, std::uint64_t{12}, std::uint64_t{20}, std::uint64_t{50}, std::uint64_t{85},
        std::uint64_t{97}, std::uint64_t{104}, std::uint64_t{112}, record.header_bytes - 1,
        record.header_bytes + bytes / 3, bytes - 1}) {
    SCOPED_TRACE("byte " + std::to_string(place));
    EXPECT_LE(restored_after([&](const LogFile& log) { log.flip(record.at + place, 6); }),
              std::max(most_without(record), engine_->longest(kSaved) - kTile));
  }
}

TEST_P(LlamaDamage, AWholeRecordIsGone) {
  for (const std::size_t i : {std::size_t{0}, records_.size() / 2, records_.size() - 1}) {
    SCOPED_TRACE("record " + std::to_string(i));
    const DiskRecord& record = records_[i];
    const std::uint32_t restored = restored_after(
        [&](const LogFile& log) { log.overwrite(record.at, record.header_bytes + record.payload_bytes); });
    expect_lost(record, restored);
  }
}

class LlamaSnapshotDamage : public LlamaDamage {};

TEST_P(LlamaSnapshotDamage, EverySnapshotIsGoneAndNoPageIs) {
  ASSERT_EQ(engine_->cache->sequence_kind(), SequenceKind::kAttentionAndTail);
  EXPECT_EQ(restored_after([&](const LogFile& log) {
              for (const DiskRecord& record : records_)
                if (is_snapshot(record)) log.flip(record.at + record.header_bytes + 9, 0);
            }),
            0U)
      << "the pages alone are no hit";
}

TEST_P(LlamaDamage, TheFileIsCut) {
  const std::uint64_t used = log_->used();
  for (const std::uint64_t size : {std::uint64_t{0}, std::uint64_t{4096}, used / 4, used / 2 / 4096 * 4096,
                                   used - 5000, log_->size() - 4096}) {
    SCOPED_TRACE(std::to_string(size) + " of " + std::to_string(log_->size()) + " bytes");
    restored_after([&](const LogFile& log) { log.cut(size); });
  }
}

TEST_P(LlamaDamage, BitsAnywhere) {
  constexpr unsigned kSeed = 3;
  SCOPED_TRACE("seed " + std::to_string(kSeed));
  std::mt19937_64 random(kSeed);
  const std::uint64_t used = log_->used();
  for (int round = 0; round < 8; ++round) {
    SCOPED_TRACE("round " + std::to_string(round));
    restored_after([&](const LogFile& log) {
      for (int i = 0; i < 20; ++i) log.flip(random() % used, static_cast<unsigned>(random() % 8));
    });
  }
}

TEST_P(LlamaDamage, BothSuperblocks) {
  EXPECT_EQ(restored_after([](const LogFile& log) { log.overwrite(0, 8192); }), 0U);
}

INSTANTIATE_TEST_SUITE_P(Each, LlamaDamage, testing::ValuesIn(kKinds), name_of);
INSTANTIATE_TEST_SUITE_P(Each, LlamaSnapshotDamage,
                         testing::Values(Kind{"llama_swa", false}, Kind{"lfm2", false}), name_of);

// ---- missing in the store that is in use ----

class LlamaMissing : public testing::TestWithParam<const char*> {
 protected:
};

TEST_P(LlamaMissing, APageRemovedInTheMiddleEndsThePrefixThere) {
  const Folder folder;
  const auto store = open_store(folder.store());
  Engine engine = attach_tiny(GetParam(), {}, Mode::kExact);
  ASSERT_TRUE(engine.cache->use(store).ok());
  const Text prompt = text_of(engine.model(), 1, kSaved);
  for (const std::uint32_t page : {27U, 17U, 5U, 0U}) {
    SCOPED_TRACE("page " + std::to_string(page));
    right_turn(engine, 0, Text(prompt.begin(), prompt.begin() + 200));
    right_turn(engine, 0, prompt);
    Pages pages = pages_of(engine, *store, prompt);
    ASSERT_TRUE(pages.space.remove({&pages.keys[page], 1}).ok());
    const Turn done = right_turn(engine, 0, prompt);
    EXPECT_LE(done.prefilled.restored.tokens, page * kPageTokens);
    if (engine.cache->sequence_kind() == SequenceKind::kAttention) {
      EXPECT_EQ(done.prefilled.restored.tokens,
                std::min(page * kPageTokens / kTile * kTile, engine.longest(kSaved)));
    }
  }
}

// Room for few prompts in memory, and hardly more on the disk: pages and snapshots go in the middle of
// prompts.
TEST_P(LlamaMissing, ManyPromptsInLittleRoomAreRightWhateverWasEvicted) {
  const Folder folder;
  StoreOptions options = store_options(folder.store());
  options.host_bytes = 12 * kMiB;
  options.cache_bytes = 4 * kMiB;
  const auto store = open_store(options);
  ASSERT_NE(store, nullptr);
  Engine engine = attach_tiny(GetParam(), {}, Mode::kExact);
  ASSERT_TRUE(engine.cache->use(store).ok());
  constexpr std::uint64_t kPrompts = 30;
  std::uint64_t restored[2] = {0, 0};
  for (const std::uint64_t round : {0U, 1U}) {
    for (std::uint64_t i = 0; i < kPrompts; ++i) {
      SCOPED_TRACE("prompt " + std::to_string(i) + " of round " + std::to_string(round));
      // Three beginnings; the order of the second round is another one.
      const std::uint64_t number = round == 0 ? i : (i * 7) % kPrompts;
      const Text prompt = branch_of(engine.model(), 50 + number % 3, 192, 200 + number, 600);
      const Turn done = turn(engine, 0, prompt);
      restored[round] += done.prefilled.restored.tokens;
      if (done.prefilled.restored.tokens == 0) continue;
      EXPECT_TRUE(same_bits(engine.plain().answer(prompt), done.answer)) << done.prefilled.restored.tokens;
    }
  }
  EXPECT_GT(restored[1], 0U);
  EXPECT_LT(restored[1], kPrompts * engine.longest(600)) << "everything fitted: this tests nothing";
}

INSTANTIATE_TEST_SUITE_P(Each, LlamaMissing, testing::Values("llama", "llama_swa", "lfm2", "granite_hybrid"),
                         [](const auto& each) { return std::string(each.param); });

}  // namespace
}  // namespace tiercel::llamacpp
