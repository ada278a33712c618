#include "model/layout.h"

#include <set>

#include <gtest/gtest.h>

namespace tiercel {
namespace {

TEST(LayoutText, NamesAndTheirTextsAreTheSameLayout) {
  std::set<std::string> texts;
  for (const Layout& layout : named_layouts()) {
    const auto named = layout_from_text(layout.name);
    ASSERT_TRUE(named);
    EXPECT_EQ(*named, layout);
    auto written = layout_from_text(layout_text(layout));
    ASSERT_TRUE(written) << layout_text(layout);
    written->name = layout.name;
    EXPECT_EQ(*written, layout);
    EXPECT_TRUE(texts.insert(layout_text(layout)).second) << "two names for " << layout_text(layout);
  }
  EXPECT_EQ(texts.size(), 12U);
}

TEST(LayoutText, WhatStandsBehindANameIsAddedToIt) {
  const auto aligned = layout_from_text("page_first;align=4096");
  ASSERT_TRUE(aligned);
  EXPECT_EQ(aligned->page_alignment, 4096U);
  EXPECT_EQ(layout_text(*aligned), "component,page,token,layer,head,dim;align=4096");
  const auto transposed = layout_from_text("llama;v:head,dim,page,token");
  ASSERT_TRUE(transposed);
  EXPECT_EQ(layout_text(*transposed), layout_text(*layout_from_text("llama_v_transposed")));
}

TEST(LayoutText, WhatIsNoLayoutIsRefusedInWords) {
  const std::pair<const char*, const char*> refused[] = {
      {"", "is none of layer_first, page_first"},
      {"pagefirst", "\"pagefirst\" is none of layer_first"},
      {"component,layer,page,token,head", "wanted 6 axes, got 5"},
      {"component,layer,page,token,head,dim,dim", "wanted 6 of the axes"},
      {"component,layer,page,token,head,head", "each of the axes"},
      {"component,layer,page,token,head,width", "got \"width\" at place 6"},
      {"page|component,layer,token,head,dim", "page cannot have buffers of its own"},
      {"component|layer|page,token,head,dim", "at most one '|'"},
      {"component,layer,page|token,head,dim", "at most component and layer"},
      {"layer_first;align=3", "power of two"},
      {"layer_first;align=0", "power of two"},
      {"layer_first;align=4194304", "power of two"},
      {"layer_first;align=", "wanted a number of bytes"},
      {"layer_first;align=99999999999999999999", "wanted a number of bytes"},
      {"layer_first;v", "COMPONENT:AXES"},
      {"layer_first;v:head,dim,page,token", "among those with buffers of their own"},
      {"llama;v:head,dim,page", "wanted 4 axes, got 3"},
      {"llama;v:head,dim,page,page", "once each"},
      {"llama;v:head,dim,page,token;v:head,dim,page,token", "two orders"},
      {"llama;v:head|dim,page,token", "at most one '|'"},
  };
  for (const auto& [text, words] : refused) {
    const auto layout = layout_from_text(text);
    ASSERT_FALSE(layout) << text;
    EXPECT_EQ(layout.error().code, Code::kInvalidArgument);
    EXPECT_NE(layout.error().message.find(words), std::string::npos) << text << "\n"
                                                                     << layout.error().message;
  }
  EXPECT_FALSE(layout_from_text(std::string(5000, ',')));
}

}  // namespace
}  // namespace tiercel
