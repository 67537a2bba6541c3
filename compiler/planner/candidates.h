// Which strategies can express an attention, and in which order they are tried.
#pragma once

#include <list>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "compiler/engines/engines.h"

namespace attn::planner {

using engines::engine_name_of;
using engines::engine_names;
using engines::engine_of;
using engines::has_own_kernels;
using engines::kAnyLowering;
using engines::kAnyOrSlow;
using engines::Lowered;
using engines::strategies;
using engines::Strategy;
using engines::strategy_names;
using engines::Subject;

// A strategy that did not become the plan, and why.
struct Refusal {
  std::string lowering;
  Error error;
};

// One error for all refusals (one or more): the first's, followed by a note for each of the others
// that says something else, and their notes; `unsupported` unless one failed otherwise. Its payload
// has all of them, when there are several:
//   "strategies": [{"strategy": "composite", "message": .., "notes": [..], "detail": {payload}}]
Error error_of(const std::vector<Refusal>& refusals);

// Refusals in the order of the engines.
std::vector<Refusal> in_order(std::vector<Refusal> refusals);

// Whether another strategy may serve after this error: a refusal, an error of cuDNN's or NVRTC's,
// or a worker that died or ran out of time. Any other error holds for every strategy.
bool may_try_another(const Error& error);

// What one direction of a training pair is to use: a strategy or an engine, and the engines that
// are left out for it, each by its first strategy.
struct OfPair {
  std::string lowering;
  std::vector<Refusal> refused{};   // that cannot compute this direction
  std::vector<Refusal> left_out{};  // that could, and why they do not
};

struct Candidate {
  const Strategy* strategy = nullptr;
  double bound = 0;                  // ms, at least
  std::optional<Lowered> lowered{};  // when it was its turn
};

// The strategies that `name` (kAnyLowering, kAnyOrSlow or a strategy's name) means, in ascending
// order of predicted time, slow ones last. A strategy is lowered only when no other has a lower
// bound, so one that cannot win is never lowered. Not thread-safe.
class Candidates {
 public:
  // The attention is copied.
  Candidates(const ir::Attention& attention, std::string_view name, const target::Context& context);
  // Errors name the engines that are left out, too.
  Candidates(const ir::Attention& attention, const OfPair& pair, const target::Context& context);
  ~Candidates();

  // The next best, lowered; it lives as long as this. Errors: error_of all refusals when there are
  // none left, and no strategy was returned before; any error that holds for every strategy. A
  // strategy that takes longer than context.timeout is refused, with the error of Deadline::check.
  // Null: none left.
  Result<const Candidate*> next();

  // Strategy::lower_again of a candidate. Errors: the same, and unsupported if the strategy has
  // nothing else.
  Result<Lowered> lower_again(const Candidate& candidate, std::size_t refused);

  // Each candidate, lowered or not, in the order of the engines.
  const std::list<Candidate>& all() const { return all_; }

  // Refusals of strategies that cannot express the attention. An alternative is reported only when
  // asked for by name.
  const std::vector<Refusal>& refused() const { return refused_; }
  // The same with all alternatives, in the order in which they were asked.
  const std::vector<Refusal>& all_refused() const { return all_refused_; }
  // OfPair::left_out.
  const std::vector<Refusal>& left_out() const { return left_out_; }

  // The deadline of the build that goes on: bounds and lowering of a strategy restart it. Never
  // null.
  target::Deadline& deadline() const { return *context_.deadline; }

  // error_of all refusals and `failed`. If a slow strategy that was not allowed would serve, a note
  // says so.
  Error all_failed(std::vector<Refusal> failed) const;

 private:
  // False: an error that holds for every strategy.
  bool refuse(const Strategy& strategy, const Error& error);
  // What `plan()` returns, unless it took too long.
  template <typename Plan>
  auto in_time(std::string_view phase, const Plan& plan) const -> decltype(plan());
  Result<Lowered> finished(Result<Lowered> lowered) const;
  bool has_slow() const;
  Error with_slow_hint(Error error) const;
  Error with_native_reason(Error error) const;

  bool only_one_;
  bool may_allow_slow_;
  bool makes_o_internal_;  // kernels write o though the attention does not output it
  ir::Attention attention_;
  masks::MaskAnalyses analyses_;  // when the context has none
  target::Context context_;
  std::unique_ptr<Subject> subject_;
  std::list<Candidate> all_;
  std::vector<const Candidate*> left_;  // not returned yet
  std::vector<Refusal> refused_, all_refused_, left_out_;
  std::optional<Error> failure_;
  bool returned_ = false;
};

// What is to be used of `name` for both directions of a training pair, as the context's direction
// sees it. Engines draw different numbers for random dropout, so where `name` allows several, this
// is the engine that is predicted to take least for both; that of the backward, if none has both;
// `name` itself without random dropout or a backward. Errors: those of Candidates::next, but for
// unsupported.
Result<OfPair> lowering_of_pair(const ir::Attention& attention, std::string_view name,
                                const target::Context& context);

// The first value that `attempt(const Candidate&)`, which returns a Result, has. Errors: error_of
// all refusals and failures when none serves, or of those up to the first error after which no
// other may be tried.
template <typename Attempt>
auto first_taken(Candidates& candidates, const Attempt& attempt)
    -> decltype(attempt(std::declval<const Candidate&>())) {
  std::vector<Refusal> failed;
  while (true) {
    ATTN_ASSIGN(const Candidate* candidate, candidates.next());
    if (candidate == nullptr) break;
    auto value = attempt(*candidate);
    if (value.ok()) return value;
    failed.push_back({std::string(candidate->strategy->name), value.error()});
    if (!may_try_another(value.error())) break;
  }
  return candidates.all_failed(std::move(failed));
}

}  // namespace attn::planner
