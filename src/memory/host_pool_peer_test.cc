// Shared host pools between two real processes: this program starts itself again, hands the file descriptor
// over a socket (SCM_RIGHTS) with the model's spec, and the other process makes the same plan, maps the
// memory, and reads and writes every byte of every page of every pool. A forked child would prove nothing:
// the mapping is not there in it.
#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/prng.h"
#include "memory/host_pools.h"
#include "memory/host_sequence.h"
#include "memory/test_host_pools.h"
#include "model/spec_json.h"
#include "os/kernel_text.h"
#include "os/test_machine.h"

namespace tiercel {
namespace {

using testing::HasSubstr;

constexpr const char* kPeerArgument = "--host-pool-peer";
constexpr int kPeerSocket = 3;
constexpr std::size_t kMessageMax = 64 << 10;

// ---- what both processes know ----

// What is sent besides the descriptor: everything that a plan is made of.
struct Order {
  std::string pools;  // a name of raw_group(), or the JSON of a spec
  std::string layout;
  std::uint64_t pages = 0;
  std::uint64_t seed = 0;  // of what is there; the peer leaves that of seed + 1
  bool writes = true;
  std::string fingerprint;
  std::vector<std::uint64_t> token_slots =
      {};  // not empty: writes these tokens of a sequence, and nothing else
};

std::string encode(const Order& order) {
  return fmt::format("{}\n{}\n{}\n{}\n{}\n{}\n{}", order.layout, order.pages, order.seed,
                     order.writes ? 1 : 0, order.fingerprint, fmt::join(order.token_slots, ","), order.pools);
}

Order decode(std::string_view text) {
  std::array<std::string, 6> lines;
  for (std::string& line : lines) {
    const std::size_t end = text.find('\n');
    line = text.substr(0, end);
    text.remove_prefix(end + 1);
  }
  Order order{.pools = std::string(text),
              .layout = lines[0],
              .pages = std::stoull(lines[1]),
              .seed = std::stoull(lines[2]),
              .writes = lines[3] == "1",
              .fingerprint = lines[4]};
  for (std::string_view slots = lines[5]; !slots.empty();)
    order.token_slots.push_back(decimal(take_until(slots, ',')).value_or(UINT64_MAX));
  return order;
}

// The groups of scenario H01.
std::vector<HostPoolRequest> raw_group(std::string_view name) {
  HostPoolRequest side = raw_pool("side", 0, {64, 32});
  if (name == "main_and_side") return {raw_pool("main", 16, {128}), side};
  if (name == "no_side") return {raw_pool("main", 16, {128})};
  if (name == "anchor_without_bytes") {
    HostPoolRequest keys = raw_pool("keys", 16, {48});
    keys.slots_of = "main";
    return {raw_pool("main", 16, {}), keys, side};
  }
  HostPoolRequest twice = raw_pool("twice", 16, {128, 32});
  twice.buffers = {SameBufferAs{"main", 0}, SameBufferAs{"side", 1}};
  EXPECT_EQ(name, "listed_twice");
  return {raw_pool("main", 16, {128}), side, twice};
}

Result<HostPoolPlan> plan_of(const Order& order) {
  std::vector<HostPoolRequest> requests;
  if (is_spec_json(order.pools)) {
    TIERCEL_ASSIGN_OR_RETURN(ModelSpec spec, read_spec_json(order.pools, "spec"));
    TIERCEL_ASSIGN_OR_RETURN(const StorageForm form, make_storage_form(std::move(spec)));
    TIERCEL_ASSIGN_OR_RETURN(Layout layout, layout_from_text(order.layout));
    TIERCEL_ASSIGN_OR_RETURN(requests, stack_of(form, {.layout = std::move(layout)}));
  } else {
    requests = raw_group(order.pools);
  }
  return plan_host_pools(requests, {MemoryKind::kShared, PagesCapacity{order.pages}});
}

// What byte number `position` of an object is. A pool whose buffers are another one's says that pool's
// content.
std::byte content(std::uint64_t seed, std::uint64_t pool, std::uint64_t page, std::uint64_t object,
                  std::uint64_t position) {
  const std::uint64_t where = (pool << 56) ^ (page << 32) ^ (object << 24) ^ position;
  return static_cast<std::byte>(mix64(where + seed * 0x9E3779B97F4A7C15ULL) & 0xFF);
}

// Every byte of every page, with what it is to be: visit(view of one byte, writable byte or null, wanted).
template <typename Visit>
void each_byte(const HostPoolGroup& group, std::uint64_t seed, Visit visit) {
  const HostPoolPlan& plan = group.plan();
  for (std::uint32_t p = 0; p < plan.pools.size(); ++p)
    for (std::uint64_t page = 0; page < plan.pools[p].pages(); ++page) {
      const auto objects = group.page_segments(p, page);
      for (std::uint32_t object = 0; object < objects.size(); ++object) {
        // "twice" is the first buffer of "main" and the second one of "side".
        const bool again = plan.pools[p].name() == "twice";
        const std::uint64_t pool = again ? object : p;
        std::uint64_t position = 0;
        for (const Segment& segment : objects[object].segments)
          for (std::uint64_t i = 0; i < segment.length; ++i)
            visit(p, Segment{segment.buffer, segment.offset + i, 1}, again,
                  content(seed, pool, page, object, position++));
      }
    }
}

void fill(const HostPoolGroup& group, std::uint64_t seed) {
  each_byte(group, seed, [&](std::uint32_t pool, const Segment& at, bool again, std::byte wanted) {
    if (!again) group.bytes(pool, at)[0] = wanted;
  });
}

// Bytes that are not what they should be; `read` counts all that were looked at.
std::uint64_t wrong_bytes(const HostPoolGroup& group, std::uint64_t seed, std::uint64_t& read) {
  std::uint64_t wrong = 0;
  each_byte(group, seed, [&](std::uint32_t pool, const Segment& at, bool, std::byte wanted) {
    ++read;
    if (group.view(pool, at)[0] != wanted) ++wrong;
  });
  return wrong;
}

// Every byte of token `number` of a sequence in every pool that shares the slots of pool 0, by nothing but
// its slot: visit(pool, run of one byte, wanted).
template <typename Visit>
void each_byte_of_token(const HostPoolPlan& plan, std::uint64_t slot, std::uint64_t number,
                        std::uint64_t seed, Visit visit) {
  for (std::uint32_t p = 0; p < plan.pools.size(); ++p) {
    const PoolLayout& layout = plan.pools[p].layout;
    const std::uint64_t page_tokens = layout.shape.page_tokens;
    if (plan.pools[p].slots_of != 0) continue;
    for (std::uint32_t t = 0; t < layout.shape.tensors.size(); ++t)
      for (std::uint32_t l = 0; l < layout.shape.layers.size(); ++l) {
        std::uint64_t position = 0;
        const std::uint64_t entry = slot % page_tokens / (page_tokens / layout.shape.tensors[t].tokens);
        for (const Segment& run : entry_segments(layout, t, l, slot / page_tokens, entry))
          for (std::uint64_t i = 0; i < run.length; ++i)
            visit(p, Segment{run.buffer, run.offset + i, 1},
                  content(seed, p, number, std::uint64_t{t} * 64 + l, position++));
      }
  }
}

// ---- the other process ----

// Receives a text and a descriptor; −1 when there was none.
int receive(int socket, std::string& text) {
  text.resize(kMessageMax);
  iovec part{text.data(), text.size()};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> control{};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  const ssize_t got = ::recvmsg(socket, &message, MSG_CMSG_CLOEXEC);
  text.resize(got < 0 ? 0 : static_cast<std::size_t>(got));
  const cmsghdr* header = CMSG_FIRSTHDR(&message);
  int fd = -1;
  if (header != nullptr && header->cmsg_type == SCM_RIGHTS) std::memcpy(&fd, CMSG_DATA(header), sizeof fd);
  return fd;
}

std::string serve(const Order& order, int fd) {
  const auto plan = plan_of(order);
  if (!plan) return plan.error().message;
  if (fmt::format("{}", fmt::join(plan_fingerprint(*plan), ",")) != order.fingerprint) return "another plan";
  const auto group =
      HostPoolGroup::attach(*plan, fd, order.writes ? MappingAccess::kReadWrite : MappingAccess::kReadOnly);
  if (!group) return group.error().message;
  std::uint64_t read = 0;
  for (std::uint64_t i = 0; i < order.token_slots.size(); ++i)
    each_byte_of_token(*plan, order.token_slots[i], i, order.seed,
                       [&](std::uint32_t pool, const Segment& at, std::byte wanted) {
                         group->bytes(pool, at)[0] = wanted;
                         ++read;
                       });
  if (!order.token_slots.empty()) return fmt::format("wrote {}", read);
  if (const std::uint64_t wrong = wrong_bytes(*group, order.seed, read); wrong != 0)
    return fmt::format("{} of {} bytes are wrong", wrong, read);
  if (order.writes) fill(*group, order.seed + 1);
  return fmt::format("read {}", read);
}

int run_peer() {
  std::string text;
  const int fd = receive(kPeerSocket, text);
  const std::string answer = serve(decode(text), fd);
  return ::send(kPeerSocket, answer.data(), answer.size(), MSG_NOSIGNAL) ==
                 static_cast<ssize_t>(answer.size())
             ? 0
             : 1;
}

// ---- this process ----

bool send_order(int socket, const Order& order, int fd) {
  std::string text = encode(order);
  iovec part{text.data(), text.size()};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> control{};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  if (fd >= 0) {
    message.msg_control = control.data();
    message.msg_controllen = control.size();
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(int));
    std::memcpy(CMSG_DATA(header), &fd, sizeof fd);
  }
  return ::sendmsg(socket, &message, MSG_NOSIGNAL) == static_cast<ssize_t>(text.size());
}

// What another process answers to the order.
std::string answer_of_peer(const Order& order, int fd) {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) return "no sockets";
  const pid_t child = ::fork();
  if (child == 0) {
    // Its number stays the same in the new program, which inherits nothing else.
    if (ends[1] == kPeerSocket ? ::fcntl(kPeerSocket, F_SETFD, 0) != 0 : ::dup2(ends[1], kPeerSocket) < 0)
      ::_exit(2);
    ::execl("/proc/self/exe", "memory_test", kPeerArgument, static_cast<char*>(nullptr));
    ::_exit(3);
  }
  ::close(ends[1]);
  std::string answer = "the order could not be sent";
  if (send_order(ends[0], order, fd)) receive(ends[0], answer);
  ::close(ends[0]);
  int status = 0;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  return answer;
}

