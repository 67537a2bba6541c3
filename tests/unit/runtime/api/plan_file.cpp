#include "tests/unit/runtime/api/plan_file.h"

#include <fmt/format.h>

#include "runtime/plan/bundle.h"
#include "tests/standin/plans.h"
#include "tests/unit/runtime/plan/sample_plans.h"

namespace attn::standin {
namespace {

plan::Plan plan_of(const PlanFile& file) {
  PlanOptions options;
  options.number = file.number;
  options.steps = 2;
  options.params = file.params;
  options.derives_each = file.has_table;
  options.sm = file.sm;
  options.version = file.cudnn_version;
  return make_plan(options);
}

plan::Shape shape_of(const ShapedPlan& shaped) {
  using plan::Dim;
  plan::Shape shape{{{Dim::B, 1},
                     {Dim::Hq, 2},
                     {Dim::Hkv, 2},
                     {Dim::Sq, 4},
                     {Dim::Skv, shaped.keys},
                     {Dim::Dqk, 8},
                     {Dim::Dv, 8}},
                    {}};
  if (shaped.pads) shape.padded = {Dim::B, Dim::Sq, Dim::Skv};
  return shape;
}

std::vector<std::byte> bytes_of(const std::string& text) {
  const auto* begin = reinterpret_cast<const std::byte*>(text.data());
  return {begin, begin + text.size()};
}

}  // namespace

std::string contents_of(const PlanFile& file) { return plan::serialize(plan_of(file)); }

std::string contents_of_scheduled() {
  return plan::serialize(standin::plan_of(plan::testing::scheduled_program(), PlanOptions()));
}

std::string contents_of_shapes(const std::vector<ShapedPlan>& plans) {
  plan::Bundle bundle;
  for (const ShapedPlan& shaped : plans) {
    PlanFile file;
    file.number = static_cast<int>(shaped.keys);
    file.sm = shaped.sm;
    file.cudnn_version = shaped.cudnn_version;
    plan::Plan& plan = bundle.plans.emplace_back(plan_of(file));
    plan.bindings["Skv"] = std::to_string(shaped.keys);
    plan.shape = shape_of(shaped);
  }
  return plan::serialize(bundle);
}

std::string expected_o(const PlanFile& file, const std::string& q, const std::string& table,
                       float value) {
  Bytes inputs = {{"q", bytes_of(q)}};
  if (file.has_table) inputs["table"] = bytes_of(table);
  Params params;
  for (int i = 0; i < file.params; ++i) params[fmt::format("p{}", i)] = value;
  const std::vector<std::byte> o = expected_outputs(plan_of(file), inputs, params).at("o");
  return {reinterpret_cast<const char*>(o.data()), o.size()};
}

}  // namespace attn::standin
