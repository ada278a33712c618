// One machine of a cluster: a node over a remote store, which does what it is told line by line. cluster.py
// runs two of them, and stops and kills what they depend on.
//
//   cluster_node URL [DIRECT_BYTES]      records of so many bytes move without a copy
//   > store PROMPT PAGES                 as if an engine had computed this prompt
//   > load PROMPT PAGES [DEADLINE_MS]    finds it, wherever it is, loads it and compares every byte
//   > status                             of the remote store, and what is under way
//
// Every command is answered by one line of NAME=VALUE. The model is a hybrid one: a page has keys and values,
// and the prompt's end a snapshot of a recurrent state; both have to come, or nothing does.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <numeric>
#include <string>
#include <vector>

#include <tiercel/tiercel.hpp>

namespace {

using tiercel::sized;

constexpr std::uint64_t kPagesMax = 64, kPageTokens = 16, kSecond = 1'000'000'000, kMillisecond = 1'000'000;
constexpr const char* kModel = R"({
  "tiercel_spec": 1, "model_type": "cluster-example", "page_tokens": 16, "topology": {"tp": 1},
  "groups": [{"kind": "full", "layers": [3], "components": [{"name": "k", "shape": [4, 64], "dtype": "bf16"},
                                                            {"name": "v", "shape": [4, 64], "dtype": "bf16"}]},
             {"kind": "state", "layers": [[0, 2]], "components": [{"name": "s", "shape": [32, 64], "dtype": "f32"}]}]})";

void must(const tiercel::Status& status) {
  if (status.ok()) return;
  std::fprintf(stderr, "cluster_node: %s\n", status.to_string().c_str());
  std::exit(1);  // NOLINT(concurrency-mt-unsafe): only this thread ever ends the program
}
template <typename T>
T must(tiercel::Result<T> result) {
  must(result.status());
  return *std::move(result);
}

tiercel::Node open_node(const std::string& url, std::uint64_t direct_bytes) {
  auto remote = sized<tiercel_remote_options>();
  remote.url = url.c_str();
  remote.wait_ready_ms = 20'000;  // a server would not wait; here the first command is to find it ready
  auto options = sized<tiercel_node_options>();
  if (direct_bytes != 0) {
    remote.direct_bytes = direct_bytes;
    options.memory_kind = TIERCEL_MEMORY_SHARED;  // which the connector can be given
  }
  options.host_bytes = 64 << 20;
  options.client_share = 1;
  options.remote = &remote;
  return must(tiercel::Node::open(options));
}

class Machine {
 public:
  Machine(const std::string& url, std::uint64_t direct_bytes)
      : node_(open_node(url, direct_bytes)),
        session_(must(node_.open_session())),
        form_(must(node_.open_form(must(tiercel::Spec::from_json(kModel)), tiercel::one_rank()))) {
    for (std::uint32_t cls = 0; cls < kClasses; ++cls) {
      record_[cls] = must(form_.class_info(cls)).record_bytes;
      memory_[cls].resize(record_[cls] * (cls == kState ? 1 : kPagesMax));
      tiercel_memory_run whole{};
      whole.base = memory_[cls].data();
      whole.slot_stride = record_[cls];
      whole.component = whole.layer = TIERCEL_WHOLE;
      auto slots = sized<tiercel_memory_options>();
      slots.class_id = cls;
      slots.slots = cls == kState ? 1 : kPagesMax;
      must(form_.register_memory({&whole, 1}, slots));
    }
    auto identity = sized<tiercel_identity>();
    identity.weights = "revision-1";
    identity.dtype = "bf16";
    space_ = must(session_.open_namespace(form_, identity));
  }

  void store(std::uint64_t prompt, std::uint64_t pages) {
    const std::vector<tiercel_key> keys = keys_of(prompt, pages);
    std::vector<tiercel_store_item> items;
    for (std::uint64_t page = 0; page < pages; ++page) {
      fill(kPage, page, prompt, page);
      items.push_back(item(keys, page, kPage));
    }
    fill(kState, 0, prompt, pages - 1);
    items.push_back(item(keys, pages - 1, kState));
    const tiercel::Stored stored = must(space_.store(items));
    must(stored.operation.wait(0, 10 * kSecond));
    std::printf("computed=%d\n", static_cast<int>(pages));  // what the store has taken, `status` says
  }

  void load(std::uint64_t prompt, std::uint64_t pages, std::uint64_t deadline_ms) {
    using Watch = std::chrono::steady_clock;
    const std::vector<tiercel_key> keys = keys_of(prompt, pages);
    auto options = sized<tiercel_match_options>();
    options.may_promote = 1;
    options.deadline_ns = deadline_ms * kMillisecond;
    const auto begun = Watch::now();
    tiercel::Ticket ticket = must(space_.match(keys, TIERCEL_NO_LIMIT, options));
    must(ticket.wait(600 * kSecond));
    const auto took = std::chrono::duration_cast<std::chrono::milliseconds>(Watch::now() - begun).count();
    const tiercel_ticket_counts found = must(ticket.summary());
    std::string missed;
    for (const tiercel_miss& miss : must(ticket.reasons()))
      missed += (missed.empty() ? "" : ",") + std::string(tiercel_reason_name(miss.reason));
    const std::uint64_t wrong = found.length == 0 ? 0 : load_and_compare(ticket, prompt, found.length);
    std::printf("pages=%d from_store=%d wrong=%d ms=%d missed=%s\n", static_cast<int>(found.length),
                static_cast<int>(found.remote_pages), static_cast<int>(wrong), static_cast<int>(took),
                missed.empty() ? "nothing" : missed.c_str());
  }

