#include "compiler/planner/candidates.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <regex>
#include <tuple>

#include "compiler/engines/shared/internal_o.h"
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

// Equal ones stay in the order of the engines.
auto order_of(const Candidate* candidate) {
  const double ms = candidate->lowered ? candidate->lowered->predicted_ms : candidate->bound;
  return std::tuple(candidate->strategy->kind == Strategy::Kind::slow, ms, candidate->strategy);
}

bool lacks_o(const ir::Attention& attention, const target::Context& context) {
  return !context.backward() && !attention.wants_o;
}

target::Context completed(target::Context context, masks::MaskAnalyses& analyses) {
  if (context.analyses == nullptr) context.analyses = &analyses;
  context.deadline = std::make_shared<target::Deadline>(
      context.timeout, target::Deadline::Clock::now, context.deadline);
  return context;
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
  error.payload = dumped(payload);
  return error;
}

bool may_try_another(const Error& error) {
  return error.code == ErrorCode::unsupported || error.code == ErrorCode::worker ||
         error.code == ErrorCode::cudnn || error.code == ErrorCode::cuda;
}

std::vector<Refusal> in_order(std::vector<Refusal> refusals) {
  const std::span<const Strategy> all = strategies(kAnyOrSlow);
  std::ranges::stable_sort(refusals, {}, [&all](const Refusal& refusal) {
    return std::ranges::find(all, refusal.lowering, &Strategy::name) - all.begin();
  });
  return refusals;
}

