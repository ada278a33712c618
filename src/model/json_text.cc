#include "model/json_text.h"

#include <cctype>
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace tiercel {
namespace {

using Json = nlohmann::json;

bool is_token_char(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '.' || c == '+';
}

// How a bare literal is spelled for the reader: in the same length, so that positions in messages stay true,
// and as no number is spelled that came in (without_bare_literals sees to that).
constexpr std::string_view kNan = "0e0";
constexpr std::string_view kInfinity = "0e000000";

std::string without_bare_literals(std::string_view text) {
  std::string out(text);
  bool in_string = false;
  for (std::size_t i = 0; i < out.size();) {
    if (in_string || out[i] == '"') {
      if (in_string && out[i] == '\\')
        ++i;  // whatever is escaped does not end the string
      else if (out[i] == '"')
        in_string = !in_string;
      ++i;
      continue;
    }
    std::size_t end = i;
    while (end < out.size() && is_token_char(out[end])) ++end;
    const std::string_view token = std::string_view(out).substr(i, end - i);
    if (token == "NaN")
      out.replace(i, end - i, kNan);
    else if (token == "Infinity")
      out.replace(i, end - i, kInfinity);
    else if (token == kNan || token == kInfinity)
      out[i + 1] = 'E';  // the same zero, spelled differently
    i = end > i ? end : i + 1;
  }
  return out;
}

// Builds the value while the text is read: a bracket too many or a key said twice ends the reading.
class Builder final : public nlohmann::json_sax<Json> {
 public:
  Json root;
  std::string failure;  // why the reading ended; empty after a whole text

  bool null() override { return add(nullptr); }
  bool boolean(bool value) override { return add(value); }
  bool number_integer(number_integer_t value) override { return add(value); }
  bool number_unsigned(number_unsigned_t value) override { return add(value); }
  bool number_float(number_float_t value, const string_t& spelled) override {
    constexpr auto kInf = std::numeric_limits<number_float_t>::infinity();
    const bool negative = spelled.front() == '-';
    const std::string_view digits = std::string_view(spelled).substr(negative ? 1 : 0);
    if (digits == kNan) return add(std::numeric_limits<number_float_t>::quiet_NaN());
    if (digits == kInfinity) return add(negative ? -kInf : kInf);
    return add(value);
  }
  bool string(string_t& value) override { return add(std::move(value)); }
  bool binary(binary_t&) override { return fail("binary data"); }
  bool start_object(std::size_t) override { return open(Json::object()); }
  bool end_object() override { return close(); }
  bool start_array(std::size_t) override { return open(Json::array()); }
  bool end_array() override { return close(); }
  bool key(string_t& name) override {
    const auto [entry, is_new] = open_.back()->get_ref<Json::object_t&>().try_emplace(name);
    if (!is_new) return fail(fmt::format("{} is given twice", printable(name)));
    member_ = &entry->second;
    return true;
  }
  bool parse_error(std::size_t, const std::string&, const Json::exception& why) override {
    std::string_view message = why.what();
    if (const auto end = message.find("] "); end != std::string_view::npos) message.remove_prefix(end + 2);
    return fail(fmt::format("no JSON: {}", printable(message, 200)));
  }

 private:
  Json* place(Json value) {
    Json* to = &root;
    if (!open_.empty() && open_.back()->is_array()) {
      open_.back()->push_back(nullptr);
      to = &open_.back()->back();
    } else if (!open_.empty()) {
      to = member_;
    }
    *to = std::move(value);
    return to;
  }
  bool add(Json value) { return place(std::move(value)), true; }
  bool open(Json empty) {
    if (open_.size() >= std::size_t{kMaxJsonDepth})
      return fail(fmt::format("nested deeper than {} levels", kMaxJsonDepth));
    open_.push_back(place(std::move(empty)));
    return true;
  }
  bool close() { return open_.pop_back(), true; }
  bool fail(std::string why) { return failure = std::move(why), false; }

  // Around the current place. They stay where they are: a list grows only while nothing inside it is open.
  std::vector<Json*> open_;
  Json* member_ = nullptr;  // of the innermost object: where the value of the last key goes
};

}  // namespace

std::string printable(std::string_view text, std::size_t limit) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    const bool starts_character = (byte & 0xC0U) != 0x80U;
    if (i >= limit && starts_character) return out + "...";
    if (byte < 0x20 || byte == 0x7F)
      out += fmt::format("\\x{:02x}", byte);
    else
      out += text[i];
  }
  return out;
}

std::string describe(const Json& value) {
  if (value.is_array()) return "a list";
  if (value.is_object()) return "an object";
  if (value.is_string()) return fmt::format("\"{}\"", printable(value.get_ref<const std::string&>()));
  if (value.is_number_float() && !std::isfinite(value.get<double>())) {
    const auto number = value.get<double>();
    return std::isnan(number) ? "NaN" : number < 0 ? "-Infinity" : "Infinity";
  }
  return value.dump();
}

Result<Json> parse_json(std::string_view text) {
  if (text.size() > kMaxJsonBytes)
    return error(Code::kInvalidArgument,
                 fmt::format("{} bytes: longer than the {} that a configuration may have", text.size(),
                             kMaxJsonBytes));
  Builder builder;
  if (!Json::sax_parse(without_bare_literals(text), &builder))
    return error(Code::kInvalidArgument, std::move(builder.failure));
  return std::move(builder.root);
}

}  // namespace tiercel
