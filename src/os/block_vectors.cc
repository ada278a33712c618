#include "os/block_vectors.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"

namespace tiercel {
namespace {

bool joins(const BlockPiece& first, const BlockPiece& second) {
  if (first.data == nullptr || second.data == nullptr) return first.data == second.data;
  return first.data + first.length == second.data;
}

}  // namespace

BlockMemory::BlockMemory(const std::vector<BlockPiece>& pieces) {
  for (const BlockPiece& piece : pieces) {
    if (piece.length == 0) continue;
    const std::uint64_t end = bytes() + piece.length;
    if (!pieces_.empty() && joins(pieces_.back(), piece)) {
      pieces_.back().length += piece.length;
      ends_.back() = end;
    } else {
      pieces_.push_back(piece);
      ends_.push_back(end);
    }
  }
}

BlockPiece BlockMemory::from(std::uint64_t at) const {
  const auto end = std::upper_bound(ends_.begin(), ends_.end(), at);
  TIERCEL_CHECK(end != ends_.end());
  const BlockPiece& piece = pieces_[static_cast<std::size_t>(end - ends_.begin())];
  const std::uint64_t left = *end - at;
  return {piece.data == nullptr ? nullptr : piece.data + (piece.length - left), left};
}

template <typename Body>
void BlockMemory::each(std::uint64_t at, std::uint64_t length, Body body) const {
  for (std::uint64_t done = 0; done < length;) {
    const BlockPiece piece = from(at + done);
    const std::uint64_t now = std::min(piece.length, length - done);
    body(piece.data, done, now);
    done += now;
  }
}

void BlockMemory::copy_out(std::uint64_t at, std::uint64_t length, std::byte* to) const {
  each(at, length, [to](const std::byte* data, std::uint64_t done, std::uint64_t now) {
    if (data != nullptr)
      std::memcpy(to + done, data, now);
    else
      std::memset(to + done, 0, now);
  });
}

void BlockMemory::copy_in(std::uint64_t at, std::uint64_t length, const std::byte* from) const {
  each(at, length, [from](std::byte* data, std::uint64_t done, std::uint64_t now) {
    if (data != nullptr) std::memcpy(data, from + done, now);
  });
}

BlockVectors::BlockVectors(const BlockMemory& memory, BlockRange range, const BlockVectorLimits& limits)
    : range_{range.from, range.from} {
  const std::uint64_t end = std::min(range.to, range.from + limits.bytes);
  while (range_.to < end && vectors_.size() < limits.vectors) {
    const BlockPiece piece = memory.from(range_.to);
    const std::uint64_t whole = std::min(piece.length, end - range_.to) / kBlockBytes * kBlockBytes;
    if (whole != 0 && piece.data == nullptr) {
      append(Kind::kBlank, nullptr, std::min(whole, limits.blank));
    } else if (whole != 0 && reinterpret_cast<std::uintptr_t>(piece.data) % limits.alignment == 0) {
      append(Kind::kMemory, piece.data, whole);
    } else {
      if (bounced_ + kBlockBytes > limits.bounced) break;
      append(Kind::kBounce, nullptr, kBlockBytes);
      bounced_ += kBlockBytes;
    }
  }
}

void BlockVectors::append(Kind kind, std::byte* data, std::uint64_t length) {
  range_.to += length;
  if (kind == Kind::kBounce && !kinds_.empty() && kinds_.back() == kind) {
    vectors_.back().iov_len += length;
    return;
  }
  vectors_.push_back({data, length});
  kinds_.push_back(kind);
}

void BlockVectors::place(std::byte* bounce, std::byte* blank) {
  TIERCEL_CHECK(bounced_ == 0 || bounce != nullptr);
  for (std::size_t i = 0; i < vectors_.size(); ++i) {
    if (kinds_[i] == Kind::kBlank) vectors_[i].iov_base = blank;
    if (kinds_[i] != Kind::kBounce) continue;
    vectors_[i].iov_base = bounce;
    bounce += vectors_[i].iov_len;
  }
}

void BlockVectors::cut(std::uint64_t length) {
  std::uint64_t kept = 0;
  for (std::size_t i = 0; i < vectors_.size(); ++i) {
    if (kept + vectors_[i].iov_len > length) {
      vectors_[i].iov_len = length - kept;
      vectors_.resize(vectors_[i].iov_len == 0 ? i : i + 1);
      kinds_.resize(vectors_.size());
      return;
    }
    kept += vectors_[i].iov_len;
  }
}

void BlockVectors::gather(const BlockMemory& memory) const {
  std::uint64_t at = range_.from;
  for (std::size_t i = 0; i < vectors_.size(); ++i) {
    if (kinds_[i] == Kind::kBounce)
      memory.copy_out(at, vectors_[i].iov_len, static_cast<std::byte*>(vectors_[i].iov_base));
    at += vectors_[i].iov_len;
  }
}

void BlockVectors::scatter(const BlockMemory& memory, std::uint64_t length) const {
  std::uint64_t done = 0;
  for (std::size_t i = 0; i < vectors_.size() && done < length; ++i) {
    const std::uint64_t now = std::min<std::uint64_t>(vectors_[i].iov_len, length - done);
    if (kinds_[i] == Kind::kBounce)
      memory.copy_in(range_.from + done, now, static_cast<const std::byte*>(vectors_[i].iov_base));
    done += now;
  }
}

}  // namespace tiercel
