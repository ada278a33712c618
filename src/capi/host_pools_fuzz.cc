// Sequences of calls on host pools, their slots, sequences and copies with whatever numbers the input holds:
// no call crashes, what a plan says lies inside its ranges, slots are given once, and a copy that ends well
// has given an event for each of its layers. Pointers are real, lists as long as they say, and capacities
// bounded; everything else is the fuzzer's.
#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include <tiercel/host_pools.h>

#include "base/check.h"
#include "capi/test_fuzz_input.h"

namespace {

using Input = tiercel::capi::FuzzInput;
using tiercel::capi::sized;

constexpr char kSpec[] =
    R"({"tiercel_spec": 1, "model_type": "t", "page_tokens": 4, "topology": {"tp": 1}, "groups": [
  {"kind": "full", "layers": [0, 2], "components": [{"name": "k", "shape": [2, 8], "dtype": "bf16"},
                                                    {"name": "v", "shape": [2, 8], "dtype": "bf16"}]},
  {"kind": "window", "window_tokens": 8, "layers": [1], "components": [{"name": "k", "shape": [2, 4], "dtype": "bf16"}]},
  {"kind": "state", "layers": [3], "components": [{"name": "s", "shape": [6], "dtype": "f32"}]}]})";
constexpr std::uint64_t kCallsMax = 48, kOwnBytes = 1 << 16, kPagesMax = 40;
constexpr std::array kLayouts = {"layer_first",
                                 "page_first",
                                 "page_first_direct",
                                 "page_head",
                                 "page_first_kv_split",
                                 "record",
                                 "vllm_nhd",
                                 "vllm_hnd",
                                 "vllm_block_nhd",
                                 "llama",
                                 "llama_v_transposed",
                                 "page_first;align=4096",
                                 "head,dim,token,page,layer,component",
                                 "no"};
constexpr std::array kKinds = {"anonymous", "shared", "external", "hugepage", "pinned", "mooncake"};
constexpr std::array kNames = {"full", "window8", "state", "anchor", "side"};

void must(tiercel_status status) { TIERCEL_CHECK(status == TIERCEL_OK); }

// A group, and the slots that were taken of each of its pools.
struct Group {
  explicit Group(tiercel_host_pools* handle) : pools(handle) {
    auto info = sized<tiercel_host_pools_info>();
    must(tiercel_host_pools_describe(pools, &info, nullptr));
    taken.resize(info.pools);
  }
  tiercel_host_pools* pools;
  std::vector<std::set<std::uint64_t>> taken;
};

class Caller {
 public:
  explicit Caller(Input& input) : input_(input), memory_(kOwnBytes) {
    must(tiercel_spec_from_json(kSpec, sizeof kSpec - 1, 0, &spec_, nullptr));
  }
  ~Caller() {
    const bool first = input_.u8() % 2 == 0;  // sequences and copies keep what they use
    if (first) release_groups();
    for (tiercel_sequence* sequence : sequences_) tiercel_sequence_release(sequence);
    for (tiercel_copy* copy : copies_) tiercel_copy_release(copy);
    if (!first) release_groups();
    tiercel_host_pools_builder_release(builder_);
    tiercel_spec_release(spec_);
  }
  Caller(const Caller&) = delete;
  Caller& operator=(const Caller&) = delete;

  void call() {
    switch (input_.u8() % 10) {
      case 0:
        return open();
      case 1:
        return create();
      case 2:
        return add();
      case 3:
        return seal();
      case 4:
        return look();
      case 5:
        return slots();
      case 6:
        return append();
      case 7:
        return entry();
      case 8:
        return start();
      default:
        return follow();
    }
  }

 private:
  template <std::size_t N>
  const char* one_of(const std::array<const char*, N>& texts) {
    return texts[input_.u8() % N];
  }
  // Anything that no machine has, or little.
  std::uint64_t bounded(std::uint64_t most) {
    const std::uint64_t number = input_.number();
    return number < (std::uint64_t{1} << 50) ? number % most : number;
  }
  Group& group() { return groups_[input_.u8() % groups_.size()]; }
  void release_groups() {
    for (const Group& each : groups_) tiercel_host_pools_release(each.pools);
  }
  void keep(tiercel_host_pools* pools) {
    constexpr std::size_t kGroupsMax = 4;
    if (groups_.size() < kGroupsMax) return groups_.emplace_back(pools), void();
    const std::size_t at = input_.u8() % kGroupsMax;
    tiercel_host_pools_release(groups_[at].pools);
    groups_[at] = Group(pools);
  }

