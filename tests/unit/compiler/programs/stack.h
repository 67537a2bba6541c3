// A stack of its own for a function that others interrupt: the threads of a kernel take turns.
#pragma once

#include <setjmp.h>
#include <ucontext.h>

#include <cstddef>
#include <memory>

// Switching makes no system calls: only the first function on a stack starts a context, the next
// ones are called in its loop. Memory that no function touches costs nothing, so it is not
// initialized.
class Stack {
 public:
  static constexpr std::size_t kBytes = std::size_t{1} << 17;

  Stack() : memory_(new char[kBytes]) {}
  Stack(const Stack&) = delete;
  Stack& operator=(const Stack&) = delete;

  // Calls the function, or goes on where the last one left. Returns when it leaves or returns.
  void enter(void (*function)()) {
    function_ = function;
    if (_setjmp(caller_) != 0) return;
    if (has_context_) _longjmp(place_, 1);
    has_context_ = true;
    starting = this;
    ucontext_t context;
    getcontext(&context);
    context.uc_stack.ss_sp = memory_.get();
    context.uc_stack.ss_size = kBytes;
    makecontext(&context, loop, 0);
    setcontext(&context);
  }

  // Called on the stack.
  void leave() {
    if (_setjmp(place_) == 0) _longjmp(caller_, 1);
  }

  // The next enter() calls its function, even if the last one has not returned.
  void forget() {
    if (!rests_) has_context_ = false;
  }

 private:
  static void loop() {
    Stack& own = *starting;
    while (true) {
      own.rests_ = false;
      own.function_();
      own.rests_ = true;
      own.leave();
    }
  }

  static inline Stack* starting = nullptr;

  std::unique_ptr<char[]> memory_;
  void (*function_)() = nullptr;
  jmp_buf caller_, place_;
  bool has_context_ = false, rests_ = false;
};