HostPoolGroup group_of(Order& order) {
  auto plan = plan_of(order);
  EXPECT_TRUE(plan) << (plan ? "" : plan.error().message);
  order.fingerprint = fmt::format("{}", fmt::join(plan_fingerprint(*plan), ","));
  HostPoolOptions options;
  options.plan = {MemoryKind::kShared, PagesCapacity{order.pages}};
  HostPoolGroupBuilder builder = HostPoolGroup::begin(std::move(options));
  if (is_spec_json(order.pools)) {
    const auto form = make_storage_form(*read_spec_json(order.pools, "spec"));
    EXPECT_TRUE(builder.add_pools(*form, {.layout = named_layout(order.layout)}).ok());
  } else {
    for (HostPoolRequest& request : raw_group(order.pools))
      EXPECT_TRUE(builder.add_pool(std::move(request)).ok());
  }
  auto group = builder.seal();
  EXPECT_TRUE(group) << (group ? "" : group.error().message);
  EXPECT_EQ(group->plan(), *plan);
  return std::move(*group);
}

// Writes, lets the other process read and write, reads, lets it read again; every byte of every page each
// time, and none between.
void exchange(Order order) {
  const HostPoolGroup group = group_of(order);
  fill(group, order.seed);
  std::vector<std::byte> before(group.ranges()[0].begin(), group.ranges()[0].end());
  std::uint64_t bytes = 0;
  EXPECT_EQ(wrong_bytes(group, order.seed, bytes), 0U);
  EXPECT_EQ(answer_of_peer(order, group.fd()), fmt::format("read {}", bytes));
  std::uint64_t read = 0;
  ++order.seed;
  EXPECT_EQ(wrong_bytes(group, order.seed, read), 0U) << "what the other process wrote";
  EXPECT_EQ(read, bytes);
  // The same again with the old bytes in place: nothing else was touched.
  fill(group, order.seed - 1);
  EXPECT_TRUE(std::equal(before.begin(), before.end(), group.ranges()[0].begin()));
  order.seed += 1;
  order.writes = false;
  fill(group, order.seed);
  EXPECT_EQ(answer_of_peer(order, group.fd()), fmt::format("read {}", bytes));
}

