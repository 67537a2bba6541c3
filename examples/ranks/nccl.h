// The few functions of NCCL that the example calls, loaded at run time, so that it builds without
// NCCL. An application includes NCCL's nccl.h and links libnccl instead.
#pragma once

#include <dlfcn.h>

#include <attn.hpp>
#include <string>

namespace examples {

struct NcclId {  // ncclUniqueId
  char bytes[128];
};

class Nccl {
 public:
  static attn::Result<Nccl> load(const std::string& folder) {
    const std::string path = folder.empty() ? "libnccl.so.2" : folder + "/libnccl.so.2";
    void* library = dlopen(path.c_str(), RTLD_NOW);
    if (library == nullptr) return attn::Error{attn::Code::nccl, dlerror(), {}, {}};
    Nccl nccl;
    nccl.make_id_ = reinterpret_cast<MakeId>(dlsym(library, "ncclGetUniqueId"));
    nccl.init_ = reinterpret_cast<Init>(dlsym(library, "ncclCommInitRank"));
    nccl.destroy_ = reinterpret_cast<Destroy>(dlsym(library, "ncclCommDestroy"));
    nccl.describe_ = reinterpret_cast<Describe>(dlsym(library, "ncclGetErrorString"));
    if (!nccl.make_id_ || !nccl.init_ || !nccl.destroy_ || !nccl.describe_)
      return attn::Error{attn::Code::nccl, path + " is not NCCL", {}, {}};
    return nccl;
  }

  attn::Result<NcclId> make_id() const {
    NcclId id = {};
    ATTN_TRY(check(make_id_(&id)));
    return id;
  }
  // ncclComm_t on the device of the current context. Collective.
  attn::Result<void*> init(const NcclId& id, int rank, int ranks) const {
    void* communicator = nullptr;
    ATTN_TRY(check(init_(&communicator, ranks, id, rank)));
    return communicator;
  }
  void destroy(void* communicator) const { destroy_(communicator); }

 private:
  using MakeId = int (*)(NcclId*);
  using Init = int (*)(void**, int, NcclId, int);
  using Destroy = int (*)(void*);
  using Describe = const char* (*)(int);

  attn::Status check(int result) const {
    if (result == 0) return {};
    return attn::Error{attn::Code::nccl, describe_(result), {}, {}};
  }

  MakeId make_id_ = nullptr;
  Init init_ = nullptr;
  Destroy destroy_ = nullptr;
  Describe describe_ = nullptr;
};

}  // namespace examples
