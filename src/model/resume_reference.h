// A second statement of the resume rule for tests, put together from the sentences of the contract with sets
// instead of runs: which tokens a window reaches, which lengths have a snapshot. Chains of at most 60 pages.
//
// Threads: plain values and pure functions; tests only.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "model/resume.h"

namespace tiercel::resume_reference {

using PageSet = std::uint64_t;  // bit n: page n, or for a state the snapshot of length n

// A hand-made form of these classes, in the order given; pages have `page_tokens` tokens.
inline StorageForm form_of(std::uint64_t page_tokens, const std::vector<Retention>& classes) {
  StorageForm form;
  form.spec.page_tokens = page_tokens;
  for (const Retention& retention : classes) {
    ClassForm cls;
    cls.id = ClassId(static_cast<std::uint16_t>(form.classes.size()));
    cls.name = "class" + std::to_string(form.classes.size());
    cls.retention = retention;
    form.classes.push_back(cls);
  }
  return form;
}

// The widest window of which a resume needs `pages` pages.
inline WindowRetention window_of_pages(std::uint64_t page_tokens, std::uint64_t pages) {
  return {pages * page_tokens + 1, pages};
}

// What class `cls` must have for a resume at `length`.
inline PageSet needed(const ClassForm& cls, std::uint64_t page_tokens, std::uint64_t length) {
  PageSet set = 0;
  if (length == 0) return set;
  if (cls.is_state()) return PageSet{1} << length;
  if (cls.required())
    for (std::uint64_t page = 0; page < length; ++page) set |= PageSet{1} << page;
  if (const auto* window = std::get_if<WindowRetention>(&cls.retention)) {
    // The next token sees itself and the window_tokens - 1 tokens before it.
    const std::uint64_t next = length * page_tokens;
    for (std::uint64_t back = 1; back < window->window_tokens && back <= next; ++back)
      set |= PageSet{1} << ((next - back) / page_tokens);
  }
  return set;
}

// needed() for every class and length of a form, made once for many questions.
class NeedTable final {
 public:
  NeedTable(const StorageForm& form, std::uint64_t pages_max) : stride_(pages_max + 1) {
    for (const ClassForm& cls : form.classes)
      for (std::uint64_t length = 0; length <= pages_max; ++length)
        sets_.push_back(needed(cls, form.spec.page_tokens, length));
  }
  PageSet at(std::size_t cls, std::uint64_t length) const { return sets_[cls * stride_ + length]; }

 private:
  std::uint64_t stride_;
  std::vector<PageSet> sets_;
};

// One question, whatever its limit.
class Reference final {
 public:
  Reference(const StorageForm& form, const NeedTable& table, const ResumeQuery& query)
      : form_(form), end_(query.first_page + query.pages.size()) {
    for (std::size_t c = 0; c < form.classes.size(); ++c) {
      held_[c] = held_set(form.classes[c], query.held.empty() ? 0 : query.held[c]);
      there_[c] = held_[c] | found_set(form.classes[c], c, query);
    }
    for (std::uint64_t length = 0; length <= end_; ++length) {
      const bool reported = length == 0 || length > query.first_page || satisfied(table, held_, length);
      if (reported && satisfied(table, there_, length)) lengths_ |= PageSet{1} << length;
    }
  }
  // Lengths as a set, up to a limit in pages.
  PageSet lengths(std::uint64_t limit_pages) const { return lengths_ & ((PageSet{2} << limit_pages) - 1); }
  std::uint64_t end() const { return end_; }
  std::uint64_t gap() const {
    for (std::uint64_t page = 0; page < end_; ++page)
      for (std::size_t c = 0; c < form_.classes.size(); ++c)
        if (form_.classes[c].required() && (there_[c] >> page & 1) == 0) return page;
    return end_;
  }
  std::uint64_t lacking(std::size_t cls, std::uint64_t from, std::uint64_t to) const {
    const unsigned shift = form_.classes[cls].is_state() ? 1 : 0;
    std::uint64_t count = 0;
    for (std::uint64_t page = from; page < to; ++page)
      if ((there_[cls] >> (page + shift) & 1) == 0) ++count;
    return count;
  }

 private:
  static constexpr std::size_t kClassesMax = 8;
  using Sets = PageSet[kClassesMax];

  static PageSet held_set(const ClassForm& cls, std::uint64_t held) {
    if (cls.is_state()) return held < 64 ? PageSet{1} << held : 0;
    return held < 64 ? (PageSet{1} << held) - 1 : ~PageSet{0};
  }
  static PageSet found_set(const ClassForm& cls, std::size_t c, const ResumeQuery& query) {
    PageSet set = 0;
    for (std::size_t i = 0; i < query.pages.size(); ++i)
      if ((query.pages[i] >> c & 1) != 0) set |= PageSet{1} << (query.first_page + i);
    return cls.is_state() ? set << 1 : set;
  }
  bool satisfied(const NeedTable& table, const Sets& sets, std::uint64_t length) const {
    for (std::size_t c = 0; c < form_.classes.size(); ++c)
      if ((table.at(c, length) & ~sets[c]) != 0) return false;
    return true;
  }

  const StorageForm& form_;
  std::uint64_t end_;
  Sets held_{};
  Sets there_{};
  PageSet lengths_ = 0;
};

// What differs between the answer and the reference; empty when nothing does.
inline std::string disagreement(const StorageForm& form, const Reference& reference, const ResumeQuery& query,
                                const ResumeAnswer& answer) {
  const std::uint64_t limit = query.limit_tokens / form.spec.page_tokens < reference.end()
                                  ? query.limit_tokens / form.spec.page_tokens
                                  : reference.end();
  PageSet reported = 0;
  for (std::size_t i = 0; i < answer.lengths.size(); ++i) {
    if (i > 0 && answer.lengths[i] <= answer.lengths[i - 1]) return "lengths do not ascend";
    if (answer.lengths[i] > limit) return "a length beyond the limit";
    reported |= PageSet{1} << answer.lengths[i];
  }
  if (reported != reference.lengths(limit)) return "lengths";
  if (answer.lengths.empty() || answer.longest != answer.lengths.back()) return "longest";
  if (answer.limit_pages != limit) return "limit_pages";
  if (answer.gap != reference.gap()) return "gap";
  if (answer.lacking.size() != form.classes.size()) return "classes in lacking";
  for (std::size_t c = 0; c < form.classes.size(); ++c)
    if (answer.lacking[c] != reference.lacking(c, answer.longest, limit)) return "lacking";
  return {};
}

inline std::string list_of(const auto& values) {
  std::string text = "{";
  for (const auto& value : values) text += (text.size() > 1 ? ", " : "") + std::to_string(value);
  return text + "}";
}
inline std::string describe(const ResumeQuery& query, const ResumeAnswer& answer) {
  return "pages " + list_of(query.pages) + " first_page " + std::to_string(query.first_page) + " held " +
         list_of(query.held) + " limit_tokens " + std::to_string(query.limit_tokens) + " -> lengths " +
         list_of(answer.lengths) + " limit_pages " + std::to_string(answer.limit_pages) + " gap " +
         std::to_string(answer.gap) + " lacking " + list_of(answer.lacking);
}

}  // namespace tiercel::resume_reference
