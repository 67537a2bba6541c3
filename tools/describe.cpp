#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <set>

#include "compiler/ast/parse.h"
#include "compiler/driver/divisible.h"
#include "compiler/driver/driver.h"
#include "compiler/driver/shape.h"
#include "compiler/engines/shared/interface.h"
#include "compiler/engines/shared/operands.h"
#include "compiler/engines/shared/quantized.h"
#include "compiler/gradient/differentiate.h"
#include "compiler/ir/branches.h"
#include "compiler/ir/cache_scales.h"
#include "compiler/masks/mask_analysis.h"
#include "compiler/reference/defaults.h"
#include "tools/command.h"
#include "tools/console.h"
#include "tools/inputs.h"
#include "tools/report.h"
#include "tools/spec.h"
#include "tools/table.h"

namespace attn::tools {
namespace describe_command {
namespace {

using ir::LayoutKind;
using Role = plan::TensorRole;

struct Options {
  std::string path;
  sema::Bindings bindings;
  Edits edits;
  Format format = Format::text;
};

// A spec: as it is with these bindings, and with every dimension open.
struct Described {
  std::shared_ptr<const support::Source> source;
  ast::Spec written;
  ir::Attention attention;
  ir::Attention open;
  driver::KnownSizes sizes;
};

LayoutKind kind_of(const ir::Attention& attention, std::string_view tensor) {
  return attention.layouts.find(tensor)->second.kind;
}

// Gradients have none.
bool has_bound_strides(const ir::Attention& attention, std::string_view tensor) {
  const auto found = attention.layouts.find(tensor);
  return found != attention.layouts.end() && found->second.bound_strides;
}

// The default of a scale, if it does not depend on sizes that are open.
std::optional<double> default_of(const ir::Attention& attention, const ir::CapturedTensor& scale) {
  if (!scale.fallback) return std::nullopt;
  const ir::ExprId roots[] = {*scale.fallback};
  for (const ir::ExprId id : ir::reachable(attention.dag, roots)) {
    if (attention.dag[id].is(ir::Op::dim_)) return std::nullopt;
  }
  const auto known = reference::default_values(attention, scale);
  return known.ok() ? std::optional(known->values.at(0)) : std::nullopt;
}

bool is_packed(const ir::Attention& attention) {
  return kind_of(attention, "q") == LayoutKind::thd;
}

// Whether there is a backward: caches are not trained.
bool has_backward(const ir::Attention& attention) {
  return !attention.cache && !attention.values_of_keys && !attention.gather;
}

// Tensors of which a backward has gradients.
std::vector<std::string> gradients_of(const ir::Attention& attention) {
  if (!has_backward(attention)) return {};
  return gradient::wanted_gradients(attention);
}

// The tensors of the program that a spec becomes, with its dimensions by name.
class Tensors {
 public:
  explicit Tensors(const Described& spec) : spec_(spec), attention_(spec.attention) {}

  Json make() && {
    add_io("q", Role::query, {"B", "Hq", "Sq", "Dqk"});
    add_io("k", Role::key, {"B", "Hkv", "Skv", "Dqk"});
    if (!attention_.values_of_keys) add_io("v", Role::value, {"B", "Hkv", "Skv", "Dv"});
    for (const ir::CapturedTensor& tensor : attention_.tensors) add_captured(tensor);
    add_controls();
    add_outputs();
    add_gradients();
    return std::move(list_);
  }

 private:
  Json& add(std::string_view name, Role role, DType dtype, std::vector<std::string> dims) {
    Json entry = {
        {"name", name}, {"role", to_string(role)}, {"dtype", to_string(dtype)}, {"dims", dims}};
    list_.push_back(std::move(entry));
    return list_.back();
  }

  Json& add_io(std::string_view name, Role role, std::vector<std::string> dims) {
    Json& entry = add(name, role, attention_.dtype_of(name), std::move(dims));
    const std::string by = engines::addressed_by(attention_, name);
    if (!by.empty()) entry["addressed_by"] = by;
    if (has_bound_strides(attention_, name)) entry["strides"] = "bound";
    return entry;
  }