namespace {

bool draws_elsewhere(const ir::Attention& attention) {
  return attention.dropout && attention.dropout->origin;
}

// Whether the strategy draws the numbers of a part as the whole attention does.
bool draws_in(const ir::Attention& attention, const Strategy& strategy) {
  return !draws_elsewhere(attention) || strategy.own_kernels;
}

Error refused_draws() {
  return {ErrorCode::unsupported,
          "random dropout of a part draws the numbers of the whole attention, and only attnc's own "
          "kernels can",
          {"those are `--engine native`; `dropout p, keep[..]` takes the elements to keep from a "
           "tensor"},
          {}};
}

// Whether the refusal of an alternative is told: cuDNN refuses much of 8 bits, and all random
// dropout of parts, that attnc's own kernels compute, so why these do not is of interest.
bool is_told(const Strategy& strategy, const ir::Attention& attention) {
  return (attention.quantize || draws_elsewhere(attention)) && strategy.own_kernels;
}

bool is_of_own(const Refusal& refusal) { return has_own_kernels(refusal.lowering); }

// Whether attnc's own kernels are for such attentions at all: not for every GPU, nor for gradients
// of 8 bits.
bool are_for(const ir::Attention& attention, const target::Context& context) {
  return can(target::Capability::warp_group_products, context) &&
         !(context.backward() && attention.quantize);
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

bool takes_any(std::string_view name) { return name == kAnyLowering || name == kAnyOrSlow; }

}  // namespace

Candidates::Candidates(const ir::Attention& attention, std::string_view name,
                       const target::Context& context)
    : only_one_(strategies(name).size() == 1),
      may_allow_slow_(name == kAnyLowering),
      makes_o_internal_(lacks_o(attention, context)),
      attention_(makes_o_internal_ ? engines::with_o(attention) : attention),
      context_(completed(context, analyses_)),
      subject_(std::make_unique<Subject>(attention_, context_)) {
  for (const Strategy& strategy : strategies(name)) {
    deadline().restart();
    const Result<double> bound = in_time("planning", [&] {
      return draws_in(attention_, strategy) ? strategy.bound(*subject_) : refused_draws();
    });
    if (bound.ok()) {
      all_.push_back({&strategy, *bound});
    } else if (!refuse(strategy, bound.error())) {
      break;
    }
  }
  for (const Candidate& candidate : all_) left_.push_back(&candidate);
}

Candidates::Candidates(const ir::Attention& attention, const OfPair& pair,
                       const target::Context& context)
    : Candidates(attention, pair.lowering, context) {
  left_out_ = pair.left_out;
  for (std::vector<Refusal>* all : {&refused_, &all_refused_}) {
    all->insert(all->end(), pair.refused.begin(), pair.refused.end());
  }
}

Candidates::~Candidates() = default;

bool Candidates::refuse(const Strategy& strategy, const Error& error) {
  const bool is_late = error.code == ErrorCode::worker;
  const bool holds_for_all = error.code != ErrorCode::unsupported && !is_late;
  all_refused_.push_back({std::string(strategy.name), error});
  if (holds_for_all || is_late || strategy.kind != Strategy::Kind::alternative || only_one_ ||
      is_told(strategy, attention_)) {
    refused_.push_back({std::string(strategy.name), error});
  }
  // What was planned in no time may be less than what others would have.
  if (is_late) subject_ = std::make_unique<Subject>(attention_, context_);
  if (holds_for_all) failure_ = error_of(in_order(refused_));
  return !holds_for_all;
}

template <typename Plan>
auto Candidates::in_time(std::string_view phase, const Plan& plan) const -> decltype(plan()) {
  const target::Deadline::Phase counted(&deadline(), phase);
  auto planned = plan();
  ATTN_RETURN_IF_ERROR(deadline().check());
  return planned;
}

Result<Lowered> Candidates::finished(Result<Lowered> lowered) const {
  if (lowered.ok() && makes_o_internal_) engines::make_o_internal(lowered->program);
  return lowered;
}

Result<Lowered> Candidates::lower_again(const Candidate& candidate, std::size_t refused) {
  const auto lower = candidate.strategy->lower_again;
  if (lower == nullptr) return {ErrorCode::unsupported, "there is no other program"};
  return in_time("lowering", [&] { return finished(lower(*subject_, refused)); });
}

bool Candidates::has_slow() const {
  return std::ranges::any_of(strategies(kAnyOrSlow), [this](const Strategy& strategy) {
    return strategy.kind == Strategy::Kind::slow && draws_in(attention_, strategy) &&
           strategy.bound(*subject_).ok() && strategy.lower(*subject_).ok();
  });
}

Error Candidates::all_failed(std::vector<Refusal> failed) const {
  failed.insert(failed.begin(), refused_.begin(), refused_.end());
  failed = in_order(std::move(failed));
  if (are_for(attention_, context_)) failed = with_own_first(std::move(failed), all_refused_);
  failed.insert(failed.end(), left_out_.begin(), left_out_.end());
  return with_slow_hint(with_native_reason(error_of(failed)));
}

// Why attnc's own kernels do not serve either, where the error does not tell.
Error Candidates::with_native_reason(Error error) const {
  const auto own = std::ranges::find_if(all_refused_, is_of_own);
  const bool serves_others = own != all_refused_.end() && !are_for(attention_, context_);
  if (serves_others && own->error.message == error.message) return error;  // nothing of the score
  const bool is_said = !serves_others || std::ranges::any_of(refused_, is_of_own);
  if (!is_said) {
    error.notes.push_back(fmt::format("strategy `{}`: {}", own->lowering, own->error.message));
  }
  return error.code == ErrorCode::unsupported ? quoting(attention_, std::move(error)) : error;
}

Error Candidates::with_slow_hint(Error error) const {
  const bool may_serve = error.code == ErrorCode::worker || error.code == ErrorCode::unsupported;
  const bool is_said = std::ranges::any_of(error.notes, [](const std::string& note) {
    return note.find("--allow-unfused") != note.npos;
  });
  if (may_serve && !is_said && may_allow_slow_ && has_slow()) {
    // What a refusal itself proposes is faster, so it comes first.
    const bool proposes = error.code == ErrorCode::unsupported;
    error.notes.insert(proposes ? error.notes.end() : error.notes.begin(),
                       "`--allow-unfused` computes it without a fused kernel, slowly");
  }
  return error;
}

Result<const Candidate*> Candidates::next() {
  while (!failure_ && !left_.empty()) {
    const auto best = std::ranges::min_element(left_, {}, order_of);
    Candidate& candidate = *std::ranges::find(all_, (*best)->strategy, &Candidate::strategy);
    if (candidate.lowered) {
      left_.erase(best);
      returned_ = true;
      return &candidate;
    }
    deadline().restart();
    Result<Lowered> lowered =
        in_time("lowering", [&] { return finished(candidate.strategy->lower(*subject_)); });
    if (lowered.ok()) {
      candidate.lowered = std::move(*lowered);
      continue;
    }
    left_.erase(best);
    const Strategy& strategy = *candidate.strategy;
    std::erase_if(all_, [&](const Candidate& each) { return each.strategy == &strategy; });
    refuse(strategy, lowered.error());
  }
  if (failure_) return *failure_;
  if (!returned_) return all_failed({});
  return nullptr;
}

namespace {

using plan::Direction;

// Predicted time of an engine's best strategy. Errors: unsupported, of its first strategy alone.
Result<double> predicted_ms(const ir::Attention& attention, std::string_view engine,
                            const target::Context& context, Direction direction) {
  Candidates candidates(attention, engine, target::in_direction(context, direction));
  const Result<const Candidate*> best = candidates.next();
  if (best.ok()) return (*best)->lowered->predicted_ms;
  if (best.error().code != ErrorCode::unsupported || candidates.refused().empty()) {
    return best.error();
  }
  return in_order(candidates.refused()).front().error;
}

// Compares the engines that can compute a training pair.
class PairSearch {
 public:
  PairSearch(const ir::Attention& attention, const target::Context& context)
      : attention_(attention), context_(context) {}

