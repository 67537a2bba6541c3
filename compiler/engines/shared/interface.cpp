#include "compiler/engines/shared/interface.h"

#include <algorithm>

#include "compiler/engines/shared/lengths.h"
#include "compiler/engines/shared/operands.h"
#include "compiler/engines/shared/quantized.h"
#include "compiler/gradient/differentiate.h"
#include "compiler/ir/cache_scales.h"
#include "runtime/base/check.h"
#include "runtime/graph/extent.h"
#include "runtime/plan/internal_tensor.h"
#include "runtime/plan/step_tensors.h"

namespace attn::engines {
namespace {

using ir::Dim;

using Role = plan::TensorRole;

plan::TensorInfo captured_info(const ir::Attention& attention, const std::string& name, Role role,
                               const ir::CapturedTensor& captured) {
  std::vector<std::int64_t> dims;
  for (const ir::ExprId id : captured.extents)
    dims.push_back(*ir::fold_integer(attention.dag, id, attention.dims));
  std::vector<std::int64_t> strides = row_major_strides(dims);
  return {name,
          role,
          captured.dtype,
          std::move(dims),
          std::move(strides),
          captured_alignment(name, captured.dtype)};
}

class Interface {
 public:
  Interface(const ir::Attention& attention, const std::set<std::string>& used,
            const Controls& controls)
      : attention_(attention), used_(used), controls_(controls) {}

  std::vector<plan::TensorInfo> forward() && {
    add_inputs(true);
    add_io("o", Role::output);
    for (const ir::Output& output : ir::kOutputs) {
      if (output.name == "o" || !(attention_.*output.wanted)) continue;
      if (ir::is_o(output.name)) {
        add_io(std::string(output.name), Role::output);
      } else if (ir::is_amax(output.name)) {
        add_amax(std::string(output.name));
      } else {
        add_statistics(std::string(output.name), Role::stats);
      }
    }
    return std::move(tensors_);
  }

  std::vector<plan::TensorInfo> backward(const std::vector<std::string>& gradients) && {
    add_inputs(!attention_.is_mxfp8());  // which reads v_t
    if (attention_.epilogue)
      add_io("o_inner", Role::saved);
    else if (!attention_.is_pointwise())
      add_io("o", Role::saved);
    if (!attention_.is_pointwise()) add_statistics("lse", Role::saved);
    add_io("do", Role::cotangent);
    if (attention_.reads_d_lse) add_statistics(kLseCotangent, Role::cotangent);
    for (const std::string& name : gradients) add_gradient(name);
    if (attention_.quantize) {
      for (const char* name : amax_of_gradients(attention_)) add_amax(name);
    }
    return std::move(tensors_);
  }

 private:
  void add_inputs(bool with_v) {
    add_io("q", Role::query);
    add_io("k", Role::key);
    if (with_v && !attention_.values_of_keys) add_io("v", Role::value);
    for (const ir::CapturedTensor& captured : attention_.tensors) {
      if (ir::has_token_scales(attention_) && ir::is_cache_scale(captured.name)) {
        add_token_scales(captured.name);
      } else if (used_.contains(captured.name) && !is_internal(captured.name)) {
        add_captured(captured.name, Role::captured, captured);
      }
    }
    tensors_.insert(tensors_.end(), controls_.given.begin(), controls_.given.end());
  }

  void add_gradient(const std::string& name) {
    for (const ir::CapturedTensor& captured : attention_.tensors) {
      if (gradient::gradient_name(captured.name) == name) {
        return add_captured(name, Role::gradient, captured);
      }
    }
    add_io(name, Role::gradient);
  }

  void add_io(const std::string& name, Role role) {
    const Dims4 dims = stored_dims(attention_, name), strides = stored_strides(attention_, name);
    tensors_.push_back({name,
                        role,
                        stored_dtype(attention_, name),
                        {dims.begin(), dims.end()},
                        {strides.begin(), strides.end()},
                        16,
                        addressed_by(attention_, name),
                        layout_of(attention_, name).bound_strides,
                        rows_of(name)});
  }

  std::string rows_of(const std::string& name) const {
    if (!has_formatted_rows(attention_, name)) return "";
    return std::string(to_string(*layout_of(attention_, name).rows));
  }

  void add_token_scales(const std::string& name) {
    const std::string of = name == ir::kKeyScale ? "k" : "v";
    const Dims3 dims = scale_dims(attention_, of);
    Dims3 strides = scale_strides(attention_, of);
    if (dims[1] == 1) strides[1] = dims[2] * strides[2];  // a stride of one head does not matter
    tensors_.push_back({name,
                        Role::captured,
                        DType::f32,
                        {dims.begin(), dims.end()},
                        {strides.begin(), strides.end()},
                        captured_alignment(name, DType::f32),
                        addressed_by(attention_, of)});
  }

  void add_captured(const std::string& name, Role role, const ir::CapturedTensor& captured) {
    tensors_.push_back(captured_info(attention_, name, role, captured));
  }

  void add_amax(const std::string& name) {
    tensors_.push_back({name, Role::amax, DType::f32, {1}, {1}, captured_alignment(name)});
  }

