#include "compiler/engines/shared/branches.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <set>
#include <utility>

#include "compiler/codegen/kernel_text.h"
#include "compiler/codegen/steps.h"
#include "compiler/engines/shared/interface.h"
#include "compiler/engines/shared/operands.h"
#include "compiler/engines/shared/unsupported.h"
#include "compiler/gradient/differentiate.h"
#include "runtime/base/check.h"
#include "runtime/graph/extent.h"
#include "runtime/plan/internal_tensor.h"
#include "runtime/plan/step_tensors.h"

namespace attn::engines {
namespace {

using Role = plan::TensorRole;
using Names = std::map<std::string, std::string, std::less<>>;

constexpr std::int64_t kAlignment = 16;  // of what is read or written as q, k and v are
constexpr const char* kOwn = ".own";     // no branch can be called so

plan::TensorInfo* find(std::vector<plan::TensorInfo>& tensors, std::string_view name) {
  const auto found = std::ranges::find(tensors, name, &plan::TensorInfo::name);
  return found == tensors.end() ? nullptr : &*found;
}

// Room for all elements of a bound tensor, where its strides place them.
plan::TensorInfo room_for(std::string name, const plan::TensorInfo& tensor) {
  const auto last = last_offset(tensor.dims, tensor.strides);
  ATTN_CHECK(last.has_value(), "a checked program has tensors that can be addressed");
  return plan::internal_tensor(std::move(name), tensor.dtype, {*last + 1});
}

void rename(plan::Program& program, const Names& names) {
  const auto change = [&](std::string& name) {
    const auto found = names.find(name);
    if (found != names.end()) name = found->second;
  };
  for (plan::Step& step : program.steps) {
    plan::change_tensors(step, [&](plan::TensorOperand& tensor) { change(tensor.name); });
  }
  for (plan::TensorInfo& internal : program.internals) change(internal.name);
  if (!program.check) return;
  for (plan::OperandSource& input : program.check->inputs) {
    if (auto* tensor = std::get_if<plan::TensorOperand>(&input)) change(tensor->name);
  }
}

class WithBranches {
 public:
  WithBranches(const ir::Attention& attention, plan::Program program)
      : attention_(attention),
        program_(std::move(program)),
        is_backward_(plan::direction_of(program_) == plan::Direction::backward) {}

  Result<plan::Program> run(std::vector<BranchProgram> branches) && {
    if (is_backward_) begin_backward(branches);
    free_schedules();
    std::vector<plan::Step> before;
    for (BranchProgram& each : branches) {
      if (!is_backward_ && !is_needed(*each.branch)) continue;
      ATTN_RETURN_IF_ERROR(take_check(*each.branch, each.program));
      add(*each.branch, each.program);
      std::vector<plan::Step>& to = is_backward_ ? program_.steps : before;
      std::ranges::move(each.program.steps, std::back_inserter(to));
    }
    program_.steps.insert(program_.steps.begin(), std::make_move_iterator(before.begin()),
                          std::make_move_iterator(before.end()));
    if (is_backward_) end_backward();
    bind();
    const Status status = plan::validate(program_);
    ATTN_CHECK(status.ok(), status.error().message);
    return std::move(program_);
  }

 private:
  // Whether the o of the branch is read or bound.
  bool is_needed(const ir::Branch& branch) {
    return attention_.wants_branches || find(program_.tensors, branch.o.name) != nullptr;
  }

  // What makes a schedule has all inputs of expressions, and reads those of masks alone: it gets
  // another address for what branches make, which is not there yet.
  void free_schedules() {
    for (plan::Step& step : program_.steps) {
      auto* kernels = std::get_if<plan::KernelStep>(&step);
      if (kernels == nullptr || !kernels->schedule) continue;
      for (plan::KernelArgument& argument : kernels->launches.front().arguments) {
        auto* tensor = std::get_if<plan::TensorOperand>(&argument);
        const bool is_made =
            tensor != nullptr && std::ranges::any_of(attention_.branches, [&](const auto& each) {
              return each.o.name == tensor->name;
            });
        if (is_made) tensor->name = "v";
      }
    }
  }

