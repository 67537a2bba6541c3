#include "runtime/io/npy_header.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <charconv>

namespace attn::io {
namespace {

constexpr std::size_t kMaxRank = 64;  // NumPy's own limit

Error bad_header(std::string what) {
  return Error{ErrorCode::io, fmt::format("cannot parse the .npy header: {}", what), {}, {}};
}

class Parser {
 public:
  explicit Parser(std::string_view text) : rest_(text) {}

  Result<NpyHeader> header() {
    NpyHeader header;
    bool has_descr = false, has_order = false, has_shape = false;
    if (!eat('{')) return bad_header("it does not begin with '{'");
    while (!eat('}')) {
      ATTN_ASSIGN(std::string key, string());
      if (!eat(':')) return bad_header(fmt::format("expected ':' after '{}'", key));
      if (key == "descr" && !has_descr) {
        has_descr = true;
        ATTN_ASSIGN(header.descr, string());
      } else if (key == "fortran_order" && !has_order) {
        has_order = true;
        ATTN_ASSIGN(header.fortran_order, boolean());
      } else if (key == "shape" && !has_shape) {
        has_shape = true;
        ATTN_ASSIGN(header.shape, shape());
      } else {
        return bad_header(fmt::format("unexpected key '{}'", key));
      }
      if (!eat(',') && !looking_at('}')) return bad_header("expected ',' between entries");
    }
    skip_space();
    if (!rest_.empty()) return bad_header("text after '}'");
    if (!has_descr || !has_order || !has_shape) {
      return bad_header("it must have 'descr', 'fortran_order' and 'shape'");
    }
    return header;
  }

 private:
  void skip_space() {
    while (!rest_.empty() && (rest_[0] == ' ' || rest_[0] == '\n' || rest_[0] == '\t')) {
      rest_.remove_prefix(1);
    }
  }

  bool looking_at(char c) {
    skip_space();
    return !rest_.empty() && rest_[0] == c;
  }

  bool eat(char c) {
    if (!looking_at(c)) return false;
    rest_.remove_prefix(1);
    return true;
  }

  Result<std::string> string() {
    skip_space();
    if (looking_at('[')) return bad_header("records (structured types) are not supported");
    if (rest_.empty() || (rest_[0] != '\'' && rest_[0] != '"'))
      return bad_header("expected a string");
    const std::size_t end = rest_.find(rest_[0], 1);
    if (end == std::string_view::npos) return bad_header("unterminated string");
    std::string text(rest_.substr(1, end - 1));
    rest_.remove_prefix(end + 1);
    return text;
  }

  Result<bool> boolean() {
    skip_space();
    for (const auto& [word, value] : {std::pair{"True", true}, std::pair{"False", false}}) {
      if (!rest_.starts_with(word)) continue;
      rest_.remove_prefix(std::string_view(word).size());
      return value;
    }
    return bad_header("'fortran_order' is neither True nor False");
  }

  Result<std::int64_t> dimension() {
    skip_space();
    std::int64_t value = 0;
    const auto [end, error] = std::from_chars(rest_.data(), rest_.data() + rest_.size(), value);
    if (error != std::errc() || value < 0) return bad_header("a dimension is not a valid size");
    rest_.remove_prefix(static_cast<std::size_t>(end - rest_.data()));
    return value;
  }

  Result<std::vector<std::int64_t>> shape() {
    std::vector<std::int64_t> dims;
    if (!eat('(')) return bad_header("'shape' is not a tuple");
    while (!eat(')')) {
      if (dims.size() == kMaxRank) return bad_header("more than 64 dimensions");
      ATTN_ASSIGN(const std::int64_t dim, dimension());
      dims.push_back(dim);
      if (!eat(',') && !looking_at(')')) return bad_header("expected ',' between dimensions");
    }
    return dims;
  }

  std::string_view rest_;
};

}  // namespace

Result<NpyHeader> parse_npy_header(std::string_view text) { return Parser(text).header(); }

std::string format_npy_header(const NpyHeader& header) {
  std::string shape = fmt::format("{}", fmt::join(header.shape, ", "));
  if (header.shape.size() == 1) shape += ",";
  return fmt::format("{{'descr': '{}', 'fortran_order': {}, 'shape': ({}), }}", header.descr,
                     header.fortran_order ? "True" : "False", shape);
}

}  // namespace attn::io
