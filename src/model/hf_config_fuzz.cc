// Any bytes at all as a config.json: read or refused in one line, never a crash; and what is read is valid.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/check.h"
#include "model/hf_config.h"
#include "model/storage_form.h"

namespace {

void check_refusal(const tiercel::Status& status) {
  TIERCEL_CHECK(status.code == tiercel::Code::kInvalidArgument);
  TIERCEL_CHECK(status.message.starts_with("fuzz: "));
  TIERCEL_CHECK(status.message.find('\n') == std::string::npos);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  for (const std::uint64_t tp : {1U, 2U, 3U, 8U})
    for (const tiercel::DType dtype : {tiercel::DType::kBf16, tiercel::DType::kFp8}) {
      tiercel::HfOptions options;
      options.tp = tp;
      options.dtype = dtype;
      options.page_tokens = 128;
      const auto spec = tiercel::read_hf_config(text, "fuzz", options);
      if (!spec) {
        check_refusal(spec.error());
        continue;
      }
      TIERCEL_CHECK(tiercel::validate(*spec).ok());
      const auto drafted = tiercel::with_draft(*spec, *spec, "fuzz");
      if (!drafted) check_refusal(drafted.error());
      // Only sizes over all classes and ranks are left to fail.
      if (const auto form = tiercel::make_storage_form(*spec)) TIERCEL_CHECK(!form->classes.empty());
    }
  return 0;
}
