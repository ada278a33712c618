#include "model/resume.h"

#include <algorithm>
#include <array>

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

constexpr std::size_t kClassesMax = 8 * sizeof(Presence);

// The query, class by class; nothing is copied.
struct Question {
  const StorageForm& form;
  const ResumeQuery& query;

  std::size_t classes() const { return form.classes.size(); }
  ClassView at(std::size_t c) const { return {form.classes[c], query.held.empty() ? 0 : query.held[c]}; }
  Presence bits(std::uint64_t page) const { return query.pages[page - query.first_page]; }
  std::uint64_t end() const { return query.first_page + query.pages.size(); }
};

// The lengths 1..first_page, which rest on nothing but what the engine holds. All classes together allow an
// interval, which a state narrows to one length.
void append_held_lengths(const Question& question, ResumeAnswer& answer) {
  std::uint64_t first = 1;
  std::uint64_t last = std::min(answer.limit_pages, question.query.first_page);
  for (std::size_t c = 0; c < question.classes(); ++c) {
    const ClassView cls = question.at(c);
    if (cls.form.is_state()) {
      first = std::max(first, cls.held);
      last = std::min(last, cls.held);
    } else if (cls.form.required() || cls.form.window_pages() > 0) {
      last = std::min(last, cls.held);
    }
  }
  for (std::uint64_t length = first; length <= last; ++length) answer.lengths.push_back(length);
}

// The lengths beyond first_page. Stops at the first page that lacks a required class.
void append_found_lengths(const Question& question, ResumeAnswer& answer) {
  const std::uint64_t first_page = question.query.first_page;
  // Per class, the first page of the unbroken run of present pages that ends where we stand.
  std::array<std::uint64_t, kClassesMax> run_starts;
  for (std::size_t c = 0; c < question.classes(); ++c)
    run_starts[c] = question.at(c).held >= first_page ? 0 : first_page;

  const std::uint64_t last = std::min(answer.limit_pages, answer.gap);
  for (std::uint64_t page = first_page; page < last; ++page) {
    const std::uint64_t length = page + 1;
    bool whole = true;
    for (std::size_t c = 0; c < question.classes(); ++c) {
      const ClassView cls = question.at(c);
      const bool present = cls.has(page, question.bits(page));
      if (!present) run_starts[c] = length;
      if (cls.form.is_state()) whole = whole && present;
      if (cls.form.is_window())
        whole = whole && length - run_starts[c] >= std::min(length, cls.form.window_pages());
    }
    if (whole) answer.lengths.push_back(length);
  }
}

std::uint64_t first_gap(const Question& question) {
  std::uint64_t gap = question.end();
  for (std::size_t c = 0; c < question.classes(); ++c) {
    const ClassView cls = question.at(c);
    if (!cls.form.required()) continue;
    std::uint64_t page = std::min(cls.held, gap);
    if (page >= question.query.first_page)
      while (page < gap && cls.has(page, question.bits(page))) ++page;
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

std::uint64_t lacking(const Question& question, std::size_t c, const ResumeAnswer& answer) {
  const ClassView cls = question.at(c);
  const std::uint64_t first_page = question.query.first_page;
  std::uint64_t count = lacking_before(cls, answer.longest, std::min(first_page, answer.limit_pages));
  for (std::uint64_t page = std::max(answer.longest, first_page); page < answer.limit_pages; ++page)
    if (!cls.has(page, question.bits(page))) ++count;
  return count;
}

}  // namespace

ResumeAnswer restorable(const StorageForm& form, const ResumeQuery& query) {
  TIERCEL_CHECK(form.spec.page_tokens > 0 && form.classes.size() <= kClassesMax);
  TIERCEL_CHECK(query.held.empty() || query.held.size() == form.classes.size());
  TIERCEL_CHECK(query.first_page < (std::uint64_t{1} << 63) &&
                query.pages.size() < (std::uint64_t{1} << 63) - query.first_page);
  const Question question{form, query};

  ResumeAnswer answer;
  answer.limit_pages = std::min(question.end(), query.limit_tokens / form.spec.page_tokens);
  answer.gap = first_gap(question);
  answer.lengths.push_back(0);
  append_held_lengths(question, answer);
  append_found_lengths(question, answer);
  answer.longest = answer.lengths.back();
  answer.lacking.reserve(question.classes());
  for (std::size_t c = 0; c < question.classes(); ++c) answer.lacking.push_back(lacking(question, c, answer));
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
