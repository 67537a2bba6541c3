// The plans of one file: a single plan or a training pair (forward and backward), for one or
// several shapes and GPUs. Plans are identified by direction, shape and target, not by position.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/plan/plan.h"

namespace attn::plan {

struct Bundle {
  std::vector<Plan> plans;  // one or more; no two have the same signature

  // The first plan of that direction, or null.
  const Plan* find(Direction direction) const;
  bool operator==(const Bundle&) const = default;
};

// The bundle's plan of that direction. Errors: invalid_argument if there is none, or several.
Result<Plan> plan_of(Bundle bundle, Direction direction);
// The same, of plans_for_device.
Result<Plan> plan_of(Bundle bundle, Direction direction, std::int64_t sm);

// The plans for GPUs of this compute capability (90 is 9.0), if the bundle has plans for several;
// else all, whatever they are for. Errors: plan_device, listing the GPUs, if none is for it.
Result<Bundle> plans_for_device(Bundle bundle, std::int64_t sm);

// Whether all are for one compute capability.
bool has_one_capability(const Bundle& bundle);

// The plans whose shapes have every size in `sizes`; all plans if `sizes` is empty. Errors:
// invalid_argument, listing the available shapes, if there is none.
Result<Bundle> plans_for(Bundle bundle, const Sizes& sizes);

// Errors: invalid_argument, listing the shapes, if the plans have several.
Status check_one_shape(const Bundle& bundle);

// "forward Sq=16, forward Sq=32": each plan's direction, its target if the bundle has several
// capabilities, and the sizes that differ between plans.
std::string contents_text(const Bundle& bundle);

// The same as of a single plan (plan.h): a bundle of one plan is serialized like that plan, byte
// for byte. The format's limits apply to all plans together (fits_file): serialize() requires them,
// save() reports a violation (invalid_argument).
Status fits_file(const Bundle& bundle);
std::string serialize(const Bundle& bundle);
Result<Bundle> deserialize_bundle(std::string_view bytes);
Status save(const Bundle& bundle, const std::string& path);
Result<Bundle> load_bundle(const std::string& path);

// A check that is called with the contents of a file before any of it is parsed. Its errors are
// returned.
using CheckBytes = std::function<Status(std::string_view bytes)>;

// The plans of the parts of an attention that is divided among several ranks, what each rank does
// with them, as JSON (runtime/ranks/program_json.h), and the cubin of the kernels that move rows
// (runtime/ranks/kernels.h). A file of these is refused wherever a bundle is read: its plans alone
// are not the attention.
struct Family {
  Bundle parts;
  std::string ranks;    // empty: an ordinary file, whose plans are not parts
  std::string kernels;  // empty if `ranks` is, and only then
  bool operator==(const Family&) const = default;
};
Status fits_file(const Family& family);
Status save(const Family& family, const std::string& path);
// Loads any plan file.
Result<Family> load_family(const std::string& path, const CheckBytes& check = {});
Result<Family> deserialize_family(std::string_view bytes, const CheckBytes& check = {});

Result<Bundle> load_bundle(const std::string& path, const CheckBytes& check);
// The same as deserialize for a compute capability.
Result<Plan> load(const std::string& path, Direction direction, std::int64_t sm,
                  const CheckBytes& check = {});

}  // namespace attn::plan
