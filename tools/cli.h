// The part of CLI11 that the subcommands use, under CLI11's names and with CLI11's meaning. Its own
// headers take over 5 s to compile, so cli.cpp, help.cpp, main.cpp and usage.cpp alone include them; there
// ::CLI::App is CLI11's and CLI::App is this one.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace attn::tools::CLI {

// Thrown by functions that take an option's value: CLI11's, which is a usage error.
class ValidationError : public std::runtime_error {
 public:
  ValidationError(std::string option, const std::string& message)
      : std::runtime_error(message), option_(std::move(option)) {}
  const std::string& option() const { return option_; }

 private:
  std::string option_;
};

// What values an option may have.
using Validator = std::function<void(::CLI::Option& option)>;
Validator IsMember(std::vector<std::string> words);
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
  Option* required();
  Option* check(const Validator& validator);
  Option* excludes(const std::string& other);
  Option* delimiter(char delimiter);
  Option* allow_extra_args(bool allow);
  Option* multi_option_policy(MultiOptionPolicy policy);

 private:
  ::CLI::Option& option_;
};

using callback_t = std::function<bool(const std::vector<std::string>& values)>;

// A command of CLI11's. What is added to it lives as long as this does; `app` must live longer.
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
  std::vector<const App*> get_subcommands() const;  // those that were chosen
  App* callback(const std::function<void()>& chosen);

  // Of T std::string, std::vector<std::string>, double, or an integer as cli.cpp lists them. Names
  // as CLI11 has them: "-o,--output", or without dashes for what stands by itself.
  template <typename T>
  Option* add_option(const std::string& names, T& value, const std::string& description);
  Option* add_option(const std::string& names, const callback_t& take,
                     const std::string& description);
  // Of T std::string or std::vector<std::string>.
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
}

}  // namespace attn::tools::CLI
