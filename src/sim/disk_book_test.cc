#include "sim/disk_book.h"

#include <gtest/gtest.h>

namespace tiercel::sim {
namespace {

using Scope = DiskRemoval::Scope;

// A chain of three pages in one namespace; class-set 0 of each.
class DiskBookTest : public ::testing::Test {
 protected:
  DiskBookTest() {
    book_.add_space(0);
    for (std::size_t i = 0; i < 3; ++i)
      book_.add_page(0, i == 0 ? std::nullopt : std::optional(i - 1), Key{{i + 1, 0}});
  }
  static DiskSet set(std::size_t page) { return {page, ClassId(0)}; }
  std::size_t write(std::size_t page, std::uint64_t at) {
    const std::size_t number = book_.accepted(set(page), 100);
    book_.written(number, at);
    return number;
  }
  std::string opened(const DiskBook::Found& found) {
    book_.ended(false);
    const auto wrong = book_.opened(found, true, 1000);
    return wrong ? wrong->checker : "";
  }

  DiskBook book_;
};

TEST_F(DiskBookTest, ARemovalReachesWhatIsBelowAndWasBefore) {
  const std::size_t top = write(0, 1), middle = write(1, 2), end = write(2, 3);
  book_.removed(Scope::kPage, 1, 4);
  const std::size_t again = write(2, 5);
  EXPECT_TRUE(book_.alive(top));
  EXPECT_FALSE(book_.alive(middle));
  EXPECT_FALSE(book_.alive(end));
  EXPECT_TRUE(book_.alive(again));
}

TEST_F(DiskBookTest, WhatWasDurableIsOwedAndWhatWasNotIsNot) {
  const std::size_t first = write(0, 1);
  write(1, 2);
  book_.durable(1);
  EXPECT_EQ(opened({{set(0), first}}), "");
  EXPECT_EQ(opened({}), "disk_durable");
}

TEST_F(DiskBookTest, WhatWasOnlyAcceptedMayBeThere) {
  const std::size_t number = book_.accepted(set(0), 100);
  EXPECT_EQ(opened({{set(0), number}}), "");
}

TEST_F(DiskBookTest, ADurableRemovalHoldsAndAnotherMayBeLost) {
  const std::size_t first = write(0, 1);
  book_.removed(Scope::kPage, 0, 2);
  book_.durable(1);
  EXPECT_EQ(opened({{set(0), first}}), "");
  book_.removed(Scope::kSpace, 0, 3);
  book_.durable(3);
  EXPECT_EQ(opened({{set(0), first}}), "disk_stale");
}

TEST_F(DiskBookTest, ARemovalThatTookEffectAtAnOpeningHoldsEverAfter) {
  const std::size_t first = write(0, 1);
  book_.durable(1);
  book_.removed(Scope::kForm, 0, 2);
  EXPECT_EQ(opened({}), "");
  EXPECT_EQ(opened({{set(0), first}}), "disk_stale");
}

TEST_F(DiskBookTest, WhatALostRemovalReachedMayBeGoneAndIsGoneForGood) {
  const std::size_t first = write(0, 1), second = write(1, 2);
  book_.durable(2);
  book_.removed(Scope::kSpace, 0, 3);
  EXPECT_EQ(opened({{set(0), first}}), "");
  EXPECT_EQ(opened({{set(0), first}, {set(1), second}}), "disk_found");
}

TEST_F(DiskBookTest, WhatIsFoundAgainAfterALostRemovalIsOwed) {
  const std::size_t first = write(0, 1);
  book_.durable(1);
  book_.removed(Scope::kSpace, 0, 2);
  EXPECT_EQ(opened({{set(0), first}}), "");
  EXPECT_EQ(opened({}), "disk_durable");
}

TEST_F(DiskBookTest, WhatWasEvictedMayComeBackOnceAndNoMore) {
  const std::size_t first = write(0, 1);
  book_.durable(1);
  book_.evicted(set(0));
  EXPECT_EQ(opened({}), "");
  EXPECT_EQ(opened({{set(0), first}}), "disk_found");
}

TEST_F(DiskBookTest, WhatWasDroppedMayComeBackAnyTime) {
  const std::size_t first = write(0, 1);
  book_.durable(1);
  book_.dropped(set(0));
  EXPECT_EQ(opened({}), "");
  EXPECT_EQ(opened({{set(0), first}}), "");
  EXPECT_EQ(book_.present(set(0)), first);
}

}  // namespace
}  // namespace tiercel::sim
