#include "compiler/ir/scanner.h"

#include <fmt/format.h>

#include <cctype>
#include <charconv>
#include <limits>

namespace attn::ir {
namespace {

bool is_word_character(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '.' || c == '+' ||
         c == '-';
}

template <typename Number>
bool parse_number(std::string_view text, Number& value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size();
}

}  // namespace

void Scanner::skip_blanks() {
  while (!rest_.empty() && rest_.front() == ' ') rest_.remove_prefix(1);
}

std::string_view Scanner::peek() const {
  std::size_t length = 0;
  while (length < rest_.size() && is_word_character(rest_[length])) ++length;
  return rest_.substr(0, length == 0 ? 1 : length);
}

std::string_view Scanner::next() {
  skip_blanks();
  const std::string_view token = peek();
  rest_.remove_prefix(token.size());
  return token;
}

bool Scanner::at_end() {
  skip_blanks();
  return rest_.empty();
}

bool Scanner::accept(std::string_view sign) {
  skip_blanks();
  if (peek() != sign) return false;
  rest_.remove_prefix(sign.size());
  return true;
}

Status Scanner::expect(std::string_view sign) {
  if (accept(sign)) return {};
  return error(fmt::format("expected '{}'", sign));
}

Result<std::string_view> Scanner::word() {
  const std::string_view token = next();
  if (token.empty() || !is_word_character(token.front())) return error("expected a word");
  return token;
}

Result<std::int64_t> Scanner::integer() {
  const std::string_view token = next();
  std::int64_t value = 0;
  if (!parse_number(token, value)) return error(fmt::format("'{}' is not an integer", token));
  return value;
}

Result<double> Scanner::real() {
  const std::string_view token = next();
  double value = 0;
  if (!parse_number(token, value)) return error(fmt::format("'{}' is not a real", token));
  return value;
}

Result<std::size_t> Scanner::number() {
  ATTN_RETURN_IF_ERROR(expect("%"));
  const std::string_view token = next();
  std::size_t value = 0;
  if (!parse_number(token, value)) return error(fmt::format("'%{}' is not a node", token));
  return value;
}

Error Scanner::error(std::string_view message) const {
  return {ErrorCode::invalid_argument,
          fmt::format("IR text, line {}: {}", number_, message),
          {},
          fmt::format("{{\"line\": {}}}", number_)};
}

}  // namespace attn::ir
