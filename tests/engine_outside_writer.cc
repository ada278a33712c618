// Two processes: one opens a node in shared memory and reserves, the other (this program once more) maps the
// arena's file and writes pages of every class of a hybrid model straight into it, in its own layout and in
// any order, is killed at each layer, and writes when it should not.
#include <chrono>
#include <csignal>
#include <map>
#include <random>
#include <thread>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "engine_world.h"

namespace engines {
namespace {

// Full attention in three layers, a window in one, a state in two whose snapshot takes several extents; two
// ranks.
constexpr const char* kSpec = R"({"tiercel_spec": 1, "model_type": "hybrid", "page_tokens": 16,
  "topology": {"tp": 2}, "groups": [
    {"kind": "full", "layers": [0, 2, 5], "components": [{"name": "k", "shape": [2, 8], "dtype": "bf16"},
                                                         {"name": "v", "shape": [2, 4], "dtype": "bf16"}]},
    {"kind": "window", "window_tokens": 20, "layers": [1], "components": [
      {"name": "k", "shape": [2, 8], "dtype": "bf16"}, {"name": "v", "shape": [2, 8], "dtype": "bf16"}]},
    {"kind": "state", "layers": [3, 4], "components": [{"name": "conv", "shape": [24], "dtype": "f32"},
                                                       {"name": "temporal", "shape": [16, 72], "dtype": "f32"}]}]})";
constexpr std::uint32_t kLayers = 6;
constexpr std::uint32_t kShards = 2;
constexpr std::uint32_t kClasses = 3;

// The byte of record `what` at an offset of its payload.
unsigned char byte_of(std::uint64_t what, std::uint64_t offset) {
  const std::uint64_t mixed =
      (what * 0x9e3779b97f4a7c15U ^ offset * 0xbf58476d1ce4e5b9U) * 0x94d049bb133111ebU;
  return static_cast<unsigned char>(mixed >> 56);
}

// What the other process is told to write: one piece of the file.
struct Job {
  std::uint64_t offset = 0, length = 0, payload_offset = 0, what = 0;
};

constexpr int kSocket = 3;  // of the other process
constexpr const char* kWriterArgument = "--be-the-writer";

bool read_whole(int fd, void* into, std::size_t size) {
  auto* at = static_cast<unsigned char*>(into);
  while (size != 0) {
    const ssize_t got = ::read(fd, at, size);
    if (got <= 0) return false;
    at += got;
    size -= static_cast<std::size_t>(got);
  }
  return true;
}
bool write_whole(int fd, const void* from, std::size_t size) {
  const auto* at = static_cast<const unsigned char*>(from);
  while (size != 0) {
    const ssize_t put = ::send(fd, at, size, MSG_NOSIGNAL);
    if (put <= 0) return false;
    at += put;
    size -= static_cast<std::size_t>(put);
  }
  return true;
}

// ---- the other process ----

int receive_fd() {
  char byte = 0;
  iovec part{&byte, 1};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  if (::recvmsg(kSocket, &message, 0) != 1 || CMSG_FIRSTHDR(&message) == nullptr) return -1;
  int fd = -1;
  std::memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof fd);
  return fd;
}

// All that it does: 0 when it was told everything and wrote it. It has no part of the node.
int write_what_is_told() {
  const int fd = receive_fd();
  struct stat file {};
  if (fd < 0 || ::fstat(fd, &file) != 0) return 2;
  const auto size = static_cast<std::size_t>(file.st_size);
  void* const mapped = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (mapped == MAP_FAILED) return 3;
  std::uint64_t count = 0;
  while (read_whole(kSocket, &count, sizeof count)) {
    std::vector<Job> jobs(count);
    if (!read_whole(kSocket, jobs.data(), count * sizeof(Job))) return 4;
    for (const Job& job : jobs)
      for (std::uint64_t i = 0; i < job.length; ++i)
        static_cast<unsigned char*>(mapped)[job.offset + i] = byte_of(job.what, job.payload_offset + i);
    if (!write_whole(kSocket, &count, sizeof count)) return 5;
  }
  return ::munmap(mapped, size) == 0 ? 0 : 6;
}

// ---- this process ----

