// The searches for both programs of a training pair.
#pragma once

#include <array>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "compiler/planner/search.h"

namespace attn::planner {

// Engines draw different numbers for random dropout, so where `name` allows several, both
// directions are of the engine whose turn is first (Candidate::Turn), and which is predicted to
// take least for both; of that of the backward, if none has both. If a program of that engine
// cannot be built, it is the turn of the next one. Without random dropout or a backward, each is of
// what `name` means. Not thread-safe.
class Pair {
 public:
  // The attention is copied; the context's direction is ignored.
  Pair(const ir::Attention& attention, std::string_view name, const target::Context& context);

  // The search for the program of a direction, to be called once for each, and again after
  // take_other(); its errors name the engines that are left out, too. Errors: those of
  // Search::next, but for unsupported.
  Result<std::unique_ptr<Search>> search(plan::Direction direction);

  // After the program of a direction could not be built: takes the next engine for both directions.
  // False if `error` holds for every engine, or no other has both.
  bool take_other(plan::Direction direction, const Error& error);

 private:
  // A direction of an engine: not searched if the engine has no backward.
  struct Half {
    std::unique_ptr<Search> search;
    std::optional<Error> refused;
  };
  struct OfEngine {
    const engines::Engine* engine = nullptr;
    std::array<Half, 2> halves{};                   // by plan::Direction
    double ms = 0;                                  // predicted, of both
    Candidate::Turn turn = Candidate::Turn::usual;  // the later one of both
    std::optional<Error> long_build{};              // Candidate::long_build of that one

    std::pair<Candidate::Turn, double> place() const { return {turn, ms}; }
    Half& half(plan::Direction direction) { return halves[static_cast<std::size_t>(direction)]; }
    bool serves() const { return !halves[0].refused && !halves[1].refused; }
  };

  Status compare();
  Status add(const engines::Engine& engine);
  void take_best();
  // Adds why the engine is not that of the search.
  void leave_out(OfEngine& other, plan::Direction direction, Search& search);

  const ir::Attention attention_;
  const std::string name_;
  const target::Context context_;
  bool is_compared_ = false;
  std::vector<OfEngine> engines_;
  OfEngine* taken_ = nullptr;
};

}  // namespace attn::planner
