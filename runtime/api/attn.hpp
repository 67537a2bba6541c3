// C++17 wrapper of attn.h: RAII handles, and errors as values. Nothing here throws, except
// std::bad_alloc from the standard library.
//
//   attn::Status run(void* q, ..., void* stream) {
//     ATTN_TRY_ASSIGN(auto runtime, attn::Runtime::open());
//     ATTN_TRY_ASSIGN(auto executable, attn::Executable::load_file(runtime, "causal.attnplan"));
//     attn::Arguments arguments;
//     arguments.tensor("q", {q, attn::DType::bf16, dims, strides}) ..;
//     ATTN_TRY_ASSIGN(auto binding, executable.bind(arguments));
//     return binding.execute(stream);
//   }
//
// attn.h documents semantics, errors and thread-safety. Runtime, Executable, PlanFile and Picked
// are reference-counted: copies share the object. The other handles are move-only. A
// default-constructed or moved-from handle is empty: it converts to false, its names, sizes and
// addresses are empty, and calls that can fail return invalid_argument. handle() is the object of
// attn.h, which the wrapper goes on owning; null if it is empty. A constructor with such an object
// takes it over.
//
// All names are in the inline namespace attn::v2, so that code built with different versions of
// this header, and the library itself, can be linked into one program.
#ifndef ATTN_HPP
#define ATTN_HPP

#if __cplusplus < 201703L
#error "attn.hpp needs C++17 or later (-std=c++17)"
#endif

#include "attn.h"
#include "attn/arguments.hpp"
#include "attn/binding.hpp"
#include "attn/executable.hpp"
#include "attn/graph.hpp"
#include "attn/handle.hpp"
#include "attn/memory.hpp"
#include "attn/operations.hpp"
#include "attn/picker.hpp"
#include "attn/plan.hpp"
#include "attn/result.hpp"
#include "attn/runtime.hpp"
#include "attn/schedule.hpp"
#include "attn/tensor.hpp"

#endif
