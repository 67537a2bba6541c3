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
#include "compiler/engines/shared/unsupported.h"
#include "compiler/gradient/differentiate.h"
#include "compiler/ir/key_sums.h"
#include "runtime/base/check.h"
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
      const std::string &name = sum.tensor.name, gradient = gradient::gradient_name(name);
      if (make_internal(program_, name, name)) read.push_back(sum);
      if (make_internal(program_, gradient, gradient)) differentiated.push_back(sum);
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
    order_tensors(attention_, program_);
    const Status status = plan::validate(program_);
    ATTN_CHECK(status.ok(), status.error().message);
    return std::move(program_);
  }

 private:
  // A schedule may be made long before the sums are. What makes it has all inputs of expressions,
  // and reads those of masks alone: it gets another address for the others.
  void free_schedule(plan::KernelStep& step) const {
    if (!step.schedule) return;
    for (plan::KernelArgument& argument : step.launches.front().arguments) {
      auto* tensor = std::get_if<plan::TensorOperand>(&argument);
      if (tensor != nullptr && attention_.find_sum(tensor->name) != nullptr)
        tensor->name = attention_.values_of_keys ? "k" : "v";
    }
  }

  static std::string rest_of(const std::string& learned) {
    return gradient::gradient_name(learned) + ".rest";
  }

  void add_gradients(const std::vector<KeySum>& sums) {
    const std::vector<std::string> learned = ir::summed_with_gradients(attention_);
    std::set<std::string> with_rest;
    for (const std::string& name : learned) {
      // What scores give a learned tensor themselves is the rest of its gradient.
      if (make_internal(program_, gradient::gradient_name(name), rest_of(name)))
        with_rest.insert(name);
      add_learned_gradient(attention_, name, program_);
    }
    codegen::MadeSteps made = codegen::key_sum_gradients(
        attention_, {sums, learned, [&](const std::string& name) {
                       return with_rest.contains(name) ? rest_of(name) : std::string();
                     }});
    std::ranges::move(made.internals, std::back_inserter(program_.internals));
    std::ranges::move(made.steps, std::back_inserter(program_.steps));
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