  // The gradients of what branches made become internal, and so do parts of gradients.
  void begin_backward(const std::vector<BranchProgram>& branches) {
    std::map<std::string, int> parts;
    for (const std::string& gradient : gradient_names(attention_)) {
      if (find(program_.tensors, gradient) != nullptr) ++parts[gradient];
    }
    for (const BranchProgram& each : branches) {
      for (const plan::TensorInfo& tensor : each.program.tensors) {
        if (tensor.role == Role::gradient) ++parts[outer_gradient(*each.branch, tensor.name)];
      }
      make_internal(program_, gradient::gradient_name(each.branch->o.name),
                    gradient::gradient_name(each.branch->o.name));
    }
    for (const auto& [gradient, count] : parts) {
      if (count < 2) continue;
      summed_.insert(gradient);
      if (plan::TensorInfo* own = find(program_.tensors, gradient)) {
        const std::string part = fmt::format("{}.{}", kOwn, gradient);
        parts_[gradient] = {part};
        bound_.emplace(gradient, *own);
        program_.internals.push_back(room_for(part, *own));
        rename(program_, {{gradient, part}});
        std::erase_if(program_.tensors, [&gradient](const plan::TensorInfo& tensor) {
          return tensor.name == gradient;
        });
      }
    }
  }

  // What the whole calls the gradient that a branch calls so.
  static std::string outer_gradient(const ir::Branch& branch, const std::string& gradient) {
    for (const auto& [name, by] : branch.inputs) {
      if (gradient::gradient_name(name) == gradient) return gradient::gradient_name(by);
    }
    return gradient;
  }

  // One check runs when tensors are bound.
  Status take_check(const ir::Branch& branch, plan::Program& of) {
    if (!of.check) return {};
    if (program_.check) {
      return unsupported(branch.attention.pos,
                         "indexes of several branches depend on bound values, and a plan has one "
                         "check of them",
                         "`clamp` the indexes of all branches but one");
    }
    program_.check = std::move(of.check);
    return {};
  }

  // Adds what the branch's program has, but its steps, in which names become those of the whole.
  void add(const ir::Branch& branch, plan::Program& of) {
    Names names;
    for (const plan::TensorInfo& internal : of.internals)
      names[internal.name] = fmt::format("{}.{}", branch.attention.branch, internal.name);
    for (const plan::TensorInfo& tensor : of.tensors) name_bound(branch, tensor, names);
    rename(of, names);
    for (plan::Step& step : of.steps) {
      // A caller makes the schedule of one step at most.
      if (auto* kernels = std::get_if<plan::KernelStep>(&step)) kernels->schedule.reset();
    }
    std::ranges::move(of.internals, std::back_inserter(program_.internals));
  }

  void name_bound(const ir::Branch& branch, const plan::TensorInfo& tensor, Names& names) {
    const std::string& name = tensor.name;
    if (name == "o") {
      names[name] = branch.o.name;
      if (!is_backward_) make_output(branch, tensor);
      if (is_backward_) save(branch.o.name, tensor);
    } else if (name == "lse") {
      names[name] = branch.lse();
      if (!is_backward_) program_.tensors.push_back(named(branch.lse(), Role::stats, tensor));
      if (is_backward_) save(branch.lse(), tensor);
    } else if (name == "do") {
      names[name] = gradient::gradient_name(branch.o.name);
    } else if (tensor.role == Role::gradient) {
      names[name] = add_gradient(branch, tensor);
    } else if (branch.inputs.contains(name)) {
      names[name] = branch.outer(name);
      aligned_.insert(branch.outer(name));
    } else if (tensor.role != Role::captured && find(program_.tensors, name) == nullptr) {
      program_.tensors.push_back(tensor);  // q, k, v and controls
    }
  }

  static plan::TensorInfo named(std::string name, Role role, plan::TensorInfo tensor) {
    tensor.name = std::move(name);
    tensor.role = role;
    return tensor;
  }

  // Removes a captured tensor that the program had.
  void leave_out(const std::string& name) {
    std::erase_if(program_.tensors,
                  [&name](const plan::TensorInfo& tensor) { return tensor.name == name; });
  }

  void make_output(const ir::Branch& branch, const plan::TensorInfo& o) {
    leave_out(branch.o.name);
    if (attention_.wants_branches) {
      program_.tensors.push_back(named(branch.o.name, Role::output, o));
    } else {
      program_.internals.push_back(room_for(branch.o.name, o));
    }
  }

  void save(const std::string& name, const plan::TensorInfo& tensor) {
    leave_out(name);
    program_.tensors.push_back(named(name, Role::saved, tensor));
  }

  // The tensor that the branch writes its gradient, or its part of one, to.
  std::string add_gradient(const ir::Branch& branch, const plan::TensorInfo& tensor) {
    const std::string gradient = outer_gradient(branch, tensor.name);
    const bool is_input = gradient == tensor.name && tensor.name.size() == 2;
    if (!summed_.contains(gradient)) {
      if (is_input)
        program_.tensors.push_back(tensor);
      else
        add_learned(gradient, branch, tensor.name);
      return gradient;
    }
    const std::string part = fmt::format("{}.{}", branch.attention.branch, tensor.name);
    parts_[gradient].push_back(part);
    if (is_input) bound_.emplace(gradient, tensor);
    program_.internals.push_back(room_for(part, tensor));
    return part;
  }