// The other process, from its start to its end. It waits for jobs on a socket, so it lives until it is told.
class WriterProcess {
 public:
  WriterProcess() {
    int ends[2] = {};
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
    pid_ = ::fork();
    if (pid_ == 0) {
      ::dup2(ends[1], kSocket);
      ::fcntl(kSocket, F_SETFD, 0);  // it may have been that number already
      ::execl("/proc/self/exe", "writer", kWriterArgument, nullptr);
      ::_exit(127);
    }
    ::close(ends[1]);
    socket_ = ends[0];
  }
  ~WriterProcess() {
    if (pid_ != 0) {
      EXPECT_EQ(end(), 0) << "the writer's own checks";
    }
    ::close(socket_);
  }
  WriterProcess(const WriterProcess&) = delete;
  WriterProcess& operator=(const WriterProcess&) = delete;

  std::uint32_t pid() const { return static_cast<std::uint32_t>(pid_); }
  void give(int fd) const {
    char byte = 0;
    iovec part{&byte, 1};
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = sizeof control;
    cmsghdr* const header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof fd);
    std::memcpy(CMSG_DATA(header), &fd, sizeof fd);
    ASSERT_EQ(::sendmsg(socket_, &message, MSG_NOSIGNAL), 1);
  }
  // Returns when they are written.
  void write(const std::vector<Job>& jobs) const {
    std::uint64_t count = jobs.size();
    ASSERT_TRUE(write_whole(socket_, &count, sizeof count));
    ASSERT_TRUE(write_whole(socket_, jobs.data(), jobs.size() * sizeof(Job)));
    ASSERT_TRUE(read_whole(socket_, &count, sizeof count)) << "the writer has gone";
  }
  void kill() {
    ::kill(pid_, SIGKILL);
    reap();
  }
  // Says that there is nothing more to do. Returns its exit status.
  int end() {
    ::shutdown(socket_, SHUT_WR);
    return reap();
  }

 private:
  int reap() {
    int status = 0;
    EXPECT_EQ(::waitpid(std::exchange(pid_, 0), &status, 0) > 0, true);
    return status;
  }
  pid_t pid_ = 0;
  int socket_ = -1;
};

tiercel_node_options shared_node(tiercel_threading threading) {
  auto options = sized<tiercel_node_options>();
  options.host_bytes = 16 << 20;
  options.extent_bytes = 4096;
  options.client_share = 1;
  options.load_back_threshold_tokens = 1;
  options.threading = threading;
  options.memory_kind = TIERCEL_MEMORY_SHARED;
  return options;
}

struct World {
  explicit World(const tiercel_node_options& options) : node(must(tiercel::Node::open(options))) {
    session = must(node.open_session());
    tiercel_topology topology = tiercel::one_rank();
    topology.tp_size = kShards;
    topology.tp_rank = TIERCEL_ALL_RANKS;
    form = must(node.open_form(must(tiercel::Spec::from_json(kSpec)), topology));
    auto identity = sized<tiercel_identity>();
    identity.weights = "revision";
    identity.dtype = "bf16";
    ns = must(session.open_namespace(form, identity));
    for (std::uint32_t cls = 0; cls < kClasses; ++cls)
      record_bytes.push_back(must(form.class_info(cls)).record_bytes);
  }
  tiercel_stats stats() const { return must(node.stats()); }
  std::vector<tiercel_key> keys(std::uint64_t pages, std::uint32_t seed = 1) const {
    tiercel_key_chain chain = must(ns.start_chain());
    return must(ns.keys_from_tokens(chain, std::vector<std::uint32_t>(pages * 16, seed)));
  }
  // Every class and rank of every page, and the snapshot after the last.
  static std::vector<tiercel_store_item> items(const std::vector<tiercel_key>& keys) {
    std::vector<tiercel_store_item> all;
    for (std::size_t page = 0; page < keys.size(); ++page)
      for (std::uint32_t cls = 0; cls < (page + 1 == keys.size() ? kClasses : kClasses - 1); ++cls)
        for (std::uint32_t shard = 0; shard < kShards; ++shard) {
          tiercel_store_item& item = all.emplace_back(tiercel_store_item{});
          item.key = keys[page];
          if (page != 0) item.parent = keys[page - 1];
          item.length = page + 1;
          item.class_id = cls;
          item.shard = shard;
        }
    return all;
  }
  static std::uint64_t what(const tiercel_store_item& item) {
    return item.length * 100 + std::uint64_t{item.class_id} * 10 + item.shard;
  }
  std::vector<std::uint32_t> checksums(const tiercel_store_item& item) const {
    std::map<std::uint32_t, std::uint32_t> by_layer;
    for (const tiercel_run_info& run : must(form.runs(item.class_id)))
      for (std::uint64_t i = 0; i < run.length; ++i) {
        const unsigned char byte = byte_of(what(item), run.offset + i);
        by_layer[run.layer] = tiercel_crc32c(&byte, 1, by_layer[run.layer]);
      }
    std::vector<std::uint32_t> sums;
    sums.reserve(by_layer.size());
    for (const auto& [layer, sum] : by_layer) sums.push_back(sum);
    return sums;
  }

