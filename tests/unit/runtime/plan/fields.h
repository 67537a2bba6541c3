// Visits every field of a plan, by the members that its JSON has (runtime/plan/plan_members.h).
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "runtime/plan/plan_members.h"

namespace attn::plan::testing {

// Changes each field of `plan` in turn, calls `look` with its path ("program.tensors.name", the
// same for every tensor), and restores it. Lists also lose their last element. Graphs are not
// changed: see Canonical.SeesEveryField.
class FieldWalk : public json::TensorsAsMembers<FieldWalk> {
 public:
  FieldWalk(Plan& plan, std::function<void(const std::string& path)> look)
      : look_(std::move(look)) {
    members(plan, *this);
  }

  // The visitor of members (runtime/graph/members.h).
  template <typename T>
  void operator()(std::string_view name, T& field) {
    in(name, [&] { visit(field); });
  }
  void optional(std::string_view name, auto& field, const auto&...) { (*this)(name, field); }
  void told(std::string_view name, auto& field) { (*this)(name, field); }
  void optionally_told(std::string_view name, auto& field) { (*this)(name, field); }
  void within(std::string_view name, auto& field, const auto&...) { (*this)(name, field); }
  void constant(std::string_view, std::int64_t) {}
  void map(std::string_view name, auto& map, const auto&...) {
    in(name, [&] { change(path_, map, {{"changed", {}}}); });
  }
  void object(std::string_view name, const auto& inner) {
    in(name, [&] { inner(*this); });
  }
  void derived(std::string_view, const auto&) {}
  void must(std::string_view, bool, std::string_view) {}
  void position(SourcePos&) {}
  void kind(std::string_view, std::string_view) {}
  template <typename T>
  void spread(T& field) {
    if constexpr (json::kIsVariant<T>) {
      std::visit([this](auto& alternative) { members(alternative, *this); }, field);
      change(path_ + ".kind", field, T(std::in_place_index<0>));
      change(path_ + ".kind", field, T(std::in_place_index<1>));
    } else {
      members(field, *this);
    }
  }
  void paired(std::string_view name, std::string_view, std::vector<std::string>& list,
              std::string_view second, std::vector<std::string>& told) {
    (*this)(name, list);
    in(name, [&] {
      for (std::string& each : told) (*this)(second, each);
    });
  }

 private:
  void in(std::string_view name, const auto& walk) {
    const std::string outer = path_;
    path_ += (path_.empty() ? "" : ".") + std::string(name);
    walk();
    path_ = outer;
  }

  template <typename T>
  void visit(T& field) {
    if constexpr (std::same_as<T, std::string>) {
      change(path_, field, field + "x");
    } else if constexpr (std::same_as<T, bool>) {
      change(path_, field, !field);
    } else if constexpr (std::is_arithmetic_v<T>) {
      change(path_, field, field == T{7} ? T{8} : T{7});
    } else if constexpr (std::is_enum_v<T>) {
      change(path_, field, field == T{1} ? T{2} : T{1});
    } else if constexpr (std::same_as<T, graph::BackendGraph>) {
      change(path_, field, {});
    } else if constexpr (json::kIsOptional<T>) {
      if (!field) return;
      visit(*field);
      change(path_ + ".size", field, {});
    } else if constexpr (json::kIsArray<T>) {
      for (auto& each : field) visit(each);
    } else if constexpr (json::kIsList<T>) {
      for (auto& each : field) visit(each);
      if (!field.empty()) change(path_ + ".size", field, T(field.begin(), field.end() - 1));
    } else {
      spread(field);
    }
  }

  template <typename Value>
  void change(const std::string& path, Value& field, Value changed) {
    std::swap(field, changed);
    look_(path);
    std::swap(field, changed);
  }

  std::function<void(const std::string&)> look_;
  std::string path_;
};

}  // namespace attn::plan::testing
