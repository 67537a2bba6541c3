// NCCL, loaded at run time: programs that run on one GPU need none. No header of NCCL is needed to
// build: nccl.def declares the few functions, and the values here are those of nccl.h since 2.18.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "runtime/base/status.h"

namespace attn::ranks {

inline constexpr int kOldestNccl = 21800;  // 2.18.0

// ncclResult_t, ncclDataType_t, ncclRedOp_t.
inline constexpr int kNcclSuccess = 0, kNcclInProgress = 7;
inline constexpr int kNcclUint8 = 1, kNcclFloat32 = 7;
inline constexpr int kNcclSum = 0;

struct NcclApi {
#define ATTN_NCCL_FUNCTION(member, function, returns, arguments) \
  returns(*member) arguments = nullptr;
#define ATTN_NCCL_OPTIONAL ATTN_NCCL_FUNCTION
#include "runtime/ranks/nccl.def"
#undef ATTN_NCCL_OPTIONAL
#undef ATTN_NCCL_FUNCTION
};

// A loaded NCCL. Immutable and thread-safe; stays loaded until the process exits, as communicators
// of other components may use it.
class Nccl {
 public:
  // Loads libnccl.so.2: only from `folder` if that is not empty; else the copy that the process has
  // loaded, which made its communicators; else only from $ATTN_NCCL_DIR if that is set; else the
  // one that the dynamic linker finds, or one in $NCCL_HOME, the default prefixes, the packages of
  // the active Python or the project's wheels. Errors: nccl, listing every place tried and the
  // linker's errors, or if the copy is older than kOldestNccl or lacks a function.
  static Result<std::shared_ptr<const Nccl>> load(const std::string& folder = "");

  int version() const { return version_; }           // 22809 for 2.28.9
  const std::string& path() const { return path_; }  // of the loaded file
  const NcclApi& api() const { return api_; }

  // Ok for kNcclSuccess and kNcclInProgress; else an error `nccl` "NCCL: <action>: <its text>",
  // whose notes are the last error that NCCL noted, if any. Call it directly after the failed call.
  Status check(int result, std::string_view action) const;

 private:
  Nccl() = default;
  NcclApi api_;
  std::string path_;
  int version_ = 0;
};

std::string nccl_version_text(int version);  // "2.28.9"

}  // namespace attn::ranks
