#include "os/text_file.h"

#include <string>

#include <gtest/gtest.h>
#include <sys/stat.h>

#include "os/test_machine.h"

namespace tiercel {
namespace {

class TextFile : public testing::Test {
 protected:
  std::string path(const std::string& name) const { return folder_.root() + "/" + name; }
  std::string written(const std::string& name, const std::string& text) const {
    folder_.write("/" + name, text);
    return path(name);
  }

 private:
  FileTree folder_;
};

TEST_F(TextFile, AConfigurationIsReadWholeOrNotAtAll) {
  EXPECT_EQ(read_config_file(written("exact.toml", "12345678"), 8).value(), "12345678");
  const auto longer = read_config_file(written("longer.toml", "123456789"), 8);
  ASSERT_FALSE(longer) << "its end may contradict what is read of it";
  EXPECT_EQ(longer.error().code, Code::kInvalidArgument);
  EXPECT_NE(longer.error().message.find("longer.toml: more than 8 bytes"), std::string::npos)
      << longer.error().message;
  EXPECT_EQ(read_text_file(path("longer.toml"), 8).value(), "123456789") << "one more, so that it is seen";
}

TEST_F(TextFile, APipeWithoutAWriterIsRefusedAndNotWaitedFor) {
  ASSERT_EQ(::mkfifo(path("pipe.toml").c_str(), 0600), 0);
  const auto pipe = read_config_file(path("pipe.toml"));
  ASSERT_FALSE(pipe);
  EXPECT_EQ(pipe.error().code, Code::kInvalidArgument);
  EXPECT_NE(pipe.error().message.find("wanted a regular file"), std::string::npos) << pipe.error().message;
}

TEST_F(TextFile, WhatIsNoFileSaysSo) {
  for (const std::string& name : {path("missing.toml"), path(".")}) {
    const auto text = read_config_file(name);
    ASSERT_FALSE(text) << name;
    EXPECT_EQ(text.error().code, Code::kIoError) << name;
    EXPECT_TRUE(text.error().message.starts_with(name + ": cannot be read: ")) << text.error().message;
  }
  EXPECT_FALSE(read_config_file("/dev/zero")) << "and it is not read until the limit";
}

}  // namespace
}  // namespace tiercel
