// Values of attn.hpp's results, in tests.
#pragma once

#include <attn.hpp>
#include <stdexcept>
#include <utility>

namespace attn::standin {

// The test fails without one.
template <typename T>
T must(attn::Result<T> result) {
  if (!result.ok()) throw std::runtime_error(result.error().to_text());
  return std::move(result).value();
}
inline void must(const attn::Status& status) {
  if (!status.ok()) throw std::runtime_error(status.error().to_text());
}

}  // namespace attn::standin
