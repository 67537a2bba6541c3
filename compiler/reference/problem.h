// What all rows of one evaluation share. Internal to compiler/reference.
#pragma once

#include <cstdint>
#include <string_view>

#include "compiler/reference/bindings.h"
#include "compiler/reference/row_evaluator.h"

namespace attn::reference {

struct Problem {
  const ir::Attention& attention;
  const Bindings& bindings;
  double scale;      // of the products of q and k
  double of_stored;  // the same of q and k as they are stored: with their descales
  bool unrounded = false;
  bool rounds_d_o = false;  // Options

  std::int64_t size(ir::Dim dim) const { return attention.dims[dim]; }
  std::int64_t rows() const { return size(ir::Dim::B) * size(ir::Dim::Hq) * size(ir::Dim::Sq); }
  std::int64_t group() const { return size(ir::Dim::Hq) / size(ir::Dim::Hkv); }
  std::uint64_t param(std::string_view name) const {
    return static_cast<std::uint64_t>(bindings.params.find(name)->second);
  }
  // The value of this one of kScales; 1 if the attention does not have it.
  double quantizer(std::string_view name) const {
    if (!attention.quantize || attention.is_mxfp8()) return 1;
    const auto found = bindings.tensors.find(name);
    return found != bindings.tensors.end() ? found->second.values[0] : 1;
  }
  // `value` as it is kept in `dtype`.
  double rounded(DType dtype, double value) const {
    return unrounded ? value : round_to(dtype, value);
  }
  const io::HostTensor& tensor(std::string_view name) const {
    return bindings.tensors.find(name)->second;
  }
  // The place of row `index`, from 0 to rows() - 1.
  RowPlace place(std::int64_t index) const {
    const std::int64_t height = size(ir::Dim::Sq), heads = size(ir::Dim::Hq);
    return {index / height / heads, index / height % heads, index % height};
  }
};

// The problem of these inputs; both must outlive it. Errors: binding if the scale has no value.
Result<Problem> make_problem(const ir::Attention& attention, const Bindings& bindings,
                             bool unrounded = false);

// The dot product, summed in a fixed order.
double dot(const double* x, const double* y, std::int64_t size);

// Where row s of a [B, H, S, D] tensor begins.
std::int64_t row_offset(const io::HostTensor& tensor, std::int64_t b, std::int64_t h,
                        std::int64_t s);
inline const double* row_of(const io::HostTensor& tensor, std::int64_t b, std::int64_t h,
                            std::int64_t s) {
  return tensor.values.data() + row_offset(tensor, b, h, s);
}

io::HostTensor zeros(DType dtype, std::vector<std::int64_t> dims);

}  // namespace attn::reference
