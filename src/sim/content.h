// What the bytes of a record are: a pure function of namespace, key, class, shard, layer and of the
// computation that made them, so that any wrong byte shows and says whose it is.
//
// Threads: pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "base/bytes.h"
#include "base/ids.h"
#include "base/sha256.h"
#include "model/key_chain.h"
#include "model/storage_form.h"

namespace tiercel::sim {

inline constexpr std::byte kUntouched{0xEE};         // engine memory that nobody may have written
inline constexpr std::uint64_t kLayerBytesMin = 16;  // a layer's run must hold its computation and a body

// One computation (forward pass) of one request. Two of them give different bytes for the same page.
using Computation = std::uint64_t;

// Names the bytes of one record besides its computation.
struct RecordName {
  std::uint64_t root = 0;  // short_root() of its namespace
  Key key;
  ClassId cls;
  ShardId shard;
  friend auto operator<=>(const RecordName&, const RecordName&) = default;
};
std::uint64_t short_root(const Digest& root);

std::vector<std::byte> make_payload(const ClassForm& cls, const RecordName& name, Computation computation);
// The computation whose bytes these are, to the last byte; nothing when they are nobody's.
std::optional<Computation> read_layer(const LayerRun& layer, const RecordName& name, ByteView bytes);
// Per layer of the class.
std::vector<std::optional<Computation>> read_payload(const ClassForm& cls, const RecordName& name,
                                                     ByteView payload);
// The one computation of all layers; nothing when a layer is nobody's or they disagree.
std::optional<Computation> whole_payload(const ClassForm& cls, const RecordName& name, ByteView payload);

bool untouched(ByteView bytes);

}  // namespace tiercel::sim
