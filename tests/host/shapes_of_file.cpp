#include "tests/host/shapes_of_file.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <numeric>

#include "tools/shapes.h"
#include "tools/spec.h"

namespace attn::host {

std::size_t turn_of(std::string_view name) {
  return std::accumulate(name.begin(), name.end(), std::size_t{0});
}

void for_each_shape(const std::string& path, std::int64_t longest, const std::string& without,
                    Turns turns, const AddAttention& add) {
  const tools::SpecOutcome spec = tools::read_spec(path, {}, tools::Format::text);
  ASSERT_TRUE(spec.spec.has_value());
  const bool own = path.find("/tests/gpu/native/") != std::string::npos;
  std::vector<std::pair<std::string, ir::Attention>> all;
  for (const tools::Shape& shape :
       tools::shapes_of(*spec.spec->source, spec.spec->attention, {},
                        own ? tools::ShapeSet::own : tools::ShapeSet::all, longest)) {
    if (shape.name == without) continue;
    const auto bound = tools::analyze_spec(spec.spec->source, shape.bindings, tools::Format::text);
    if (!bound.spec) continue;  // the spec does not support these sizes
    all.emplace_back(path + ", " + shape.name, bound.spec->attention);
    if (own) all.emplace_back(path + ", again", bound.spec->attention);
  }
  ASSERT_FALSE(all.empty());
  if (turns == Turns::one) {
    const std::size_t turn = turn_of(std::filesystem::path(path).stem().string());
    const auto& [text, attention] = all[turn % all.size()];
    add(text, attention, turn / all.size());
    return;
  }
  for (std::size_t i = 0; i < all.size(); ++i) add(all[i].first, all[i].second, i);
}

}  // namespace attn::host
