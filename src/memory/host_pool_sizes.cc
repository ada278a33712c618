#include "memory/host_pool_sizes.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include <fmt/format.h>

#include "base/checked.h"
#include "base/sizes.h"

namespace tiercel {
namespace {

tl::unexpected<Status> bad(std::string message) { return error(Code::kInvalidArgument, std::move(message)); }

// Splits a total of bytes. Every step asks for the real size of the whole, alignment and rounding included,
// so that no estimate can exceed the total.
class Splitting {
 public:
  Splitting(const std::vector<SlotDomain>& domains, const std::vector<OwnedBuffer>& buffers,
            std::uint64_t total, std::uint64_t rounding)
      : domains_(domains), buffers_(buffers), total_(total), rounding_(rounding), pages_(domains.size(), 1) {}

  Result<std::vector<std::uint64_t>> run() {
    const auto least = size(pages_);
    if (!least || *least > total_)
      return bad(fmt::format(
          "host pools: total bytes: wanted at least {} ({}) for a page or snapshot of each of {} "
          "pools with slots of their own, got {} ({}); raise the total",
          least ? fmt::to_string(*least) : "more than 2^63 - 1",
          least ? format_size(*least) : "no machine has them", domains_.size(), total_, format_size(total_)));
    std::vector<bool> open = costly();
    if (std::find(open.begin(), open.end(), true) == open.end())
      return bad("host pools: total bytes: wanted pools that have bytes, got none; say a number of pages");
    give_resume_points();
    while (std::find(open.begin(), open.end(), true) != open.end()) {
      give_shares(open);
      close_one(open);
    }
    // A share of a window is many pages: what is left may hold some of them.
    for (std::size_t i = 0; i < domains_.size(); ++i)
      if (costly_[i]) give(one(i, 1));
    return pages_;
  }

 private:
  using Pages = std::vector<std::uint64_t>;

  std::optional<std::uint64_t> size(const Pages& pages) const {
    const auto bytes = laid_out_bytes(buffers_, pages);
    if (!bytes) return std::nullopt;
    return checked_mul(ceil_div(*bytes, rounding_), rounding_);
  }
  bool fits(const Pages& pages) const {
    const auto bytes = size(pages);
    return bytes && *bytes <= total_;
  }

  // Domains whose pages take bytes; the others follow as far as a resume point needs them.
  std::vector<bool> costly() {
    costly_.assign(domains_.size(), false);
    for (const OwnedBuffer& buffer : buffers_)
      if (buffer.page_bytes != 0) costly_[buffer.domain] = true;
    return costly_;
  }

  Pages one(std::size_t domain, std::uint64_t share) const {
    Pages step(domains_.size(), 0);
    step[domain] = share;
    return step;
  }

  // `base` and `times` more of `step`; nothing when a count passes 2^63 - 1.
  static std::optional<Pages> grown(const Pages& base, const Pages& step, std::uint64_t times) {
    Pages pages = base;
    for (std::size_t i = 0; i < pages.size(); ++i) {
      const auto more = checked_mul(step[i], times);
      const auto sum = more ? checked_add(pages[i], *more) : std::nullopt;
      if (!sum) return std::nullopt;
      pages[i] = *sum;
    }
    return pages;
  }

  // As many times `step` on top of `base` as fit.
  std::uint64_t times(const Pages& base, const Pages& step) const {
    std::uint64_t low = 0, high = kSizeMax;  // low fits; each step has bytes, so that no high one does
    while (low < high) {
      const std::uint64_t middle = low + (high - low + 1) / 2;
      const auto pages = grown(base, step, middle);
      if (pages && fits(*pages))
        low = middle;
      else
        high = middle - 1;
    }
    return low;
  }
  void give(const Pages& step) { pages_ = *grown(pages_, step, times(pages_, step)); }

  // n whole resume points, the floor of one page each included.
  void give_resume_points() {
    Pages step;
    for (const SlotDomain& domain : domains_) step.push_back(domain.share);
    const std::uint64_t points = times(Pages(domains_.size(), 0), step);
    if (points > 0) pages_ = *grown(Pages(domains_.size(), 0), step, points);
  }

  // What is left, in the same proportion, over the domains that are still open.
  void give_shares(const std::vector<bool>& open) {
    Pages step(domains_.size(), 0);
    for (std::size_t i = 0; i < domains_.size(); ++i)
      if (open[i]) step[i] = domains_[i].share;
    give(step);
  }

