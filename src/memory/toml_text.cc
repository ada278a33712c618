#include "memory/toml_text.h"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <limits>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "model/json_text.h"

namespace tiercel {
namespace {

using Json = nlohmann::json;
using Path = std::string;  // of a table: its keys, each behind a byte that no key holds

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_hex(char c) { return is_digit(c) || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F'); }
bool is_bare(char c) {
  return is_digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || c == '-';
}
bool is_control(char c) { return (c >= 0 && c < ' ' && c != '\t') || c == 0x7F; }

// Bytes of the UTF-8 sequence at the start of `text`; 0: there is none.
std::size_t sequence_bytes(std::string_view text) {
  const auto at = [&](std::size_t i) { return static_cast<unsigned char>(i < text.size() ? text[i] : 0); };
  const unsigned char lead = at(0);
  if (lead < 0x80) return 1;
  const std::size_t length = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : 2;
  if (lead < 0xC2 || lead > 0xF4) return 0;
  for (std::size_t i = 1; i < length; ++i)
    if (at(i) < 0x80 || at(i) > 0xBF) return 0;
  const bool overlong = (lead == 0xE0 && at(1) < 0xA0) || (lead == 0xF0 && at(1) < 0x90);
  const bool beyond = (lead == 0xED && at(1) > 0x9F) || (lead == 0xF4 && at(1) > 0x8F);
  return overlong || beyond ? 0 : length;
}

void append_utf8(std::string& out, std::uint32_t code) {
  const auto tail = [&](int shift) { out += static_cast<char>(0x80 | ((code >> shift) & 0x3F)); };
  if (code < 0x80) {
    out += static_cast<char>(code);
  } else if (code < 0x800) {
    out += static_cast<char>(0xC0 | (code >> 6));
    tail(0);
  } else if (code < 0x10000) {
    out += static_cast<char>(0xE0 | (code >> 12));
    tail(6), tail(0);
  } else {
    out += static_cast<char>(0xF0 | (code >> 18));
    tail(12), tail(6), tail(0);
  }
}

// Digits that `allowed` knows, with single '_' between them, and none else.
template <typename Allowed>
bool are_digits(std::string_view text, Allowed allowed) {
  bool digit = false;
  for (const char c : text) {
    if (c == '_' ? !digit : !allowed(c)) return false;
    digit = c != '_';
  }
  return digit;
}
bool are_decimal(std::string_view text) { return are_digits(text, is_digit); }

std::string without_underscores(std::string_view text) {
  std::string out(text);
  std::erase(out, '_');
  return out;
}

// Takes off `text` what has the shape of `pattern`, where 'd' is any digit.
bool take_shape(std::string_view& text, std::string_view pattern) {
  if (text.size() < pattern.size()) return false;
  for (std::size_t i = 0; i < pattern.size(); ++i)
    if (pattern[i] == 'd' ? !is_digit(text[i]) : text[i] != pattern[i]) return false;
  text.remove_prefix(pattern.size());
  return true;
}
int two_digits(std::string_view text, std::size_t at) { return (text[at] - '0') * 10 + (text[at + 1] - '0'); }

bool take_date(std::string_view& text) {
  constexpr int kDays[] = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
  const std::string_view whole = text;
  if (!take_shape(text, "dddd-dd-dd")) return false;
  const int year = two_digits(whole, 0) * 100 + two_digits(whole, 2);
  const int month = two_digits(whole, 5), day = two_digits(whole, 8);
  if (month < 1 || month > 12) return false;
  const bool leap = month == 2 && year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
  return day >= 1 && day <= kDays[month - 1] + (leap ? 1 : 0);
}

bool take_time(std::string_view& text) {
  const std::string_view whole = text;
  if (!take_shape(text, "dd:dd:dd")) return false;
  if (two_digits(whole, 0) > 23 || two_digits(whole, 3) > 59 || two_digits(whole, 6) > 60) return false;
  if (!text.starts_with('.')) return true;
  const std::size_t digits =
      static_cast<std::size_t>(std::find_if_not(text.begin() + 1, text.end(), is_digit) - (text.begin() + 1));
  text.remove_prefix(1 + digits);
  return digits > 0;
}

bool is_datetime(std::string_view text) {
  std::string_view rest = text;
  if (take_time(rest)) return rest.empty();
  rest = text;
  if (!take_date(rest)) return false;
  if (rest.empty()) return true;
  if (std::string_view("Tt ").find(rest.front()) == std::string_view::npos) return false;
  rest.remove_prefix(1);
  if (!take_time(rest)) return false;
  if (rest.empty() || rest == "Z" || rest == "z") return true;
  const std::string_view zone = rest.substr(1);
  return (take_shape(rest, "+dd:dd") || take_shape(rest, "-dd:dd")) && rest.empty() &&
         two_digits(zone, 0) <= 23 && two_digits(zone, 3) <= 59;
}

// A number, or discarded when it is none.
Json number_of(std::string_view token) {
  Json none(Json::value_t::discarded);
  std::string_view digits = token;
  const bool sign = digits.starts_with('+') || digits.starts_with('-');
  if (sign) digits.remove_prefix(1);
  if (digits == "inf" || digits == "nan") {
    const double value =
        digits == "inf" ? std::numeric_limits<double>::infinity() : std::numeric_limits<double>::quiet_NaN();
    return token.front() == '-' ? -value : value;
  }
  struct Base {
    std::string_view prefix;
    int base;
    bool (*allowed)(char);
  };
  for (const Base& base : {Base{"0x", 16, is_hex}, Base{"0o", 8, [](char c) { return c >= '0' && c <= '7'; }},
                           Base{"0b", 2, [](char c) { return c == '0' || c == '1'; }}}) {
    if (!digits.starts_with(base.prefix)) continue;
    digits.remove_prefix(base.prefix.size());
    if (sign || !are_digits(digits, base.allowed)) return none;
    const std::string plain = without_underscores(digits);
    std::int64_t value = 0;
    const auto read = std::from_chars(plain.data(), plain.data() + plain.size(), value, base.base);
    return read.ec == std::errc{} ? Json(value) : none;
  }
  const std::size_t exponent_at = digits.find_first_of("eE");
  std::string_view mantissa = digits.substr(0, exponent_at);
  const std::size_t dot = mantissa.find('.');
  const std::string_view whole = mantissa.substr(0, dot);
  if (!are_decimal(whole) || (whole.size() > 1 && whole.front() == '0')) return none;
  if (dot != std::string_view::npos && !are_decimal(mantissa.substr(dot + 1))) return none;
  if (exponent_at != std::string_view::npos) {
    std::string_view exponent = digits.substr(exponent_at + 1);
    if (exponent.starts_with('+') || exponent.starts_with('-')) exponent.remove_prefix(1);
    if (!are_decimal(exponent)) return none;
  }
  std::string plain = without_underscores(token);
  if (plain.front() == '+') plain.erase(0, 1);
  if (dot == std::string_view::npos && exponent_at == std::string_view::npos) {
    std::int64_t value = 0;
    const auto read = std::from_chars(plain.data(), plain.data() + plain.size(), value);
    return read.ec == std::errc{} ? Json(value) : none;
  }
  double value = 0;
  std::from_chars(plain.data(), plain.data() + plain.size(),
                  value);  // too large or too small: whatever it gives
  return value;
}

// The parser: each function takes what it is named for off the text, or remembers the first thing that is
// wrong and returns false.
class Toml {
 public:
  explicit Toml(std::string_view text) : text_(text) {}

  Result<Json> run() {
    if (const bool whole = document(); !whole)
      return error(Code::kInvalidArgument, fmt::format("no TOML: line {}: {}", line_, wrong_));
    return std::move(root_);
  }

 private:
  bool wrong(std::string_view why) {
    if (wrong_.empty()) wrong_ = why;
    return false;
  }

  char peek() const { return at_ < text_.size() ? text_[at_] : '\0'; }
  bool done() const { return at_ >= text_.size(); }
  bool next_is(std::string_view what) const { return text_.substr(at_).starts_with(what); }
  bool take(std::string_view what) {
    if (!next_is(what)) return false;
    at_ += what.size();
    return true;
  }
  bool take_newline() {
    if (!take("\n") && !take("\r\n")) return false;
    ++line_;
    return true;
  }
  void blanks() {
    while (peek() == ' ' || peek() == '\t') ++at_;
  }

  // One character of a comment or a string, appended to `out`.
  bool character(std::string* out) {
    const std::size_t length = sequence_bytes(text_.substr(at_));
    if (length == 0) return wrong("no UTF-8");
    if (is_control(peek())) return wrong("a control character");
    if (out != nullptr) out->append(text_.substr(at_, length));
    at_ += length;
    return true;
  }

  bool comment() {
    if (!take("#")) return true;
    while (!done() && !next_is("\n") && !next_is("\r\n"))
      if (!character(nullptr)) return false;
    return true;
  }
  // Blanks, comments and line ends.
  bool gap() {
    do {
      blanks();
      if (!comment()) return false;
    } while (take_newline());
    return true;
  }
  bool end_of_line() {
    blanks();
    if (!comment()) return false;
    return done() || take_newline() || wrong("wanted the end of the line");
  }

  bool document() {
    if (!gap()) return false;
    while (!done()) {
      const bool right = next_is("[") ? header() : pair(*table_, table_path_, depth_);
      if (!right || !end_of_line() || !gap()) return false;
    }
    return true;
  }

  // ---- keys and tables ----

  bool simple_key(std::string& key) {
    if (next_is("\"\"\"") || next_is("'''")) return wrong("a key of several lines");
    if (peek() == '"') return basic_string(key);
    if (peek() == '\'') return literal_string(key);
    const std::size_t begin = at_;
    while (is_bare(peek())) ++at_;
    key = text_.substr(begin, at_ - begin);
    return !key.empty() || wrong("wanted a key");
  }
  bool dotted_key(std::vector<std::string>& keys) {
    do {
      blanks();
      std::string key;
      if (!simple_key(key)) return false;
      keys.push_back(std::move(key));
      if (keys.size() > static_cast<std::size_t>(kMaxJsonDepth)) return too_deep();
      blanks();
    } while (take("."));
    return true;
  }
  bool too_deep() { return wrong(fmt::format("nested deeper than {} levels", kMaxJsonDepth)); }

  static Path below(const Path& path, const std::string& key) { return path + '\xFF' + key; }

  bool header() {
    const bool many = take("[[");
    if (!many) take("[");
    std::vector<std::string> keys;
    if (!dotted_key(keys)) return false;
    if (!take(many ? "]]" : "]")) return wrong("wanted ']' behind the name of a table");
    const std::string last = std::move(keys.back());
    keys.pop_back();
    Json* table = &root_;
    Path path;
    for (const std::string& key : keys)
      if (!step(table, path, key)) return false;
    depth_ = static_cast<int>(keys.size()) + 1;
    return many ? open_element(*table, below(path, last), last) : open_table(*table, below(path, last), last);
  }

  // Into a table that a header passes through, made where it is not there.
  bool step(Json*& table, Path& path, const std::string& key) {
    path = below(path, key);
    if (closed_.contains(path)) return wrong(fmt::format("'{}' is closed", printable(key)));
    Json& found = (*table)[key];
    if (found.is_null()) found = Json::object();
    if (found.is_array()) {  // of tables: the last one
      path = below(path, fmt::format("\xFF{}", found.size()));
      table = &found.back();
    } else {
      table = &found;
    }
    return table->is_object() || wrong(fmt::format("'{}' is no table", printable(key)));
  }

  bool open_table(Json& parent, const Path& path, const std::string& key) {
    Json& found = parent[key];
    if (found.is_null()) found = Json::object();
    if (!found.is_object() || closed_.contains(path) || !defined_.insert(path).second)
      return wrong(fmt::format("'{}' is there twice", printable(key)));
    table_ = &found;
    table_path_ = path;
    return true;
  }

  bool open_element(Json& parent, const Path& path, const std::string& key) {
    Json& found = parent[key];
    if (found.is_null()) {
      found = Json::array();
      lists_.insert(path);
    }
    if (!lists_.contains(path)) return wrong(fmt::format("'{}' is there twice", printable(key)));
    found.push_back(Json::object());
    table_ = &found.back();
    table_path_ = below(path, fmt::format("\xFF{}", found.size()));
    return true;
  }

  bool pair(Json& into, const Path& at, int depth) {
    std::vector<std::string> keys;
    if (!dotted_key(keys)) return false;
    if (!take("=")) return wrong("wanted '=' behind a key");
    blanks();
    const std::string last = std::move(keys.back());
    keys.pop_back();
    Json* table = &into;
    Path path = at;
    for (const std::string& key : keys) {
      path = below(path, key);
      Json& found = (*table)[key];
      if (found.is_null()) {
        found = Json::object();
        dotted_.insert(path);
        defined_.insert(path);
      }
      // What a header opened, or wrote as a value, is not added to by dots.
      if (!found.is_object() || closed_.contains(path) ||
          (defined_.contains(path) && !dotted_.contains(path)))
        return wrong(fmt::format("'{}' is there twice", printable(key)));
      table = &found;
    }
    if (table->contains(last)) return wrong(fmt::format("'{}' is there twice", printable(last)));
    Json value;
    path = below(path, last);
    if (!this->value(value, path, depth + static_cast<int>(keys.size()) + 1)) return false;
    if (value.is_structured()) closed_.insert(path);
    (*table)[last] = std::move(value);
    return true;
  }

  // ---- values ----

  bool value(Json& out, const Path& path, int depth) {
    if (depth > kMaxJsonDepth) return too_deep();
    std::string text;
    if (take("[")) return array(out, path, depth);
    if (take("{")) return inline_table(out, path, depth);
    if (next_is("\"\"\"") || next_is("'''")) {
      if (!lines(text)) return false;
    } else if (peek() == '"') {
      if (!basic_string(text)) return false;
    } else if (peek() == '\'') {
      if (!literal_string(text)) return false;
    } else {
      return scalar(out);
    }
    out = std::move(text);
    return true;
  }

  bool array(Json& out, const Path& path, int depth) {
    out = Json::array();
    while (true) {
      if (!gap()) return false;
      if (take("]")) return true;
      Json element;
      const Path element_path = below(path, fmt::format("\xFF{}", out.size()));
      if (!value(element, element_path, depth + 1)) return false;
      out.push_back(std::move(element));
      if (!gap()) return false;
      if (!take(",") && !next_is("]")) return wrong("wanted ',' or ']' in a list");
    }
  }

  bool inline_table(Json& out, const Path& path, int depth) {
    out = Json::object();
    blanks();
    if (take("}")) return true;
    do {
      if (!pair(out, path, depth)) return false;
      blanks();
    } while (take(","));
    return take("}") || wrong("wanted ',' or '}' in a table");
  }

  bool scalar(Json& out) {
    const std::size_t begin = at_;
    const auto run = [&] {
      while (is_bare(peek()) || peek() == '+' || peek() == '.' || peek() == ':') ++at_;
      return text_.substr(begin, at_ - begin);
    };
    std::string_view token = run();
    std::string_view date = token;
    // A date and its time may stand apart.
    if (peek() == ' ' && take_shape(date, "dddd-dd-dd") && date.empty() && at_ + 1 < text_.size() &&
        is_digit(text_[at_ + 1]))
      ++at_, token = run();
    if (token == "true" || token == "false") {
      out = token == "true";
      return true;
    }
    if (is_datetime(token)) {
      out = Json{{"datetime", token}};
      return true;
    }
    if (!token.empty()) out = number_of(token);
    return (!token.empty() && !out.is_discarded()) || wrong("wanted a value");
  }

  bool literal_string(std::string& out) {
    take("'");
    while (!take("'")) {
      if (done() || next_is("\n") || next_is("\r\n")) return wrong("a string without its end");
      if (!character(&out)) return false;
    }
    return true;
  }

  bool basic_string(std::string& out) {
    take("\"");
    while (!take("\"")) {
      if (done() || next_is("\n") || next_is("\r\n")) return wrong("a string without its end");
      if (next_is("\\") ? !escape(out) : !character(&out)) return false;
    }
    return true;
  }

  // A string of several lines, basic or literal.
  bool lines(std::string& out) {
    const std::string quotes(3, peek());
    take(quotes);
    take_newline();
    while (!take(quotes)) {
      if (done()) return wrong("a string without its end");
      if (take_newline()) {
        out += '\n';
      } else if (quotes.front() == '"' && next_is("\\")) {
        if (!folded() && !escape(out)) return false;
      } else if (!character(&out)) {
        return false;
      }
    }
    for (int own = 0; own < 2 && take(quotes.substr(2)); ++own) out += quotes.front();
    return true;
  }

  // A backslash at the end of a line swallows all blanks and line ends behind it.
  bool folded() {
    const std::size_t begin = at_;
    take("\\");
    blanks();
    if (!take_newline()) {
      at_ = begin;
      return false;
    }
    do blanks();
    while (take_newline());
    return true;
  }

  bool escape(std::string& out) {
    take("\\");
    constexpr std::string_view kNames = "btnfr\"\\", kCharacters = "\b\t\n\f\r\"\\";
    const char name = peek();
    ++at_;
    if (const std::size_t found = kNames.find(name); found != std::string_view::npos && name != '\0') {
      out += kCharacters[found];
      return true;
    }
    const std::size_t digits = name == 'u' ? 4 : name == 'U' ? 8 : 0;
    const std::string_view code = at_ <= text_.size() ? text_.substr(at_, digits) : std::string_view{};
    if (digits == 0 || code.size() != digits || !std::all_of(code.begin(), code.end(), is_hex))
      return wrong("an escape that is none");
    std::uint32_t value = 0;
    std::from_chars(code.data(), code.data() + code.size(), value, 16);
    if (value > 0x10FFFF || (value >= 0xD800 && value <= 0xDFFF))
      return wrong("an escape that is no character");
    at_ += digits;
    append_utf8(out, value);
    return true;
  }

  std::string_view text_;
  std::size_t at_ = 0;
  std::size_t line_ = 1;
  std::string wrong_;

  Json root_ = Json::object();
  Json* table_ = &root_;  // that pairs go into
  Path table_path_;
  int depth_ = 0;           // of that table
  std::set<Path> defined_;  // tables that a header opened or dots made
  std::set<Path> dotted_;   // those made by dots
  std::set<Path> closed_;   // values, which nothing can be added to
  std::set<Path> lists_;    // of tables
};

}  // namespace

Result<Json> parse_toml(std::string_view text) {
  if (text.size() > kMaxJsonBytes)
    return error(Code::kInvalidArgument,
                 fmt::format("no TOML: wanted at most {} bytes, got {}", kMaxJsonBytes, text.size()));
  return Toml(text).run();
}

}  // namespace tiercel
