#include "tools/explanation.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "compiler/ast/parse.h"
#include "compiler/ir/cache_scales.h"
#include "compiler/masks/mask_analysis.h"
#include "compiler/planner/measured.h"
#include "compiler/rewrite/ranged.h"
#include "runtime/base/check.h"
#include "runtime/io/host_tensor.h"
#include "runtime/plan/program_members.h"
#include "tools/explained_engine.h"
#include "tools/words.h"
#include "tools/work.h"

namespace attn::tools {
namespace {

// The lines that graph::to_text gives to nodes: the last ones, one each.
std::vector<std::string> node_lines(const graph::BackendGraph& graph) {
  std::vector<std::string> lines;
  const std::string text = graph::to_text(graph);
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = text.find('\n', at);
    lines.push_back(text.substr(at, end - at));
    at = end + 1;
  }
  lines.erase(lines.begin(), lines.end() - static_cast<std::ptrdiff_t>(graph.nodes.size()));
  return lines;
}

// Sorts nodes to the clauses that their positions lie in.
class ClauseMap {
 public:
  explicit ClauseMap(const support::Source& source) : source_(source) {
    diag::Sink sink(source);
    const std::optional<ast::Spec> spec = ast::parse(source, sink);
    ATTN_CHECK(spec.has_value(), "the spec was read before");
    std::string weights = "softmax";
    for (const ast::Clause& clause : spec->clauses) {
      const std::string_view text =
          source.text().substr(clause.span.begin, clause.span.end - clause.span.begin);
      const support::Place begin = source.place(clause.span.begin);
      spans_.push_back({begin, source.place(clause.span.end)});
      clauses_.push_back(
          {clause.keyword.text, begin.line, spans_.back().end.line, squeezed(text), {}});
      const auto* normalize = std::get_if<ast::NormalizeClause>(&clause.body);
      if (normalize != nullptr) weights = normalize->by.text;
      if (std::holds_alternative<ast::WeightClause>(clause.body)) weights = "weight";
    }
    const std::uint32_t line = source.place(spec->span.begin).line;
    clauses_.push_back({"attention", line, line, weights + "(scores) V", {}});
  }

  // Returns the clause of each node.
  std::vector<std::size_t> add(const graph::BackendGraph& graph) {
    const std::vector<std::string> lines = node_lines(graph);
    std::vector<std::size_t> clauses;
    for (std::size_t i = 0; i < lines.size(); ++i) {
      clauses.push_back(clause_at(graph::position_of(graph.nodes[i])));
      clauses_[clauses.back()].nodes.push_back(lines[i]);
    }
    return clauses;
  }

  std::vector<ExplainedClause> take() && { return std::move(clauses_); }

 private:
  std::size_t clause_at(SourcePos pos) const {
    const support::Place place{pos.line, pos.column};
    for (std::size_t i = 0; i < spans_.size(); ++i) {
      if (!before(place, spans_[i].begin) && before(place, spans_[i].end)) return i;
    }
    return spans_.size();
  }

