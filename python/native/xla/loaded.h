// A plan on one device, which calls of one place in a program of XLA execute. Internal to
// python/native/xla.
#pragma once

#include <array>
#include <atomic>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "ffi.h"
#include "runtimes.h"

namespace attn::xla {

// Thread-safe. What CUDA graphs were captured of stays until this is destroyed.
class Loaded {
 public:
  // Null, with `error`. `params` are kept.
  static std::unique_ptr<Loaded> make(const attn_plan* plan, std::size_t index,
                                      std::span<const double> params, std::int32_t device,
                                      attn_status& status, attn_error* error);
  ~Loaded();

  // Enqueues the plan on a stream. Returns a status, with its text in `error` or, for buffers that
  // are not the plan's, in `text`.
  attn_status run(const ffi::Call& call, void* stream, attn_error* error, std::string& text);
  // Binds the buffers of a call that will run, so that it need not do so while it is captured.
  attn_status prepare(const ffi::Call& call, void* stream, attn_error* error, std::string& text);

 private:
  struct Tensor {
    attn_tensor_info info;
    ffi::Type type;
    std::size_t place;  // among the arguments or results of a call
  };
  struct Given {
    std::vector<void*> addresses;
    void* workspace = nullptr;
  };

  // A binding, and what it was moved to last.
  struct Bound {
    Binding binding;
    std::vector<void*> addresses;
    void* workspace = nullptr;
  };

  attn_status describe(attn_error* error);
  attn_status read(const ffi::Call& call, Given& given, std::string& text) const;
  attn_status bind(const ffi::Call& call, const Given& given, void* stream, Bound& bound,
                   attn_error* error) const;
  attn_status set_pool(attn_arguments* arguments, const Tensor& tensor, const ffi::Buffer& buffer,
                       attn_error* error) const;
  static attn_status move(Bound& bound, Given& given, attn_error* error);
  std::unique_ptr<Bound> take();
  void give_back(std::unique_ptr<Bound> bound);

  static constexpr std::size_t kReady = 16;

  Runtime runtime_;
  Executable executable_;
  std::vector<Tensor> tensors_;
  std::vector<attn_param_info> params_;
  std::vector<double> values_;
  std::size_t inputs_ = 0, outputs_ = 0;
  std::int64_t workspace_bytes_ = 0;
  // Bindings that no thread uses. More than kReady are in `others_`: graphs may have been captured
  // of them, so that none is destroyed before.
  std::array<std::atomic<Bound*>, kReady> ready_{};
  std::mutex keeping_;
  std::vector<std::unique_ptr<Bound>> others_;
};

}  // namespace attn::xla
