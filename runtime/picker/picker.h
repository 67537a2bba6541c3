// One attention at varying sizes: picks the plan that serves given sizes.
//
//   picker::PickerOptions options;
//   ATTN_ASSIGN(options.plans, plan::load_bundle("decode.attnplan"));  // several shapes
//   ATTN_ASSIGN(const auto picker, picker::pick_executables(std::move(options), cache));
//   ATTN_ASSIGN(const auto picked, picker->pick({{Dim::B, 3}, {Dim::Sq, 1000}, {Dim::Skv, 1000}}));
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/picker/builder.h"
#include "runtime/picker/builds.h"
#include "runtime/picker/choose.h"
#include "runtime/picker/plans.h"

namespace attn::picker {

struct PickerOptions {
  // Plans of one spec for any number of shapes, also none. All shapes have the same directions.
  plan::Bundle plans;
  // What to build. Replaced by the plans' own origin if there are plans.
  BuildRequest origin;
  Builder builder;  // empty: never build
  // The compute capability of the device (90 is 9.0), if `plans` has plans for several: the others
  // are ignored. 0: there is one.
  std::int64_t sm = 0;
  // With a builder, plans that do not fit are ignored. Empty: all fit.
  Fits fits;
  std::size_t most_built = 256;  // shapes kept, least recently used evicted first
};

// What pick() may do.
struct Policy {
  enum class Build : std::uint8_t {
    never,
    now,            // pick() waits for the build
    in_background,  // pick() returns at once; a later call finds the plan
  };
  bool buckets = true;         // plans that contain the sizes may be used
  Build build = Build::never;  // if there is no plan, or with in_background only a bucket
  bool retry = false;          // retry builds that failed before
};

enum class Fit : std::uint8_t {
  exact,   // the plan existed
  bucket,  // the plan is for larger sizes, see Picked
  built,   // the plan was built for this or a concurrent call
};

// The executables that serve the sizes. For a bucket the caller must
// - bind tensors with the plan's dims and strides, with the valid part first along each dimension;
// - give the valid sizes in lengths_q and lengths_kv (cu_seqlens for thd): at most the wanted Sq
// and Skv, and 0 for batches from the wanted B on;
// - fill the padding of q, k, v, do and float tensors with finite numbers, and that of integer
// tensors with values that could occur: 0, in a monotone tensor its last element, in a page table
// the number of a page;
// - ignore the padding of outputs and gradients.
template <typename Loaded>
struct Picked {
  Fit fit = Fit::exact;
  plan::Shape shape;                      // the plan's
  std::shared_ptr<const Loaded> forward;  // null if there is none
  std::shared_ptr<const Loaded> backward;
};

// Thread-safe. Picking sizes whose plan was picked before takes one lock for a table look-up;
// nothing is built or loaded under it. A plan is loaded when it is first picked or when it is
// built.
template <typename Loaded>
class Picker {
 public:
  // Loads a plan; in an application execute::Executable::load.
  using Loader = std::function<Result<Loaded>(const plan::Plan& plan)>;

  // Errors: those of by_shape and origin_of.
  static Result<std::unique_ptr<Picker>> create(PickerOptions options, Loader loader) {
    if (!options.plans.plans.empty()) {
      ATTN_ASSIGN(options.origin, origin_of(options.plans));
      if (options.sm != 0) {
        ATTN_ASSIGN(options.plans,
                    for_device(std::move(options.plans), options.sm, !options.builder));
      }
    }
    std::vector<std::string> unfit;
    if (options.builder && options.fits) unfit = drop_unfit(options.plans, options.fits);
    ATTN_ASSIGN(std::vector<ShapePlans> plans, by_shape(std::move(options.plans)));
    return std::unique_ptr<Picker>(
        new Picker(std::move(options), std::move(plans), std::move(unfit), std::move(loader)));
  }
  // Stops background builds and waits for them.
  ~Picker() = default;
  Picker(const Picker&) = delete;
  Picker& operator=(const Picker&) = delete;

