// How the wrappers own handles and call the C functions. Part of attn.hpp.
#pragma once

#include <cstddef>
#include <memory>
#include <utility>

#include "result.hpp"

namespace attn {
inline namespace v2 {

namespace detail {

template <auto end>
struct Ender {
  template <typename Handle>
  void operator()(Handle* handle) const {
    end(handle);
  }
};
template <typename Handle, auto end>
using Owned = std::unique_ptr<Handle, Ender<end>>;

// A reference to a reference-counted handle.
template <typename Handle, auto retain, auto release>
class Shared {
 public:
  explicit Shared(Handle* handle = nullptr) : handle_(handle) {}
  Shared(const Shared& other) : handle_(other.handle_) { retain(handle_); }
  Shared(Shared&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  Shared& operator=(Shared other) noexcept {
    std::swap(handle_, other.handle_);
    return *this;
  }
  ~Shared() { release(handle_); }
  Handle* get() const { return handle_; }

 private:
  Handle* handle_;
};

// Calls C functions and converts their errors. For one thread at a time.
class Caller {
 public:
  template <typename Function, typename... Values>
  Status operator()(const Function& function, Values... values) const {
    if (error_ == nullptr) error_.reset(attn_error_create());
    const attn_status status = function(values..., error_.get());
    if (status == ATTN_STATUS_OK) return {};
    Error error{static_cast<Code>(status),
                attn_error_message(error_.get()),
                {},
                attn_error_payload(error_.get()),
                static_cast<CudaFailure>(attn_error_cuda_failure(error_.get())),
                attn_error_cuda_code(error_.get())};
    for (std::size_t i = 0; i < attn_error_note_count(error_.get()); ++i) {
      error.notes.emplace_back(attn_error_note(error_.get(), i));
    }
    return error;
  }

 private:
  mutable Owned<attn_error, attn_error_destroy> error_;  // created by the first call
};

// Calls a function whose last output is a `Handle*`, and wraps it in `Wrapped`.
template <typename Wrapped, typename Handle, typename Function, typename... Values>
Result<Wrapped> make(const Function& function, Values... values) {
  Handle* handle = nullptr;
  ATTN_TRY(Caller()(function, values..., &handle));
  return Wrapped(handle);
}

}  // namespace detail

}  // namespace v2
}  // namespace attn
