#include "tests/fuzz/manifest_mutator.h"

#include <limits>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/graph/extent.h"
#include "runtime/plan/container.h"
#include "runtime/plan/manifest.h"

namespace attn::fuzz {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::int64_t kMax = std::numeric_limits<std::int64_t>::max();
constexpr std::int64_t kMin = std::numeric_limits<std::int64_t>::min();

// Placeholder in the tree for raw text that is not a JSON value.
constexpr std::string_view kPlaceholder = "raw text goes here";

// Small integers, and integers near the limits of types, of the format and of products.
std::int64_t some_integer(Decisions& decisions) {
  switch (decisions.below(6)) {
    case 0: return decisions.below(20);
    case 1: return -static_cast<std::int64_t>(decisions.below(20));
    case 2: return kMax - decisions.below(3);
    case 3: return kMin + decisions.below(3);
    default: return (std::int64_t{1} << decisions.below(63)) + decisions.below(3) - 1;
  }
}

std::string some_word(Decisions& decisions) {
  return decisions.pick({"query",    "key",     "value",         "captured",    "output",
                         "stats",    "control", "internal",      "saved",       "cotangent",
                         "gradient", "f16",     "bf16",          "f32",         "f64",
                         "i8",       "u8",      "i32",           "i64",         "bool",
                         "device",   "cudnn",   "virtual_value", "host_scalar", "derive",
                         "matmul",   "rng",     "paged_load",    "band_mask",   "reshape",
                         "add",      "mul",     "max",           "gen_index",   "binary_select",
                         "left",     "inf",     "nan",           "q",           "k",
                         "v",        "o",       "once",          "table",       "p0",
                         "",         "\x1b[2J", "a\nb",          "\x7f",        "\u202e"});
}

std::string some_key(Decisions& decisions) {
  return decisions.pick({"addressed_by", "ragged",  "offset", "amends", "axis",      "dropout",
                         "lengths_q",    "table_k", "m",      "check",  "internals", "kernels",
                         "seed",         "sink",    "scale",  "stats",  "score",     "modified",
                         "shape",        "choice",  "bound",  "pos",    "counting",  "unknown"});
}

// Numbers out of range, deep nesting, bytes that are not UTF-8, and text that is not JSON.
std::string some_raw_text(Decisions& decisions) {
  const std::size_t depth = std::size_t{1} << (4 + decisions.below(14));
  switch (decisions.below(8)) {
    case 0: return "99999999999999999999999999";
    case 1: return "-1e999";
    case 2: return std::string(depth, '[') + std::string(depth, ']');
    case 3: return std::string(depth, '{');
    case 4: return "\"" + std::string(depth, 'x') + "\"";
    case 5: return "\"\xff\xfe\"";
    case 6: return "\"\\ud800\"";
    default: return "{\"hex\": \"" + std::string(decisions.below(9), 'f') + "\"}";
  }
}

void collect(Json& value, std::vector<Json*>& all) {
  all.push_back(&value);
  if (!value.is_structured()) return;
  for (Json& inner : value) collect(inner, all);
}

class Mutator {
 public:
  Mutator(Json& root, Decisions& decisions) : decisions_(decisions) { collect(root, all_); }

  // Applies at most one change. Invalidates pointers to other values of the tree.
  void run() {
    Json& value = any();
    switch (decisions_.below(16)) {
      case 0:
      case 1:
      case 2: any_of(&Json::is_number) = some_integer(decisions_); break;
      case 3: any_of(&Json::is_string) = some_word(decisions_); break;
      case 4:
      case 5: copy(any(), value); break;
      case 6: erase_member(value); break;
      case 7: repeat_element(any_of(&Json::is_array)); break;
      case 8: erase_element(any_of(&Json::is_array)); break;
      case 9: swap_elements(any_of(&Json::is_array)); break;
      case 10: value = of_another_type(); break;
      case 11: add_member(any_of(&Json::is_object)); break;
      case 12:
      case 13:
      case 14: change_shape(any_of(&is_tensor)); break;
      default: value = kPlaceholder;
    }
  }

 private:
  Json& any() { return *all_[decisions_.index(all_.size())]; }

  // The first value, from a random start, for which `holds` is true; any value if there is none.
  template <typename Holds>
  Json& any_of(Holds holds) {
    const std::size_t start = decisions_.index(all_.size());
    for (std::size_t i = 0; i < all_.size(); ++i) {
      Json* value = all_[(start + i) % all_.size()];
      if (std::invoke(holds, *value)) return *value;
    }
    return *all_[start];
  }

  static bool is_tensor(const Json& value) {
    return value.is_object() && value.contains("dims") && value["dims"].is_array() &&
           value.contains("strides") && value["strides"].is_array();
  }

  static void copy(const Json& from, Json& to) {
    Json copied = from;
    to = std::move(copied);
  }

  void erase_member(Json& value) {
    if (!value.is_object() || value.empty()) return;
    auto member = value.begin();
    std::advance(member, static_cast<std::ptrdiff_t>(decisions_.index(value.size())));
    value.erase(member.key());
  }

