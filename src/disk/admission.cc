#include "disk/admission.h"

#include <algorithm>

#include "base/checked.h"
#include "base/prng.h"

namespace tiercel::disk {
namespace {

constexpr Duration kDay = std::chrono::hours(24);

// A filter is blocks of one cache line; a name has one block and five bits of it. At 12 bits a name about one
// in 150 unknown names is taken for known; with two filters one in 75.
constexpr std::uint64_t kBlockBits = 512;
constexpr std::uint64_t kBlockWords = kBlockBits / 64;
constexpr std::uint64_t kBitsPerName = 12;
constexpr int kBitsSet = 5;

std::uint64_t filter_words(std::uint64_t entries) {
  return std::max<std::uint64_t>(ceil_div(entries * kBitsPerName, kBlockBits), 1) * kBlockWords;
}

std::uint64_t hash_of(const DiskName& name) {
  return mix64(name.key.words[0] ^
               mix64(name.key.words[1] + (std::uint64_t{name.space.value()} << 16) + name.cls.value()));
}

// Sets the name's bits; whether all were set before.
bool set(std::vector<std::uint64_t>& filter, std::uint64_t hash, bool really) {
  const std::uint64_t blocks = filter.size() / kBlockWords;
  std::uint64_t* const block =
      &filter[static_cast<std::uint64_t>((static_cast<Uint128>(hash) * blocks) >> 64) * kBlockWords];
  std::uint64_t bits = mix64(hash);
  bool known = true;
  for (int i = 0; i < kBitsSet; ++i, bits >>= 9) {
    const std::uint64_t bit = 1ULL << (bits & 63);
    std::uint64_t& word = block[(bits >> 6) & (kBlockWords - 1)];
    known = known && (word & bit) != 0;
    if (really) word |= bit;
  }
  return known;
}

}  // namespace

WriteBudget::WriteBudget(std::optional<std::uint64_t> bytes_per_day, Time now)
    : bytes_per_day_(bytes_per_day), left_(static_cast<double>(bytes_per_day.value_or(0))), at_(now) {}

double WriteBudget::left_at(Time now) const {
  const double day = static_cast<double>(*bytes_per_day_);
  const double passed = static_cast<double>(std::max(now - at_, Duration(0)).count());
  return std::min(day, left_ + day * passed / static_cast<double>(kDay.count()));
}

std::uint64_t WriteBudget::left(Time now) const {
  if (!limited()) return UINT64_MAX;
  return static_cast<std::uint64_t>(std::max(left_at(now), 0.0));
}

void WriteBudget::spend(std::uint64_t bytes, Time now) {
  if (!limited()) return;
  left_ = left_at(now) - static_cast<double>(bytes);
  at_ = std::max(at_, now);
}

SeenBefore::SeenBefore(std::uint64_t entries)
    : now_(filter_words(entries)),
      before_(filter_words(entries)),
      entries_(std::max<std::uint64_t>(entries, 1)) {}

std::uint64_t SeenBefore::nominal_bytes(std::uint64_t entries) {
  return 2 * filter_words(entries) * sizeof(std::uint64_t);
}

bool SeenBefore::note(const DiskName& name) {
  const std::uint64_t hash = hash_of(name);
  const bool older = set(before_, hash, false);
  if (set(now_, hash, true)) return true;
  if (++noted_ >= entries_) {
    now_.swap(before_);
    std::fill(now_.begin(), now_.end(), 0);
    noted_ = 0;
  }
  return older;
}

DiskVerdict Admission::judge(const DiskName& name, std::uint64_t bytes, DiskOffer offer, bool room_unused,
                             Time now) {
  const bool asks_twice = offer != DiskOffer::kClosing && (rule_ == DiskAdmission::kSecondTouch ||
                                                           (rule_ == DiskAdmission::kAuto && !room_unused));
  // Noted even where nobody asks: when the room is used up, what was there at first has been seen.
  const bool seen = rule_ == DiskAdmission::kAll || seen_.note(name);
  if (asks_twice && !seen) return DiskVerdict::kSecondTouch;
  return bytes <= budget_.left(now) ? DiskVerdict::kAccepted : DiskVerdict::kWriteBudget;
}

}  // namespace tiercel::disk
