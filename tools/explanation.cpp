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
bool skips_blocks(const ExplainedMask& explained) {
  const masks::Band& band = explained.mask.band;
  return explained.rows > 1 && (band.right || band.left);
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

bool has_band(const ExplainedMask& explained) {
  const masks::Band& band = explained.mask.band;
  const masks::Band& end = explained.mask.from_end;
  return band.left || band.right || end.left || end.right;
}

// Kernels of attnc's own walk lists of blocks, whatever the mask's band is.
bool is_of_lists(const Explanation& explanation) {
  const auto& program = explanation.forward;
  return program && program->compiled && planner::has_own_kernels(program->compiled->plan.strategy);
}

std::string band_text(const Explanation& explanation, const ExplainedMask& explained) {
  if (is_of_lists(explanation)) return ": blocks outside are skipped";
  return skips_blocks(explained) ? ": cuDNN skips the blocks outside" : "";
}

// The term as it was written, then what it is, if that is something else.
std::string residuals_text(const Explanation& explanation, const ExplainedMask& explained) {
  std::string text;
  const WrittenCondition* last = nullptr;
  for (const auto& [written, condition] : explained.residual) {
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
  if (!text.empty()) text += fmt::format("            {}\n", residual_text(explanation, explained));
  return text;
}

std::string mask_text(const Explanation& explanation, const ExplainedMask& explained) {
  const masks::Band& from_end = explained.mask.from_end;
  std::string text;
  if (explanation.cache && !explanation.cache->lists.empty()) {
    text += fmt::format("  listed    a row sees at most {} of {}, those that `{}` lists\n",
                        explanation.cache->listed, explanation.columns, explanation.cache->lists);
  }
  if (explained.mask.band.left || explained.mask.band.right) {
    text += fmt::format("  band      {}{}\n", explained.band, band_text(explanation, explained));
    for (const WrittenCondition& written : explained.band_written) {
      text += fmt::format("            line {}: {}\n", written.line, written.text);
    }
  }
  if (from_end.left || from_end.right) {
    text += fmt::format("  band      {}: from the last diagonal of each batch\n",
                        explained.band_from_end);
  }
  const std::string keys = keys_text(explained);
  if (!keys.empty()) text += fmt::format("  keys      {}\n", keys);
  if (explained.blocks) text += blocks_text(*explained.blocks);
  if (explained.stopped) {
    text +=
        "  stopped   analysing the whole mask takes too much work: some bounds are wider than "
        "they need to be, or blocks unknown\n";
  }
  text += residuals_text(explanation, explained);
  if (text.empty()) {
    text = explained.columns == 0 ? "  there are no keys\n" : "  everything is visible\n";
  }
  if (explained.lengths) text += "  lengths   hide what is beyond them\n";
  return text;
}

// A section for each branch; without branches, one.
std::string masks_text(const Explanation& explanation) {
  if (explanation.branches.empty()) return "\nmask\n" + mask_text(explanation, explanation);
  std::string text;
  for (const ExplainedMask& branch : explanation.branches) {
    text += fmt::format("\nmask of branch {}\n{}", branch.branch, mask_text(explanation, branch));
  }
  return text + fmt::format("\nmask of branch {}\n{}", explanation.branch,
                            mask_text(explanation, explanation));
}

std::string gradients_text(const Explanation& explanation) {
  if (!explanation.derivatives) return "";
  return "\ngradients\n" + to_text(*explanation.derivatives);
}

std::string cache_text(const ExplainedCache& cache) {
  const std::string what =
      cache.values_of_keys
          ? fmt::format("whose first {} of {} elements are its value", cache.width, cache.depth)
          : "with its value";
  const std::string keys =
      cache.lists.empty()
          ? "each key"
          : fmt::format("each of {} keys that `{}` lists for a row", cache.listed, cache.lists);
  const std::string rows = cache.rows.empty() ? "" : fmt::format(", in rows of `{}`", cache.rows);
  return fmt::format("\n  {} bytes of {}, {}{}", cache.bytes, keys, what, rows);
}

Json cache_json(const ExplainedCache& cache) {
  Json json = {{"bytes_of_key", cache.bytes}, {"values_of_keys", cache.values_of_keys}};
  if (!cache.rows.empty()) json["rows"] = cache.rows;
  if (!cache.lists.empty()) json["lists"] = cache.lists, json["listed"] = cache.listed;
  return json;
}

std::string work_text(const Explanation& explanation, const ExplainedProgram& program) {
  std::string text = fmt::format("  {} over all scores", flops_text(program.flops));
  if (has_band(explanation) || std::ranges::any_of(explanation.branches, has_band)) {
    const double share = explanation.share_of_work;
    text += fmt::format(", of which {} ({}) lie in the band{}", flops_text(program.flops * share),
                        percent_text(share), explanation.branches.empty() ? "" : "s");
  }
  if (explanation.cache) text += cache_text(*explanation.cache);
  text += program.bytes > 0 ? fmt::format("\n  {} in tensors\n", bytes_text(program.bytes)) : "\n";
  if (program.token_bytes > 0) {
    text += fmt::format("  {} of keys and values for a token\n", bytes_text(program.token_bytes));
  }
  const std::int64_t between = bytes_of(program.program.internals);
  if (between > 0) text += fmt::format("  {} between the steps\n", bytes_text(between));
  return text;
}

Json mask_json(const ExplainedMask& explained) {
  const masks::Band& band = explained.mask.band;
  Json json = {{"text", explained.band}, {"left", nullptr}, {"right", nullptr}};
  if (band.left) json["left"] = *band.left;
  if (band.right) json["right"] = *band.right;
  const masks::Band& end = explained.mask.from_end;
  if (end.left || end.right) {
    json["from_end"] = {{"text", explained.band_from_end},
                        {"left", end.left ? Json(*end.left) : Json(nullptr)},
                        {"right", end.right ? Json(*end.right) : Json(nullptr)}};
  }
  json["skips_blocks"] = skips_blocks(explained);
  json["stopped"] = explained.stopped;
  json["residual"] = Json::array();
  json["conditions"] = Json::array();
  for (const auto& [written, text] : explained.residual) {
    json["residual"].push_back(text);
    json["conditions"].push_back({{"text", text}, {"written", nullptr}, {"line", nullptr}});
    if (written.text.empty()) continue;
    json["conditions"].back()["written"] = written.text;
    json["conditions"].back()["line"] = written.line;
  }
  if (explained.blocks) json["blocks"] = blocks_json(*explained.blocks);
  if (explained.keys) json["keys"] = keys_json(*explained.keys);
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

// Columns of masks are positions of keys, and those of scores numbers in lists: no band and no
// block tells what is computed.
ExplainedMask explain_lists(const ir::Attention& attention, const WrittenConditions& written) {
  ExplainedMask explained;
  explained.lengths = attention.lengths_q || attention.lengths_kv;
  explained.rows = attention.dims[ir::Dim::Sq];
  explained.columns = attention.dims[ir::Dim::Skv];
  for (const ir::ExprId id : attention.masks) {
    explained.residual.push_back({written.at(attention.dag[id].pos), ir::to_source(attention, id)});
  }
  return explained;
}

// The mask of one attention of the spec.
ExplainedMask explain_mask(const Spec& spec, const ir::Attention& attention,
                           const target::Context& context) {
  const WrittenConditions written(*spec.source);
  if (attention.gather) return explain_lists(attention, written);
  masks::Effort effort(context.deadline.get());
  const ir::Attention covered = context.rewrites.bounding_band
                                    ? rewrite::with_bounding_band(attention, context, effort)
                                    : attention;
  if (context.rewrites.redundant) (void)rewrite::without_redundant(covered, context, effort);
  ExplainedMask explained;
  explained.branch = attention.branch;
  explained.stopped = effort.is_spent();
  const masks::Analyzed mask = masks::analyzed(covered, context);
  explained.mask = mask->form();
  explained.lengths = attention.lengths_q || attention.lengths_kv;
  explained.rows = attention.dims[ir::Dim::Sq];
  explained.columns = attention.dims[ir::Dim::Skv];
  explained.band = masks::band_text(mask->form(), covered);
  explained.band_from_end = masks::band_from_end_text(mask->form(), covered);
  explained.band_written = written_of(explained.mask.band, written);
  for (const ir::ExprId id : explained.mask.residual) {
    explained.residual.push_back({written.at(covered.dag[id].pos), ir::to_source(covered, id)});
  }
  explained.blocks = masks::analyzed(attention, context)->blocks();
  if (!attention.masks.empty() && explained.rows > 0) {
    explained.keys = masks::row_counts(attention, context.deadline.get());
    if (explained.lengths) {  // which end rows at run time
      explained.keys->fewest = 0, explained.keys->exactness = masks::Exactness::bound;
    }
  }
  explained.stopped |= explained.blocks && explained.blocks->exactness == masks::Exactness::stopped;
  explained.stopped |= context.deadline && context.deadline->is_over();
  explained.share = masks::band_share(covered.dims, mask->band());
  return explained;
}

// The share of the FLOPs of the forward that lie in the bands.
double share_of_work(const Explanation& explanation, const ir::Attention& attention) {
  const double all = dense_flops(attention);
  double in_bands = own_flops(attention) * explanation.share;
  for (std::size_t i = 0; i < explanation.branches.size(); ++i) {
    in_bands += own_flops(attention.branches[i].attention) * explanation.branches[i].share;
  }
  return all == 0 ? 1 : in_bands / all;
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

namespace {

std::optional<ExplainedCache> cache_of(const ir::Attention& attention) {
  if (!attention.values_of_keys && !attention.gather) return std::nullopt;
  ExplainedCache cache{.depth = attention.dims[ir::Dim::Dqk],
                       .width = attention.dims[ir::Dim::Dv],
                       .values_of_keys = attention.values_of_keys,
                       .listed = attention.keys_of_row()};
  cache.bytes = static_cast<std::int64_t>(size_of(attention.dtype)) *
                (cache.depth + (cache.values_of_keys ? 0 : cache.width));
  if (const auto rows = attention.layouts.at("k").rows)
    cache.bytes = info(*rows).bytes(), cache.rows = to_string(*rows);
  if (attention.gather) cache.lists = attention.gather->keys;
  return cache;
}

}  // namespace

Explanation explain(const Spec& spec, bool gradients, target::Rewrites made,
                    std::shared_ptr<target::Deadline> deadline) {
  const target::Context context{
      .rewrites = made, .analyses = spec.analyses.get(), .deadline = std::move(deadline)};
  Explanation explanation;
  static_cast<ExplainedMask&>(explanation) = explain_mask(spec, spec.attention, context);
  explanation.file = spec.source->name();
  explanation.name = spec.attention.name;
  for (const ir::Branch& branch : spec.attention.branches) {
    explanation.branches.push_back(explain_mask(spec, branch.attention, context));
  }
  explanation.share_of_work = share_of_work(explanation, spec.attention);
  if (gradients) explanation.derivatives = explain_derivatives(spec.attention);
  explanation.cache = cache_of(spec.attention);
  return explanation;
}

std::string keys_text(const ExplainedMask& explained) {
  if (!explained.keys) return "";
  const auto& [fewest, most, exactness] = *explained.keys;
  const std::int64_t all = explained.columns;
  if (exactness != masks::Exactness::exact) {
    if (fewest == 0 && most == all) return "";
    const std::string least = fewest > 0 ? fmt::format("at least {} and ", fewest) : "";
    return fmt::format("a row sees {}at most {} of {}", least, most, all);
  }
  if (fewest == most) return fmt::format("each row sees {} of {}", most, all);
  return fmt::format("a row sees {} to {} of {}", fewest, most, all);
}

std::string residual_text(const Explanation& explanation, const ExplainedMask& explained) {
  if (explanation.cache && !explanation.cache->lists.empty())
    return "computed for every score of a listed key";
  if (is_of_lists(explanation)) return "computed for the scores of partial blocks";
  return fmt::format("{}computed for every score{}",
                     is_of_one_kernel(explanation) ? "" : "one kernel for all would have it ",
                     has_band(explained) ? " in the band" : "");
}

std::string to_text(const Explanation& explanation) {
  const auto& forward = explanation.forward;
  return fmt::format("{} ({})\n{}{}{}{}{}", explanation.name, explanation.file,
                     forward ? tensors_section(*forward, "") : "", masks_text(explanation),
                     gradients_text(explanation),
                     forward ? work_section(explanation, *forward, "") : "",
                     backward_text(explanation));
}

Json to_json(const Explanation& explanation) {
  const auto& forward = explanation.forward;
  Json json = {{"name", explanation.name}, {"file", explanation.file}};
  if (forward) json["clauses"] = clauses_json(*forward);
  json["mask"] = mask_json(explanation);
  for (const ExplainedMask& branch : explanation.branches) {
    json["branches"].push_back({{"name", branch.branch}, {"mask", mask_json(branch)}});
  }
  if (forward) json["flop"] = forward->flops;
  if (explanation.cache) json["cache"] = cache_json(*explanation.cache);
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
