#include "tools/cli.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <deque>
#include <string_view>
#include <type_traits>

#include "compiler/support/text.h"

namespace attn::tools::CLI {
namespace {

// Wraps `take` so that it throws CLI11's ValidationError.
template <typename Take>
auto translated(Take take) {
  return [take = std::move(take)](const auto& value) {
    try {
      return take(value);
    } catch (const ValidationError& error) {
      throw ::CLI::ValidationError(error.option(), error.what());
    }
  };
}

std::string not_among(const std::string& word, const std::vector<std::string>& words) {
  if (std::ranges::find(words, word) != words.end()) return "";
  const std::vector<std::string_view> views(words.begin(), words.end());
  const std::string_view meant = support::nearest(word, views);
  std::string text =
      fmt::format("'{}' is not {}", support::printable(word), support::one_of(views));
  if (!meant.empty()) text += fmt::format("; did you mean {}?", support::quoted(meant));
  return text;
}

template <typename Number>
Validator range(Number least, Number most) {
  const auto check = [least, most](std::string& text) {
    Number number = 0;
    const bool fits =
        ::CLI::detail::lexical_cast(text, number) && least <= number && number <= most;
    return fits ? std::string()
                : fmt::format("'{}' is not a number from {} to {}", support::printable(text), least,
                              most);
  };
  return [check](::CLI::Option& option) { option.check(::CLI::Validator(check, "")); };
}

}  // namespace

Validator IsMember(std::vector<std::string> words) {
  return [words = std::move(words)](::CLI::Option& option) {
    option.check(::CLI::Validator([words](std::string& word) { return not_among(word, words); },
                                  ::CLI::detail::join(words, "|")));
  };
}

Validator Suggest(std::vector<std::string> words) {
  return [words = std::move(words)](::CLI::Option& option) {
    option.check(::CLI::Validator([](std::string&) { return std::string(); },
                                  ::CLI::detail::join(words, "|")));
  };
}

Validator Range(int least, int most) { return range(least, most); }

Validator Range(double least, double most) { return range(least, most); }

const Validator NonNegativeNumber = [](::CLI::Option& option) {
  option.check(::CLI::Validator(
      [](std::string& text) {
        double number = 0;
        const bool fits = ::CLI::detail::lexical_cast(text, number) && number >= 0;
        return fits ? std::string()
                    : fmt::format("'{}' is not a number from 0", support::printable(text));
      },
      ""));
};

Option* Option::type_name(const std::string& name) {
  option_.type_name(name);
  return this;
}

Option* Option::type_size(int size) {
  option_.type_size(size);
  return this;
}

Option* Option::group(const std::string& name) {
  option_.group(name);
  return this;
}

Option* Option::default_text(const std::string& text) {
  option_.default_str(text);
  return this;
}

Option* Option::required() {
  option_.required();
  return this;
}

Option* Option::expected(int least, int most) {
  option_.expected(least, most);
  return this;
}

Option* Option::check(const Validator& validator) {
  validator(option_);
  return this;
}

Option* Option::excludes(const std::string& other) {
  option_.excludes(other);
  return this;
}

Option* Option::delimiter(char delimiter) {
  option_.delimiter(delimiter);
  return this;
}

Option* Option::allow_extra_args(bool allow) {
  option_.allow_extra_args(allow);
  return this;
}

Option* Option::multi_option_policy(MultiOptionPolicy /*policy*/) {
  option_.multi_option_policy(::CLI::MultiOptionPolicy::TakeAll);
  return this;
}

struct App::State {
  ::CLI::App& app;
  std::deque<App> subcommands;
  std::deque<Option> options;
};

App::App(::CLI::App& app) : state_(new State{app, {}, {}}) {}

App::~App() = default;

::CLI::App& App::cli11() const { return state_->app; }

App* App::add_subcommand(const std::string& name, const std::string& description) {
  return &state_->subcommands.emplace_back(*state_->app.add_subcommand(name, description));
}

App* App::require_subcommand(int count) {
  state_->app.require_subcommand(count);
  return this;
}

App* App::require_subcommand(int least, int most) {
  state_->app.require_subcommand(static_cast<std::size_t>(least), static_cast<std::size_t>(most));
  return this;
}

std::vector<const App*> App::get_subcommands() const {
  std::vector<const App*> chosen;
  for (const App& subcommand : state_->subcommands) {
    if (subcommand.state_->app.count() > 0) chosen.push_back(&subcommand);
  }
  return chosen;
}

App* App::callback(const std::function<void()>& chosen) {
  state_->app.callback(chosen);
  return this;
}

App* App::help_in_group(const std::string& name) {
  ::CLI::App& app = state_->app;
  for (::CLI::Option* option : {app.get_help_ptr(), app.get_option_no_throw("--version")}) {
    if (option != nullptr) option->group(name);
  }
  return this;
}

std::vector<std::string> App::subcommand_names() const {
  std::vector<std::string> names;
  for (const App& subcommand : state_->subcommands) {
    names.push_back(subcommand.state_->app.get_name());
  }
  return names;
}

void App::visit(const std::function<void(App&)>& visitor) {
  visitor(*this);
  for (App& subcommand : state_->subcommands) subcommand.visit(visitor);
}

template <typename T>
Option* App::add_option(const std::string& names, T& value, const std::string& description) {
  ::CLI::Option& option = *state_->app.add_option(names, value, description);
  if constexpr (!std::is_same_v<T, std::vector<std::string>>) option.capture_default_str();
  return keep(option);
}
template Option* App::add_option(const std::string&, std::string&, const std::string&);
template Option* App::add_option(const std::string&, std::vector<std::string>&, const std::string&);
template Option* App::add_option(const std::string&, int&, const std::string&);
template Option* App::add_option(const std::string&, unsigned&, const std::string&);
template Option* App::add_option(const std::string&, std::int64_t&, const std::string&);
template Option* App::add_option(const std::string&, std::size_t&, const std::string&);
template Option* App::add_option(const std::string&, double&, const std::string&);

Option* App::add_option(const std::string& names, const callback_t& take,
                        const std::string& description) {
  return keep(*state_->app.add_option(names, ::CLI::callback_t(translated(take)), description));
}

template <typename T>
Option* App::add_option_function(const std::string& names,
                                 const std::function<void(const T&)>& take,
                                 const std::string& description) {
  return keep(*state_->app.add_option_function<T>(names, translated(take), description));
}
template Option* App::add_option_function(const std::string&,
                                          const std::function<void(const std::string&)>&,
                                          const std::string&);
template Option* App::add_option_function(
    const std::string&, const std::function<void(const std::vector<std::string>&)>&,
    const std::string&);

Option* App::add_flag(const std::string& names, bool& value, const std::string& description) {
  return keep(*state_->app.add_flag(names, value, description));
}

Option* App::add_flag_function(const std::string& names,
                               const std::function<void(std::int64_t)>& take,
                               const std::string& description) {
  return keep(*state_->app.add_flag_function(names, translated(take), description));
}

Option* App::keep(::CLI::Option& option) { return &state_->options.emplace_back(option); }

std::vector<std::string> detail::split(const std::string& text, char delimiter) {
  return ::CLI::detail::split(text, delimiter);
}

std::optional<std::string> detail::value_of(const std::vector<std::string>& words,
                                            const std::string& name) {
  std::optional<std::string> value;
  for (std::size_t i = 0; i < words.size() && words[i] != "--"; ++i) {
    if (words[i].starts_with(name + "=")) value = words[i].substr(name.size() + 1);
    if (words[i] == name && i + 1 < words.size()) value = words[i + 1];
  }
  return value;
}

}  // namespace attn::tools::CLI
