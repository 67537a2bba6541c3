#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <set>

#include "compiler/ast/parse.h"
#include "compiler/ir/cache_scales.h"
#include "compiler/sema/names.h"
#include "compiler/sema/operations.h"
#include "tools/lsp/features.h"
#include "tools/lsp/place.h"
#include "tools/spec.h"

namespace attn::tools::lsp {
namespace {

// Kinds of the protocol.
enum ItemKind : std::uint8_t {
  kFunctionItem = 3,
  kFieldItem = 5,
  kVariableItem = 6,
  kKeywordItem = 14,
  kFileItem = 17,
  kEnumItem = 20,
  kConstantItem = 21,
  kTypeItem = 25,
};
constexpr int kSnippet = 2;

// The standard library, parsed once.
struct StandardFile {
  std::string name;
  ast::Spec spec;
};
const std::vector<StandardFile>& standard_files() {
  static const std::vector<StandardFile> files = [] {
    std::vector<StandardFile> all;
    for (const support::EmbeddedFile& file : sema::standard_library()) {
      const support::Source source(std::string(file.name), std::string(file.text));
      diag::Sink unheard(source);
      if (auto spec = ast::parse(source, unheard)) {
        all.push_back({std::string(file.name), std::move(*spec)});
      }
    }
    return all;
  }();
  return files;
}

// "b" for B, "kv_idx" for Skv: what usually indexes an axis of this extent.
std::string index_of(const ast::Expr& extent) {
  if (extent.text == "B") return "b";
  if (extent.text == "Hq") return "h";
  if (extent.text == "Sq") return "q_idx";
  return extent.text == "Skv" ? "kv_idx" : "0";
}

class Completer {
 public:
  explicit Completer(const Request& request)
      : request_(request),
        lexed_(ast::lex(*request.analysis.source)),
        offset_(request.offset()),
        place_(place_at(request.analysis.source->text(), lexed_, offset_)) {}

  Json run() {
    switch (place_.expected) {
      case Expected::nothing: break;
      case Expected::path: paths(); break;
      case Expected::item: items(); break;
      case Expected::clause: clauses(); break;
      case Expected::dimension: dimensions(); break;
      case Expected::constant: constants(); break;
      case Expected::element:
        locals();
        constants();
        words(WordKind::function, kFunctionItem);
        break;
      case Expected::expression: expression(); break;
      case Expected::type: types(); break;
      case Expected::layout:
        words(WordKind::layout, kEnumItem);
        for (const char* tensor : {"q", "k", "v", "o"})
          word(WordKind::tensor, tensor, kVariableItem);
        break;
      case Expected::layout_kind: words(WordKind::layout, kEnumItem); break;
      case Expected::choice: choices(); break;
      case Expected::cache_scale: cache_scales(); break;
      case Expected::cache_type: cache_types(); break;
      case Expected::output: words(WordKind::output, kEnumItem); break;
      case Expected::side: words(WordKind::side, kEnumItem); break;
      case Expected::fact: words(WordKind::fact, kEnumItem); break;
      case Expected::gradient: gradients(); break;
      case Expected::input: inputs(); break;
      case Expected::tensor: tensors(); break;
    }
    return {{"isIncomplete", false}, {"items", std::move(items_)}};
  }

 private:
  Json& add(const std::string& label, ItemKind kind, const std::string& detail,
            const std::string& text) {
    if (!seen_.emplace(label, kind).second) return ignored_ = Json::object();
    Json item = {
        {"label", label}, {"kind", kind}, {"sortText", fmt::format("{:04}", items_.size())}};
    if (!detail.empty()) item["detail"] = detail;
    if (!text.empty()) item["documentation"] = text;
    items_.push_back(std::move(item));
    return items_.back();
  }

  void insert(Json& item, const std::string& snippet) const {
    if (!request_.client.has_snippets) return;
    item["insertText"] = snippet;
    item["insertTextFormat"] = kSnippet;
  }

  void word(WordKind kind, std::string_view name, ItemKind item) {
    const Word* found = word_named(kind, name);
    if (found) add(std::string(name), item, std::string(found->form), std::string(found->text));
  }
  void words(WordKind kind, ItemKind item) {
    for (const Word& one : all_words()) {
      if (one.kind == kind) word(kind, one.name, item);
    }
  }

  void paths() {
    std::set<std::string> names;
    for (const StandardFile& file : standard_files()) names.insert(file.name);
    std::error_code error;
    const auto folder = std::filesystem::path(request_.document.path).parent_path();
    for (std::filesystem::directory_iterator entry(folder, error), end; !error && entry != end;
         entry.increment(error)) {
      const std::string name = entry->path().filename().string();
      if (is_spec_name(name) && entry->path() != request_.document.path) names.insert(name);
    }
    const Range range = request_.document.text.range({place_.word_begin, offset_});
    for (const std::string& name : names) {
      Json& item = add(name, kFileItem, "", "");
      item["textEdit"] = {{"range", to_json(range)}, {"newText", name}};
    }
  }