  void add_statistics(const std::string& name, Role role) {
    const ir::Dims& d = attention_.dims;
    const Dims4 strides = statistics_strides(attention_);
    tensors_.push_back({name,
                        role,
                        DType::f32,
                        {d[Dim::B], d[Dim::Hq], d[Dim::Sq]},
                        {strides[0], strides[1], strides[2]},
                        16,
                        addressed_by(attention_, name)});
  }

  // Lengths derived from other tensors are not bound.
  bool is_internal(const std::string& name) const {
    return std::ranges::find(controls_.internals, name, &plan::TensorInfo::name) !=
           controls_.internals.end();
  }

  const ir::Attention& attention_;
  const std::set<std::string>& used_;
  const Controls& controls_;
  std::vector<plan::TensorInfo> tensors_;
};

}  // namespace

std::vector<plan::TensorInfo> bound_tensors(const ir::Attention& attention,
                                            const std::set<std::string>& used,
                                            const Controls& controls) {
  return Interface(attention, used, controls).forward();
}

std::vector<plan::TensorInfo> backward_tensors(const ir::Attention& attention,
                                               const std::set<std::string>& used,
                                               const Controls& controls,
                                               const std::vector<std::string>& gradients) {
  return Interface(attention, used, controls).backward(gradients);
}

std::vector<std::string> gradient_names(const ir::Attention& attention) {
  std::vector<std::string> names;
  for (const std::string& of : gradient::wanted_gradients(attention)) {
    names.push_back(gradient::gradient_name(of));
  }
  return names;
}

std::vector<plan::ParamInfo> bound_params(const ir::Attention& attention,
                                          const std::set<std::string>& used) {
  std::vector<plan::ParamInfo> params;
  for (const ir::Param& param : attention.params) {
    if (used.contains(param.name)) params.push_back({param.name, param.dtype});
  }
  return params;
}

namespace {

constexpr const char* kO = "o";

bool makes_o_alone(const plan::Step& step) {
  const auto* derive = std::get_if<plan::DeriveStep>(&step);
  return derive != nullptr && derive->outputs == std::vector<std::string>{kO};
}

bool runs_kernels_on_o(const plan::Step& step) {
  return !std::holds_alternative<plan::CudnnStep>(step) && plan::uses(step, kO);
}

// Removes copies of o, unless another step reads or amends it.
void leave_out_copies(std::vector<plan::Step>& steps) {
  const auto needs_it = [](const plan::Step& step) {
    return runs_kernels_on_o(step) && !makes_o_alone(step);
  };
  if (std::ranges::none_of(steps, needs_it)) std::erase_if(steps, makes_o_alone);
}

}  // namespace

ir::Attention with_o(ir::Attention attention) {
  attention.wants_o = true;
  ir::Layout& layout = attention.layouts.find(kO)->second;
  if (layout.kind == ir::LayoutKind::strided) layout = {};
  layout.bound_strides = false;
  return attention;
}

void make_o_internal(plan::Program& program) {
  const auto found = std::ranges::find(program.tensors, kO, &plan::TensorInfo::name);
  if (found == program.tensors.end()) return;
  const auto last = last_offset(found->dims, found->strides);
  ATTN_CHECK(last.has_value(), "a checked program has tensors that can be addressed");
  plan::TensorInfo internal = plan::internal_tensor(kO, found->dtype, {*last + 1});
  program.tensors.erase(found);
  leave_out_copies(program.steps);
  const auto uses_o = [](const plan::Step& step) { return plan::uses(step, kO); };
  if (std::ranges::any_of(program.steps, uses_o)) program.internals.push_back(std::move(internal));
  const Status status = plan::validate(program);
  ATTN_CHECK(status.ok(), status.error().message);
}

bool make_internal(plan::Program& program, const std::string& name, const std::string& to) {
  const auto found = std::ranges::find(program.tensors, name, &plan::TensorInfo::name);
  if (found == program.tensors.end()) return false;
  program.internals.push_back(plan::internal_tensor(to, found->dtype, found->dims));
  program.tensors.erase(found);
  for (plan::Step& step : program.steps) {
    plan::change_tensors(step, [&](plan::TensorOperand& tensor) {
      if (tensor.name == name) tensor.name = to;
    });
  }
  return true;
}

void add_learned_gradient(const ir::Attention& attention, const std::string& learned,
                          plan::Program& program) {
  program.tensors.push_back(captured_info(attention, gradient::gradient_name(learned),
                                          Role::gradient, *attention.find_tensor(learned)));
}

void order_tensors(const ir::Attention& attention, plan::Program& program) {
  const std::vector<std::string> names = gradient_names(attention);
  const auto place = [&names](const plan::TensorInfo& tensor) {
    const auto found = std::ranges::find(names, tensor.name) - names.begin();
    const bool is_gradient = tensor.role == Role::gradient;
    const int group = tensor.role <= Role::value  ? static_cast<int>(tensor.role)
                      : tensor.role == Role::amax ? 5
                      : is_gradient               ? 4
                                                  : 3;
    return std::pair(group, is_gradient ? found : 0);
  };
  std::ranges::stable_sort(program.tensors, {}, place);
}

}  // namespace attn::engines
