// Fixtures for tests of runtime/execute on the stand-ins for cuDNN and the driver.
#pragma once

#include <gmock/gmock.h>

#include <memory>
#include <optional>
#include <utility>

#include "runtime/execute/cuda_graph.h"
#include "runtime/execute/executable.h"
#include "tests/standin/executing.h"
#include "tests/standin/standins.h"

namespace attn::execute {

// The value of a Result; the test fails without one.
template <typename T>
T must(Result<T> result) {
  if (!result.ok()) throw std::runtime_error(result.error().to_text());
  return std::move(result).value();
}

#define EXPECT_OK(expression)                                                                 \
  do {                                                                                        \
    const auto expected_ok = (expression);                                                    \
    EXPECT_TRUE(expected_ok.ok()) << (expected_ok.ok() ? "" : expected_ok.error().to_text()); \
  } while (false)

class OnStandins : public standin::StandinTest {
 protected:
  // Calls since the stand-ins were reset, or since the last forget_calls().
  static std::int64_t cudnn_calls(const char* function) {
    return standin::cudnn().control.calls(function, STANDIN_ANY);
  }
  static std::int64_t cuda_calls(const char* function) {
    return standin::cuda().control.calls(function, STANDIN_ANY);
  }
  static void script_cudnn(const StandinRule& rule) { standin::cudnn().control.script(&rule); }
  static void script_cuda(const StandinRule& rule) { standin::cuda().control.script(&rule); }

  // Executes into poisoned outputs and compares.
  static void expect_right(standin::Case& on, Binding& binding, void* stream = nullptr) {
    EXPECT_OK(on.poison());
    EXPECT_OK(binding.execute(stream));
    EXPECT_TRUE(must(on.is_right()));
  }
};

// One loaded plan, with tensors and a reference of its results.
class WithCase : public OnStandins {
 protected:
  void load(plan::Plan plan) {
    plan_ = std::move(plan);
    runtime_ = must(standin::open_runtime());
    executable_ = must(Executable::load(runtime_, plan_));
    on_ = must(standin::Case::make(executable_->device(), plan_, 1));
  }
  void TearDown() override {
    on_.reset();
    executable_.reset();
    runtime_.reset();
    OnStandins::TearDown();
  }

  plan::Plan plan_;
  std::shared_ptr<Runtime> runtime_;
  std::optional<Executable> executable_;
  std::optional<standin::Case> on_;
};

}  // namespace attn::execute
