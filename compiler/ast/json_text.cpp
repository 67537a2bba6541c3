#include "compiler/ast/json_text.h"

#include <fmt/format.h>

#include <algorithm>

#include "compiler/ast/ast.h"
#include "compiler/ast/number.h"
#include "compiler/support/text.h"

namespace attn::ast {
namespace {

using diag::Code;

constexpr std::size_t kMaxNesting = 2 * kMaxDepth + 16;  // an operation is an object and an array

std::size_t digits(std::string_view text, std::size_t at) {
  while (at < text.size() && is_digit(text[at])) ++at;
  return at;
}

// The end of the number (without sign) that starts at `at`, or `at` if there is none.
std::size_t number_end(std::string_view text, std::size_t at) {
  std::size_t end = digits(text, at);
  if (end == at || (text[at] == '0' && end > at + 1)) return at;
  if (end < text.size() && text[end] == '.') {
    const std::size_t fraction = digits(text, end + 1);
    if (fraction == end + 1) return at;
    end = fraction;
  }
  if (end < text.size() && (text[end] == 'e' || text[end] == 'E')) {
    std::size_t exponent = end + 1;
    if (exponent < text.size() && (text[exponent] == '+' || text[exponent] == '-')) ++exponent;
    end = digits(text, exponent);
    if (end == exponent) return at;
  }
  return end;
}

void append_utf8(std::string& out, std::uint32_t point) {
  const auto put = [&](std::uint32_t byte) { out.push_back(static_cast<char>(byte)); };
  if (point < 0x80) {
    put(point);
  } else if (point < 0x800) {
    put(0xC0 | (point >> 6));
    put(0x80 | (point & 0x3F));
  } else {
    put(0xE0 | (point >> 12));
    put(0x80 | ((point >> 6) & 0x3F));
    put(0x80 | (point & 0x3F));
  }
}

// The place in the text up to which it is read.
class JsonCursor {
 public:
  JsonCursor(const support::Source& source, diag::Sink& sink) : text_(source.text()), sink_(sink) {
    if (text_.starts_with("\xEF\xBB\xBF")) at_ = 3;
  }

 protected:
  bool done() const { return failed_ || at_ >= text_.size(); }
  char peek() const { return done() ? '\0' : text_[at_]; }
  std::uint32_t here() const { return static_cast<std::uint32_t>(at_); }

  void space() {
    while (!done() && std::string_view(" \t\r\n").find(text_[at_]) != std::string_view::npos) ++at_;
  }

  bool accept(char c) {
    if (done() || text_[at_] != c) return false;
    ++at_;
    return true;
  }

  void fail(std::string_view expected) {
    if (failed_) return;
    const bool end = at_ >= text_.size();
    const std::string_view rest = text_.substr(std::min(at_, text_.size()));
    const std::size_t bytes = end ? 0 : support::code_point_bytes(rest);
    const std::string found = end ? "the end of the file" : support::quoted(rest.substr(0, bytes));
    sink_.report(Code::json_syntax, {here(), here() + static_cast<std::uint32_t>(bytes)},
                 fmt::format("expected {}, found {}", expected, found));
    failed_ = true;
  }

  std::string_view text_;
  diag::Sink& sink_;
  std::size_t at_ = 0;
  bool failed_ = false;
};

class Reader : private JsonCursor {
 public:
  using JsonCursor::JsonCursor;

  std::optional<JsonValue> run() {
    JsonValue result = value();
    space();
    if (!failed_ && at_ < text_.size()) fail("the end of the file");
    if (failed_) return std::nullopt;
    return result;
  }

 private:
  JsonValue value() {
    space();
    JsonValue result;
    result.span.begin = here();
    if (++depth_ > kMaxNesting) {
      sink_.report(Code::too_deep, {here(), here() + 1}, "the JSON is nested too deeply");
      failed_ = true;
    }
    switch (peek()) {
      case '{': object(result); break;
      case '[': array(result); break;
      case '"': string(result); break;
      default: scalar(result); break;
    }
    --depth_;
    return result;
  }

