#include "model/hf_config_fields.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/check.h"
#include "base/checked.h"
#include "model/json_text.h"

namespace tiercel::hf {

using Json = nlohmann::json;

ConfigFields::ConfigFields(const Json& object, std::string_view file, std::string prefix)
    : object_(&object), file_(file), prefix_(std::move(prefix)) {
  TIERCEL_CHECK(object.is_object());
}

tl::unexpected<Status> ConfigFields::fault(std::string_view key, std::string_view why) const {
  return error(Code::kInvalidArgument, fmt::format("{}: {}{}: {}", file_, prefix_, key, why));
}

const Json* ConfigFields::find(std::string_view key) const {
  const auto found = object_->find(key);
  return found == object_->end() || found->is_null() ? nullptr : &*found;
}

bool ConfigFields::has(std::string_view key) const { return find(key) != nullptr; }

Result<std::uint64_t> ConfigFields::integer(std::string_view field, const Json& value,
                                            std::uint64_t least) const {
  const std::string_view wanted = least == 0 ? "an integer of at least 0" : "a positive integer";
  const bool negative =
      value.is_number_integer() && !value.is_number_unsigned() && value.get<std::int64_t>() < 0;
  if (!value.is_number_integer() || negative)
    return fault(field, fmt::format("wanted {}, is {}", wanted, describe(value)));
  const auto number = value.get<std::uint64_t>();
  if (number < least) return fault(field, fmt::format("wanted {}, is {}", wanted, number));
  if (number > kSizeMax) return fault(field, fmt::format("{} is above 2^63 - 1", number));
  return number;
}

Result<std::uint64_t> ConfigFields::count(std::string_view key) const {
  const Json* value = find(key);
  if (value == nullptr) return fault(key, "is missing: wanted a positive integer");
  return integer(key, *value, 1);
}

Result<std::uint64_t> ConfigFields::count_or(std::string_view key, std::uint64_t absent) const {
  return has(key) ? count(key) : absent;
}

Result<std::uint64_t> ConfigFields::count_or_zero(std::string_view key) const {
  const Json* value = find(key);
  if (value == nullptr) return std::uint64_t{0};
  return integer(key, *value, 0);
}

Result<bool> ConfigFields::flag_or(std::string_view key, bool absent) const {
  const Json* value = find(key);
  if (value == nullptr) return absent;
  if (!value->is_boolean()) return fault(key, fmt::format("wanted true or false, is {}", describe(*value)));
  return value->get<bool>();
}

Result<std::string> ConfigFields::text(std::string_view key) const {
  const Json* value = find(key);
  if (value == nullptr) return fault(key, "is missing: wanted a text");
  if (!value->is_string()) return fault(key, fmt::format("wanted a text, is {}", describe(*value)));
  return value->get<std::string>();
}

Result<const Json*> ConfigFields::list(std::string_view key) const {
  const Json* value = find(key);
  if (value == nullptr) return fault(key, "is missing: wanted a list");
  if (!value->is_array()) return fault(key, fmt::format("wanted a list, is {}", describe(*value)));
  return value;
}

Result<const Json*> ConfigFields::layer_list(std::string_view key, std::uint64_t length) const {
  TIERCEL_ASSIGN_OR_RETURN(const Json* value, list(key));
  if (value->size() != length)
    return fault(key, fmt::format("has {} entries: wanted one for each of the {} layers (num_hidden_layers)",
                                  value->size(), length));
  return value;
}

Result<std::vector<std::uint64_t>> ConfigFields::numbers(std::string_view key) const {
  TIERCEL_ASSIGN_OR_RETURN(const Json* value, list(key));
  std::vector<std::uint64_t> numbers;
  for (std::size_t i = 0; i < value->size(); ++i) {
    TIERCEL_ASSIGN_OR_RETURN(const std::uint64_t number,
                             integer(fmt::format("{}[{}]", key, i), (*value)[i], 0));
    numbers.push_back(number);
  }
  return numbers;
}

Result<std::vector<std::size_t>> ConfigFields::choices(std::string_view key, std::uint64_t length,
                                                       std::span<const std::string_view> names) const {
  TIERCEL_ASSIGN_OR_RETURN(const Json* value, layer_list(key, length));
  std::vector<std::size_t> places;
  for (const Json& each : *value) {
    const auto found = each.is_string()
                           ? std::find(names.begin(), names.end(), each.get_ref<const std::string&>())
                           : names.end();
    if (found == names.end())
      return fault(fmt::format("{}[{}]", key, places.size()),
                   fmt::format("{} is none of {}", describe(each), fmt::join(names, ", ")));
    places.push_back(static_cast<std::size_t>(found - names.begin()));
  }
  return places;
}

Result<std::vector<std::size_t>> ConfigFields::choices(std::string_view key, std::uint64_t length,
                                                       std::span<const std::uint64_t> numbers) const {
  TIERCEL_ASSIGN_OR_RETURN(const Json* value, layer_list(key, length));
  std::vector<std::size_t> places;
  for (const Json& each : *value) {
    const std::string field = fmt::format("{}[{}]", key, places.size());
    TIERCEL_ASSIGN_OR_RETURN(const std::uint64_t number, integer(field, each, 0));
    const auto found = std::find(numbers.begin(), numbers.end(), number);
    if (found == numbers.end())
      return fault(field, fmt::format("{} is none of {}", number, fmt::join(numbers, ", ")));
    places.push_back(static_cast<std::size_t>(found - numbers.begin()));
  }
  return places;
}

Result<ConfigFields> ConfigFields::object(std::string_view key) const {
  const Json* value = find(key);
  if (value == nullptr) return fault(key, "is missing: wanted an object");
  if (!value->is_object()) return fault(key, fmt::format("wanted an object, is {}", describe(*value)));
  return ConfigFields(*value, file_, fmt::format("{}{}.", prefix_, key));
}

Result<std::vector<ConfigFields>> ConfigFields::objects(std::string_view key, std::uint64_t length) const {
  TIERCEL_ASSIGN_OR_RETURN(const Json* value, layer_list(key, length));
  std::vector<ConfigFields> objects;
  for (const Json& each : *value) {
    const std::string field = fmt::format("{}[{}]", key, objects.size());
    if (!each.is_object()) return fault(field, fmt::format("wanted an object, is {}", describe(each)));
    objects.emplace_back(each, file_, fmt::format("{}{}.", prefix_, field));
  }
  return objects;
}

}  // namespace tiercel::hf
