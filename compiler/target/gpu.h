// The figures of a GPU that cost predictions use.
#pragma once

#include <cstdint>
#include <string>

#include "runtime/base/dtype.h"
#include "runtime/plan/plan.h"

namespace attn::target {

// Figures of predicted times (figures.h): those that were fitted to measurements of the H200. They
// live as long as the program.
struct Figures;
const Figures& measured_figures();

// The default is the H200 SXM, on which the cost model was measured.
struct Gpu {
  std::int64_t sm = 90;            // compute capability * 10
  double multiprocessors = 132;    // SMs
  double clock = 1.98;             // GHz, the highest SM clock
  double lanes = 128;              // f32 operations that an SM issues per clock
  double matrix_rate = 989.4;      // TFLOP/s, dense, 16-bit inputs, f32 accumulation
  double rate_in_8_bits = 1978.9;  // the same of 8-bit floats; 0 without
  double share_of_warps = 0.68;    // of matrix_rate, that products of single warps reach
  double bandwidth = 4800;         // GB/s of global memory
  bool measured = true;            // false: predictions are scaled from the H200 by these figures
  std::string source = "NVIDIA H200 data sheet";  // of matrix_rate and bandwidth
  const Figures* figures = &measured_figures();   // of the H200

  bool operator==(const Gpu&) const = default;

  // The matrix rate of factors of this type; where there is none of 8 bits, that of 16.
  double rate(DType dtype) const {
    return is_fp8(dtype) && rate_in_8_bits > 0 ? rate_in_8_bits : matrix_rate;
  }
};

// The figures of a GPU, from the device properties, and from data_sheets.def for a GPU that is
// listed there by its target or device name; a variant with another number of SMs than the listed
// one has its matrix rate scaled. An empty target is the H200.
Gpu gpu_of(const plan::Target& target);

}  // namespace attn::target
