#include "compiler/planner/refusals.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <regex>

#include "compiler/engines/engines.h"
#include "compiler/engines/shared/own_kernels.h"
#include "compiler/rewrite/reals.h"
#include "compiler/target/capabilities.h"
#include "runtime/base/check.h"

namespace attn::planner {
namespace {

using Json = nlohmann::ordered_json;

Json payload_of(const Error& error) {
  Json payload = Json::parse(error.payload, nullptr, false);
  return payload.is_object() ? payload : Json::object();
}

std::string dumped(const Json& payload) {
  return payload.dump(-1, ' ', false, Json::error_handler_t::replace);
}

Json to_json(const Refusal& refusal) {
  return {{"strategy", refusal.lowering},
          {"message", refusal.error.message},
          {"notes", refusal.error.notes},
          {"detail", payload_of(refusal.error)}};
}

bool is_of_own(const Refusal& refusal) { return engines::has_own_kernels(refusal.lowering); }

bool advises_own_kernels(std::string_view note) {
  note.remove_prefix(std::min(note.find_first_not_of(' '), note.size()));
  return engines::is_own_kernels_note(note);
}

// Whether attnc's own kernels are for such attentions at all: not for every GPU, nor for 8 bits
// on all of them, nor for gradients of these.
bool are_for(const ir::Attention& attention, const target::Context& context) {
  const bool all = can(target::Capability::warp_group_products, context);
  return engines::are_own_kernels_for(context) &&
         !(attention.quantize && (context.backward() || !all));
}

// What an error is of, in order. Attnc's own kernels compute most, so what they lack is of most
// interest, and is told even where they are an alternative alone.
std::vector<Refusal> with_own_first(std::vector<Refusal> refused, const std::vector<Refusal>& all) {
  const auto own = std::ranges::find_if(all, is_of_own);
  if (own == all.end() || own->error.code != ErrorCode::unsupported) return refused;
  std::erase_if(refused, is_of_own);
  refused.insert(refused.begin(), *own);
  return refused;
}

bool has_own_place(const Json& payload, const ir::Attention& attention) {
  const std::uint32_t line = payload.value("line", 0U), column = payload.value("column", 0U);
  return line != 0 && (line != attention.pos.line || column != attention.pos.column);
}

// Text of to_source, but with whole numbers without `.0`, as most are written.
std::string text_of(const ir::Attention& attention, ir::ExprId id) {
  constexpr std::size_t kMost = 80;
  static const std::regex whole(R"(\b(\d+)\.0\b)");
  std::string text = std::regex_replace(rewrite::as_written(attention, id), whole, "$1");
  if (text.size() > kMost) text = text.substr(0, kMost - 2) + "..";
  return text;
}

// The error with the score that it is about before its message, and its place, if there is a score
// and it does not say or quote something else.
Error quoting(const ir::Attention& attention, Error error) {
  Json payload = payload_of(error);
  const ir::Node& score = attention.dag[attention.score];
  if (score.is(ir::Op::score_) || has_own_place(payload, attention)) return error;
  if (payload.value("stage", "") == "known bad") return error;  // whatever the score is
  if (error.message.find('`') != std::string::npos) return error;
  error.message = fmt::format("`{}`: {}", text_of(attention, attention.score), error.message);
  if (score.pos.line == 0) return error;
  payload["line"] = score.pos.line;
  payload["column"] = score.pos.column;
  error.payload = dumped(payload);
  return error;
}

// Adds why attnc's own kernels do not serve either, where the error does not tell.
Error with_native_reason(Error error, const Refused& refused, const ir::Attention& attention,
                         bool are_for) {
  const auto own = std::ranges::find_if(refused.all, is_of_own);
  const bool serves_others = own != refused.all.end() && !are_for;
  if (serves_others && own->error.message == error.message) return error;  // nothing of the score
  const bool is_said = !serves_others || std::ranges::any_of(refused.told, is_of_own);
  if (!is_said) {
    error.notes.push_back(fmt::format("strategy `{}`: {}", own->lowering, own->error.message));
  }
  return error.code == ErrorCode::unsupported ? quoting(attention, std::move(error)) : error;
}

}  // namespace

Error error_of(const std::vector<Refusal>& refusals) {
  ATTN_CHECK(!refusals.empty(), "nothing was refused");
  Error error = refusals.front().error;
  if (refusals.size() == 1) return error;
  Json payload = payload_of(error);
  for (const Refusal& refusal : refusals) {
    payload["strategies"].push_back(to_json(refusal));
    if (refusal.error.code != ErrorCode::unsupported) error.code = refusal.error.code;
    if (refusal.error.to_text() == refusals.front().error.to_text()) continue;
    error.notes.push_back(
        fmt::format("strategy `{}`: {}", refusal.lowering, refusal.error.message));
    for (const std::string& note : refusal.error.notes) error.notes.push_back("  " + note);
  }
  if (std::ranges::any_of(refusals, is_of_own)) std::erase_if(error.notes, advises_own_kernels);
  error.payload = dumped(payload);
  return error;
}

bool may_try_another(const Error& error) {
  return error.code == ErrorCode::unsupported || error.code == ErrorCode::worker ||
         error.code == ErrorCode::cudnn || error.code == ErrorCode::cuda;
}

std::vector<Refusal> in_order(std::vector<Refusal> refusals) {
  const std::span<const engines::Strategy> all = engines::strategies(engines::kAnyOrSlow);
  std::ranges::stable_sort(refusals, {}, [&all](const Refusal& refusal) {
    return std::ranges::find(all, refusal.lowering, &engines::Strategy::name) - all.begin();
  });
  return refusals;
}

Error error_of(const Refused& refused, std::vector<Refusal> failed, const ir::Attention& attention,
               const target::Context& context) {
  const bool own = are_for(attention, context);
  failed.insert(failed.begin(), refused.told.begin(), refused.told.end());
  failed = in_order(std::move(failed));
  if (own) failed = with_own_first(std::move(failed), refused.all);
  failed.insert(failed.end(), refused.left_out.begin(), refused.left_out.end());
  return with_native_reason(error_of(failed), refused, attention, own);
}

}  // namespace attn::planner
