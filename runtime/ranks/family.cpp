#include "runtime/ranks/family.h"

#include "runtime/base/hash.h"
#include "runtime/ranks/program_json.h"

namespace attn::ranks {

std::string family_hash(const Division& division, const plan::Family& family) {
  Division nameless = division;
  nameless.family.clear();
  nameless.only = -1;
  std::string text = to_json(nameless) + hash128(family.kernels).to_hex();
  for (const plan::Plan& plan : family.parts.plans) text += plan.signature.hash.to_hex();
  return hash128(text).to_hex();
}

Status check_family(const Division& division, const plan::Family& family) {
  if (division.only >= 0 || division.family == family_hash(division, family)) return {};
  return Error{ErrorCode::plan_damaged,
               "the file's ranks are not of its plans: `family` is the hash of others",
               {"compile the spec again"}};
}

}  // namespace attn::ranks
