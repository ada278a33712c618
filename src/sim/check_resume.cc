#include <algorithm>

#include <fmt/format.h>

#include "sim/chain_view.h"
#include "sim/checkers.h"
#include "sim/delivery.h"

namespace tiercel::sim {
namespace {

class ResumeChecker final : public Checker {
 public:
  std::string_view name() const override { return "resume"; }

  std::optional<std::string> check(const Scene& scene) override {
    if (!scene.view.matched) return std::nullopt;
    const SimTicket& ticket = scene.tickets.at(*scene.view.matched);
    if (auto wrong = check_ticket(scene, ticket))
      return fmt::format("ticket {}: {}", ticket.id.value(), *wrong);
    return std::nullopt;
  }

 private:
  static std::optional<std::string> check_ticket(const Scene& scene, const SimTicket& ticket) {
    const TicketView& said = ticket.view;
    const ChainView rule = view_chain(scene, ticket);
    if (said.lengths.empty() || said.lengths.back() != said.length) return "its length is not its longest";
    for (const std::uint64_t length : said.lengths) {
      if (length > rule.limit_pages)
        return fmt::format("length {} is beyond the limit of {} pages", length, rule.limit_pages);
      if (!std::binary_search(rule.lengths.begin(), rule.lengths.end(), length) && !may_fail(rule))
        return fmt::format("length {} is not restorable, offered are {}", length,
                           fmt::join(said.lengths, ","));
    }
    for (const Miss& miss : said.missed)
      if (miss.pages != 0 && miss.first_page + miss.pages > rule.limit_pages && miss.reason != Reason::kLimit)
        return fmt::format("page {} is beyond the limit of {} pages and is missed for {}",
                           miss.first_page + miss.pages - 1, rule.limit_pages, reason_name(miss.reason));
    const std::uint64_t page_tokens = scene.form_of(scene.spaces[ticket.space]).spec.page_tokens;
    const std::uint64_t hit =
        said.length > ticket.first_page ? (said.length - ticket.first_page) * page_tokens : 0;
    if (said.hit_tokens != hit)
      return fmt::format("{} hit tokens at length {}", said.hit_tokens, said.length);
    if (may_fail(rule)) return std::nullopt;
    if (said.known_pages != rule.gap)
      return fmt::format("known_pages is {}, the gap is at {}", said.known_pages, rule.gap);
    std::vector<std::uint64_t> wanted;
    for (const std::uint64_t length : rule.lengths)
      if (length <= said.length) wanted.push_back(length);
    if (wanted != said.lengths)
      return fmt::format("lengths are {}, the rule says {}", fmt::join(said.lengths, ","),
                         fmt::join(rule.lengths, ","));
    if (said.length != rule.longest() && !shortened_by_right(scene, ticket, rule))
      return fmt::format("the longest is {}, the rule says {}", said.length, rule.longest());
    return std::nullopt;
  }

  // A load of this request failed in a way that does not name every page it may now be refused.
  static bool may_fail(const ChainView& rule) {
    return std::any_of(rule.failed.begin(), rule.failed.end(), [](bool each) { return each; });
  }

  // Too little to be worth a load, or more than the session may lease.
  static bool shortened_by_right(const Scene& scene, const SimTicket& ticket, const ChainView& rule) {
    const StorageForm& form = scene.form_of(scene.spaces[ticket.space]);
    const std::uint64_t page_tokens = form.spec.page_tokens;
    const std::uint64_t gain = rule.longest() - ticket.view.length;
    if (gain * page_tokens < scene.scenario.options.load_back_threshold_tokens) return true;
    const auto next = std::upper_bound(rule.lengths.begin(), rule.lengths.end(), ticket.view.length);
    std::uint64_t bytes = 0;
    for (std::uint64_t page = ticket.first_page; page < *next; ++page)
      for (const ClassForm& cls : form.classes)
        if (needed_at(cls, page_tokens, *next, page) || cls.optional()) bytes += cls.set_bytes();
    for (const AuditTicket& each : scene.view.before.tickets)
      if (each.session == ticket.session) bytes += each.leased_bytes;
    for (const AuditResidence& each : scene.view.before.residences)
      if (each.session == ticket.session && each.state != ResidenceState::kResident)
        bytes += each.payload_bytes;
    const SessionOptions options = session_options(scene, scene.spaces[ticket.space].salt, "");
    const auto share = static_cast<std::uint64_t>(scene.scenario.options.client_share *
                                                  static_cast<double>(scene.scenario.arena_bytes));
    return bytes > options.bytes_max.value_or(share);
  }
};

}  // namespace

std::unique_ptr<Checker> resume_checker() { return std::make_unique<ResumeChecker>(); }

}  // namespace tiercel::sim
