// Creates plans from operation graphs and from JSON.
#include <algorithm>
#include <fstream>
#include <mutex>
#include <nlohmann/json.hpp>
#include <set>
#include <string_view>

#include "tests/standin/cudnn_state.h"

namespace attn::standin {
namespace {

using Json = nlohmann::json;

constexpr std::pair<std::string_view, cudnnBackendHeurMode_t> kModes[] = {
    {"A", CUDNN_HEUR_MODE_A}, {"B", CUDNN_HEUR_MODE_B}, {"FALLBACK", CUDNN_HEUR_MODE_FALLBACK}};

using Offers = std::map<cudnnBackendHeurMode_t, Offer>;

Offers usual_offers() { return {{CUDNN_HEUR_MODE_A, Offer{{Config{}}, 0, 0, ""}}}; }

std::mutex offers_mutex;
Offers offers = usual_offers();

Config parse_config(const Json& json) {
  Config config;
  config.engine = json.at("engine");
  config.workspace = json.value("workspace", config.workspace);
  config.status = json.value("status", 0);
  config.words = json.value("words", std::string());
  const Json knobs = json.value("knobs", Json::object());
  for (const auto& [type, value] : knobs.items()) {
    config.knobs.emplace_back(std::stoll(type), value.get<std::int64_t>());
  }
  return config;
}

// Whether an operation writes the tensor of this attribute, by the suffix of its name.
bool is_written_through(std::string_view attribute) {
  for (const std::string_view end : {"_YDESC", "_CDESC", "_ODESC", "_STATSDESC", "_STATS_DESC"}) {
    if (attribute.ends_with(end)) return true;
  }
  return false;
}

std::int64_t element_bytes(cudnnDataType_t type) {
  switch (type) {
    case CUDNN_DATA_DOUBLE:
    case CUDNN_DATA_INT64: return 8;
    case CUDNN_DATA_FLOAT:
    case CUDNN_DATA_INT32: return 4;
    case CUDNN_DATA_HALF:
    case CUDNN_DATA_BFLOAT16: return 2;
    default: return 1;
  }
}

std::int64_t bytes_of(const Descriptor& tensor) {
  const Elements& dims = *tensor.find(CUDNN_ATTR_TENSOR_DIMENSIONS);
  const Elements& strides = *tensor.find(CUDNN_ATTR_TENSOR_STRIDES);
  std::int64_t last = 0;
  for (std::int64_t i = 0; i < dims.count; ++i) {
    last += (dims.at<std::int64_t>(i) - 1) * strides.at<std::int64_t>(i);
  }
  return (last + 1) *
         element_bytes(tensor.find(CUDNN_ATTR_TENSOR_DATA_TYPE)->at<cudnnDataType_t>());
}

bool flag(const Descriptor& tensor, cudnnBackendAttributeName_t name) {
  const Elements* found = tensor.find(name);
  return found != nullptr && found->at<bool>();
}

// Visits all descriptors of a graph, and collects its operands.
class Reader {
 public:
  Work read(const Descriptor& graph) {
    visit(graph, false);
    for (const auto& [uid, operand] : operands_) work_.operands.push_back(operand);
    return std::move(work_);
  }

 private:
  void visit(const Descriptor& descriptor, bool written) {
    if (descriptor.type == CUDNN_BACKEND_TENSOR_DESCRIPTOR) add(descriptor, written);
    if (!seen_.insert(&descriptor).second) return;
    for (const auto& [name, elements] : descriptor.set) {
      const cudnn::AttributeInfo& attribute = *find_attribute(name);
      if (attribute.type != CUDNN_TYPE_BACKEND_DESCRIPTOR) {
        work_.salt = mixed(work_.salt ^ name, elements.bytes);
        continue;
      }
      for (std::int64_t i = 0; i < elements.count; ++i) {
        visit(*descriptors().find(elements.at<void*>(i)), is_written_through(attribute.text));
      }
    }
  }

