#include "compiler/sema/library.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <mutex>
#include <set>
#include <sstream>

#include "compiler/ast/parse.h"
#include "compiler/ast/walk.h"
#include "compiler/sema/names.h"
#include "compiler/sema/operations.h"
#include "compiler/sema/prologue.h"
#include "compiler/sema/sums.h"
#include "compiler/support/text.h"

namespace attn::sema {
namespace {

using ast::Expr;
using ast::ExprKind;
using diag::Code;
namespace fs = std::filesystem;

constexpr std::size_t kMostFiles = 64;
constexpr std::size_t kMostBytes = std::size_t{1} << 18;  // total of all files
constexpr char kFurtherFolders[] = "ATTN_IMPORT_PATH";
constexpr std::string_view kStandard = "std:";  // prefix of names of the standard library

// A file of the standard library; the same Source at each call, which is parsed once.
support::Source standard_source(const std::string& path, std::string_view text) {
  static std::map<std::string, support::Source> sources;
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  return sources.try_emplace(path, fmt::format("{}{}", kStandard, path), std::string(text))
      .first->second;
}

// The same key for all spellings of a path.
std::string key_of(const std::string& name) {
  if (name.starts_with(kStandard)) return name;
  std::error_code error;
  const fs::path path = fs::weakly_canonical(name, error);
  return error ? name : path.string();
}

class Loader {
 public:
  explicit Loader(diag::Sink& sink) : sink_(sink) {}

  Library run(const ast::Spec& spec) {
    const std::string& own = sink_.source().name();
    seen_.insert(key_of(own));
    add_folder(fs::path(own).parent_path());
    const char* further = std::getenv(kFurtherFolders);
    std::istringstream folders(further ? further : "");
    for (std::string folder; std::getline(folders, folder, ':');) {
      if (!folder.empty()) add_folder(folder);
    }
    load_all(spec, own);
    return std::move(library_);
  }

 private:
  void load_all(const ast::Spec& spec, const std::string& importer) {
    for (const ast::Clause& item : spec.preamble) {
      if (const auto* import = std::get_if<ast::ImportClause>(&item.body)) {
        load(import->path, importer);
      }
    }
  }

  void load(const ast::Name& path, const std::string& importer) {
    std::optional<support::Source> source = find(path, importer);
    library_.complete = library_.complete && source;
    if (!source || !seen_.insert(key_of(source->name())).second) return;
    if (seen_.size() > kMostFiles) {
      sink_.report(Code::too_large, path.span,
                   fmt::format("more than {} files are imported", kMostFiles));
      return;
    }
    const std::string name = source->name();
    bytes_ += source->text().size();
    if (bytes_ > kMostBytes) {
      sink_.report(Code::too_large, path.span,
                   fmt::format("the imported files are larger than {} KiB", kMostBytes / 1024));
      library_.complete = false;
      return;
    }
    const auto [added, offset] = sink_.add(std::move(*source));
    diag::Sink alone(added);
    std::optional<ast::Spec> spec = ast::parse(added, alone);
    sink_.adopt(alone, offset);
    library_.complete = library_.complete && spec;
    if (!spec) return;
    ast::shift(*spec, offset);
    library_.files.push_back(std::make_unique<const ast::Spec>(std::move(*spec)));
    const ast::Spec& file = *library_.files.back();
    for (const ast::Clause& item : file.preamble) {
      if (const auto* function = std::get_if<ast::FunctionClause>(&item.body)) add(*function);
    }
    load_all(file, name);
  }

  void add(const ast::FunctionClause& function) {
    const auto [found, added] = library_.functions.emplace(function.name.text, &function);
    if (added) return;
    sink_
        .report(
            Code::duplicate_name, function.name.span,
            fmt::format("the function {} is defined twice", support::quoted(function.name.text)))
        .labels.push_back({found->second->name.span, "first here"});
  }

  void add_folder(const fs::path& folder) {
    std::error_code error;
    const fs::path found = fs::canonical(folder.empty() ? fs::path(".") : folder, error);
    if (!error) folders_.push_back(found);
  }