  std::vector<std::string> dims_of(const ir::CapturedTensor& tensor) const {
    const ir::CapturedTensor* named = spec_.open.find_tensor(tensor.name);
    const ir::Attention& from = named == nullptr ? attention_ : spec_.open;
    std::vector<std::string> dims;
    for (const ir::ExprId extent : (named == nullptr ? tensor : *named).extents) {
      dims.push_back(ir::to_source(from, extent));
    }
    return dims;
  }

  void add_captured(const ir::CapturedTensor& tensor) {
    if (is_derived(tensor.name)) return;
    Json& entry = add(tensor.name, Role::captured, tensor.dtype, dims_of(tensor));
    entry["learned"] = tensor.learned;
    entry["differentiable"] = tensor.learned || gradient::can_learn(attention_, tensor.name);
    entry["has_default"] = tensor.fallback.has_value();
    entry["optional"] = ir::is_scale(tensor.name) && has_known_default(tensor.name);
    entry["monotone"] = tensor.monotone;
    for (const auto& [name, fact] :
         {std::pair{"runs", tensor.runs}, std::pair{"longest_run", tensor.longest_run}}) {
      if (fact) entry[name] = ir::to_source(attention_, *fact);
    }
  }

  bool has_known_default(const std::string& name) const {
    const ir::CapturedTensor* scale = spec_.open.find_tensor(name);
    return scale != nullptr && default_of(spec_.open, *scale);
  }

  // Lengths of packed sequences follow from where these begin.
  bool is_derived(std::string_view name) const {
    if (name == ir::kLengthsQ) return is_packed(attention_);
    return name == ir::kLengthsKv && kind_of(attention_, "k") == LayoutKind::thd;
  }

  void add_controls() {
    std::vector<std::string> known;
    for (const char* name : {"q", "k", "v"}) {
      const std::string by = engines::addressed_by(attention_, name);
      if (by.empty() || std::ranges::find(known, by) != known.end()) continue;
      known.push_back(by);
      const bool is_table = kind_of(attention_, name) == LayoutKind::paged;
      Json& entry = add(by, Role::control, DType::i32,
                        is_table ? std::vector<std::string>{"B", "pages of a row"}
                                 : std::vector<std::string>{"B + 1"});
      if (is_table && has_bound_strides(attention_, name)) entry["strides"] = "bound";
    }
    if (!attention_.is_random()) return;
    for (const char* name : {engines::kSeed, engines::kOffset}) {
      add(name, Role::control, DType::i64, {"1"})["optional"] = true;
    }
  }

  void add_outputs() {
    for (const ir::Output& output : ir::kOutputs) {
      if (!(attention_.*output.wanted)) continue;
      if (ir::is_o(output.name)) {
        add_io(output.name, Role::output, {"B", "Hq", "Sq", "Dv"});
      } else if (ir::is_amax(output.name)) {
        add(output.name, Role::amax, DType::f32, {"1"});
      } else {
        add(output.name, Role::stats, DType::f32, {"B", "Hq", "Sq"});
      }
    }
    for (const ir::Branch& branch : attention_.branches) {
      if (!attention_.wants_branches) break;
      add(branch.o.name, Role::output, branch.o.dtype, {"B", "Hq", "Sq", "Dv"});
      if (!branch.attention.is_pointwise())
        add(branch.lse(), Role::stats, DType::f32, {"B", "Hq", "Sq"});
    }
  }

  void add_gradients() {
    if (!has_backward(attention_)) return;
    add_io("do", Role::cotangent, {"B", "Hq", "Sq", "Dv"});
    if (attention_.reads_d_lse)
      add(engines::kLseCotangent, Role::cotangent, DType::f32, {"B", "Hq", "Sq"});
    const Json inputs = list_;
    for (const std::string& of : gradient::wanted_gradients(attention_)) {
      for (const Json& input : inputs) {
        if (input["name"] != of) continue;
        const std::string name = gradient::gradient_name(of);
        const ir::CapturedTensor* captured = attention_.find_tensor(of);
        Json& entry = captured ? add(name, Role::gradient, captured->dtype, input["dims"])
                               : add_io(name, Role::gradient, input["dims"]);
        entry["of"] = of;
      }
    }
    if (!attention_.quantize || attention_.gradients.empty()) return;
    for (const char* name : engines::amax_of_gradients(attention_)) {
      add(name, Role::amax, DType::f32, {"1"})["of_backward"] = true;
    }
  }