  void items() {
    for (const char* name : {"import", "fn", "attention"})
      word(WordKind::clause, name, kKeywordItem);
  }

  // Adds clauses, but those that are there and may appear only once.
  void clauses() {
    constexpr std::string_view kRepeated[] = {"dims", "tensor", "learn", "param", "let",
                                              "fn",   "score",  "mask",  "branch"};
    for (const std::string_view name : sema::built_clauses()) {
      const bool may_repeat = sema::contains(kRepeated, name);
      if (may_repeat || !is_there(name)) word(WordKind::clause, name, kKeywordItem);
    }
  }

  bool is_there(std::string_view keyword) const {
    const auto& spec = request_.analysis.spec;
    return spec && std::ranges::any_of(spec->clauses, [&](const ast::Clause& clause) {
             return clause.keyword.text == keyword;
           });
  }

  void dimensions() {
    const auto& symbols = request_.analysis.index.symbols();
    for (const std::string_view name : sema::dimension_names()) {
      const bool is_given = std::ranges::any_of(symbols, [&](const Symbol& symbol) {
        return symbol.meaning == Meaning::dimension && symbol.name == name;
      });
      if (!is_given) word(WordKind::dimension, name, kSizeItem);
    }
  }

  void constants() {
    for (const Analysis* analysis : analyses()) {
      for (const Symbol& symbol : analysis->index.symbols()) {
        if (symbol.meaning == Meaning::parameter) add(symbol, kConstantItem);
      }
    }
    sizes();
  }

  void sizes() {
    for (const std::string_view name : sema::dimension_names()) {
      const Word* found = word_named(WordKind::dimension, name);
      const auto size = request_.analysis.size_of(name);
      add(std::string(name), kSizeItem, size ? "= " + to_text(*size) : "open",
          found ? std::string(found->text) : "");
    }
  }

  // Analyses of the text, and of the last one that could be parsed.
  std::vector<const Analysis*> analyses() const {
    std::vector<const Analysis*> all = {&request_.analysis};
    const Analysis* last = request_.document.last_complete.get();
    if (!request_.analysis.is_complete && last) all.push_back(last);
    return all;
  }

  void add(const Symbol& symbol, ItemKind kind) {
    Json& item = add(symbol.name, kind, signature_of(symbol), prose_of(symbol));
    if (symbol.meaning == Meaning::function) insert(item, call_of(*symbol.function));
    if (symbol.meaning == Meaning::tensor) {
      insert(item, element_of(std::get<ast::TensorClause>(symbol.clause->body)));
    }
  }

  static std::string call_of(const ast::FunctionClause& function) {
    std::string arguments;
    for (std::size_t i = 0; i < function.parameters.size(); ++i) {
      arguments +=
          fmt::format("{}${{{}:{}}}", i == 0 ? "" : ", ", i + 1, function.parameters[i].text);
    }
    return fmt::format("{}({})", function.name.text, arguments);
  }

  static std::string element_of(const ast::TensorClause& tensor) {
    std::string indexes;
    for (std::size_t i = 0; i < tensor.extents.size(); ++i) {
      indexes +=
          fmt::format("{}${{{}:{}}}", i == 0 ? "" : ", ", i + 1, index_of(tensor.extents[i]));
    }
    return fmt::format("{}[{}]", tensor.name.text, indexes);
  }

  void locals() {
    for (const std::string& local : place_.locals) add(local, kVariableItem, "local", "");
  }

  void expression() {
    locals();
    if (place_.keyword == "fn") add("return", kKeywordItem, "return expression", "");
    for (const bool own : {true, false}) {
      for (const Analysis* analysis : analyses()) {
        for (const Symbol& symbol : analysis->index.symbols()) {
          if (is_own(*analysis, symbol) == own) named(symbol);
        }
      }
    }
    for (const std::string_view name : sema::bound_names()) {
      if (has_value(name)) word(WordKind::value, name, kVariableItem);
    }
    sizes();
    words(WordKind::function, kFunctionItem);
    standard_functions();
  }

  // Whether the name has a value in the clause: scores and keys have none after the sum over keys.
  bool has_value(std::string_view name) const {
    constexpr std::string_view kAnywhere[] = {"let", "fn"}, kOfScores[] = {"score", "weight"},
                               kOfResults[] = {"epilogue", "gate", "combine"};
    if (sema::contains(kAnywhere, place_.keyword)) return true;
    const bool is_after = sema::contains(kOfResults, place_.keyword);
    if (name == "o" && place_.keyword == "combine") return false;
    if (name == "o" || name == "d_idx") return is_after;
    if (name == "kv_idx") return !is_after;
    return name != "score" || sema::contains(kOfScores, place_.keyword);
  }

  // Whether the symbol is of this file, not of an imported one.
  static bool is_own(const Analysis& analysis, const Symbol& symbol) {
    return symbol.definition && analysis.locate(*symbol.definition).source == analysis.source.get();
  }