  // Picks the plan of exactly these sizes; else, with policy.buckets, the one of least work that
  // contains them, which requires B, Sq and Skv; else builds one. Dimensions that are not wanted
  // come from the plans, or from the spec and its bindings.
  //
  // Errors: plan_shape if there is no plan and none may be built, with the available shapes and
  // hints; plan_pending while it is being built in the background; invalid_argument if a size would
  // have to be guessed; those of the builder and the loader. A failed build is remembered and its
  // error returned again, unless policy.retry.
  Result<Picked<Loaded>> pick(const plan::Sizes& wanted, const Policy& policy = {}) {
    ATTN_ASSIGN(const Found found, find(wanted));
    const bool serves = found.entry && (found.exact || policy.buckets);
    const Policy::Build build = builder_ ? policy.build : Policy::Build::never;
    if (serves && (found.exact || build != Policy::Build::in_background)) {
      return answer(found, found.exact ? Fit::exact : Fit::bucket);
    }
    if (build == Policy::Build::never) return missing(wanted);
    if (build == Policy::Build::in_background) {
      const Status later = builds_.later(wanted, policy.retry);
      if (serves) return answer(found, Fit::bucket);
      if (!later.ok()) return later.error();
      return pending(wanted);
    }
    // Concurrent builds may evict the new plan before it is found.
    constexpr int kAttempts = 8;
    for (int attempt = 0; attempt < kAttempts; ++attempt) {
      ATTN_RETURN_IF_ERROR(builds_.now(wanted, policy.retry && attempt == 0));
      ATTN_ASSIGN(const Found built, find(wanted));
      if (built.entry && built.exact) return answer(built, Fit::built);
    }
    return missing(wanted);
  }

  // Why each plan that does not fit was ignored.
  const std::vector<std::string>& unfit() const { return unfit_; }

  // The shapes that have plans, built ones included.
  std::vector<plan::Shape> shapes() const {
    const std::lock_guard lock(mutex_);
    return shapes_;
  }

 private:
  struct Entry {
    ShapePlans plans;
    bool was_built = false;
    std::uint64_t used = 0;
    std::mutex loading;
    std::atomic<bool> is_loaded{false};
    std::shared_ptr<const Loaded> forward{};
    std::shared_ptr<const Loaded> backward{};
  };
  // Null if no plan serves the sizes.
  struct Found {
    std::shared_ptr<Entry> entry;
    bool exact = false;
  };

  static constexpr std::size_t kMostAnswers = 4096;

  Picker(PickerOptions options, std::vector<ShapePlans> plans, std::vector<std::string> unfit,
         Loader loader)
      : origin_(std::move(options.origin)),
        unfit_(std::move(unfit)),
        builder_(std::move(options.builder)),
        most_built_(options.most_built),
        loader_(std::move(loader)),
        builds_([this](const plan::Sizes& wanted, const std::stop_token& stop) {
          return build(wanted, stop);
        }) {
    for (ShapePlans& each : plans) {
      auto entry = std::make_shared<Entry>();
      entry->plans = std::move(each);
      keep(std::move(entry));
    }
  }

  Result<Found> find(const plan::Sizes& wanted) {
    const std::lock_guard lock(mutex_);
    auto known = answers_.find(wanted);
    if (known == answers_.end()) {
      ATTN_ASSIGN(const std::optional<Choice> choice, choose(shapes_, wanted, true));
      if (answers_.size() >= kMostAnswers) answers_.clear();
      const Found found =
          choice ? Found{entries_[choice->index], choice->exact} : Found{nullptr, false};
      known = answers_.emplace(wanted, found).first;
    }
    if (known->second.entry) known->second.entry->used = ++clock_;
    return known->second;
  }

  Result<Picked<Loaded>> answer(const Found& found, Fit fit) {
    ATTN_RETURN_IF_ERROR(load(*found.entry));
    const Entry& entry = *found.entry;
    return Picked<Loaded>{fit, entry.plans.shape, entry.forward, entry.backward};
  }