  void status() {
    auto remote = sized<tiercel_remote_stats>();
    tiercel_error error{};
    must({tiercel_remote_stats_read(node_.get(), &remote, &error), error.message});
    const tiercel_stats stats = must(node_.stats());
    const auto number = [](std::uint64_t value) { return static_cast<unsigned long long>(value); };
    std::printf(
        "ready=%u down=%u pid=%u starts=%llu kills=%llu exchange=%llu unquiet=%llu moving=%llu batches=%llu "
        "leased=%llu "
        "in_flight=%llu stored=%llu direct=%llu why=%s\n",
        remote.ready, remote.down, remote.pid, number(remote.starts), number(remote.kills),
        number(remote.exchange_used_bytes), number(remote.unquiet_bytes),
        number(remote.queued_bytes + remote.reading_bytes + remote.writing_bytes),
        number(remote.batches_in_flight), number(stats.leased_bytes), number(stats.in_flight_bytes),
        number(remote.writes), number(remote.direct_bytes), remote.why_not[0] == '\0' ? "-" : remote.why_not);
  }

  void close() { must(node_.close()); }

 private:
  static constexpr std::uint32_t kPage = 0, kState = 1, kClasses = 2;

  std::vector<tiercel_key> keys_of(std::uint64_t prompt, std::uint64_t pages) {
    std::vector<std::uint32_t> tokens(pages * kPageTokens);
    std::iota(tokens.begin(), tokens.end(), static_cast<std::uint32_t>(prompt * kPagesMax * kPageTokens));
    tiercel_key_chain chain = must(space_.start_chain());
    return must(space_.keys_from_tokens(chain, tokens));
  }
  static tiercel_store_item item(const std::vector<tiercel_key>& keys, std::uint64_t page,
                                 std::uint32_t cls) {
    tiercel_store_item item{};
    item.key = keys[page];
    if (page > 0) item.parent = keys[page - 1];
    item.length = page + 1;
    item.slot = cls == kState ? 0 : page;
    item.class_id = cls;
    return item;
  }
  // What an engine would compute: bytes that follow from prompt, page and class.
  static unsigned char byte(std::uint32_t cls, std::uint64_t prompt, std::uint64_t page, std::uint64_t at) {
    return static_cast<unsigned char>((prompt * 131 + page * 31 + cls * 17ULL + at) * 2654435761U >> 13U);
  }
  void fill(std::uint32_t cls, std::uint64_t slot, std::uint64_t prompt, std::uint64_t page) {
    for (std::uint64_t at = 0; at < record_[cls]; ++at)
      memory_[cls][slot * record_[cls] + at] = byte(cls, prompt, page, at);
  }
  std::uint64_t differing(std::uint32_t cls, std::uint64_t slot, std::uint64_t prompt,
                          std::uint64_t page) const {
    std::uint64_t count = 0;
    for (std::uint64_t at = 0; at < record_[cls]; ++at)
      count += memory_[cls][slot * record_[cls] + at] != byte(cls, prompt, page, at) ? 1 : 0;
    return count;
  }
  // Returns: bytes that are not those that were stored.
  std::uint64_t load_and_compare(tiercel::Ticket& ticket, std::uint64_t prompt, std::uint64_t length) {
    for (std::vector<unsigned char>& memory : memory_) std::fill(memory.begin(), memory.end(), 0xEE);
    std::vector<std::uint64_t> slots(length);
    std::iota(slots.begin(), slots.end(), 0U);
    const std::uint64_t first = 0;
    const tiercel_load_target targets[] = {{slots.data(), nullptr, slots.size(), kPage, 0, 0},
                                           {&first, nullptr, 1, kState, 0, 0}};
    const tiercel::Operation load = must(ticket.load(length, targets));
    must(load.wait(0, 10 * kSecond));
    std::uint64_t wrong = differing(kState, 0, prompt, length - 1);
    for (std::uint64_t page = 0; page < length; ++page) wrong += differing(kPage, page, prompt, page);
    return wrong;
  }

  tiercel::Node node_;
  tiercel::Session session_;
  tiercel::Form form_;
  tiercel::Namespace space_;
  std::uint64_t record_[kClasses] = {};
  std::vector<unsigned char> memory_[kClasses];
};

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2 && argc != 3) {
    std::fprintf(
        stderr,
        "cluster_node URL [DIRECT_BYTES]; then lines: store PROMPT PAGES, load PROMPT PAGES [MS], status\n");
    return 2;
  }
  Machine machine(argv[1], argc == 3 ? std::strtoull(argv[2], nullptr, 10) : 0);
  std::printf("open=1\n");
  std::fflush(stdout);
  for (char line[256]; std::fgets(line, sizeof line, stdin) != nullptr;) {
    char verb[16] = "";
    unsigned long long prompt = 0, pages = 1, deadline_ms = 2000;
    std::sscanf(line, "%15s %llu %llu %llu", verb, &prompt, &pages, &deadline_ms);
    pages = std::clamp(pages, 1ULL, static_cast<unsigned long long>(kPagesMax));
    if (std::strcmp(verb, "store") == 0)
      machine.store(prompt, pages);
    else if (std::strcmp(verb, "load") == 0)
      machine.load(prompt, pages, deadline_ms);
    else if (std::strcmp(verb, "status") == 0)
      machine.status();
    else
      std::printf("error=unknown_command\n");
    std::fflush(stdout);
  }
  machine.close();
  return 0;
}
