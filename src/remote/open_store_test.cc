#include "remote/open_store.h"

#include <map>
#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace tiercel {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

struct Around final : StoreSurroundings {
  std::set<std::string> files{"bin/../../../connectors/tiercel_connector", "bin/../../../connectors/mooncake",
                              "bin/../../../connectors/valkey", "bin/../../../connectors/memory"};
  std::map<std::string, std::string> variables;
  bool exists(const std::string& path) const override { return files.contains(path); }
  std::string environment(const std::string& name) const override {
    const auto at = variables.find(name);
    return at == variables.end() ? "" : at->second;
  }
  std::string program_folder() const override { return "bin"; }
};

StorePlan plan(const std::string& url, const Around& around = {}, const std::string& config = "{}") {
  StoreAddress address;
  address.url = url;
  address.config = config;
  const auto made = plan_store(address, around);
  EXPECT_TRUE(made) << made.error().message;
  return made.value_or(StorePlan{});
}
std::string refusal(const std::string& url, const Around& around = {}, const std::string& config = "{}") {
  StoreAddress address;
  address.url = url;
  address.config = config;
  const auto made = plan_store(address, around);
  return made ? "" : made.error().message;
}

TEST(OpenStore, AFolderIsNoProcess) {
  EXPECT_EQ(plan("posix:/srv/shared").folder, "/srv/shared");
  EXPECT_EQ(plan("posix:///srv/shared").folder, "/srv/shared");
  EXPECT_EQ(plan("posix:here").folder, "here");
  EXPECT_EQ(plan("posix:here").kind, StorePlan::Kind::kFolder);
}

TEST(OpenStore, AConnectorGetsTheAddressAndItsOptions) {
  const StorePlan made = plan("mooncake://127.0.0.1:50051?global_segment_size=4GiB&workers=2&flag=true", {},
                              R"({"local_hostname": "10.0.0.7", "workers": 8})");
  EXPECT_THAT(made.argv, ElementsAre("python3", "bin/../../../connectors/mooncake"));
  const auto config = nlohmann::json::parse(made.config);
  EXPECT_EQ(config["url"], "mooncake://127.0.0.1:50051");
  EXPECT_EQ(config["global_segment_size"], "4GiB");
  EXPECT_EQ(config["workers"], 2);
  EXPECT_EQ(config["flag"], true);
  EXPECT_EQ(config["local_hostname"], "10.0.0.7");
  EXPECT_EQ(made.config.find('\n'), std::string::npos);
  EXPECT_EQ(nlohmann::json::parse(plan("rediss://u:p%40@h:1/2?key_prefix=a%26b").config)["url"],
            "rediss://u:p%40@h:1/2");
  EXPECT_EQ(nlohmann::json::parse(plan("valkey://h:1?key_prefix=a%26b").config)["key_prefix"], "a&b");
}

TEST(OpenStore, WhereConnectorsAndPythonAreFound) {
  Around around;
  around.files.insert("bin/../../../connectors/../build/connectors/venv/bin/python");
  EXPECT_EQ(plan("memory:", around).argv[0], "bin/../../../connectors/../build/connectors/venv/bin/python");
  around.variables["TIERCEL_CONNECTOR_PYTHON"] = "mine";
  around.variables["TIERCEL_CONNECTORS"] = "there";
  around.files.insert("there/memory");
  EXPECT_THAT(plan("memory:", around).argv, ElementsAre("mine", "there/memory"));
  around.files = {"bin/../share/tiercel/connectors/tiercel_connector",
                  "bin/../share/tiercel/connectors/memory"};
  around.variables.clear();
  EXPECT_EQ(plan("memory:", around).argv[1], "bin/../share/tiercel/connectors/memory");
  around.files.clear();
  EXPECT_THAT(refusal("memory:", around), HasSubstr("TIERCEL_CONNECTORS"));
}

TEST(OpenStore, AProgramOfOnesOwn) { EXPECT_THAT(plan("program:/opt/mine").argv, ElementsAre("/opt/mine")); }

TEST(OpenStore, NoPasswordIsShown) {
  EXPECT_EQ(printable_address("valkey://u:secret@h:1/2?password=x"), "valkey://h:1/2");
  EXPECT_EQ(printable_address("mooncake://h:1"), "mooncake://h:1");
  EXPECT_EQ(printable_address("posix:/a@b"), "posix:/a@b");
}

// Every way in which an address is refused, with a password wherever one may stand.
TEST(OpenStore, NoErrorTellsAPassword) {
  Around nowhere, half;
  nowhere.files.clear();
  half.files = {"bin/../../../connectors/tiercel_connector"};
  const std::string addresses[] = {"valkey://u:secret@h:1",
                                   "valkey://:secret@h:1",
                                   "valkey://u:s@secret@h:1",
                                   "valkey://u:s?secret@h:1",
                                   "valkey://u:s//secret@h:1",
                                   "valkey:u:secret@h:1",
                                   "valkey:/u:secret@h:1",
                                   "ftp://u:secret@h:1",
                                   "u:secret@h:1",
                                   ":secret@h:1",
                                   "//u:secret@h:1",
                                   "valkey://h:1?password=secret",
                                   "valkey://h:1?password=s@secret",
                                   "valkey://h:1?password=s&secret",
                                   "valkey://h:1?password=secret%zz",
                                   "posix:/a?password=secret",
                                   "memory:?a&password=secret",
                                   "program:?password=secret"};
  for (const std::string& url : addresses) {
    EXPECT_EQ(printable_address(url).find("secret"), std::string::npos) << url;
    for (const auto& [around, config] :
         {std::pair{Around{}, "{}"}, {nowhere, "{}"}, {half, "{}"}, {half, "no"}})
      EXPECT_EQ(refusal(url, around, config).find("secret"), std::string::npos)
          << url << ": " << refusal(url, around, config);
    EXPECT_NE(refusal(url, url.starts_with("valkey://") ? nowhere : Around{}), "") << url;
  }
  EXPECT_THAT(refusal("valkey://u:secret@h:1", nowhere), HasSubstr("\"valkey://h:1\": no connectors"));
  EXPECT_THAT(refusal("valkey://u:secret@h:1", half), HasSubstr("\"valkey://h:1\": no connector at"));
}

TEST(OpenStore, WhatMakesNoSenseIsNamed) {
  for (const char* url : {"", "mooncake", ":x", "ftp://h:1"})
    EXPECT_THAT(refusal(url), HasSubstr("wanted posix:FOLDER")) << url;
  EXPECT_THAT(refusal("ftp://h:1"), HasSubstr("\"ftp\""));
  EXPECT_THAT(refusal("mooncake:"), HasSubstr("mooncake://HOST:PORT"));
  EXPECT_THAT(refusal("valkey://"), HasSubstr("valkey://HOST:PORT"));
  EXPECT_THAT(refusal("posix:"), HasSubstr("no folder"));
  EXPECT_THAT(refusal("posix:/a?b=c"), HasSubstr("no options"));
  EXPECT_THAT(refusal("program:"), HasSubstr("no program"));
  EXPECT_THAT(refusal("memory:?a"), HasSubstr("NAME=VALUE"));
  EXPECT_THAT(refusal("memory:?a=%zz"), HasSubstr("NAME=VALUE"));
  EXPECT_THAT(refusal("memory:", {}, "[1]"), HasSubstr("JSON object"));
}

}  // namespace
}  // namespace tiercel
