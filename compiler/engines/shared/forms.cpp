#include "compiler/engines/shared/forms.h"

#include <algorithm>

namespace attn::engines {
namespace {

constexpr Form kForms[] = {
#define ATTN_FORM(mode, compute, result) \
  {graph::PointwiseMode::mode, DType::compute, DType::result},
#include "compiler/engines/shared/forms.def"
#undef ATTN_FORM
};

}  // namespace

std::span<const Form> proven_forms() { return kForms; }

bool is_proven(const Form& form) {
  return std::find(std::begin(kForms), std::end(kForms), form) != std::end(kForms);
}

}  // namespace attn::engines