  void object(JsonValue& result) {
    result.kind = JsonKind::object;
    ++at_;
    space();
    if (!accept('}')) {
      do {
        space();
        if (peek() != '"') return fail("a key in double quotes");
        JsonValue key;
        string(key);
        space();
        if (!accept(':')) return fail("`:`");
        result.members.push_back({std::move(key.text), key.span, value()});
        space();
      } while (accept(','));
      if (!accept('}')) return fail("`,` or `}`");
    }
    result.span.end = here();
  }

  void array(JsonValue& result) {
    result.kind = JsonKind::array;
    ++at_;
    space();
    if (!accept(']')) {
      do {
        result.items.push_back(value());
        space();
      } while (accept(','));
      if (!accept(']')) return fail("`,` or `]`");
    }
    result.span.end = here();
  }

  void string(JsonValue& result) {
    result.kind = JsonKind::string;
    ++at_;
    result.span.begin = here();
    while (!done() && text_[at_] != '"') {
      if (static_cast<unsigned char>(text_[at_]) < 0x20) return fail("`\"` on the same line");
      if (accept('\\')) {
        escape(result.text);
      } else {
        result.text.push_back(text_[at_++]);
      }
    }
    result.span.end = here();
    if (!accept('"')) fail("`\"`");
  }

  // Surrogate pairs are not combined: each half becomes three bytes. Names cannot contain them.
  void escape(std::string& out) {
    static constexpr std::string_view kSigns = "\"\\/bfnrt";
    static constexpr std::string_view kMeanings = "\"\\/\b\f\n\r\t";
    const std::size_t found = done() ? kSigns.npos : kSigns.find(text_[at_]);
    if (found != kSigns.npos) {
      ++at_;
      out.push_back(kMeanings[found]);
      return;
    }
    if (!accept('u')) return fail("an escape such as `\\n`");
    std::uint32_t point = 0;
    for (int i = 0; i < 4; ++i) {
      static constexpr std::string_view kHex = "0123456789abcdef";
      const auto digit =
          kHex.find(static_cast<char>(peek() >= 'A' && peek() <= 'F' ? peek() + 32 : peek()));
      if (done() || digit == kHex.npos) return fail("four hexadecimal digits");
      point = point * 16 + static_cast<std::uint32_t>(digit);
      ++at_;
    }
    append_utf8(out, point);
  }

  void scalar(JsonValue& result) {
    if (done()) return fail("a JSON value");
    const std::string_view rest = text_.substr(at_);
    for (const std::string_view word : {"true", "false", "null"}) {
      if (!rest.starts_with(word)) continue;
      result.kind = word == "null" ? JsonKind::null : JsonKind::boolean;
      return take(result, at_ + word.size());
    }
    const std::size_t start = rest[0] == '-' ? at_ + 1 : at_;
    const std::size_t end = number_end(text_, start);
    if (end == start) return fail("a JSON value");
    result.kind = JsonKind::number;
    take(result, end);
  }

  void take(JsonValue& result, std::size_t end) {
    result.text = text_.substr(at_, end - at_);
    at_ = end;
    result.span.end = here();
  }

  std::size_t depth_ = 0;
};

}  // namespace

const JsonMember* JsonValue::find(std::string_view key) const {
  const auto found = std::ranges::find(members, key, &JsonMember::key);
  return found == members.end() ? nullptr : &*found;
}

std::string_view in_words(JsonKind kind) {
  switch (kind) {
    case JsonKind::null: return "null";
    case JsonKind::boolean: return "a boolean";
    case JsonKind::number: return "a number";
    case JsonKind::string: return "a string";
    case JsonKind::array: return "an array";
    case JsonKind::object: return "an object";
  }
  return "";
}

std::optional<JsonValue> read_json(const support::Source& source, diag::Sink& sink) {
  return Reader(source, sink).run();
}

bool is_json_number(std::string_view text) {
  return !text.empty() && number_end(text, 0) == text.size();
}

}  // namespace attn::ast
