// Fields of one JSON object of a configuration, read strictly: a number is a positive integer that fits a
// signed 64-bit one, null is absent, and every refusal names the file and the field.
//
// Threads: plain values; the JSON must outlive them.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "base/status.h"

namespace tiercel::hf {

class ConfigFields final {
 public:
  // `prefix` stands before field names in messages: "", "text_config.".
  ConfigFields(const nlohmann::json& object, std::string_view file, std::string prefix);

  bool has(std::string_view key) const;  // present and not null

  // The positive integer. Errors (here and below): invalid_argument; missing, or not what it should be.
  Result<std::uint64_t> count(std::string_view key) const;
  // The same, or `absent` when the field is; and where 0 is a value too.
  Result<std::uint64_t> count_or(std::string_view key, std::uint64_t absent) const;
  Result<std::uint64_t> count_or_zero(std::string_view key) const;
  Result<bool> flag_or(std::string_view key, bool absent) const;
  Result<std::string> text(std::string_view key) const;
  // A list of integers that may be 0.
  Result<std::vector<std::uint64_t>> numbers(std::string_view key) const;
  // A list of `length` (num_hidden_layers) values out of `names` or out of `numbers`: their places in it.
  Result<std::vector<std::size_t>> choices(std::string_view key, std::uint64_t length,
                                           std::span<const std::string_view> names) const;
  Result<std::vector<std::size_t>> choices(std::string_view key, std::uint64_t length,
                                           std::span<const std::uint64_t> numbers) const;
  Result<ConfigFields> object(std::string_view key) const;
  // A list of `length` objects.
  Result<std::vector<ConfigFields>> objects(std::string_view key, std::uint64_t length) const;

  // "FILE: FIELD: why".
  tl::unexpected<Status> fault(std::string_view key, std::string_view why) const;
  std::string_view file() const { return file_; }

 private:
  const nlohmann::json* find(std::string_view key) const;  // null when absent
  Result<std::uint64_t> integer(std::string_view field, const nlohmann::json& value,
                                std::uint64_t least) const;
  Result<const nlohmann::json*> list(std::string_view key) const;
  Result<const nlohmann::json*> layer_list(std::string_view key, std::uint64_t length) const;

  const nlohmann::json* object_;
  std::string file_;
  std::string prefix_;
};

}  // namespace tiercel::hf
