#include "runtime/picker/picker.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/api/failure.h"
#include "runtime/api/handles.h"
#include "runtime/api/names.h"
#include "runtime/api/sized.h"
#include "runtime/api/trust.h"
#include "runtime/execute/checks.h"
#include "runtime/picker/choose.h"
#include "runtime/targets/targets.h"

using namespace attn;

using ExecutableReference = api::Reference<attn_executable>;

struct attn_picker {
  api::Reference<attn_runtime> runtime;  // outlives the picker, which loads plans with it
  std::unique_ptr<picker::Picker<ExecutableReference>> picker;
};

namespace {

using picker::Policy;
using plan::Dim;

static_assert(plan::kDims.size() == ATTN_DIM_COUNT);
static_assert(static_cast<attn_dim>(Dim::B) == ATTN_DIM_B &&
              static_cast<attn_dim>(Dim::Hq) == ATTN_DIM_HQ &&
              static_cast<attn_dim>(Dim::Hkv) == ATTN_DIM_HKV &&
              static_cast<attn_dim>(Dim::Sq) == ATTN_DIM_SQ &&
              static_cast<attn_dim>(Dim::Skv) == ATTN_DIM_SKV &&
              static_cast<attn_dim>(Dim::Dqk) == ATTN_DIM_DQK &&
              static_cast<attn_dim>(Dim::Dv) == ATTN_DIM_DV);
static_assert(static_cast<attn_build>(Policy::Build::never) == ATTN_BUILD_NEVER &&
              static_cast<attn_build>(Policy::Build::now) == ATTN_BUILD_NOW &&
              static_cast<attn_build>(Policy::Build::in_background) == ATTN_BUILD_IN_BACKGROUND);
static_assert(static_cast<attn_fit>(picker::Fit::exact) == ATTN_FIT_EXACT &&
              static_cast<attn_fit>(picker::Fit::bucket) == ATTN_FIT_BUCKET &&
              static_cast<attn_fit>(picker::Fit::built) == ATTN_FIT_BUILT);

// Element sizes in the first attn.h.
constexpr std::size_t kFirstDimSize = 16, kFirstSpecBinding = 2 * sizeof(char*), kFirstShape = 64;
// attn_shape never grows: attn_picked has members after one.
static_assert(offsetof(attn_picked, fit) == sizeof(std::size_t) + 2 * sizeof(void*) + kFirstShape);
static_assert(sizeof(attn_dim_size) == kFirstDimSize && sizeof(attn_shape) == kFirstShape &&
              sizeof(attn_spec_binding) == kFirstSpecBinding);

Status invalid(std::string message) { return {ErrorCode::invalid_argument, std::move(message)}; }

bool is_dim(attn_dim dim) { return dim >= 0 && dim < ATTN_DIM_COUNT; }

template <typename T>
Status check_list(const T* items, std::size_t count, const char* what) {
  return count == 0 ? Status() : api::check_given({{items, what}});
}

// Target of the plans for this device; nullopt leaves the choice to attnc.
std::optional<plan::Target> target_here(const plan::Bundle& plans, std::int64_t sm) {
  for (const plan::Plan& plan : plans.plans) {
    if (plan.target.sm == sm) return plan.target;
  }
  return std::nullopt;
}

Result<picker::AttncOptions> attnc_options(const attn_picker_options& options,
                                           const attn_runtime& runtime, const plan::Bundle& plans) {
  ATTN_ASSIGN(const execute::Runtime::Cudnn* cudnn, runtime.runtime->cudnn());
  picker::AttncOptions attnc;
  attnc.command = {options.attnc};
  attnc.cudnn_folder = std::filesystem::path(cudnn->library->path()).parent_path().string();
  if (options.target != nullptr) {
    ATTN_ASSIGN(attnc.target, targets::find_target(options.target));
  } else {
    attnc.target = target_here(plans, runtime.runtime->device().sm());
  }
  ATTN_RETURN_IF_ERROR(check_list(options.arguments, options.argument_count, "attnc's arguments"));
  for (std::size_t i = 0; i < options.argument_count; ++i) {
    ATTN_RETURN_IF_ERROR(api::check_given({{options.arguments[i], "every argument of attnc"}}));
    attnc.arguments.emplace_back(options.arguments[i]);
  }
  if (options.timeout_seconds < 0) return invalid("timeout_seconds is negative").error();
  if (options.timeout_seconds > 0) attnc.timeout = std::chrono::seconds(options.timeout_seconds);
  return attnc;
}

Result<std::unique_ptr<attn_picker>> create(attn_runtime& runtime, plan::Bundle plans,
                                            picker::BuildRequest origin,
                                            const attn_picker_options& read) {
  picker::PickerOptions options;
  if (read.attnc != nullptr) {
    ATTN_ASSIGN(picker::AttncOptions attnc, attnc_options(read, runtime, plans));
    options.builder = picker::attnc_builder(std::move(attnc));
  }
  options.sm = runtime.runtime->device().sm();
  if (read.most_built != 0) options.most_built = read.most_built;
  options.fits = [&runtime](const plan::Plan& plan) {
    return execute::Executable::check_fits(*runtime.runtime, plan);
  };
  options.plans = std::move(plans);
  options.origin = std::move(origin);
  const auto load = [&runtime](const plan::Plan& plan) { return api::load(runtime, plan); };
  ATTN_ASSIGN(auto picker, picker::Picker<ExecutableReference>::create(std::move(options), load));
  for (const std::string& reason : picker->unfit()) {
    runtime.runtime->log(log::Level::warning, reason);
  }
  runtime.retain();
  return std::make_unique<attn_picker>(api::Reference<attn_runtime>(&runtime), std::move(picker));
}

Result<picker::BuildRequest> request_of(const attn_spec& spec) {
  ATTN_RETURN_IF_ERROR(api::check_given({{spec.text, "the text of the spec"}}));
  picker::BuildRequest request{spec.text, {}};
  ATTN_RETURN_IF_ERROR(check_list(spec.bindings, spec.binding_count, "the bindings of the spec"));
  ATTN_ASSIGN(const auto bindings, api::read_array(spec.bindings, spec.binding_count,
                                                   spec.binding_bytes, kFirstSpecBinding));
  for (const attn_spec_binding& binding : bindings) {
    ATTN_RETURN_IF_ERROR(api::check_given({{binding.name, "the name of a spec binding"},
                                           {binding.value, "the value of a spec binding"}}));
    if (!request.bindings.emplace(binding.name, binding.value).second) {
      return invalid(fmt::format("'{}' is bound twice", binding.name)).error();
    }
  }
  return request;
}

Result<plan::Sizes> sizes_of(const attn_dim_size* given, std::size_t count, std::size_t size) {
  ATTN_RETURN_IF_ERROR(check_list(given, count, "the sizes"));
  ATTN_ASSIGN(const auto all, api::read_array(given, count, size, kFirstDimSize));
  plan::Sizes sizes;
  for (const attn_dim_size& each : all) {
    if (!is_dim(each.dim)) return invalid(fmt::format("{} is not an attn_dim", each.dim)).error();
    if (each.reserved != 0) return invalid("`reserved` of a structure must be 0").error();
    const auto dim = static_cast<Dim>(each.dim);
    if (each.size < 0) {
      return invalid(fmt::format("{} is {}, which is negative", to_string(dim), each.size)).error();
    }
    if (sizes.has(dim)) return invalid(fmt::format("{} is given twice", to_string(dim))).error();
    sizes.set(dim, each.size);
  }
  return sizes;
}

// The sizes and the padded dimensions of a shape that a caller describes.
Result<plan::Shape> shape_of(const attn_shape& given) {
  constexpr unsigned kPadded = 1U << ATTN_DIM_B | 1U << ATTN_DIM_SQ | 1U << ATTN_DIM_SKV;
  if (given.reserved != 0) return invalid("`reserved` of a structure must be 0").error();
  if ((given.padded & ~kPadded) != 0) return invalid("only B, Sq and Skv can be padded").error();
  plan::Shape shape;
  for (const Dim dim : plan::kDims) {
    const std::int64_t size = given.sizes[static_cast<std::size_t>(dim)];
    if (size < plan::Sizes::kNone) {
      return invalid(fmt::format("{} is {}, which is negative", to_string(dim), size)).error();
    }
    shape.sizes.set(dim, size);
    if ((given.padded >> static_cast<unsigned>(dim) & 1U) != 0) shape.padded.push_back(dim);
  }
  return shape;
}

Result<Policy> policy_of(const attn_pick_policy& read) {
  if (read.build < ATTN_BUILD_NEVER || read.build > ATTN_BUILD_IN_BACKGROUND) {
    return invalid(fmt::format("{} is not an attn_build", read.build)).error();
  }
  return Policy{read.exact_only == 0, static_cast<Policy::Build>(read.build), read.retry != 0};
}

attn_shape plain(const plan::Shape& shape) {
  attn_shape result = {};
  for (const Dim dim : plan::kDims) result.sizes[static_cast<std::size_t>(dim)] = shape.sizes[dim];
  result.padded = api::padded_bits(shape);
  return result;
}

std::int64_t place_of(const std::optional<std::size_t>& place) {
  return place ? static_cast<std::int64_t>(*place) : -1;
}

// A handle with one reference, owned by the caller.
attn_executable* given(const std::shared_ptr<const ExecutableReference>& executable) {
  if (executable == nullptr) return nullptr;
  (*executable)->retain();
  return executable->get();
}

}  // namespace