  // Loads `pages` and the snapshot after them; what differs from what was to be written, "" when nothing
  // does.
  std::string wrong_bytes(const std::vector<tiercel_key>& keys) {
    tiercel::Ticket ticket = must(ns.match(keys, TIERCEL_NO_LIMIT));
    const std::uint64_t pages = keys.size();
    if (must(ticket.summary()).length != pages) return "not all pages can be restored";
    std::vector<std::vector<std::vector<unsigned char>>> bytes(std::size_t{kClasses} * kShards);
    std::vector<std::vector<tiercel_segment>> segments(bytes.size());
    std::vector<std::vector<tiercel_object>> objects(bytes.size());
    std::vector<std::vector<tiercel_record_memory>> records(bytes.size());
    std::vector<tiercel_load_target> targets(bytes.size(), tiercel_load_target{});
    for (std::uint32_t i = 0; i < bytes.size(); ++i) {
      const std::uint32_t cls = i / kShards;
      const std::uint64_t entries = cls == kClasses - 1 ? 1 : pages;
      bytes[i].assign(entries, std::vector<unsigned char>(record_bytes[cls], 0xee));
      for (auto& record : bytes[i]) segments[i].push_back({record.data(), record.size()});
      for (const tiercel_segment& segment : segments[i])
        objects[i].push_back({&segment, 1, TIERCEL_WHOLE, 0});
      for (const tiercel_object& object : objects[i]) records[i].push_back({&object, 1});
      targets[i].records = records[i].data();
      targets[i].count = entries;
      targets[i].class_id = cls;
      targets[i].shard = i % kShards;
    }
    const tiercel::Operation operation = must(ticket.load(pages, targets));
    must(operation.wait(0, kLong));
    if (const auto result = must(operation.result()); result.length != pages)
      return "loaded " + std::to_string(result.length) + ": " + result.message;
    for (std::uint32_t i = 0; i < bytes.size(); ++i)
      for (std::uint64_t entry = 0; entry < bytes[i].size(); ++entry) {
        tiercel_store_item item{};
        item.class_id = i / kShards;
        item.shard = i % kShards;
        item.length = bytes[i].size() == 1 ? pages : entry + 1;
        const bool window_before = item.class_id == 1 && pages > 2 && entry + 2 < pages;
        for (std::uint64_t at = 0; at < record_bytes[item.class_id] && !window_before; ++at)
          if (bytes[i][entry][at] != byte_of(what(item), at))
            return "class " + std::to_string(item.class_id) + " shard " + std::to_string(item.shard) +
                   " page " + std::to_string(entry) + " byte " + std::to_string(at);
      }
    return "";
  }

  tiercel::Node node;
  tiercel::Session session;
  tiercel::Form form;
  tiercel::Namespace ns;
  std::vector<std::uint64_t> record_bytes;  // per class
};

// Pieces of all items that lie in the layers [first, last), shuffled. The file goes to the writer.
struct Jobs {
  Jobs(const tiercel::Reservation& reservation, const std::vector<tiercel_store_item>& items,
       const char* layout) {
    for (std::size_t i = 0; i < items.size(); ++i)
      for (const tiercel_file_segment& piece : must(reservation.segments(i, layout))) {
        fd = piece.fd;
        by_layer[piece.layer].push_back(
            {piece.offset, piece.length, piece.payload_offset, World::what(items[i])});
      }
  }
  std::vector<Job> of(std::uint32_t first, std::uint32_t last) {
    std::vector<Job> jobs;
    for (std::uint32_t layer = first; layer < last; ++layer)
      jobs.insert(jobs.end(), by_layer[layer].begin(), by_layer[layer].end());
    std::shuffle(jobs.begin(), jobs.end(), random);
    return jobs;
  }
  std::map<std::uint32_t, std::vector<Job>> by_layer;
  int fd = -1;
  std::mt19937 random{7};
};

