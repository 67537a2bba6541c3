#include "tools/completion.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "compiler/support/embedded.h"
#include "tools/command.h"
#include "tools/report.h"
#include "tools/standard_specs.h"

namespace attn::tools {
namespace {

// A list that is being written, as lines.
class Lines {
 public:
  explicit Lines(std::string begin) : begin_(std::move(begin)) {}

  // `before` stays in front of the word: "--target=", or the first words of a list.
  void add(const std::string& word, const std::string& meaning, const std::string& before = "") {
    if (!(before + word).starts_with(begin_)) return;
    text_ += before + word + (meaning.empty() ? "" : "\t" + meaning) + "\n";
  }
  void ask(const std::string& line) { text_ += line + "\n"; }
  const std::string& begin() const { return begin_; }
  std::string take() { return std::move(text_); }

 private:
  std::string begin_;
  std::string text_;
};

// Offers standard specs once there is a letter: files of the folder come first.
void offer_standard_specs(Lines& lines) {
  if (lines.begin().empty()) return;
  for (const std::string& name : standard_spec_names()) lines.add(name, "standard spec");
}

// The files that placeholders like "SPEC|PLAN..." or "NAME|FILE.json" stand for.
void offer_files(const std::string& type, Lines& lines) {
  std::vector<std::string> suffixes;
  for (std::string word : CLI::detail::split(type, '|')) {
    if (word.ends_with("...")) word.resize(word.size() - 3);
    if (type == "DIR") return lines.ask(":folders");
    if (word == "FILE") return lines.ask(":files");
    if (word == "SPEC") suffixes.insert(suffixes.end(), {".attn", ".attn.json"});
    if (word == "SPEC") offer_standard_specs(lines);
    if (word == "PLAN") suffixes.emplace_back(".attnplan");
    if (word.starts_with("FILE.")) suffixes.push_back(word.substr(4));
  }
  if (!suffixes.empty()) lines.ask(fmt::format(":files {}", fmt::join(suffixes, " ")));
}

// A value of --in may be a file ("q=@q.npy").
bool is_file_of_value(const DescribedOption& option, const std::string& value) {
  return option.type.ends_with("=VALUE") && value.find("=@") != std::string::npos;
}

// `value` is what stands so far, after `before`.
void offer_values(const DescribedOption& option, const std::string& before,
                  const std::string& value, Lines& lines) {
  std::string kept = before;
  if (option.type.ends_with("]") && option.type.find("[,") != std::string::npos) {
    kept += value.substr(0, value.rfind(',') + 1);  // of a list, the last word
  }
  for (const std::string& choice : option.choices) lines.add(choice, "", kept);
  offer_files(is_file_of_value(option, value) ? "FILE.npy" : option.type, lines);
}

void offer_options(const DescribedCommand& command, Lines& lines) {
  for (const DescribedOption& option : command.options) {
    for (const std::string& name : option.names) {
      if (name.starts_with("--")) lines.add(name, option.description);
    }
  }
}

// Where the command line stands before its last word.
struct Place {
  const DescribedCommand* command;
  const DescribedOption* open = nullptr;  // the option that the next word is the value of
  std::size_t arguments = 0;
};

Place place_after(const DescribedCommand& command, std::span<const std::string> words) {
  Place at{&command};
  for (const std::string& word : words) {
    if (at.open != nullptr) {
      at.open = nullptr;
    } else if (word.starts_with("-") && word.size() > 1) {
      const DescribedOption* option = at.command->option(word);
      at.open = option != nullptr && option->takes_value() ? option : nullptr;
    } else if (const DescribedCommand* next = at.command->command(word); next != nullptr) {
      at.command = next;
    } else {
      ++at.arguments;
    }
  }
  return at;
}

void offer_arguments(const Place& at, const std::string& last, Lines& lines) {
  if (at.arguments == 0) {
    for (const DescribedCommand& below : at.command->commands) {
      lines.add(below.name, below.description);
    }
  }
  const std::vector<DescribedOption>& all = at.command->arguments;
  if (at.arguments < all.size()) {
    offer_values(all[at.arguments], "", last, lines);
  } else if (!all.empty() && all.back().is_list()) {
    offer_values(all.back(), "", last, lines);
  }
}

}  // namespace

std::string completions(const DescribedCommand& command, std::span<const std::string> words) {
  const std::string last = words.empty() ? "" : words.back();
  const Place at = place_after(command, words.empty() ? words : words.first(words.size() - 1));
  Lines lines(last);
  const std::size_t equals = last.find('=');
  if (at.open != nullptr) {
    offer_values(*at.open, "", last, lines);
  } else if (last.starts_with("-") && equals != std::string::npos) {
    const DescribedOption* option = at.command->option(last.substr(0, equals));
    if (option != nullptr && option->takes_value()) {
      offer_values(*option, last.substr(0, equals + 1), last.substr(equals + 1), lines);
    }
  } else if (last.starts_with("-")) {
    offer_options(*at.command, lines);
  } else {
    offer_arguments(at, last, lines);
  }
  return lines.take();
}

std::span<const support::EmbeddedFile> completion_scripts();

namespace completion_command {
namespace {

struct Options {
  std::string shell;
};

int print_script(const Options& options) {
  for (const support::EmbeddedFile& file : completion_scripts()) {
    if (file.name == "attnc." + options.shell) fmt::print("{}", file.text);
  }
  return kOk;
}

std::vector<std::string> shells() {
  std::vector<std::string> names;
  for (const support::EmbeddedFile& file : completion_scripts()) {
    names.emplace_back(file.name.substr(file.name.find('.') + 1));
  }
  return names;
}

}  // namespace
}  // namespace completion_command

void add_completion(CLI::App& app, Action& action) {
  using namespace completion_command;
  auto options = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand(
      "completion", "Print a script that completes command lines of attnc in a shell");
  command->add_option("shell", options->shell, "The shell that reads the script")
      ->type_name("SHELL")
      ->required()
      ->check(CLI::IsMember(shells()));
  set_action(*command, action, options, print_script);
}

}  // namespace attn::tools
