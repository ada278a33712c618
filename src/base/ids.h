// Identifiers that cannot be mixed up: a ClassId is not a ShardId, and neither is a number.
// Threads: plain values.
#pragma once

#include <compare>
#include <cstdint>
#include <functional>

namespace tiercel {

template <typename Tag, typename Rep>
class Id {
 public:
  using Value = Rep;
  constexpr Id() = default;
  constexpr explicit Id(Rep value) : value_(value) {}
  constexpr Rep value() const { return value_; }
  friend constexpr auto operator<=>(Id, Id) = default;

 private:
  Rep value_ = 0;
};

using ClassId = Id<struct ClassTag, std::uint16_t>;  // index into StorageForm::classes
using ShardId = Id<struct ShardTag, std::uint16_t>;  // 0 .. shards-1 of a class
using FormId = Id<struct FormTag, std::uint32_t>;    // storage form opened in a node
using NamespaceId =
    Id<struct NamespaceTag, std::uint32_t>;              // content identity under a form, opened in a node
using SessionId = Id<struct SessionTag, std::uint32_t>;  // a client of a node; 0 = none
using RequestId = Id<struct RequestTag, std::uint64_t>;  // an engine's request; 0 = none
using TicketId = Id<struct TicketTag, std::uint64_t>;    // an answer to a match; 0 = none
using OperationId = Id<struct OperationTag, std::uint64_t>;  // a load or store under way; 0 = none
using ReservationId = Id<struct ReservationTag, std::uint64_t>;
using PoolId = Id<struct PoolTag, std::uint32_t>;  // slots of one class of one form
using SlotId = Id<struct SlotTag, std::uint32_t>;  // a slot of a pool, opaque
using SlotAddress =
    Id<struct SlotAddressTag, std::uint32_t>;  // where a slot lies in the arena (memory/space.h)

}  // namespace tiercel

template <typename Tag, typename Rep>
struct std::hash<tiercel::Id<Tag, Rep>> {
  std::size_t operator()(tiercel::Id<Tag, Rep> id) const noexcept { return std::hash<Rep>{}(id.value()); }
};