  struct Extent {
    support::Place begin;
    support::Place end;
  };
  const support::Source& source_;
  std::vector<Extent> spans_;
  std::vector<ExplainedClause> clauses_;
};

std::int64_t bytes_of(const std::vector<plan::TensorInfo>& tensors) {
  std::int64_t bytes = 0;
  for (const plan::TensorInfo& tensor : tensors) {
    bytes += io::element_count(tensor.dims) * static_cast<std::int64_t>(size_of(tensor.dtype));
  }
  return bytes;
}

std::string clauses_text(const std::vector<ExplainedClause>& clauses) {
  std::string text;
  for (const ExplainedClause& clause : clauses) {
    text += fmt::format("  {:>4} | {}\n", clause.line, clause.text);
    for (const std::string& node : clause.nodes) text += fmt::format("       |   {}\n", node);
  }
  return text;
}

// Where it was measured (docs/cudnn.md, Masks): a bound on either side, in more than one row.
bool skips_blocks(const Explanation& explanation) {
  const masks::Band& band = explanation.mask.band;
  return explanation.rows > 1 && (band.right || band.left);
}

std::string blocks_text(const masks::BlockMap& map) {
  using masks::Block;
  return fmt::format("  blocks    of {} x {} scores: {} full, {} partial{}, {} empty\n", map.rows,
                     map.columns, map.count(Block::full), map.count(Block::partial),
                     map.exactness == masks::Exactness::exact ? "" : " or unknown",
                     map.count(Block::empty));
}

Json blocks_json(const masks::BlockMap& map) {
  using masks::Block;
  return {{"rows", map.rows},
          {"columns", map.columns},
          {"full", map.count(Block::full)},
          {"partial", map.count(Block::partial)},
          {"exact", map.exactness == masks::Exactness::exact},
          {"empty", map.count(Block::empty)}};
}

Json keys_json(const masks::RowCounts& keys) {
  return {{"fewest", keys.fewest},
          {"most", keys.most},
          {"exact", keys.exactness == masks::Exactness::exact}};
}

// Whether the forward computes the mask as it is: not parts, documents, lists of pages or lengths.
bool is_of_one_kernel(const Explanation& explanation) {
  const auto& program = explanation.forward;
  if (!program || !program->compiled) return true;
  constexpr std::string_view kOthers[] = {"parts", "segments", "block_sparse", "seqlens"};
  return std::ranges::find(kOthers, program->compiled->plan.strategy) == std::end(kOthers);
}

bool has_band(const Explanation& explanation) {
  const masks::Band& band = explanation.mask.band;
  const masks::Band& end = explanation.mask.from_end;
  return band.left || band.right || end.left || end.right;
}

// Kernels of attnc's own walk lists of blocks, whatever the mask's band is.
bool is_of_lists(const Explanation& explanation) {
  const auto& program = explanation.forward;
  return program && program->compiled && planner::has_own_kernels(program->compiled->plan.strategy);
}

std::string band_text(const Explanation& explanation) {
  if (is_of_lists(explanation)) return ": blocks outside are skipped";
  return skips_blocks(explanation) ? ": cuDNN skips the blocks outside" : "";
}

// The term as it was written, then what it is, if that is something else.
std::string residuals_text(const Explanation& explanation) {
  std::string text;
  const WrittenCondition* last = nullptr;
  for (const auto& [written, condition] : explanation.residual) {
    const bool again = last != nullptr && *last == written;
    last = &written;
    if (written.text.empty()) {
      text += fmt::format("  condition {}\n", condition);
      continue;
    }
    if (!again) text += fmt::format("  condition line {}: {}\n", written.line, written.text);
    if (written.text != condition) {
      text += fmt::format("            {} {}\n", again ? "and" : "computed as", condition);
    }
  }
  if (!text.empty()) text += fmt::format("            {}\n", residual_text(explanation));
  return text;
}

std::string mask_text(const Explanation& explanation) {
  const masks::Band& from_end = explanation.mask.from_end;
  std::string text;
  if (explanation.mask.band.left || explanation.mask.band.right) {
    text += fmt::format("  band      {}{}\n", explanation.band, band_text(explanation));
    for (const WrittenCondition& written : explanation.band_written) {
      text += fmt::format("            line {}: {}\n", written.line, written.text);
    }
  }
  if (from_end.left || from_end.right) {
    text += fmt::format("  band      {}: from the last diagonal of each batch\n",
                        explanation.band_from_end);
  }
  const std::string keys = keys_text(explanation);
  if (!keys.empty()) text += fmt::format("  keys      {}\n", keys);
  if (explanation.blocks) text += blocks_text(*explanation.blocks);
  if (explanation.stopped) {
    text +=
        "  stopped   analysing the whole mask takes too much work: some bounds are wider than "
        "they need to be, or blocks unknown\n";
  }
  text += residuals_text(explanation);
  if (text.empty()) {
    text = explanation.columns == 0 ? "  there are no keys\n" : "  everything is visible\n";
  }
  if (explanation.lengths) text += "  lengths   hide what is beyond them\n";
  return text;
}

std::string gradients_text(const Explanation& explanation) {
  if (!explanation.derivatives) return "";
  return "\ngradients\n" + to_text(*explanation.derivatives);
}

std::string work_text(const Explanation& explanation, const ExplainedProgram& program) {
  std::string text = fmt::format("  {} over all scores", flops_text(program.flops));
  if (has_band(explanation)) {
    text +=
        fmt::format(", of which {} ({}) lie in the band",
                    flops_text(program.flops * explanation.share), percent_text(explanation.share));
  }
  text += program.bytes > 0 ? fmt::format("\n  {} in tensors\n", bytes_text(program.bytes)) : "\n";
  if (program.token_bytes > 0) {
    text += fmt::format("  {} of keys and values for a token\n", bytes_text(program.token_bytes));
  }
  const std::int64_t between = bytes_of(program.program.internals);
  if (between > 0) text += fmt::format("  {} between the steps\n", bytes_text(between));
  return text;
}

Json mask_json(const Explanation& explanation) {
  const masks::Band& band = explanation.mask.band;
  Json json = {{"text", explanation.band}, {"left", nullptr}, {"right", nullptr}};
  if (band.left) json["left"] = *band.left;
  if (band.right) json["right"] = *band.right;
  const masks::Band& end = explanation.mask.from_end;
  if (end.left || end.right) {
    json["from_end"] = {{"text", explanation.band_from_end},
                        {"left", end.left ? Json(*end.left) : Json(nullptr)},
                        {"right", end.right ? Json(*end.right) : Json(nullptr)}};
  }
  json["skips_blocks"] = skips_blocks(explanation);
  json["stopped"] = explanation.stopped;
  json["residual"] = Json::array();
  json["conditions"] = Json::array();
  for (const auto& [written, text] : explanation.residual) {
    json["residual"].push_back(text);
    json["conditions"].push_back({{"text", text}, {"written", nullptr}, {"line", nullptr}});
    if (written.text.empty()) continue;
    json["conditions"].back()["written"] = written.text;
    json["conditions"].back()["line"] = written.line;
  }
  if (explanation.blocks) json["blocks"] = blocks_json(*explanation.blocks);
  if (explanation.keys) json["keys"] = keys_json(*explanation.keys);
  return json;
}

bool is_lowered(const ExplainedProgram& program) {
  return !program.refusal || !program.refused_target.empty();
}

// Sections, each with a heading: `before`, then what it is.
std::string tensors_section(const ExplainedProgram& program, const std::string& before) {
  if (!is_lowered(program)) {
    return fmt::format("\n{}clauses\n{}", before, clauses_text(program.clauses));
  }
  const std::string derived = derived_text(program.program);
  return fmt::format("\n{0}tensors\n{1}{2}{3}\n{0}clauses and the graph nodes they became\n{4}",
                     before, tensors_text(program.program),
                     derived.empty() ? "" : fmt::format("\n{}derived tensors\n", before), derived,
                     clauses_text(program.clauses));
}

std::string parts_section(const ExplainedProgram& program, const std::string& before) {
  if (program.parts.empty()) return "";
  std::string text = fmt::format("\n{}parts\n", before);
  for (const std::string& part : program.parts) text += fmt::format("  {}\n", shown(part));
  return text;
}

std::string work_section(const Explanation& explanation, const ExplainedProgram& program,
                         const std::string& before) {
  return fmt::format("{}\n{}work\n{}{}", parts_section(program, before), before,
                     work_text(explanation, program),
                     engine_sections(explanation, program, before));
}

std::string backward_text(const Explanation& explanation) {
  if (!explanation.backward) return "";
  const ExplainedProgram& program = *explanation.backward;
  if (!is_lowered(program))
    return "\nbackward\n  none\n" + full_error_text(*program.refusal, program.source.get());
  return tensors_section(program, "backward: ") + work_section(explanation, program, "backward: ");
}

Json clauses_json(const ExplainedProgram& program) {
  Json clauses = Json::array();
  for (const ExplainedClause& clause : program.clauses) {
    clauses.push_back({{"keyword", clause.keyword},
                       {"line", clause.line},
                       {"text", clause.text},
                       {"nodes", clause.nodes}});
  }
  return clauses;
}

// What `inspect` says of a plan too.
void add_decision(Json& json, const ExplainedProgram& program) {
  if (!program.compiled) return;
  const plan::Plan& plan = program.compiled->plan;
  json.update(decision_json(plan));
  json["workspace_bytes"] = plan::memory_of(plan).total();
}

Json backward_json(const Explanation& explanation, const ExplainedProgram& program) {
  if (!is_lowered(program)) return {{"error", error_json(*program.refusal, nullptr)}};
  Json json = {{"clauses", clauses_json(program)},
               {"flop", program.flops},
               {"bytes", program.bytes},
               {"program", json::json_of(program.program)},
               {"engine", engine_json(explanation, program)}};
  add_decision(json, program);
  return json;
}

// The terms that gave its bounds.
std::vector<WrittenCondition> written_of(const masks::Band& band,
                                         const WrittenConditions& written) {
  std::vector<WrittenCondition> all;
  const auto add = [&](SourcePos pos) {
    WrittenCondition term = written.at(pos);
    if (!term.text.empty() && (all.empty() || all.back() != term)) all.push_back(std::move(term));
  };
  if (band.left) add(band.left_pos);
  if (band.right) add(band.right_pos);
  return all;
}

}  // namespace

