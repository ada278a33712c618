#include "model/resume.h"

#include <algorithm>

#include "base/check.h"

namespace tiercel {
namespace {

// One class's side of a query: what counts as there.
struct ClassView {
  const ClassForm& form;
  std::uint64_t held;

  // State: the one snapshot held lies at the end of page held - 1.
  bool holds(std::uint64_t page) const { return form.is_state() ? page + 1 == held : page < held; }
  bool has(std::uint64_t page, Presence bits) const {
    return holds(page) || ((bits >> form.id.value()) & 1U) != 0;
  }
};

std::vector<ClassView> views(const StorageForm& form, const ResumeQuery& query) {
  std::vector<ClassView> list;
  list.reserve(form.classes.size());
  for (const ClassForm& cls : form.classes)
    list.push_back({cls, query.held.empty() ? 0 : query.held[cls.id.value()]});
  return list;
}

// The lengths 1..first_page, which rest on nothing but what the engine holds. All classes together allow an
// interval, which a state narrows to one length.
void append_held_lengths(const std::vector<ClassView>& classes, std::uint64_t last, ResumeAnswer& answer) {
  std::uint64_t first = 1;
  for (const ClassView& cls : classes) {
    if (cls.form.is_state()) {
      first = std::max(first, cls.held);
      last = std::min(last, cls.held);
    } else if (cls.form.required() || cls.form.window_pages() > 0) {
      last = std::min(last, cls.held);
    }
  }
  for (std::uint64_t length = first; length <= last; ++length) answer.lengths.push_back(length);
}

// Per class, the first page of the unbroken run of present pages that ends where we stand.
std::vector<std::uint64_t> runs_before(const std::vector<ClassView>& classes, std::uint64_t first_page) {
  std::vector<std::uint64_t> starts;
  starts.reserve(classes.size());
  for (const ClassView& cls : classes) starts.push_back(cls.held >= first_page ? 0 : first_page);
  return starts;
}

// The lengths beyond first_page. Stops at the first page that lacks a required class.
void append_found_lengths(const std::vector<ClassView>& classes, const ResumeQuery& query,
                          ResumeAnswer& answer) {
  std::vector<std::uint64_t> run_starts = runs_before(classes, query.first_page);
  const std::uint64_t last = std::min(answer.limit_pages, answer.gap);
  for (std::uint64_t page = query.first_page; page < last; ++page) {
    const Presence bits = query.pages[page - query.first_page];
    const std::uint64_t length = page + 1;
    bool whole = true;
    for (std::size_t c = 0; c < classes.size(); ++c) {
      const ClassView& cls = classes[c];
      const bool present = cls.has(page, bits);
      if (!present) run_starts[c] = length;
      if (cls.form.is_state()) whole = whole && present;
      if (cls.form.is_window())
        whole = whole && length - run_starts[c] >= std::min(length, cls.form.window_pages());
    }
    if (whole) answer.lengths.push_back(length);
  }
}

std::uint64_t first_gap(const std::vector<ClassView>& classes, const ResumeQuery& query, std::uint64_t end) {
  std::uint64_t gap = end;
  for (const ClassView& cls : classes) {
    if (!cls.form.required()) continue;
    std::uint64_t page = std::min(cls.held, gap);
    if (page >= query.first_page)
      while (page < gap && cls.has(page, query.pages[page - query.first_page])) ++page;
    gap = std::min(gap, page);
  }
  return gap;
}

// Pages of [from, to) below first_page that are not held, without looking at each.
std::uint64_t lacking_before(const ClassView& cls, std::uint64_t from, std::uint64_t to) {
  if (from >= to) return 0;
  if (cls.form.is_state()) return to - from - (cls.held > from && cls.held <= to ? 1 : 0);
  return to - std::clamp(cls.held, from, to);
}

std::uint64_t lacking(const ClassView& cls, const ResumeQuery& query, const ResumeAnswer& answer) {
  std::uint64_t count = lacking_before(cls, answer.longest, std::min(query.first_page, answer.limit_pages));
  for (std::uint64_t page = std::max(answer.longest, query.first_page); page < answer.limit_pages; ++page)
    if (!cls.has(page, query.pages[page - query.first_page])) ++count;
  return count;
}

}  // namespace

ResumeAnswer restorable(const StorageForm& form, const ResumeQuery& query) {
  TIERCEL_CHECK(form.spec.page_tokens > 0);
  TIERCEL_CHECK(query.held.empty() || query.held.size() == form.classes.size());
  TIERCEL_CHECK(query.first_page < (std::uint64_t{1} << 63) &&
                query.pages.size() < (std::uint64_t{1} << 63) - query.first_page);
  const std::vector<ClassView> classes = views(form, query);
  const std::uint64_t end = query.first_page + query.pages.size();

  ResumeAnswer answer;
  answer.limit_pages = std::min(end, query.limit_tokens / form.spec.page_tokens);
  answer.gap = first_gap(classes, query, end);
  answer.lengths.push_back(0);
  append_held_lengths(classes, std::min(answer.limit_pages, query.first_page), answer);
  append_found_lengths(classes, query, answer);
  answer.longest = answer.lengths.back();
  answer.lacking.reserve(classes.size());
  for (const ClassView& cls : classes) answer.lacking.push_back(lacking(cls, query, answer));
  return answer;
}

bool needs(const ClassForm& cls, std::uint64_t length, std::uint64_t page) {
  if (page >= length) return false;
  if (cls.required()) return true;
  if (cls.is_window()) return length - page <= cls.window_pages();
  if (cls.is_state()) return page + 1 == length;
  return false;
}

}  // namespace tiercel
