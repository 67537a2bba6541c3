#include "tools/page/view.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "compiler/target/gpu.h"
#include "tools/inputs.h"
#include "tools/page/mask_view.h"
#include "tools/page/program_view.h"
#include "tools/page/roofline.h"
#include "tools/page/spec_view.h"
#include "tools/words.h"

namespace attn::tools::page {
namespace {

const std::vector<ExplainedClause>& clauses_of(const Explanation& explanation) {
  return explanation.forward ? explanation.forward->clauses : explanation.backward->clauses;
}

std::string sizes_text(const ir::Attention& attention) {
  std::vector<std::string> sizes;
  for (const ir::Dim dim : ir::kDims) {
    if (const auto size = attention.dims.get(dim)) {
      sizes.push_back(fmt::format("{} = {}", to_string(dim), pictures::grouped(*size)));
    }
  }
  return fmt::format("{}", fmt::join(sizes, ", "));
}

std::string target_text(const Explanation& explanation) {
  if (!explanation.target) return "";
  std::string text =
      fmt::format("{} (sm_{})", shown(explanation.target->name), explanation.target->sm);
  for (const auto* program : {&explanation.forward, &explanation.backward}) {
    if (!*program || !(*program)->compiled) continue;
    const std::int64_t version = (*program)->compiled->plan.cudnn_version;
    if (version != 0) return text + ", cuDNN " + cudnn_text(version);
  }
  return text;
}

void add_findings(const Explanation& explanation, const ExplainedMask& mask, Json& list) {
  const std::string of = explanation.branches.empty() ? "" : " of " + mask.branch;
  const auto add = [&](const char* what, std::string text, const std::string& note) {
    list.push_back({{"what", what + of}, {"text", std::move(text)}, {"note", note}});
  };
  const masks::Band& band = mask.mask.band;
  const masks::Band& end = mask.mask.from_end;
  if (band.left || band.right) add("band", mask.band, "");
  if (end.left || end.right)
    add("band", mask.band_from_end, "from the last diagonal of each batch");
  const std::string keys = keys_text(mask);
  if (!keys.empty()) add("keys", keys, "");
  for (const auto& [written, condition] : mask.residual) {
    const bool known = !written.text.empty() && written.text != condition;
    add("condition", condition,
        (known ? fmt::format("line {}: {}; ", written.line, written.text) : "") +
            residual_text(explanation, mask));
  }
  if (mask.stopped) add("stopped", "analysing the whole mask takes too much work", "");
}

// One line each of what the analysis found.
Json findings_view(const Explanation& explanation) {
  Json list = Json::array();
  for (const ExplainedMask& branch : explanation.branches) add_findings(explanation, branch, list);
  add_findings(explanation, explanation, list);
  return list;
}

Json inputs_view(const Drawn& drawn) {
  Json list = Json::array();
  for (const auto& [name, origin] : drawn.origins) {
    list.push_back({{"name", name}, {"origin", origin}});
  }
  return list;
}

void add_mask(const Report& report, Json& view) {
  view["picture"] = nullptr;
  view["no_picture"] = nullptr;
  view["conditions"] = Json::array();
  view["inputs"] = Json::array();
  view["data"] = nullptr;
  if (!report.drawn.ok()) {
    view["no_picture"] = shown(report.drawn.error().message);
    return;
  }
  const Drawn& drawn = *report.drawn;
  view.update(mask_view(drawn.attention, drawn.values, drawn.picture,
                        clauses_of(report.explanation), WrittenConditions(*report.spec.source)));
  view["inputs"] = inputs_view(drawn);
}

std::optional<Workload> workload_of(const ExplainedProgram& program, const char* name,
                                    const masks_of_values::Share& share, bool is_assumed) {
  if (program.bytes == 0 || program.flops == 0) return std::nullopt;
  Workload work{name, program.flops * share.part(), !share.exact, is_assumed, program.bytes};
  if (program.compiled && !program.compiled->plan.choice.empty()) {
    const plan::Alternative& taken = program.compiled->plan.choice.front();
    work.predicted_ms = taken.predicted_ms;
    work.measured_ms = taken.measured_ms;
  }
  return work;
}

std::vector<Workload> workloads_of(const Report& report) {
  const Explanation& explanation = report.explanation;
  masks_of_values::Share share{explanation.share, 1, false};
  if (report.drawn.ok()) share = share_of(report.drawn->picture);
  const bool is_assumed = report.drawn.ok() && !report.drawn->origins.empty();
  std::vector<Workload> all;
  const auto add = [&](const std::optional<ExplainedProgram>& program, const char* name) {
    if (!program) return;
    if (auto work = workload_of(*program, name, share, is_assumed)) all.push_back(std::move(*work));
  };
  add(explanation.forward, "forward");
  add(explanation.backward, "backward");
  return all;
}

void add_roofline(const Report& report, const std::vector<Workload>& all, Json& view) {
  view["roofline"] = nullptr;
  if (!report.explanation.target) return;
  const plan::Target& target = *report.explanation.target;
  const DType dtype = report.spec.attention.dtype;
  view["roofline"] =
      roofline_view(all, for_products(target::gpu_of(target), dtype), shown(target.name), dtype);
}

void add_programs(const Explanation& explanation, Json& view) {
  view["programs"] = Json::array();
  const bool several = explanation.forward && explanation.backward;
  const auto add = [&](const std::optional<ExplainedProgram>& program, const char* name) {
    if (!program) return;
    Json json = program_view(*program, name, explanation.why_not_compiled);
    json["heading"] = several ? Json(name) : Json(nullptr);
    view["programs"].push_back(std::move(json));
  };
  add(explanation.forward, "forward");
  add(explanation.backward, "backward");
}

void add_derivatives(const Explanation& explanation, Json& view) {
  view["derivatives"] = nullptr;
  if (!explanation.derivatives) return;
  Json entries = Json::array();
  for (const ExplainedDerivatives::Entry& entry : explanation.derivatives->entries) {
    entries.push_back({{"of", entry.where()}, {"by", entry.by}, {"value", entry.value}});
  }
  view["derivatives"] = {
      {"wanted", fmt::format("{}{}", fmt::join(explanation.derivatives->wanted, ", "),
                             explanation.derivatives->through_lse ? ", through o and lse" : "")},
      {"entries", entries}};
}

// The numbers at the top.
Json facts_view(const Report& report, const std::vector<Workload>& all, const Json& programs) {
  Json facts = Json::array();
  const auto add = [&](std::string label, const Json& value, const std::string& note) {
    if (value.is_string()) {
      facts.push_back({{"label", std::move(label)}, {"value", value}, {"note", note}});
    }
  };
  const bool is_assumed = !all.empty() && all.front().is_assumed;
  for (const Json& program : programs) {
    const std::string of = program["heading"].is_null() ? "" : program.value("direction", "") + " ";
    const Json& engine = program["strategy_engine"];
    add(of + "strategy", program["strategy"],
        engine.is_string() && engine != program["strategy"] ? engine.get<std::string>() : "");
    if (program["predicted"].is_string()) {
      add(of + "time", program["predicted"].get<std::string>() + " ms",
          is_assumed ? "predicted, for assumed values" : "predicted");
    }
  }
  if (report.drawn.ok()) {
    const masks_of_values::Share share = share_of(report.drawn->picture);
    add("visible scores", percent_text(share.part()), share.exact ? "" : "about");
  }
  if (!all.empty() && all.front().predicted_ms > 0 && !is_assumed && report.explanation.target) {
    const target::Gpu gpu =
        for_products(target::gpu_of(*report.explanation.target), report.spec.attention.dtype);
    const Workload& work = all.front();
    add(fmt::format("of the {} limit", is_memory_bound(work, gpu) ? "memory" : "compute"),
        percent_text(share_of_limit(work, work.predicted_ms, gpu)), "predicted, " + work.name);
  }
  if (!programs.empty()) add("tensors", programs[0]["bytes"], "");
  return facts;
}

}  // namespace

Json view_of(const Report& report) {
  const Spec& spec = report.spec;
  const Explanation& explanation = report.explanation;
  Json view = {{"name", shown(explanation.name)},
               {"file", shown(explanation.file)},
               {"sizes", sizes_text(spec.attention)},
               {"target", target_text(explanation)},
               {"is_plan", report.is_plan},
               {"version", ATTN_VERSION},
               {"colours", colours_text()}};
  const std::vector<const diag::Sink*> warnings = {spec.warnings.get(), &report.further};
  view["lines"] = lines_view(*spec.source, warnings, clauses_of(explanation));
  view["marks"] = other_marks_view(warnings);
  add_mask(report, view);
  view["findings"] = findings_view(explanation);
  const std::vector<Workload> all = workloads_of(report);
  add_roofline(report, all, view);
  add_programs(explanation, view);
  add_derivatives(explanation, view);
  view["facts"] = facts_view(report, all, view["programs"]);
  return view;
}

}  // namespace attn::tools::page
