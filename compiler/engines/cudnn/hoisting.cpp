#include "compiler/engines/cudnn/hoisting.h"

#include "compiler/lowering/cudnn/captured_view.h"
#include "compiler/passes/rewrite/pass.h"
#include "compiler/passes/strategy/cost.h"

namespace attn::engines {

Result<passes::Hoisted> hoisted(const ir::Attention& attention, std::vector<ir::ExprId> extra,
                                const planning::Context& context, bool vectors) {
  passes::HoistOptions options;
  options.vectors = vectors;
  if (context.backward()) {
    options.worth_vector = passes::kWorthVectorBackward;
    options.reading = passes::kReadingBackward;
  }
  options.extra = std::move(extra);
  options.readable = [](const ir::Attention& of, ir::ExprId load) {
    return lowering::captured_view(of, load).status();
  };
  return passes::run_pass("hoist", context,
                          [&] { return passes::hoist(attention, options, context); });
}

double predicted_ms_of_deriving(const passes::Hoisted& hoisted, const planning::Gpu& gpu) {
  constexpr double kOperation = 0.035e-9;  // ms, on the whole H200
  double operations = 0, bytes = 0;
  for (const passes::DerivedTensor& tensor : hoisted.derived) {
    if (tensor.once) continue;
    double elements = 1, for_each = 0;
    for (const std::int64_t extent : tensor.dims) elements *= static_cast<double>(extent);
    const ir::ExprId roots[] = {tensor.expression};
    for (const ir::ExprId id : ir::reachable(hoisted.attention.dag, roots)) {
      for_each += passes::cost_for_each_score(hoisted.attention.dag[id]);
    }
    operations += elements * for_each;
    bytes += elements * static_cast<double>(size_of(tensor.dtype));
  }
  if (bytes == 0) return 0;
  return passes::predicted_ms_of_moving(bytes, gpu) +
         operations * kOperation * passes::scalar_slowdown(gpu);
}

}  // namespace attn::engines
