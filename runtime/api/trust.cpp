#include "runtime/api/trust.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cstdint>
#include <string>

#include "runtime/base/sha256.h"

namespace attn::api {
namespace {

constexpr std::size_t kDigits = 64;

Status check_hash(const std::string& expected, std::string_view bytes) {
  const auto is_digit = [](unsigned char c) { return std::isxdigit(c) != 0; };
  if (expected.size() != kDigits || !std::ranges::all_of(expected, is_digit)) {
    return {ErrorCode::invalid_argument,
            fmt::format("'{}' is not a SHA-256 of {} hexadecimal digits", expected, kDigits)};
  }
  const std::string found = sha256_hex(bytes);
  const auto same = [](unsigned char a, unsigned char b) { return std::tolower(a) == b; };
  if (std::ranges::equal(expected, found, same)) return {};
  return Error{ErrorCode::plan_refused,
               "the SHA-256 of the plan file is not the expected one",
               {"its SHA-256 is " + found, "the expected SHA-256 is " + expected}};
}

}  // namespace

Status Trust::operator()(std::string_view bytes) const {
  if (sha256_ != nullptr) ATTN_RETURN_IF_ERROR(check_hash(sha256_, bytes));
  if (verify_ == nullptr) return {};
  const std::int32_t answer = verify_(user_, bytes.data(), bytes.size());
  if (answer == 0) return {};
  return {ErrorCode::plan_refused,
          fmt::format("the application refused the plan file: verify returned {}", answer)};
}

}  // namespace attn::api
