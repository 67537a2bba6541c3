// Plan files on disk, for those who open them themselves.
#pragma once

#include <sys/types.h>

#include <span>
#include <string>

#include "runtime/base/descriptors.h"
#include "runtime/plan/bundle.h"

namespace attn::plan {

// The bytes of a plan file that is open at its start. Its header is looked at before the rest is
// read, and no more is read than that says. `path` is for messages. Errors: io; plan_foreign,
// plan_newer, plan_damaged, as deserialize.
Result<std::string> read_plan_file(const FileDescriptor& file, const std::string& path);

// load_bundle(path) of a file that is open. A check is given the whole file before its header is
// looked at, or as much as the format's limit and a byte of one that is larger, which is refused.
Result<Bundle> load_bundle(const FileDescriptor& file, const std::string& path,
                           const CheckBytes& check = {});

// serialize() of what save() is given. Errors: invalid_argument for kernels that compress better than
// the format lets a reader expect.
Result<std::string> serialize_within_limits(std::span<const Plan> plans);

// save(plan, path) of a file with these permissions, less those of the umask.
Status save(const Plan& plan, const std::string& path, mode_t mode);

}  // namespace attn::plan
