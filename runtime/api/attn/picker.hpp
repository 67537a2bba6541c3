// Picker: one attention at varying sizes. Part of attn.hpp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "arguments.hpp"
#include "executable.hpp"
#include "picker.h"

namespace attn {
inline namespace v2 {

// What to do if no plan serves the sizes: see attn_pick_policy.
enum class Build : std::int32_t {
  never = ATTN_BUILD_NEVER,
  now = ATTN_BUILD_NOW,
  in_background = ATTN_BUILD_IN_BACKGROUND
};

// How a picked plan fits: see attn_fit for what `bucket` asks of the tensors.
enum class Fit : std::int32_t {
  exact = ATTN_FIT_EXACT,
  bucket = ATTN_FIT_BUCKET,
  built = ATTN_FIT_BUILT
};

// How Picker::pick chooses; `retry` repeats builds that failed before.
struct Policy {
  bool buckets = true;  // plans of larger sizes may be used
  Build build = Build::never;
  bool retry = false;
};

// Options of a picker; attn_picker_options says more.
struct PickerOptions {
  std::string attnc = {};                   // program that builds plans; empty: never build
  std::string target = {};                  // empty: see attn_picker_options.target
  std::vector<std::string> arguments = {};  // extra arguments for `attnc compile`
  std::uint64_t most_built = 0;             // 0: 256
  int timeout_seconds = 0;                  // 0: 300
  std::optional<std::string> sha256 = {};   // of the loaded file: see LoadOptions
  Verify verify = {};
};

// A spec, as text or JSON, and values for its parameters and open sizes.
struct Spec {
  std::string text;
  std::vector<std::pair<std::string, std::string>> bindings = {};
};

// The executables that serve the requested sizes.
class Picked {
 public:
  Picked() = default;
  explicit Picked(const attn_picked& plain)  // takes over the references
      : fit_(plain.fit), shape_(plain.shape), forward_(plain.forward), backward_(plain.backward) {}

  // How the plan fits the sizes.
  Fit fit() const { return static_cast<Fit>(fit_); }
  // The sizes of the plan, which are those to bind.
  const Shape& shape() const { return shape_; }
  // Null if there is no plan of that direction. The same plan has the same handle as long as the
  // picker keeps it, so the handle can serve as a key, for example of cached bindings.
  attn_executable* handle(Direction direction = Direction::forward) const {
    return direction == Direction::backward ? backward_.get() : forward_.get();
  }
  // Whether there is a plan of either direction.
  explicit operator bool() const { return forward_.get() != nullptr || backward_.get() != nullptr; }
  // Also reads the plan's tensors and params, which handle() does not. Errors: invalid_argument if
  // there is no plan of that direction.
  Result<Executable> executable(Direction direction = Direction::forward) const {
    attn_executable_retain(handle(direction));
    return Executable::adopt(handle(direction));
  }

 private:
  attn_fit fit_ = ATTN_FIT_EXACT;
  Shape shape_;
  detail::Shared<attn_executable, attn_executable_retain, attn_executable_release> forward_;
  detail::Shared<attn_executable, attn_executable_retain, attn_executable_release> backward_;
};

// The plans of one spec for several sizes. For any number of threads at once, except destruction.
class Picker {
 public:
  Picker() = default;
  // Makes a picker from a plan file; plans are loaded when first picked. Errors: those of
  // attn_picker_load_file.
  static Result<Picker> load_file(const Runtime& runtime, const std::string& path,
                                  const PickerOptions& options = {}) {
    const PlainOptions plain(options);
    return detail::make<Picker, attn_picker>(attn_picker_load_file, runtime.handle(), path.c_str(),
                                             plain.get());
  }
  // `file` holds the contents of a plan file.
  static Result<Picker> load_memory(const Runtime& runtime, std::string_view file,
                                    const PickerOptions& options = {}) {
    const PlainOptions plain(options);
    const void* bytes = file.data();
    return detail::make<Picker, attn_picker>(attn_picker_load_memory, runtime.handle(), bytes,
                                             file.size(), plain.get());
  }
  // Makes a picker without plans, which `options.attnc` builds. Errors: invalid_argument.
  static Result<Picker> create(const Runtime& runtime, const Spec& spec,
                               const PickerOptions& options) {
    const PlainOptions plain(options);
    std::vector<attn_spec_binding> bindings;
    for (const auto& [name, value] : spec.bindings) {
      bindings.push_back({name.c_str(), value.c_str()});
    }
    attn_spec plain_spec = {};
    plain_spec.size = sizeof plain_spec;
    plain_spec.text = spec.text.c_str();
    plain_spec.bindings = bindings.data();
    plain_spec.binding_count = bindings.size();
    plain_spec.binding_bytes = sizeof(attn_spec_binding);
    return detail::make<Picker, attn_picker>(attn_picker_create, runtime.handle(), &plain_spec,
                                             plain.get());
  }

  // Picks the plan for these sizes, as attn_picker_pick: exactly theirs, else the smallest that
  // contains them, else a built one. Errors: plan_shape, plan_pending, those of building or
  // loading.
  Result<Picked> pick(const std::vector<Size>& sizes, const Policy& policy = {}) const {
    std::vector<attn_dim_size> plain;
    plain.reserve(sizes.size());
    for (const Size& size : sizes) plain.push_back({static_cast<attn_dim>(size.dim), 0, size.size});
    attn_pick_policy plain_policy = {};
    plain_policy.size = sizeof plain_policy;
    plain_policy.build = static_cast<attn_build>(policy.build);
    plain_policy.exact_only = policy.buckets ? 0 : 1;
    plain_policy.retry = policy.retry ? 1 : 0;
    plain_policy.dim_size_bytes = sizeof(attn_dim_size);
    attn_picked picked = {};
    picked.size = sizeof picked;
    ATTN_TRY(detail::Caller()(attn_picker_pick, handle(), plain.data(), plain.size(), &plain_policy,
                              &picked));
    return Picked(picked);
  }

  // The shapes that have plans, built ones included.
  Result<std::vector<Shape>> shapes() const {
    std::vector<attn_shape> plain;
    std::size_t count = 0;
    do {  // a shape may be added between two calls
      plain.resize(count);
      ATTN_TRY(detail::Caller()(attn_picker_list, handle(), plain.data(), sizeof(attn_shape),
                                plain.size(), &count));
    } while (count > plain.size());
    plain.resize(count);
    return std::vector<Shape>(plain.begin(), plain.end());
  }

  attn_picker* handle() const { return handle_.get(); }
  explicit operator bool() const { return handle() != nullptr; }
  explicit Picker(attn_picker* handle) : handle_(handle) {}  // owns it

 private:
  // The options of attn.h; points into the options, which must outlive it.
  class PlainOptions {
   public:
    explicit PlainOptions(const PickerOptions& options) {
      for (const std::string& each : options.arguments) arguments_.push_back(each.c_str());
      plain_.size = sizeof plain_;
      if (!options.attnc.empty()) plain_.attnc = options.attnc.c_str();
      if (!options.target.empty()) plain_.target = options.target.c_str();
      plain_.arguments = arguments_.data();
      plain_.argument_count = arguments_.size();
      plain_.most_built = options.most_built;
      plain_.timeout_seconds = options.timeout_seconds;
      detail::set_trust(plain_, options);
    }
    const attn_picker_options* get() const { return &plain_; }

   private:
    std::vector<const char*> arguments_;
    attn_picker_options plain_ = {};
  };

  detail::Owned<attn_picker, attn_picker_destroy> handle_;
};

namespace detail {

inline attn_shape plain_shape(const std::vector<Size>& sizes) {
  attn_shape plain = {};
  for (std::int64_t& size : plain.sizes) size = -1;
  for (const Size& each : sizes) plain.sizes[static_cast<std::size_t>(each.dim)] = each.size;
  return plain;
}

}  // namespace detail

// Chooses the shape that serves these sizes, as Picker::pick does among its plans; nullopt if none
// does. Errors: those of attn_shape_choose.
inline Result<std::optional<std::size_t>> choose_shape(const std::vector<Shape>& shapes,
                                                       const std::vector<Size>& sizes) {
  std::vector<attn_shape> plain;
  for (const Shape& shape : shapes) plain.push_back(shape.plain());
  const attn_shape wanted = detail::plain_shape(sizes);
  std::size_t index = 0;
  ATTN_TRY(detail::Caller()(attn_shape_choose, plain.data(), plain.size(), &wanted, &index));
  return index < shapes.size() ? std::optional(index) : std::nullopt;
}

// Where a file has the plans that serve a call; nullopt: nowhere.
struct ChosenPlans {
  std::optional<std::size_t> forward = {}, backward = {};
};

// Chooses the plans for a GPU of compute capability `sm` / 10, these sizes and, if there are
// arguments, their dtypes, dims and strides. Errors: those of attn_plan_choose.
inline Result<ChosenPlans> choose_plans(const PlanFile& file, int sm,
                                        const std::vector<Size>& sizes,
                                        const Arguments* arguments = nullptr) {
  const attn_shape wanted = detail::plain_shape(sizes);
  const attn_arguments* given = arguments == nullptr ? nullptr : arguments->handle();
  std::int64_t forward = 0, backward = 0;
  ATTN_TRY(
      detail::Caller()(attn_plan_choose, file.handle(), sm, &wanted, given, &forward, &backward));
  const auto place = [](std::int64_t index) {
    return index < 0 ? std::nullopt : std::optional(static_cast<std::size_t>(index));
  };
  return ChosenPlans{place(forward), place(backward)};
}

}  // namespace v2
}  // namespace attn