  void add_learned(const std::string& gradient, const ir::Branch& branch, const std::string& name) {
    const std::vector<std::string> wanted = gradient::wanted_gradients(attention_);
    const auto of = std::ranges::find(wanted, gradient, gradient::gradient_name);
    ATTN_CHECK(of != wanted.end(), "a branch has no gradient but those of the whole");
    add_learned_gradient(attention_, *of, program_);
    const bool is_io = std::ranges::any_of(branch.inputs, [&](const auto& each) {
      return gradient::gradient_name(each.first) == name;
    });
    if (is_io) aligned_.insert(gradient);
  }

  // What combines may read what branches made where these do not, as those without softmax.
  void end_backward() {
    add_sums();
    for (const ir::Branch& branch : attention_.branches) {
      if (plan::TensorInfo* o = find(program_.tensors, branch.o.name)) o->role = Role::saved;
    }
  }

  // Sums of the parts of each gradient: in f32, in the order of the branches.
  void add_sums() {
    for (const std::string& gradient : gradient_names(attention_)) {
      const auto parts = parts_.find(gradient);
      if (parts == parts_.end()) continue;
      const auto bound = bound_.find(gradient);
      if (bound != bound_.end()) {
        program_.tensors.push_back(bound->second);
      } else {
        const std::vector<std::string> wanted = gradient::wanted_gradients(attention_);
        add_learned_gradient(
            attention_, *std::ranges::find(wanted, gradient, gradient::gradient_name), program_);
      }
      program_.steps.emplace_back(sum_of(program_.tensors.back(), parts->second));
    }
  }

  static plan::DeriveStep sum_of(const plan::TensorInfo& sum,
                                 const std::vector<std::string>& parts) {
    codegen::KernelText kernel;
    std::string value, meaning;
    for (const std::string& part : parts) {
      const std::string element = kernel.read(part, sum.dtype) + "[at]";
      value += (value.empty() ? "" : " + ") + codegen::real_text(sum.dtype, element);
      meaning += (meaning.empty() ? "" : " + ") + part;
    }
    std::int64_t count = 1;
    std::string place = "long long rest = i, at = 0;";
    for (std::size_t axis = sum.dims.size(); axis-- > 0;) {
      count *= sum.dims[axis];
      place +=
          fmt::format(" at += rest % {0} * {1}ll; rest /= {0};", sum.dims[axis], sum.strides[axis]);
    }
    kernel.make(
        sum.name, sum.dtype, count, meaning,
        fmt::format("{}\n    out[at] = {};", place, codegen::element_text(sum.dtype, value)));
    return std::move(kernel).finish(false);
  }

  void bind() {
    std::set<std::string> names = plan::names_used(program_.steps);
    if (program_.check) {
      for (const plan::OperandSource& input : program_.check->inputs) {
        if (const std::string* name = plan::name_of(input)) names.insert(*name);
      }
    }
    codegen::bind_inputs(attention_, names, program_);
    for (plan::TensorInfo& tensor : program_.tensors) {
      if (aligned_.contains(tensor.name)) tensor.alignment = kAlignment;
    }
    order_tensors(attention_, program_);
  }

  const ir::Attention& attention_;
  plan::Program program_;
  const bool is_backward_;
  std::set<std::string> aligned_, summed_;
  std::map<std::string, std::vector<std::string>> parts_;  // of the gradients that are summed
  std::map<std::string, plan::TensorInfo> bound_;          // those of them that are bound as q is
};

}  // namespace

Status check_branches(const ir::Attention& attention) {
  if (attention.branches.empty()) return {};
  for (const auto& [name, layout] : attention.layouts) {
    const bool is_packed = layout.kind == ir::LayoutKind::thd;
    if (!is_packed && !layout.bound_strides) continue;
    return unsupported(
        attention.epilogue_pos,
        fmt::format("{} {}, and branches are combined at rows and strides that are "
                    "known",
                    name, is_packed ? "is packed (layout thd)" : "has bound strides"),
        "use another layout, with `lengths` for sequences of different lengths");
  }
  return {};
}

Result<plan::Program> with_branches(const ir::Attention& attention, plan::Program program,
                                    std::vector<BranchProgram> branches) {
  return WithBranches(attention, std::move(program)).run(std::move(branches));
}

}  // namespace attn::engines
