// What attnc's backward kernels are generated from, and what follows from it: sizes, and which of
// the kernels' ways are taken (attn/backward.cuh).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "compiler/engines/native/bands.h"
#include "compiler/engines/native/classes.h"
#include "compiler/engines/native/expressions.h"
#include "compiler/engines/native/kernel_names.h"
#include "compiler/engines/native/key_blocks.h"
#include "compiler/engines/native/row_division.h"
#include "compiler/engines/native/row_lists.h"
#include "compiler/engines/shared/products_backward.h"
#include "compiler/gradient/differentiate.h"
#include "compiler/ir/attention.h"
#include "runtime/plan/program.h"

namespace attn::engines::native {

struct BackwardKernel {
  BackwardKernel(const ir::Attention& of_whole, const Form& form, const RowTile& of_tile);
  BackwardKernel(const BackwardKernel&) = delete;
  BackwardKernel& operator=(const BackwardKernel&) = delete;

  // Tensors of the program (backward.h); and those that are copied by blocks: by TMA, or by
  // threads.
  static constexpr const char* kCopied[] = {"q", "k", "v", "do"};
  static constexpr const char* kCounter = "native.counter";
  static constexpr const char* kExponents = "native.exponents";
  static constexpr const char* kDeltas = "native.deltas";
  static constexpr const char* kSums = "native.sums";
  static constexpr const char* kKeySums = "native.key_sums";
  static constexpr const char* kTurns = "native.turns";
  static constexpr const char* kParts = "native.parts";
  static constexpr const char* kWords = "native.words";
  static constexpr std::int64_t kThreads = 256;  // of blocks of other kernels than the main one

  const ir::Attention& whole;  // whose tensors are bound
  const gradient::Derivatives derivatives;
  const ir::Attention& attention;  // that the kernels compute
  const ir::Dims& dims;
  const std::optional<ir::Attention> rows;  // the copies of 8-bit tensors that products read
  const StatisticsPlaces statistics;
  const RowTile tile;
  const std::vector<std::string> gradients;  // that are wanted
  KeyBlocks blocks;                          // an upper bound, if inputs decide
  std::optional<RowLists> made_lists;
  std::optional<ClosedBand> band;  // the kernels compute blocks, as in the forward
  GradientExpressions expressions;
  std::int64_t words = 0;  // of learned tensors
  std::int64_t blocks_of_threads = 1;
  RowDivision division;        // of lists that are known
  MadeDivision made_division;  // of those that the GPU makes

  // Sets where sums of learned tensors are, once expressions are known.
  void place_parts();

  // The kernel of the products.
  const char* name() const { return tile.is_short ? kShortKernel : kBackwardKernel; }
  bool wants(const char* gradient) const;
  // The type of products.
  DType product_type() const { return rows ? rows->dtype : whole.dtype; }
  // How many tensors the step may write. Those of all 8-bit attentions do not count.
  std::size_t most_outputs() const;
  // Gradients that the kernels make.
  std::vector<std::string> own_gradients() const;
  // Whether sums of dq are added in a fixed order.
  bool ordered() const { return whole.deterministic && wants("dq") && !tile.is_short; }
  // The learned part of kernels of one launch whose elements no batch has of its own, and which
  // blocks of threads sum over those that they walk (BackwardDefaults::kSummed).
  std::optional<std::size_t> summed_part() const;
  // Likewise: steps of all blocks of threads, and bytes of what they read and write.
  double steps() const;
  double bytes_of_tensors() const;
  bool depends_on_inputs() const { return made_lists || band; }
  bool lengths() const { return attention.lengths_q || attention.lengths_kv; }
  // Whether no block of rows has rows past the last one.
  bool rows_fit() const;
  // Number of key heads whose items are taken together, the longest first.
  std::int64_t section() const;
  // Sums that batches share stay in the L2 cache while all add to them.
  bool batches_first() const;
  // Where lists are short or uneven, all rows of a head follow those of another.
  bool heads_outside() const;

  // Blocks of rows that items walk, of all heads: the least of an item is kLeastBlocks of
  // attn/backward_copier.cuh.
  double walked_blocks() const;
  std::int64_t least_blocks() const { return heads_of_key() == 1 ? 2 : 1; }
  // Blocks of rows of a list that is known now, and of a head; of those that are not divided.
  double longest() const;
  double longest_whole() const;
  double mean() const { return blocks.blocks / static_cast<double>(heads() * blocks.tiles); }
  std::int64_t heads() const { return dims[ir::Dim::B] * dims[ir::Dim::Hq]; }
  std::int64_t heads_of_key() const { return dims[ir::Dim::Hq] / dims[ir::Dim::Hkv]; }
  std::int64_t key_blocks() const { return blocks.tiles * dims[ir::Dim::B] * dims[ir::Dim::Hkv]; }
  // Blocks of keys are divided, or may be. At most so many parts; and items that are not parts, of
  // which those that are divided are passed over where parts come first.
  bool divides() const { return parts() > 0; }
  std::int64_t parts() const;
  std::int64_t items() const;
  // Number of blocks of threads that add the sums of parts.
  std::int64_t mergers() const;
  // The words of kCounter, and where Division of attn/division.cuh is.
  std::int64_t counters() const;
  std::int64_t first_word_of_division() const;
  std::int64_t row_blocks_of_head() const;
  std::int64_t padded_rows() const { return past_all_rows(dims) + tile.rows; }
  // Number of sums of all parts, 0 if there are none.
  std::int64_t key_sums() const { return parts() * tile.keys * (depth() + width()); }
  std::int64_t depth() const { return tile.depth; }
  std::int64_t width() const { return tile.width; }
  std::int64_t shared_bytes() const;

  // Learned tensors that scores read, the first part of one, and the tensor of a part.
  std::vector<const gradient::TensorGradient*> by_scores() const;
  const LearnedPart& part_of(const gradient::TensorGradient& tensor) const;
  const std::string& tensor_of(const LearnedPart& part) const;
  std::int64_t elements_of(const std::string& tensor) const;
  std::int64_t count_of(Reach reach) const;
  bool diagonals() const { return count_of(Reach::diagonal) > 0; }
  // Whether integers count units that the largest rows of dO and v give.
  bool shares() const;
  // Whether not all elements of the gradient are stored.
  bool is_zeroed(const gradient::TensorGradient& tensor) const;
  // Number of parts of each gradient of a tensor that is read at indices of heads: those of all
  // heads.
  std::int64_t parts_of_learned() const;
  static std::string kernel_of(const gradient::TensorGradient& tensor);
  static std::string spreading_kernel(std::size_t part);

  bool is_packed(const std::string& name) const;
  bool has_row_starts() const { return is_packed("q") || is_packed("o"); }
  bool has_column_starts() const { return is_packed("k") || is_packed("v"); }
  // What rows of kernels of one launch have instead of exponents, deltas and sums.
  std::vector<std::string> operands_of_rows() const;
  // The tensor maps of kCopied.
  plan::TensorMapArgument map_of(const std::string& name) const;

 private:
  std::int64_t add_words(std::int64_t more);
};

// The program of the kernels: a step, its launches, what they write, and the steps of learned
// sinks, which read nothing per score.
plan::Program program_of(const BackwardKernel& kernel, const LearnedGradients& learned);

// The text of the class Constants of its kernels.
std::string constants_of(const BackwardKernel& kernel);

// The text of all kernels of the step (attn/backward.cuh): CUDA C++.
std::string source_of(const BackwardKernel& kernel);

}  // namespace attn::engines::native