const char* attn_dim_name(attn_dim dim) {
  return is_dim(dim) ? plan::to_string(static_cast<Dim>(dim)).data() : "unknown";
}

attn_status attn_picker_load_file(attn_runtime* runtime, const char* path,
                                  const attn_picker_options* options, attn_picker** picker,
                                  attn_error* error) {
  return api::guarded(error, [&]() -> Status {
    ATTN_RETURN_IF_ERROR(api::check_given({{runtime, "the runtime"},
                                           {path, "the path"},
                                           {picker, "the output pointer for the picker"}}));
    ATTN_ASSIGN(const attn_picker_options read, api::read_sized(options));
    ATTN_ASSIGN(plan::Bundle plans, plan::load_bundle(path, api::Trust(read).of_file()));
    ATTN_ASSIGN(auto created, create(*runtime, std::move(plans), {}, read));
    *picker = created.release();
    return {};
  });
}

attn_status attn_picker_load_memory(attn_runtime* runtime, const void* bytes, size_t byte_count,
                                    const attn_picker_options* options, attn_picker** picker,
                                    attn_error* error) {
  return api::guarded(error, [&]() -> Status {
    ATTN_RETURN_IF_ERROR(api::check_given({{runtime, "the runtime"},
                                           {bytes, "the contents of a plan file"},
                                           {picker, "the output pointer for the picker"}}));
    ATTN_ASSIGN(const attn_picker_options read, api::read_sized(options));
    const std::string_view file(static_cast<const char*>(bytes), byte_count);
    ATTN_RETURN_IF_ERROR(api::Trust(read)(file));
    ATTN_ASSIGN(plan::Bundle plans, plan::deserialize_bundle(file));
    ATTN_ASSIGN(auto created, create(*runtime, std::move(plans), {}, read));
    *picker = created.release();
    return {};
  });
}

