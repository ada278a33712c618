#include "model/spec.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/checked.h"
#include "model/test_specs.h"

namespace tiercel {
namespace {

using ::testing::HasSubstr;

// Full, window, state, index keys, draft: every kind at once.
ModelSpec everything() {
  ModelSpec spec;
  spec.model_type = "test";
  spec.page_tokens = 16;
  spec.topology = {2, 1, 1};
  spec.groups.push_back(group(FullKind{}, Need::kRequired, {1, 3}, kv()));
  spec.groups.push_back(group(WindowKind{100}, Need::kSparse, {0, 2}, kv()));
  spec.groups.push_back(
      group(StateKind{}, Need::kSparse, {4, 5}, {component("temporal", {4, 4}, DType::kF32)}));
  spec.groups.push_back(
      group(FollowerKind{0}, Need::kRequired, {1, 3}, {component("index_k", {16}, DType::kFp8)}));
  spec.groups.back().replicated = true;
  spec.groups.push_back(group(FollowerKind{0}, Need::kOptional, {7}, kv()));
  spec.no_cache_layers = {6};
  spec.draft_layers = {7};
  return spec;
}

TEST(DType, NamesAndSizes) {
  EXPECT_EQ(dtype_bytes(DType::kBf16), 2U);
  EXPECT_EQ(dtype_bytes(DType::kFp16), 2U);
  EXPECT_EQ(dtype_bytes(DType::kFp8), 1U);
  EXPECT_EQ(dtype_bytes(DType::kF32), 4U);
  EXPECT_EQ(dtype_bytes(DType::kU8), 1U);
  for (const DType dtype : {DType::kBf16, DType::kFp16, DType::kFp8, DType::kF32, DType::kU8})
    EXPECT_EQ(dtype_from_name(dtype_name(dtype)), dtype);
  EXPECT_EQ(dtype_from_name("bfloat16"), DType::kBf16);
  EXPECT_EQ(dtype_from_name("torch.float16"), DType::kFp16);
  EXPECT_EQ(dtype_from_name("float32"), DType::kF32);
  EXPECT_EQ(dtype_from_name("float8_e4m3fn"), DType::kFp8);
  for (const char* bad : {"", "bf", "float64", "BF16", "torch.", "auto"})
    EXPECT_FALSE(dtype_from_name(bad)) << bad;
}

TEST(Spec, AWholeModelOfEveryKindIsValid) { EXPECT_EQ(validate(everything()), Status{}); }

TEST(Spec, GroupBytesCountEntriesSnapshotsAndOpaqueRecords) {
  ModelSpec spec = everything();
  EXPECT_EQ(group_bytes(spec, spec.groups[0]), 2U * (32 + 32) * 16);
  EXPECT_EQ(group_bytes(spec, spec.groups[2]), 2U * 64) << "a snapshot does not grow with the page";
  spec.groups[0].tokens_per_entry = 4;
  EXPECT_EQ(group_bytes(spec, spec.groups[0]), 2U * 64 * 4);
  spec.groups[0].components = {{"blob", {}, std::nullopt, 1000}};
  EXPECT_EQ(group_bytes(spec, spec.groups[0]), 2U * 1000) << "opaque bytes are a record's, whatever the page";
  spec.page_tokens = 512;
  EXPECT_EQ(group_bytes(spec, spec.groups[0]), 2U * 1000);
}

TEST(Spec, ShapesThatPassTheLimitHaveNoBytes) {
  EXPECT_EQ(shape_bytes(std::vector<std::uint64_t>{1ULL << 61}, DType::kBf16), 1ULL << 62);
  EXPECT_FALSE(shape_bytes(std::vector<std::uint64_t>{1ULL << 62}, DType::kBf16));
  EXPECT_FALSE(shape_bytes(std::vector<std::uint64_t>{1ULL << 32, 1ULL << 32, 4}, DType::kFp8))
      << "the wrapped product would be 0";
}

struct Fault {
  const char* what;
  void (*make)(ModelSpec&);
  const char* names;
};
const Fault kFaults[] = {
    {"no page tokens", [](ModelSpec& s) { s.page_tokens = 0; }, "page_tokens"},
    {"page tokens that fit no signed number", [](ModelSpec& s) { s.page_tokens = kSizeMax + 1; },
     "page_tokens"},
    {"no groups", [](ModelSpec& s) { s.groups.clear(); }, "groups"},
    {"no tp", [](ModelSpec& s) { s.topology.tp = 0; }, "tp"},
    {"too many shards",
     [](ModelSpec& s) {
       s.topology = {1024, 64, 2};
     },
     "shards"},
    {"a wrapped shard count",
     [](ModelSpec& s) {
       s.topology = {65535, 65535, 65535};
     },
     "shards"},
    {"several pages a record", [](ModelSpec& s) { s.pages_per_record = 2; }, "pages_per_record"},
    {"a group without layers", [](ModelSpec& s) { s.groups[1].layers.clear(); }, "groups[1]: layers"},
    {"layers that descend",
     [](ModelSpec& s) {
       s.groups[0].layers = {3, 1};
     },
     "groups[0]: layers"},
    {"a layer twice",
     [](ModelSpec& s) {
       s.groups[0].layers = {1, 1};
     },
     "groups[0]: layers"},
    {"a layer out of range",
     [](ModelSpec& s) {
       s.groups[0].layers = {1, kMaxLayerIds};
     },
     "groups[0]: layers"},
    {"a full group that is sparse", [](ModelSpec& s) { s.groups[0].need = Need::kSparse; }, "groups[0]"},
    {"a window that is required", [](ModelSpec& s) { s.groups[1].need = Need::kRequired; }, "groups[1]"},
    {"a state that is optional", [](ModelSpec& s) { s.groups[2].need = Need::kOptional; }, "groups[2]"},
    {"a follower that is sparse", [](ModelSpec& s) { s.groups[3].need = Need::kSparse; }, "groups[3]"},
    {"a window of nothing", [](ModelSpec& s) { s.groups[1].kind = WindowKind{0}; }, "window_tokens"},
    {"no tokens in an entry", [](ModelSpec& s) { s.groups[0].tokens_per_entry = 0; }, "tokens_per_entry"},
    {"a compressed window", [](ModelSpec& s) { s.groups[1].tokens_per_entry = 4; }, "tokens_per_entry"},
    {"index keys of another ratio", [](ModelSpec& s) { s.groups[3].tokens_per_entry = 4; },
     "tokens_per_entry"},
    {"no components", [](ModelSpec& s) { s.groups[0].components.clear(); }, "components"},
    {"a component twice", [](ModelSpec& s) { s.groups[0].components[1].name = "k"; }, "component k twice"},
    {"a name with a line break", [](ModelSpec& s) { s.groups[0].components[1].name = "k\nx"; }, "name"},
    {"a component of no bytes", [](ModelSpec& s) { s.groups[0].components[1].bytes_per_layer = 0; },
     "component v"},
    {"bytes that are not the shape's", [](ModelSpec& s) { s.groups[0].components[0].bytes_per_layer = 31; },
     "component k"},
    {"opaque with a shape", [](ModelSpec& s) { s.groups[0].components[0].dtype.reset(); }, "opaque"},
    {"a dtype without a shape", [](ModelSpec& s) { s.groups[0].components[0].shape.clear(); }, "shape"},
    {"a follower of a window", [](ModelSpec& s) { s.groups[3].kind = FollowerKind{1}; }, "of"},
    {"a follower of nothing", [](ModelSpec& s) { s.groups[3].kind = FollowerKind{9}; }, "of"},
    {"a layer with and without a cache", [](ModelSpec& s) { s.no_cache_layers = {5}; }, "no_cache_layers"},
    {"kinds out of order", [](ModelSpec& s) { std::swap(s.groups[1], s.groups[2]); }, "must come before"},
    {"a draft before index keys", [](ModelSpec& s) { std::swap(s.groups[3], s.groups[4]); },
     "must come before"},
    {"a page that passes 2^63", [](ModelSpec& s) { s.page_tokens = 1ULL << 58; }, "page_tokens"},
    {"ratios whose multiple passes 2^63",
     [](ModelSpec& s) {
       s.groups[3].kind = FollowerKind{1};
       s.groups.insert(s.groups.begin() + 1, s.groups[0]);
       s.groups.erase(s.groups.begin() + 4, s.groups.end());
       s.groups[0].tokens_per_entry = (1ULL << 62) - 1;
       s.groups[1].tokens_per_entry = 1ULL << 62;
     },
     "tokens_per_entry"},
};

TEST(Spec, EachMistakeIsNamed) {
  for (const Fault& fault : kFaults) {
    ModelSpec spec = everything();
    fault.make(spec);
    const Status status = validate(spec);
    EXPECT_EQ(status.code, Code::kInvalidArgument) << fault.what;
    EXPECT_THAT(status.message, HasSubstr(fault.names)) << fault.what;
    EXPECT_EQ(status.message.find('\n'), std::string::npos) << fault.what;
  }
}

TEST(Spec, PageTokensMustHoldWholeEntriesAndTheErrorSaysHowMany) {
  ModelSpec spec = everything();
  spec.groups[0].tokens_per_entry = 6;
  spec.groups[3].tokens_per_entry = 6;
  spec.groups.insert(spec.groups.begin() + 1, spec.groups[0]);
  spec.groups[1].tokens_per_entry = 4;
  spec.page_tokens = 16;
  EXPECT_THAT(validate(spec).message, HasSubstr("multiple of 12"));
  spec.page_tokens = 24;
  EXPECT_EQ(validate(spec), Status{});
}

}  // namespace
}  // namespace tiercel
