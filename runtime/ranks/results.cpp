// Outputs of parts: where each is, and what merges them by row into messages and the caller's
// tensors, with as few bytes copied as possible.
//
//   - The values of a part (o or a gradient) that are all of their rows go straight into the
//     caller's tensor, or into a message, where they are adjacent there in the plan's layout.
//   - A message that is all of its rows arrives straight in the caller's tensor likewise.
//   - Statistics of such a part have another layout than the caller's, unless it has all of the
//     caller's rows: they are copied.
//   - Everything else is merged.
#include <fmt/format.h>

#include <algorithm>

#include "runtime/ranks/exchanges.h"
#include "runtime/ranks/merge_rows.h"
#include "runtime/ranks/planning.h"
#include "runtime/ranks/tensors.h"

namespace attn::ranks {
namespace {

constexpr std::size_t kValues = 0;

std::size_t slot_of(std::string_view name) {
  const auto* found = std::ranges::find(kStatistics, name);
  return found == std::end(kStatistics)
             ? kValues
             : 1 + static_cast<std::size_t>(found - std::begin(kStatistics));
}

// One source of rows: a part, or a message that arrives.
struct Source {
  Intervals indices;
  MergePlace place;
  std::size_t number = 0;  // of the place in merges; kHome or more
};

// Where the results of this rank's parts are written: at home if they can be.
class PlacedParts {
 public:
  PlacedParts(Planning& planning, Divided of, std::string values, bool weighted)
      : planning_(planning),
        exchange_(planning.is_backward() ? planning.program().gradients
                                         : planning.program().results),
        of_(of),
        values_(std::move(values)),
        weighted_(weighted),
        home_(planning.home(values_)),
        clears_(planning.division().clears_padding && !planning.is_backward()) {}

 protected:
  std::string_view name_of(std::size_t slot) const {
    return slot == kValues ? std::string_view(values_) : kStatistics[slot - 1];
  }

  bool has(std::size_t slot) const { return slot == kValues || weighted_; }

  void set_home_slot(std::size_t slot) {
    if (!has(slot)) return;
    const auto place = planning_.home(name_of(slot));
    if (place) home_place_.slots[slot] = {place->at, place->strides};
  }

  bool is_of_this(const Message& message) const {
    return message.of == of_ &&
           std::ranges::find(message.tensors, values_, &Payload::name) != message.tensors.end();
  }

  // Rows of which others than this part or message have something too.
  Intervals others(const void* but) const {
    Intervals set;
    for (std::size_t i = 0; i < planning_.parts(); ++i) {
      const Part& part = planning_.program().parts[i];
      if (&part != but && planning_.plan(i) != nullptr)
        set = both(set, planning_.indices(of_, part));
    }
    for (const Message& message : exchange_.receives) {
      if (&message != but && is_of_this(message)) set = both(set, message.indices);
    }
    return set;
  }

  std::optional<std::size_t> output_of(std::size_t part, std::size_t slot) const {
    const std::vector<plan::TensorInfo>& tensors = planning_.plan(part)->tensors;
    std::string name(name_of(slot));
    const auto& renamed = planning_.program().parts[part].renamed;
    if (const auto found = renamed.find(name); found != renamed.end()) name = found->second;
    const auto found = std::ranges::find(tensors, name, &plan::TensorInfo::name);
    if (found != tensors.end() && found->is_output())
      return static_cast<std::size_t>(found - tensors.begin());
    return std::nullopt;
  }

  void place_part(std::size_t part, const std::array<std::optional<std::size_t>, kSlots>& tensors,
                  std::array<Place, kSlots>& places, Source& source) {
    const bool is_final = goes_home(part, places[kValues]);
    bool is_whole = is_final;
    for (std::size_t slot = 1; slot < kSlots; ++slot) {
      if (!home_place_.slots[slot].at) continue;
      is_whole = is_whole && tensors[slot] && tensor(part, *tensors[slot]).name == name_of(slot) &&
                 fits_home(name_of(slot), places[slot], alignment(part, *tensors[slot]));
    }
    source.place.dtype = places[kValues].dtype;
    const bool is_copied = is_final && !is_whole && gives_statistics(part, tensors);
    for (std::size_t slot = 0; slot < kSlots; ++slot) {
      if (!tensors[slot]) continue;
      Address& at = planning_.schedule.parts[part][*tensors[slot]];
      if (home_place_.slots[slot].at && (slot == kValues ? is_final : is_whole)) {
        at = view(*planning_.home(name_of(slot)), places[slot].heads, places[slot].indices)->at;
      } else if (!at) {
        at = planning_.allocate(tensor(part, *tensors[slot]));
      }
      // Values at home are never merged again.
      if (!(slot == kValues && is_final)) source.place.slots[slot] = {at, places[slot].strides};
      places[slot].at = at;
      if (is_copied && slot != kValues && home_place_.slots[slot].at) {
        planning_.schedule.statistics.push_back(
            planning_.copy(places[slot], *planning_.home(name_of(slot)), source.indices));
      }
    }
    if (is_whole || is_copied) {
      final_ = both(final_, source.indices);
      return;
    }
    if (is_final) statistics_ = both(statistics_, source.indices);
    values_of_parts_.push_back(places[kValues]);
    sources_.push_back(std::move(source));
  }