  void named(const Symbol& symbol) {
    switch (symbol.meaning) {
      case Meaning::function: return add(symbol, kFunctionItem);
      case Meaning::parameter:
        if (place_.in_attention) add(symbol, kConstantItem);
        return;
      case Meaning::tensor:
      case Meaning::param:
        if (place_.in_attention) add(symbol, kFieldItem);
        return;
      case Meaning::branch:
        if (place_.keyword == "combine") add(symbol, kVariableItem);
        return;
      case Meaning::let:
        if (place_.in_attention && symbol.definition->end < offset_) {
          add(symbol, kVariableItem);
        }
        return;
      default: return;
    }
  }

  // Adds standard functions; those of files that are not imported come with their import.
  void standard_functions() {
    const auto at = import_place();
    if (!at) return;
    for (const StandardFile& file : standard_files()) {
      const std::string line = fmt::format("import \"{}\";\n", file.name);
      const Json import = {{"range", to_json(request_.document.text.range({*at, *at}))},
                           {"newText", imports_ ? line : line + "\n"}};
      for (const ast::Clause& clause : file.spec.preamble) {
        const auto* function = std::get_if<ast::FunctionClause>(&clause.body);
        if (!function || is_local(function->name.text)) continue;
        const Symbol symbol{.meaning = Meaning::function,
                            .name = function->name.text,
                            .clause = &clause,
                            .function = function};
        if (seen_.contains({symbol.name, kFunctionItem})) continue;
        add(symbol, kFunctionItem);
        Json& item = items_.back();
        item["labelDetails"] = {{"description", file.name}};
        item["additionalTextEdits"] = Json::array({import});
      }
    }
  }

  bool is_local(const std::string& name) const {
    return std::ranges::find(place_.locals, name) != place_.locals.end();
  }

  // The line of the first import, or of the attention.
  std::optional<std::uint32_t> import_place() {
    const auto& tokens = lexed_.tokens;
    for (std::size_t at = 0; at < tokens.all.size(); ++at) {
      const std::string& kind = tokens.kind(at);
      imports_ = kind == "'import'";
      if (!tokens.all[at].starts_line || (!imports_ && kind != "'attention'")) continue;
      return tokens.all[at].span.begin;
    }
    return std::nullopt;
  }

  void types() {
    for (const std::string_view name : types_of(place_.keyword)) {
      word(WordKind::type, name, kTypeItem);
    }
  }

  static std::vector<std::string_view> types_of(const std::string& keyword) {
    if (keyword == "dtype") return {"bf16", "f16", "e4m3", "e5m2"};
    if (keyword == "param") return {"f32", "i32"};
    if (keyword == "learn") return {"f32", "bf16", "f16", "f64"};
    return {"i32", "f32", "bool", "bf16", "f16", "f64", "i64", "i8", "u8"};
  }

  static std::vector<const char*> choices_of(const std::string& keyword) {
    if (keyword == "align") return {"top_left", "bottom_right"};
    if (keyword == "quantize") return {"per_tensor", "mxfp8", "kv"};
    if (keyword == "shard") return {"sequence", "heads", "both"};
    return {"softmax", "sigmoid"};
  }

  void cache_scales() {
    for (const ir::CacheScaleInfo& each : ir::cache_scales())
      word(WordKind::choice, each.name, kEnumItem);
  }

  void cache_types() {
    for (const std::string_view name : {"e4m3", "e5m2", "i8"})
      word(WordKind::type, name, kTypeItem);
  }

  void choices() {
    for (const char* name : choices_of(place_.keyword)) word(WordKind::choice, name, kEnumItem);
  }

  void gradients() {
    for (const std::string_view name : sema::input_names()) {
      word(WordKind::tensor, name, kVariableItem);
    }
    word(WordKind::output, "lse", kVariableItem);
    for (const Analysis* analysis : analyses()) {
      for (const Symbol& symbol : analysis->index.symbols()) {
        const bool learns =
            symbol.meaning == Meaning::tensor && symbol.clause->keyword.text == "learn";
        if (learns) add(symbol.name, kFieldItem, signature_of(symbol), "");
      }
    }
  }

  // What a branch may read from tensors of its own, and these tensors.
  void inputs() {
    for (const std::string_view name : sema::input_names()) {
      word(WordKind::tensor, name, kVariableItem);
    }
  }
  void tensors() {
    for (const Analysis* analysis : analyses()) {
      for (const Symbol& symbol : analysis->index.symbols()) {
        if (symbol.meaning == Meaning::tensor && !seen_.contains({symbol.name, kFieldItem}))
          add(symbol.name, kFieldItem, signature_of(symbol), prose_of(symbol));
      }
    }
  }

  static constexpr ItemKind kSizeItem = kConstantItem;

  const Request& request_;
  const ast::Lexed lexed_;
  std::uint32_t offset_;
  Place place_;
  Json items_ = Json::array();
  Json ignored_;
  std::set<std::pair<std::string, ItemKind>> seen_;
  bool imports_ = false;  // whether import_place is an import
};

}  // namespace

Json completion(const Request& request) {
  if (request.analysis.source->is_json())
    return {{"isIncomplete", false}, {"items", Json::array()}};
  return Completer(request).run();
}

}  // namespace attn::tools::lsp