  void repeat_element(Json& value) {
    if (!value.is_array() || value.empty()) return;
    const Json element = value[decisions_.index(value.size())];
    const std::size_t times = decisions_.one_in(8) ? 1000 : 1;
    for (std::size_t i = 0; i < times; ++i) value.push_back(element);
  }

  void erase_element(Json& value) {
    if (value.is_array() && !value.empty()) value.erase(decisions_.index(value.size()));
  }

  void swap_elements(Json& value) {
    if (!value.is_array() || value.empty()) return;
    std::swap(value[decisions_.index(value.size())], value[decisions_.index(value.size())]);
  }

  Json of_another_type() {
    switch (decisions_.below(6)) {
      case 0: return Json::array();
      case 1: return Json::object();
      case 2: return nullptr;
      case 3: return true;
      case 4: return 1.5;
      default: return some_word(decisions_);
    }
  }

  void add_member(Json& value) {
    if (!value.is_object()) return;
    value[some_key(decisions_)] =
        decisions_.one_in(3) ? Json(some_word(decisions_)) : Json(some_integer(decisions_));
  }

  // Sets sizes whose product may overflow, with packed strides or strides of 0.
  void change_shape(Json& value) {
    if (!is_tensor(value)) return;
    std::vector<std::int64_t> dims;
    for (std::size_t i = 0; i < value["dims"].size() && i < 16; ++i) {
      dims.push_back(std::int64_t{1} << decisions_.below(42));
    }
    value["dims"] = dims;
    value["strides"] =
        decisions_.one_in(2) ? std::vector<std::int64_t>(dims.size(), 0) : row_major_strides(dims);
  }

  Decisions& decisions_;
  std::vector<Json*> all_;
};

// Recomputes the derived fields of a valid program, as the plan's writer does.
void fit(Json& json, plan::Plan plan) {
  const Result<plan::Program> program = plan::program_from_json(json["program"].dump());
  if (!program.ok() || !plan::validate(*program).ok()) return;
  plan.program = *program;
  const Json& target = json["target"];
  plan.target = {target["name"], target["sm"], target["device"]};
  plan.cudnn_version = json["cudnn_version"];
  plan.nvrtc_version = json.value("nvrtc_version", "");
  for (std::size_t i = 0; i < plan.compiled.size() && i < json["compiled"].size(); ++i) {
    const std::int64_t bytes = json["compiled"][i]["workspace_bytes"];
    plan.compiled[i].workspace_bytes = std::clamp<std::int64_t>(bytes, 0, std::int64_t{1} << 60);
  }
  plan.signature = plan::signature_of(plan);
  json["workspace_bytes"] = plan.workspace_bytes();
  json["signature"] = plan.signature.hash.to_hex();
}

// Duplicates a member.
void repeat_key(std::string& text, Decisions& decisions) {
  const std::size_t start = text.find(",\"", decisions.index(text.size()));
  if (start == std::string::npos) return;
  const std::size_t end = text.find(',', start + 1);
  if (end != std::string::npos) text.insert(start, text.substr(start, end - start));
}

std::string text_of(const Json& json, Decisions& decisions) {
  std::string text = json.dump(-1, ' ', false, Json::error_handler_t::replace);
  const std::string placeholder = '"' + std::string(kPlaceholder) + '"';
  for (std::size_t at = text.find(placeholder); at != std::string::npos;
       at = text.find(placeholder, at)) {
    text.replace(at, placeholder.size(), some_raw_text(decisions));
  }
  if (decisions.one_in(16)) repeat_key(text, decisions);
  if (decisions.one_in(64)) text.resize(decisions.index(text.size()));
  return text;
}

std::string changed_manifest(const plan::Plan& plan, Decisions& decisions) {
  Json json = Json::parse(plan::manifest_json(plan));
  const unsigned changes = decisions.one_in(3) ? 1 + decisions.below(6) : 1;
  for (unsigned i = 0; i < changes; ++i) Mutator(json, decisions).run();
  if (!decisions.one_in(8)) {
    try {
      fit(json, plan);
    } catch (const Json::exception&) {  // the mutation removed a required value
    }
  }
  return text_of(json, decisions);
}

}  // namespace

std::string file_with_changed_manifest(const plan::Bundle& bundle, Decisions& decisions) {
  const std::size_t changed = decisions.index(bundle.plans.size());
  std::vector<std::string> manifests;
  for (std::size_t i = 0; i < bundle.plans.size(); ++i) {
    const plan::Plan& plan = bundle.plans[i];
    manifests.push_back(i == changed ? changed_manifest(plan, decisions)
                                     : plan::manifest_json(plan));
  }
  std::vector<plan::SectionSource> sections;
  for (std::size_t i = 0; i < bundle.plans.size(); ++i) {
    sections.push_back({plan::kManifestSection, false, false, manifests[i]});
    for (const plan::CompiledStep& step : bundle.plans[i].compiled) {
      sections.push_back({plan::kCudnnPlanSection, true, false, step.cudnn_plan});
    }
    for (const std::string& image : bundle.plans[i].kernels) {
      sections.push_back({plan::kKernelSection, true, false, image});
    }
  }
  return plan::write_container(sections);
}

}  // namespace attn::fuzz
