#include "compiler/reference/facts.h"

#include <fmt/format.h>

#include <limits>
#include <vector>

namespace attn::reference {
namespace {

using ir::Dim;

std::optional<BrokenFact> outside_dimension(const ir::Attention& attention,
                                            const ir::CapturedTensor& tensor,
                                            const std::vector<double>& values) {
  const Dim dim = tensor.name == ir::kLengthsQ ? Dim::Sq : Dim::Skv;
  const auto size = attention.dims.get(dim);
  for (std::size_t i = 0; size && i < values.size(); ++i) {
    if (values[i] >= 0 && values[i] <= static_cast<double>(*size)) continue;
    return BrokenFact{i, fmt::format("has {}, which is outside 0..{}", values[i], *size),
                      fmt::format("a length is from 0 to {}", to_string(dim))};
  }
  return std::nullopt;
}

// Values of floats, or exact integers.
template <typename Value>
std::optional<BrokenFact> decreases(const std::vector<Value>& values, std::size_t width) {
  for (std::size_t i = 1; i < values.size(); ++i) {
    if (i % width == 0 || values[i] >= values[i - 1]) continue;
    return BrokenFact{i,
                      fmt::format("is declared monotone, but element {} is {}, after {}", i,
                                  values[i], values[i - 1]),
                      "elements must not decrease along the last axis"};
  }
  return std::nullopt;
}

// The number and length of runs of equal elements along the last axis.
template <typename Value>
std::optional<BrokenFact> has_other_runs(const ir::Attention& attention,
                                         const ir::CapturedTensor& tensor,
                                         const std::vector<Value>& values, std::size_t width) {
  constexpr std::int64_t kAny = std::numeric_limits<std::int64_t>::max();
  const auto size = [&](const std::optional<ir::ExprId>& written) {
    if (!written) return kAny;
    return ir::fold_integer(attention.dag, *written, attention.dims).value_or(kAny);
  };
  const std::int64_t most = size(tensor.runs), longest = size(tensor.longest_run);
  std::int64_t runs = 0, length = 0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const bool begins = i % width == 0;
    const bool changes = begins || values[i] != values[i - 1];
    runs = begins ? 1 : runs + (changes ? 1 : 0);
    length = changes ? 1 : length + 1;
    if (runs > most) {
      return BrokenFact{
          i,
          fmt::format("is declared to have at most {} runs, but element {} begins another", most,
                      i),
          "a run is a sequence of equal elements along the last axis; `runs(N)` allows N of them"};
    }
    if (length > longest) {
      return BrokenFact{
          i,
          fmt::format("is declared to have runs of at most {}, but the run at element {} is longer",
                      longest, i),
          "a run is a sequence of equal elements along the last axis; `runs(N, M)` allows M"};
    }
  }
  return std::nullopt;
}

template <typename Value>
std::optional<BrokenFact> broken_order(const ir::Attention& attention,
                                       const ir::CapturedTensor& tensor,
                                       const std::vector<Value>& values, std::size_t width) {
  std::optional<BrokenFact> broken;
  if (tensor.monotone) broken = decreases(values, width);
  if (!broken && tensor.runs) broken = has_other_runs(attention, tensor, values, width);
  return broken;
}

}  // namespace

std::optional<BrokenFact> broken_fact(const ir::Attention& attention,
                                      const ir::CapturedTensor& tensor,
                                      const io::HostTensor& given) {
  std::optional<BrokenFact> broken;
  const std::vector<double>& values = given.values;
  const std::size_t row = given.dims.empty() ? 1 : static_cast<std::size_t>(given.dims.back());
  if (tensor.name == ir::kLengthsQ || tensor.name == ir::kLengthsKv)
    broken = outside_dimension(attention, tensor, values);
  if (broken) return broken;
  return given.wide.empty() ? broken_order(attention, tensor, values, row)
                            : broken_order(attention, tensor, given.wide, row);
}

}  // namespace attn::reference
