// A cache that survives its process: a node over a file. The first run stores a prompt, the next one finds it
// there, brings it up, loads it and compares every byte. `cache_on_disk FILE` keeps the file, so that the
// second start is another process; without FILE both runs are made here, on a file that is removed.
//
// Also how a server ends in good order on SIGTERM: the library installs no signal handler. The signal is
// blocked before any thread is started, one ordinary thread waits for it, and closes the node.
#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <numeric>
#include <string>
#include <vector>

#include <tiercel/tiercel.hpp>
#include <unistd.h>

namespace {

using tiercel::sized;

constexpr std::uint64_t kPages = 4, kPageTokens = 16, kSecond = 1'000'000'000;
constexpr const char* kModel = R"({
  "tiercel_spec": 1, "model_type": "example", "page_tokens": 16, "topology": {"tp": 1},
  "groups": [{"kind": "full", "layers": [[0, 3]], "components": [{"name": "k", "shape": [8, 64], "dtype": "bf16"},
                                                                 {"name": "v", "shape": [8, 64], "dtype": "bf16"}]}]})";

void must(const tiercel::Status& status) {
  if (status.ok()) return;
  std::fprintf(stderr, "%s\n", status.to_string().c_str());
  std::exit(1);  // NOLINT(concurrency-mt-unsafe): only this thread ever ends the program
}
template <typename T>
T must(tiercel::Result<T> result) {
  must(result.status());
  return *std::move(result);
}

using Bytes = std::vector<unsigned char>;

// What the engine computes for the prompt: the same in every run.
Bytes computed(std::size_t bytes) {
  Bytes out(bytes);
  for (std::size_t i = 0; i < out.size(); ++i) out[i] = static_cast<unsigned char>(i * 31 + i / 256);
  return out;
}

tiercel::Node open_node(const std::string& path) {
  auto disk = sized<tiercel_disk_options>();
  disk.path = path.c_str();
  disk.bytes = 64 << 20;  // all of it is claimed now, and never exceeded
  disk.prefetch_threshold_tokens = 1;
  auto options = sized<tiercel_node_options>();
  options.host_bytes = 32 << 20;
  options.disk = &disk;
  return must(tiercel::Node::open(options));
}

// A server would serve meanwhile, and one thread of it would wait: sigwait(&ending, &signal). This program
// ends itself.
void end_by_signal(tiercel::Node& node) {
  sigset_t ending;
  sigemptyset(&ending);
  sigaddset(&ending, SIGTERM);
  must(tiercel::Status{::kill(::getpid(), SIGTERM) == 0 ? TIERCEL_OK : TIERCEL_INTERNAL, ""});
  int signal = 0;
  sigwait(&ending, &signal);
  const tiercel_write_down report = must(node.write_down(10 * kSecond));  // what the disk had not got yet
  std::printf("SIGTERM: %d more records written down, %d left\n", static_cast<int>(report.class_sets),
              static_cast<int>(report.left_class_sets));
  must(node.close());  // would have written them down by itself
}

// One process's life. Returns: pages that came from the disk.
std::uint64_t run(const std::string& path) {
  tiercel::Node node = open_node(path);
  tiercel::Session session = must(node.open_session());
  tiercel::Form form = must(node.open_form(must(tiercel::Spec::from_json(kModel)), tiercel::one_rank()));
  const std::uint64_t record = must(form.class_info(0)).record_bytes;
  const Bytes right = computed(record * kPages);
  Bytes memory(right.size());
  tiercel_memory_run whole{};
  whole.base = memory.data();
  whole.slot_stride = record;
  whole.component = whole.layer = TIERCEL_WHOLE;
  auto slots = sized<tiercel_memory_options>();
  slots.slots = kPages;
  must(form.register_memory({&whole, 1}, slots));
  auto identity = sized<tiercel_identity>();
  identity.weights = "revision-1";
  identity.dtype = "bf16";
  tiercel::Namespace ns = must(session.open_namespace(form, identity));

  std::vector<std::uint32_t> prompt(kPages * kPageTokens);
  std::iota(prompt.begin(), prompt.end(), 1000U);
  tiercel_key_chain chain = must(ns.start_chain());
  const std::vector<tiercel_key> keys = must(ns.keys_from_tokens(chain, prompt));

  auto wait_for_disk = sized<tiercel_match_options>();
  wait_for_disk.may_promote = 1;
  tiercel::Ticket ticket = must(ns.match(keys, TIERCEL_NO_LIMIT, wait_for_disk));
  must(ticket.wait(10 * kSecond));
  const tiercel_ticket_counts found = must(ticket.summary());
  if (found.length != 0) {
    std::vector<std::uint64_t> all(found.length);
    std::iota(all.begin(), all.end(), 0U);
    const tiercel_load_target target{all.data(), nullptr, all.size(), 0, 0, 0};
    const tiercel::Operation load = must(ticket.load(found.length, {&target, 1}));
    must(load.wait(0, 10 * kSecond));
    const bool equal = std::equal(
        memory.begin(), memory.begin() + static_cast<std::ptrdiff_t>(found.length * record), right.begin());
    std::printf("%d pages found, %d of them on the disk: %s\n", static_cast<int>(found.length),
                static_cast<int>(found.disk_pages), equal ? "every byte equal" : "BYTES DIFFER");
    if (!equal) std::exit(1);  // NOLINT(concurrency-mt-unsafe)
  } else {
    std::printf("nothing found; the prompt is computed and stored\n");
    memory = right;
    whole.base = memory.data();
    must(form.register_memory({&whole, 1}, slots));
    std::vector<tiercel_store_item> items(kPages);
    for (std::uint64_t page = 0; page < kPages; ++page) {
      items[page].key = keys[page];
      if (page > 0) items[page].parent = keys[page - 1];
      items[page].length = page + 1;
      items[page].slot = page;
    }
    auto store = sized<tiercel_store_options>();
    store.tell_lower = 1;  // as we want to hear when it would survive even a power loss
    const tiercel::Stored stored = must(ns.store(items, store));
    must(stored.operation.wait(TIERCEL_COMPLETION_DURABLE, 10 * kSecond));
  }
  end_by_signal(node);
  return found.disk_pages;
}

}  // namespace

int main(int argc, char** argv) {
  sigset_t ending;
  sigemptyset(&ending);
  sigaddset(&ending, SIGTERM);
  pthread_sigmask(SIG_BLOCK, &ending, nullptr);  // before any thread is started: they inherit it
  if (argc > 1) {
    run(argv[1]);
    return 0;
  }
  const std::string path =
      (std::filesystem::temp_directory_path() / ("cache-on-disk." + std::to_string(::getpid()))).string();
  run(path);
  const bool survived = run(path) == kPages;
  std::filesystem::remove(path);
  return survived ? 0 : 1;
}