ExplainedProgram explain_program(const Spec& spec, const plan::Program& program) {
  ClauseMap clauses(*spec.source);
  ExplainedProgram explained;
  for (const plan::CudnnStep* step : plan::steps_of<plan::CudnnStep>(program)) {
    explained.node_clauses.push_back(clauses.add(step->graph));
  }
  explained.clauses = std::move(clauses).take();
  explained.program = program;
  explained.flops = dense_flops(spec.attention, plan::direction_of(program));
  explained.dtype = spec.attention.dtype;
  explained.bytes = bytes_of(program.tensors);
  explained.token_bytes = ir::bytes_of_token(spec.attention);
  return explained;
}

ExplainedProgram explain_refused(const Spec& spec, plan::Direction direction, Error refusal) {
  ExplainedProgram explained;
  explained.clauses = ClauseMap(*spec.source).take();
  explained.source = spec.source;
  explained.flops = dense_flops(spec.attention, direction);
  explained.refusal = std::move(refusal);
  return explained;
}

ExplainedProgram explain_compiled(const Spec& spec, driver::Compiled compiled) {
  ExplainedProgram explained = explain_program(spec, compiled.plan.program);
  explained.parts = compiled.plan.parts;
  target::Context context;
  context.gpu = target::gpu_of(compiled.plan.target);
  context.direction = plan::direction_of(compiled.plan.program);
  explained.doubts = planner::doubts_of(spec.attention, context);
  explained.compiled = std::move(compiled);
  return explained;
}