  tiercel_host_pools_options options() {
    auto options = sized<tiercel_host_pools_options>();
    options.layout = one_of(kLayouts);
    const std::uint8_t how = input_.u8();
    options.memory = how % 4 == 0 ? one_of(kKinds) : "anonymous";
    if (how % 16 == 1) options.memory = nullptr, options.extra_config = R"({"allocator": "shm"})";
    if (how % 8 == 2) options.allocator = one_of(kKinds);
    if (how % 8 == 3) options.numa = how % 3 == 0 ? "interleave" : how % 3 == 1 ? "bind 7" : "per_shard";
    options.shard = how % 8 == 3 ? input_.number32() : 0;
    options.shards = how % 8 == 3 ? input_.number32() : 0;
    const std::uint8_t capacity = input_.u8() % 8;
    if (capacity < 5) options.pages = bounded(kPagesMax);
    if (capacity == 5 || capacity == 7) options.total_bytes = bounded(6 << 20);
    if (capacity == 6) options.device_ratio = static_cast<double>(input_.u8()) / 16 - 1;
    pages_ = {"full", bounded(kPagesMax)};
    options.device_pools = &pages_;
    options.device_pool_count = capacity == 6 ? 1 : 0;
    allocation_ = {memory_.data(), memory_.size()};
    options.allocations = &allocation_;
    options.allocation_count = options.memory == kKinds[2] ? 1 : how % 32 == 31 ? 1 : 0;
    options.full_pages_per_resume_point = input_.number();
    if (input_.u8() % 4 == 0) options.first_layer = input_.number32(), options.end_layer = input_.number32();
    options.copy_threads = input_.u8() % 4;
    options.touch_threads = 1;
    return options;
  }

  void open() {
    tiercel_host_pools* pools = nullptr;
    const auto given = options();
    if (tiercel_host_pools_open(spec_, &given, &pools, nullptr) != TIERCEL_OK) return;
    auto info = sized<tiercel_host_pools_info>();
    must(tiercel_host_pools_describe(pools, &info, nullptr));
    tiercel_host_pools* other = nullptr;
    auto changed = given;
    changed.pages += input_.u8() % 4 == 0 ? 600 : 0;
    const std::uint8_t place = input_.u8() % 32;
    if (input_.u8() % 4 == 0) info.fingerprint[place] = input_.u8();
    const auto attached =
        tiercel_host_pools_attach(spec_, &changed, info.fd, info.fingerprint, &other, nullptr);
    TIERCEL_CHECK(attached != TIERCEL_OK || info.memory_kind == TIERCEL_MEMORY_SHARED);
    keep(pools);
    if (other != nullptr) keep(other);
  }

  void create() {
    tiercel_host_pools_builder_release(builder_);
    builder_ = nullptr;
    auto given = options();
    given.device_pool_count = 0;
    static_cast<void>(tiercel_host_pools_builder_create(spec_, &given, &builder_, nullptr));
  }
  void add() {
    std::array<tiercel_buffer_place, 3> places{};
    for (tiercel_buffer_place& place : places) {
      place.source = input_.u8() % 4;
      place.pool = one_of(kNames);
      place.buffer = input_.number32() % 4;
      place.offset = input_.number();
      place.data = memory_.data() + input_.number() % (kOwnBytes + 1);
      place.size = input_.number() * 512;
    }
    auto given = sized<tiercel_host_pool_options>();
    given.group = input_.u8() % 5 == 0 ? TIERCEL_NO_GROUP : input_.number32() % 4;
    if (input_.u8() % 2 == 0) given.name = one_of(kNames);
    if (input_.u8() % 4 == 0) given.layout = one_of(kLayouts);
    if (input_.u8() % 4 == 0) given.slots_of = one_of(kNames);
    if (input_.u8() % 8 == 0) given.pages = bounded(kPagesMax);
    given.device_pages = bounded(kPagesMax);
    given.pages_per_resume_point = input_.number();
    given.buffers = places.data();
    given.buffer_count = input_.u8() % 4;
    static_cast<void>(tiercel_host_pools_builder_add(builder_, &given, nullptr, nullptr));
  }
  void seal() {
    tiercel_host_pools* pools = nullptr;
    if (tiercel_host_pools_builder_seal(builder_, &pools, nullptr) == TIERCEL_OK) keep(pools);
  }

