// Unfused programs executed on the host (kernels compiled for it, products by loops) and compared
// with the reference, forward and backward.
#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "compiler/gradient/differentiate.h"
#include "compiler/reference/defaults.h"
#include "compiler/reference/gradients.h"
#include "runtime/io/element.h"
#include "runtime/io/layout.h"
#include "runtime/io/random.h"
#include "tests/unit/compiler/programs/cases.h"
#include "tests/unit/compiler/programs/warps_on_host.h"

extern const HostKernel kHostKernels[];

namespace attn::programs::testing {
namespace {

using Bytes = std::vector<std::byte>;
using ir::Dim;

constexpr double kParam = 0.5;

// The place of each element of a bound tensor; -1 for rows that a ragged tensor does not have.
template <typename Visit>
void for_each_place(const plan::TensorInfo& info, const std::map<std::string, Bytes>& memory,
                    const Visit& visit) {
  const std::int64_t rank = static_cast<std::int64_t>(info.dims.size());
  for (std::int64_t i = 0; i < io::element_count(info.dims); ++i) {
    std::vector<std::int64_t> index(info.dims.size());
    std::int64_t rest = i, place = 0;
    for (std::int64_t axis = rank; axis-- > 0; rest /= info.dims[axis]) {
      index[axis] = rest % info.dims[axis];
      place += index[axis] * info.strides[axis];
    }
    if (!info.addressed_by.empty()) {
      const auto* starts =
          reinterpret_cast<const std::int32_t*>(memory.find(info.addressed_by)->second.data());
      const std::int64_t begin = starts[index[0]], end = starts[index[0] + 1];
      place += begin * info.strides[2] - index[0] * info.strides[0];
      if (begin + index[2] >= end) place = -1;
    }
    visit(i, index, place);
  }
}

// The memory of one program, initially all NaN, and its steps.
class Machine {
 public:
  Machine(const plan::Program& program, const HostKernel* kernels, double param)
      : program_(program), kernels_(kernels), param_(static_cast<float>(param)) {
    for (const auto* tensors : {&program.tensors, &program.internals}) {
      for (const plan::TensorInfo& info : *tensors) {
        infos_[info.name] = info;
        const std::int64_t elements = io::storage_elements(info.dims, info.strides).value();
        memory_[info.name].assign(static_cast<std::size_t>(elements) * size_of(info.dtype),
                                  std::byte{0xff});
      }
    }
  }

  bool has(const std::string& name) const { return infos_.contains(name); }
  const Bytes& bytes(const std::string& name) const { return memory_.find(name)->second; }
  void set_bytes(const std::string& name, const Bytes& bytes) { memory_[name] = bytes; }

  // Except rows from `rows` of each batch on, which stay NaN.
  void set(const std::string& name, const io::HostTensor& values,
           const std::vector<double>& rows = {}) {
    const plan::TensorInfo& info = infos_.at(name);
    ASSERT_EQ(io::element_count(info.dims), io::element_count(values.dims)) << name;
    for_each_place(info, memory_, [&](std::int64_t i, const auto& index, std::int64_t place) {
      const bool behind = !rows.empty() && static_cast<double>(index[2]) >= rows[index[0]];
      if (place >= 0 && !behind) io::store(info.dtype, values.values[i], at(info, place));
    });
  }

  std::vector<double> values(const std::string& name, double absent = 0) {
    const plan::TensorInfo& info = infos_.at(name);
    std::vector<double> result(io::element_count(info.dims), absent);
    for_each_place(info, memory_, [&](std::int64_t i, const auto&, std::int64_t place) {
      if (place >= 0) result[i] = io::load(info.dtype, at(info, place));
    });
    return result;
  }

  void run(bool backwards) {
    const HostKernel* kernel = kernels_;
    for (const plan::Step& step : program_.steps) {
      if (const auto* derive = std::get_if<plan::DeriveStep>(&step)) {
        launch(*derive, *kernel++, backwards);
      } else {
        multiply(std::get<plan::CudnnStep>(step));
      }
    }
  }

 private:
  std::byte* at(const plan::TensorInfo& info, std::int64_t place) {
    return memory_[info.name].data() + static_cast<std::size_t>(place) * size_of(info.dtype);
  }

