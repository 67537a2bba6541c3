// A named source text, with spans and line/column positions in it.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/status.h"

namespace attn::support {

// A half-open range of bytes.
struct Span {
  std::uint32_t begin = 0;
  std::uint32_t end = 0;
  bool operator==(const Span&) const = default;
};

// 1-based; columns count Unicode code points (each byte that is not UTF-8 counts as one).
struct Place {
  std::uint32_t line = 1;
  std::uint32_t column = 1;
};

class Source {
 public:
  Source(std::string name, std::string text);

  // Reads a file, or standard input for "-" (named "<stdin>"). Errors: io.
  static Result<Source> read(const std::string& path);

  const std::string& name() const { return name_; }
  std::string_view text() const { return text_; }
  Place place(std::uint32_t offset) const;
  std::string_view line(std::uint32_t number) const;  // 1-based; without the line end
  // Whether the text is JSON (attn::is_json_spec) or the name ends in .json.
  bool is_json() const;

  // A result computed from the text at the first call of `compute`, which returns a shared_ptr, and
  // shared by copies. One type per program: the parser's (ast::parse). Thread-safe.
  template <typename Compute>
  const std::shared_ptr<const void>& once(const Compute& compute) const {
    std::call_once(kept_->once, [&] { kept_->result = compute(); });
    return kept_->result;
  }

 private:
  struct Kept {
    std::once_flag once;
    std::shared_ptr<const void> result;
  };

  std::string name_;
  std::string text_;
  std::vector<std::uint32_t> line_starts_;
  std::vector<std::uint32_t> ascii_ends_;  // per line: its first non-ASCII byte, or its end
  std::shared_ptr<Kept> kept_ = std::make_shared<Kept>();
};

}  // namespace attn::support