  // The canonical path of the file, or nullopt if it is not below one of the folders. Open only
  // this path: with links and `..` the written path can lead elsewhere.
  std::optional<fs::path> inside(const fs::path& file) const {
    std::error_code error;
    fs::path real = fs::weakly_canonical(fs::absolute(file, error), error);
    // Again, for links after a folder that does not exist.
    if (!error) real = fs::weakly_canonical(real, error);
    const bool is_below = !error && std::ranges::any_of(folders_, [&](const fs::path& folder) {
      return std::ranges::mismatch(folder, real).in1 == folder.end();
    });
    return is_below ? std::optional(std::move(real)) : std::nullopt;
  }

  // Looks next to the importer, then in the standard library; reports a file that is in neither.
  // Does not reveal whether a file outside the folders exists.
  std::optional<support::Source> find(const ast::Name& path, const std::string& importer) {
    const std::string_view text = support::text_of(standard_library(), path.text);
    std::error_code error;
    const fs::path beside = fs::path(importer).parent_path() / path.text;
    const bool is_standard =
        importer.starts_with(kStandard) || (!text.empty() && !fs::exists(beside, error));
    if (!is_standard) {
      const std::optional<fs::path> real = inside(beside);
      if (!real) {
        sink_
            .report(Code::import_refused, path.span,
                    fmt::format("{} is outside the folder of the spec", support::quoted(path.text)))
            .help = fmt::format("move it there, or add its folder to {}", kFurtherFolders);
        return std::nullopt;
      }
      if (fs::is_regular_file(*real, error)) return read(path, beside.lexically_normal(), *real);
    }
    if (!text.empty()) return standard_source(path.text, text);
    std::vector<std::string_view> names;
    for (const support::EmbeddedFile& file : standard_library()) names.push_back(file.name);
    const std::string_view close = support::nearest(path.text, names);
    auto& diagnostic =
        sink_.report(Code::import_not_found, path.span,
                     fmt::format("cannot find the file {}", support::quoted(path.text)));
    did_you_mean(close).put(diagnostic, between_quotes(path));
    if (diagnostic.help.empty()) {
      diagnostic.help =
          "paths are relative to the importing file; for the standard library import " +
          support::one_of(names);
    }
    return std::nullopt;
  }

  // The span of a path in JSON has no quotes.
  support::Span between_quotes(const ast::Name& path) const {
    const auto [source, local] = sink_.locate(path.span);
    const bool has_quotes = source->text().substr(local.begin).starts_with('"');
    return has_quotes ? support::Span{path.span.begin + 1, path.span.end - 1} : path.span;
  }

  // Reads the file `real`, and names it `as_written` if that is the same file.
  std::optional<support::Source> read(const ast::Name& path, const fs::path& as_written,
                                      const fs::path& real) {
    Result<support::Source> source = support::Source::read(real.string());
    if (source.ok()) {
      const bool is_same = key_of(as_written.string()) == real.string();
      return support::Source((is_same ? as_written : real).string(), std::string(source->text()));
    }
    sink_.report(Code::import_not_found, path.span, source.error().message);
    return std::nullopt;
  }

  diag::Sink& sink_;
  Library library_;
  std::set<std::string, std::less<>> seen_;
  std::vector<fs::path> folders_;  // below which files may be imported
  std::size_t bytes_ = 0;          // of the files
};

// Checks the names in the body of a function.
class BodyNames {
 public:
  BodyNames(const Library& library, std::span<const std::string_view> functions,
            std::span<const std::string_view> names, diag::Sink& sink)
      : library_(library), functions_(functions), names_(names), sink_(sink) {}

  void run(const ast::FunctionClause& function) {
    for (const ast::Name& parameter : function.parameters) known_.push_back(parameter.text);
    for (const ast::LetClause& let : function.lets) {
      visit(let.value);
      known_.push_back(let.name.text);
    }
    visit(function.value);
  }

 private:
  void visit(const Expr& expr) {
    if (expr.kind == ExprKind::name || expr.kind == ExprKind::index) check_name(expr);
    if (expr.kind == ExprKind::call) check_call(expr);
    const bool reduces = expr.kind == ExprKind::reduce;
    if (reduces) known_.push_back(expr.operands[0].text);
    for (const Expr& operand : expr.operands) visit(operand);
    if (reduces) known_.pop_back();
  }