  void add(const Descriptor& tensor, bool written) {
    if (flag(tensor, CUDNN_ATTR_TENSOR_IS_VIRTUAL)) return;
    const auto uid = tensor.find(CUDNN_ATTR_TENSOR_UNIQUE_ID)->at<std::int64_t>();
    const Role kind = flag(tensor, CUDNN_ATTR_TENSOR_IS_BY_VALUE) ? Role::scalar : Role::input;
    auto [operand, added] = operands_.try_emplace(uid, Operand{kind, uid, bytes_of(tensor)});
    if (written) operand->second.role = Role::output;
  }

  Work work_;
  std::map<std::int64_t, Operand> operands_;
  std::set<const Descriptor*> seen_;
};

// Device properties of an H200, with another architecture.
std::string properties(const Handle& handle, std::int64_t sm) {
  std::ifstream file(ATTN_STANDIN_DEVICE);
  Json json = Json::parse(file);
  json["deviceVer"] = sm * 10;
  json["cudaDeviceId"] = handle.device;
  json["deviceName"] = "stand-in";
  return json.dump();
}

// Builds a plan from an engine config, with its scripted status.
cudnnStatus_t compile_plan(Descriptor& plan, const Descriptor& config) {
  plan.config = config.config;
  if (plan.config.status != 0) {
    say(plan.config.words);
    return static_cast<cudnnStatus_t>(plan.config.status);
  }
  Work work = *config.work;
  work.workspace = plan.config.workspace;
  plan.work = std::make_shared<const Work>(std::move(work));
  const Elements* device = plan.find(CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP);
  if (device != nullptr) plan.sm = descriptors().find(device->at<void*>())->sm;
  plan.json = to_json(PlanText{*plan.work, version(), plan.sm});
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t load_plan(Descriptor& plan, const Elements& text, Handle& handle) {
  const std::optional<PlanText> parsed = parse_plan(text.text());
  if (!parsed) return fail(CUDNN_STATUS_BAD_PARAM, "the plan is not valid JSON");
  if (parsed->version != version()) {
    return fail(CUDNN_STATUS_SERIALIZATION_VERSION_MISMATCH, "the plan is from another version");
  }
  if (parsed->sm != driver()->sm_of(handle.device)) {
    return fail(CUDNN_STATUS_NOT_SUPPORTED_ARCH_MISMATCH, "the plan is for another GPU");
  }
  plan.work = std::make_shared<const Work>(parsed->work);
  plan.json = text.text();
  plan.device = handle.device;
  plan.handle = &handle;
  ++handle.plans;
  return CUDNN_STATUS_SUCCESS;
}

// The work of the descriptor in an attribute.
std::shared_ptr<const Work> work_of(const Descriptor& descriptor,
                                    cudnnBackendAttributeName_t name) {
  return descriptors().find(descriptor.find(name)->at<void*>())->work;
}

cudnnStatus_t incomplete(const Descriptor& descriptor) {
  return breach("cudnnBackendFinalize", CUDNN_STATUS_BAD_PARAM,
                kind_name(descriptor.type) + " lacks an attribute");
}

bool has_all(const Descriptor& descriptor,
             std::initializer_list<cudnnBackendAttributeName_t> names) {
  return std::ranges::all_of(names, [&](auto name) { return descriptor.find(name) != nullptr; });
}

}  // namespace

void set_offer(const char* mode, const char* text) {
  const Json json = Json::parse(text);
  Offer offer;
  for (const Json& config : json.value("configs", Json::array())) {
    offer.configs.push_back(parse_config(config));
  }
  offer.surplus = json.value("surplus", std::int64_t{0});
  offer.status = json.value("status", 0);
  offer.words = json.value("words", std::string());
  const std::lock_guard lock(offers_mutex);
  for (const auto& [name, value] : kModes) {
    if (name == mode) offers[value] = offer;
  }
}

void reset_heuristics() {
  const std::lock_guard lock(offers_mutex);
  offers = usual_offers();
}

Offer offer_of(cudnnBackendHeurMode_t mode) {
  const std::lock_guard lock(offers_mutex);
  return offers[mode];
}

cudnnStatus_t finalize_tensor(const Descriptor& tensor) {
  if (!has_all(tensor, {CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_ATTR_TENSOR_DATA_TYPE,
                        CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_ATTR_TENSOR_STRIDES,
                        CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT})) {
    return incomplete(tensor);
  }
  const bool ranks = tensor.find(CUDNN_ATTR_TENSOR_DIMENSIONS)->count ==
                     tensor.find(CUDNN_ATTR_TENSOR_STRIDES)->count;
  return ranks ? CUDNN_STATUS_SUCCESS
               : breach("cudnnBackendFinalize", CUDNN_STATUS_BAD_PARAM,
                        "dimensions and strides differ in rank");
}

cudnnStatus_t finalize_graph(Descriptor& graph) {
  if (!has_all(graph, {CUDNN_ATTR_OPERATIONGRAPH_OPS})) return incomplete(graph);
  graph.work = std::make_shared<const Work>(Reader().read(graph));
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t finalize_device(Descriptor& device) {
  if (const Elements* raw = device.find(CUDNN_ATTR_DEVICEPROP_HANDLE)) {
    const Handle* handle = handles().find(raw->at<void*>());
    if (handle == nullptr) return incomplete(device);
    device.sm = driver()->sm_of(handle->device);
    device.json = properties(*handle, device.sm);
    return CUDNN_STATUS_SUCCESS;
  }
  const Elements* text = device.find(CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION);
  if (text == nullptr) return incomplete(device);
  device.json = text->text();
  const Json json = Json::parse(device.json, nullptr, false);
  if (!json.is_object() || !json.contains("deviceVer")) {
    return fail(CUDNN_STATUS_BAD_PARAM, "deviceVer is missing");
  }
  device.sm = json["deviceVer"].get<std::int64_t>() / 10;
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t finalize_heuristics(Descriptor& heuristics) {
  if (!has_all(heuristics, {CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, CUDNN_ATTR_ENGINEHEUR_MODE,
                            CUDNN_ATTR_ENGINEHEUR_DEVICEPROP})) {
    return incomplete(heuristics);
  }
  heuristics.work = work_of(heuristics, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH);
  const auto mode = heuristics.find(CUDNN_ATTR_ENGINEHEUR_MODE)->at<cudnnBackendHeurMode_t>();
  heuristics.offered = offer_of(mode).configs;
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t finalize_engine(Descriptor& engine) {
  if (!has_all(engine, {CUDNN_ATTR_ENGINE_OPERATION_GRAPH, CUDNN_ATTR_ENGINE_GLOBAL_INDEX})) {
    return incomplete(engine);
  }
  engine.work = work_of(engine, CUDNN_ATTR_ENGINE_OPERATION_GRAPH);
  engine.config.engine = engine.find(CUDNN_ATTR_ENGINE_GLOBAL_INDEX)->at<std::int64_t>();
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t finalize_config(Descriptor& config) {
  if (!has_all(config, {CUDNN_ATTR_ENGINECFG_ENGINE})) return incomplete(config);
  const Descriptor& engine =
      *descriptors().find(config.find(CUDNN_ATTR_ENGINECFG_ENGINE)->at<void*>());
  config.config = engine.config;
  config.work = engine.work;
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t finalize_plan(Descriptor& plan) {
  const StandinCuda* cuda = driver();
  if (cuda != nullptr && cuda->refuses_waits() != 0) {
    violate("cudnnBackendFinalize", "EXECUTION_PLAN while a stream captures");
  }
  if (const Elements* config = plan.find(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG)) {
    return compile_plan(plan, *descriptors().find(config->at<void*>()));
  }
  const Elements* text = plan.find(CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION);
  const Elements* handle = plan.find(CUDNN_ATTR_EXECUTION_PLAN_HANDLE);
  Handle* found = handle == nullptr ? nullptr : handles().find(handle->at<void*>());
  if (text == nullptr || found == nullptr) return incomplete(plan);
  return load_plan(plan, *text, *found);
}

}  // namespace attn::standin
