// Thin wrapper of the parts of CLI11 that the subcommands use, with CLI11's names and semantics.
// CLI11's headers take over 5 s to compile, so only cli.cpp, help.cpp, main.cpp and usage.cpp
// include them. There ::CLI::App is CLI11's class and CLI::App is this one.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace attn::tools::CLI {

// Thrown by callbacks that receive an option's value; translated to CLI11's class (a usage error).
class ValidationError : public std::runtime_error {
 public:
  ValidationError(std::string option, const std::string& message)
      : std::runtime_error(message), option_(std::move(option)) {}
  const std::string& option() const { return option_; }

 private:
  std::string option_;
};

// Restricts the values of an option. The words of IsMember and Suggest are the option's choices
// (tools/described.h); Suggest allows other values too.
using Validator = std::function<void(::CLI::Option& option)>;
Validator IsMember(std::vector<std::string> words);
Validator Suggest(std::vector<std::string> words);
Validator Range(int least, int most);
Validator Range(double least, double most);
extern const Validator NonNegativeNumber;

enum class MultiOptionPolicy : std::uint8_t { TakeAll };

// Options live as long as their App; every function returns `this`.
class Option {
 public:
  explicit Option(::CLI::Option& option) : option_(option) {}
  Option(const Option&) = delete;
  Option& operator=(const Option&) = delete;

  Option* type_name(const std::string& name);
  Option* type_size(int size);
  Option* group(const std::string& name);
  // What the help shows as the default. By default, that of the variable; "" shows none.
  Option* default_text(const std::string& text);
  Option* required();
  Option* expected(int least, int most);  // number of values
  Option* check(const Validator& validator);
  Option* excludes(const std::string& other);
  Option* delimiter(char delimiter);
  Option* allow_extra_args(bool allow);
  Option* multi_option_policy(MultiOptionPolicy policy);

 private:
  ::CLI::Option& option_;
};

using callback_t = std::function<bool(const std::vector<std::string>& values)>;

// A CLI11 command. Owns the subcommands and options added to it; `app` must outlive it.
class App {
 public:
  explicit App(::CLI::App& app);
  App(const App&) = delete;
  App& operator=(const App&) = delete;
  ~App();

  ::CLI::App& cli11() const;

  App* add_subcommand(const std::string& name, const std::string& description);
  App* require_subcommand(int count);
  App* require_subcommand(int least, int most);
  std::vector<const App*> get_subcommands() const;  // those given on the command line
  App* callback(const std::function<void()>& chosen);
  App* help_in_group(const std::string& name);  // --help and --version
  std::vector<std::string> subcommand_names() const;
  // Calls `visitor` with this command, and with every command below it.
  void visit(const std::function<void(App&)>& visitor);

  // T is std::string, std::vector<std::string>, double, or an integer type instantiated in cli.cpp.
  // Names follow CLI11: "-o,--output", or no dashes for a positional argument.
  template <typename T>
  Option* add_option(const std::string& names, T& value, const std::string& description);
  Option* add_option(const std::string& names, const callback_t& take,
                     const std::string& description);
  // T is std::string or std::vector<std::string>.
  template <typename T>
  Option* add_option_function(const std::string& names, const std::function<void(const T&)>& take,
                              const std::string& description);
  Option* add_flag(const std::string& names, bool& value, const std::string& description);
  Option* add_flag_function(const std::string& names, const std::function<void(std::int64_t)>& take,
                            const std::string& description);

 private:
  struct State;

  Option* keep(::CLI::Option& option);

  std::unique_ptr<State> state_;
};

namespace detail {
std::vector<std::string> split(const std::string& text, char delimiter);

// The last value of the option `name` among the words of a command line, whatever the rest is:
// "--name VALUE" or "--name=VALUE".
std::optional<std::string> value_of(const std::vector<std::string>& words, const std::string& name);
}  // namespace detail

}  // namespace attn::tools::CLI