attn_status attn_picker_create(attn_runtime* runtime, const attn_spec* spec,
                               const attn_picker_options* options, attn_picker** picker,
                               attn_error* error) {
  return api::guarded(error, [&]() -> Status {
    ATTN_RETURN_IF_ERROR(api::check_given({{runtime, "the runtime"},
                                           {spec, "the spec"},
                                           {picker, "the output pointer for the picker"}}));
    ATTN_ASSIGN(const attn_picker_options read, api::read_sized(options));
    ATTN_ASSIGN(const attn_spec read_spec, api::read_sized(spec));
    if (read.attnc == nullptr) return invalid("a picker without plans needs attnc to build them");
    ATTN_ASSIGN(picker::BuildRequest origin, request_of(read_spec));
    ATTN_ASSIGN(auto created, create(*runtime, {}, std::move(origin), read));
    *picker = created.release();
    return {};
  });
}

void attn_picker_destroy(attn_picker* picker) { delete picker; }

attn_status attn_picker_pick(attn_picker* picker, const attn_dim_size* sizes, size_t count,
                             const attn_pick_policy* policy, attn_picked* picked,
                             attn_error* error) {
  return api::guarded(error, [&]() -> Status {
    ATTN_RETURN_IF_ERROR(api::check_given(
        {{picker, "the picker"}, {picked, "the output pointer for the picked plans"}}));
    ATTN_RETURN_IF_ERROR(api::check_size(picked->size));
    if (picked->size < offsetof(attn_picked, backward) + sizeof picked->backward) {
      return Status(ErrorCode::invalid_argument,
                    "the output structure of a pick must be large enough for both executables");
    }
    ATTN_ASSIGN(const attn_pick_policy read, api::read_sized(policy));
    ATTN_ASSIGN(const Policy wish, policy_of(read));
    ATTN_ASSIGN(const plan::Sizes wanted, sizes_of(sizes, count, read.dim_size_bytes));
    ATTN_ASSIGN(const auto found, picker->picker->pick(wanted, wish));
    attn_picked answer = {};
    answer.forward = given(found.forward);
    answer.backward = given(found.backward);
    answer.shape = plain(found.shape);
    answer.fit = static_cast<attn_fit>(found.fit);
    return api::write_sized(picked, answer);
  });
}

