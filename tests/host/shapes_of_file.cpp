#include "tests/host/shapes_of_file.h"

#include <gtest/gtest.h>

#include "tools/shapes.h"
#include "tools/spec.h"

namespace attn::host {

void for_each_shape(const std::string& path, std::int64_t longest, const std::string& without,
                    const AddAttention& add) {
  const tools::SpecOutcome spec = tools::read_spec(path, {}, tools::Format::text);
  ASSERT_TRUE(spec.spec.has_value());
  const bool own = path.find("/tests/gpu/native/") != std::string::npos;
  for (const tools::Shape& shape :
       tools::shapes_of(*spec.spec->source, spec.spec->attention, {},
                        own ? tools::ShapeSet::own : tools::ShapeSet::all, longest)) {
    if (shape.name == without) continue;
    const auto bound = tools::analyze_spec(spec.spec->source, shape.bindings, tools::Format::text);
    if (!bound.spec) continue;  // the spec does not support these sizes
    add(path + ", " + shape.name, bound.spec->attention);
    if (own) add(path + ", again", bound.spec->attention);
  }
}

}  // namespace attn::host
