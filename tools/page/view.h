// All that the page of `attnc report` says, as one value for its templates (page.h).
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "compiler/pictures/picture.h"
#include "compiler/reference/bindings.h"
#include "tools/explanation.h"
#include "tools/report.h"
#include "tools/spec.h"

namespace attn::tools::page {

struct Drawn {
  pictures::Picture picture;
  reference::Bindings values;
  std::vector<std::pair<std::string, std::string>> origins;  // Inputs::origins
};

struct Report {
  const Spec& spec;
  const Explanation& explanation;
  const diag::Sink& further;  // warnings, found after the spec was read
  Result<Drawn> drawn;        // an error: why there is no picture
  bool is_plan = false;       // the explanation is of a plan file
};

Json view_of(const Report& report);

}  // namespace attn::tools::page