  // All that the caller binds, by their own names: nothing has to be computed.
  bool gives_statistics(std::size_t part,
                        const std::array<std::optional<std::size_t>, kSlots>& tensors) const {
    for (std::size_t slot = 1; slot < kSlots; ++slot) {
      if (!home_place_.slots[slot].at) continue;
      if (!tensors[slot] || tensor(part, *tensors[slot]).name != name_of(slot)) return false;
    }
    return true;
  }

  const plan::TensorInfo& tensor(std::size_t part, std::size_t index) const {
    return planning_.plan(part)->tensors[index];
  }

  std::int64_t alignment(std::size_t part, std::size_t index) const {
    return tensor(part, index).alignment;
  }

  // Whether the part's values are all that there is of its rows, and fit into the caller's tensor.
  bool goes_home(std::size_t part, const Place& values) const {
    const Part& about = planning_.program().parts[part];
    if (!home_ || clears_ || !common(values.indices, others(&about)).empty()) return false;
    const auto index = output_of(part, kValues);
    return fits_home(values_, values, alignment(part, *index));
  }

  bool fits_home(std::string_view name, const Place& place, std::int64_t alignment) const {
    const auto home = planning_.home(name);
    const auto there = home ? view(*home, place.heads, place.indices) : std::nullopt;
    return there && same_layout(*there, place) && there->at.offset % alignment == 0;
  }

  Planning& planning_;
  const Exchange& exchange_;
  const Divided of_;
  const std::string values_;
  const bool weighted_;
  const std::optional<Place> home_;  // of the values
  const bool clears_;
  MergePlace home_place_;
  std::vector<Source> sources_;         // parts, then messages
  std::vector<Place> values_of_parts_;  // of those in `sources_`
  Intervals final_;                     // rows at home that need no merge at all
  Intervals statistics_;  // rows at home whose values are there, but not the statistics
};

// Where results are received, and from where they are sent.
class PlacedMessages : public PlacedParts {
 public:
  using PlacedParts::PlacedParts;

 protected:
  struct Written {
    Intervals indices;
    MergePlace place;
  };

  void place_received(const Message& message, std::vector<Address>& at) {
    if (!is_of_this(message)) return;
    Source source{message.indices, {}, 0};
    source.place.heads = planning_.heads(of_, message.key_heads);
    bool has_statistics = false;
    for (std::size_t i = 0; i < message.tensors.size(); ++i) {
      const std::size_t slot = slot_here(message.tensors[i].name);
      if (slot == kSlots) continue;
      const Place place = planning_.of_message(message, message.tensors[i]);
      has_statistics |= slot != kValues;
      if (slot == kValues) {
        source.place.dtype = place.dtype;
        const auto there = straight_home(message, place);
        if (there) {
          at[i] = there->at;
          statistics_ = both(statistics_, message.indices);
          continue;
        }
      }
      at[i] = planning_.memory.add(place.bytes());
      source.place.slots[slot] = {at[i], place.strides};
    }
    if (!has_statistics && !source.place.slots[kValues].at) {
      statistics_ = rest(statistics_, message.indices);
      final_ = both(final_, message.indices);
      return;
    }
    arriving_ = both(arriving_, message.indices);
    sources_.push_back(std::move(source));
  }

  // The slot of a message's tensor here; kSlots if it belongs to other values.
  std::size_t slot_here(const std::string& name) const {
    if (name == values_) return kValues;
    const std::size_t slot = slot_of(name);
    return slot != kValues && weighted_ ? slot : kSlots;
  }

  std::optional<Place> straight_home(const Message& message, const Place& place) const {
    if (!home_ || clears_ || place.heads != planning_.all_heads(of_)) return std::nullopt;
    if (!common(message.indices, others(&message)).empty()) return std::nullopt;
    auto there = view(*home_, place.heads, place.indices);
    if (!there || !same_layout(*there, place)) return std::nullopt;
    return there;
  }

