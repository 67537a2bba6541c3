// The derivatives of a spec, in the language's own syntax.
#pragma once

#include <string>
#include <vector>

#include "compiler/ir/attention.h"
#include "tools/report.h"

namespace attn::tools {

struct ExplainedDerivatives {
  // The derivative of `of` ("score", "sink" or "epilogue") by `by` ("score", meaning the scaled
  // product, "o", the element before the epilogue, or a gather such as "table[b, h]"). An empty
  // `value` is 0: no gradient flows through the tensor `by`.
  struct Entry {
    std::string of;
    std::string by;
    std::string value;
    std::string branch{};  // that it is of; empty: of the attention that combines them

    std::string where() const;  // "score", "score of far"
  };
  std::vector<std::string> wanted;  // gradient::wanted_gradients
  bool through_lse = false;         // of lse times dlse, too
  std::vector<Entry> entries;
};

ExplainedDerivatives explain_derivatives(const ir::Attention& attention);

std::string to_text(const ExplainedDerivatives& derivatives);
Json to_json(const ExplainedDerivatives& derivatives);

}  // namespace attn::tools
