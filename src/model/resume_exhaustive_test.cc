// Every small question to the resume rule, compared with the second statement of it in resume_reference.h.

#include <cstdio>

#include <gtest/gtest.h>

#include "model/resume.h"
#include "model/resume_reference.h"

namespace tiercel {
namespace {

using resume_reference::describe;
using resume_reference::disagreement;
using resume_reference::form_of;
using resume_reference::NeedTable;
using resume_reference::Reference;
using resume_reference::window_of_pages;

constexpr std::uint64_t kPageTokens = 4;

struct Case {
  std::string name;
  StorageForm form;
};

Retention window(std::uint64_t pages) { return window_of_pages(kPageTokens, pages); }
Case case_of(std::string name, const std::vector<Retention>& classes) {
  return {std::move(name), form_of(kPageTokens, classes)};
}

// Whether limits are asked one by one, or each question once without and once with one that moves along.
enum class Limits { kEvery, kMoving };
// Whether presence bits of pages that are held anyway take both values or stay 0.
enum class BelowHeld { kBoth, kAbsent };

struct Breadth {
  std::uint64_t pages_max;  // first_page + pages asked
  Limits limits;
  BelowHeld below_held;
};

class Sweep final {
 public:
  Sweep(const Case& subject, Breadth breadth)
      : form_(subject.form), breadth_(breadth), table_(subject.form, breadth.pages_max) {}

  // The number of questions asked; stops at the first wrong answer.
  std::uint64_t run() {
    for (std::uint64_t end = 0; end <= breadth_.pages_max; ++end)
      for (std::uint64_t first = 0; first <= end; ++first) ask_about_chain(first, end);
    return asked_;
  }

 private:
  void ask_about_chain(std::uint64_t first, std::uint64_t end) {
    const std::uint64_t classes = form_.classes.size();
    pages_.assign(end - first, 0);
    const std::uint64_t subsets = std::uint64_t{1} << (classes * (end - first));
    for (std::uint64_t subset = 0; subset < subsets; ++subset) {
      for (std::uint64_t page = 0; page < pages_.size(); ++page)
        pages_[page] = static_cast<Presence>(subset >> (page * classes) & ((1U << classes) - 1));
      held_.assign(classes, 0);
      do {
        if (!redundant(first)) ask(first, end);
        if (::testing::Test::HasFailure()) return;
      } while (next_held(end + 1));
    }
  }

  // Counts held_ up; false after the last combination. Held goes one beyond the end of the query.
  bool next_held(std::uint64_t last) {
    for (std::uint64_t& held : held_) {
      if (held < last) return ++held, true;
      held = 0;
    }
    return false;
  }

  bool redundant(std::uint64_t first) const {
    if (breadth_.below_held == BelowHeld::kBoth) return false;
    for (std::size_t c = 0; c < held_.size(); ++c) {
      if (form_.classes[c].is_state()) continue;
      for (std::uint64_t page = first; page < held_[c] && page - first < pages_.size(); ++page)
        if ((pages_[page - first] >> c & 1) != 0) return true;
    }
    return false;
  }

  void ask(std::uint64_t first, std::uint64_t end) {
    ResumeQuery query{pages_, first, held_, UINT64_MAX};
    const Reference reference(form_, table_, query);
    check(reference, query);
    if (breadth_.limits == Limits::kMoving) {
      query.limit_tokens = ++moving_ % ((end + 1) * kPageTokens);
      return check(reference, query);
    }
    for (std::uint64_t limit = 0; limit <= end; ++limit) {
      query.limit_tokens = limit * kPageTokens + limit % kPageTokens;
      check(reference, query);
    }
  }

  void check(const Reference& reference, const ResumeQuery& query) {
    ++asked_;
    const ResumeAnswer answer = restorable(form_, query);
    const std::string wrong = disagreement(form_, reference, query, answer);
    if (!wrong.empty()) ADD_FAILURE() << wrong << ": " << describe(query, answer);
  }

  const StorageForm& form_;
  Breadth breadth_;
  NeedTable table_;
  std::vector<Presence> pages_;
  std::vector<std::uint64_t> held_;
  std::uint64_t asked_ = 0;
  std::uint64_t moving_ = 0;
};

std::uint64_t sweep(const std::vector<Case>& cases, Breadth breadth) {
  std::uint64_t total = 0;
  for (const Case& subject : cases) {
    SCOPED_TRACE(subject.name);
    const std::uint64_t asked = Sweep(subject, breadth).run();
    std::printf("  %-36s up to %llu pages: %10llu questions\n", subject.name.c_str(),
                static_cast<unsigned long long>(breadth.pages_max), static_cast<unsigned long long>(asked));
    total += asked;
    if (::testing::Test::HasFailure()) break;
  }
  std::printf("  total %llu questions\n", static_cast<unsigned long long>(total));
  return total;
}

TEST(ResumeExhaustive, OneAndTwoClassesUpToSixPages) {
  std::puts("  every presence subset x first page x held 0..end+1 per class x every limit");
  const std::vector<Case> cases = {
      case_of("full", {RequiredRetention{}}),
      case_of("window of one token", {window(0)}),
      case_of("window 1", {window(1)}),
      case_of("window 3", {window(3)}),
      case_of("state", {StateRetention{}}),
      case_of("full + window 1", {RequiredRetention{}, window(1)}),
      case_of("full + window 2", {RequiredRetention{}, window(2)}),
      case_of("full + window 3", {RequiredRetention{}, window(3)}),
      case_of("full + state", {RequiredRetention{}, StateRetention{}}),
      case_of("window 2 + state", {window(2), StateRetention{}}),
      case_of("full + optional", {RequiredRetention{}, OptionalRetention{}}),
  };
  EXPECT_GT(sweep(cases, {6, Limits::kEvery, BelowHeld::kBoth}), 20'000'000U);
}

TEST(ResumeExhaustive, ThreeClassesUpToFourPages) {
  std::puts("  every presence subset x first page x held 0..end+1 per class x every limit");
  const std::vector<Case> cases = {
      case_of("full + window 1 + state", {RequiredRetention{}, window(1), StateRetention{}}),
      case_of("full + window 2 + state", {RequiredRetention{}, window(2), StateRetention{}}),
      case_of("full + window 3 + state", {RequiredRetention{}, window(3), StateRetention{}}),
      case_of("full + window 1 + optional", {RequiredRetention{}, window(1), OptionalRetention{}}),
  };
  EXPECT_GT(sweep(cases, {4, Limits::kEvery, BelowHeld::kBoth}), 20'000'000U);
}

TEST(ResumeExhaustive, FourClassesUpToThreePages) {
  std::puts("  every presence subset x first page x held 0..end+1 per class x every limit");
  const std::vector<Case> cases = {
      case_of("full + window 2 + state + optional",
              {RequiredRetention{}, window(2), StateRetention{}, OptionalRetention{}}),
  };
  EXPECT_GT(sweep(cases, {3, Limits::kEvery, BelowHeld::kBoth}), 10'000'000U);
}

TEST(ResumeExhaustive, ThreeClassesUpToSixPagesWithoutWhatIsHeldTwice) {
  std::puts("  every presence subset x first page x held 0..end+1 per class x no limit and a moving one;");
  std::puts("  presence bits of held pages 0 (both values up to four pages above)");
  const std::vector<Case> cases = {
      case_of("full + window 2 + state", {RequiredRetention{}, window(2), StateRetention{}}),
  };
  EXPECT_GT(sweep(cases, {6, Limits::kMoving, BelowHeld::kAbsent}), 10'000'000U);
}

}  // namespace
}  // namespace tiercel
