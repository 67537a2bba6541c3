// Plan files on disk, for callers that open the file themselves.
#pragma once

#include <sys/types.h>

#include <span>
#include <string>

#include "runtime/base/descriptors.h"
#include "runtime/plan/bundle.h"

namespace attn::plan {

// The error with the path before its message.
Error at(const std::string& path, Error error);

// Reads a plan file that is open at its start. Checks the header first, and reads no more than it
// announces. `path` is for messages. Errors: io; plan_foreign, plan_newer, plan_damaged, as
// deserialize.
Result<std::string> read_plan_file(const FileDescriptor& file, const std::string& path);

// load_bundle(path) for an open file. A `check` receives the whole file before its header is
// checked; of a file above the format's limit, which is rejected, it receives the limit plus one
// byte.
Result<Bundle> load_bundle(const FileDescriptor& file, const std::string& path,
                           const CheckBytes& check = {});

// serialize() for save(). Errors: invalid_argument for kernels that compress better than readers of
// the format accept.
Result<std::string> serialize_within_limits(std::span<const Plan> plans,
                                            std::string_view ranks = {},
                                            std::string_view kernels = {});

// Whether this is what a family has besides plans, as far as files are concerned: a JSON object
// within the format's limits, of which any members must be expected. Errors: plan_damaged.
Status check_ranks(std::string_view text);

// save(plan, path) with these permissions, subject to the umask.
Status save(const Plan& plan, const std::string& path, mode_t mode);

}  // namespace attn::plan