  void place_sent(const Message& message, std::vector<Address>& at) {
    if (!is_of_this(message)) return;
    leave_after_parts_of(message);
    MergePlace to;
    to.heads = planning_.heads(of_, message.key_heads);
    bool merges = false;
    for (std::size_t i = 0; i < message.tensors.size(); ++i) {
      const std::size_t slot = slot_here(message.tensors[i].name);
      if (slot == kSlots) continue;
      const Place place = planning_.of_message(message, message.tensors[i]);
      if (slot == kValues) {
        to.dtype = place.dtype;
        at[i] = straight_out(place);
        if (at[i]) continue;
      }
      at[i] = planning_.memory.add(place.bytes());
      to.slots[slot] = {at[i], place.strides};
      merges = true;
    }
    if (merges) outgoing_.push_back({message.indices, to});
  }

  void leave_after_parts_of(const Message& message) {
    for (std::size_t i = 0; i < planning_.parts(); ++i) {
      const Part& part = planning_.program().parts[i];
      if (planning_.plan(i) != nullptr &&
          !common(planning_.indices(of_, part), message.indices).empty())
        planning_.leave_after(static_cast<std::size_t>(part.stage));
    }
  }

  // The place of a part's values that are all that there is of a message; nothing if none are.
  Address straight_out(const Place& place) const {
    std::optional<Place> found;
    for (const Place& values : values_of_parts_) {
      if (common(values.indices, place.indices).empty()) continue;
      if (found) return {};
      found = view(values, place.heads, place.indices);
      if (!found || !same_layout(*found, place)) return {};
    }
    return found ? found->at : Address();
  }

  std::vector<Written> outgoing_;
  Intervals arriving_;  // rows that messages bring
};

class Results : private PlacedMessages {
 public:
  using PlacedMessages::PlacedMessages;

  Status run(std::vector<std::vector<Address>>& sends,
             std::vector<std::vector<Address>>& receives) {
    home_place_.heads = planning_.all_heads(of_);
    if (home_) home_place_.dtype = home_->dtype;
    for (std::size_t slot = 0; slot < kSlots; ++slot) set_home_slot(slot);
    ATTN_RETURN_IF_ERROR(place_parts());
    for (std::size_t i = 0; i < exchange_.receives.size(); ++i)
      place_received(exchange_.receives[i], receives[i]);
    for (std::size_t i = 0; i < exchange_.sends.size(); ++i)
      place_sent(exchange_.sends[i], sends[i]);
    add(planning_.schedule.outgoing, outgoing_, planning_.own_heads(of_), false);
    merge_home();
    return {};
  }

 private:
  // ---- Parts ----

  Status place_parts() {
    for (std::size_t i = 0; i < planning_.parts(); ++i) {
      if (planning_.plan(i) == nullptr) continue;
      Source source{planning_.indices(of_, planning_.program().parts[i]), {}, 0};
      source.place.heads = planning_.own_heads(of_);
      std::array<std::optional<std::size_t>, kSlots> tensors;
      std::array<Place, kSlots> places;
      for (std::size_t slot = 0; slot < kSlots; ++slot) {
        if (!has(slot)) continue;
        tensors[slot] = output_of(i, slot);
        if (!tensors[slot]) continue;
        ATTN_ASSIGN(places[slot],
                    planning_.of_part(i, planning_.plan(i)->tensors[*tensors[slot]], of_));
      }
      ATTN_RETURN_IF_ERROR(check_outputs(tensors, places));
      if (!tensors[kValues]) continue;  // its gradient is not wanted
      place_part(i, tensors, places, source);
    }
    return {};
  }

  // A part must give all that is merged: kernels do not look for what is missing.
  Status check_outputs(const std::array<std::optional<std::size_t>, kSlots>& tensors,
                       const std::array<Place, kSlots>& places) const {
    const auto fault = [&](std::string_view name, std::string_view what) {
      return damaged(
          fmt::format("a plan of rank {} {} `{}`", planning_.program().rank, what, name));
    };
    if (!tensors[kValues]) return home_ ? Status(fault(values_, "does not give")) : Status();
    if (!can_merge(places[kValues].dtype)) return fault(values_, "has another type of");
    if (!weighted_) return {};
    for (const Payload& payload : results_of(planning_.division())) {
      const std::size_t slot = slot_of(payload.name);
      if (slot == kValues) continue;
      if (!tensors[slot]) return fault(payload.name, "does not give");
      if (places[slot].dtype != DType::f32) return fault(payload.name, "has another type of");
    }
    return {};
  }

  // ---- Messages ----

  // ---- Merging ----

  void merge_home() {
    const bool wanted =
        std::ranges::any_of(home_place_.slots, [](const Slot& slot) { return bool(slot.at); });
    if (!wanted) return;
    const Intervals left = rest(planning_.home_indices(of_), final_);
    const Intervals late = common(left, arriving_), early = rest(left, arriving_);
    add(planning_.schedule.early, {{early, home_place_}}, planning_.all_heads(of_), true);
    add(planning_.schedule.late, {{late, home_place_}}, planning_.all_heads(of_), true);
  }

