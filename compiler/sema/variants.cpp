#include "compiler/sema/analyze.h"
#include "compiler/sema/environment.h"
#include "compiler/sema/names.h"

namespace attn::sema {
namespace {

// Every element of `before` with every value of the name.
std::vector<Bindings> combined(const std::vector<Bindings>& before, const std::string& name,
                               const std::vector<std::string>& values) {
  std::vector<Bindings> longer;
  for (const Bindings& bindings : before) {
    for (const std::string& value : values) {
      longer.push_back(bindings);
      longer.back()[name] = value;
    }
  }
  return longer;
}

// The variants from the spec's sets of sizes.
std::vector<Bindings> with_sets(const ast::Spec& spec, const Bindings& bindings) {
  const support::Source none("", "");
  diag::Sink unheard(none);
  const Environment environment = make_environment(spec, bindings, unheard);
  std::vector<Bindings> result = {bindings};
  if (unheard.has_errors()) return result;
  for (const auto& [name, sizes] : environment.sets) {
    std::vector<std::string> texts;
    for (const std::int64_t size : sizes) texts.push_back(std::to_string(size));
    result = combined(result, name, texts);
  }
  return result;
}

}  // namespace

std::vector<Bindings> variants(const ast::Spec& spec, const Bindings& bindings) {
  std::vector<Bindings> bound = {bindings};
  for (const auto& [name, text] : bindings) {
    if (!is_dimension_name(name)) continue;
    const std::vector<std::string> values = listed_sizes(text);
    if (bound.size() * values.size() > kMostCombinations) return {bindings};
    bound = combined(bound, name, values);
  }
  std::vector<Bindings> result;
  for (const Bindings& one : bound) {
    const std::vector<Bindings> variants = with_sets(spec, one);
    if (result.size() + variants.size() > kMostCombinations) return {bindings};
    result.insert(result.end(), variants.begin(), variants.end());
  }
  return result;
}

}  // namespace attn::sema
