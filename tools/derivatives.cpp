#include "tools/derivatives.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "compiler/gradient/differentiate.h"
#include "compiler/ir/branches.h"
#include "compiler/ir/key_sums.h"
#include "tools/words.h"

namespace attn::tools {
namespace {

constexpr std::string_view kNothing = "0: it is read only where no gradient flows";

void add_gathers(const ir::Attention& attention, const std::string& of,
                 const std::vector<gradient::Gather>& gathers, ExplainedDerivatives& result) {
  for (const gradient::Gather& gather : gathers) {
    result.entries.push_back(
        {of, to_source(attention, gather.load), to_source(attention, gather.local)});
  }
}

// The derivatives of what is summed along keys by learned tensors.
void add_sums(const ir::Attention& attention, ExplainedDerivatives& result) {
  ir::Attention with_more = attention;
  for (const ir::KeySum& sum : attention.sums) {
    const ir::ExprId roots[] = {sum.value};
    for (const ir::ExprId load : ir::reachable(attention.dag, roots)) {
      if (!attention.dag[load].is(ir::Op::load_)) continue;
      const ir::CapturedTensor* tensor = attention.find_tensor(attention.dag.symbol_of(load));
      if (!ir::has_gradient(attention, *tensor)) continue;
      const ir::ExprId local = gradient::derivative(with_more.dag, sum.value, load);
      result.entries.push_back(
          {sum.tensor.name, to_source(attention, load), to_source(with_more, local)});
    }
  }
}

// Learned tensors have their derivatives there.
bool is_read_by_branch(const ir::Attention& attention, const std::string& tensor) {
  return std::ranges::any_of(attention.branches, [&](const ir::Branch& branch) {
    const std::vector<std::string> read = ir::tensors_read(branch);
    return std::ranges::any_of(
        read, [&](const std::string& name) { return branch.outer(name) == tensor; });
  });
}

// Without those of branches.
ExplainedDerivatives derivatives_of(const ir::Attention& attention) {
  const gradient::Derivatives derivatives = gradient::differentiate(ir::with_sums_given(attention));
  ExplainedDerivatives result{gradient::wanted_gradients(attention), attention.reads_d_lse, {}};
  result.entries.push_back({"score", "score", to_source(derivatives.attention, derivatives.score)});
  if (derivatives.epilogue) {
    result.entries.push_back(
        {"epilogue", "o", to_source(derivatives.attention, *derivatives.epilogue)});
  }
  for (const gradient::TensorGradient& tensor : derivatives.tensors) {
    add_gathers(derivatives.attention, "score", tensor.score, result);
    add_gathers(derivatives.attention, "sink", tensor.sink, result);
    add_gathers(derivatives.attention, "epilogue", tensor.epilogue, result);
    if (tensor.score.empty() && tensor.sink.empty() && tensor.epilogue.empty() &&
        !is_read_by_branch(attention, tensor.tensor)) {
      result.entries.push_back({"score", tensor.tensor, ""});
    }
  }
  add_sums(attention, result);
  return result;
}

}  // namespace

ExplainedDerivatives explain_derivatives(const ir::Attention& attention) {
  ExplainedDerivatives result = derivatives_of(attention);
  for (const ir::Branch& branch : attention.branches) {
    if (!ir::has_gradients(attention, branch)) continue;
    const ir::Attention alone = ir::branch_alone(attention, branch, true);
    for (ExplainedDerivatives::Entry& entry : derivatives_of(alone).entries) {
      entry.branch = alone.branch;
      result.entries.push_back(std::move(entry));
    }
  }
  return result;
}

std::string ExplainedDerivatives::Entry::where() const {
  return branch.empty() ? of : fmt::format("{} of {}", of, branch);
}

std::string to_text(const ExplainedDerivatives& derivatives) {
  std::string text = fmt::format("  wanted    {}{}\n", fmt::join(derivatives.wanted, ", "),
                                 derivatives.through_lse ? ", through o and lse" : "");
  for (const ExplainedDerivatives::Entry& entry : derivatives.entries) {
    text += fmt::format("  {:<8}  by {}: {}\n", entry.where(), shown_beginning(entry.by),
                        entry.value.empty() ? kNothing : std::string_view(entry.value));
  }
  return text;
}

Json to_json(const ExplainedDerivatives& derivatives) {
  Json entries = Json::array();
  for (const ExplainedDerivatives::Entry& entry : derivatives.entries) {
    entries.push_back(
        {{"of", entry.of}, {"by", entry.by}, {"value", entry.value.empty() ? "0.0" : entry.value}});
    if (!entry.branch.empty()) entries.back()["branch"] = entry.branch;
  }
  return {{"wanted", derivatives.wanted},
          {"through_lse", derivatives.through_lse},
          {"derivatives", entries}};
}

}  // namespace attn::tools