  // Of the open ones together no share fits any more: the one that costs most waits no longer.
  void close_one(std::vector<bool>& open) const {
    std::size_t dearest = open.size();
    std::uint64_t most = 0;
    for (std::size_t i = 0; i < open.size(); ++i) {
      if (!open[i]) continue;
      const auto pages = grown(pages_, one(i, domains_[i].share), 1);
      const std::uint64_t cost = pages ? laid_out_bytes(buffers_, *pages).value_or(UINT64_MAX) : UINT64_MAX;
      if (dearest == open.size() || cost > most) dearest = i, most = cost;
    }
    open[dearest] = false;
  }

  const std::vector<SlotDomain>& domains_;
  const std::vector<OwnedBuffer>& buffers_;
  std::uint64_t total_;
  std::uint64_t rounding_;
  Pages pages_;
  std::vector<bool> costly_;
};

Result<std::vector<std::uint64_t>> by_pages(const std::vector<SlotDomain>& domains,
                                            const PagesCapacity& capacity) {
  std::vector<std::uint64_t> pages;
  std::vector<bool> used(capacity.pools.size(), false);
  for (const SlotDomain& domain : domains) {
    pages.push_back(capacity.pages);
    for (std::size_t i = 0; i < capacity.pools.size(); ++i)
      if (capacity.pools[i].first == domain.pool) pages.back() = capacity.pools[i].second, used[i] = true;
    if (pages.back() == 0 || pages.back() > kSizeMax)
      return bad(fmt::format("host pools: pages of pool {}: wanted 1 to {}, got {}", domain.pool, kSizeMax,
                             pages.back()));
  }
  for (std::size_t i = 0; i < used.size(); ++i)
    if (!used[i])
      return bad(fmt::format("host pools: pages: wanted a pool with slots of its own, got '{}'",
                             capacity.pools[i].first));
  return pages;
}

Result<std::vector<std::uint64_t>> by_ratio(const std::vector<SlotDomain>& domains,
                                            const RatioCapacity& capacity) {
  if (!std::isfinite(capacity.ratio) || capacity.ratio <= 0)
    return bad(fmt::format("host pools: ratio: wanted a number above 0, got {}", capacity.ratio));
  std::vector<std::uint64_t> pages;
  for (const SlotDomain& domain : domains) {
    if (domain.device_pages == 0)
      return bad(fmt::format(
          "host pools: ratio: wanted the pages of the device pool of {}, got 0; say device pages, "
          "or a capacity in pages or bytes",
          domain.pool));
    const double wanted = std::ceil(static_cast<double>(domain.device_pages) * capacity.ratio);
    if (!(wanted < 0x1.0p63))
      return bad(fmt::format("host pools: ratio {} of {} device pages of pool {} passes 2^63 - 1 pages",
                             capacity.ratio, domain.device_pages, domain.pool));
    pages.push_back(std::max<std::uint64_t>(static_cast<std::uint64_t>(wanted), 1));
  }
  return pages;
}

}  // namespace

std::optional<std::uint64_t> laid_out_bytes(const std::vector<OwnedBuffer>& buffers,
                                            const std::vector<std::uint64_t>& pages) {
  std::uint64_t end = 0;
  for (const OwnedBuffer& buffer : buffers) {
    const auto bytes = checked_mul(buffer.page_bytes, pages[buffer.domain]);
    if (!bytes) return std::nullopt;
    if (*bytes == 0) continue;
    const auto begin = checked_mul(ceil_div(end, buffer.alignment), buffer.alignment);
    const auto sum = begin ? checked_add(*begin, *bytes) : std::nullopt;
    if (!sum) return std::nullopt;
    end = *sum;
  }
  return end;
}

Result<std::vector<std::uint64_t>> pages_of(const std::vector<SlotDomain>& domains,
                                            const std::vector<OwnedBuffer>& buffers, const Capacity& capacity,
                                            std::uint64_t rounding) {
  if (const auto* pages = std::get_if<PagesCapacity>(&capacity)) return by_pages(domains, *pages);
  if (const auto* ratio = std::get_if<RatioCapacity>(&capacity)) return by_ratio(domains, *ratio);
  return Splitting(domains, buffers, std::get<TotalCapacity>(capacity).bytes, rounding).run();
}

}  // namespace tiercel