  void add(std::vector<Merge>& merges, const std::vector<Written>& written, Interval heads,
           bool to_home) {
    Merge merge;
    MergeRows rows;
    std::vector<const Intervals*> sets;
    for (const Source& source : sources_) {
      if (to_home || is_part(source)) sets.push_back(&source.indices);
    }
    std::int32_t number = kFirstPlace + static_cast<std::int32_t>(sets.size());
    for (const Written& each : written) {
      if (to_home) {
        const Intervals& all = planning_.home_indices(of_);
        rows.add({kHome, all, rest(each.indices, statistics_)}, sets);
        if (weighted_) rows.add({kHomeStatistics, all, common(each.indices, statistics_)}, sets);
        merge.home = each.place;
      } else {
        rows.add({number++, each.indices, each.indices}, sets);
      }
    }
    if (rows.count() == 0) return;
    for (const Source& source : sources_) {
      if (to_home || is_part(source)) merge.places.push_back(source.place);
    }
    if (!to_home) {
      for (const Written& each : written) merge.places.push_back(each.place);
    }
    merge.rows = rows.count();
    merge.batches = planning_.division().batches;
    merge.width = planning_.width(values_);
    merge.heads = heads;
    merge.weighted = weighted_;
    if (to_home && clears_) {
      if (const auto lengths = planning_.find("lengths_q")) {
        merge.lengths = {Address::In::home, *lengths, 0};
        merge.numbers = planning_.table.add(rows.numbers());
      }
    }
    merge.uniform = rows.shorten();
    merge.first = planning_.table.add(rows.first());
    merge.entries = planning_.table.add(rows.entries());
    merges.push_back(std::move(merge));
  }

  bool is_part(const Source& source) const {
    return static_cast<std::size_t>(&source - sources_.data()) < values_of_parts_.size();
  }
};

void list(const Exchange& exchange, const std::vector<std::vector<Address>>& sends,
          const std::vector<std::vector<Address>>& receives, const Planning& planning,
          PlacedExchange& placed) {
  const auto pieces = [&](const std::vector<Message>& messages,
                          const std::vector<std::vector<Address>>& at) {
    std::vector<PlacedPiece> list;
    for (std::size_t i = 0; i < messages.size(); ++i) {
      for (std::size_t j = 0; j < messages[i].tensors.size(); ++j) {
        list.push_back({messages[i].peer, at[i][j],
                        planning.of_message(messages[i], messages[i].tensors[j]).bytes()});
      }
    }
    return list;
  };
  placed.sends = pieces(exchange.sends, sends);
  placed.receives = pieces(exchange.receives, receives);
}

// Exchanges are made one after the other.
void leave_after_inputs(Planning& planning) {
  const std::vector<StageSchedule>& stages = planning.schedule.stages;
  for (std::size_t stage = 0; stage < stages.size(); ++stage) {
    if (!stages[stage].exchange.empty()) planning.leave_after(stage);
  }
}

// Outputs that nothing reads need memory too.
void place_others(Planning& planning) {
  for (std::size_t part = 0; part < planning.parts(); ++part) {
    if (planning.plan(part) == nullptr) continue;
    const std::vector<plan::TensorInfo>& tensors = planning.plan(part)->tensors;
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      Address& at = planning.schedule.parts[part][i];
      if (!at) at = planning.allocate(tensors[i]);
    }
  }
}

}  // namespace

Status plan_results(Planning& planning) {
  const bool backward = planning.is_backward();
  const Exchange& exchange = backward ? planning.program().gradients : planning.program().results;
  const auto none = [](const std::vector<Message>& messages) {
    std::vector<std::vector<Address>> at;
    for (const Message& message : messages) at.emplace_back(message.tensors.size());
    return at;
  };
  std::vector<std::vector<Address>> sends = none(exchange.sends),
                                    receives = none(exchange.receives);
  const auto merge = [&](Divided of, const char* values, bool weighted) {
    return Results(planning, of, values, weighted).run(sends, receives);
  };
  if (backward) {
    ATTN_RETURN_IF_ERROR(merge(Divided::rows, "dq", false));
    ATTN_RETURN_IF_ERROR(merge(Divided::keys, "dk", false));
    ATTN_RETURN_IF_ERROR(merge(Divided::keys, "dv", false));
  } else {
    ATTN_RETURN_IF_ERROR(merge(Divided::rows, "o", !planning.division().sigmoid));
  }
  for (const auto* list : {&sends, &receives}) {
    for (const std::vector<Address>& message : *list) {
      if (!std::ranges::all_of(message, [](const Address& at) { return bool(at); }))
        return damaged("a message has results that are not of rows or keys");
    }
  }
  list(exchange, sends, receives, planning, planning.schedule.results);
  leave_after_inputs(planning);
  place_others(planning);
  return {};
}

}  // namespace attn::ranks