Explanation explain(const Spec& spec, bool gradients, target::Rewrites made,
                    std::shared_ptr<target::Deadline> deadline) {
  Explanation explanation;
  explanation.file = spec.source->name();
  explanation.name = spec.attention.name;
  masks::Effort effort(deadline.get());
  const target::Context context{
      .rewrites = made, .analyses = spec.analyses.get(), .deadline = deadline};
  const ir::Attention covered = made.bounding_band
                                    ? rewrite::with_bounding_band(spec.attention, context, effort)
                                    : spec.attention;
  if (made.redundant) (void)rewrite::without_redundant(covered, context, effort);
  explanation.stopped = effort.is_spent();
  const masks::Analyzed mask = masks::analyzed(covered, context);
  explanation.mask = mask->form();
  explanation.lengths = spec.attention.lengths_q || spec.attention.lengths_kv;
  explanation.rows = spec.attention.dims[ir::Dim::Sq];
  explanation.columns = spec.attention.dims[ir::Dim::Skv];
  explanation.band = masks::band_text(mask->form(), covered);
  explanation.band_from_end = masks::band_from_end_text(mask->form(), covered);
  const WrittenConditions written(*spec.source);
  explanation.band_written = written_of(explanation.mask.band, written);
  for (const ir::ExprId id : explanation.mask.residual) {
    explanation.residual.push_back({written.at(covered.dag[id].pos), ir::to_source(covered, id)});
  }
  explanation.blocks = masks::analyzed(spec.attention, context)->blocks();
  if (!spec.attention.masks.empty() && explanation.rows > 0) {
    explanation.keys = masks::row_counts(spec.attention, deadline.get());
    if (spec.attention.lengths_q || spec.attention.lengths_kv) {  // which end rows at run time
      explanation.keys->fewest = 0, explanation.keys->exactness = masks::Exactness::bound;
    }
  }
  explanation.stopped |=
      explanation.blocks && explanation.blocks->exactness == masks::Exactness::stopped;
  explanation.stopped |= deadline != nullptr && deadline->is_over();
  if (gradients) explanation.derivatives = explain_derivatives(spec.attention);
  explanation.share = masks::band_share(covered.dims, mask->band());
  return explanation;
}

