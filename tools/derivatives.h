// The derivatives of a spec, in the language's own syntax.
#pragma once

#include <string>
#include <vector>

#include "compiler/ir/attention.h"
#include "tools/report.h"

namespace attn::tools {

struct ExplainedDerivatives {
  // What of what: "score" (of itself: by the scaled product), or "sink"; by `score` or a gather,
  // "table[b, h]". An empty `value`: the tensor `by` reaches nothing that has a gradient.
  struct Entry {
    std::string of;
    std::string by;
    std::string value;
  };
  std::vector<std::string> wanted;  // gradient::wanted_gradients
  std::vector<Entry> entries;
};

ExplainedDerivatives explain_derivatives(const ir::Attention& attention);

std::string to_text(const ExplainedDerivatives& derivatives);
Json to_json(const ExplainedDerivatives& derivatives);

}  // namespace attn::tools