TEST(H01, MainPool128AndSidePool64And32AreAllReachedByASecondProcess) {
  Order order{.pools = "main_and_side", .layout = "-", .pages = 1, .seed = 1};
  EXPECT_EQ(required_bytes(*plan_of(order)), 224U);
  exchange(order);
  order.pages = 4;
  exchange(order);
}

TEST(H01, TheSameBufferListedTwiceIsStill224AndOneMemory) {
  Order order{.pools = "listed_twice", .layout = "-", .pages = 1, .seed = 10};
  EXPECT_EQ(required_bytes(*plan_of(order)), 224U);
  exchange(order);
}

TEST(H01, APoolThatOwnsNoBufferAndNoSidePoolAtAll) {
  exchange({.pools = "anchor_without_bytes", .layout = "-", .pages = 3, .seed = 20});
  exchange({.pools = "no_side", .layout = "-", .pages = 3, .seed = 30});
}

TEST(HostPoolPeer, EveryPageSegmentOfAHybridGroupIsReadAndWrittenByteByByteInEveryLayout) {
  const std::string spec = write_spec_json(hybrid_form().spec);
  std::uint64_t seed = 100;
  for (const Layout& layout : named_layouts()) {
    Order order{.pools = spec, .layout = layout.name, .pages = 3, .seed = seed};
    seed += 10;
    if (const auto plan = plan_of(order); !plan) {
      EXPECT_THAT(plan.error().message, HasSubstr("stands outside of component")) << layout.name;
      continue;
    }
    exchange(order);
  }
}

