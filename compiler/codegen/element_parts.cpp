#include "compiler/codegen/element_parts.h"

#include <fmt/format.h>

#include <bit>
#include <utility>

#include "compiler/codegen/emit.h"
#include "compiler/codegen/kernel_text.h"
#include "compiler/codegen/learned.h"
#include "compiler/gradient/differentiate.h"
#include "runtime/base/ceil_div.h"
#include "runtime/plan/internal_tensor.h"

namespace attn::codegen {
namespace {

// As in LearnedSteps: the largest part of each element, and then the sum of all.
class PartsMaker {
 public:
  PartsMaker(const ir::Attention& attention, const ir::CapturedTensor& tensor,
             const std::vector<PartsWalk>& walks, const std::string& infix)
      : tensor_(tensor),
        walks_(walks),
        elements_(elements_of(attention, tensor)),
        output_(gradient::gradient_name(tensor.name)),
        largest_(output_ + infix + ".largest"),
        sums_(output_ + infix + ".sums") {}

  MadeSteps run(const std::string& rest) && {
    if (!walks_.empty()) {
      add_words();
      for (const PartsWalk& walk : walks_) add_largest(walk);
      for (const PartsWalk& walk : walks_) add_sum(walk);
    }
    add_result(rest);
    return std::move(made_);
  }

 private:
  int spare() const {
    std::size_t count = 0;
    for (const PartsWalk& walk : walks_)
      count += static_cast<std::size_t>(walk.rows * walk.columns);
    return kBits - static_cast<int>(std::bit_width(count - 1));
  }

  void add_step(KernelText kernel, std::int64_t amends = 0) {
    plan::DeriveStep step = std::move(kernel).finish(false);
    step.amends = amends;
    made_.steps.emplace_back(std::move(step));
  }

  void add_words() {
    KernelText kernel;
    for (const std::string& name : {largest_, sums_}) {
      made_.internals.push_back(plan::internal_tensor(name, DType::i64, {elements_}));
      kernel.make(name, DType::i64, elements_, "0", "out[i] = 0;");
    }
    add_step(std::move(kernel));
  }

  static std::string meaning(const char* what, const PartsWalk& walk) {
    return fmt::format("{} the parts of {}", what, walk.source);
  }

  void add_largest(const PartsWalk& walk) {
    KernelText kernel;
    kernel.write(largest_, DType::i64, meaning("the largest of", walk), "largest");
    add_walk(std::move(kernel), walk, "LargestPart", {{"parts.largest", "largest"}});
  }

  void add_sum(const PartsWalk& walk) {
    KernelText kernel;
    kernel.write(sums_, DType::i64, meaning("the sum of", walk), "sums");
    kernel.read(largest_, DType::i64, "largest");
    add_walk(std::move(kernel), walk, "SumOfParts",
             {{"parts.largest", "largest"}, {"parts.sums", "sums"}, {"parts.spare", spare()}});
  }

  void add_walk(KernelText kernel, const PartsWalk& walk, const char* parts,
                std::vector<Field> fields) {
    const std::int64_t threads = ceil_div(walk.rows, kRun) * walk.columns;
    fields.insert(fields.end(),
                  {{"threads", threads}, {"rows", walk.rows}, {"columns", walk.columns}});
    kernel.run("learned.cuh", fmt::format("Walk<kernels::{}>", parts), fields,
               fmt::format("[&](long long local, long long c, long long& element, double& part) "
                           "{{\n{}    return true;\n  }}",
                           walk.part_at));
    read_inputs(kernel, walk.inputs);
    for (const PartsWalk::Read& read : walk.reads)
      kernel.read(read.tensor, read.dtype, read.parameter);
    add_step(std::move(kernel), threads);
  }

  void add_result(const std::string& rest) {
    KernelText kernel;
    std::string value = "0";
    if (!walks_.empty()) {
      kernel.include("learned.cuh");
      kernel.read(largest_, DType::i64, "largest");
      kernel.read(sums_, DType::i64, "sums");
      value = fmt::format("kernels::sum_of_parts(largest[i], sums[i], {})", spare());
    }
    if (!rest.empty()) {
      const std::string name = kernel.read(rest, tensor_.dtype, "rest");
      value += " + " + real_text(tensor_.dtype, name + "[i]");
    }
    kernel.make(output_, tensor_.dtype, elements_, "the sum of the parts",
                fmt::format("out[i] = {};", element_text(tensor_.dtype, value)));
    add_step(std::move(kernel));
  }

  const ir::CapturedTensor& tensor_;
  const std::vector<PartsWalk>& walks_;
  const std::int64_t elements_;
  const std::string output_, largest_, sums_;
  MadeSteps made_;
};

}  // namespace

MadeSteps summed_parts(const ir::Attention& attention, const ir::CapturedTensor& tensor,
                       const std::vector<PartsWalk>& walks, const std::string& rest,
                       const std::string& infix) {
  return PartsMaker(attention, tensor, walks, infix).run(rest);
}

}  // namespace attn::codegen
