// How fast a program is predicted to be, beside what the GPU could do (the roofline model of
// Williams, Waterman and Patterson, 2009).
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "compiler/target/gpu.h"
#include "tools/report.h"

namespace attn::tools::page {

struct Workload {
  std::string name;       // "forward"
  double flops = 0;       // of the visible scores
  bool is_about = false;  // whether their number is estimated
  // Whether the mask reads values of the call: then the predicted time is of other ones, which the
  // cost model assumes, and not a share of the limit of these.
  bool is_assumed = false;
  std::int64_t bytes = 0;  // of the tensors, each read or written once
  double predicted_ms = 0;
  std::optional<double> measured_ms{};
};

// FLOP per byte; 0 without bytes.
double intensity_of(const Workload& work);
// The TFLOP/s that the GPU reaches at most with this intensity.
double limit_of(const Workload& work, const target::Gpu& gpu);
// Whether the limit is that of memory, not of the matrix units.
bool is_memory_bound(const Workload& work, const target::Gpu& gpu);
// Share of the limit that this time reaches, from 0 on; more than 1 if the model does not hold.
double share_of_limit(const Workload& work, double milliseconds, const target::Gpu& gpu);

// The GPU with the matrix rate of factors of this type, as the functions here take it.
target::Gpu for_products(target::Gpu gpu, DType dtype);

// {"gpu", "matrix_rate", "bits", "bandwidth", "source", "rows": a workload each, "chart": {"roof",
// "points", ..}}. Null if there is no work. `dtype`: that of the GPU's matrix rate.
Json roofline_view(const std::vector<Workload>& all, const target::Gpu& gpu,
                   const std::string& name, DType dtype = DType::bf16);

}  // namespace attn::tools::page
