// Variant packs, and executing plans.
#include <algorithm>

#include "tests/standin/cudnn_state.h"

namespace attn::standin {
namespace {

constexpr const char* kName = "cudnnBackendExecute";
constexpr std::size_t kScalarAlignment = 16;

// A launch: addresses of device memory, copied values of scalars, and the workspace.
struct Launch {
  std::shared_ptr<const Work> work;
  std::vector<void*> addresses;
  std::vector<Value> values;  // of scalars; empty for other operands
  void* workspace = nullptr;

  void run() {
    std::vector<void*> places = addresses;
    for (std::size_t i = 0; i < places.size(); ++i) {
      if (work->operands[i].role == Role::scalar) places[i] = values[i].data();
    }
    mark_workspace();
    standin::run(*work, places);
    if (!workspace_is_mine()) violate(kName, "a workspace that another execute uses");
  }

 private:
  std::byte mark() const {
    return static_cast<std::byte>(reinterpret_cast<std::uintptr_t>(this) >> 4 | 1);
  }
  void mark_workspace() {
    std::fill_n(static_cast<std::byte*>(workspace), work->workspace, mark());
  }
  bool workspace_is_mine() const {
    const auto* bytes = static_cast<const std::byte*>(workspace);
    return std::all_of(bytes, bytes + work->workspace,
                       [mine = mark()](std::byte byte) { return byte == mine; });
  }
};

bool is_device_memory(const void* address, std::int64_t bytes, int device) {
  StandinMemory found{};
  if (driver()->describe(address, &found) == 0) return false;
  const bool here =
      found.kind == STANDIN_MANAGED || (found.kind == STANDIN_DEVICE && found.device == device);
  return here && static_cast<const std::byte*>(address) + bytes <=
                     static_cast<const std::byte*>(found.start) + found.bytes;
}

void* address_of(const Descriptor& pack, std::int64_t uid) {
  const Elements& uids = *pack.find(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS);
  const Elements& addresses = *pack.find(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS);
  for (std::int64_t i = 0; i < uids.count; ++i) {
    if (uids.at<std::int64_t>(i) == uid) return addresses.at<void*>(i);
  }
  return nullptr;
}

Value value_at(const void* address, std::int64_t bytes) {
  Value value{};
  std::memcpy(value.data(), address, static_cast<std::size_t>(bytes));
  return value;
}

// Describes the problem of an operand; null if there is none.
const char* fault(const Operand& operand, const void* address, int device) {
  if (address == nullptr) return "an operand without an address";
  if (operand.role != Role::scalar) {
    return is_device_memory(address, operand.bytes, device) ? nullptr
                                                            : "memory that is not the device's";
  }
  StandinMemory found{};
  if (driver()->describe(address, &found) != 0) return "a scalar that is not in host memory";
  const bool aligned = reinterpret_cast<std::uintptr_t>(address) % kScalarAlignment == 0;
  return aligned ? nullptr : "a scalar that is not aligned to 16 bytes";
}

cudnnStatus_t prepare(Launch& launch, const Descriptor& plan, const Descriptor& pack) {
  launch.work = plan.work;
  for (const Operand& operand : plan.work->operands) {
    void* address = address_of(pack, operand.uid);
    if (const char* what = fault(operand, address, plan.device)) {
      return breach(kName, CUDNN_STATUS_BAD_PARAM, what);
    }
    launch.addresses.push_back(address);
    const bool scalar = operand.role == Role::scalar;
    launch.values.push_back(scalar ? value_at(address, operand.bytes) : Value{});
  }
  launch.workspace = pack.find(CUDNN_ATTR_VARIANT_PACK_WORKSPACE)->at<void*>();
  if (plan.work->workspace > 0 &&
      !is_device_memory(launch.workspace, plan.work->workspace, plan.device)) {
    return breach(kName, CUDNN_STATUS_BAD_PARAM, "a workspace that is not the device's");
  }
  return CUDNN_STATUS_SUCCESS;
}

// Checks that scalars did not change during the call: cuDNN may read them until execute returns.
void check_scalars(const Launch& launch) {
  for (std::size_t i = 0; i < launch.addresses.size(); ++i) {
    const Operand& operand = launch.work->operands[i];
    if (operand.role == Role::scalar &&
        value_at(launch.addresses[i], operand.bytes) != launch.values[i]) {
      violate(kName, "a scalar that changed during the call");
    }
  }
}

cudnnStatus_t scripted(const Verdict& verdict) {
  if (!verdict.words.empty()) say(verdict.words);
  return static_cast<cudnnStatus_t>(verdict.status);
}

}  // namespace

cudnnStatus_t check_pack(const Descriptor& pack) {
  const Elements* uids = pack.find(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS);
  const Elements* addresses = pack.find(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS);
  if (uids != nullptr && addresses != nullptr && uids->count == addresses->count &&
      pack.find(CUDNN_ATTR_VARIANT_PACK_WORKSPACE) != nullptr) {
    return CUDNN_STATUS_SUCCESS;
  }
  return breach("cudnnBackendFinalize", CUDNN_STATUS_BAD_PARAM, "VARIANT_PACK lacks something");
}

cudnnStatus_t execute(Handle& handle, Descriptor& plan, Descriptor& pack) {
  if (handle.device != plan.device || driver()->current_device() != plan.device) {
    return breach(kName, CUDNN_STATUS_BAD_PARAM, "a plan of another device");
  }
  auto launch = std::make_unique<Launch>();
  const cudnnStatus_t prepared = prepare(*launch, plan, pack);
  if (prepared != CUDNN_STATUS_SUCCESS) return prepared;
  // A scripted wait happens here: plan, pack and scalars must not change during it.
  ATTN_STANDIN_CUDNN(cudnnBackendExecute, checked, STANDIN_ANY)
  check_scalars(*launch);
  const int result = driver()->enqueue(
      handle.stream, kName, [](void* data) { static_cast<Launch*>(data)->run(); },
      [](void* data) { delete static_cast<Launch*>(data); }, launch.release());
  return result == 0 ? CUDNN_STATUS_SUCCESS
                     : fail(CUDNN_STATUS_EXECUTION_FAILED, "the driver did not launch it");
}

}  // namespace attn::standin
