#include "compiler/sema/analyze.h"
#include "compiler/sema/environment.h"

namespace attn::sema {

std::vector<Bindings> variants(const ast::Spec& spec, const Bindings& bindings) {
  const support::Source none("", "");
  diag::Sink unheard(none);
  const Environment environment = make_environment(spec, bindings, unheard);
  std::vector<Bindings> result = {bindings};
  if (unheard.has_errors()) return result;
  for (const auto& [name, sizes] : environment.sets) {
    std::vector<Bindings> longer;
    for (const Bindings& before : result) {
      for (const std::int64_t size : sizes) {
        longer.push_back(before);
        longer.back()[name] = std::to_string(size);
      }
    }
    result = std::move(longer);
  }
  return result;
}

}  // namespace attn::sema
