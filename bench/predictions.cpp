// What is predicted for the rows of a table of measurements, with any figures: for fit.py.
//
//   predictions TABLE.jsonl
//
// Reads the table (measure.py), and prints a line of JSON: {"figures": {NAME: value}, "rows":
// [{"name", "engine", "direction", "strategy", "kind", "features", "dims", or "error"}]}. Then, for
// each line of standard input, which is values of all figures in their order, it prints the
// predicted milliseconds of the rows without errors, as a JSON array.
#include <fmt/format.h>

#include <cstdio>
#include <fstream>
#include <iostream>
#include <list>
#include <nlohmann/json.hpp>
#include <sstream>

#include "compiler/driver/driver.h"
#include "compiler/engines/native/cost.h"
#include "compiler/engines/native/native.h"
#include "compiler/engines/shared/cost.h"
#include "compiler/masks/mask_analysis.h"
#include "compiler/planner/measured.h"
#include "compiler/planner/search.h"
#include "compiler/target/figures.h"

namespace attn {
namespace {

using Json = nlohmann::ordered_json;

// A row that is planned once, by the strategy that was measured, and predicted with other figures
// each time.
class Row {
 public:
  explicit Row(const Json& json) : json_(json) {}

  // Errors: those of the front end, and of planning.
  Status plan() {
    const support::Source source("row.attn", json_["spec"].get<std::string>());
    diag::Sink sink(source);
    context_.analyses = &analyses_;
    context_.rewrites.short_forms = false;  // the table has none
    auto attention = driver::front_end(source, {}, sink, &analyses_);
    if (!attention) return {ErrorCode::invalid_spec, diag::to_text(sink)};
    attention_ = std::move(*attention);
    const bool backward = json_["direction"] == "bwd";
    context_ = target::in_direction(
        context_, backward ? plan::Direction::backward : plan::Direction::forward);
    search_.emplace(attention_, json_["strategy"].get<std::string>(), context_);
    ATTN_ASSIGN(const planner::Candidate* best, search_->next());
    strategy_ = best->strategy;
    subject_.emplace(attention_, context_);
    planned_ms_ = best->lowered->predicted_ms;
    if (strategy_->name == "native") {
      ATTN_ASSIGN(const engines::NativeProgram program,
                  engines::native_programs(*subject_).make(0));
      work_ = program.work;
    } else if (strategy_->name == "composite" || strategy_->name == "unified") {
      rest_ms_ = planned_ms_ - subject_->predicted_ms_of_form();
    }
    return {};
  }

  double predicted_ms(const target::Figures& figures) {
    context_.gpu.figures = &figures;
    if (work_) return engines::predicted_ms_of_native(*subject_, *work_);
    if (rest_ms_) return *rest_ms_ + engines::predicted_ms(subject_->form(), context_);
    return planned_ms_;  // of several kernels
  }

  Json described(const Status& planned) const {
    Json json;
    for (const char* key : {"name", "engine", "direction"}) json[key] = json_[key];
    if (!planned.ok()) {
      json["error"] = planned.error().message;
      return json;
    }
    json["strategy"] = strategy_->name;
    json["kind"] = planner::kind_of(attention_, context_);
    json["features"] = planner::features_of(attention_);
    for (const ir::Dim dim : ir::kDims) json["dims"][ir::to_string(dim)] = attention_.dims[dim];
    return json;
  }

 private:
  const Json json_;
  masks::MaskAnalyses analyses_;
  target::Context context_;
  ir::Attention attention_;
  std::optional<planner::Search> search_;
  std::optional<engines::Subject> subject_;
  const planner::Strategy* strategy_ = nullptr;
  std::optional<engines::NativeWork> work_;
  std::optional<double> rest_ms_;
  double planned_ms_ = 0;
};

Json figures_json() {
  Json json = Json::object();
#define ATTN_FIGURE(name, what) json[#name] = target::measured_figures().name;
#include "compiler/target/figures.def"
  return json;
}

target::Figures figures_of(const std::string& line) {
  target::Figures figures;
  std::istringstream words(line);
#define ATTN_FIGURE(name, what) words >> figures.name;
#include "compiler/target/figures.def"
  return figures;
}

int run(const char* path) {
  std::ifstream file(path);
  std::list<Row> rows;
  Json first = {{"figures", figures_json()}, {"rows", Json::array()}};
  for (std::string line; std::getline(file, line);) {
    const Json json = Json::parse(line);
    if (!json.contains("measured_ms")) continue;
    Row& row = rows.emplace_back(json);
    const Status planned = row.plan();
    first["rows"].push_back(row.described(planned));
    if (!planned.ok()) rows.pop_back();
  }
  std::cout << first.dump() << std::endl;
  for (std::string line; std::getline(std::cin, line);) {
    const target::Figures figures = figures_of(line);
    Json predicted = Json::array();
    for (Row& row : rows) predicted.push_back(row.predicted_ms(figures));
    std::cout << predicted.dump() << std::endl;
  }
  return 0;
}

}  // namespace
}  // namespace attn

int main(int count, char** words) {
  if (count != 2) {
    fmt::print(stderr, "usage: predictions TABLE.jsonl\n");
    return 2;
  }
  return attn::run(words[1]);
}
