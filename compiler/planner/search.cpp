#include "compiler/planner/search.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <tuple>
#include <utility>

#include "compiler/engines/shared/interface.h"
#include "compiler/engines/shared/key_sums.h"
#include "compiler/engines/shared/prologues.h"
#include "compiler/engines/shared/unsupported.h"
#include "compiler/ir/branches.h"
#include "compiler/ir/key_sums.h"
#include "compiler/ir/prologues.h"
#include "compiler/planner/branches.h"

namespace attn::planner {
namespace {

// Nodes of one graph. cuDNN 9.19 compiled about 360 for 10 s with 0.5 GB, 500 for 43 s with 1 GB,
// and 750 for more than 100 s with 2 GB.
constexpr std::size_t kManyNodes = 400;

bool draws_elsewhere(const ir::Attention& attention) {
  return attention.dropout && attention.dropout->origin;
}

// A tensor whose strides are bound; empty if there is none.
std::string_view with_bound_strides(const ir::Attention& attention) {
  const auto found = std::ranges::find_if(
      attention.layouts, [](const auto& each) { return each.second.bound_strides; });
  return found == attention.layouts.end() ? std::string_view() : found->first;
}

// What the clauses `values` and `gather` need: attnc's own kernels, forward.
std::optional<Error> refusal_of_latent(const ir::Attention& attention, const Strategy& strategy,
                                       const target::Context& context) {
  if (!attention.values_of_keys && !attention.gather) return std::nullopt;
  const ir::SourcePos pos = attention.gather ? attention.gather->pos : attention.values_pos;
  if (context.backward()) {
    return engines::unsupported(
        pos,
        attention.gather ? "an attention over gathered keys has no gradients"
                         : "an attention whose values are a part of k has no gradients",
        attention.gather ? "where rows see few keys, a `mask` says which, and has gradients"
                         : "train with k and v of their own: leave out `values`");
  }
  if (strategy.own_kernels) return std::nullopt;
  return engines::unsupported(
      pos,
      attention.gather ? "only attnc's own kernels gather keys"
                       : "only attnc's own kernels read values as a part of k",
      attention.gather ? "`--engine native` does; a `mask` says what rows see to all engines"
                       : "`--engine native` does; the others take v as an input, without `values`");
}

// What no strategy computes, or only those with attnc's own kernels, and with bound strides only
// forward.
std::optional<Error> refusal_of(const ir::Attention& attention, const Strategy& strategy,
                                const target::Context& context) {
  if (auto refusal = refusal_of_latent(attention, strategy, context)) return refusal;
  const Status rows = engines::check_prologues(attention, context.backward());
  if (!rows.ok()) return rows.error();
  if (const Status sums = engines::check_key_sums(attention); !sums.ok()) return sums.error();
  const std::string_view bound = with_bound_strides(attention);
  if (!bound.empty() && context.backward()) {
    return engines::unsupported(
        attention.pos,
        fmt::format("the strides of `{}` are bound, and no backward takes these", bound),
        "leave out `strides = bound` for training");
  }
  if (strategy.own_kernels) return std::nullopt;
  if (!bound.empty()) {
    return engines::unsupported(
        attention.pos,
        fmt::format("the strides of `{}` are bound, and only attnc's own kernels take these",
                    bound),
        "`--engine native` does; the others work without `strides = bound`");
  }
  if (!draws_elsewhere(attention)) return std::nullopt;
  return Error{ErrorCode::unsupported,
               "random dropout of a part draws the numbers of the whole attention, and only "
               "attnc's own kernels can",
               {"`--engine native` does; `dropout p, keep[..]` takes the elements to keep "
                "from a tensor"}};
}

// Whether the refusal of an alternative is told: cuDNN refuses much of 8 bits, all random dropout
// of parts, and bound strides, that attnc's own kernels compute, so why these do not is of
// interest.
bool is_told(const Strategy& strategy, const ir::Attention& attention) {
  const bool is_for_few = attention.values_of_keys || attention.gather || attention.quantize ||
                          draws_elsewhere(attention) || !with_bound_strides(attention).empty();
  return is_for_few && strategy.own_kernels;
}

bool lacks_o(const ir::Attention& attention, const target::Context& context) {
  return !context.backward() && !attention.wants_o;
}

ir::Attention combined(const ir::Attention& attention) {
  return attention.branches.empty() ? attention : ir::with_branches_given(attention);
}

// What kernels compute where that is not the attention itself: of what prologues make, with sums
// along keys captured, as what branches make is, and with an output o.
std::optional<ir::Attention> in_kernels(const ir::Attention& attention,
                                        const target::Context& context) {
  const bool has_more =
      !attention.branches.empty() || !attention.sums.empty() || ir::has_prologue(attention);
  if (!has_more && !lacks_o(attention, context)) return std::nullopt;
  ir::Attention computed = combined(attention);
  if (ir::has_prologue(computed)) computed = ir::with_prologues_given(computed);
  if (!computed.sums.empty()) computed = ir::with_sums_given(computed);
  return lacks_o(attention, context) ? engines::with_o(std::move(computed)) : std::move(computed);
}

target::Context completed(target::Context context, masks::MaskAnalyses& analyses) {
  if (context.analyses == nullptr) context.analyses = &analyses;
  context.deadline = std::make_shared<target::Deadline>(
      context.timeout, target::Deadline::Clock::now, context.deadline);
  return context;
}

}  // namespace

std::optional<Error> Candidate::long_build() const {
  if (!lowered) return std::nullopt;
  for (const plan::CudnnStep* step : plan::steps_of<plan::CudnnStep>(lowered->program)) {
    const std::size_t nodes = step->graph.nodes.size();
    if (nodes <= kManyNodes) continue;
    return Error{ErrorCode::unsupported,
                 fmt::format("cuDNN would compile its graph of {} nodes for minutes", nodes),
                 {fmt::format("`--strategy {}` compiles it all the same", strategy->name)},
                 {}};
  }
  return std::nullopt;
}

Candidate::Turn Candidate::turn() const {
  if (strategy->kind == Strategy::Kind::slow) return Turn::slow;
  return long_build() ? Turn::long_build : Turn::usual;
}

Search::Search(const ir::Attention& attention, std::string_view name,
               const target::Context& context)
    : only_one_(strategies(name).size() == 1),
      takes_any_(name == kAnyLowering),
      attention_(attention),
      combined_(combined(attention)),
      in_kernels_(in_kernels(attention, context)),
      context_(completed(context, analyses_)),
      subject_(std::make_unique<Subject>(in_kernels_ ? *in_kernels_ : attention_, context_)) {
  for (const Strategy& strategy : strategies(name)) {
    deadline().restart();
    const Result<double> bound = in_time("planning", [&]() -> Result<double> {
      std::optional<Error> refusal = refusal_of(combined_, strategy, context_);
      return refusal ? std::move(*refusal) : strategy.bound(*subject_);
    });
    if (bound.ok()) {
      all_.push_back({.strategy = &strategy, .bound = *bound});
    } else if (!refuse(strategy, bound.error())) {
      break;
    }
  }
  if (!attention_.branches.empty() && !all_.empty()) search_branches(name);
  begin();
}

// Without a program for each branch there is none of any strategy.
void Search::search_branches(std::string_view name) {
  branches_ = std::make_unique<Branches>(attention_, name, context_);
  if (!branches_->refusal()) return;
  for (const Candidate& candidate : all_) {
    if (!refuse(*candidate.strategy, *branches_->refusal())) break;
  }
  all_.clear();
}

Search::~Search() = default;

void Search::begin(const Candidate* first) {
  left_.clear();
  tried_.clear();
  first_ = first != nullptr ? first->strategy : nullptr;
  last_ = nullptr;
  for (Candidate& candidate : all_) {
    candidate.failed.reset();
    candidate.measured_ms.reset();
    const bool begins = candidate.strategy == first_ ? &candidate == first : candidate.program == 0;
    if (begins) left_.push_back(&candidate);
  }
}

// Equal ones stay in the order of the engines.
Result<Candidate*> Search::next() {
  const auto order = [this](const Candidate* each) {
    return std::tuple(each->strategy != first_, each->turn(), each->rank(), each->strategy);
  };
  while (!failure_ && !left_.empty()) {
    const auto best = std::ranges::min_element(left_, {}, order);
    Candidate& candidate = **best;
    if (!candidate.lowered) {
      lower(candidate);
      continue;
    }
    left_.erase(best);
    if (candidate.strategy != last_) deadline().restart();
    last_ = candidate.strategy;
    return &candidate;
  }
  if (failure_) return *failure_;
  if (last_ == nullptr) return all_failed();
  return nullptr;
}

void Search::add_next_of(const Candidate& candidate) {
  if (candidate.strategy->lower_again == nullptr) return;
  const std::size_t program = candidate.program + 1;
  auto place = std::ranges::find(all_, &candidate, [](const Candidate& each) { return &each; });
  const bool is_known = ++place != all_.end() && place->program == program;
  if (!is_known) place = all_.insert(place, {candidate.strategy, program, candidate.rank()});
  left_.push_back(&*place);
}

void Search::lower(Candidate& candidate) {
  const Strategy& strategy = *candidate.strategy;
  const bool is_best = candidate.program == 0;
  if (is_best) deadline().restart();
  Result<Lowered> lowered = in_time("lowering", [&] {
    return is_best ? strategy.lower(*subject_) : strategy.lower_again(*subject_, candidate.program);
  });
  if (lowered.ok()) lowered = whole(std::move(*lowered), candidate.program);
  if (lowered.ok()) {
    candidate.lowered = std::move(*lowered);
  } else if (is_best) {
    remove(candidate);
    refuse(strategy, lowered.error());
  } else if (lowered.error().code == ErrorCode::worker) {  // it took too long
    std::erase(left_, &candidate);
    failed(candidate, lowered.error());
  } else {
    remove(candidate);
  }
}

Result<Lowered> Search::whole(Lowered lowered, std::size_t program) {
  const ir::Attention rows_given =
      ir::has_prologue(combined_) ? ir::with_prologues_given(combined_) : combined_;
  ATTN_ASSIGN(lowered.program, engines::with_key_sums(rows_given, std::move(lowered.program)));
  lowered.program = engines::with_prologues(combined_, std::move(lowered.program));
  if (branches_) {
    ATTN_ASSIGN(lowered, branches_->added(std::move(lowered), program));
  }
  if (lacks_o(attention_, context_)) engines::make_o_internal(lowered.program);
  return lowered;
}

void Search::remove(const Candidate& candidate) {
  std::erase(left_, &candidate);
  all_.remove_if([&candidate](const Candidate& each) { return &each == &candidate; });
}

void Search::failed(Candidate& candidate, Error error) {
  candidate.failed = std::move(error);
  tried_.push_back(&candidate);
}

void Search::measured(Candidate& candidate, double ms) {
  candidate.measured_ms = ms;
  tried_.push_back(&candidate);
}

bool Search::refuse(const Strategy& strategy, const Error& error) {
  const bool is_late = error.code == ErrorCode::worker;
  const bool holds_for_all = error.code != ErrorCode::unsupported && !is_late;
  refused_.all.push_back({std::string(strategy.name), error});
  if (holds_for_all || is_late || strategy.kind != Strategy::Kind::alternative || only_one_ ||
      is_told(strategy, attention_)) {
    refused_.told.push_back(refused_.all.back());
  }
  // What was planned in no time may be less than what others would have.
  if (is_late) subject_ = std::make_unique<Subject>(subject_->attention(), context_);
  if (holds_for_all) failure_ = error_of(in_order(refused_.told));
  return !holds_for_all;
}

void Search::refuse(const Refusal& refusal) {
  refused_.told.push_back(refusal);
  refused_.all.push_back(refusal);
}

template <typename Plan>
auto Search::in_time(std::string_view phase, const Plan& plan) const -> decltype(plan()) {
  const target::Deadline::Phase counted(&deadline(), phase);
  auto planned = plan();
  ATTN_RETURN_IF_ERROR(deadline().check());
  return planned;
}

bool Search::has_slow() const {
  return std::ranges::any_of(strategies(kAnyOrSlow), [this](const Strategy& strategy) {
    return strategy.kind == Strategy::Kind::slow && !refusal_of(combined_, strategy, context_) &&
           strategy.bound(*subject_).ok() && strategy.lower(*subject_).ok();
  });
}

Error Search::all_failed() const {
  std::vector<Refusal> failed;
  for (const Candidate* candidate : tried_) {
    if (candidate->failed) {
      failed.push_back({std::string(candidate->strategy->name), *candidate->failed});
    }
  }
  Error error = error_of(refused_, std::move(failed), attention_, context_);
  const bool may_serve = error.code == ErrorCode::worker || error.code == ErrorCode::unsupported;
  const bool is_said = std::ranges::any_of(error.notes, [](const std::string& note) {
    return note.find("--allow-unfused") != note.npos;
  });
  if (may_serve && !is_said && takes_any_ && has_slow()) {
    // What a refusal itself proposes is faster, so it comes first.
    const bool proposes = error.code == ErrorCode::unsupported;
    error.notes.insert(proposes ? error.notes.end() : error.notes.begin(),
                       "`--allow-unfused` computes it without a fused kernel, slowly");
  }
  return error;
}

}  // namespace attn::planner
