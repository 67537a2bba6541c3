// The conditions of a spec's masks as they were written, by their places.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "compiler/support/source.h"
#include "runtime/base/source_pos.h"

namespace attn::tools {

bool before(support::Place a, support::Place b);

struct WrittenCondition {
  std::string text;        // on one line; empty if it is not known
  std::uint32_t line = 0;  // 1-based
  bool operator==(const WrittenCondition&) const = default;
};

class WrittenConditions {
 public:
  // Needs a text that parses.
  explicit WrittenConditions(const support::Source& source);

  // The term of a `mask` clause, between its &&, that a place lies in, or the `let` clause: the
  // terms of the IR have the places of their operators, or of the call that they were inlined for.
  // Nothing of the JSON form, which is no text to show.
  WrittenCondition at(SourcePos pos) const;

 private:
  struct Extent {
    support::Place begin, end;
    std::string text;
  };
  std::vector<Extent> extents_;
};

}  // namespace attn::tools