  void launch(const plan::DeriveStep& step, HostKernel kernel, bool backwards) {
    std::vector<void*> pointers;
    for (const std::string& output : step.outputs) pointers.push_back(memory_[output].data());
    for (const plan::OperandSource& input : step.inputs) {
      const auto* tensor = std::get_if<plan::TensorOperand>(&input);
      pointers.push_back(tensor == nullptr ? nullptr : memory_[tensor->name].data());
    }
    std::vector<void*> arguments;
    for (void*& pointer : pointers) {
      arguments.push_back(pointer == nullptr ? static_cast<void*>(&param_) : &pointer);
    }
    const std::int64_t threads = plan::derived_elements(program_, step);
    launch_on_host(kernel, static_cast<std::size_t>(threads), arguments.data(), backwards);
  }

  double element(const graph::Tensor& tensor, std::int64_t n, std::int64_t i, std::int64_t j) {
    return io::load(tensor.dtype, place_of(tensor, n, i, j));
  }
  std::byte* place_of(const graph::Tensor& tensor, std::int64_t n, std::int64_t i, std::int64_t j) {
    return at(infos_[tensor.name],
              n * tensor.strides[0] + i * tensor.strides[1] + j * tensor.strides[2]);
  }

  void multiply(const plan::CudnnStep& step) {
    const auto& [a, b, c] =
        std::tie(step.graph.tensors.at(0), step.graph.tensors.at(1), step.graph.tensors.at(2));
    for (std::int64_t n = 0; n < c.dims[0]; ++n) {
      for (std::int64_t i = 0; i < c.dims[1]; ++i) {
        for (std::int64_t j = 0; j < c.dims[2]; ++j) {
          double sum = 0;
          for (std::int64_t k = 0; k < a.dims[2]; ++k)
            sum += element(a, n, i, k) * element(b, n, k, j);
          io::store(c.dtype, sum, place_of(c, n, i, j));
        }
      }
    }
  }

  const plan::Program& program_;
  const HostKernel* kernels_;
  float param_;
  std::map<std::string, plan::TensorInfo> infos_;
  std::map<std::string, Bytes> memory_;
};

std::vector<double> lengths_of(std::int64_t batches, std::int64_t size) {
  std::vector<double> lengths;
  for (std::int64_t b = 0; b < batches; ++b) {
    const std::int64_t length = b % 3 == 0 ? std::max<std::int64_t>(size - 3, 0) : size;
    lengths.push_back(static_cast<double>(b % 3 == 2 ? 0 : length));
  }
  return lengths;
}

io::HostTensor random_tensor(const std::string& name, DType dtype,
                             const std::vector<std::int64_t>& dims) {
  io::HostTensor tensor{dtype, dims, {}};
  tensor.values = io::normal_values(io::seed_of(name), io::element_count(dims));
  for (double& value : tensor.values) {
    const double whole = std::floor(std::abs(value) * 8);
    if (dtype == DType::boolean) value = std::fmod(whole, 2);
    if (dtype == DType::i32) value = std::fmod(whole, 4);
    value = round_to(dtype, value);
  }
  return tensor;
}

// One case with inputs, ready to run.
class Trial {
 public:
  explicit Trial(std::size_t number)
      : attention_(attention_of(number)), programs_(programs_of(attention_)) {
    const HostKernel* kernels = kHostKernels;
    for (std::size_t i = 0; i < number; ++i) {
      for (const plan::Program& program : programs_of(attention_of(i))) {
        kernels += plan::steps_of<plan::DeriveStep>(program).size();
      }
    }
    kernels_ = {kernels, kernels + plan::steps_of<plan::DeriveStep>(programs_[0]).size()};
    make_inputs();
  }

  const ir::Attention& attention() const { return attention_; }
  io::HostTensor& input(const std::string& name) { return inputs_.tensors.at(name); }