  const Described& spec_;
  const ir::Attention& attention_;
  Json list_ = Json::array();
};

// A number, a list of the numbers of several plans, or null.
Json sizes_json(const driver::KnownSizes& known) {
  Json json = Json::object();
  for (const ir::Dim dim : ir::kDims) {
    const auto& sizes = known.of[static_cast<std::size_t>(dim)];
    Json& size = json[std::string(to_string(dim))];
    if (sizes.size() == 1) size = sizes.front();
    if (sizes.size() > 1) size = sizes;
  }
  return json;
}

Json layouts_json(const ir::Attention& attention) {
  Json json = Json::object();
  for (const char* name : {"q", "k", "v", "o"}) {
    const ir::Layout& layout = attention.layouts.find(name)->second;
    Json& entry = json[name];
    entry["kind"] = to_string(layout.kind);
    if (layout.kind == LayoutKind::strided) entry["strides"] = layout.strides;
    if (layout.bound_strides) entry["strides"] = "bound";
    if (layout.kind != LayoutKind::paged) continue;
    entry["page"] = layout.page;
    if (layout.rows) entry["rows"] = to_string(*layout.rows);
    if (layout.pages > 0) entry["pages"] = layout.pages;
    entry["table"] = engines::page_table_name(attention, name);
  }
  return json;
}

std::vector<std::string> lengths_of(const ir::Attention& attention) {
  std::vector<std::string> names;
  if (attention.lengths_q) names.emplace_back(ir::kLengthsQ);
  if (attention.lengths_kv) names.emplace_back(ir::kLengthsKv);
  return names;
}

// Those of all branches.
Json masks_json(const ir::Attention& attention) {
  std::size_t count = 0;
  masks::Axes axes;
  std::set<std::string> reads;
  for (const ir::Attention* each : ir::attentions_of(attention)) {
    count += each->masks.size();
    axes = axes | masks::analyzed(*each, {})->axes();
    reads.merge(names_read(*each, Needs::masks));
  }
  Json indexes = Json::array();
  const std::pair<bool, const char*> all[] = {
      {axes.batch, "b"}, {axes.head, "h"}, {axes.row, "q_idx"}, {axes.column, "kv_idx"}};
  for (const auto& [is_read, name] : all) {
    if (is_read) indexes.push_back(name);
  }
  return {{"count", count}, {"indexes", indexes}, {"reads", reads}};
}

Json facts_json(const Described& spec, const sema::Bindings& bindings) {
  const ir::Attention& attention = spec.attention;
  Json padded = Json::array();
  for (const plan::Dim dim : driver::paddable_dims(*spec.source, bindings, attention)) {
    padded.push_back(to_string(dim));
  }
  Json divisible = Json::array();
  for (const ir::Dim dim : driver::divisible_dims(*spec.source, bindings)) {
    divisible.push_back(to_string(dim));
  }
  Json facts = {{"normalize", to_string(attention.normalize)},
                {"sink", attention.sink.has_value()},
                {"epilogue", attention.epilogue.has_value()},
                {"dropout", attention.dropout.has_value()},
                {"random", attention.is_random()},
                {"deterministic", attention.deterministic},
                {"grad", !attention.gradients.empty()},
                {"grad_of_lse", attention.reads_d_lse},
                {"packed", is_packed(attention)},
                {"lengths", lengths_of(attention)},
                {"align", to_string(attention.align)},
                {"aligned", spec.sizes.aligned},
                {"group", nullptr},
                {"padded", padded},
                {"divisible", divisible},
                {"masks", masks_json(attention)}};
  if (spec.sizes.group) facts["group"] = *spec.sizes.group;
  if (attention.values_of_keys) facts["values_of_keys"] = true;  // there is no input v
  if (attention.gather) facts["gather"] = true;
  return facts;
}

// Types, and the scales with their defaults: null for one that depends on sizes.
Json quantize_json(const ir::Attention& attention) {
  Json json = {{"by", to_string(attention.quantize->by)}, {"scales", Json::object()}};
  json["o"] = to_string(attention.quantize->o);
  json["do"] = to_string(attention.quantize->d_o);
  json["gradients"] = to_string(attention.quantize->gradients);
  for (const ir::CapturedTensor& tensor : attention.tensors) {
    if (!ir::is_scale(tensor.name)) continue;
    Json& scale = json["scales"][tensor.name];
    if (const auto known = default_of(attention, tensor)) scale = *known;
  }
  return json;
}

// In the order of the clause, which is that of results.
std::vector<std::string> outputs_of(const ast::Spec& spec) {
  std::vector<std::string> names;
  for (const ast::Clause& clause : spec.clauses) {
    const auto* outputs = std::get_if<ast::OutputsClause>(&clause.body);
    if (outputs == nullptr) continue;
    for (const ast::Name& name : outputs->outputs) names.push_back(name.text);
  }
  return names.empty() ? std::vector<std::string>{"o"} : names;
}

// The outputs that a backward reads.
std::vector<std::string> saved_by(const ir::Attention& attention) {
  std::vector<std::string> names = {attention.epilogue ? "o_inner" : "o"};
  if (!attention.is_pointwise()) names.emplace_back("lse");
  for (const ir::Branch& branch : attention.branches) {
    names.push_back(branch.o.name);
    if (!branch.attention.is_pointwise()) names.push_back(branch.lse());
  }
  return names;
}

Json to_json(const Described& spec, const sema::Bindings& bindings) {
  const ir::Attention& attention = spec.attention;
  Json json = {{"name", attention.name},
               {"parameters", Json::array()},
               {"dims", sizes_json(spec.sizes)},
               {"open", spec.sizes.open},
               {"dtype", to_string(attention.dtype)},
               {"layouts", layouts_json(attention)},
               {"tensors", Tensors(spec).make()},
               {"params", Json::array()},
               {"outputs", outputs_of(spec.written)},
               {"saved", saved_by(attention)},
               {"gradients", gradients_of(attention)},
               {"facts", facts_json(spec, bindings)}};
  for (const ir::Param& param : attention.params) {
    json["params"].push_back({{"name", param.name}, {"dtype", to_string(param.dtype)}});
  }
  for (const ast::SpecParameter& one : spec.written.parameters) {
    json["parameters"].push_back(one.name.text);
  }
  if (attention.quantize) json["quantize"] = quantize_json(spec.open);
  if (attention.cache) {
    json["cache"] = {{"of", to_string(attention.cache->by)},
                     {"k", to_string(attention.cache->k)},
                     {"v", to_string(attention.cache->v)},
                     {"token_bytes", nullptr}};
    const auto is_known = [&spec](ir::Dim dim) {
      return spec.sizes.of[static_cast<std::size_t>(dim)].size() == 1;
    };
    if (std::ranges::all_of(std::array{ir::Dim::Hkv, ir::Dim::Dqk, ir::Dim::Dv}, is_known))
      json["cache"]["token_bytes"] = ir::bytes_of_token(attention);
  }
  return json;
}

std::string joined(const Json& names) {
  std::string text;
  for (const Json& name : names) {
    text += (text.empty() ? "" : ", ") + (name.is_string() ? name.get<std::string>() : name.dump());
  }
  return text.empty() ? "none" : text;
}

// "learned", "differentiable", "monotone", "of q": what a row of the table says beside shape.
std::string notes_of(const Json& tensor) {
  std::vector<std::string> notes;
  for (const char* flag : {"learned", "monotone"}) {
    if (tensor.value(flag, false)) notes.emplace_back(flag);
  }
  if (tensor.value("differentiable", false) && !tensor["learned"]) {
    notes.emplace_back("could be learned");
  }
  if (tensor.value("has_default", false)) notes.emplace_back("has a default");
  if (tensor.value("optional", false)) notes.emplace_back("may be left out");
  for (const char* name : {"runs", "longest_run", "addressed_by", "strides"}) {
    if (tensor.contains(name)) notes.push_back(fmt::format("{} {}", name, joined({tensor[name]})));
  }
  return fmt::format("{}", fmt::join(notes, ", "));
}

std::string to_text(const Json& json) {
  std::string sizes;
  for (const auto& [dim, size] : json["dims"].items()) {
    sizes += fmt::format(" {}={}", dim, size.is_null() ? "?" : size.dump());
  }
  std::string text = fmt::format("{} {}{}\n", json["name"].get<std::string>(),
                                 json["dtype"].get<std::string>(), sizes);
  Table table({{"tensor"}, {"role"}, {"dtype"}, {"dims"}, {""}});
  for (const Json& tensor : json["tensors"]) {
    table.add({tensor["name"].get<std::string>(), tensor["role"].get<std::string>(),
               tensor["dtype"].get<std::string>(), "[" + joined(tensor["dims"]) + "]",
               notes_of(tensor)});
  }
  text += table.to_text("  ");
  Json rows = {{"open", json["open"]},
               {"parameters", json["parameters"]},
               {"params", Json::array()},
               {"outputs", json["outputs"]},
               {"gradients", json["gradients"]}};
  for (const Json& param : json["params"]) rows["params"].push_back(param["name"]);
  for (const auto& [name, names] : rows.items()) {
    text += fmt::format("  {:<14} {}\n", name, joined(names));
  }
  for (const auto& [name, fact] : json["facts"].items()) {
    text += fmt::format("  {:<14} {}\n", name,
                        name == "masks"   ? joined(fact["indexes"])
                        : fact.is_array() ? joined(fact)
                                          : joined({fact}));
  }
  return text;
}

// The checked spec; nothing, after its errors were reported.
std::optional<Described> read(const support::Source& source, const Options& options, int& code) {
  Described made{std::make_shared<const support::Source>(source), {}, {}, {}, {}};
  diag::Sink sink(*made.source);
  driver::CheckedSizes checked = driver::check_all_sizes(*made.source, options.bindings, sink);
  print_diagnostics(diag::to_text(sink, error_paint()));
  code = kSpecHasErrors;
  if (!checked.first) print_data(Json::parse(diag::to_json(sink)), options.format);
  if (!checked.first || report_denied(sink, options.format)) return std::nullopt;
  made.written = *ast::parse(*made.source, sink);
  made.attention = std::move(*checked.first);
  auto open = driver::opened(*made.source, options.bindings, ir::kDims);
  made.open = open ? std::move(*open) : made.attention;
  made.sizes = driver::known_sizes(*made.source, options.bindings);
  return made;
}

int run(const Options& options) {
  const Result<support::Source> source = read_source(options.path, options.edits);
  if (!source.ok()) return report(source.error(), options.format);
  int code = kOk;
  const std::optional<Described> spec = read(*source, options, code);
  if (!spec) return code;
  const Json json = to_json(*spec, options.bindings);
  if (options.format == Format::json) {
    print_json(json);
  } else {
    put(to_text(json));
  }
  return kOk;
}

}  // namespace
}  // namespace describe_command

void add_describe(CLI::App& app, Action& action) {
  using namespace describe_command;
  auto options = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand(
      "describe", "Say what a spec is: sizes, tensors, gradients, layouts, outputs, facts");
  command->add_option("spec", options->path, "File (.attn, .attn.json), or - for standard input")
      ->type_name("SPEC")
      ->required();
  add_bind(*command, options->bindings);
  add_edits(*command, options->edits);
  add_deny(*command);
  add_format(*command, options->format);
  set_action(*command, action, options, run);
}

}  // namespace attn::tools
