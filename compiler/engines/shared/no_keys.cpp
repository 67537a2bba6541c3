#include "compiler/engines/shared/no_keys.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "compiler/codegen/kernel_text.h"
#include "compiler/engines/shared/controls.h"
#include "compiler/engines/shared/interface.h"
#include "compiler/engines/shared/lengths.h"
#include "compiler/engines/shared/operands.h"
#include "compiler/engines/shared/unsupported.h"
#include "compiler/gradient/differentiate.h"
#include "runtime/base/check.h"

namespace attn::engines {
namespace {

using ir::Dim;

constexpr const char* kHidden = "__int_as_float(0xff800000)";  // -inf

// Maps element `i` of a packed tensor of these dims to its place in one with those strides.
std::string element_place(const Dims4& dims, const Dims4& strides) {
  return fmt::format(
      "const long long d = i % {3}, s = i / {3} % {2}, h = i / {3} / {2} % {1}, "
      "b = i / {3} / {2} / {1};\n"
      "    const long long place = b * {4}LL + h * {5}LL + s * {6}LL + d * {7}LL;",
      dims[0], dims[1], dims[2], dims[3], strides[0], strides[1], strides[2], strides[3]);
}

class NoKeys {
 public:
  explicit NoKeys(const ir::Attention& attention)
      : attention_(attention),
        ragged_(!addressed_by(attention, "q").empty() || !addressed_by(attention, "o").empty()) {
    if (ragged_) starts_ = read(kRowStarts, DType::i32);
  }

  plan::Program make() && {
    fill("o");
    if (attention_.wants_lse)
      fill_rows("lse", attention_.sink ? "the sink of the head" : "-inf", lse());
    if (attention_.wants_lse_without_sink) fill_rows("lse_without_sink", "-inf", kHidden);
    if (attention_.wants_max) fill_rows("max", "-inf", kHidden);
    if (attention_.wants_sum_exp) fill_rows("sum_exp", "0", "0");
    if (attention_.wants_max_with_sink) fill_rows("max_with_sink", "the sink of the head", lse());
    if (attention_.wants_sum_exp_with_sink) {
      fill_rows("sum_exp_with_sink", "the sink alone",
                fmt::format("({}) == {} ? 0 : 1", lse(), kHidden));
    }
    return finish(bound_tensors(attention_, used_, given()));
  }

  Result<plan::Program> make_backward() && {
    ATTN_RETURN_IF_ERROR(check_sinks());
    const std::vector<plan::TensorInfo> tensors =
        backward_tensors(attention_, used_, given(), gradient_names(attention_));
    for (const plan::TensorInfo& tensor : tensors) {
      if (tensor.role == plan::TensorRole::gradient && has_elements(tensor)) fill_gradient(tensor);
    }
    if (kernel_.empty()) {
      return unsupported(attention_.pos, "without keys, all gradients are empty");
    }
    return finish(tensors);
  }

 private:
  // Every row's lse is the sink, through which alone a learned one has a gradient.
  Status check_sinks() const {
    if (!attention_.reads_d_lse || !attention_.sink) return {};
    const gradient::Derivatives derivatives = gradient::differentiate(attention_);
    for (const gradient::TensorGradient& tensor : derivatives.tensors) {
      if (tensor.sink.empty()) continue;
      return unsupported(
          attention_.d_lse_pos,
          fmt::format("without keys, the gradient of `{}` through lse is not computed",
                      tensor.tensor),
          "leave `lse` out of `grad`");
    }
    return {};
  }

  static bool has_elements(const plan::TensorInfo& tensor) {
    return std::ranges::find(tensor.dims, 0) == tensor.dims.end();
  }

  plan::Program finish(std::vector<plan::TensorInfo> tensors) {
    std::erase_if(tensors, [](const plan::TensorInfo& tensor) { return !has_elements(tensor); });
    plan::Program program;
    program.tensors = std::move(tensors);
    program.steps.emplace_back(std::move(kernel_).finish(false));
    return program;
  }

  void fill_gradient(const plan::TensorInfo& tensor) {
    if (tensor.name == "dq") return fill("dq");
    std::int64_t count = 1;
    for (const std::int64_t dim : tensor.dims) count *= dim;
    kernel_.make(tensor.name, tensor.dtype, count, "0: there are no keys", "out[i] = 0;");
  }

  std::int64_t size(Dim dim) const { return attention_.dims[dim]; }
  std::int64_t rows() const { return size(Dim::B) * size(Dim::Hq) * size(Dim::Sq); }

  std::string read(const std::string& name, DType dtype) {
    used_.insert(name);
    return kernel_.read(name, dtype);
  }

  // The starts of thd rows; no other control is read.
  Controls given() const {
    Controls controls;
    if (ragged_) {
      controls.given.push_back(
          {kRowStarts, plan::TensorRole::control, DType::i32, {size(Dim::B) + 1}, {1}, 4});
    }
    return controls;
  }

  bool is_ragged(const char* name) const { return !addressed_by(attention_, name).empty(); }

  // thd tensors have only the rows of their sequences.
  std::string behind_the_last(const char* name, std::int64_t elements_of_a_row) const {
    if (!is_ragged(name)) return "";
    return fmt::format("if (i >= {}[{}] * {}LL) return;\n    ", starts_, size(Dim::B),
                       elements_of_a_row);
  }

  // o or dq.
  void fill(const char* name) {
    const Dims4 dims = logical_dims(attention_, name), strides = stored_strides(attention_, name);
    const std::string place =
        is_ragged(name) ? behind_the_last(name, dims[1] * dims[3]) + "const long long place = i;"
                        : element_place(dims, strides);
    kernel_.make(name, attention_.dtype_of(name), rows() * dims[3], "0: there are no keys",
                 place + "\n    out[place] = 0;");
  }

  void fill_rows(const std::string& name, const std::string& meaning, const std::string& value) {
    kernel_.make(name, DType::f32, rows(), meaning,
                 behind_the_last("o", size(Dim::Hq)) + fmt::format("out[i] = {};", value));
  }

  // The sink, or -inf for rows past the lengths.
  std::string lse() {
    if (!attention_.sink) return kHidden;
    const std::string sink = read(attention_.dag.symbol_of(*attention_.sink), DType::f32);
    if (is_ragged("o")) return fmt::format("{}[i % {}]", sink, size(Dim::Hq));
    const std::string value = fmt::format("{}[i / {} % {}]", sink, size(Dim::Sq), size(Dim::Hq));
    if (!attention_.lengths_q) return value;
    const std::string lengths = read(std::string(ir::kLengthsQ), DType::i32);
    return fmt::format("i % {} < {}[i / {}] ? {} : {}", size(Dim::Sq), lengths,
                       size(Dim::Sq) * size(Dim::Hq), value, kHidden);
  }

  const ir::Attention& attention_;
  const bool ragged_;  // q or o
  std::string starts_;
  std::set<std::string> used_;
  codegen::KernelText kernel_;
};

}  // namespace

plan::Program no_keys(const ir::Attention& attention) {
  plan::Program program = NoKeys(attention).make();
  const Status status = plan::validate(program);
  ATTN_CHECK(status.ok(), status.error().message);
  return program;
}

Result<plan::Program> no_keys_backward(const ir::Attention& attention) {
  ATTN_ASSIGN(plan::Program program, NoKeys(attention).make_backward());
  const Status status = plan::validate(program);
  ATTN_CHECK(status.ok(), status.error().message);
  return program;
}

}  // namespace attn::engines