std::vector<tiercel_outcome> outcomes_of(const tiercel::Operation& operation) {
  must(operation.wait(TIERCEL_COMPLETION_SOURCE_FREE, kLong));
  return must(operation.store_outcomes());
}

enum class Sums { kNone, kCompared, kTrusted };
struct Way {
  const char* layout;
  Sums sums;
};

TEST(OutsideWriter, EveryClassInAnyLayoutAndOrderIsCommittedInPlaceAndLoadedByteByByte) {
  constexpr Way kWays[] = {{nullptr, Sums::kNone},
                           {"layer_first", Sums::kNone},
                           {"layer_first", Sums::kCompared},
                           {"page_first", Sums::kTrusted},
                           {"page_head", Sums::kCompared}};
  for (const Way& way : kWays) {
    SCOPED_TRACE(way.layout == nullptr ? "record order" : way.layout);
    World world(shared_node(TIERCEL_THREADING_CONTROL));
    WriterProcess writer;
    const auto keys = world.keys(2);
    const auto items = World::items(keys);
    tiercel::Reserved reserved = must(world.ns.reserve(items, 0, writer.pid()));
    for (const tiercel_outcome outcome : reserved.outcomes) ASSERT_EQ(outcome, TIERCEL_ITEM_ACCEPTED);
    Jobs jobs(reserved.reservation, items, way.layout);
    writer.give(jobs.fd);
    auto all = jobs.of(0, kLayers);
    for (std::size_t begin = 0; begin < all.size(); begin += 37)
      writer.write({all.begin() + static_cast<std::ptrdiff_t>(begin),
                    all.begin() + static_cast<std::ptrdiff_t>(std::min(begin + 37, all.size()))});

    std::vector<std::vector<std::uint32_t>> sums(items.size());
    std::vector<tiercel_arrival> arrivals(items.size(), tiercel_arrival{});
    for (std::size_t i = 0; i < items.size(); ++i) {
      arrivals[i].item = items.size() - 1 - i;
      if (way.sums == Sums::kNone) continue;
      sums[i] = world.checksums(items[arrivals[i].item]);
      arrivals[i].checksums = sums[i].data();
      arrivals[i].checksum_count = sums[i].size();
    }
    auto options = sized<tiercel_commit_options>();
    options.trust_checksums = way.sums == Sums::kTrusted ? 1 : 0;
    const tiercel::Operation operation = must(reserved.reservation.commit(arrivals, options));
    must(operation.wait(TIERCEL_COMPLETION_VISIBLE, kLong));
    for (const tiercel_outcome outcome : must(operation.store_outcomes()))
      EXPECT_EQ(outcome, TIERCEL_ITEM_COMMITTED) << tiercel_outcome_name(outcome);
    EXPECT_EQ(world.wrong_bytes(keys), "");
    const tiercel_stats stats = world.stats();
    EXPECT_EQ(stats.records_copied_in, 0U) << "staging copies";
    EXPECT_EQ(stats.records_moved, 0U);
    EXPECT_EQ(stats.records_written_in_place, items.size());
    EXPECT_EQ(stats.quarantined_bytes + stats.reserved_bytes, 0U);
  }
}

