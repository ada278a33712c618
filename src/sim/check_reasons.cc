#include <algorithm>

#include <fmt/format.h>

#include "sim/chain_view.h"
#include "sim/checkers.h"
#include "sim/scene_below.h"
#include "sim/scene_disk.h"
#include "sim/scene_remote.h"

namespace tiercel::sim {
namespace {

class ReasonsChecker final : public Checker {
 public:
  std::string_view name() const override { return "reasons"; }

  std::optional<std::string> check(const Scene& scene) override {
    // Those that waited were answered in the midst of a step: their sums are compared, and what they say of a
    // store.
    if (scene.below != nullptr)
      for (const auto& [id, waiting] : scene.below->answered) {
        const SimTicket& ticket = scene.tickets.at(id);
        auto wrong = check_sums(scene, ticket);
        if (!wrong) wrong = check_store_reasons(scene, ticket, waiting);
        if (wrong) return fmt::format("ticket {}: {}", id.value(), *wrong);
      }
    if (!scene.view.matched) return std::nullopt;
    const SimTicket& ticket = scene.tickets.at(*scene.view.matched);
    auto wrong = check_sums(scene, ticket);
    if (!wrong) wrong = check_pages(scene, ticket);
    if (wrong) return fmt::format("ticket {}: {}", ticket.id.value(), *wrong);
    return std::nullopt;
  }

 private:
  // Every page at or beyond the length exactly once, in order, then the tail.
  static std::optional<std::string> check_sums(const Scene& scene, const SimTicket& ticket) {
    const TicketView& said = ticket.view;
    const std::uint64_t page_tokens = scene.form_of(scene.spaces[ticket.space]).spec.page_tokens;
    const std::uint64_t end = ticket.first_page + ticket.keys.size();
    std::uint64_t next = std::max(said.length, ticket.first_page);
    std::uint64_t tokens = 0;
    std::uint64_t tails = 0;
    for (const Miss& miss : said.missed) {
      if (miss.pages == 0) {
        ++tails;
        const std::uint64_t tail =
            ticket.query.prompt_tokens - std::min(ticket.query.prompt_tokens, end * page_tokens);
        if (miss.tokens != tail) return fmt::format("a tail of {} tokens, {} are left", miss.tokens, tail);
        if (miss.reason != Reason::kTail && miss.reason != Reason::kLimit)
          return "a tail with another reason";
        if ((miss.reason == Reason::kLimit) != (ticket.query.limit_tokens <= end * page_tokens))
          return "the tail is cut by the limit, or it is not";
      } else if (miss.first_page != next) {
        return fmt::format("page {} has no reason, or two", std::min(miss.first_page, next));
      } else if (miss.tokens != miss.pages * page_tokens) {
        return fmt::format("{} pages weigh {} tokens", miss.pages, miss.tokens);
      }
      next += miss.pages;
      tokens += miss.tokens;
    }
    if (next != end) return fmt::format("pages from {} to {} have no reason", next, end);
    if (tails != (ticket.query.prompt_tokens > end * page_tokens ? 1 : 0))
      return "a tail too many or too few";
    if (tokens != said.missed_tokens)
      return fmt::format("{} missed tokens, reasons for {}", said.missed_tokens, tokens);
    return std::nullopt;
  }

  static std::optional<std::string> check_pages(const Scene& scene, const SimTicket& ticket) {
    const ChainView chain = view_chain(scene, ticket);
    for (const Miss& miss : ticket.view.missed) {
      if (miss.when > scene.clock.now()) return "a reason from the future";
      for (std::uint64_t page = miss.first_page; page < miss.first_page + miss.pages; ++page) {
        const std::set<Reason> possible = reasons_of(scene, ticket, chain, page);
        if (possible.contains(miss.reason)) {
          if (auto wrong = check_field(scene, ticket, miss, page)) return wrong;
          continue;
        }
        std::vector<std::string_view> names;
        names.reserve(possible.size());
        for (const Reason reason : possible) names.push_back(reason_name(reason));
        return fmt::format("page {} is missed for {}, it should be {}", page, reason_name(miss.reason),
                           fmt::join(names, " or "));
      }
    }
    return std::nullopt;
  }

