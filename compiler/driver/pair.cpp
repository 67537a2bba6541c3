#include <fmt/format.h>

#include "compiler/driver/driver.h"

namespace attn::driver {

ir::Attention training_forward(ir::Attention attention) {
  attention.wants_o = attention.wants_lse = true;
  return attention;
}

Result<std::vector<Compiled>> compile_pair(const ir::Attention& attention,
                                           const support::Source& source,
                                           const sema::Bindings& bindings,
                                           const CompileOptions& options) {
  const ir::Attention trained = training_forward(attention);
  std::vector<Compiled> pair;
  for (const plan::Direction direction : {plan::Direction::forward, plan::Direction::backward}) {
    CompileOptions how = options;
    how.direction = direction;
    Result<Compiled> compiled = compile(trained, source, bindings, how);
    if (!compiled.ok()) {
      Error error = compiled.error();
      error.message = fmt::format("{}: {}", plan::to_string(direction), error.message);
      return error;
    }
    pair.push_back(std::move(*compiled));
  }
  return pair;
}

}  // namespace attn::driver
