// Splits one line of IR text into words, numbers and signs.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "runtime/base/status.h"

namespace attn::ir {

class Scanner {
 public:
  Scanner(std::string_view line, std::size_t number) : rest_(line), number_(number) {}

  // The next run of letters, digits, '_', '.', '+', '-', or the next single other character;
  // empty at the end of the line.
  std::string_view next();
  bool at_end();

  // Consumes `sign` if it is next.
  bool accept(std::string_view sign);
  Status expect(std::string_view sign);

  // Each fails if something else is next.
  Result<std::string_view> word();
  Result<std::int64_t> integer();
  Result<double> real();
  Result<std::size_t> number();  // %12

  // An error at this line.
  Error error(std::string_view message) const;

 private:
  void skip_blanks();
  std::string_view peek() const;

  std::string_view rest_;
  std::size_t number_;
};

}  // namespace attn::ir
