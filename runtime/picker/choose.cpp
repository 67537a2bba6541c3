#include "runtime/picker/choose.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

namespace attn::picker {
namespace {

using plan::Dim;
using plan::Shape;
using plan::Sizes;

constexpr Dim kPadded[] = {Dim::B, Dim::Sq, Dim::Skv};
constexpr std::size_t kMostListed = 16;

bool pads(const Shape& shape, Dim dim) {
  return std::ranges::find(shape.padded, dim) != shape.padded.end();
}

// Relative work, in scores; heads and head dimensions are equal for all candidates.
double work_of(const Sizes& sizes) {
  double work = 1;
  for (const Dim dim : kPadded) work *= static_cast<double>(sizes[dim]);
  return work;
}

std::string names_of(std::span<const Dim> dims) {
  std::string text;
  for (const Dim dim : dims) text += fmt::format("{}{}", text.empty() ? "" : ", ", to_string(dim));
  return text;
}

// The distinct shapes in order, by the sizes in which they differ and those that were wanted.
std::string shapes_text(std::span<const Shape> shapes, const Sizes& wanted) {
  std::vector<Sizes> all;
  for (const Shape& shape : shapes) all.push_back(shape.sizes);
  std::vector<Dim> dims = plan::varying(all);
  for (const Dim dim : plan::kDims) {
    if (wanted.has(dim) && std::ranges::find(dims, dim) == dims.end()) dims.push_back(dim);
  }
  std::ranges::sort(dims);
  std::string text;
  for (std::size_t i = 0; i < std::min(all.size(), kMostListed); ++i) {
    text += fmt::format("{}{}", i == 0 ? "" : "; ", plan::to_text(all[i], dims));
  }
  if (all.size() > kMostListed) text += fmt::format("; and {} more", all.size() - kMostListed);
  return text;
}

// " for B=4 Sq=1"; empty if no size is wanted.
std::string of_text(const Sizes& wanted) {
  const std::string sizes = plan::to_text(wanted);
  return sizes.empty() ? "" : " for " + sizes;
}

Status check_unambiguous(std::span<const Shape> shapes, std::span<const std::size_t> which,
                         const Sizes& wanted) {
  std::vector<Sizes> sizes;
  for (const std::size_t i : which) sizes.push_back(shapes[i].sizes);
  std::vector<Dim> open = plan::varying(sizes);
  std::erase_if(open, [&](Dim dim) { return wanted.has(dim); });
  if (open.empty()) return {};
  return Error{ErrorCode::invalid_argument,
               fmt::format("plans{} differ in {}: give {} too", of_text(wanted), names_of(open),
                           open.size() == 1 ? "that size" : "those sizes"),
               {"the shapes are: " + shapes_text(shapes, wanted)}};
}

template <typename Matches>
std::vector<std::size_t> find(std::span<const Shape> shapes, const Matches& matches) {
  std::vector<std::size_t> found;
  for (std::size_t i = 0; i < shapes.size(); ++i) {
    if (matches(shapes[i])) found.push_back(i);
  }
  return found;
}

// The dimensions that keep a large enough shape from being a bucket.
std::vector<Dim> obstacles(const Shape& shape, const Sizes& wanted) {
  std::vector<Dim> dims;
  for (const Dim dim : plan::kDims) {
    if (wanted.has(dim) && wanted[dim] != shape.sizes[dim] && !pads(shape, dim))
      dims.push_back(dim);
  }
  return dims;
}

bool is_large_enough(const Shape& shape, const Sizes& wanted) {
  return std::ranges::all_of(plan::kDims, [&](Dim dim) {
    const bool may_differ = std::ranges::find(kPadded, dim) != std::end(kPadded);
    return !wanted.has(dim) || wanted[dim] == shape.sizes[dim] ||
           (may_differ && wanted[dim] < shape.sizes[dim]);
  });
}

// Why no shape is a bucket, if one is large enough.
std::string why_no_bucket(std::span<const Shape> shapes, const Sizes& wanted) {
  for (const Shape& shape : shapes) {
    if (!is_large_enough(shape, wanted)) continue;
    const std::string sizes = plan::to_text(shape.sizes, kPadded);
    const std::vector<Dim> dims = obstacles(shape, wanted);
    if (!dims.empty()) {
      return fmt::format(
          "the plan for {} is large enough, but does not serve a smaller {}: that needs "
          "`lengths q, kv`, and a spec that does not depend on the size",
          sizes, names_of(dims));
    }
    return fmt::format("the plan for {} may serve them, but B, Sq and Skv must all be given",
                       sizes);
  }
  return "";
}

}  // namespace

bool contains(const Shape& shape, const Sizes& wanted) {
  const bool whole = std::ranges::all_of(kPadded, [&](Dim dim) { return wanted.has(dim); });
  return whole && !plan::agree(wanted, shape.sizes) && is_large_enough(shape, wanted) &&
         obstacles(shape, wanted).empty();
}

Result<std::optional<Choice>> choose(std::span<const Shape> shapes, const Sizes& wanted,
                                     bool buckets) {
  const auto exact =
      find(shapes, [&](const Shape& shape) { return plan::agree(wanted, shape.sizes); });
  ATTN_RETURN_IF_ERROR(check_unambiguous(shapes, exact, wanted));
  if (!exact.empty()) return std::optional(Choice{exact.front(), true});
  if (!buckets) return std::optional<Choice>();
  const auto large = find(shapes, [&](const Shape& shape) { return contains(shape, wanted); });
  ATTN_RETURN_IF_ERROR(check_unambiguous(shapes, large, wanted));
  if (large.empty()) return std::optional<Choice>();
  const std::size_t least =
      *std::ranges::min_element(large, {}, [&](std::size_t i) { return work_of(shapes[i].sizes); });
  return std::optional(Choice{least, false});
}

Result<ChosenPlans> choose_plans(const plan::Bundle& bundle, const Sizes& wanted,
                                 const std::function<bool(const plan::Plan&)>& serves) {
  std::vector<std::size_t> serving;
  std::vector<Shape> shapes;  // each once
  for (std::size_t i = 0; i < bundle.plans.size(); ++i) {
    const Shape& shape = bundle.plans[i].shape;
    if (!serves(bundle.plans[i])) continue;
    serving.push_back(i);
    if (std::ranges::find(shapes, shape.sizes, &Shape::sizes) == shapes.end()) {
      shapes.push_back(shape);
    }
  }
  ATTN_ASSIGN(const std::optional<Choice> choice, choose(shapes, wanted, false));
  ChosenPlans chosen;
  if (!choice) return chosen;
  for (const std::size_t i : serving) {
    if (bundle.plans[i].shape.sizes != shapes[choice->index].sizes) continue;
    const plan::Direction direction = plan::direction_of(bundle.plans[i].program);
    auto& place = direction == plan::Direction::backward ? chosen.backward : chosen.forward;
    if (!place) place = i;
  }
  return chosen;
}

Error no_plan_for(std::span<const Shape> shapes, const Sizes& wanted) {
  Error error{ErrorCode::plan_shape, "there is no plan" + of_text(wanted)};
  if (shapes.empty()) {
    error.notes.emplace_back("there are no plans");
  } else {
    error.notes.push_back("there are plans for: " + shapes_text(shapes, wanted));
  }
  if (std::string why = why_no_bucket(shapes, wanted); !why.empty()) {
    error.notes.push_back(std::move(why));
  }
  return error;
}

}  // namespace attn::picker
