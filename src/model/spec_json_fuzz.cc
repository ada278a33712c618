// Any bytes at all as a spec of our own: read or refused in one line; what is read is written back to the
// same spec.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/check.h"
#include "model/inspect.h"
#include "model/spec_json.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto spec = tiercel::read_spec_json(text, "fuzz");
  if (!spec) {
    TIERCEL_CHECK(spec.error().message.starts_with("fuzz: "));
    TIERCEL_CHECK(spec.error().message.find('\n') == std::string::npos);
    return 0;
  }
  TIERCEL_CHECK(tiercel::is_spec_json(text));
  const auto again = tiercel::read_spec_json(tiercel::write_spec_json(*spec), "fuzz");
  TIERCEL_CHECK(again.has_value() && *again == *spec);
  TIERCEL_CHECK(!tiercel::inspect_json(*spec).empty());
  if (const auto form = tiercel::make_storage_form(*spec))
    TIERCEL_CHECK(!tiercel::inspect_text(*form, true).empty());
  return 0;
}