  void look() {
    if (groups_.empty()) return;
    const Group& at = group();
    const std::uint32_t number = input_.number32();
    auto pool = sized<tiercel_host_pool_info>();
    const auto there = tiercel_host_pools_pool(at.pools, number, &pool, nullptr);
    TIERCEL_CHECK((there == TIERCEL_OK) == (number < at.taken.size()));
    tiercel_segment ranges[2];
    std::uint64_t count = 0;
    must(tiercel_host_pools_ranges(at.pools, ranges, 2, &count, nullptr));
    std::vector<tiercel_pool_segment> segments(4096);
    const std::uint64_t page = input_.number();
    if (tiercel_host_pools_segments(at.pools, number, page, segments.data(), segments.size(), &count,
                                    nullptr) == TIERCEL_OK) {
      TIERCEL_CHECK(page < pool.pages && count <= segments.size());
      std::uint64_t bytes = 0;
      for (std::uint64_t i = 0; i < count; ++i) {
        const tiercel_segment& range = ranges[segments[i].allocation];
        TIERCEL_CHECK(segments[i].offset + segments[i].size <= range.size);
        TIERCEL_CHECK(segments[i].data == static_cast<std::uint8_t*>(range.data) + segments[i].offset);
        bytes += segments[i].size;
      }
      TIERCEL_CHECK(bytes == pool.page_bytes);
    }
    std::uint32_t aligned = 0;
    static_cast<void>(tiercel_host_pools_is_aligned(at.pools, number, input_.number(), &aligned, nullptr));
    std::string text(1 << 14, ' ');
    must(tiercel_host_pools_text(at.pools, text.data(), text.size(), &count, nullptr));
  }

  void slots() {
    if (groups_.empty()) return;
    Group& at = group();
    std::array<std::uint64_t, 16> numbers{};
    tiercel_slot_list list{numbers.data(), input_.u8() % (numbers.size() + 1), input_.number32() % 5, 0};
    if (input_.u8() % 2 == 0) {
      if (tiercel_host_pools_take(at.pools, &list, 1, nullptr) != TIERCEL_OK) return;
      for (std::uint64_t i = 0; i < list.count; ++i)
        TIERCEL_CHECK(at.taken[list.pool].insert(numbers[i]).second);
      return;
    }
    for (std::uint64_t& number : numbers) number = input_.number();
    const bool given = tiercel_host_pools_give(at.pools, &list, 1, nullptr) == TIERCEL_OK;
    for (std::uint64_t i = 0; given && i < list.count; ++i)
      at.taken[list.pool].erase(numbers[i]);  // or a sequence's: the caller lied, and nothing breaks
  }

  void append() {
    if (groups_.empty()) return;
    if (sequences_.size() < 4) {
      tiercel_sequence* made = nullptr;
      if (tiercel_sequence_open(group().pools, input_.number32(), &made, nullptr) == TIERCEL_OK)
        sequences_.push_back(made);
    }
    if (sequences_.empty()) return;
    std::vector<std::uint64_t> numbers(64);
    const std::uint64_t tokens = input_.number();
    tiercel_sequence* const one = sequences_[input_.u8() % sequences_.size()];
    std::uint64_t* const to = tokens <= numbers.size() ? numbers.data() : nullptr;
    static_cast<void>(tiercel_sequence_append(one, tokens, to, nullptr));
    std::uint64_t count = 0;
    static_cast<void>(tiercel_sequence_pages(one, numbers.data(), numbers.size(), &count, nullptr));
  }
  void entry() {
    if (sequences_.empty()) return;
    std::array<tiercel_pool_segment, 64> segments{};
    std::uint64_t count = 0;
    tiercel_sequence* const one = sequences_[input_.u8() % sequences_.size()];
    if (tiercel_sequence_entry(one, input_.number32(), input_.number32(), input_.number32(), input_.number(),
                               segments.data(), segments.size(), &count, nullptr) != TIERCEL_OK)
      return;
    for (std::uint64_t i = 0; i < std::min<std::uint64_t>(count, segments.size()); ++i)
      std::fill_n(static_cast<std::uint8_t*>(segments[i].data), segments[i].size, std::uint8_t{1});
  }

