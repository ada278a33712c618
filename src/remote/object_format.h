// Objects of the remote tier: which class-sets an object holds, what it is called, every byte of its header,
// and markers. docs/format.md has the same in words.
//
// A *bundle* is what travels together: the required classes of a model are bundle 0, every other class is a
// bundle of its own. An object is one bundle of a *run* of pages for one shard. Runs are aligned on the
// chain (pages 16i to 16i + 15) and named by their last page's key, which stands for all before it; a page
// outside a whole run is a run of one. So the number of objects is a fraction of the number of pages.
//
// A *marker* is a small object with a random number, one for each form and one for each namespace. Names of
// all other objects are made with both: a new marker puts all that was stored under the old one out of reach
// for ever, wherever it lies and whether or not it can be reached.
//
// Threads: plain values and pure functions.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/ids.h"
#include "base/sha256.h"
#include "base/status.h"
#include "model/key_chain.h"
#include "model/resume.h"
#include "model/storage_form.h"

namespace tiercel::remote {

inline constexpr std::uint16_t kObjectVersion = 1;
inline constexpr std::uint64_t kObjectHeaderBytes = 128;
inline constexpr std::uint64_t kMarkerBytes = 64;
inline constexpr std::uint32_t kRunPagesMax = 64;

using BundleId = Id<struct BundleTag, std::uint16_t>;

// One record of an object, from the object's start.
struct ObjectRecord {
  std::uint32_t page = 0;  // in the run
  ClassId cls;
  std::uint64_t offset = 0, length = 0;
};

struct Bundle {
  BundleId id;
  std::vector<ClassId> classes;
  Presence presence = 0;  // of these classes
  bool required = false, state = false, optional = false;
  std::uint16_t shards = 1;     // of the class with the most
  std::uint32_t run_pages = 1;  // of a whole run
};

// What objects of a storage form look like.
struct ObjectForm {
  std::shared_ptr<const StorageForm> form;
  std::vector<std::uint64_t> record_bytes;  // per class: of one record as it stands in the arena
  std::vector<Bundle> bundles;              // index = BundleId
  std::vector<BundleId> bundle_of;          // per class
};
struct RunLimits {
  std::uint32_t pages_max = 16;          // 1 to kRunPagesMax, a power of two
  std::uint64_t bytes_max = 8ULL << 20;  // of an object: what makes a page small enough for a run
};
// Requires: one record size for each class. A state's run is one page.
ObjectForm make_object_form(std::shared_ptr<const StorageForm> form, std::vector<std::uint64_t> record_bytes,
                            const RunLimits& limits);

// Records of an object in their order: page by page, in each page the bundle's classes that have this shard.
std::vector<ObjectRecord> object_records(const ObjectForm& form, const Bundle& bundle, std::uint32_t pages,
                                         ShardId shard);
// Of the whole object, header included.
std::uint64_t object_bytes(const ObjectForm& form, const Bundle& bundle, std::uint32_t pages, ShardId shard);

// What names are made of, for one namespace under its two markers.
struct ObjectSpace {
  Digest digest{};
  friend bool operator==(const ObjectSpace&, const ObjectSpace&) = default;
};
using MarkerNumber = std::array<std::byte, 16>;
ObjectSpace object_space(const Digest& root, const Digest& form, const MarkerNumber& of_form,
                         const MarkerNumber& of_namespace);

// Which object of a space.
struct ObjectLabel {
  ObjectSpace space;
  Key key;  // of the run's last page
  BundleId bundle;
  std::uint32_t pages = 1;
  ShardId shard;
  friend bool operator==(const ObjectLabel&, const ObjectLabel&) = default;
};
std::string object_name(const ObjectLabel& label);  // "t1.<space>.<key>.b0.n16.s0"
std::string form_marker_name(const Digest& form);
std::string namespace_marker_name(const Digest& root, const Digest& form);

// Writes all kObjectHeaderBytes of `out`. `computation`: the same in all shards that were stored together,
// and in no others: shards of one class-set never come from different computations. Not 0.
void encode_object_header(const ObjectLabel& label, std::uint64_t computation, std::uint64_t bytes,
                          MutableByteView out);
// The header of the object that is asked for; its computation. Errors: data_corrupt naming the first field
// that differs, wanted and got; failed_precondition: of another version. Requires: kObjectHeaderBytes.
Result<std::uint64_t> parse_object_header(ByteView header, const ObjectLabel& wanted, std::uint64_t bytes);

// Requires: kMarkerBytes.
void encode_marker(const MarkerNumber& number, MutableByteView out);
Result<MarkerNumber> parse_marker(ByteView bytes);

}  // namespace tiercel::remote
