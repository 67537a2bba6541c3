// The programs of an attention's branches, each by whichever strategy takes least for it.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "compiler/planner/search.h"

namespace attn::planner {

class Branches {
 public:
  // Searches for each branch that the program needs: of a backward, those that gradients go
  // through. `name` is as for Search; of a strategy, its engine counts. `attention` must outlive
  // it.
  Branches(const ir::Attention& attention, std::string_view name, const target::Context& context);

  // Why there is no program, if a branch has none or layouts are not served.
  const std::optional<Error>& refusal() const { return refusal_; }

  // The program of ir::with_branches_given with those of the branches: the best of each, or after
  // programs that broke kernel limits the next ones. Errors: those of engines::with_branches.
  Result<Lowered> added(Lowered own, std::size_t program);

 private:
  struct OfBranch {
    const ir::Branch* branch = nullptr;
    std::unique_ptr<Search> search;
    std::vector<const Candidate*> programs{};  // in the order in which they are tried

    // The program with that number, or the last one.
    const Candidate& at(std::size_t program);
  };

  std::optional<Error> add(const ir::Branch& branch, std::string_view name,
                           const target::Context& context);

  const ir::Attention& attention_;
  std::vector<OfBranch> all_;
  std::optional<Error> refusal_;
};

}  // namespace attn::planner