std::string keys_text(const Explanation& explanation) {
  if (!explanation.keys) return "";
  const auto& [fewest, most, exactness] = *explanation.keys;
  const std::int64_t all = explanation.columns;
  if (exactness != masks::Exactness::exact) {
    if (fewest == 0 && most == all) return "";
    const std::string least = fewest > 0 ? fmt::format("at least {} and ", fewest) : "";
    return fmt::format("a row sees {}at most {} of {}", least, most, all);
  }
  if (fewest == most) return fmt::format("each row sees {} of {}", most, all);
  return fmt::format("a row sees {} to {} of {}", fewest, most, all);
}

std::string residual_text(const Explanation& explanation) {
  if (is_of_lists(explanation)) return "computed for the scores of partial blocks";
  return fmt::format("{}computed for every score{}",
                     is_of_one_kernel(explanation) ? "" : "one kernel for all would have it ",
                     has_band(explanation) ? " in the band" : "");
}

std::string to_text(const Explanation& explanation) {
  const auto& forward = explanation.forward;
  return fmt::format("{} ({})\n{}\nmask\n{}{}{}{}", explanation.name, explanation.file,
                     forward ? tensors_section(*forward, "") : "", mask_text(explanation),
                     gradients_text(explanation),
                     forward ? work_section(explanation, *forward, "") : "",
                     backward_text(explanation));
}

Json to_json(const Explanation& explanation) {
  const auto& forward = explanation.forward;
  Json json = {{"name", explanation.name}, {"file", explanation.file}};
  if (forward) json["clauses"] = clauses_json(*forward);
  json["mask"] = mask_json(explanation);
  if (forward) json["flop"] = forward->flops;
  json["share_in_band"] = explanation.share;
  if (forward) {
    json["bytes"] = forward->bytes;
    if (forward->token_bytes > 0) json["token_bytes"] = forward->token_bytes;
    json["program"] = json::json_of(forward->program);
    json["engine"] = engine_json(explanation, *forward);
    add_decision(json, *forward);
  }
  if (explanation.derivatives) json["gradients"] = to_json(*explanation.derivatives);
  if (explanation.backward) json["backward"] = backward_json(explanation, *explanation.backward);
  return json;
}

}  // namespace attn::tools
