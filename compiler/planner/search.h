// The search for the program that computes an attention: all programs that may, in the order in
// which they are tried, and what became of each.
#pragma once

#include <list>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "compiler/engines/engines.h"
#include "compiler/planner/refusals.h"

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

// A program that may become the plan.
struct Candidate {
  const Strategy* strategy = nullptr;
  std::size_t program = 0;  // of the strategy, the best first (Strategy::lower_again)
  // Milliseconds that the strategy takes at least; of its further programs, those of the best one,
  // which they follow.
  double bound = 0;
  std::optional<Lowered> lowered{};  // when it was its turn

  // What became of it, where it was tried:
  std::optional<Error> failed{};  // it could not be built
  std::optional<double> measured_ms{};
  std::string signature{};  // plan::Alternative::signature

  double predicted_ms() const { return lowered ? lowered->predicted_ms : bound; }
  // The same as it counts beside other programs.
  double compared_ms() const {
    return predicted_ms() * (lowered && lowered->unmeasured ? engines::kUnmeasured : 1);
  }
  // Why it is taken only if no usual one serves: cuDNN compiles its graph for minutes.
  std::optional<Error> long_build() const;
  // What candidates are ordered by: the turn, and within it the rank.
  enum class Turn : std::uint8_t { usual, long_build, slow };
  Turn turn() const;
  double rank() const { return program == 0 ? compared_ms() : bound; }
};

class Branches;

// A search among the strategies that `name` means: kAnyLowering, kAnyOrSlow, or the name of a
// strategy or an engine. Candidates come in ascending order of predicted time; those with a long
// build after the usual ones, slow strategies last. A further program of a strategy (add_next_of)
// comes right after the program before it. A strategy is lowered only when no other has a lower
// bound, so a strategy that cannot win is never lowered. Not thread-safe.
class Search {
 public:
  // The attention is copied.
  Search(const ir::Attention& attention, std::string_view name, const target::Context& context);
  ~Search();

  // The next best, lowered; it lives as long as this. Errors: all_failed() when there are none
  // left, and none was returned before; any error that holds for every strategy. A strategy that
  // takes longer than context.timeout is refused, with the error of Deadline::check. Null: none
  // left.
  Result<Candidate*> next();

  // Makes the strategy's next program a candidate too, if there is one, which comes next.
  void add_next_of(const Candidate& candidate);

  // Forgets what became of candidates, and returns all again; those of the strategy of `first`, if
  // there is one, before all others and from this one on.
  void begin(const Candidate* first = nullptr);

  // Tell what became of a candidate.
  void failed(Candidate& candidate, Error error);
  void measured(Candidate& candidate, double ms);
  // Candidates of which something was told, in that order.
  const std::vector<const Candidate*>& tried() const { return tried_; }

  // The first value that `attempt(Candidate&)`, which returns a Result, has; its errors are those
  // of candidates. Errors: all_failed() when none serves, or after the first error after which no
  // other may be tried; those of next().
  template <typename Attempt>
  auto first_taken(const Attempt& attempt) -> decltype(attempt(std::declval<Candidate&>())) {
    while (true) {
      ATTN_ASSIGN(Candidate* const candidate, next());
      if (candidate == nullptr) return all_failed();
      auto value = attempt(*candidate);
      if (value.ok()) return value;
      failed(*candidate, value.error());
      if (!may_try_another(value.error())) return all_failed();
    }
  }

  // error_of all refusals and failures. If a slow strategy that was not allowed would serve, a note
  // says so.
  Error all_failed() const;

  // Each strategy that may serve, lowered or not, in the order of the engines; its further programs
  // follow it.
  const std::list<Candidate>& all() const { return all_; }
  const Refused& refused() const { return refused_; }
  // Adds what a training pair's other direction rules out.
  void leave_out(const Refusal& refusal) { refused_.left_out.push_back(refusal); }
  void refuse(const Refusal& refusal);

  // What is computed.
  const ir::Attention& attention() const { return attention_; }
  // Whether it is for all engines, slow ones left out.
  bool takes_any() const { return takes_any_; }
  // The deadline of the build that goes on: bounds and lowering of a strategy restart it, and so
  // does the first candidate of a strategy that is returned. Never null.
  target::Deadline& deadline() const { return *context_.deadline; }

 private:
  // False: an error that holds for every strategy.
  bool refuse(const Strategy& strategy, const Error& error);
  void lower(Candidate& candidate);
  // What computes the attention, of what computes in_kernels_: the program of a strategy with this
  // number, beside those of branches.
  Result<Lowered> whole(Lowered lowered, std::size_t program);
  void search_branches(std::string_view name);
  void remove(const Candidate& candidate);
  // What `plan()` returns, unless it took too long.
  template <typename Plan>
  auto in_time(std::string_view phase, const Plan& plan) const -> decltype(plan());
  bool has_slow() const;

  bool only_one_;
  bool takes_any_;
  const ir::Attention attention_;
  const ir::Attention combined_;             // the attention, which captures what its branches make
  std::optional<ir::Attention> in_kernels_;  // what these compute, if not the attention itself
  masks::MaskAnalyses analyses_;             // when the context has none
  target::Context context_;
  std::unique_ptr<Branches> branches_;  // null without branches
  std::unique_ptr<Subject> subject_;
  std::list<Candidate> all_;
  std::vector<Candidate*> left_;  // not returned yet
  std::vector<const Candidate*> tried_;
  const Strategy* first_ = nullptr;  // that is returned before all others
  const Strategy* last_ = nullptr;   // of the candidate that was returned last
  Refused refused_;
  std::optional<Error> failure_;
};

}  // namespace attn::planner
