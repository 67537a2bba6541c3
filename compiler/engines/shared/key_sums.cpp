#include "compiler/engines/shared/key_sums.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <set>
#include <utility>

#include "compiler/codegen/expression_writer.h"
#include "compiler/codegen/key_sums.h"
#include "compiler/codegen/steps.h"
#include "compiler/engines/shared/interface.h"
#include "compiler/engines/shared/lengths.h"
#include "compiler/engines/shared/unsupported.h"
#include "compiler/gradient/differentiate.h"
#include "compiler/ir/key_sums.h"
#include "runtime/base/check.h"
#include "runtime/graph/extent.h"
#include "runtime/plan/internal_tensor.h"
#include "runtime/plan/step_tensors.h"

namespace attn::engines {
namespace {

using ir::KeySum;
using Role = plan::TensorRole;

class WithKeySums {
 public:
  WithKeySums(const ir::Attention& attention, plan::Program program)
      : attention_(attention), program_(std::move(program)) {}

  plan::Program run() && {
    const bool is_backward = plan::direction_of(program_) == plan::Direction::backward;
    std::vector<KeySum> read, differentiated;
    for (const KeySum& sum : attention_.sums) {
      if (make_internal(sum.tensor.name)) read.push_back(sum);
      if (make_internal(gradient::gradient_name(sum.tensor.name))) differentiated.push_back(sum);
    }
    std::vector<plan::Step> steps;
    if (!read.empty()) steps.emplace_back(codegen::key_sums_step(attention_, read));
    program_.steps.insert(program_.steps.begin(), std::make_move_iterator(steps.begin()),
                          std::make_move_iterator(steps.end()));
    if (is_backward && !differentiated.empty()) add_gradients(differentiated);
    for (plan::Step& step : program_.steps) {
      if (auto* kernels = std::get_if<plan::KernelStep>(&step)) free_schedule(*kernels);
    }
    codegen::bind_inputs(attention_, plan::names_used(program_.steps), program_);
    if (is_backward) sort_gradients();
    const Status status = plan::validate(program_);
    ATTN_CHECK(status.ok(), status.error().message);
    return std::move(program_);
  }

 private:
  // Makes a bound tensor of the program internal. False if it has none of the name.
  bool make_internal(const std::string& name, const std::string& new_name = "") {
    const auto found = std::ranges::find(program_.tensors, name, &plan::TensorInfo::name);
    if (found == program_.tensors.end()) return false;
    program_.internals.push_back(
        plan::internal_tensor(new_name.empty() ? name : new_name, found->dtype, found->dims));
    program_.tensors.erase(found);
    return true;
  }

  // A schedule may be made long before the sums are. What makes it has all inputs of expressions,
  // and reads those of masks alone: it gets another address for the others.
  void free_schedule(plan::KernelStep& step) const {
    if (!step.schedule) return;
    for (plan::KernelArgument& argument : step.launches.front().arguments) {
      auto* tensor = std::get_if<plan::TensorOperand>(&argument);
      if (tensor != nullptr && attention_.find_sum(tensor->name) != nullptr) tensor->name = "v";
    }
  }

  static std::string rest_of(const std::string& learned) {
    return gradient::gradient_name(learned) + ".rest";
  }

  // What scores give a learned tensor themselves is the rest of its gradient.
  bool set_rest_aside(const std::string& learned) {
    const std::string name = gradient::gradient_name(learned), rest = rest_of(learned);
    if (!make_internal(name, rest)) return false;
    for (plan::Step& step : program_.steps) {
      plan::change_tensors(step, [&](plan::TensorOperand& tensor) {
        if (tensor.name == name) tensor.name = rest;
      });
    }
    return true;
  }

  void add_gradients(const std::vector<KeySum>& sums) {
    const std::vector<std::string> learned = ir::summed_with_gradients(attention_);
    std::set<std::string> with_rest;
    for (const std::string& name : learned) {
      if (set_rest_aside(name)) with_rest.insert(name);
      add_output(*attention_.find_tensor(name));
    }
    codegen::MadeSteps made = codegen::key_sum_gradients(
        attention_, {sums, learned, [&](const std::string& name) {
                       return with_rest.contains(name) ? rest_of(name) : std::string();
                     }});
    std::ranges::move(made.internals, std::back_inserter(program_.internals));
    std::ranges::move(made.steps, std::back_inserter(program_.steps));
  }

  void add_output(const ir::CapturedTensor& tensor) {
    const std::string name = gradient::gradient_name(tensor.name);
    std::vector<std::int64_t> dims;
    for (const ir::ExprId extent : tensor.extents)
      dims.push_back(*ir::fold_integer(attention_.dag, extent, attention_.dims));
    std::vector<std::int64_t> strides = row_major_strides(dims);
    program_.tensors.push_back({name, Role::gradient, tensor.dtype, std::move(dims),
                                std::move(strides), captured_alignment(name, tensor.dtype)});
  }

  // In the order of gradient::wanted_gradients.
  void sort_gradients() {
    const std::vector<std::string> names = gradient_names(attention_);
    const auto place = [&names](const plan::TensorInfo& tensor) {
      return std::ranges::find(names, tensor.name) - names.begin();
    };
    std::vector<plan::TensorInfo> gradients, amax;
    for (plan::TensorInfo& tensor : program_.tensors) {
      if (tensor.role == Role::gradient)
        gradients.push_back(std::move(tensor));
      else if (tensor.role == Role::amax)
        amax.push_back(std::move(tensor));
    }
    std::erase_if(program_.tensors, [](const plan::TensorInfo& tensor) {
      return tensor.role == Role::gradient || tensor.role == Role::amax;
    });
    std::ranges::stable_sort(gradients, {}, place);
    std::ranges::move(gradients, std::back_inserter(program_.tensors));
    std::ranges::move(amax, std::back_inserter(program_.tensors));
  }

  const ir::Attention& attention_;
  plan::Program program_;
};

// A sum that the check at binding reads, or null.
const KeySum* find_checked(const ir::Attention& attention, const plan::Program& program) {
  if (!program.check) return nullptr;
  const auto is_checked = [&](const KeySum& sum) {
    return std::ranges::any_of(program.check->inputs, [&](const plan::OperandSource& input) {
      const auto* tensor = std::get_if<plan::TensorOperand>(&input);
      return tensor != nullptr && tensor->name == sum.tensor.name;
    });
  };
  const auto found = std::ranges::find_if(attention.sums, is_checked);
  return found == attention.sums.end() ? nullptr : &*found;
}

}  // namespace

Status check_key_sums(const ir::Attention& attention) {
  for (const KeySum& sum : attention.sums) {
    if (codegen::faults_of(attention, {sum.value}).empty()) continue;
    return unsupported(
        sum.tensor.pos,
        fmt::format(
            "what `{}` sums along keys may have no value: an index, a divisor or a shift in it "
            "is not known to be in range, whatever guards it",
            sum.tensor.name),
        "indexes of `b`, `h`, `kv_idx` and constants are known to be in range; `clamp(i, 0, n)` of "
        "any other is, too");
  }
  return {};
}

Result<plan::Program> with_key_sums(const ir::Attention& attention, plan::Program program) {
  if (attention.sums.empty()) return program;
  if (const KeySum* sum = find_checked(attention, program)) {
    return unsupported(sum->tensor.pos,
                       fmt::format("an index, a divisor or a shift in the score depends on `{}`, "
                                   "which is summed along keys only after it would be checked",
                                   sum->tensor.name),
                       "let it depend on captured tensors");
  }
  return WithKeySums(attention, std::move(program)).run();
}

}  // namespace attn::engines