  // Returns the memory after the backward, with o and lse of the forward, which it also compares.
  Machine run(bool backwards) {
    Machine forward(programs_[0], kernels_[0], kParam);
    bind(forward);
    forward.run(backwards);
    Machine backward(programs_[1], kernels_[1], kParam);
    bind(backward);
    backward.set("do", d_o_, q_rows_);
    for (const char* name : {"o", "lse"}) {
      if (!forward.has(name)) continue;
      if (backward.has(name)) backward.set_bytes(name, forward.bytes(name));
      forward_[name] = forward.values(name, name == std::string("lse") ? -INFINITY : 0);
    }
    if (attention_.reads_d_lse) backward.set("dlse", d_lse_where_there_is_lse(), q_rows_);
    backward.run(backwards);
    return backward;
  }

  reference::Gradients expected() const {
    reference::Options options;
    if (attention_.reads_d_lse) options.d_lse = &d_lse_;
    auto made = reference::gradients(attention_, inputs_, d_o_,
                                     gradient::wanted_gradients(attention_), options);
    EXPECT_TRUE(made.ok()) << (made.ok() ? "" : made.error().to_text());
    return made.ok() ? std::move(made).value() : reference::Gradients{};
  }

  const std::vector<double>& forward(const std::string& name) const { return forward_.at(name); }

 private:
  std::int64_t size(Dim dim) const { return attention_.dims[dim]; }

  // NaN where lse is -inf: nothing may depend on it.
  io::HostTensor d_lse_where_there_is_lse() const {
    io::HostTensor given = d_lse_;
    const std::vector<double>& lse = forward_.at("lse");
    for (std::size_t i = 0; i < lse.size(); ++i) {
      if (lse[i] == -INFINITY) given.values[i] = std::nan("");
    }
    return given;
  }

  void make_inputs() {
    const auto add = [&](const char* name, Dim heads, Dim rows, Dim columns) {
      inputs_.tensors[name] = random_tensor(name, attention_.dtype,
                                            {size(Dim::B), size(heads), size(rows), size(columns)});
    };
    add("q", Dim::Hq, Dim::Sq, Dim::Dqk);
    add("k", Dim::Hkv, Dim::Skv, Dim::Dqk);
    add("v", Dim::Hkv, Dim::Skv, Dim::Dv);
    d_o_ = random_tensor("do", attention_.dtype,
                         {size(Dim::B), size(Dim::Hq), size(Dim::Sq), size(Dim::Dv)});
    d_lse_ = random_tensor("dlse", DType::f32, {size(Dim::B), size(Dim::Hq), size(Dim::Sq)});
    for (const ir::CapturedTensor& tensor : attention_.tensors) add_captured(tensor);
    for (const ir::Param& param : attention_.params) inputs_.params[param.name] = kParam;
    if (attention_.lengths_q) q_rows_ = input(std::string(ir::kLengthsQ)).values;
    if (attention_.lengths_kv) kv_rows_ = input(std::string(ir::kLengthsKv)).values;
  }

  void add_captured(const ir::CapturedTensor& tensor) {
    std::vector<std::int64_t> dims;
    for (const ir::ExprId id : tensor.extents) {
      dims.push_back(*ir::fold_integer(attention_.dag, id, attention_.dims));
    }
    io::HostTensor made = random_tensor(tensor.name, tensor.dtype, dims);
    if (tensor.name == ir::kLengthsQ) made.values = lengths_of(dims[0], size(Dim::Sq));
    if (tensor.name == ir::kLengthsKv) made.values = lengths_of(dims[0], size(Dim::Skv));
    if (tensor.runs) made = reference::default_values(attention_, tensor).value();
    inputs_.tensors[tensor.name] = std::move(made);
  }

  void bind(Machine& machine) const {
    const auto starts = [&](const char* name, const std::vector<double>& lengths) {
      if (!machine.has(name)) return;
      io::HostTensor tensor{DType::i32, {static_cast<std::int64_t>(lengths.size()) + 1}, {0}};
      for (const double length : lengths) tensor.values.push_back(tensor.values.back() + length);
      machine.set(name, tensor);
    };
    starts("cu_seqlens_q", q_rows_);
    starts("cu_seqlens_kv", kv_rows_);
    for (const auto& [name, tensor] : inputs_.tensors) {
      if (!machine.has(name)) continue;
      const bool keys = name == "k" || name == "v";
      machine.set(name, tensor, keys ? kv_rows_ : name == "q" ? q_rows_ : std::vector<double>());
    }
  }

