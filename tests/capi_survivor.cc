// A cache over a file for capi_kills.py: `write` stores conversations until it is killed and says what the
// library called durable or removed; `audit` is the next process, which must find all of it, byte for byte.
//
//   capi_survivor write FILE SEED       prints "durable N PAGES", "removing N", "removed N", one a line
//   capi_survivor audit FILE < LINES    the lines of all writers before; prints what is wrong, exit status 1
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <numeric>
#include <string>
#include <vector>

#include <tiercel/tiercel.hpp>

namespace {

using tiercel::sized;

constexpr std::uint64_t kPageTokens = 16, kPagesMax = 6, kSecond = 1'000'000'000;
constexpr const char* kModel = R"({
  "tiercel_spec": 1, "model_type": "survivor", "page_tokens": 16, "topology": {"tp": 1},
  "groups": [{"kind": "full", "layers": [0, 2], "components": [{"name": "kv", "shape": [32], "dtype": "bf16"}]},
             {"kind": "state", "layers": [1], "components": [{"name": "s", "shape": [512], "dtype": "f32"}]}]})";

[[noreturn]] void die(const std::string& why) {
  std::fprintf(stderr, "capi_survivor: %s\n", why.c_str());
  std::exit(2);  // NOLINT(concurrency-mt-unsafe): only this thread ends the program
}
void must(const tiercel::Status& status) {
  if (!status.ok()) die(status.to_string());
}
template <typename T>
T must(tiercel::Result<T> result) {
  must(result.status());
  return *std::move(result);
}

class Cache {
 public:
  explicit Cache(const char* path) {
    auto disk = sized<tiercel_disk_options>();
    disk.path = path;
    disk.bytes = 256 << 20;
    disk.region_bytes = 1 << 20;
    disk.index_entries = 100'000;
    disk.admission = TIERCEL_ADMIT_ALL;
    disk.prefetch_threshold_tokens = 1;
    auto options = sized<tiercel_node_options>();
    options.host_bytes = 32 << 20;
    options.load_back_threshold_tokens = 1;
    options.disk = &disk;
    node = must(tiercel::Node::open(options));
    session = must(node.open_session());
    form = must(node.open_form(must(tiercel::Spec::from_json(kModel)), tiercel::one_rank()));
    for (std::uint32_t cls = 0; cls < 2; ++cls) {
      const std::uint64_t record = must(form.class_info(cls)).record_bytes;
      memory[cls].resize(record * kPagesMax);
      tiercel_memory_run run{};
      run.base = memory[cls].data();
      run.slot_stride = record;
      run.component = run.layer = TIERCEL_WHOLE;
      auto slots = sized<tiercel_memory_options>();
      slots.class_id = cls;
      slots.slots = kPagesMax;
      must(form.register_memory({&run, 1}, slots));
    }
    auto identity = sized<tiercel_identity>();
    identity.weights = "revision-1";
    identity.dtype = "bf16";
    ns = must(session.open_namespace(form, identity));
  }

  std::vector<tiercel_key> keys(std::uint32_t conversation, std::uint64_t pages) const {
    std::vector<std::uint32_t> tokens(pages * kPageTokens, conversation);
    tiercel_key_chain chain = must(ns.start_chain());
    return must(ns.keys_from_tokens(chain, tokens));
  }
  static unsigned char content(std::uint32_t conversation, std::uint32_t cls, std::uint64_t at) {
    const std::uint64_t mixed = (conversation * 0x9E3779B97F4A7C15ULL) ^ (at / 7 * 31 + at) ^ (cls * 77U);
    return static_cast<unsigned char>(mixed >> (at % 23));
  }
  void fill(std::uint32_t conversation) {
    for (std::uint32_t cls = 0; cls < 2; ++cls)
      for (std::size_t i = 0; i < memory[cls].size(); ++i) memory[cls][i] = content(conversation, cls, i);
  }

  tiercel::Node node;
  tiercel::Session session;
  tiercel::Form form;
  tiercel::Namespace ns;
  std::vector<unsigned char> memory[2];
};

void say(const char* word, std::uint32_t conversation, std::uint64_t pages) {
  std::printf("%s %u %u\n", word, conversation, static_cast<unsigned>(pages));
  std::fflush(stdout);
}

