#include <map>

#include <fmt/format.h>

#include "sim/actions.h"
#include "sim/checkers.h"

namespace tiercel::sim {
namespace {

// A subscriber: keeps what the events say and nothing else.
class EventsChecker final : public Checker {
 public:
  std::string_view name() const override { return "events"; }

  std::optional<std::string> check(const Scene& scene) override {
    const Events& events = scene.view.events;
    for (const Event& event : events.events) {
      if (event.sequence <= last_) return fmt::format("event {} after event {}", event.sequence, last_);
      holes_ += event.sequence - last_ - 1;
      last_ = event.sequence;
      if (auto wrong = take(scene, event)) return fmt::format("event {}: {}", event.sequence, *wrong);
    }
    lost_ += events.lost;
    if (holes_ > lost_) return fmt::format("{} events are missing, {} were reported lost", holes_, lost_);
    if (events.lost != 0) resync(scene);
    return compare(scene);
  }

 private:
  std::optional<std::string> take(const Scene& scene, const Event& event) {
    if (event.external.size != 0 && event.external != external_name(event.key))
      return "it carries another page's external digest";
    if (event.kind == EventKind::kStored && event.external != external_name(event.key))
      return "it lacks the digest that the page was stored with";
    const PageId page{event.ns, event.key};
    const auto at = visible_.find(page);
    switch (event.kind) {
      case EventKind::kStored:
        if (at != visible_.end() && lost_ == 0) return "stored, and it was visible already";
        if (event.classes == 0) return "stored without any class";
        visible_[page] = event.classes;
        return std::nullopt;
      case EventKind::kAttached:
        if (lost_ != 0) return std::nullopt;
        if (at == visible_.end()) return "attached to a page that is not visible";
        if ((at->second & event.classes) != 0) return "attached a class that was there already";
        at->second |= event.classes;
        return std::nullopt;
      case EventKind::kDropped:
        if (lost_ != 0) return std::nullopt;
        if (at == visible_.end() || (at->second & event.classes) != event.classes)
          return "dropped a class that was not there";
        at->second &= ~event.classes;
        return std::nullopt;
      case EventKind::kRemoved:
        if (at == visible_.end() && lost_ == 0) return "removed a page that was not visible";
        visible_.erase(page);
        return std::nullopt;
      case EventKind::kCleared:
        std::erase_if(visible_, [&](const auto& each) {
          const Space& space = scene.spaces[scene.space_of.at(each.first.ns)];
          return event.ns == NamespaceId{} ? space.form == event.form : space.id == event.ns;
        });
        return std::nullopt;
    }
    return std::nullopt;
  }

  static std::map<PageId, Presence> audited(const Scene& scene) {
    std::map<PageId, Presence> pages;
    for (const AuditResidence& each : scene.view.after.residences)
      if (each.state == ResidenceState::kResident && each.page_visible &&
          !scene.cleared_generations.contains(each.generation))
        pages[{each.ns, each.key}] |= Presence{1} << each.cls.value();
    return pages;
  }

  void resync(const Scene& scene) { visible_ = audited(scene); }

  std::optional<std::string> compare(const Scene& scene) {
    if (lost_ != 0) resync(scene);
    const std::map<PageId, Presence> pages = audited(scene);
    for (const auto& [page, presence] : pages) {
      const auto at = visible_.find(page);
      if (at == visible_.end() || at->second != presence)
        return fmt::format("page {} has classes {:#x}, the events say {:#x}", to_hex(page.key), presence,
                           at == visible_.end() ? 0 : at->second);
    }
    for (const auto& [page, presence] : visible_)
      if (!pages.contains(page))
        return fmt::format("page {} is gone, the events say classes {:#x}", to_hex(page.key), presence);
    return std::nullopt;
  }

  std::map<PageId, Presence> visible_;
  std::uint64_t last_ = 0;
  std::uint64_t holes_ = 0;
  std::uint64_t lost_ = 0;
};

}  // namespace

std::unique_ptr<Checker> events_checker() { return std::make_unique<EventsChecker>(); }

}  // namespace tiercel::sim
