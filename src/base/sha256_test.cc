#include "base/sha256.h"

#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "base/prng.h"

namespace tiercel {
namespace {

std::string hex(const Digest& digest) {
  std::string text;
  for (const std::byte b : digest) {
    constexpr const char* kDigits = "0123456789abcdef";
    text += kDigits[static_cast<unsigned>(b) >> 4];
    text += kDigits[static_cast<unsigned>(b) & 15];
  }
  return text;
}

std::vector<std::byte> random_bytes(Prng& prng, std::size_t count) {
  std::vector<std::byte> bytes(count);
  for (std::byte& b : bytes) b = static_cast<std::byte>(prng.next());
  return bytes;
}

std::vector<std::byte> padded(ByteView bytes) {
  std::vector<std::byte> message(bytes.begin(), bytes.end());
  message.resize(sha256_padded_bytes(bytes.size()), std::byte{0xEE});
  sha256_pad(message, bytes.size());
  return message;
}

Digest one_padded(ByteView bytes) {
  const std::vector<std::byte> message = padded(bytes);
  const std::byte* const data[] = {message.data()};
  Digest digest;
  sha256_padded(data, bytes.size(), {&digest, 1});
  return digest;
}

// FIPS 180-4 examples, and the empty message.
struct Vector {
  std::string text;
  const char* digest;
};
const Vector kVectors[] = {
    {"", "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"},
    {"abc", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"},
    {"abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq",
     "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1"},
    {std::string(1'000'000, 'a'), "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0"},
};

TEST(Sha256, MatchesPublishedVectors) {
  for (const Vector& vector : kVectors) {
    EXPECT_EQ(hex(sha256(as_byte_view(vector.text))), vector.digest);
    EXPECT_EQ(hex(one_padded(as_byte_view(vector.text))), vector.digest);
  }
  Sha256 pieces;
  pieces.update(as_byte_view("a"));
  pieces.update(as_byte_view("bc"));
  EXPECT_EQ(hex(pieces.finish()), kVectors[1].digest);
  EXPECT_EQ(hex(pieces.finish()), kVectors[0].digest) << "a finished one starts afresh";
}

// Every length that ends differently, and every number of messages in step; the reference is OpenSSL.
TEST(Sha256, MessagesInStepHaveTheDigestsThatTheyHaveAlone) {
  Prng prng(1);
  for (std::size_t bytes = 0; bytes <= 300; ++bytes) {
    std::vector<std::vector<std::byte>> messages;
    std::vector<const std::byte*> data;
    std::vector<Digest> wanted;
    for (std::size_t lane = 0; lane < kSha256Lanes; ++lane) {
      const auto message = random_bytes(prng, bytes);
      wanted.push_back(sha256(message));
      messages.push_back(padded(message));
      data.push_back(messages.back().data());
    }
    for (std::size_t lanes = 1; lanes <= kSha256Lanes; ++lanes) {
      const std::vector<Digest> expected(wanted.begin(), wanted.begin() + static_cast<std::ptrdiff_t>(lanes));
      std::vector<Digest> got(lanes);
      sha256_padded({data.data(), lanes}, bytes, got);
      EXPECT_EQ(got, expected) << bytes << " bytes, " << lanes << " lanes";
      got.assign(lanes, Digest{});
      detail::sha256_padded_portable({data.data(), lanes}, bytes, got);
      EXPECT_EQ(got, expected) << bytes << " bytes, " << lanes << " lanes, portable";
      got.assign(lanes, Digest{});
      if (detail::sha256_padded_hardware({data.data(), lanes}, bytes, got)) {
        EXPECT_EQ(got, expected);
      } else {
        EXPECT_EQ(got, std::vector<Digest>(lanes)) << "a processor without the instructions has no effect";
      }
    }
  }
}

TEST(Sha256, AChainedMessageHoldsTheDigestOfTheOneBefore) {
  constexpr std::size_t kCount = 3;
  Prng prng(3);
  for (std::size_t bytes = kSha256ParentAt + 32; bytes <= 300; ++bytes)
    for (std::size_t lanes = 1; lanes <= kSha256Lanes; ++lanes) {
      std::vector<std::vector<std::byte>> messages(lanes);
      std::vector<std::vector<Digest>> wanted(lanes);
      for (std::size_t lane = 0; lane < lanes; ++lane) {
        wanted[lane].push_back(sha256(random_bytes(prng, 8)));
        for (std::size_t i = 0; i < kCount; ++i) {
          auto message = random_bytes(prng, bytes);
          append_bytes(messages[lane], padded(message));  // other bytes where the parent belongs
          std::copy(wanted[lane].back().begin(), wanted[lane].back().end(),
                    message.begin() + kSha256ParentAt);
          wanted[lane].push_back(sha256(message));
        }
      }
      const auto expect_right = [&](const auto& hash, const char* body) {
        std::vector<std::vector<Digest>> got(lanes, std::vector<Digest>(kCount + 1));
        std::vector<Sha256Chain> chains;
        for (std::size_t lane = 0; lane < lanes; ++lane) {
          got[lane][0] = wanted[lane][0];
          chains.push_back({messages[lane].data(), got[lane].data()});
        }
        hash(chains);
        EXPECT_EQ(got, wanted) << bytes << " bytes, " << lanes << " lanes, " << body;
      };
      using Chains = std::span<const Sha256Chain>;
      expect_right([&](Chains chains) { sha256_chained(chains, bytes, kCount); }, "the best");
      expect_right([&](Chains chains) { detail::sha256_chained_portable(chains, bytes, kCount); },
                   "portable");
    }
}

TEST(Sha256, MessagesNeedNoAlignment) {
  Prng prng(2);
  const auto bytes = random_bytes(prng, 200);
  const std::vector<std::byte> message = padded(bytes);
  for (std::size_t shift = 0; shift < 16; ++shift) {
    std::vector<std::byte> room(message.size() + 16);
    std::copy(message.begin(), message.end(), room.begin() + static_cast<std::ptrdiff_t>(shift));
    const std::byte* const data[] = {room.data() + shift};
    Digest digest;
    sha256_padded(data, bytes.size(), {&digest, 1});
    EXPECT_EQ(digest, sha256(bytes)) << shift;
  }
}

TEST(Sha256, CountsTheBytesThatThisThreadHashes) {
  const std::uint64_t before = sha256_bytes_hashed();
  Sha256 stream;
  stream.update(as_byte_view("12345"));
  stream.finish();
  sha256(as_byte_view("123"));
  EXPECT_EQ(sha256_bytes_hashed() - before, 8U);
  one_padded(as_byte_view("12"));
  EXPECT_EQ(sha256_bytes_hashed() - before, 10U);
  const std::vector<std::byte> message = padded(as_byte_view("1234567"));
  const std::byte* const data[] = {message.data(), message.data(), message.data()};
  Digest digests[3];
  sha256_padded(data, 7, digests);
  EXPECT_EQ(sha256_bytes_hashed() - before, 31U);
  detail::sha256_padded_portable(data, 7, digests);
  EXPECT_EQ(sha256_bytes_hashed() - before, 52U);
}

}  // namespace
}  // namespace tiercel