  Status add(const engines::Engine& engine) {
    double both = 0;
    for (const Direction direction : {Direction::backward, Direction::forward}) {
      const Result<double> ms = predicted_ms(attention_, engine.name, context_, direction);
      if (!ms.ok() && ms.error().code != ErrorCode::unsupported) return ms.error();
      if (!ms.ok()) return refuse(engine, direction, ms.error());
      both += *ms;
      if (direction == Direction::backward) of_backward_ = &engine;
    }
    served_.push_back({&engine, both});
    return {};
  }

  OfPair result(std::string_view name) && {
    const auto best = std::ranges::min_element(served_, {}, &Served::ms);
    if (best == served_.end() && of_backward_ == nullptr) return {std::string(name)};
    const engines::Engine* const taken = best == served_.end() ? of_backward_ : best->engine;
    for (const Served& each : served_) {
      if (each.engine != taken) pair_.left_out.push_back(slower(each, *best));
    }
    for (std::vector<Refusal>* all : {&pair_.refused, &pair_.left_out}) {
      std::erase_if(*all, [&](const Refusal& each) { return engine_of(each.lowering) == taken; });
    }
    pair_.lowering = taken->name;
    return std::move(pair_);
  }

 private:
  struct Served {
    const engines::Engine* engine = nullptr;
    double ms = 0;  // of both directions
  };

  Status refuse(const engines::Engine& engine, Direction direction, Error error) {
    const bool is_this = (direction == Direction::backward) == context_.backward();
    if (!is_this) {
      error.message =
          fmt::format("its {} is refused: {}", plan::to_string(direction), error.message);
    }
    auto& all = is_this ? pair_.refused : pair_.left_out;
    all.push_back({std::string(engine.strategies.front().name), std::move(error)});
    return {};
  }

  static Refusal slower(const Served& each, const Served& best) {
    return {std::string(each.engine->strategies.front().name),
            {ErrorCode::unsupported,
             fmt::format("both directions must draw the same random numbers, and are predicted to "
                         "take {:.3f} ms by `{}`, {:.3f} ms by `{}`",
                         each.ms, each.engine->name, best.ms, best.engine->name),
             {fmt::format("`--engine {}` takes it", each.engine->name)},
             {}}};
  }

  const ir::Attention& attention_;
  const target::Context& context_;
  const engines::Engine* of_backward_ = nullptr;  // the last that has one
  std::vector<Served> served_;
  OfPair pair_;
};

}  // namespace

Result<OfPair> lowering_of_pair(const ir::Attention& attention, std::string_view name,
                                const target::Context& context) {
  if (!attention.is_random() || !takes_any(name)) return OfPair{std::string(name)};
  PairSearch search(attention, context);
  for (const engines::Engine& engine : engines::engines()) {
    if (engine.strategies.front().kind == Strategy::Kind::slow) continue;  // it draws no numbers
    ATTN_RETURN_IF_ERROR(search.add(engine));
  }
  return std::move(search).result(name);
}

}  // namespace attn::planner
