#include "bench/bare_execute.h"

#include <algorithm>
#include <utility>

#include "runtime/execute/addresses.h"

namespace attn::bench {

BareExecute::BareExecute(cuda::DeviceBuffer workspace, cuda::DeviceBuffer iota,
                         cuda::DeviceBuffer internals, execute::Scalars scalars,
                         cudnn::Session session, std::vector<Step> steps)
    : workspace_(std::move(workspace)),
      iota_(std::move(iota)),
      internals_(std::move(internals)),
      scalars_(std::move(scalars)),
      session_(std::move(session)),
      steps_(std::move(steps)) {}

Result<BareExecute> BareExecute::create(const plan::Plan& plan, const execute::LoadOptions& options,
                                        const execute::Arguments& arguments) {
  ATTN_ASSIGN(cuda::Device device, cuda::Device::open(options.device));
  ATTN_RETURN_IF_ERROR(device.make_current());
  ATTN_ASSIGN(auto library, cudnn::Library::load(options.cudnn_folder));
  ATTN_ASSIGN(cudnn::Session session, cudnn::Session::create(std::move(library)));
  std::vector<cudnn::LoadedPlan> plans;
  std::int64_t bytes = 0;
  for (const plan::CompiledStep& step : plan.compiled) {
    ATTN_ASSIGN(cudnn::LoadedPlan loaded, cudnn::LoadedPlan::load(session, step.cudnn_plan));
    bytes = std::max(bytes, loaded.workspace_bytes());
    plans.push_back(std::move(loaded));
  }
  ATTN_ASSIGN(cuda::DeviceBuffer workspace,
              cuda::DeviceBuffer::allocate(device, static_cast<std::size_t>(bytes)));
  ATTN_ASSIGN(cuda::DeviceBuffer iota, execute::make_iota(plan.program, device));
  const plan::InternalPlaces once = plan::internal_places(plan.program, true);
  const plan::InternalPlaces each = plan::internal_places(plan.program, false);
  ATTN_ASSIGN(
      cuda::DeviceBuffer internals,
      cuda::DeviceBuffer::allocate(device, static_cast<std::size_t>(once.bytes + each.bytes)));
  ATTN_RETURN_IF_ERROR(internals.fill(0));
  execute::Scalars scalars(plan.program, arguments);
  execute::Memory memory(plan.program, scalars, iota.data());
  memory.add_internals(once, internals.data());
  memory.add_internals(each, static_cast<std::byte*>(internals.data()) + once.bytes);
  const std::vector<void*> tensors = execute::addresses_of(plan.program, arguments);
  const auto cudnn_steps = plan::steps_of<plan::CudnnStep>(plan.program);
  std::vector<Step> steps;
  for (std::size_t i = 0; i < plans.size(); ++i) {
    const execute::CudnnOperands operands(*cudnn_steps[i], memory);
    ATTN_ASSIGN(cudnn::VariantPack pack,
                cudnn::VariantPack::create(session.library(), operands.uids,
                                           operands.addresses({tensors}), workspace.data()));
    steps.push_back({std::move(plans[i]), std::move(pack)});
  }
  return BareExecute(std::move(workspace), std::move(iota), std::move(internals),
                     std::move(scalars), std::move(session), std::move(steps));
}

Status BareExecute::execute(void* stream) {
  ATTN_RETURN_IF_ERROR(session_.set_stream(stream));
  for (const Step& step : steps_) ATTN_RETURN_IF_ERROR(step.plan.execute(session_, step.pack));
  return {};
}

}  // namespace attn::bench