  // Loads once; retries after an error.
  Status load(Entry& entry) const {
    if (entry.is_loaded.load(std::memory_order_acquire)) return {};
    const std::lock_guard lock(entry.loading);
    if (entry.is_loaded.load(std::memory_order_relaxed)) return {};
    ATTN_ASSIGN(entry.forward, loaded(entry.plans.forward));
    ATTN_ASSIGN(entry.backward, loaded(entry.plans.backward));
    drop_kernels(entry.plans);
    entry.is_loaded.store(true, std::memory_order_release);
    return {};
  }

  Result<std::shared_ptr<const Loaded>> loaded(const std::optional<plan::Plan>& plan) const {
    if (!plan) return std::shared_ptr<const Loaded>();
    ATTN_ASSIGN(Loaded loaded, loader_(*plan));
    return std::shared_ptr<const Loaded>(std::make_shared<Loaded>(std::move(loaded)));
  }

  Status build(const plan::Sizes& wanted, const std::stop_token& stop) {
    ATTN_ASSIGN(const Found found, find(wanted));
    if (found.entry && found.exact) return {};  // built meanwhile
    ATTN_ASSIGN(plan::Bundle bundle, builder_(request_for(origin_, wanted), stop));
    auto entry = std::make_shared<Entry>();
    ATTN_ASSIGN(entry->plans, built_plans(std::move(bundle), wanted));
    entry->was_built = true;
    ATTN_RETURN_IF_ERROR(load(*entry));
    return add(std::move(entry));
  }

  Status add(std::shared_ptr<Entry> entry) {
    std::shared_ptr<Entry> dropped;  // destroyed without holding the lock
    std::unordered_map<plan::Sizes, Found, SizesHash> answers;
    const std::lock_guard lock(mutex_);
    if (!entries_.empty()) {
      ATTN_RETURN_IF_ERROR(same_directions(entries_.front()->plans, entry->plans));
    }
    answers.swap(answers_);
    keep(std::move(entry));
    dropped = drop_surplus();
    return {};
  }

  void keep(std::shared_ptr<Entry> entry) {
    entry->used = ++clock_;
    shapes_.push_back(entry->plans.shape);
    entries_.push_back(std::move(entry));
  }

  std::shared_ptr<Entry> drop_surplus() {
    const auto built = [](const auto& entry) { return entry->was_built; };
    if (static_cast<std::size_t>(std::ranges::count_if(entries_, built)) <= most_built_) return {};
    const auto oldest = std::ranges::min_element(
        entries_, {}, [&](const auto& entry) { return std::pair(!entry->was_built, entry->used); });
    std::shared_ptr<Entry> dropped = std::move(*oldest);
    shapes_.erase(shapes_.begin() + (oldest - entries_.begin()));
    entries_.erase(oldest);
    return dropped;
  }

  Error missing(const plan::Sizes& wanted) const {
    const std::lock_guard lock(mutex_);
    Error error = no_plan_for(shapes_, wanted);
    error.notes.insert(error.notes.end(), unfit_.begin(), unfit_.end());
    return error;
  }

  static Error pending(const plan::Sizes& wanted) {
    return {ErrorCode::plan_pending, "the plan for " + plan::to_text(wanted) +
                                         " is being built, and no other plan serves these sizes"};
  }

  const BuildRequest origin_;
  const std::vector<std::string> unfit_;
  const Builder builder_;
  const std::size_t most_built_;
  const Loader loader_;

  mutable std::mutex mutex_;
  std::vector<std::shared_ptr<Entry>> entries_;
  std::vector<plan::Shape> shapes_;  // of the entries
  std::unordered_map<plan::Sizes, Found, SizesHash> answers_;
  std::uint64_t clock_ = 0;

  Builds builds_;  // destroyed first
};

}  // namespace attn::picker
