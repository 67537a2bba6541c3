#include "tools/plans.h"

#include <fmt/format.h>

#include <charconv>

#include "compiler/sema/environment.h"
#include "runtime/cuda/device.h"
#include "tools/console.h"
#include "tools/report.h"

namespace attn::tools {

Result<plan::Sizes> sizes_of(const sema::Bindings& bindings) {
  plan::Sizes sizes;
  for (const auto& [name, text] : bindings) {
    const std::vector<plan::Dim> dims = sema::dims_named(name);
    std::int64_t size = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), size);
    if (dims.empty() || error != std::errc() || end != text.data() + text.size() || size < 0) {
      return Error{ErrorCode::invalid_argument,
                   fmt::format("--bind {}={}: with a plan file, --bind takes a dimension and a "
                               "size, to select among its plans",
                               name, text),
                   {"`attnc inspect` lists them"}};
    }
    for (const plan::Dim dim : dims) sizes.set(dim, size);
  }
  return sizes;
}

Result<Plans> compile_plans(const Spec& spec, driver::CompileOptions how, bool gradients) {
  how.analyses = spec.analyses.get();
  if (!gradients) {
    ATTN_ASSIGN(driver::Compiled forward,
                driver::compile(spec.attention, *spec.source, spec.bindings, how));
    tell_refusals(forward);
    return Plans{std::move(forward.plan), std::nullopt};
  }
  ATTN_ASSIGN(std::vector<driver::Compiled> pair,
              driver::compile_pair(spec.attention, *spec.source, spec.bindings, how));
  for (const driver::Compiled& compiled : pair) tell_refusals(compiled);
  return Plans{std::move(pair.front().plan), std::move(pair.back().plan)};
}

Result<plan::Plan> compile_training_forward(const Spec& spec, driver::CompileOptions how) {
  how.analyses = spec.analyses.get();
  how.paired = true;
  ATTN_ASSIGN(driver::Compiled forward, driver::compile(driver::training_forward(spec.attention),
                                                        *spec.source, spec.bindings, how));
  tell_refusals(forward);
  return std::move(forward.plan);
}

Result<plan::Bundle> read_plans(const std::string& path, const sema::Bindings& bindings) {
  ATTN_ASSIGN(const plan::Sizes sizes, sizes_of(bindings));
  Result<plan::Bundle> bundle = plan::load_bundle(path);
  if (bundle.ok()) return plan::plans_for(std::move(*bundle), sizes);
  Error error = bundle.error();
  if (error.code == ErrorCode::plan_foreign &&
      (path.ends_with(".attn") || path.ends_with(".attn.json"))) {
    error.notes.push_back(fmt::format("this is the name of a spec; use `attnc explain {}`", path));
  }
  return error;
}

namespace {

// The plans of the local GPU, if there is one and they are; else those of the first.
plan::Bundle of_one_target(plan::Bundle bundle, const std::string& path) {
  if (plan::has_one_capability(bundle)) return bundle;
  const Result<cuda::Device> device = cuda::Device::open(0);
  if (device.ok()) {
    Result<plan::Bundle> local = plan::plans_for_device(bundle, device->sm());
    if (local.ok()) return std::move(*local);
  }
  const plan::Target first = bundle.plans.front().target;
  tell_note(fmt::format("{} has plans for several GPUs: those for {} are taken", path, first.name));
  return *plan::plans_for_device(std::move(bundle), first.sm);
}

}  // namespace

Result<plan::Bundle> read_shape(const std::string& path, const sema::Bindings& bindings) {
  ATTN_ASSIGN(plan::Bundle bundle, read_plans(path, bindings));
  bundle = of_one_target(std::move(bundle), path);
  Status one = plan::check_one_shape(bundle);
  if (one.ok()) return bundle;
  Error error = one.error();
  error.message = fmt::format("{}: {}", path, error.message);
  error.notes.push_back("select one with --bind NAME=SIZE");
  return error;
}

}  // namespace attn::tools