  ir::Attention attention_;
  std::vector<plan::Program> programs_;
  std::vector<const HostKernel*> kernels_;
  reference::Inputs inputs_;
  io::HostTensor d_o_, d_lse_;
  std::vector<double> q_rows_, kv_rows_;  // lengths, if there are any
  std::map<std::string, std::vector<double>> forward_;
};

// The error relative to the expected numbers, or to 0.1 each where they are smaller, since they are
// sums of larger parts. Infinite if a number is not finite.
double error_of(const std::vector<double>& actual, const std::vector<double>& expected) {
  double difference = 0, norm = 0;
  EXPECT_EQ(actual.size(), expected.size());
  for (std::size_t i = 0; i < std::min(actual.size(), expected.size()); ++i) {
    norm += std::isfinite(expected[i]) ? expected[i] * expected[i] : 0;
    if (actual[i] != expected[i]) difference += std::pow(actual[i] - expected[i], 2);
  }
  if (std::isnan(difference)) return INFINITY;
  const double least = 0.1 * 0.1 * static_cast<double>(expected.size());
  return difference == 0 ? 0 : std::sqrt(difference / std::max(norm, least));
}

class Programs : public ::testing::TestWithParam<std::size_t> {};

// The error from rounding to a type, including the weights, rounded for the products, and o, from
// which the gradient of a sink is computed where there are no products.
double tolerance(const ir::Attention& attention, const std::string& name) {
  const ir::CapturedTensor* tensor = attention.find_tensor(name);
  if (attention.gradients == std::vector<std::string>{"sinks"}) return 6e-3;
  const DType dtype = tensor == nullptr ? attention.dtype : tensor->dtype;
  if (dtype == DType::bf16) return 6e-3;
  return dtype == DType::f16 ? 1e-3 : 5e-6;
}

TEST_P(Programs, AreTheReference) {
  Trial trial(GetParam());
  Machine made = trial.run(false);
  const reference::Gradients expected = trial.expected();
  EXPECT_LT(error_of(trial.forward("o"), expected.outputs.o.values),
            tolerance(trial.attention(), "o"));
  if (trial.attention().wants_lse) {
    EXPECT_LT(error_of(trial.forward("lse"), expected.outputs.lse.values), 3e-6);
  }
  EXPECT_FALSE(expected.of.empty());
  for (const auto& [name, gradient] : expected.of) {
    const std::string output = gradient::gradient_name(name);
    if (!made.has(output)) {
      EXPECT_TRUE(gradient.values.empty()) << name;
      continue;
    }
    const double error = error_of(made.values(output), gradient.values);
    EXPECT_LT(error, tolerance(trial.attention(), name)) << name;
  }
}

TEST_P(Programs, LearnedGradientsAreTheSameInAnyOrderOfThreads) {
  Trial trial(GetParam());
  Machine one = trial.run(false), other = trial.run(true);
  for (const ir::CapturedTensor& tensor : trial.attention().tensors) {
    if (!tensor.learned) continue;
    EXPECT_EQ(one.bytes("d_" + tensor.name), other.bytes("d_" + tensor.name)) << tensor.name;
  }
}

INSTANTIATE_TEST_SUITE_P(OnHost, Programs, ::testing::Range<std::size_t>(0, kAll),
                         [](const auto& number) { return name_of(number.param); });

std::size_t number_of(std::string_view name) {
  std::size_t number = 0;
  while (name_of(number) != name) ++number;
  return number;
}

TEST(ProgramsOnHost, PartsWithoutAValueAreNotSilent) {
  Trial trial(number_of("learned_roots"));
  trial.input("u").values[3] = -6;  // where the root is infinitely steep
  const std::vector<double> made = trial.run(false).values("d_u");
  const std::vector<double> expected = trial.expected().of.at("u").values;
  for (std::size_t i = 0; i < made.size(); ++i) {
    if (i == 3) {
      EXPECT_FALSE(std::isfinite(expected[i]));
      EXPECT_TRUE(std::isnan(made[i]));
    } else {
      EXPECT_NEAR(made[i], expected[i], 1e-5);
    }
  }
}

}  // namespace
}  // namespace attn::programs::testing