TEST(HostPoolPeer, EveryStackIsSharedWhole) {
  std::uint64_t seed = 1000;
  for (const Stack& each : all_stacks()) {
    exchange(
        {.pools = write_spec_json(each.form.spec), .layout = "page_first_direct", .pages = 2, .seed = seed});
    seed += 10;
  }
}

TEST(HostPoolPeer, TokensOfAHostResidentSequenceAreWrittenByAnotherProcessWhereTheyStay) {
  const StorageForm form = form_of({group(FullKind{}, Need::kRequired, {0, 1, 2}, latent(), true),
                                    group(FollowerKind{0}, Need::kRequired, {1, 2}, index_keys(), true)});
  Order order{.pools = write_spec_json(form.spec), .layout = "layer_first", .pages = 8, .seed = 7};
  const HostPoolGroup group = group_of(order);
  auto slots = GroupSlots::make(group.plan());
  auto other = HostSequence::make(group.plan(), *slots, 0);
  auto sequence = HostSequence::make(group.plan(), *slots, 0);
  ASSERT_TRUE(other && sequence);
  std::vector<HostSequence::Tokens> appended;
  std::uint64_t right = 0;
  for (const std::uint64_t count : {5U, 20U, 30U}) {
    ASSERT_TRUE(other->append(7));
    const auto added = sequence->append(count);
    ASSERT_TRUE(added) << added.error().message;
    appended.push_back(*added);
    // Only what is new is told and written; what was there before is still there.
    order.token_slots = sequence->token_slots(*added);
    order.seed = 7 + added->first;
    EXPECT_THAT(answer_of_peer(order, group.fd()), testing::StartsWith("wrote "));
    right = 0;
    for (const HostSequence::Tokens& tokens : appended)
      for (std::uint64_t i = 0; i < tokens.count; ++i)
        each_byte_of_token(group.plan(), sequence->token_slot(tokens.first + i), i, 7 + tokens.first,
                           [&](std::uint32_t pool, const Segment& at, std::byte wanted) {
                             ASSERT_EQ(group.view(pool, at)[0], wanted);
                             ++right;
                           });
  }
  std::uint64_t token_bytes = 0;
  for (const HostPool& pool : group.plan().pools) token_bytes += pool.layout.shape.page_bytes() / 16;
  EXPECT_EQ(right, 55 * token_bytes);
}

TEST(HostPoolPeer, AnotherPlanOrAnotherMappingIsToldAndNothingIsRead) {
  Order order{.pools = "main_and_side", .layout = "-", .pages = 1, .seed = 1};
  const HostPoolGroup group = group_of(order);
  Order other = order;
  other.pages = 2;
  EXPECT_EQ(answer_of_peer(other, group.fd()), "another plan");
  EXPECT_THAT(answer_of_peer(order, -1), HasSubstr("attach: file descriptor"));
  Order larger{.pools = "main_and_side", .layout = "-", .pages = 1 << 16, .seed = 1};
  larger.fingerprint = fmt::format("{}", fmt::join(plan_fingerprint(*plan_of(larger)), ","));
  EXPECT_THAT(answer_of_peer(larger, group.fd()), HasSubstr("attach: size of the file"));
  // What is there was never written.
  EXPECT_THAT(answer_of_peer(order, group.fd()), HasSubstr("bytes are wrong"));
}

TEST(HostPoolPeer, OnlySharedMemoryCanBeAttached) {
  Order order{.pools = "no_side", .layout = "-", .pages = 1, .seed = 1};
  HostPoolPlan plan = *plan_of(order);
  plan.kind = MemoryKind::kAnonymous;
  const auto group = HostPoolGroup::attach(plan, 0, MappingAccess::kReadOnly);
  ASSERT_FALSE(group);
  EXPECT_THAT(group.error().message, HasSubstr("attach: wanted memory of kind shared, got anonymous"));
}

}  // namespace
}  // namespace tiercel

// Takes the place of gtest's own: the same program is the other process.
int main(int argc, char** argv) {
  if (argc == 2 && std::string_view(argv[1]) == tiercel::kPeerArgument) return tiercel::run_peer();
  testing::InitGoogleMock(&argc, argv);
  return RUN_ALL_TESTS();
}
