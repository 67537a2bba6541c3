// What became of a spec: which graph nodes each clause turned into, what the mask is, how much work
// it all is, and which engine runs it.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "compiler/driver/driver.h"
#include "compiler/masks/band.h"
#include "compiler/masks/blocks.h"
#include "runtime/plan/plan.h"
#include "tools/derivatives.h"
#include "tools/report.h"
#include "tools/spec.h"
#include "tools/written.h"

namespace attn::tools {

// A clause of the spec, or the attention itself (keyword "attention"): Q K^T, softmax, P V.
struct ExplainedClause {
  std::string keyword;
  std::uint32_t line = 0;  // 1-based
  std::uint32_t last_line = 0;
  std::string text;                // as written, on one line
  std::vector<std::string> nodes;  // of the graph, in order, as graph::to_text lists them
};

// The program of one direction.
struct ExplainedProgram {
  std::vector<ExplainedClause> clauses;  // in text order, the attention itself last
  // The clause of each node of each cuDNN step, as an index of `clauses`.
  std::vector<std::vector<std::size_t>> node_clauses;
  plan::Program program;
  std::vector<std::string> parts;  // of the mask, or its pages, where the strategy has them
  double flops = 0;                // of all scores
  DType dtype = DType::bf16;       // of the factors of its products
  std::int64_t bytes = 0;          // of all tensors, each read or written once
  // Bytes of a key and its value in all key heads, with scales of their own; 0 without a cache of
  // 8 bits.
  std::int64_t token_bytes = 0;
  // When it was compiled; of a plan file it has the plan alone.
  std::optional<driver::Compiled> compiled;
  std::vector<std::string> doubts{};  // of its predictions (planner/measured.h)
  std::optional<Error> refusal;       // of cuDNN, or without a target of the strategies
  std::string refused_target;
  std::shared_ptr<const support::Source> source{};  // that the refusal's place is in
};

// A condition of the masks that no band has.
struct ExplainedCondition {
  WrittenCondition written;  // the term that it is of; several conditions may be of one
  std::string text;          // as it is after constants and functions are inlined
};

// What is read of a cache whose keys hold their values, or of which rows see what lists name.
struct ExplainedCache {
  std::int64_t bytes = 0;             // of a key, with its value, of one head
  std::int64_t depth = 0, width = 0;  // elements of a key, and of its value
  bool values_of_keys = false;
  std::string rows{};       // their format, where they have several types
  std::string lists{};      // the tensor that lists keys; empty: there is none
  std::int64_t listed = 0;  // keys of a row, at most
};

// What the masks of an attention show.
struct ExplainedMask {
  std::string branch;  // that it is of, if there are branches
  masks::MaskForm mask;
  std::string band;                            // masks::band_text
  std::vector<WrittenCondition> band_written;  // the terms that gave its bounds
  std::string band_from_end;                   // masks::band_from_end_text
  std::int64_t rows = 0;                       // of scores
  std::int64_t columns = 0;                    // of scores
  bool lengths = false;                        // whether batches have lengths of their own
  double share = 1;                            // of the scores that lie inside the band
  // Blocks, and how many keys a row sees, of the first batch and head, if there are masks.
  std::optional<masks::BlockMap> blocks;
  std::optional<masks::RowCounts> keys;
  bool stopped = false;  // the mask takes more work (effort.h) or time than is given to it
  std::vector<ExplainedCondition> residual;
};

// The mask is that of the attention, which combines the branches.
struct Explanation : ExplainedMask {
  std::string file;
  std::string name;
  std::vector<ExplainedMask> branches;
  double share_of_work = 1;             // of the forward's FLOPs that lie in the bands
  std::optional<ExplainedCache> cache;  // with the clauses `values` or `gather`
  std::optional<ExplainedDerivatives> derivatives;
  std::optional<ExplainedProgram> forward;
  std::optional<ExplainedProgram> backward;
  std::string why_not_compiled;        // cuDNN could not be loaded
  std::optional<plan::Target> target;  // that it was compiled for, or would be
};

// Explains all but the programs; derivatives with `gradients`. The mask's band is found as `made`
// says. What takes longer than the deadline, which may be null, is Explanation::stopped.
Explanation explain(const Spec& spec, bool gradients, target::Rewrites made = {},
                    std::shared_ptr<target::Deadline> deadline = nullptr);

// Explains all but the plan, of a program made from the spec.
ExplainedProgram explain_program(const Spec& spec, const plan::Program& program);
// Explains a spec that no strategy can express: its clauses, the work, and each strategy's reason.
ExplainedProgram explain_refused(const Spec& spec, plan::Direction direction, Error refusal);
// The same of a compiled program, and of the plan with what it tells.
ExplainedProgram explain_compiled(const Spec& spec, driver::Compiled compiled);

// "a row sees 1 to 256 of 4096", or at least and at most so many; empty if nothing is known.
std::string keys_text(const ExplainedMask& explained);
// Says for which scores a residual condition of the mask, or of a branch's, is computed.
std::string residual_text(const Explanation& explanation, const ExplainedMask& explained);

std::string to_text(const Explanation& explanation);
Json to_json(const Explanation& explanation);

}  // namespace attn::tools
