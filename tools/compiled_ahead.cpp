#include "tools/compiled_ahead.h"

#include <algorithm>
#include <exception>
#include <utility>

namespace attn::tools {

CompiledAhead::CompiledAhead(std::size_t count, unsigned jobs, Compile compile)
    : compile_(std::move(compile)), results_(count) {
  const std::size_t threads = std::min<std::size_t>(count, jobs);
  for (std::size_t i = 0; i < threads; ++i) threads_.emplace_back([this] { work(); });
}

CompiledAhead::~CompiledAhead() { next_ = results_.size(); }

void CompiledAhead::work() {
  for (std::size_t i = next_++; i < results_.size(); i = next_++) {
    try {
      results_[i].set_value(compile_(i));
    } catch (...) {
      results_[i].set_exception(std::current_exception());  // take() throws it
    }
  }
}

}  // namespace attn::tools