  // Contract §5, (a) to (d). More than one where the simulator cannot know.
  static std::set<Reason> reasons_of(const Scene& scene, const SimTicket& ticket, const ChainView& chain,
                                     std::uint64_t page) {
    const StorageForm& form = scene.form_of(scene.spaces[ticket.space]);
    if (page >= chain.limit_pages) return {Reason::kLimit};
    if (page < chain.longest())  // not offered: too little, or more than the session may lease
      return {Reason::kBelowThreshold, Reason::kLimit};
    if (chain.failed[page - chain.first_page]) return any();
    if (scene.below != nullptr) return reasons_over_lower(scene, ticket, chain, page);
    bool resident = form.has_required() || chain.presence[page - chain.first_page] != 0;
    for (const ClassForm& cls : form.classes)
      resident = resident && (!cls.required() || has(chain, cls, ticket, page));
    if (!resident) return own_reasons(scene, ticket, page);
    if (std::any_of(chain.failed.begin(), chain.failed.end(), [](bool each) { return each; })) return any();
    if (form.has_required() && chain.gap < page) return {Reason::kAfterGap};
    std::set<Reason> possible{sparse_reason(form, ticket, chain, page, chain.gap)};
    // Whether a snapshot beyond the limit counts is left open by the contract.
    possible.insert(sparse_reason(form, ticket, chain, page, std::min(chain.gap, chain.limit_pages)));
    return possible;
  }

  static Reason sparse_reason(const StorageForm& form, const SimTicket& ticket, const ChainView& chain,
                              std::uint64_t page, std::uint64_t reach) {
    for (std::uint64_t length = page + 1; length <= reach; ++length) {
      bool snapshots = true;
      for (const ClassForm& cls : form.classes)
        if (cls.is_state()) snapshots = snapshots && has(chain, cls, ticket, length - 1);
      if (snapshots) return Reason::kWindowMissing;
    }
    return Reason::kStateMissing;
  }

  static std::set<Reason> any() {
    std::set<Reason> all;
    for (std::size_t i = 0; i < kReasonCount; ++i) all.insert(static_cast<Reason>(i));
    return all;
  }

  static std::set<Reason> kept_below() {
    return {Reason::kTooLate,     Reason::kTierDown, Reason::kBelowThreshold,
            Reason::kNoRoom,      Reason::kTooLarge, Reason::kQuota,
            Reason::kRateLimited, Reason::kDamaged,  Reason::kEvicted};
  }

  // Over a store alone: it is said to be down only when it was, or failed, since the match was begun; what
  // was too late is there, on its way, or was given up at the deadline.
  static std::optional<std::string> check_store_reasons(const Scene& scene, const SimTicket& ticket,
                                                        const SimWaiting& waiting) {
    if (scene.disk != nullptr || scene.remote->tier->down()) return std::nullopt;
    if (store_troubles(scene) != waiting.troubles || ticket.matched >= waiting.deadline) return std::nullopt;
    const Space& space = scene.spaces[ticket.space];
    for (const Miss& miss : ticket.view.missed) {
      if (miss.reason == Reason::kTierDown)
        return fmt::format("page {} is missed for tier_down, and the store answered all that it was asked",
                           miss.first_page);
      if (miss.reason == Reason::kTooLate && !may_be_late(scene, space.id, ticket))
        return fmt::format("page {} is missed for too_late, and nobody has anything of the prompt",
                           miss.first_page);
    }
    return std::nullopt;
  }

  // Something of the prompt is there or on its way; its pages behind may be missed for that.
  static bool may_be_late(const Scene& scene, NamespaceId ns, const SimTicket& ticket) {
    const Audit& now = scene.view.after;
    for (const Key& key : ticket.keys)
      if (known_remotely(scene, {ns, key}) != 0) return true;
    return std::any_of(now.residences.begin(), now.residences.end(),
                       [&](const AuditResidence& each) { return each.ns == ns && each.from_disk; });
  }

  // All tiers together, as they say themselves. Nothing in the middle of a chain, where the log says less
  // than it has, nor where a load of this request may have failed.
  static std::optional<ChainView> view_all_tiers(const Scene& scene, const SimTicket& ticket,
                                                 ChainView chain) {
    if (ticket.first_page != 0 || scene.failed_loads.contains(ticket.request)) return std::nullopt;
    const Space& space = scene.spaces[ticket.space];
    if (space.dead) return chain;
    for (std::size_t i = 0; i < ticket.keys.size(); ++i) {
      const PageId page{space.id, ticket.keys[i]};
      if (scene.disk != nullptr) chain.presence[i] |= found_below(scene, page);
      if (scene.remote != nullptr) chain.presence[i] |= known_remotely(scene, page);
    }
    find_lengths(scene.form_of(space), ticket, chain);
    return chain;
  }

  // Whether the store has what is missing nobody could say.
  static bool asked_in_vain(const Scene& scene, const SimTicket& ticket) {
    return scene.remote != nullptr && scene.remote->tier->down() && ticket.query.may_promote &&
           !scene.spaces[ticket.space].dead;
  }