  void check_name(const Expr& expr) {
    if (contains(known_, expr.text) || contains(names_, expr.text)) return;
    if (is_bound_name(expr.text) || is_dimension_name(expr.text)) return;
    if (expr.kind == ExprKind::index && expr.text == kRow) return;  // of a prologue
    std::vector<std::string_view> candidates = known_;
    candidates.insert(candidates.end(), names_.begin(), names_.end());
    candidates.insert(candidates.end(), bound_names().begin(), bound_names().end());
    auto& diagnostic = sink_.report(Code::unknown_name, expr.head,
                                    fmt::format("unknown name {}", support::quoted(expr.text)));
    suggestion(expr.text, candidates).put(diagnostic, expr.head);
    if (diagnostic.help.empty() && names_.empty()) {
      diagnostic.help =
          "a function can use its parameters, dimensions and indexes; inside the attention also "
          "its "
          "tensors and constants";
    }
  }

  void check_call(const Expr& expr) {
    if (contains(functions_, expr.text) || library_.functions.contains(expr.text)) return;
    const auto built_in = function_names();
    if (expr.text == "sum" && expr.operands.size() == 1) return;  // over a row, or a mistake there
    if (is_sum(expr)) return report_sum_inside(expr, sink_);
    if (contains(built_in, expr.text) || !library_.complete) return;
    std::vector<std::string_view> candidates(functions_.begin(), functions_.end());
    candidates.insert(candidates.end(), built_in.begin(), built_in.end());
    for (const auto& [name, function] : library_.functions) candidates.push_back(name);
    auto& diagnostic = sink_.report(Code::unknown_function, expr.head,
                                    fmt::format("unknown function {}", support::quoted(expr.text)));
    function_suggestion(expr.text, candidates).put(diagnostic, expr.head);
  }

