#include "node/reasons.h"

#include <gtest/gtest.h>

#include "node/test_world.h"

namespace tiercel {
namespace {

// A page with every class of full + window(2) + state, short of what is named.
PageView page(bool full, bool window, bool state, Reason own = Reason::kNeverStored) {
  PageView view;
  view.presence = (full ? 1U : 0U) | (full && window ? 2U : 0U) | (full && state ? 4U : 0U);
  view.resident = full;
  view.own = own;
  return view;
}

std::vector<std::pair<Reason, std::uint64_t>> reasons(const std::vector<PageView>& pages,
                                                      std::uint64_t length, std::uint64_t gap,
                                                      std::uint64_t limit = 100) {
  const StorageForm form = make_storage_form(test_spec({.window_pages = 2, .state = true})).value();
  Judgement input{pages, 0, length, limit, gap, 0, false};
  std::vector<std::pair<Reason, std::uint64_t>> out;
  for (const Miss& miss : judge(form, input)) out.emplace_back(miss.reason, miss.pages);
  return out;
}

TEST(Judge, ASnapshotFurtherOnMakesItTheWindowsFault) {
  const std::vector<PageView> pages{page(true, false, false), page(true, false, true),
                                    page(true, true, false)};
  EXPECT_EQ(reasons(pages, 0, 3), (std::vector<std::pair<Reason, std::uint64_t>>{
                                      {Reason::kWindowMissing, 2}, {Reason::kStateMissing, 1}}));
}

TEST(Judge, APagesOwnReasonGoesBeforeTheGapAndPagesBehindAreAfterIt) {
  const std::vector<PageView> pages{page(true, true, true), page(false, false, false, Reason::kEvicted),
                                    page(true, true, true), page(false, false, false, Reason::kNeverStored)};
  EXPECT_EQ(reasons(pages, 1, 1),
            (std::vector<std::pair<Reason, std::uint64_t>>{
                {Reason::kEvicted, 1}, {Reason::kAfterGap, 1}, {Reason::kNeverStored, 1}}));
}

TEST(Judge, TheCallersLimitGoesBeforeEverything) {
  const std::vector<PageView> pages{page(true, true, true), page(false, false, false),
                                    page(true, true, true)};
  EXPECT_EQ(reasons(pages, 1, 1, 1), (std::vector<std::pair<Reason, std::uint64_t>>{{Reason::kLimit, 2}}));
}

TEST(Judge, LessThanAPageIsTheTail) {
  const StorageForm form = make_storage_form(test_spec({})).value();
  const std::vector<Miss> missed = judge(form, Judgement{{}, 0, 0, 0, 0, 5, false});
  ASSERT_EQ(missed.size(), 1U);
  EXPECT_EQ(missed[0].reason, Reason::kTail);
  EXPECT_EQ(missed[0].pages, 0U);
  EXPECT_EQ(missed[0].tokens, 5U);
}

TEST(Reasons, EveryOneHasItsOwnName) {
  std::set<std::string_view> names;
  for (std::size_t i = 0; i < kReasonCount; ++i) names.insert(reason_name(static_cast<Reason>(i)));
  EXPECT_EQ(names.size(), kReasonCount);
}

}  // namespace
}  // namespace tiercel
