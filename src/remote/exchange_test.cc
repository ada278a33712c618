#include "remote/exchange.h"

#include <cstring>

#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <unistd.h>

#include "base/prng.h"
#include "remote/connector_message.h"
#include "remote/connector_side.h"

namespace tiercel {
namespace {

constexpr ExchangeOptions kSmall{.data_bytes = 1U << 20, .ring_bytes = 4096};

// Both ends in one process.
class ExchangeTest : public testing::Test {
 protected:
  void SetUp() override {
    auto opened = Exchange::open(kSmall);
    ASSERT_TRUE(opened) << opened.error().to_string();
    exchange_ = std::make_unique<Exchange>(std::move(*opened));
  }
  static int copy(int fd) { return ::fcntl(fd, F_DUPFD_CLOEXEC, 0); }
  std::string text() {
    return fmt::format("version=1 exchange={} requests={} completions={}", copy(exchange_->fd()),
                       copy(exchange_->request_event()), copy(exchange_->completion_event()));
  }
  std::unique_ptr<Exchange> exchange_;
};

TEST_F(ExchangeTest, CannotBeShrunkUnderItsUsers) {
  EXPECT_NE(::ftruncate(exchange_->fd(), 0), 0);
  EXPECT_EQ(exchange_->data_bytes(), kSmall.data_bytes);
}

TEST_F(ExchangeTest, TheEnvironmentSaysWhatIsWhere) {
  EXPECT_EQ(Exchange::environment({}), "version=1 exchange=3 requests=4 completions=5");
  EXPECT_EQ(Exchange::environment({.fd = 9, .offset = 4096, .bytes = 77}),
            "version=1 exchange=3 requests=4 completions=5 arena=6:77:4096");
}

TEST_F(ExchangeTest, RequestsAndCompletionsGoAcross) {
  auto arena = Mapping::open({.kind = MappingKind::kShared, .bytes = 2U << 20, .touch = {}, .numa = {}});
  ASSERT_TRUE(arena);
  auto side = ConnectorSide::attach(text() + fmt::format(" arena={}:8192:4096", copy(arena->fd())));
  ASSERT_TRUE(side) << side.error().to_string();
  EXPECT_EQ(side->layout(), exchange_->layout());
  std::memset(exchange_->data() + 100, 0x11, 8);
  std::memset(arena->bytes().data() + 4096 + 100, 0x22, 8);
  const std::vector<RemoteItem> items = {{"a", {{0, 100, 8}, {1, 100, 8}}}, {"b", {}}};
  ASSERT_EQ(exchange_->requests().put(encode_request(TIERCEL_CONNECTOR_PUT, 7, 99, items)),
            RingWriter::Put::kPut);
  exchange_->tell();
  auto request = side->take();
  ASSERT_TRUE(request && *request);
  EXPECT_EQ(**request, (ConnectorRequest{TIERCEL_CONNECTOR_PUT, 7, 99, items}));
  EXPECT_EQ(side->memory({0, 100, 8})[0], std::byte{0x11});
  EXPECT_EQ(side->memory({1, 100, 8})[7], std::byte{0x22});
  EXPECT_FALSE(*side->take());
  const ConnectorCompletion done{TIERCEL_CONNECTOR_DONE, 7, 0, "said", {{0, 16}, {1, 0}}};
  ASSERT_TRUE(side->complete(done));
  std::vector<std::byte> message;
  ASSERT_EQ(exchange_->completions().take(message), RingReader::Take::kTaken);
  const auto parsed = parse_completion(message);
  ASSERT_TRUE(parsed);
  EXPECT_EQ(*parsed, done);
}

TEST_F(ExchangeTest, PiecesBeyondTheirRegionAreRefusedByTheOtherSideToo) {
  for (const RemotePiece& piece :
       {RemotePiece{0, kSmall.data_bytes, 1}, RemotePiece{0, 0, kSmall.data_bytes + 1}, RemotePiece{1, 0, 1},
        RemotePiece{9, 0, 1}, RemotePiece{0, ~0ULL, 2}}) {
    exchange_->restart();
    auto side = ConnectorSide::attach(text());
    ASSERT_TRUE(side);
    const std::vector<RemoteItem> items = {{"a", {piece}}};
    ASSERT_EQ(exchange_->requests().put(encode_request(TIERCEL_CONNECTOR_GET, 7, 99, items)),
              RingWriter::Put::kPut);
    EXPECT_FALSE(side->take()) << piece.region << ", " << piece.offset;
  }
}

TEST_F(ExchangeTest, BeginsAnewForTheNextConnectorAndKeepsTheData) {
  {
    auto side = ConnectorSide::attach(text());
    ASSERT_TRUE(side);
    ASSERT_TRUE(side->complete({TIERCEL_CONNECTOR_HELLO, 0, 0, "", {}}));
    std::memset(side->exchange(), 0xEE, 400);  // whatever it did to the header
  }
  exchange_->data()[5] = std::byte{5};
  exchange_->restart();
  std::vector<std::byte> message;
  EXPECT_EQ(exchange_->completions().take(message), RingReader::Take::kEmpty);
  EXPECT_TRUE(ConnectorSide::attach(text()));
  EXPECT_EQ(exchange_->data()[5], std::byte{5});
}

// O_NONBLOCK is the description's, and so the other side's to clear.
TEST_F(ExchangeTest, AConnectorThatMakesTheEventsWaitHoldsNobody) {
  for (const int event : {exchange_->request_event(), exchange_->completion_event()})
    ASSERT_EQ(::fcntl(event, F_SETFL, ::fcntl(event, F_GETFL) & ~O_NONBLOCK), 0);
  exchange_->forget_completion();  // there is none
  exchange_->restart();
  auto side = ConnectorSide::attach(text());
  ASSERT_TRUE(side);
  ASSERT_TRUE(side->complete({TIERCEL_CONNECTOR_HELLO, 0, 0, "", {}}));
  pollfd told{exchange_->completion_event(), POLLIN, 0};
  EXPECT_EQ(::poll(&told, 1, 0), 1);
  exchange_->forget_completion();
  EXPECT_EQ(::poll(&told, 1, 0), 0);
}

TEST_F(ExchangeTest, AnEnvironmentOrAHeaderThatMakesNoSenseIsRefused) {
  EXPECT_FALSE(ConnectorSide::attach(""));
  EXPECT_FALSE(ConnectorSide::attach("version=2 exchange=3 requests=4 completions=5"));
  EXPECT_FALSE(ConnectorSide::attach("version=1 exchange= requests=4 completions=5"));
  EXPECT_FALSE(ConnectorSide::attach("version=1 exchange=99999999999999999999 requests=4 completions=5"));
  const ExchangeLayout right = exchange_->layout();
  const std::uint64_t mapped = right.total_bytes;
  EXPECT_TRUE(check_layout(right, mapped).ok());
  for (std::uint64_t ExchangeLayout::*field :
       {&ExchangeLayout::total_bytes, &ExchangeLayout::request_ring_offset,
        &ExchangeLayout::request_ring_bytes, &ExchangeLayout::completion_ring_offset,
        &ExchangeLayout::completion_ring_bytes, &ExchangeLayout::data_offset, &ExchangeLayout::data_bytes})
    for (const std::uint64_t wrong : {std::uint64_t{0}, ~std::uint64_t{0}, ~std::uint64_t{0} - 4095}) {
      ExchangeLayout layout = right;
      layout.*field = wrong;
      EXPECT_EQ(check_layout(layout, mapped).code, Code::kDataCorrupt) << wrong;
    }
}

// ---- Messages ----

std::vector<RemoteItem> random_items(Prng& prng) {
  std::vector<RemoteItem> items(prng.below(8));
  for (RemoteItem& item : items) {
    item.name = std::string(prng.between(1, 120), static_cast<char>('a' + prng.below(26)));
    item.pieces.resize(prng.below(5));
    for (RemotePiece& piece : item.pieces)
      piece = {static_cast<std::uint32_t>(prng.below(3)), prng.next(), prng.between(1, 1U << 20)};
  }
  return items;
}

TEST(ConnectorMessage, WhatIsEncodedIsParsedAndEveryShorterPartIsRefused) {
  Prng prng(1);
  for (int round = 0; round < 200; ++round) {
    const ConnectorRequest request{static_cast<std::uint16_t>(prng.between(1, 8)), prng.between(1, 1U << 30),
                                   prng.next(), random_items(prng)};
    const auto bytes = encode_request(request.verb, request.batch, request.deadline_ns, request.items);
    ASSERT_EQ(bytes.size(), request_bytes(request.items));
    ASSERT_EQ(bytes.size() % 8, 0U);
    const auto parsed = parse_request(bytes);
    ASSERT_TRUE(parsed) << parsed.error().to_string();
    EXPECT_EQ(*parsed, request);
    for (std::size_t cut = 0; cut < bytes.size(); cut += 8) {
      std::vector<std::byte> part(bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(cut));
      EXPECT_FALSE(parse_request(part));
      if (cut < 4) continue;
      store_le(part.data(), static_cast<std::uint32_t>(cut));  // and says so
      const auto shorter = parse_request(part);
      EXPECT_FALSE(shorter) << cut << " of " << bytes.size();
    }
    ConnectorCompletion completion{
        TIERCEL_CONNECTOR_DONE, prng.next(), 3, std::string(prng.below(50), 't'), {}};
    completion.results.resize(prng.below(9), {2, prng.next()});
    const auto again = parse_completion(encode_completion(completion));
    ASSERT_TRUE(again);
    EXPECT_EQ(*again, completion);
  }
}

TEST(ConnectorMessage, EveryDamagedByteIsRefusedOrMeansSomethingWithinBounds) {
  const std::vector<RemoteItem> items = {
      {"name", {{0, 1, 2}, {1, 3, 4}}}, {"n", {}}, {"another", {{0, 9, 9}}}};
  const auto right = encode_request(TIERCEL_CONNECTOR_GET, 5, 6, items);
  for (std::size_t at = 0; at < right.size(); ++at)
    for (int bit = 0; bit < 8; ++bit) {
      auto bytes = right;
      bytes[at] ^= static_cast<std::byte>(1 << bit);
      const auto parsed = parse_request(bytes);
      if (!parsed) continue;
      for (const RemoteItem& item : parsed->items) EXPECT_TRUE(remote_name_valid(item.name));
    }
}

TEST(ConnectorMessage, ATextOfSomebodyElseBecomesOneLine) {
  EXPECT_EQ(one_line("a\nb\tc\x01\xC3\xA4~ "), "a?b?c???~ ");
  EXPECT_EQ(one_line(std::string(10'000, 'x')).size(), kConnectorTextBytesMax);
  const auto cut =
      parse_completion(encode_completion({TIERCEL_CONNECTOR_HELLO, 0, 1, std::string(10'000, 'x'), {}}));
  ASSERT_TRUE(cut);
  EXPECT_EQ(cut->text.size(), kConnectorTextBytesMax);
}

TEST(ConnectorMessage, ABatchIsBoundedInItemsAndPieces) {
  const std::uint64_t regions[] = {1000};
  RemoteBatch batch{RemoteVerb::kExists, std::vector<RemoteItem>(4096, {"a", {}}), Time(0)};
  EXPECT_TRUE(check_batch(batch, regions).ok());
  batch.items.push_back({"a", {}});
  EXPECT_EQ(check_batch(batch, regions).code, Code::kInvalidArgument);
  batch = {RemoteVerb::kGet, {{"a", std::vector<RemotePiece>(65'536, {0, 0, 1000})}}, Time(0)};
  EXPECT_TRUE(check_batch(batch, regions).ok());
  batch.items.push_back({"a", {{0, 0, 1}}});
  EXPECT_EQ(check_batch(batch, regions).code, Code::kInvalidArgument);
}

}  // namespace
}  // namespace tiercel
