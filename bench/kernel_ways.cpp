#include "bench/kernel_ways.h"

#include <algorithm>

namespace attn::bench {

Result<EmptyLaunch> EmptyLaunch::create(const cuda::Device& device) {
  constexpr const char* kImage =
      ".version 7.0\n.target sm_80\n.address_size 64\n.visible .entry attn_empty() { ret; }\n";
  ATTN_ASSIGN(const cuda::Module module, cuda::Module::load(device, kImage));
  ATTN_ASSIGN(cuda::Kernel kernel, module.kernel("attn_empty"));
  return EmptyLaunch(std::move(kernel));
}

Result<Scheduled> Scheduled::create(const execute::Executable& executable,
                                    const execute::Arguments& arguments) {
  Scheduled made;
  if (plan::scheduled_step(executable.program()) == nullptr) return made;
  ATTN_ASSIGN(made.schedule, execute::Schedule::make(executable));
  ATTN_ASSIGN(made.binding, executable.bind(arguments, execute::Workspace::owned(),
                                            execute::kKeptAddresses, nullptr, &*made.schedule));
  ATTN_RETURN_IF_ERROR(made.schedule->build(*made.binding, {}, nullptr));
  return made;
}

Moving::Moving(execute::Binding& binding, const std::vector<std::vector<void*>>& sets,
               std::size_t tensor)
    : binding_(binding), sets_(sets), addresses_(sets.front()), tensor_(tensor) {}

Status Moving::operator()(void* stream) {
  next_ = (next_ + 1) % sets_.size();
  addresses_[tensor_] = sets_[next_][tensor_];
  ATTN_RETURN_IF_ERROR(binding_.set_addresses(addresses_, execute::Check::no));
  return binding_.execute(stream);
}

Enqueued enqueued(const plan::Program& program, bool scheduled) {
  Enqueued all;
  for (const plan::Run& run : plan::runs_of(program)) {
    const plan::Step& step = program.steps[run.step];
    if (const auto* derive = std::get_if<plan::DeriveStep>(&step)) {
      all.launches += derive->once ? 0 : 1;
    } else if (const auto* kernels = std::get_if<plan::KernelStep>(&step)) {
      const std::size_t first = scheduled && kernels->schedule ? 1 : 0;
      all.launches += static_cast<std::int64_t>(kernels->launches.size() - first);
      all.fills += std::ranges::count_if(kernels->zeroed, [&](const std::string& tensor) {
        return std::any_of(kernels->launches.begin() + static_cast<std::ptrdiff_t>(first),
                           kernels->launches.end(),
                           [&](const plan::Launch& launch) { return plan::names(launch, tensor); });
      });
    } else {
      ++all.of_cudnn;
    }
  }
  return all;
}

}  // namespace attn::bench
