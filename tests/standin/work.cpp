#include "tests/standin/work.h"

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>

namespace attn::standin {
namespace {

using Json = nlohmann::json;

constexpr const char* kRoles[] = {"input", "output", "scalar", "untouched", "mapped"};

std::uint64_t mixed(std::uint64_t state) {  // the finalizer of splitmix64
  state += 0x9e3779b97f4a7c15;
  state = (state ^ (state >> 30)) * 0xbf58476d1ce4e5b9;
  state = (state ^ (state >> 27)) * 0x94d049bb133111eb;
  return state ^ (state >> 31);
}

std::size_t bytes_read(const Operand& operand) {
  const std::size_t most = operand.role == Role::scalar ? kScalarBytes : kReadBytes;
  return std::min(static_cast<std::size_t>(operand.bytes), most);
}

void fill(void* place, std::int64_t bytes, std::uint64_t state) {
  auto* to = static_cast<std::byte*>(place);
  for (std::int64_t done = 0; done < bytes; done += 8) {
    state = mixed(state);
    std::memcpy(to + done, &state,
                static_cast<std::size_t>(std::min<std::int64_t>(8, bytes - done)));
  }
}

Json json_of(const Work& work) {
  Json operands = Json::array();
  for (const Operand& operand : work.operands) {
    operands.push_back({{"role", kRoles[static_cast<std::size_t>(operand.role)]},
                        {"uid", operand.uid},
                        {"bytes", operand.bytes}});
  }
  return {{"salt", work.salt}, {"workspace", work.workspace}, {"operands", operands}};
}

std::optional<Work> work_of(const Json& json) {
  if (!json.is_object() || !json.contains("salt") || !json.contains("operands")) return {};
  Work work{json["salt"], json.value("workspace", std::int64_t{0}), {}};
  for (const Json& entry : json["operands"]) {
    const auto* role = std::ranges::find(kRoles, entry.value("role", std::string()));
    if (role == std::end(kRoles)) return {};
    work.operands.push_back({static_cast<Role>(role - std::begin(kRoles)),
                             entry.value("uid", std::int64_t{0}),
                             entry.value("bytes", std::int64_t{0})});
  }
  return work;
}

}  // namespace

std::uint64_t mixed(std::uint64_t state, std::span<const std::byte> bytes) {
  for (std::size_t i = 0; i < bytes.size(); i += 8) {
    std::uint64_t word = 0;
    std::memcpy(&word, bytes.data() + i, std::min<std::size_t>(8, bytes.size() - i));
    state = mixed(state ^ word);
  }
  return mixed(state ^ bytes.size());
}

void run(const Work& work, std::span<void* const> places) {
  std::uint64_t digest = work.salt;
  for (std::size_t i = 0; i < work.operands.size(); ++i) {
    const Operand& operand = work.operands[i];
    if (operand.role == Role::output || operand.role == Role::untouched) continue;
    digest = mixed(digest, {static_cast<const std::byte*>(places[i]), bytes_read(operand)});
  }
  for (std::size_t i = 0; i < work.operands.size(); ++i) {
    if (work.operands[i].role == Role::output) {
      fill(places[i], work.operands[i].bytes, digest + i);
    }
  }
}

std::string to_json(const PlanText& plan) {
  return Json({{"standin plan", json_of(plan.work)}, {"version", plan.version}, {"sm", plan.sm}})
      .dump();
}

std::optional<PlanText> parse_plan(std::string_view text) {
  const Json json = Json::parse(text, nullptr, false);
  if (!json.is_object() || !json.contains("standin plan")) return {};
  const std::optional<Work> work = work_of(json["standin plan"]);
  if (!work) return {};
  return PlanText{*work, json.value("version", std::int64_t{0}), json.value("sm", std::int64_t{0})};
}

std::string to_json(const Kernels& kernels) {
  Json json = Json::object();
  for (const auto& [name, work] : kernels) json[name] = json_of(work);
  return Json({{"standin kernels", json}}).dump();
}

std::optional<Kernels> parse_kernels(std::string_view text) {
  const Json json = Json::parse(text, nullptr, false);
  if (!json.is_object() || !json.contains("standin kernels")) return {};
  Kernels kernels;
  for (const auto& [name, kernel] : json["standin kernels"].items()) {
    std::optional<Work> work = work_of(kernel);
    if (!work) return {};
    kernels.emplace(name, std::move(*work));
  }
  return kernels;
}

}  // namespace attn::standin