  void start() {
    if (groups_.empty()) return;
    std::array<std::array<std::uint64_t, 8>, 4> lists{};
    for (auto& list : lists)
      for (std::uint64_t& granule : list) granule = input_.number();
    std::array<tiercel_copy_part, 2> parts{};
    for (std::size_t i = 0; i < parts.size(); ++i) {
      parts[i].source = lists[2 * i].data();
      parts[i].target = lists[2 * i + 1].data();
      parts[i].count = input_.u8() % 9;
      parts[i].granule_tokens = input_.u8() % 2 == 0 ? 0 : input_.number();
      parts[i].source_pool = input_.number32() % 5;
      parts[i].target_pool = input_.u8() % 4 == 0 ? input_.number32() : parts[i].source_pool;
    }
    const std::array<const tiercel_host_pools*, 2> sources = {group().pools, group().pools};
    auto options = sized<tiercel_copy_options>();
    options.sources = sources.data();
    options.source_count = input_.u8() % 8 == 0 ? 2 : 1;
    options.target = group().pools;
    options.parts = parts.data();
    options.part_count = input_.u8() % 3;
    options.whole = input_.u8() % 4 == 0 ? spec_ : nullptr;
    options.target_ranks = options.whole == nullptr ? 0 : input_.number32();
    options.target_rank = options.whole == nullptr ? 0 : input_.number32();
    options.sums = input_.u8() % 2;
    tiercel_copy* made = nullptr;
    if (tiercel_copy_start(&options, &made, nullptr) != TIERCEL_OK) return;
    copies_.push_back(made);
  }
  void follow() {
    if (copies_.empty()) return;
    const std::size_t at = input_.u8() % copies_.size();
    tiercel_copy* const copy = copies_[at];
    const std::uint8_t how = input_.u8();
    if (how % 4 == 0) must(tiercel_copy_cancel(copy, nullptr));
    static_cast<void>(tiercel_copy_wait_layer(copy, input_.number32(), input_.number(), nullptr));
    std::uint32_t values[8];
    std::uint64_t count = 0;
    static_cast<void>(
        tiercel_copy_sums(copy, input_.number() % 3, input_.number32(), values, 8, &count, nullptr));
    if (how % 4 == 1 && tiercel_copy_wait(copy, TIERCEL_FOREVER, nullptr) == TIERCEL_OK)
      for (std::uint32_t layer = 0; layer < 5; ++layer)
        must(tiercel_copy_wait_layer(copy, layer, 0, nullptr));
    must(tiercel_copy_layers(copy, values, 8, &count, nullptr));
    if (how % 4 == 2) {
      tiercel_copy_release(copy);
      copies_.erase(copies_.begin() + static_cast<std::ptrdiff_t>(at));
    }
  }

  Input& input_;
  std::vector<std::uint8_t> memory_;  // the caller's own, of external groups
  tiercel_segment allocation_{};
  tiercel_pool_pages pages_{};
  tiercel_spec* spec_ = nullptr;
  tiercel_host_pools_builder* builder_ = nullptr;
  std::vector<Group> groups_;
  std::vector<tiercel_sequence*> sequences_;
  std::vector<tiercel_copy*> copies_;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  Input input(data, size);
  Caller caller(input);
  for (std::uint64_t calls = 0; calls < kCallsMax && !input.empty(); ++calls) caller.call();
  return 0;
}
