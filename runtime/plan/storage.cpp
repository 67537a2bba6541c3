#include "runtime/plan/storage.h"

#include <fmt/format.h>

#include <algorithm>

#include "runtime/base/regular_file.h"
#include "runtime/base/replace_file.h"
#include "runtime/plan/container.h"

namespace attn::plan {

Error at(const std::string& path, Error error) {
  error.message = fmt::format("{}: {}", path, error.message);
  return error;
}

namespace {

// Reads all of the file if there is a check, which may look at more than the plan.
Result<std::string> read_checked(const FileDescriptor& file, const std::string& path,
                                 const CheckBytes& check) {
  if (!check) return read_plan_file(file, path);
  std::string bytes;
  ATTN_RETURN_IF_ERROR(read_more(file, path, kMaxFileBytes + 1, bytes));
  if (const Status status = check(bytes); !status.ok()) return at(path, status.error());
  return bytes;
}

}  // namespace

Status save(const Plan& plan, const std::string& path) {
  ATTN_ASSIGN(const std::string bytes, serialize_within_limits({&plan, 1}));
  return replace_file(path, bytes);
}

Status save(const Plan& plan, const std::string& path, mode_t mode) {
  ATTN_ASSIGN(const std::string bytes, serialize_within_limits({&plan, 1}));
  return replace_file(path, bytes, mode);
}

Status save(const Bundle& bundle, const std::string& path) {
  ATTN_RETURN_IF_ERROR(fits_file(bundle));
  ATTN_ASSIGN(const std::string bytes, serialize_within_limits(bundle.plans));
  return replace_file(path, bytes);
}

Status save(const Family& family, const std::string& path) {
  ATTN_RETURN_IF_ERROR(fits_file(family));
  if (!family.ranks.empty() && !check_ranks(family.ranks).ok()) {
    return {ErrorCode::invalid_argument, "what the ranks do is too long for a plan file"};
  }
  ATTN_ASSIGN(const std::string bytes,
              serialize_within_limits(family.parts.plans, family.ranks, family.kernels));
  return replace_file(path, bytes);
}

Result<Family> load_family(const std::string& path, const CheckBytes& check) {
  ATTN_ASSIGN(const FileDescriptor file, open_regular_file(path));
  ATTN_ASSIGN(const std::string bytes, read_checked(file, path, check));
  Result<Family> family = deserialize_family(bytes);
  if (!family.ok()) return at(path, family.error());
  return family;
}

Result<std::string> read_plan_file(const FileDescriptor& file, const std::string& path) {
  std::string bytes;
  ATTN_RETURN_IF_ERROR(read_more(file, path, kHeaderBytes, bytes));
  const Result<std::uint64_t> announced = announced_bytes(bytes);
  if (!announced.ok()) return at(path, announced.error());
  if (*announced > kMaxFileBytes) {
    return {ErrorCode::plan_damaged,
            fmt::format("{}: the plan file's header gives {} bytes, more than allowed", path,
                        *announced)};
  }
  const std::size_t rest = std::max<std::size_t>(*announced, kHeaderBytes) - kHeaderBytes;
  ATTN_RETURN_IF_ERROR(
      read_more(file, path, rest + 1, bytes));  // one more byte detects a longer file
  return bytes;
}

Result<Bundle> load_bundle(const FileDescriptor& file, const std::string& path,
                           const CheckBytes& check) {
  ATTN_ASSIGN(const std::string bytes, read_checked(file, path, check));
  Result<Bundle> bundle = deserialize_bundle(bytes);
  if (!bundle.ok()) return at(path, bundle.error());
  return bundle;
}

Result<Bundle> load_bundle(const std::string& path) { return load_bundle(path, {}); }

Result<Bundle> load_bundle(const std::string& path, const CheckBytes& check) {
  ATTN_ASSIGN(const FileDescriptor file, open_regular_file(path));
  return load_bundle(file, path, check);
}

Result<Plan> load(const std::string& path, Direction direction) {
  ATTN_ASSIGN(Bundle bundle, load_bundle(path));
  Result<Plan> plan = plan_of(std::move(bundle), direction);
  if (!plan.ok()) return at(path, plan.error());
  return plan;
}

Result<Plan> load(const std::string& path, Direction direction, std::int64_t sm,
                  const CheckBytes& check) {
  ATTN_ASSIGN(Bundle bundle, load_bundle(path, check));
  Result<Plan> plan = plan_of(std::move(bundle), direction, sm);
  if (!plan.ok()) return at(path, plan.error());
  return plan;
}

}  // namespace attn::plan
