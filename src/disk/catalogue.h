// Namespaces and forms of a log by number, with the texts that people read; bounded in bytes, since all of it
// is in every image.
//
// Threads: one thread.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/bytes.h"
#include "base/sha256.h"
#include "base/status.h"
#include "disk/disk_log.h"

namespace tiercel::disk {

inline constexpr std::size_t kSpaceTextMax = 16384;
// Of one name: what it says of records must be small in memory, too, however few bytes it is written with.
inline constexpr std::size_t kSpaceClassesMax = 256;
inline constexpr std::size_t kSpaceRunsMax = 16384;  // of all classes
inline constexpr std::uint32_t kNameBlocksMax = 6;   // of an entry's payload
// Of all names together. What a name has beyond it is not kept: its records are verified by the model alone.
inline constexpr std::size_t kCatalogueRunsMax = 1 << 22;

std::size_t runs_of(const DiskSpaceName& name);

class Catalogue final {
 public:
  explicit Catalogue(std::uint64_t bytes_max) : bytes_max_(bytes_max) {}

  std::optional<DiskSpaceId> find(const Digest& root, const Digest& form) const;
  const DiskSpaceName* name(DiskSpaceId id) const;  // null: unknown
  // A new number, or nothing when there is no room for it. Requires: not found.
  std::optional<DiskSpaceId> add(const DiskSpaceName& name);
  // As read from the log. Errors: data_corrupt: another name has the number, or the name another number, or
  // there is no room for it. A name known without text and runs takes those of the new one.
  Status learn(DiskSpaceId id, const DiskSpaceName& name);
  // A number that something in the log has, whether or not its name is known: no new name gets it.
  void seen(DiskSpaceId id) { last_ = std::max(last_, id.value()); }
  std::vector<DiskSpaceId> of_form(const Digest& form) const;
  std::vector<DiskSpaceId> all() const;

  // The form's own numbers: when it was last cleared, and its weights epoch. Higher ones hold. Room for them
  // is kept for every form of a name; those of a form without any are forgotten where there is none.
  void note_form(const Digest& form, std::uint64_t cleared_at, std::uint64_t weights_epoch);
  std::uint64_t form_cleared_at(const Digest& form) const;
  std::uint64_t weights_epoch(const Digest& form) const;

  // A kName entry's payload, without its padding: u32 id · root · form · u32 text length · text · u16 classes
  // · of each class u32 groups · of each group of runs of one length u32 count and u64 length. (A hundred
  // layers of one length are 12 bytes: ten thousand adapters must not fill the catalogue with run lengths.)
  // Last, u32 CRC32C of it: no other checksum covers it. Requires: at most kSpaceClassesMax classes and
  // kSpaceRunsMax runs. Errors of parse_name: data_corrupt; `bytes` may go on behind it.
  static std::vector<std::byte> encode_name(DiskSpaceId id, const DiskSpaceName& name);
  static Result<std::pair<DiskSpaceId, DiskSpaceName>> parse_name(ByteView bytes);

  std::uint64_t bytes() const { return bytes_; }  // of append_to()
  void append_to(std::vector<std::byte>& out) const;
  // Errors: data_corrupt. Returns: bytes read. Requires: empty.
  Result<std::uint64_t> load_from(ByteView bytes);

 private:
  struct Form {
    std::uint64_t cleared_at = 0, weights_epoch = 0;
  };
  // False: no room. Requires: neither number nor name is there.
  bool take(DiskSpaceId id, const DiskSpaceName& name);
  void learn_more(DiskSpaceId id, const DiskSpaceName& name);
  DiskSpaceName what_is_kept(const DiskSpaceName& name) const;
  Result<void> load_forms(ByteView list);
  Result<void> load_names(ByteView list, std::uint32_t count);

  std::uint64_t bytes_max_;
  std::uint64_t bytes_ = 16;
  std::size_t runs_ = 0;
  std::uint32_t last_ = 0;
  std::map<std::pair<Digest, Digest>, DiskSpaceId> ids_;
  std::map<DiskSpaceId, DiskSpaceName> names_;
  std::map<Digest, Form> forms_;
};

}  // namespace tiercel::disk
