// All that the page of `attnc report` says, as one value for its templates (page.h).
#pragma once

#include "tools/drawn.h"
#include "tools/explanation.h"
#include "tools/report.h"
#include "tools/spec.h"

namespace attn::tools::page {

struct Report {
  const Spec& spec;
  const Explanation& explanation;
  const diag::Sink& further;  // warnings, found after the spec was read
  Result<Drawn> drawn;        // an error: why there is no picture
  bool is_plan = false;       // the explanation is of a plan file
};

Json view_of(const Report& report);

}  // namespace attn::tools::page