  // With lower tiers: what could have come and did not is missed for what kept it below; the rest lacks
  // something everywhere.
  static std::set<Reason> reasons_over_lower(const Scene& scene, const SimTicket& ticket,
                                             const ChainView& chain, std::uint64_t page) {
    const auto all = view_all_tiers(scene, ticket, chain);
    if (!all) return any();
    const StorageForm& form = scene.form_of(scene.spaces[ticket.space]);
    std::set<Reason> possible;
    if (page < all->longest()) {
      possible = kept_below();
      possible.insert({Reason::kAfterGap, Reason::kInFlight});
      // Without a required class a length may need nothing of this page.
      if (!form.has_required()) possible.merge(own_reasons(scene, ticket, page));
      return possible;
    }
    bool resident = form.has_required() || all->presence[page] != 0;
    for (const ClassForm& cls : form.classes)
      resident = resident && (!cls.required() || has(*all, cls, ticket, page));
    if (resident) {
      if (form.has_required() && all->gap < page) return {Reason::kAfterGap};
      if (asked_in_vain(scene, ticket)) return {Reason::kTierDown};
      return {sparse_reason(form, ticket, *all, page, all->gap),
              sparse_reason(form, ticket, *all, page, std::min(all->gap, all->limit_pages))};
    }
    possible = own_reasons(scene, ticket, page);
    if (possible.contains(Reason::kInFlight)) {  // it may be on its way up, not in
      possible.merge(kept_below());
      return possible;
    }
    possible.insert({Reason::kEvicted, Reason::kSecondTouch, Reason::kWriteBudget, Reason::kQuota,
                     Reason::kTooLarge, Reason::kNoRoom, Reason::kRateLimited});
    if (scene.scenario.weather.damage || scene.remote != nullptr ||
        (scene.disk != nullptr && scene.scenario.disk->nature.lies()))
      possible.insert(Reason::kDamaged);
    if (!asked_in_vain(scene, ticket)) return possible;
    for (const Reason reason : {Reason::kNeverStored, Reason::kEvicted, Reason::kUnknownPast})
      possible.erase(reason);
    possible.insert(Reason::kTierDown);
    return possible;
  }

  static std::set<Reason> own_reasons(const Scene& scene, const SimTicket& ticket, std::uint64_t page) {
    if (scene.scenario.options.off) return {Reason::kTierDown};
    const Space& space = scene.spaces[ticket.space];
    const PageId id{space.id, ticket.keys[page - ticket.first_page]};
    for (const AuditResidence& each : scene.view.after.residences)
      if (each.ns == id.ns && each.key == id.key && !scene.cleared_generations.contains(each.generation) &&
          each.state != ResidenceState::kHidden && each.state != ResidenceState::kQuarantined)
        return {Reason::kInFlight};
    const PageRecord* record = scene.book.find(id);
    std::set<Reason> possible = record != nullptr ? record->past : std::set<Reason>{Reason::kNeverStored};
    // What a short history has forgotten the filter decides, as far back as it reaches.
    if (!scene.book.history_complete()) possible.insert({Reason::kUnknownPast, Reason::kNeverStored});
    if (!possible.contains(Reason::kNeverStored)) return possible;
    if (other_form(scene, space, id.key) != nullptr) possible.insert(Reason::kOtherForm);
    if (possible.contains(Reason::kOtherForm) && possible.size() == 2) possible.erase(Reason::kNeverStored);
    if (page == 0 && ticket.query.probe) possible.insert(Reason::kOtherIdentity);
    return possible;
  }

  static const Space* other_form(const Scene& scene, const Space& space, const Key& key) {
    for (const Space& other : scene.spaces)
      if (other.id != space.id && other.root == space.root && scene.book.presence({other.id, key}) != 0)
        return &other;
    return nullptr;
  }

  static std::optional<std::string> check_field(const Scene& scene, const SimTicket& ticket, const Miss& miss,
                                                std::uint64_t page) {
    const Space& space = scene.spaces[ticket.space];
    if (miss.reason == Reason::kOtherForm) {
      const Space* other = other_form(scene, space, ticket.keys[page - ticket.first_page]);
      if (other == nullptr) return "another form is named, and none has the page";
      const auto field = first_difference(scene.form_of(space), scene.form_of(*other));
      if (!field || *field != miss.field)
        return fmt::format("the other form differs in {}, {} is named", field.value_or("nothing"),
                           miss.field);
    }
    if (miss.reason != Reason::kOtherIdentity) return std::nullopt;
    for (const Space& other : scene.spaces) {
      if (other.id == space.id || other.salt != space.salt || other.dead) continue;
      ContentIdentity a = space.identity;
      ContentIdentity b = other.identity;
      if (first_difference(a, b) == miss.field) return std::nullopt;
    }
    return fmt::format("another identity is named that differs in {}, and there is none", miss.field);
  }
};

}  // namespace

std::unique_ptr<Checker> reasons_checker() { return std::make_unique<ReasonsChecker>(); }

}  // namespace tiercel::sim
