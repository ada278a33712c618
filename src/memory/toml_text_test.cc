#include "memory/toml_text.h"

#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace tiercel {
namespace {

using Json = nlohmann::json;
using testing::HasSubstr;

Json value_of(std::string_view text) {
  const auto parsed = parse_toml(text);
  EXPECT_TRUE(parsed) << text << (parsed ? "" : parsed.error().message);
  return parsed.value_or(Json());
}

TEST(TomlText, SaysWhatTheSameJsonWouldSay) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"", "{}"},
      {"# nothing\r\n", "{}"},
      {"a = 1\nb.c = \"x\" # y\n[t]\nd = [1, 2.5, {e = true}]",
       R"({"a":1,"b":{"c":"x"},"t":{"d":[1,2.5,{"e":true}]}})"},
      {"[[p]]\nn=1\n[[p]]\nn=2\n[p.q]\nz=1\n[[p.r]]", R"({"p":[{"n":1},{"n":2,"q":{"z":1},"r":[{}]}]})"},
      {"s = \"\"\"\na\\\n  b\"\"\"\"\"\nt = '''x'y'''\nu = 'c:\\x'\nv = \"\\u00e9\\t\\U0001F600\"",
       "{\"s\":\"ab\\\"\\\"\",\"t\":\"x'y\",\"u\":\"c:\\\\x\",\"v\":\"\\u00e9\\t\\ud83d\\ude00\"}"},
      {"h = 0xDEAD_beef\no = 0o17\nb = 0b1_0\nf = -1_0.5e+3\ng = +7",
       R"({"h":3735928559,"o":15,"b":2,"f":-10500.0,"g":7})"},
      {"x = [ # c\n 1,\n 2, ]\ny = {a.b = 1, \"q r\" = 's'}", R"({"x":[1,2],"y":{"a":{"b":1},"q r":"s"}})"},
      {"d = 1979-05-27 07:32:00.5Z\ne = 07:32:00",
       R"({"d":{"datetime":"1979-05-27 07:32:00.5Z"},"e":{"datetime":"07:32:00"}})"},
      {"[a.b.c]\nx=1\n[a]\ny=2\n[a.b]", R"({"a":{"b":{"c":{"x":1}},"y":2}})"},
      {"[fruit]\napple.color = 1\napple.taste.sweet = 2\n[fruit.apple.texture]",
       R"({"fruit":{"apple":{"color":1,"taste":{"sweet":2},"texture":{}}}})"},
      {"3.14 = 5\n\"\" = 1\n'a.b' = 2", R"({"3":{"14":5},"":1,"a.b":2})"},
  };
  for (const auto& [toml, json] : cases) EXPECT_EQ(value_of(toml), Json::parse(json)) << toml;
}

TEST(TomlText, WhatIsNoTomlIsOneLineWithItsNumber) {
  const std::vector<std::string> cases = {"a",
                                          "a =",
                                          "= 1",
                                          "a = b",
                                          "a = 1 b = 2",
                                          "a = 1\na = 2",
                                          "[a]\n[a]",
                                          "[a",
                                          "[a]]",
                                          "[]",
                                          "[a.]",
                                          "a..b = 1",
                                          "[+]",
                                          "[[a]]\n[a]",
                                          "a = []\n[[a]]",
                                          "a = {}\n[a.b]",
                                          "a = {b = 1}\na.c = 2",
                                          "[a.b]\n[a]\nb.c = 1",
                                          "a.b = 1\n[a]",
                                          "a = {b = 1,}",
                                          "a = {b = 1\n}",
                                          "a = [1 2]",
                                          "a = [1",
                                          "a = \"x",
                                          "a = \"x\n\"",
                                          "a = '''x",
                                          "a = \"\\q\"",
                                          "a = \"\\ud800\"",
                                          "a = \"\\u12\"",
                                          "a = 01",
                                          "a = 1__0",
                                          "a = _1",
                                          "a = 1_",
                                          "a = 1.",
                                          "a = .5",
                                          "a = 1e",
                                          "a = 0x",
                                          "a = +0x1",
                                          "a = 0b2",
                                          "a = 9223372036854775808",
                                          "a = 1979-13-01",
                                          "a = 2023-02-29",
                                          "a = 24:00:00",
                                          "a = 07:32",
                                          "a = 1979-05-27T",
                                          "a = 1979-05-27T07:32:00+25:00",
                                          "a = True",
                                          "\"\"\"a\"\"\" = 1",
                                          "a = \"\x01\"",
                                          "# \x7f",
                                          "# \xff",
                                          "a = \"\xc0\xaf\"",
                                          "a = 1\r",
                                          "\xef\xbb\xbf\xef\xbb\xbf"};
  for (const std::string& text : cases) {
    const auto parsed = parse_toml("\n" + text);
    ASSERT_FALSE(parsed) << text << " is " << parsed->dump();
    EXPECT_EQ(parsed.error().code, Code::kInvalidArgument);
    EXPECT_THAT(parsed.error().message, HasSubstr("no TOML: line ")) << text;
    EXPECT_EQ(parsed.error().message.find('\n'), std::string::npos);
  }
  EXPECT_THAT(parse_toml("a = 1\n\nb = \"\"\"\n\n\"\"\"\nc = x\n").error().message,
              HasSubstr("line 6: wanted a value"));
  EXPECT_THAT(parse_toml(std::string(5 << 20, ' ')).error().message, HasSubstr("at most"));
}

TEST(TomlText, ALeapDayIsADay) {
  EXPECT_TRUE(parse_toml("a = 2024-02-29"));
  EXPECT_TRUE(parse_toml("a = 2000-02-29"));
  EXPECT_FALSE(parse_toml("a = 1900-02-29"));
}

}  // namespace
}  // namespace tiercel