TEST(OutsideWriter, KilledAtAnyLayerWhatWasNotNamedIsInvisibleAndReturnsWithItsDeath) {
  for (std::uint32_t done = 0; done <= kLayers; ++done) {
    SCOPED_TRACE(done);
    World world(shared_node(TIERCEL_THREADING_CALLER));
    WriterProcess writer;
    const auto keys = world.keys(1);
    const auto items = World::items(keys);
    tiercel::Reserved reserved = must(world.ns.reserve(items, 0, writer.pid()));
    Jobs jobs(reserved.reservation, items, "layer_first");
    writer.give(jobs.fd);
    for (std::uint32_t layer = 0; layer < done; ++layer) writer.write(jobs.of(layer, layer + 1));

    std::vector<tiercel_arrival> arrivals;
    std::vector<tiercel_outcome> wanted;
    std::uint64_t held = 0;
    for (std::size_t i = 0; i < items.size(); ++i) {
      bool whole = true;
      for (const tiercel_run_info& run : must(world.form.runs(items[i].class_id))) whole &= run.layer < done;
      wanted.push_back(whole ? TIERCEL_ITEM_COMMITTED : TIERCEL_ITEM_NOT_ARRIVED);
      if (whole) arrivals.push_back({i, nullptr, 0, 0});
      if (!whole) held += world.record_bytes[items[i].class_id];
    }
    if (arrivals.empty())
      must(reserved.reservation.abort());
    else
      EXPECT_EQ(outcomes_of(must(reserved.reservation.commit(arrivals))), wanted);
    const bool visible = done == kLayers;
    EXPECT_EQ(must(world.ns.why(keys[0])).resident, visible ? 1U : 0U);
    EXPECT_EQ(world.stats().quarantined_bytes, held);
    if (!visible) {
      const auto writers = must(world.node.writers());
      ASSERT_EQ(writers.size(), 1U);
      EXPECT_EQ(writers[0].pid, writer.pid());
      EXPECT_EQ(writers[0].quarantined_bytes, held);
      writer.write(jobs.of(done, kLayers));  // after its end: into slots that are nobody else's
    }
    must(world.node.poll(0));
    EXPECT_EQ(world.stats().quarantined_bytes, held) << "as long as it lives";
    EXPECT_EQ(must(world.ns.why(keys[0])).resident, visible ? 1U : 0U);

    writer.kill();
    must(world.node.poll(0));
    EXPECT_EQ(world.stats().quarantined_bytes, 0U);
    EXPECT_EQ(must(world.node.writers()).size(), 0U);
    EXPECT_EQ(world.stats().records_copied_in, 0U);
    EXPECT_EQ(visible ? world.wrong_bytes(keys) : "", "");
  }
}

TEST(OutsideWriter, TheControlThreadNoticesItsDeathByItself) {
  World world(shared_node(TIERCEL_THREADING_CONTROL));
  WriterProcess writer;
  tiercel::Reserved reserved = must(world.ns.reserve(World::items(world.keys(2)), 0, writer.pid()));
  must(reserved.reservation.abort());
  EXPECT_GT(world.stats().quarantined_bytes, 0U);
  writer.kill();
  const auto died = std::chrono::steady_clock::now();
  while (world.stats().quarantined_bytes != 0) {
    ASSERT_LT(std::chrono::steady_clock::now() - died, std::chrono::nanoseconds(kLong));
    std::this_thread::yield();
  }
  const auto took = std::chrono::steady_clock::now() - died;
  RecordProperty("returned_after_ms", static_cast<int>(took / std::chrono::milliseconds(1)));
  EXPECT_EQ(world.stats().payload_bytes, 0U);
}

TEST(OutsideWriter, PastTheDeadlineNothingIsCommittedAndALateWriteHarmsNobody) {
  auto options = shared_node(TIERCEL_THREADING_CALLER);
  options.reservation_ttl_ns = 1;
  World world(options);
  WriterProcess writer;
  const auto keys = world.keys(1);
  const auto items = World::items(keys);
  tiercel::Reserved reserved = must(world.ns.reserve(items, 0, writer.pid()));
  Jobs jobs(reserved.reservation, items, "layer_first");
  writer.give(jobs.fd);
  must(world.node.poll(0));
  const std::uint64_t held = world.stats().quarantined_bytes;
  EXPECT_GT(held, 0U);
  writer.write(jobs.of(0, kLayers));
  EXPECT_EQ(reserved.reservation.commit().status().code, TIERCEL_FAILED_PRECONDITION);
  must(world.node.poll(0));
  EXPECT_EQ(world.stats().quarantined_bytes, held);
  EXPECT_EQ(must(world.ns.why(keys[0])).resident, 0U);
  must(reserved.reservation.writer_stopped());  // the caller knows better
  EXPECT_EQ(world.stats().payload_bytes, 0U);
}

TEST(OutsideWriter, OneThatFinishesAndExitsHasItsWorkCommittedAfterwards) {
  auto options = shared_node(TIERCEL_THREADING_CALLER);
  options.writer_grace_ns = kLong;
  World world(options);
  WriterProcess writer;
  const auto keys = world.keys(1);
  const auto items = World::items(keys);
  tiercel::Reserved reserved = must(world.ns.reserve(items, 0, writer.pid()));
  Jobs jobs(reserved.reservation, items, nullptr);
  writer.give(jobs.fd);
  writer.write(jobs.of(0, kLayers));
  EXPECT_EQ(writer.end(), 0);
  must(world.node.poll(0));
  const tiercel::Operation operation = must(reserved.reservation.commit());
  must(operation.wait(TIERCEL_COMPLETION_VISIBLE, kLong));
  EXPECT_EQ(world.wrong_bytes(keys), "");
}

