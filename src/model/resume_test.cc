#include "model/resume.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "base/prng.h"
#include "model/resume_reference.h"

namespace tiercel {
namespace {

using resume_reference::describe;
using resume_reference::disagreement;
using resume_reference::form_of;
using resume_reference::NeedTable;
using resume_reference::Reference;
using resume_reference::window_of_pages;
using Lengths = std::vector<std::uint64_t>;
using Pages = std::vector<Presence>;

StorageForm full() { return form_of(64, {RequiredRetention{}}); }
StorageForm full_state() { return form_of(64, {RequiredRetention{}, StateRetention{}}); }
StorageForm full_window2() { return form_of(64, {RequiredRetention{}, window_of_pages(64, 2)}); }

Lengths lengths(const StorageForm& form, const Pages& pages, std::uint64_t first_page = 0,
                const Lengths& held = {}, std::uint64_t limit_tokens = UINT64_MAX) {
  return restorable(form, {pages, first_page, held, limit_tokens}).lengths;
}

TEST(Resume, LengthZeroAlwaysIs) {
  EXPECT_EQ(lengths(full(), {}), Lengths{0});
  EXPECT_EQ(lengths(full(), {0, 1}), Lengths{0});
  EXPECT_EQ(lengths(full(), {1, 1}, 0, {}, 63), Lengths{0});
}

TEST(Resume, FullAttentionStopsAtTheFirstGap) {
  EXPECT_EQ(lengths(full(), {1, 1, 0, 1}), (Lengths{0, 1, 2}));
  EXPECT_EQ(restorable(full(), {.pages = Pages{1, 1, 0, 1}, .held = {}}).gap, 2U);
}

TEST(Resume, StateNeedsASnapshotAtExactlyTheLength) {
  EXPECT_EQ(lengths(full_state(), {1, 3, 1, 3, 2}), (Lengths{0, 2, 4}));
}

TEST(Resume, StateHeldIsOneLengthAndNoOther) {
  EXPECT_EQ(lengths(full_state(), {1, 1, 1, 1}, 0, {0, 3}), (Lengths{0, 3}));
  EXPECT_EQ(lengths(full_state(), {1, 1, 1, 1}, 0, {4, 9}), Lengths{0}) << "its length is not asked about";
}

TEST(Resume, WindowNeedsOnlyTheLastPages) {
  EXPECT_EQ(lengths(full_window2(), {1, 3, 3, 1, 3, 3}), (Lengths{0, 3, 6}));
  EXPECT_EQ(lengths(full_window2(), {3, 1, 1}), (Lengths{0, 1}));
  const StorageForm window_only = form_of(64, {window_of_pages(64, 2)});
  EXPECT_EQ(lengths(window_only, {0, 0, 1, 1, 0, 1}), (Lengths{0, 4})) << "earlier pages may be absent";
}

TEST(Resume, AWindowOfOneTokenNeedsNothing) {
  EXPECT_EQ(lengths(form_of(64, {RequiredRetention{}, WindowRetention{1, 0}}), {1, 1}), (Lengths{0, 1, 2}));
}

TEST(Resume, OptionalClassesNeverShorten) {
  const StorageForm form = form_of(64, {RequiredRetention{}, OptionalRetention{}});
  const ResumeAnswer answer = restorable(form, {.pages = Pages{1, 3, 1, 0}, .held = {}, .limit_tokens = 256});
  EXPECT_EQ(answer.longest, 3U);
  EXPECT_EQ(answer.lacking, (Lengths{1, 1}));
}

TEST(Resume, LimitIsInWholePages) {
  EXPECT_EQ(lengths(full(), {1, 1, 1}, 0, {}, 127), (Lengths{0, 1}));
  EXPECT_EQ(lengths(full(), {1, 1, 1}, 0, {}, 128), (Lengths{0, 1, 2}));
}

TEST(Resume, AQueryFromTheMiddleNeedsItsParentsHeld) {
  EXPECT_EQ(lengths(full(), {1, 1}, 3), Lengths{0});
  EXPECT_EQ(lengths(full(), {1, 1}, 3, {2}), (Lengths{0, 1, 2}));
  EXPECT_EQ(lengths(full(), {1, 1}, 3, {3}), (Lengths{0, 1, 2, 3, 4, 5}));
  const StorageForm window_state = form_of(64, {window_of_pages(64, 2), StateRetention{}});
  EXPECT_EQ(lengths(window_state, {3, 3, 3}, 3), (Lengths{0, 5, 6})) << "without a required class";
}

TEST(Resume, LengthsUpToTheFirstPageAreReportedOnlyWhollyHeld) {
  EXPECT_EQ(lengths(full_state(), {3, 3}, 3, {3, 2}), (Lengths{0, 2, 4, 5}));
  EXPECT_EQ(lengths(full_state(), {3, 3}, 3, {1, 2}), Lengths{0});
  EXPECT_EQ(lengths(full_window2(), {3, 3}, 4, {4, 2}), (Lengths{0, 1, 2, 6}));
}

TEST(Resume, FarPagesCostNothing) {
  const std::uint64_t far = (1ULL << 57) + 5;
  const ResumeAnswer answer = restorable(full_state(), {.pages = Pages{3, 3}, .first_page = far, .held = {}});
  EXPECT_EQ(answer.lengths, Lengths{0});
  EXPECT_EQ(answer.lacking, (Lengths{far, far}));
  EXPECT_EQ(lengths(full_state(), {3, 3}, far, {UINT64_MAX, far}), (Lengths{0, far, far + 1, far + 2}));
}

TEST(Resume, NeedsIsTheSameRuleSeenFromAPage) {
  const StorageForm form = form_of(4, {RequiredRetention{}, window_of_pages(4, 2), StateRetention{},
                                       OptionalRetention{}, WindowRetention{1, 0}});
  for (const ClassForm& cls : form.classes)
    for (std::uint64_t length = 0; length < 12; ++length)
      for (std::uint64_t page = 0; page < 14; ++page) {
        const std::uint64_t bit = cls.is_state() ? page + 1 : page;
        const bool wanted = (resume_reference::needed(cls, 4, length) >> bit & 1) != 0;
        EXPECT_EQ(needs(cls, length, page), wanted) << cls.name << " " << length << " " << page;
      }
}

// Up to 40 pages and 8 classes of any kind; presence dense enough that long prefixes survive. Empty when
// right.
std::string random_disagreement(Prng& random) {
  const std::uint64_t page_tokens = random.between(1, 20);
  std::vector<Retention> classes;
  for (std::uint64_t c = random.between(1, 8); c > 0; --c) {
    const std::uint64_t window = random.between(1, 6 * page_tokens);
    const std::uint64_t window_pages = (window - 1 + page_tokens - 1) / page_tokens;
    const Retention choices[] = {RequiredRetention{}, WindowRetention{window, window_pages}, StateRetention{},
                                 OptionalRetention{}};
    classes.push_back(choices[random.below(4)]);
  }
  const StorageForm form = form_of(page_tokens, classes);
  const std::uint64_t first_page = random.chance(0.5) ? 0 : random.below(12);
  Pages pages(random.below(40));
  const double density = 0.7 + 0.3 * random.unit();
  for (Presence& page : pages)
    for (std::size_t c = 0; c < classes.size(); ++c) page |= (random.chance(density) ? 1U : 0U) << c;
  Lengths held;
  if (random.chance(0.6))
    for (std::size_t c = 0; c < classes.size(); ++c) held.push_back(random.below(first_page + 10));
  const std::uint64_t end = first_page + pages.size();
  const ResumeQuery query{pages, first_page, held,
                          random.chance(0.5) ? UINT64_MAX : random.below((end + 2) * page_tokens)};
  const ResumeAnswer answer = restorable(form, query);
  const std::string wrong = disagreement(form, Reference(form, NeedTable(form, end), query), query, answer);
  return wrong.empty() ? wrong : wrong + ": " + describe(query, answer);
}

RC_GTEST_PROP(Resume, AgreesWithTheSentencesOnLargeQueries, (std::uint64_t seed)) {
  Prng random(seed);
  for (int i = 0; i < 100; ++i)
    if (const std::string wrong = random_disagreement(random); !wrong.empty()) RC_FAIL(wrong);
}

}  // namespace
}  // namespace tiercel
