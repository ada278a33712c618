// Extra configuration as a person wrote it: the first byte says JSON or TOML, the rest is the text. Whatever
// it is, the answer is a value or one line.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/check.h"
#include "memory/memory_kind_config.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);
  const auto syntax = data[0] % 2 == 0 ? tiercel::ConfigSyntax::kJson : tiercel::ConfigSyntax::kToml;
  const auto config = tiercel::parse_extra_config(text, syntax, "fuzz");
  TIERCEL_CHECK(config || config.error().message.find('\n') == std::string::npos);
  return 0;
}
