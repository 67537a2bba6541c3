// Executes compiled plans: handle, loaded plan, variant pack. The caller must make a CUDA context
// current; every object belongs to the context that it was created in.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

#include "runtime/base/status.h"
#include "runtime/cudnn/library.h"
#include "runtime/graph/backend_graph.h"

namespace attn::cudnn {

// A cuDNN handle. For one thread at a time, as cuDNN requires.
class Session {
 public:
  static Result<Session> create(std::shared_ptr<const Library> library);
  Session(Session&&) noexcept;
  Session& operator=(Session&&) noexcept;
  ~Session();

  // `stream` is a CUstream / cudaStream_t. Free if it is already set.
  Status set_stream(void* stream);
  const Library& library() const;
  void* handle() const;  // cudnnHandle_t

 private:
  friend class LoadedPlan;
  struct State;
  explicit Session(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

// Device addresses (host addresses for host scalars) by uid. Immutable; the addresses must stay
// valid during execution, and `library` must outlive it.
class VariantPack {
 public:
  static Result<VariantPack> create(const Library& library, std::span<const graph::Uid> uids,
                                    std::span<void* const> addresses, void* workspace);
  VariantPack(VariantPack&&) noexcept;
  VariantPack& operator=(VariantPack&&) noexcept;
  ~VariantPack();
  void* descriptor() const;  // cudnnBackendDescriptor_t

 private:
  struct State;
  explicit VariantPack(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

// A finalized execution plan.
class LoadedPlan {
 public:
  // Loads CompiledStep::cudnn_plan. Errors: cudnn, with cuDNN's reason.
  static Result<LoadedPlan> load(const Session& session, std::string_view cudnn_plan);
  LoadedPlan(LoadedPlan&&) noexcept;
  LoadedPlan& operator=(LoadedPlan&&) noexcept;
  ~LoadedPlan();

  std::int64_t workspace_bytes() const;
  // Enqueues on the session's stream; does not wait, allocate or create objects. Errors: cudnn.
  Status execute(const Session& session, const VariantPack& pack) const;

 private:
  struct State;
  explicit LoadedPlan(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace attn::cudnn
