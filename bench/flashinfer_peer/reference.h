// Compares a batch's outputs with some rows that the host computes in double.
#pragma once

#include <vector>

#include "bench/flashinfer_peer/batch.h"

namespace attn::flashinfer_peer {

// Relative L2 errors above this are wrong: bf16 outputs and weights differ by less.
constexpr double kTolerance = 0.02;

struct Comparison {
  double error = 0;        // the greatest relative L2 of a row
  bool all_finite = true;  // in all rows, also those that are not compared
};

// Rows of a batch: first, middle and last of the longest, the shortest and four more sequences, two
// heads each.
class Reference {
 public:
  explicit Reference(const Batch& batch);

  // Copies the outputs to the host. Errors: as check.
  Comparison compare(const Batch& batch) const;

 private:
  struct Row {
    int sequence = 0;
    int row = 0;  // of the sequence
    int head = 0;
    std::vector<double> output;  // kDim
  };

  static std::vector<double> computed(const Batch& batch, const Row& row);
  std::vector<Row> rows_;
};

// Fills the outputs with NaNs: what a kernel leaves out is found.
void poison(const Batch& batch);

}  // namespace attn::flashinfer_peer
