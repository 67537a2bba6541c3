// Derive kernels on the host: compiled by the compiler that this was built with, when they are
// needed, and loaded.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/plan/program.h"

namespace attn::host {

class Kernels {
 public:
  // Of all programs in one go. Errors: internal, with what the compiler says.
  static Result<Kernels> compile(const std::vector<const plan::Program*>& programs);

  // As a GPU would, thread by thread; `arguments` are as cuLaunchKernel takes them. The step is one
  // of those that were compiled.
  void launch(const plan::DeriveStep& step, std::int64_t threads, void* const* arguments) const;

 private:
  using Numbers = std::map<std::string, std::size_t, std::less<>>;  // by source

  Kernels(Numbers numbers, std::shared_ptr<void> library)
      : numbers_(std::move(numbers)), library_(std::move(library)) {}

  Numbers numbers_;
  std::shared_ptr<void> library_;
};

}  // namespace attn::host