int write(const char* path, std::uint32_t seed) {
  Cache cache(path);
  std::uint32_t random = seed * 2654435761U + 1;
  const auto next = [&](std::uint32_t below) {
    random = random * 1664525U + 1013904223U;
    return (random >> 16) % below;
  };
  std::vector<std::uint32_t> mine;
  for (std::uint32_t number = 0;; ++number) {
    const std::uint32_t conversation = seed * 100'000 + number;
    const std::uint64_t pages = 1 + next(kPagesMax);
    const std::vector<tiercel_key> keys = cache.keys(conversation, pages);
    cache.fill(conversation);
    std::vector<tiercel_store_item> items(pages + 1);
    for (std::uint64_t page = 0; page < pages; ++page) {
      items[page].key = keys[page];
      if (page > 0) items[page].parent = keys[page - 1];
      items[page].length = page + 1;
      items[page].slot = page;
    }
    items.back() = items[pages - 1];
    items.back().class_id = 1;
    items.back().slot = 0;
    auto options = sized<tiercel_store_options>();
    options.tell_lower = 1;
    const tiercel::Stored stored = must(cache.ns.store(items, options));
    must(stored.operation.wait(TIERCEL_COMPLETION_SOURCE_FREE, 30 * kSecond));
    if (next(4) == 0) must(cache.node.flush(30 * kSecond));
    must(stored.operation.wait(TIERCEL_COMPLETION_DURABLE, 30 * kSecond));
    // The disk may refuse something: then nothing is promised.
    const std::uint64_t class_sets = must(stored.operation.result()).length;
    if (class_sets != pages + 1) {
      say("refused", conversation, pages);
      continue;
    }
    say("durable", conversation, pages);
    mine.push_back(conversation);
    if (next(8) != 0) continue;
    const std::uint32_t gone = mine[next(static_cast<std::uint32_t>(mine.size()))];
    say("removing", gone, 0);
    must(cache.ns.remove(cache.keys(gone, 1)));
    say("removed", gone, 0);
  }
}

// What is wrong with one conversation; "" when nothing is.
std::string look(Cache& cache, std::uint32_t conversation, std::uint64_t pages, bool removed,
                 bool may_be_either) {
  const std::vector<tiercel_key> keys = cache.keys(conversation, pages == 0 ? kPagesMax : pages);
  auto ask = sized<tiercel_match_options>();
  ask.may_promote = 1;
  tiercel::Ticket ticket = must(cache.ns.match(keys, TIERCEL_NO_LIMIT, ask));
  must(ticket.wait(30 * kSecond));
  const std::uint64_t length = must(ticket.summary()).length;
  if (removed && length != 0) return "was removed and came back with " + std::to_string(length) + " pages";
  if (!removed && !may_be_either && length != pages)
    return "was durable with " + std::to_string(pages) + " pages, found are " + std::to_string(length);
  if (may_be_either && length != 0 && length != pages)
    return "was about to be removed with " + std::to_string(pages) + " pages, found are " +
           std::to_string(length);
  if (length == 0) return "";
  for (std::vector<unsigned char>& bytes : cache.memory) std::memset(bytes.data(), 0xEE, bytes.size());
  std::vector<std::uint64_t> slots(length);
  std::iota(slots.begin(), slots.end(), 0U);
  const std::uint64_t snapshot = 0;
  const tiercel_load_target targets[] = {{slots.data(), nullptr, slots.size(), 0, 0, 0},
                                         {&snapshot, nullptr, 1, 1, 0, 0}};
  const tiercel::Operation load = must(ticket.load(length, targets));
  must(load.wait(0, 30 * kSecond));
  if (must(load.result()).length != length) return "was found and not loaded";
  for (std::uint32_t cls = 0; cls < 2; ++cls) {
    const std::size_t all = cache.memory[cls].size() / kPagesMax * (cls == 0 ? length : 1);
    for (std::size_t i = 0; i < all; ++i)
      if (cache.memory[cls][i] != Cache::content(conversation, cls, i))
        return "class " + std::to_string(cls) + " byte " + std::to_string(i) + " IS WRONG";
  }
  return "";
}

int audit(const char* path) {
  struct Promise {
    std::uint64_t pages = 0;
    bool removing = false, removed = false;
  };
  std::map<std::uint32_t, Promise> promises;
  char word[16];
  unsigned conversation = 0, pages = 0;
  while (std::scanf("%15s %u %u", word, &conversation, &pages) == 3) {
    Promise& promise = promises[conversation];
    if (std::strcmp(word, "durable") == 0) promise.pages = pages;
    if (std::strcmp(word, "removing") == 0) promise.removing = true;
    if (std::strcmp(word, "removed") == 0) promise.removed = true;
  }
  Cache cache(path);
  int wrong = 0;
  for (const auto& [number, promise] : promises) {
    const std::string what = look(cache, number, promise.pages, promise.removed, promise.removing);
    if (what.empty()) continue;
    ++wrong;
    std::printf("conversation %u %s\n", number, what.c_str());
  }
  const tiercel_disk_stats stats = must(cache.node.disk_stats());
  if (stats.reading_bytes + stats.prefetch_bytes != 0) {
    ++wrong;
    std::printf("%llu bytes are still being read\n", static_cast<unsigned long long>(stats.reading_bytes));
  }
  if (must(cache.node.stats()).damaged_records != 0) {
    ++wrong;
    std::printf("records were damaged\n");
  }
  std::printf("%zu conversations looked at, %d wrong\n", promises.size(), wrong);
  must(cache.node.close());
  return wrong == 0 ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc == 4 && std::strcmp(argv[1], "write") == 0)
    return write(argv[2], static_cast<std::uint32_t>(std::strtoul(argv[3], nullptr, 10)));
  if (argc == 3 && std::strcmp(argv[1], "audit") == 0) return audit(argv[2]);
  die("usage: write FILE SEED | audit FILE");
}
