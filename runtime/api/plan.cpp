#include <string_view>
#include <utility>

#include "runtime/api/describe.h"
#include "runtime/api/failure.h"
#include "runtime/api/handles.h"
#include "runtime/api/trust.h"
#include "runtime/execute/index_check.h"

attn_plan::attn_plan(attn::plan::Bundle read) : bundle(std::move(read)) {
  for (const attn::plan::Plan& plan : bundle.plans) {
    signatures.push_back(plan.signature.hash.to_hex());
    auto& each = sizes.emplace_back();
    for (std::size_t i = 0; i < each.size(); ++i) {
      each[i] = plan.shape.sizes[attn::plan::kDims[i]];
    }
  }
}

namespace attn::api {
namespace {

std::int64_t device_bytes_of(const plan::Program& program) {
  const auto iota = plan::iota_elements(program) * std::int64_t{sizeof(std::int32_t)};
  const std::size_t check = program.check ? execute::IndexChecker::kBytes : 0;
  return iota + plan::internal_places(program, true).bytes + static_cast<std::int64_t>(check);
}

Result<const plan::Plan*> plan_at(const attn_plan& plan, std::size_t index) {
  ATTN_RETURN_IF_ERROR(check_index(index, plan.bundle.plans.size(), "plan", "the file"));
  return &plan.bundle.plans[index];
}

attn_plan_info info_of(const attn_plan& all, std::size_t index) {
  const plan::Plan& plan = all.bundle.plans[index];
  const bool backward = plan::direction_of(plan.program) == plan::Direction::backward;
  attn_plan_info info = {};
  info.name = plan.spec_name.c_str();
  info.signature = all.signatures[index].c_str();
  info.target = plan.target.name.c_str();
  info.spec = plan.spec_text.c_str();
  info.sm = static_cast<std::int32_t>(plan.target.sm);
  info.direction = backward ? ATTN_DIRECTION_BACKWARD : ATTN_DIRECTION_FORWARD;
  info.cudnn_version = plan.cudnn_version;
  info.workspace_bytes = plan.workspace_bytes();
  info.device_bytes = device_bytes_of(plan.program);
  info.tensor_count = plan.program.tensors.size();
  info.param_count = plan.program.params.size();
  info.sizes = all.sizes[index].data();
  info.padded = padded_bits(plan.shape);
  return info;
}

}  // namespace

ATTN_API attn_status attn_plan_open(const char* path, const attn_load_options* options,
                                    attn_plan** plan, attn_error* error) {
  return guarded(error, [&]() -> Status {
    ATTN_RETURN_IF_ERROR(
        check_given({{path, "the path"}, {plan, "the output pointer for the plan"}}));
    ATTN_ASSIGN(const attn_load_options read, read_sized(options));
    ATTN_ASSIGN(plan::Bundle bundle, plan::load_bundle(path, Trust(read).of_file()));
    *plan = new attn_plan(std::move(bundle));
    return {};
  });
}

ATTN_API attn_status attn_plan_open_memory(const void* bytes, size_t byte_count,
                                           const attn_load_options* options, attn_plan** plan,
                                           attn_error* error) {
  return guarded(error, [&]() -> Status {
    ATTN_RETURN_IF_ERROR(check_given(
        {{bytes, "the contents of a plan file"}, {plan, "the output pointer for the plan"}}));
    ATTN_ASSIGN(const attn_load_options read, read_sized(options));
    const std::string_view file(static_cast<const char*>(bytes), byte_count);
    ATTN_RETURN_IF_ERROR(Trust(read)(file));
    ATTN_ASSIGN(plan::Bundle bundle, plan::deserialize_bundle(file));
    *plan = new attn_plan(std::move(bundle));
    return {};
  });
}

ATTN_API void attn_plan_close(attn_plan* plan) { delete plan; }

ATTN_API size_t attn_plan_count(const attn_plan* plan) {
  return plan == nullptr ? 0 : plan->bundle.plans.size();
}

ATTN_API attn_status attn_plan_describe(const attn_plan* plan, size_t index, attn_plan_info* info,
                                        attn_error* error) {
  return guarded(error, [&]() -> Status {
    ATTN_RETURN_IF_ERROR(
        check_given({{plan, "the plan"}, {info, "the output pointer for the info"}}));
    ATTN_RETURN_IF_ERROR(plan_at(*plan, index).status());
    return write_sized(info, info_of(*plan, index));
  });
}

ATTN_API attn_status attn_plan_tensor(const attn_plan* plan, size_t index, size_t tensor,
                                      attn_tensor_info* info, attn_error* error) {
  return guarded(error, [&]() -> Status {
    ATTN_RETURN_IF_ERROR(
        check_given({{plan, "the plan"}, {info, "the output pointer for the info"}}));
    ATTN_ASSIGN(const plan::Plan* found, plan_at(*plan, index));
    return describe(found->program.tensors, tensor, "tensor", info);
  });
}

ATTN_API attn_status attn_plan_param(const attn_plan* plan, size_t index, size_t param,
                                     attn_param_info* info, attn_error* error) {
  return guarded(error, [&]() -> Status {
    ATTN_RETURN_IF_ERROR(
        check_given({{plan, "the plan"}, {info, "the output pointer for the info"}}));
    ATTN_ASSIGN(const plan::Plan* found, plan_at(*plan, index));
    return describe(found->program.params, param, "param", info);
  });
}

ATTN_API attn_status attn_executable_load_plan(attn_runtime* runtime, const attn_plan* plan,
                                               size_t index, attn_executable** executable,
                                               attn_error* error) {
  return guarded(error, [&]() -> Status {
    ATTN_RETURN_IF_ERROR(check_given({{runtime, "the runtime"},
                                      {plan, "the plan"},
                                      {executable, "the output pointer for the executable"}}));
    ATTN_ASSIGN(const plan::Plan* found, plan_at(*plan, index));
    ATTN_ASSIGN(auto loaded, load(*runtime, *found));
    *executable = loaded.release();
    return {};
  });
}

}  // namespace attn::api
