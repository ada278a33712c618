#include "model/json_text.h"

#include <cctype>
#include <set>
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

// Replacements have the length of what they replace, so that positions in messages stay true.
std::string_view stand_in(std::string_view token) {
  if (token == "NaN") return "0.5";
  if (token == "Infinity") return "0.500000";
  return {};
}

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
    if (const auto replacement = stand_in(std::string_view(out).substr(i, end - i)); !replacement.empty())
      out.replace(i, end - i, replacement);
    i = end > i ? end : i + 1;
  }
  return out;
}

struct Refusal {
  std::string why;
};

// Sees every key and bracket while the text is read: a bracket too many or a key said twice ends the reading.
class Watch {
 public:
  bool operator()(int depth, Json::parse_event_t event, const Json& parsed) {
    using Event = Json::parse_event_t;
    if (event == Event::object_start || event == Event::array_start) {
      if (depth >= kMaxJsonDepth) throw Refusal{fmt::format("nested deeper than {} levels", kMaxJsonDepth)};
      keys_.emplace_back();
    } else if (event == Event::object_end || event == Event::array_end) {
      keys_.pop_back();
    } else if (event == Event::key) {
      const auto& key = parsed.get_ref<const std::string&>();
      if (!keys_.back().insert(key).second) throw Refusal{fmt::format("{} is given twice", printable(key))};
    }
    return true;
  }

 private:
  std::vector<std::set<std::string>> keys_;
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
  return value.dump();
}

Result<Json> parse_json(std::string_view text) {
  if (text.size() > kMaxJsonBytes)
    return error(Code::kInvalidArgument,
                 fmt::format("{} bytes: longer than the {} that a configuration may have", text.size(),
                             kMaxJsonBytes));
  try {
    Watch watch;
    return Json::parse(
        without_bare_literals(text),
        [&watch](int depth, Json::parse_event_t event, Json& parsed) { return watch(depth, event, parsed); });
  } catch (const Refusal& refusal) {
    return error(Code::kInvalidArgument, refusal.why);
  } catch (const Json::exception& why) {
    std::string_view message = why.what();
    if (const auto end = message.find("] "); end != std::string_view::npos) message.remove_prefix(end + 2);
    return error(Code::kInvalidArgument, fmt::format("no JSON: {}", printable(message, 200)));
  }
}

}  // namespace tiercel