  const Library& library_;
  std::span<const std::string_view> functions_;
  std::span<const std::string_view> names_;
  diag::Sink& sink_;
  std::vector<std::string_view> known_;
};

void check_parameters(const ast::FunctionClause& function, diag::Sink& sink) {
  std::map<std::string_view, support::Span> seen;
  for (const ast::Name& name : function.parameters) {
    const auto [first, added] = seen.emplace(name.text, name.span);
    if (added) continue;
    sink.report(Code::duplicate_name, name.span,
                fmt::format("{} is defined twice", support::quoted(name.text)))
        .labels.push_back({first->second, "first here"});
  }
}

using Names = std::set<std::string, std::less<>>;
using NewNames = std::map<std::string, std::string, std::less<>>;

void add_functions(const std::vector<ast::Clause>& clauses, Names& names) {
  for (const ast::Clause& item : clauses) {
    if (const auto* clause = std::get_if<ast::FunctionClause>(&item.body)) {
      names.insert(clause->name.text);
    }
  }
}

Names functions_of(const ast::Spec& spec) {
  Names names;
  add_functions(spec.preamble, names);
  add_functions(spec.clauses, names);
  return names;
}

// The functions and values that the spec itself defines.
Names names_of(const ast::Spec& spec) {
  Names names = functions_of(spec);
  for (const ast::SpecParameter& parameter : spec.parameters) names.insert(parameter.name.text);
  for (const ast::Clause& item : spec.clauses) {
    const auto add = [&](const auto* clause) {
      if (clause) names.insert(clause->name.text);
    };
    add(std::get_if<ast::TensorClause>(&item.body));
    add(std::get_if<ast::ParamClause>(&item.body));
    add(std::get_if<ast::LetClause>(&item.body));
  }
  return names;
}

Names calls_in(auto node) {
  Names names;
  const auto add = [&](const Expr& expr) {
    if (expr.kind == ExprKind::call) names.insert(expr.text);
  };
  ast::Walk([](support::Span&) {}, add)(node);
  return names;
}

// The functions of the library that the spec calls, directly or indirectly.
Names called(const ast::Spec& spec, const Library& library) {
  Names open = calls_in(spec), found;
  for (const std::string& own : functions_of(spec)) open.erase(own);  // they hide imported ones
  while (!open.empty()) {
    const std::string name = open.extract(open.begin()).value();
    const auto function = library.functions.find(name);
    if (function == library.functions.end() || !found.insert(name).second) continue;
    open.merge(calls_in(*function->second));
  }
  return found;
}

// New names for functions of the library whose names the spec defines too.
NewNames new_names(const Library& library, const Names& taken) {
  NewNames names;
  for (const auto& [name, function] : library.functions) {
    if (!taken.contains(name)) continue;
    std::string fresh = name + "_";
    while (taken.contains(fresh) || library.functions.contains(fresh)) fresh += "_";
    names.emplace(name, std::move(fresh));
  }
  return names;
}

template <typename Node>
void rename_calls(Node& node, const NewNames& names) {
  const auto rename = [&](Expr& expr) {
    const auto found = names.find(expr.text);
    if (expr.kind == ExprKind::call && found != names.end()) expr.text = found->second;
  };
  ast::Walk([](support::Span&) {}, rename)(node);
}

void without_leading_blanks(ast::CommentLines& lines) {
  const auto first = std::ranges::find_if(lines, [](const auto& line) { return !line.empty(); });
  lines.erase(lines.begin(), first);
}

// Appends the called functions of an imported file to the preamble, renamed.
void bring_in(const ast::Spec& file, const Names& called, const NewNames& names,
              std::vector<ast::Clause>& preamble) {
  for (ast::Clause item : file.preamble) {
    auto* function = std::get_if<ast::FunctionClause>(&item.body);
    if (!function || !called.contains(function->name.text)) continue;
    const auto found = names.find(function->name.text);
    if (found != names.end()) function->name.text = found->second;
    rename_calls(item, names);
    preamble.push_back(std::move(item));
  }
}

}  // namespace

Library load_imports(const ast::Spec& spec, diag::Sink& sink) { return Loader(sink).run(spec); }

ast::Spec without_imports(ast::Spec spec, const Library& library) {
  NewNames names = new_names(library, names_of(spec));
  const Names wanted = called(spec, library);
  std::vector<ast::Clause> preamble;
  for (const auto& file : library.files) bring_in(*file, wanted, names, preamble);
  if (!preamble.empty()) without_leading_blanks(preamble.front().comments.above);
  for (const std::string& own : functions_of(spec)) names.erase(own);  // they hide imported ones
  rename_calls(spec, names);
  for (ast::Clause& item : spec.preamble) preamble.push_back(std::move(item));
  std::erase_if(preamble, [](const ast::Clause& item) {
    return std::holds_alternative<ast::ImportClause>(item.body);
  });
  spec.preamble = std::move(preamble);
  return spec;
}

void check_function(const ast::FunctionClause& function, const Library& library,
                    std::span<const std::string_view> functions,
                    std::span<const std::string_view> names, diag::Sink& sink) {
  const auto built_in = function_names();
  if (contains(built_in, function.name.text) || function.name.text == kCumsum) {
    sink.report(Code::reserved_name, function.name.span,
                fmt::format("{} is a built-in function", support::quoted(function.name.text)))
        .help = "choose another name";
  }
  check_parameters(function, sink);
  BodyNames(library, functions, names, sink).run(function);
}

std::size_t check_library(const ast::Spec& spec, const Library& library, diag::Sink& sink) {
  std::map<std::string_view, support::Span> seen;
  std::vector<std::string_view> names;
  for (const ast::Clause& item : spec.preamble) {
    const auto* function = std::get_if<ast::FunctionClause>(&item.body);
    if (!function) continue;
    names.push_back(function->name.text);
    const auto [first, added] = seen.emplace(function->name.text, function->name.span);
    if (added) continue;
    sink.report(Code::duplicate_name, function->name.span,
                fmt::format("{} is defined twice", support::quoted(function->name.text)))
        .labels.push_back({first->second, "first here"});
  }
  for (const ast::Clause& item : spec.preamble) {
    const auto* function = std::get_if<ast::FunctionClause>(&item.body);
    if (function) check_function(*function, library, names, {}, sink);
  }
  return names.size();
}

}  // namespace attn::sema
