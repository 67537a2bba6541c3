// The sizes of a spec and of a plan: how they follow from each other, and which may be padded.
#pragma once

#include <array>
#include <optional>
#include <span>
#include <vector>

#include "compiler/driver/driver.h"
#include "runtime/plan/shape.h"

namespace attn::driver {

// The attention of a valid spec with these dimensions left open, whatever the spec and the bindings
// say. Nothing if it is not valid then.
std::optional<ir::Attention> opened(const support::Source& source, sema::Bindings bindings,
                                    std::span<const ir::Dim> dims);

// Those of B, Sq and Skv that may be padded if lengths hide what is added, since the spec does not
// depend on their size: no expression, stride, probability or bound of a reduction reads them, only
// they may be derived from them, and no captured tensor becomes smaller as they grow. None if that
// cannot be proved. `attention`: of this spec.
std::vector<plan::Dim> paddable_dims(const support::Source& source, const sema::Bindings& bindings,
                                     const ir::Attention& attention);

// What is known of the sizes of a spec.
struct KnownSizes {
  // Sizes of the plans that the spec asks for, by ir::Dim, each once: none if it is open.
  std::array<std::vector<std::int64_t>, ir::kDims.size()> of;
  std::vector<std::string> open;      // those that need a size, "D" for both Dqk and Dv
  std::optional<std::int64_t> group;  // how many heads of q share one of k and v
  bool aligned = false;               // Skv is Sq, whatever that is
};
KnownSizes known_sizes(const support::Source& source, const sema::Bindings& bindings);

// Returns the sizes of the attention, all of which must be bound, and the dimensions for which
// `program` also serves smaller sizes (plan::Shape::padded): of `paddable`, those whose rest is
// hidden by lengths that the program has.
plan::Shape shape_of(const ir::Attention& attention, const std::vector<plan::Dim>& paddable,
                     const plan::Program& program);

}  // namespace attn::driver
