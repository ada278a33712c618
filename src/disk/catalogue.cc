#include "disk/catalogue.h"

#include <algorithm>
#include <string_view>

#include <fmt/format.h>

#include "base/check.h"
#include "base/crc32c.h"
#include "disk/format.h"

namespace tiercel::disk {
namespace {

// u32 names · u32 forms · u64 bytes of all · each name, ascending by number · each form, ascending by
// fingerprint: fingerprint · u64 cleared at · u64 weights epoch. Every name's form is among the forms.
constexpr std::uint64_t kHeadBytes = 16;
// u32 number · root · form · u32 text length, then the text and the runs.
constexpr std::uint64_t kNameBytes = 4 + 32 + 32 + 4;
// u16 classes · of each u32 groups · of each group u32 count · u64 length; groups of one class that follow
// each other differ in length, so that a list has one encoding.
constexpr std::uint64_t kGroupBytes = 4 + 8;
constexpr std::uint64_t kFormBytes = 32 + 8 + 8;
constexpr std::uint64_t kCrcBytes = 4;

tl::unexpected<Status> damaged(std::string_view field, std::string_view wanted, std::uint64_t got) {
  return error(Code::kDataCorrupt, fmt::format("catalogue: {}: wanted {}, got {}", field, wanted, got));
}

std::string_view kept(std::string_view text) { return text.substr(0, kSpaceTextMax); }

struct RunGroup {
  std::uint32_t count = 0;
  std::uint64_t length = 0;
};
std::vector<RunGroup> groups_of(const std::vector<std::uint64_t>& runs) {
  std::vector<RunGroup> groups;
  for (const std::uint64_t length : runs) {
    if (groups.empty() || groups.back().length != length) groups.push_back({0, length});
    ++groups.back().count;
  }
  return groups;
}

// Of the whole encoded name, without a checksum.
std::uint64_t name_bytes(const DiskSpaceName& name) {
  std::uint64_t bytes = kNameBytes + kept(name.text).size() + sizeof(std::uint16_t);
  for (const auto& runs : name.runs) bytes += sizeof(std::uint32_t) + groups_of(runs).size() * kGroupBytes;
  return bytes;
}

void append_runs(std::vector<std::byte>& out, const DiskSpaceName& name) {
  append_le(out, static_cast<std::uint16_t>(name.runs.size()));
  for (const auto& runs : name.runs) {
    const std::vector<RunGroup> groups = groups_of(runs);
    append_le(out, static_cast<std::uint32_t>(groups.size()));
    for (const RunGroup& group : groups) {
      append_le(out, group.count);
      append_le(out, group.length);
    }
  }
}

void append_name(std::vector<std::byte>& out, DiskSpaceId id, const DiskSpaceName& name) {
  const std::string_view text = kept(name.text);
  append_le(out, id.value());
  append_bytes(out, name.root);
  append_bytes(out, name.form);
  append_le(out, static_cast<std::uint32_t>(text.size()));
  append_bytes(out, as_byte_view(text));
  append_runs(out, name);
}

Digest digest_at(const std::byte* from) {
  Digest digest;
  std::copy_n(from, digest.size(), digest.begin());
  return digest;
}

// Takes what lies in front of `bytes`, if there is as much.
template <typename UInt>
bool take_number(ByteView& bytes, UInt& value) {
  if (bytes.size() < sizeof(UInt)) return false;
  value = load_le<UInt>(bytes.data());
  bytes = bytes.subspan(sizeof(UInt));
  return true;
}

// The runs at the start of `bytes`.
Result<std::vector<std::vector<std::uint64_t>>> runs_at(ByteView bytes) {
  std::uint16_t classes = 0;
  if (!take_number(bytes, classes)) return damaged("bytes of a name's runs", "at least 2", bytes.size());
  if (classes > kSpaceClassesMax)
    return damaged("classes of a name", fmt::format("at most {}", kSpaceClassesMax), classes);
  std::vector<std::vector<std::uint64_t>> runs(classes);
  std::uint64_t all = 0;
  for (auto& list : runs) {
    std::uint32_t groups = 0;
    if (!take_number(bytes, groups) || groups > bytes.size() / kGroupBytes)
      return damaged("groups of runs of a name", "what the bytes hold", groups);
    for (std::uint32_t i = 0; i < groups; ++i) {
      RunGroup group;
      take_number(bytes, group.count);
      take_number(bytes, group.length);
      all += group.count;
      if (group.count == 0 || all > kSpaceRunsMax || (!list.empty() && list.back() == group.length))
        return damaged("runs of a name", fmt::format("1 to {}, each length once in a row", kSpaceRunsMax),
                       group.count);
      list.insert(list.end(), group.count, group.length);
    }
  }
  return runs;
}

// The name at the start of `bytes`.
Result<std::pair<DiskSpaceId, DiskSpaceName>> name_at(ByteView bytes) {
  if (bytes.size() < kNameBytes)
    return damaged("bytes of a name", fmt::format("at least {}", kNameBytes), bytes.size());
  const DiskSpaceId id(load_le<std::uint32_t>(bytes.data()));
  if (id.value() == 0) return damaged("number of a name", "not 0", 0);
  const auto length = load_le<std::uint32_t>(bytes.data() + kNameBytes - 4);
  if (length > kSpaceTextMax || length > bytes.size() - kNameBytes)
    return damaged("text of a name",
                   fmt::format("at most {} of {} bytes", kSpaceTextMax, bytes.size() - kNameBytes), length);
  DiskSpaceName name{
      digest_at(bytes.data() + 4), digest_at(bytes.data() + 36), std::string(length, '\0'), {}};
  std::transform(bytes.begin() + kNameBytes, bytes.begin() + static_cast<std::ptrdiff_t>(kNameBytes + length),
                 name.text.begin(), [](std::byte b) { return static_cast<char>(b); });
  TIERCEL_ASSIGN_OR_RETURN(name.runs, runs_at(bytes.subspan(kNameBytes + length)));
  return std::pair(id, std::move(name));
}

}  // namespace

std::size_t runs_of(const DiskSpaceName& name) {
  std::size_t runs = 0;
  for (const auto& list : name.runs) runs += list.size();
  return runs;
}

std::optional<DiskSpaceId> Catalogue::find(const Digest& root, const Digest& form) const {
  const auto found = ids_.find({root, form});
  if (found == ids_.end()) return std::nullopt;
  return found->second;
}

const DiskSpaceName* Catalogue::name(DiskSpaceId id) const {
  const auto found = names_.find(id);
  return found == names_.end() ? nullptr : &found->second;
}

DiskSpaceName Catalogue::what_is_kept(const DiskSpaceName& name) const {
  DiskSpaceName shorter{name.root, name.form, std::string(kept(name.text)), {}};
  if (runs_ + runs_of(name) <= kCatalogueRunsMax) shorter.runs = name.runs;
  return shorter;
}

bool Catalogue::take(DiskSpaceId id, const DiskSpaceName& asked) {
  DiskSpaceName name = what_is_kept(asked);
  const std::uint64_t more = name_bytes(name) + (forms_.contains(name.form) ? 0 : kFormBytes);
  if (bytes_ > bytes_max_ || more > bytes_max_ - bytes_) return false;
  bytes_ += more;
  last_ = std::max(last_, id.value());
  ids_.emplace(std::pair(name.root, name.form), id);
  runs_ += runs_of(name);
  forms_.try_emplace(name.form);
  names_.emplace(id, std::move(name));
  return true;
}

std::optional<DiskSpaceId> Catalogue::add(const DiskSpaceName& name) {
  TIERCEL_CHECK(!find(name.root, name.form));
  if (last_ == UINT32_MAX) return std::nullopt;
  const DiskSpaceId id(last_ + 1);
  if (!take(id, name)) return std::nullopt;
  return id;
}

void Catalogue::learn_more(DiskSpaceId id, const DiskSpaceName& asked) {
  DiskSpaceName& known = names_.at(id);
  if (!known.text.empty() || !known.runs.empty()) return;
  DiskSpaceName name = what_is_kept(asked);
  const std::uint64_t more = name_bytes(name) - name_bytes(known);
  if (more > bytes_max_ - bytes_) return;
  bytes_ += more;
  runs_ += runs_of(name);
  known = std::move(name);
}

Status Catalogue::learn(DiskSpaceId id, const DiskSpaceName& name) {
  const auto known = find(name.root, name.form);
  if (known && *known == id) {
    learn_more(id, name);
    return {};
  }
  if (known)
    return damaged("number of a name", fmt::format("{}, as before", known->value()), id.value()).value();
  if (id.value() == 0 || names_.contains(id))
    return damaged("number of a new name", "one that no other has", id.value()).value();
  if (!take(id, name))
    return damaged("bytes", fmt::format("at most {}", bytes_max_), bytes_ + kNameBytes).value();
  return {};
}

std::vector<DiskSpaceId> Catalogue::of_form(const Digest& form) const {
  std::vector<DiskSpaceId> ids;
  for (const auto& [id, name] : names_)
    if (name.form == form) ids.push_back(id);
  return ids;
}

std::vector<DiskSpaceId> Catalogue::all() const {
  std::vector<DiskSpaceId> ids;
  ids.reserve(names_.size());
  for (const auto& [id, name] : names_) ids.push_back(id);
  return ids;
}

void Catalogue::note_form(const Digest& form, std::uint64_t cleared_at, std::uint64_t weights_epoch) {
  auto found = forms_.find(form);
  if (found == forms_.end()) {
    if (bytes_ > bytes_max_ || kFormBytes > bytes_max_ - bytes_) return;
    bytes_ += kFormBytes;
    found = forms_.try_emplace(form).first;
  }
  found->second.cleared_at = std::max(found->second.cleared_at, cleared_at);
  found->second.weights_epoch = std::max(found->second.weights_epoch, weights_epoch);
}

std::uint64_t Catalogue::form_cleared_at(const Digest& form) const {
  const auto found = forms_.find(form);
  return found == forms_.end() ? 0 : found->second.cleared_at;
}

std::uint64_t Catalogue::weights_epoch(const Digest& form) const {
  const auto found = forms_.find(form);
  return found == forms_.end() ? 0 : found->second.weights_epoch;
}

std::vector<std::byte> Catalogue::encode_name(DiskSpaceId id, const DiskSpaceName& name) {
  std::vector<std::byte> bytes;
  bytes.reserve(name_bytes(name) + kCrcBytes);
  append_name(bytes, id, name);
  append_le(bytes, crc32c(bytes));
  return bytes;
}

Result<std::pair<DiskSpaceId, DiskSpaceName>> Catalogue::parse_name(ByteView bytes) {
  TIERCEL_ASSIGN_OR_RETURN(auto parsed, name_at(bytes));
  const std::uint64_t checked = name_bytes(parsed.second);
  if (bytes.size() - checked < kCrcBytes)
    return damaged("bytes of a name", fmt::format("at least {}", checked + kCrcBytes), bytes.size());
  const auto wanted = load_le<std::uint32_t>(bytes.data() + checked);
  const std::uint32_t got = crc32c(bytes.first(checked));
  if (wanted != got) return damaged("checksum of a name", fmt::format("{}", wanted), got);
  return parsed;
}

void Catalogue::append_to(std::vector<std::byte>& out) const {
  append_le(out, static_cast<std::uint32_t>(names_.size()));
  append_le(out, static_cast<std::uint32_t>(forms_.size()));
  append_le(out, bytes_);
  for (const auto& [id, name] : names_) append_name(out, id, name);
  for (const auto& [form, numbers] : forms_) {
    append_bytes(out, form);
    append_le(out, numbers.cleared_at);
    append_le(out, numbers.weights_epoch);
  }
}

Result<std::uint64_t> Catalogue::load_from(ByteView bytes) {
  TIERCEL_CHECK(names_.empty() && forms_.empty());
  if (bytes.size() < kHeadBytes) return damaged("size", fmt::format("at least {}", kHeadBytes), bytes.size());
  const auto names = load_le<std::uint32_t>(bytes.data());
  const auto forms = load_le<std::uint32_t>(bytes.data() + 4);
  const auto whole = load_le<std::uint64_t>(bytes.data() + 8);
  if (whole < kHeadBytes || whole > bytes.size() || whole > bytes_max_)
    return damaged("bytes",
                   fmt::format("{} to {}", kHeadBytes, std::min<std::uint64_t>(bytes.size(), bytes_max_)),
                   whole);
  ByteView rest = bytes.subspan(kHeadBytes, whole - kHeadBytes);
  if (forms > rest.size() / kFormBytes) return damaged("forms", "what the bytes hold", forms);
  const ByteView form_list = rest.last(forms * kFormBytes);
  TIERCEL_RETURN_IF_ERROR(load_forms(form_list));
  TIERCEL_RETURN_IF_ERROR(load_names(rest.first(rest.size() - form_list.size()), names));
  return whole;
}

Result<void> Catalogue::load_forms(ByteView list) {
  for (; !list.empty(); list = list.subspan(kFormBytes)) {
    const Digest form = digest_at(list.data());
    const Form numbers{load_le<std::uint64_t>(list.data() + 32), load_le<std::uint64_t>(list.data() + 40)};
    if (!forms_.empty() && form <= forms_.rbegin()->first)
      return damaged("forms", "ascending order", forms_.size());
    if (numbers.cleared_at > kAtMax)
      return damaged("number of a form's clear", fmt::format("at most {}", kAtMax), numbers.cleared_at);
    forms_.emplace_hint(forms_.end(), form, numbers);
  }
  bytes_ += forms_.size() * kFormBytes;
  return {};
}

Result<void> Catalogue::load_names(ByteView list, std::uint32_t count) {
  for (std::uint32_t i = 0; i < count; ++i) {
    TIERCEL_ASSIGN_OR_RETURN(auto parsed, name_at(list));
    const auto& [id, name] = parsed;
    if (id.value() <= last_) return damaged("number of a name", fmt::format("above {}", last_), id.value());
    if (!forms_.contains(name.form)) return damaged("form of a name", "one of those listed", i);
    TIERCEL_RETURN_IF_ERROR(learn(id, name));
    list = list.subspan(name_bytes(name));
  }
  if (!list.empty()) return damaged("names", "as many as there are bytes of", count);
  return {};
}

}  // namespace tiercel::disk
