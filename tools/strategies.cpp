#include "tools/strategies.h"

#include <fmt/format.h>

#include <algorithm>
#include <tuple>

#include "compiler/driver/support.h"
#include "runtime/plan/memory.h"
#include "tools/console.h"
#include "tools/table.h"
#include "tools/words.h"

namespace attn::tools {
namespace {

constexpr std::size_t kMostInline = 40;  // of a reason in the table

std::string what_of(std::string_view strategy) {
  for (const planner::Strategy& each : planner::strategies(planner::kAnyOrSlow)) {
    if (each.name == strategy) return std::string(each.what);
  }
  return "";
}

Considered named(const std::string& strategy) {
  return {strategy, planner::engine_name_of(strategy), what_of(strategy)};
}

// Adds the refusals that `all` does not have yet; of those it has, the reason.
void add(const std::vector<planner::Refusal>& refusals, std::vector<Considered>& all) {
  for (const planner::Refusal& refusal : refusals) {
    auto known = std::ranges::find_if(all, [&refusal](const Considered& each) {
      return each.strategy == refusal.lowering && !each.chosen;
    });
    if (known == all.end()) known = all.insert(known, named(refusal.lowering));
    known->refused = driver::reason_of(refusal.error);
    known->failed = refusal.error.code != ErrorCode::unsupported;
  }
}

double time_of(const Considered& each) { return each.measured_ms.value_or(each.predicted_ms); }

const char* verdict_of(const Considered& each, const Considered& chosen) {
  if (each.chosen) return "chosen";
  if (!each.refused.empty()) return each.failed ? "failed" : "refused";
  if (time_of(each) > time_of(chosen)) return "slower";
  return time_of(each) == time_of(chosen) ? "no faster" : "not taken";
}

std::string time_text(double milliseconds) {
  return milliseconds > 0 ? fmt::format("{:.3f} ms", milliseconds) : "-";
}

std::string workspace_text(const Considered& each) {
  if (!each.workspace_bytes || (!each.built && *each.workspace_bytes == 0)) return "-";
  return (each.built ? "" : ">= ") + bytes_text(*each.workspace_bytes);
}

// Reasons that are long, without repetition.
class Notes {
 public:
  std::string number_of(const std::string& reason) {
    const auto known = std::ranges::find(reasons_, reason);
    const auto number = known - reasons_.begin() + 1;
    if (known == reasons_.end()) reasons_.push_back(reason);
    return fmt::format("({})", number);
  }

  std::string text() const {
    std::string text;
    for (std::size_t i = 0; i < reasons_.size(); ++i) {
      text += wrapped(fmt::format("  ({}) ", i + 1), shown(reasons_[i]), line_width());
    }
    return text;
  }

 private:
  std::vector<std::string> reasons_;
};

}  // namespace

std::vector<Considered> considered(const driver::Compiled& compiled) {
  const plan::Plan& plan = compiled.plan;
  std::vector<Considered> all;
  for (const plan::Alternative& way : plan.choice) {
    Considered each = named(way.strategy);
    each.chosen = all.empty();
    each.predicted_ms = way.predicted_ms;
    each.measured_ms = way.measured_ms;
    each.refused = way.refused;
    all.push_back(std::move(each));
  }
  if (all.empty() && !plan.strategy.empty()) {
    all.push_back(named(plan.strategy));
    all.back().chosen = true;
  }
  add(compiled.refused, all);
  add(compiled.inexpressible, all);
  for (Considered& each : all) {
    if (each.chosen) {
      each.workspace_bytes = plan::memory_of(plan).total();
      each.built = true;
    }
    for (const driver::RunnerUp& other : compiled.lowered) {
      if (other.strategy != each.strategy || each.chosen) continue;
      each.workspace_bytes = other.workspace_bytes;
      each.built = !other.has_cudnn;
    }
  }
  std::ranges::stable_sort(all, {}, [](const Considered& each) {
    return std::tuple(!each.chosen, !each.refused.empty(),
                      each.refused.empty() ? time_of(each) : 0);
  });
  return all;
}

std::string strategies_text(const std::vector<Considered>& all, support::Paint paint) {
  if (all.empty()) return "";
  const bool measured =
      std::ranges::any_of(all, [](const Considered& each) { return each.measured_ms.has_value(); });
  std::vector<Table::Column> columns = {{"engine"}, {"strategy"}, {"predicted", Align::right}};
  if (measured) columns.push_back({"measured", Align::right});
  columns.insert(columns.end(), {{"workspace", Align::right}, {"verdict"}});
  Table table(std::move(columns));
  Notes notes;
  for (const Considered& each : all) {
    std::string verdict = verdict_of(each, all.front());
    if (!each.refused.empty()) {
      const bool fits = each.refused.size() <= kMostInline;
      verdict += fits ? ": " + each.refused : " " + notes.number_of(each.refused);
    }
    const bool is_try = !each.chosen && each.strategy == all.front().strategy;
    std::vector<Table::Cell> cells = {each.engine, each.strategy + (is_try ? ", first try" : ""),
                                      time_text(each.predicted_ms)};
    if (measured) cells.emplace_back(time_text(each.measured_ms.value_or(0)));
    cells.insert(cells.end(), {workspace_text(each), verdict});
    table.add(std::move(cells));
  }
  return table.to_text("  ", paint) + notes.text();
}

Json to_json(const std::vector<Considered>& all) {
  Json list = Json::array();
  for (const Considered& each : all) {
    Json json = {{"strategy", each.strategy},
                 {"engine", each.engine},
                 {"verdict", verdict_of(each, all.front())}};
    if (each.predicted_ms > 0) json["predicted_ms"] = each.predicted_ms;
    if (each.measured_ms) json["measured_ms"] = *each.measured_ms;
    if (each.workspace_bytes && each.built) json["workspace_bytes"] = *each.workspace_bytes;
    if (!each.refused.empty()) json["reason"] = each.refused;
    list.push_back(std::move(json));
  }
  return list;
}

}  // namespace attn::tools
