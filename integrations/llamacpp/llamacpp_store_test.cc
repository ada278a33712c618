// The store as a folder: who may open it, with which sizes, and what stays.
#include <cstdio>
#include <filesystem>
#include <ostream>
#include <string>

#include "llamacpp_bed_for_test.h"

namespace tiercel::llamacpp {
namespace {

void write_file(const std::string& path, const std::string& text) {
  std::FILE* file = std::fopen(path.c_str(), "w");
  ASSERT_NE(file, nullptr) << path;
  EXPECT_EQ(std::fwrite(text.data(), 1, text.size(), file), text.size());
  EXPECT_EQ(std::fclose(file), 0);
}

Status opening(const StoreOptions& options) { return Store::open(options).status(); }

TEST(LlamaStore, ItMakesAFolderThatOnlyItsOwnerReads) {
  const Folder folder;
  StoreOptions options = store_options(folder.file("a/b/store"));
  ASSERT_NE(open_store(options), nullptr);
  const auto all = std::filesystem::perms::group_all | std::filesystem::perms::others_all;
  EXPECT_EQ(std::filesystem::status(options.folder).permissions() & all, std::filesystem::perms::none);
}

TEST(LlamaStore, OneAtATimeAlsoInOneProcess) {
  const Folder folder;
  StoreOptions options = store_options(folder.store());
  options.wait_ns = 0;
  const auto first = open_store(options);
  ASSERT_NE(first, nullptr);
  EXPECT_EQ(opening(options).code, TIERCEL_UNAVAILABLE) << opening(options).to_string();
  EXPECT_TRUE(first->is_open());
  ASSERT_TRUE(first->close().ok());
  EXPECT_FALSE(first->is_open());
  EXPECT_TRUE(first->close().ok());
  EXPECT_TRUE(opening(options).ok()) << "the closed one's object is still there";
  static_cast<void>(first->flush(0));  // of a closed one: an answer, no matter which
}

TEST(LlamaStore, TheSizeOfAnOldOneIsKeptAndAnotherIsRefused) {
  const Folder folder;
  StoreOptions options = store_options(folder.store());
  Engine engine = attach_tiny("llama", {}, Mode::kExact);
  const Text prompt = text_of(engine.model(), 1, 400);
  ASSERT_TRUE(engine.cache->use(open_store(options)).ok());
  right_turn(engine, 0, prompt);
  ASSERT_TRUE(engine.cache->use(nullptr).ok());
  options.cache_bytes += kMiB;
  const Status refusal = opening(options);
  EXPECT_FALSE(refusal.ok());
  EXPECT_NE(refusal.code, TIERCEL_UNAVAILABLE) << "waiting does not help: " << refusal.to_string();
  options.cache_bytes = 0;
  ASSERT_TRUE(engine.cache->use(open_store(options)).ok());
  EXPECT_EQ(right_turn(engine, 0, prompt).prefilled.restored.tokens, engine.longest(400));
}

TEST(LlamaStore, PathsThatAreNoFolder) {
  const Folder folder;
  EXPECT_EQ(opening(store_options("")).code, TIERCEL_INVALID_ARGUMENT);
  write_file(folder.file("file"), "something else");
  const Status refusal = opening(store_options(folder.file("file")));
  EXPECT_FALSE(refusal.ok());
  EXPECT_NE(refusal.message.find(folder.file("file")), std::string::npos) << refusal.to_string();
  std::filesystem::create_directories(folder.file("taken"));
  write_file(folder.file("taken/cache.tiercel"), std::string(100'000, 'x'));
  const std::uintmax_t before = std::filesystem::file_size(folder.file("taken/cache.tiercel"));
  EXPECT_FALSE(opening(store_options(folder.file("taken"))).ok()) << "a file of somebody else's";
  EXPECT_EQ(std::filesystem::file_size(folder.file("taken/cache.tiercel")), before);
}

TEST(LlamaStore, WhatWasFlushedIsThereAfterItWasClosed) {
  const Folder folder;
  Engine engine = attach_tiny("lfm2", {}, Mode::kExact);
  const Text prompt = text_of(engine.model(), 1, 400);
  for (int round = 0; round < 3; ++round) {
    const auto store = open_store(folder.store());
    ASSERT_TRUE(engine.cache->use(store).ok());
    const Turn done = right_turn(engine, 0, prompt);
    EXPECT_EQ(done.prefilled.restored.disk_tokens, round == 0 ? 0 : engine.longest(400));
    EXPECT_TRUE(store->flush().ok());
    EXPECT_TRUE(store->close().ok());
  }
}

}  // namespace
}  // namespace tiercel::llamacpp