TEST(OutsideWriter, BytesThatAreNotTheWritersAreDamagedAndNeverVisible) {
  World world(shared_node(TIERCEL_THREADING_CALLER));
  WriterProcess writer;
  const auto keys = world.keys(1);
  auto items = World::items(keys);
  items.resize(kShards);
  tiercel::Reserved reserved = must(world.ns.reserve(items, 0, writer.pid()));
  Jobs jobs(reserved.reservation, items, "layer_first");
  writer.give(jobs.fd);
  auto all = jobs.of(0, kLayers);
  all.pop_back();  // one piece got lost on its way
  writer.write(all);
  std::vector<std::vector<std::uint32_t>> sums;
  std::vector<tiercel_arrival> arrivals;
  for (std::size_t i = 0; i < items.size(); ++i) sums.push_back(world.checksums(items[i]));
  for (std::size_t i = 0; i < items.size(); ++i) arrivals.push_back({i, sums[i].data(), sums[i].size(), 0});
  const auto outcomes = outcomes_of(must(reserved.reservation.commit(arrivals)));
  EXPECT_EQ(std::count(outcomes.begin(), outcomes.end(), TIERCEL_ITEM_DAMAGED), 1);
  EXPECT_EQ(std::count(outcomes.begin(), outcomes.end(), TIERCEL_ITEM_COMMITTED), 0);
  EXPECT_EQ(must(world.ns.why(keys[0])).resident, 0U);
}

TEST(OutsideWriter, WhatCannotBeIsAnErrorInWordsAndReservesNothing) {
  World world(shared_node(TIERCEL_THREADING_CALLER));
  const auto items = World::items(world.keys(1));
  const auto refused = [&](std::uint32_t pid) { return world.ns.reserve(items, 0, pid).status(); };
  EXPECT_EQ(refused(static_cast<std::uint32_t>(::getpid())).code, TIERCEL_INVALID_ARGUMENT);
  EXPECT_EQ(refused(UINT32_MAX).code, TIERCEL_INVALID_ARGUMENT);
  WriterProcess writer;
  const std::uint32_t pid = writer.pid();
  writer.kill();
  EXPECT_EQ(refused(pid).code, TIERCEL_NOT_FOUND);
  auto store = sized<tiercel_store_options>();
  store.writer_pid = pid;
  EXPECT_EQ(world.ns.store({}, store).status().code, TIERCEL_INVALID_ARGUMENT);
  EXPECT_EQ(world.stats().payload_bytes, 0U);

  tiercel::Reserved reserved = must(world.ns.reserve(items));
  EXPECT_EQ(reserved.reservation.segments(0, "layer_frist").status().code, TIERCEL_INVALID_ARGUMENT);
  EXPECT_EQ(reserved.reservation.segments(99).status().code, TIERCEL_INVALID_ARGUMENT);
  const tiercel_arrival twice[] = {{0, nullptr, 0, 0}, {0, nullptr, 0, 0}};
  EXPECT_EQ(reserved.reservation.commit(twice).status().code, TIERCEL_INVALID_ARGUMENT);
  EXPECT_EQ(reserved.reservation.commit(std::span<const tiercel_arrival>()).status().code,
            TIERCEL_INVALID_ARGUMENT);
  EXPECT_FALSE(must(reserved.reservation.segments(0)).empty()) << "it stays";
  must(reserved.reservation.abort());
  EXPECT_EQ(reserved.reservation.segments(0).status().code, TIERCEL_NOT_FOUND);

  auto options = shared_node(TIERCEL_THREADING_CALLER);
  options.memory_kind = TIERCEL_MEMORY_ANONYMOUS;
  World alone(options);
  const auto private_memory = alone.ns.reserve(items, 0, pid).status();
  EXPECT_EQ(private_memory.code, TIERCEL_FAILED_PRECONDITION);
  EXPECT_NE(private_memory.message.find("memory_kind"), std::string::npos) << private_memory.to_string();
}

}  // namespace
}  // namespace engines

// This program is both processes.
int main(int argc, char** argv) {
  if (argc == 2 && std::strcmp(argv[1], engines::kWriterArgument) == 0) return engines::write_what_is_told();
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
