#include "tests/gpu/plain_attention.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "runtime/io/random.h"

namespace attn::testing {
namespace {

using io::HostTensor;

plan::TensorInfo tensor_info(const char* name, plan::TensorRole role, const graph::Tensor& tensor) {
  plan::TensorInfo info{name, role, tensor.dtype, tensor.dims, tensor.strides, tensor.alignment};
  if (role == plan::TensorRole::key) {  // transposed in the graph
    std::swap(info.dims[2], info.dims[3]);
    std::swap(info.strides[2], info.strides[3]);
  }
  if (role == plan::TensorRole::stats) {  // [B,H,S,1] in the graph
    info.dims.pop_back();
    info.strides.pop_back();
  }
  return info;
}

double dot(const double* a, const double* b, std::int64_t count) {
  double sum = 0;
  for (std::int64_t i = 0; i < count; ++i) sum += a[i] * b[i];
  return sum;
}

// One row of o and lse: q [D] with the first `visible` rows of k and v [Skv,D].
double attend(const double* q, const double* k, const double* v, std::int64_t visible,
              std::int64_t depth, double scale, double* o) {
  std::vector<double> weights(static_cast<std::size_t>(visible));
  double max = -std::numeric_limits<double>::infinity();
  for (std::int64_t j = 0; j < visible; ++j) {
    weights[static_cast<std::size_t>(j)] = dot(q, k + j * depth, depth) * scale;
    max = std::max(max, weights[static_cast<std::size_t>(j)]);
  }
  double sum = 0;
  for (double& weight : weights) sum += weight = std::exp(weight - max);
  std::fill_n(o, depth, 0.0);
  for (std::int64_t j = 0; j < visible; ++j) {
    for (std::int64_t d = 0; d < depth; ++d) {
      o[d] += weights[static_cast<std::size_t>(j)] / sum * v[j * depth + d];
    }
  }
  return max + std::log(sum);
}

}  // namespace

plan::Program attention_program(const AttentionShape& shape, Mask mask) {
  constexpr graph::Uid kQ = 1, kK = 2, kV = 3, kScale = 4, kMinusInfinity = 5, kO = 6, kStats = 7;
  using Role = plan::TensorRole;
  plan::CudnnStep step{attention_graph(shape, mask), {}};
  plan::Program program;
  const std::pair<graph::Uid, std::pair<const char*, Role>> tensors[] = {
      {kQ, {"q", Role::query}},
      {kK, {"k", Role::key}},
      {kV, {"v", Role::value}},
      {kO, {"o", Role::output}},
      {kStats, {"lse", Role::stats}}};
  for (const auto& [uid, name] : tensors) {
    program.tensors.push_back(tensor_info(name.first, name.second, *step.graph.find(uid)));
    step.operands.push_back({uid, plan::TensorOperand{name.first}});
  }
  program.params.push_back({"scale", DType::f32});
  step.operands.push_back({kScale, plan::ParamOperand{"scale"}});
  if (mask == Mask::causal) {
    step.operands.push_back(
        {kMinusInfinity,
         plan::ConstantOperand{DType::f32, -std::numeric_limits<double>::infinity()}});
  }
  program.steps.emplace_back(std::move(step));
  return program;
}

std::map<std::string, HostTensor> random_inputs(const plan::Program& program) {
  std::map<std::string, HostTensor> inputs;
  for (const plan::TensorInfo& tensor : program.tensors) {
    if (tensor.is_output()) continue;
    HostTensor values{tensor.dtype, tensor.dims,
                      io::normal_values(io::seed_of(tensor.name), io::element_count(tensor.dims))};
    for (double& value : values.values) value = round_to(tensor.dtype, value);
    inputs.emplace(tensor.name, std::move(values));
  }
  return inputs;
}

HostOutputs causal_attention(const std::map<std::string, HostTensor>& inputs, double scale) {
  const HostTensor& q = inputs.at("q");
  const HostTensor& k = inputs.at("k");
  const HostTensor& v = inputs.at("v");
  const std::int64_t heads = q.dims[1], rows = q.dims[2], depth = q.dims[3];
  const std::int64_t group = heads / k.dims[1];
  HostOutputs out{{DType::f64, q.dims, std::vector<double>(q.values.size())},
                  {DType::f64, {q.dims[0], heads, rows}, {}}};
  for (std::int64_t row = 0; row < q.dims[0] * heads * rows; ++row) {
    const std::int64_t batch_head = row / rows;
    const std::int64_t kv =
        (batch_head / heads * k.dims[1] + batch_head % heads / group) * k.dims[2] * depth;
    const std::int64_t visible = std::min(row % rows + 1, k.dims[2]);
    out.lse.values.push_back(attend(&q.values[static_cast<std::size_t>(row * depth)],
                                    &k.values[static_cast<std::size_t>(kv)],
                                    &v.values[static_cast<std::size_t>(kv)], visible, depth, scale,
                                    &out.o.values[static_cast<std::size_t>(row * depth)]));
  }
  return out;
}

double distance(const HostTensor& value, const HostTensor& wanted) {
  double difference = 0, norm = 0;
  for (std::size_t i = 0; i < wanted.values.size(); ++i) {
    difference += std::pow(value.values[i] - wanted.values[i], 2);
    norm += std::pow(wanted.values[i], 2);
  }
  return std::sqrt(difference / norm);
}

double largest_difference(const HostTensor& value, const HostTensor& wanted) {
  double largest = 0;
  for (std::size_t i = 0; i < wanted.values.size(); ++i) {
    const double difference = std::abs(value.values[i] - wanted.values[i]);
    if (!(difference <= largest)) largest = difference;  // NaN counts as largest
  }
  return largest;
}

}  // namespace attn::testing
