#include "memory/memory_kind.h"

#include <map>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tiercel {
namespace {

using testing::HasSubstr;

std::string refusal(const MemoryKindOptions& options, const TextReader& read = no_files) {
  const auto kind = resolve_memory_kind(options, read);
  EXPECT_FALSE(kind) << memory_kind_name(kind.value_or(MemoryKind::kAnonymous));
  if (kind) return {};
  EXPECT_EQ(kind.error().message.find('\n'), std::string::npos);
  return kind.error().message;
}

TextReader files(std::map<std::string, std::string> texts) {
  return [texts = std::move(texts)](const std::string& path) -> Result<std::string> {
    const auto found = texts.find(path);
    if (found == texts.end()) return error(Code::kNotFound, "no such file");
    return found->second;
  };
}

TEST(MemoryKindNames, SharedHasThreeAndEachKindReadsItsOwn) {
  for (const char* name : {"shm", "memfd", "shared"})
    EXPECT_EQ(resolve_memory_kind({.allocator = name}), MemoryKind::kShared) << name;
  for (const MemoryKind kind : {MemoryKind::kAnonymous, MemoryKind::kHugepage, MemoryKind::kShared,
                                MemoryKind::kPinned, MemoryKind::kExternal})
    EXPECT_EQ(resolve_memory_kind({.memory = std::string(memory_kind_name(kind))}), kind);
}

TEST(MemoryKind, BackendDynamicWithAllocatorShmIsShared) {
  EXPECT_EQ(resolve_memory_kind({.allocator = "shm", .backend = "dynamic"}), MemoryKind::kShared);
  EXPECT_EQ(
      resolve_memory_kind({.backend = "dynamic", .extra_config = R"({"allocator": "shm", "prefetch": 7})"}),
      MemoryKind::kShared);
  EXPECT_EQ(resolve_memory_kind({.extra_config = R"({"backend": "dynamic", "allocator": "shm"})"}),
            MemoryKind::kShared);
}

TEST(MemoryKind, ABackendsNameNeverChooses) {
  for (const char* backend :
       {"shm", "mooncake", "memfd", "shared", "pinned", "anonymous", "file", "dynamic"}) {
    EXPECT_THAT(refusal({.backend = backend}),
                AllOf(HasSubstr("memory: wanted"), HasSubstr("does not choose"), HasSubstr(backend)));
    for (const MemoryKind kind : {MemoryKind::kAnonymous, MemoryKind::kHugepage, MemoryKind::kPinned})
      EXPECT_EQ(resolve_memory_kind({.memory = std::string(memory_kind_name(kind)), .backend = backend}),
                kind);
  }
}

TEST(MemoryKind, UnknownEmptyAndMissingValuesNameTheOption) {
  EXPECT_THAT(refusal({}),
              HasSubstr("memory: wanted anonymous, hugepage, shared, pinned or external, got nothing"));
  EXPECT_THAT(refusal({.memory = "Shared"}), HasSubstr("memory: wanted"));
  EXPECT_THAT(refusal({.memory = ""}), HasSubstr("memory: wanted"));
  EXPECT_THAT(refusal({.allocator = "mooncake"}),
              AllOf(HasSubstr("allocator: wanted"), HasSubstr("back end")));
  EXPECT_THAT(refusal({.allocator = ""}), HasSubstr("allocator: wanted"));
  EXPECT_THAT(refusal({.memory = "shared", .backend = ""}), HasSubstr("backend: wanted"));
  EXPECT_THAT(refusal({.memory = "shared", .extra_config = ""}), HasSubstr("extra_config: wanted"));
  EXPECT_THAT(refusal({.extra_config = R"({"allocator": "umbp"})"}),
              HasSubstr("extra_config: allocator: wanted"));
}

TEST(MemoryKind, WhatIsSaidTwiceMustAgree) {
  EXPECT_EQ(resolve_memory_kind(
                {.memory = "shared", .allocator = "shm", .extra_config = R"({"allocator": "memfd"})"}),
            MemoryKind::kShared);
  EXPECT_THAT(refusal({.memory = "anonymous", .allocator = "shm"}),
              AllOf(HasSubstr("memory says anonymous"), HasSubstr("allocator says shared")));
  EXPECT_THAT(refusal({.allocator = "pinned", .extra_config = R"({"allocator": "shm"})"}),
              AllOf(HasSubstr("allocator says pinned"), HasSubstr("extra_config: allocator says shared")));
  EXPECT_THAT(refusal({.memory = "shared", .backend = "file", .extra_config = R"({"backend": "dynamic"})"}),
              HasSubstr("extra_config: backend: wanted the same as backend 'file', got 'dynamic'"));
}

TEST(MemoryKind, AMalformedExtraConfigIsAnErrorAndNeverADefault) {
  // Also when everything else is said.
  for (const char* text :
       {"{", "shm", "[]", "\"shm\"", "null", R"({"allocator": 3})", R"({"allocator": null})",
        R"({"allocator": ["shm"]})", R"({"allocator": "shm", "allocator": "pinned"})", "{}}"}) {
    const std::string message = refusal({.memory = "shared", .extra_config = text});
    EXPECT_THAT(message, HasSubstr("extra_config: ")) << text;
  }
}

TEST(MemoryKind, FilesAreJsonOrToml) {
  const TextReader read =
      files({{"a.json", R"({"allocator": "shm"})"},
             {"b/c.toml", "# of ours\nallocator = \"memfd\"\n[store]\nallocator = \"own\"\n"},
             {"bad.json", "{"},
             {"bad.toml", "allocator = shm\n"},
             {"twice.toml", "allocator = \"shm\"\nallocator = \"pinned\"\n"},
             {"number.toml", "allocator = 3\n"},
             {"deep.toml", "a = " + std::string(100'000, '[')},
             {"x.yaml", "allocator: shm"}});
  EXPECT_EQ(resolve_memory_kind({.extra_config = "@a.json"}, read), MemoryKind::kShared);
  EXPECT_EQ(resolve_memory_kind({.backend = "dynamic", .extra_config = "@b/c.toml"}, read),
            MemoryKind::kShared);
  EXPECT_THAT(refusal({.memory = "shared", .extra_config = "@bad.json"}, read),
              HasSubstr("extra_config: bad.json: "));
  EXPECT_THAT(refusal({.memory = "shared", .extra_config = "@bad.toml"}, read),
              HasSubstr("extra_config: bad.toml: no TOML: line 1: "));
  EXPECT_THAT(refusal({.memory = "shared", .extra_config = "@twice.toml"}, read),
              HasSubstr("twice.toml: no TOML"));
  EXPECT_THAT(refusal({.memory = "shared", .extra_config = "@number.toml"}, read),
              HasSubstr("allocator: wanted"));
  EXPECT_THAT(refusal({.memory = "shared", .extra_config = "@deep.toml"}, read), HasSubstr("nested deeper"));
  EXPECT_THAT(refusal({.extra_config = "@x.yaml"}, read), HasSubstr(".json or .toml"));
  EXPECT_THAT(refusal({.extra_config = "@"}, read), HasSubstr(".json or .toml"));
  EXPECT_THAT(refusal({.memory = "shared", .extra_config = "@gone.json"}, read),
              HasSubstr("extra_config: gone.json: no such file"));
  EXPECT_THAT(refusal({.extra_config = "@a.json"}), HasSubstr("no files are read here"));
}

std::string repeated(std::string_view text, int times) {
  std::string out;
  for (int i = 0; i < times; ++i) out += text;
  return out;
}

TEST(MemoryKind, TomlThatNestsWithoutEndIsRefusedHoweverItIsHidden) {
  const std::string deep = repeated("a.", 200'000) + "a";
  for (const std::string& text : {
           deep + " = 1\n",
           "[" + deep + "]\nx = 1\n",
           "z = {" + deep + " = 1}\n",
           "x = [''' \n \" ''', {" + deep + " = 1}]",
           "x = [\"\"\"a\"\"\"\"\", {" + deep + " = 1}]",
           "x = \"\\\"\"\n" + deep + " = 1\n",
           "x = '\\'\n" + deep + " = 1\n",
           repeated("\"a\" . ", 200'000) + "a = 1",
           "# \"\n" + deep + " = 1\n",
           "z = " + repeated("[", 100'000),
       })
    EXPECT_THAT(refusal({.memory = "shared", .extra_config = "@x.toml"}, files({{"x.toml", text}})),
                HasSubstr("nested deeper"))
        << text.substr(0, 40);
}

TEST(MemoryKind, ManyDotsThatAreNoKeyAreNoDepth) {
  const std::string text = "# " + repeated(".", 500) + "\nallocator = \"shm\"\nservers = \"" +
                           repeated("10.0.0.1,", 100) + "\"\nsteps = [" + repeated("0.5, ", 200) +
                           "]\nnote = \"\"\"\n" + repeated("...\n", 90) + "\"\"\"\n";
  const auto kind = resolve_memory_kind({.extra_config = "@x.toml"}, files({{"x.toml", text}}));
  EXPECT_TRUE(kind) << kind.error().message;
}

TEST(MemoryKind, BrokenTomlIsMalformedWhereverItBreaks) {
  for (const char* text :
       {"[+]", "[[+]]", "[", "[a", "[.]", "= 1", "a", "a = ", "\xff", "a = \"\\u00", "[+\"\"x\"\"\"}]"})
    EXPECT_THAT(refusal({.memory = "shared", .extra_config = "@x.toml"}, files({{"x.toml", text}})),
                HasSubstr("x.toml: no TOML"))
        << text;
}

TEST(MemoryKind, ABackendAttachedLaterCannotChangeIt) {
  EXPECT_TRUE(check_attached(MemoryKind::kAnonymous, {.backend = "shm"}).ok());
  EXPECT_TRUE(
      check_attached(MemoryKind::kShared, {.backend = "dynamic", .extra_config = R"({"allocator":"shm"})"})
          .ok());
  const Status other = check_attached(MemoryKind::kAnonymous,
                                      {.backend = "dynamic", .extra_config = R"({"allocator":"shm"})"});
  EXPECT_EQ(other.code, Code::kFailedPrecondition);
  EXPECT_THAT(
      other.message,
      HasSubstr("extra_config: allocator: wanted anonymous, which the host pools are made of, got shared"));
  EXPECT_EQ(check_attached(MemoryKind::kShared, {.extra_config = "{"}).code, Code::kInvalidArgument);
}

}  // namespace
}  // namespace tiercel