attn_status attn_picker_list(const attn_picker* picker, attn_shape* shapes, size_t shape_bytes,
                             size_t capacity, size_t* count, attn_error* error) {
  return api::guarded(error, [&]() -> Status {
    ATTN_RETURN_IF_ERROR(api::check_given(
        {{picker, "the picker"}, {count, "the output pointer for the number of shapes"}}));
    ATTN_RETURN_IF_ERROR(check_list(shapes, capacity, "the output pointer for the shapes"));
    const std::vector<plan::Shape> all = picker->picker->shapes();
    std::vector<attn_shape> first;
    for (std::size_t i = 0; i < std::min(capacity, all.size()); ++i) first.push_back(plain(all[i]));
    ATTN_RETURN_IF_ERROR(api::write_array(shapes, shape_bytes, first));
    *count = all.size();
    return {};
  });
}

attn_status attn_picker_shapes(const attn_picker* picker, attn_shape* shapes, size_t capacity,
                               size_t* count, attn_error* error) {
  return attn_picker_list(picker, shapes, kFirstShape, capacity, count, error);
}

attn_status attn_shape_choose(const attn_shape* shapes, size_t count, const attn_shape* wanted,
                              size_t* index, attn_error* error) {
  return api::guarded(error, [&]() -> Status {
    ATTN_RETURN_IF_ERROR(api::check_given(
        {{wanted, "the wanted sizes"}, {index, "the output pointer for the index"}}));
    ATTN_RETURN_IF_ERROR(check_list(shapes, count, "the shapes"));
    std::vector<plan::Shape> all(count);
    for (std::size_t i = 0; i < count; ++i) {
      ATTN_ASSIGN(all[i], shape_of(shapes[i]));
    }
    ATTN_ASSIGN(const plan::Shape wish, shape_of(*wanted));
    ATTN_ASSIGN(const auto choice, picker::choose(all, wish.sizes, true));
    *index = choice ? choice->index : count;
    return {};
  });
}

attn_status attn_plan_choose(const attn_plan* plan, int32_t sm, const attn_shape* wanted,
                             const attn_arguments* arguments, int64_t* forward, int64_t* backward,
                             attn_error* error) {
  return api::guarded(error, [&]() -> Status {
    ATTN_RETURN_IF_ERROR(api::check_given({{plan, "the plan"},
                                           {wanted, "the wanted sizes"},
                                           {forward, "the output pointer for the forward"},
                                           {backward, "the output pointer for the backward"}}));
    ATTN_ASSIGN(const plan::Shape wish, shape_of(*wanted));
    const auto serves = [&](const plan::Plan& each) {
      return each.target.sm == sm &&
             (arguments == nullptr || execute::has_tensors(each.program, arguments->arguments));
    };
    ATTN_ASSIGN(const auto chosen, picker::choose_plans(plan->bundle, wish.sizes, serves));
    *forward = place_of(chosen.forward);
    *backward = place_of(chosen.backward);
    return {};
  });
}
