// Inputs of parts: where each is, so that as few bytes as possible are copied.
//
//   - A tensor that is already somewhere in the plan's layout stays there: at home, in a message,
//   or
//     as a part of another part's tensor.
//   - Otherwise it gets memory. Messages whose rows are adjacent in it arrive straight there.
//   - What is left is copied: from home beside the exchange, from messages after it.
//   - A message that is adjacent in the caller's tensor is sent from there.
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "runtime/graph/extent.h"
#include "runtime/ranks/exchanges.h"
#include "runtime/ranks/planning.h"

namespace attn::ranks {
namespace {

struct Arrival {
  const Message* message = nullptr;
  std::string name;
  Place place;  // nowhere at first
  std::size_t receive = 0;
};

// An input of a part that gets memory of its own.
struct Gathered {
  std::string name;
  Place place;
  Intervals arriving;  // straight there
};

// An input that is to be found a place.
struct Wanted {
  std::size_t part = 0, tensor = 0;
  Place place;
};

// Where the inputs of parts are: at home, or in what arrives.
class PlacedInputs {
 public:
  explicit PlacedInputs(Planning& planning) : planning_(planning) {}

 protected:
  // Large tensors first: smaller ones may be parts of them.
  Status place_parts(StageSchedule& stage, std::size_t number) {
    std::vector<Wanted> wanted;
    for (std::size_t part = 0; part < planning_.parts(); ++part) {
      if (planning_.program().parts[part].stage != static_cast<int>(number)) continue;
      if (planning_.plan(part) == nullptr) continue;
      stage.parts.push_back(part);
      ATTN_RETURN_IF_ERROR(list_inputs(part, wanted));
    }
    std::ranges::stable_sort(wanted, std::greater(),
                             [](const Wanted& each) { return each.place.rows(); });
    for (Wanted& each : wanted) place_input(each);
    return {};
  }

  Status list_inputs(std::size_t part, std::vector<Wanted>& wanted) {
    const std::vector<plan::TensorInfo>& tensors = planning_.plan(part)->tensors;
    const Part& about = planning_.program().parts[part];
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      if (tensors[i].is_output()) continue;
      Address& at = planning_.schedule.parts[part][i];
      if (const auto numbers = about.numbers.find(tensors[i].name);
          numbers != about.numbers.end()) {
        ATTN_ASSIGN(at, place_numbers(tensors[i], planning_.indices(numbers->second, about)));
        continue;
      }
      const auto index = planning_.find(whole_name(about, tensors[i].name));
      if (!index) {
        return damaged(
            fmt::format("a plan of rank {} reads '{}', which the attention does not have",
                        planning_.program().rank, tensors[i].name));
      }
      const WholeTensor& whole = planning_.tensors()[*index];
      if (whole.dtype != tensors[i].dtype)
        return damaged(fmt::format("a plan's tensor '{}' has another type", tensors[i].name));
      if (whole.divided == Divided::no) {
        if (whole.dims != tensors[i].dims ||
            tensors[i].strides != row_major_strides(tensors[i].dims))
          return damaged(
              fmt::format("a plan's tensor '{}' has other dims or strides", tensors[i].name));
        at = {Address::In::home, *index, 0};
        continue;
      }
      ATTN_ASSIGN(Place place, planning_.of_part(part, tensors[i], whole.divided));
      wanted.push_back({part, i, std::move(place)});
    }
    return {};
  }

  // What is exchanged keeps its name: an output that is renamed to `lse` is not what a backward
  // reads.
  static std::string whole_name(const Part& part, const std::string& name) {
    if (find_carried(name) != nullptr) return name;
    for (const auto& [whole, renamed] : part.renamed) {
      if (renamed == name) return whole;
    }
    return name;
  }

  Result<Address> place_numbers(const plan::TensorInfo& tensor, const Intervals& set) {
    if (tensor.dtype != DType::i32 || tensor.dims != std::vector<std::int64_t>{count(set)})
      return damaged(fmt::format("a plan's tensor '{}' has other dims", tensor.name));
    const std::vector<std::int64_t> all = numbers(set);
    return planning_.table.add({all.begin(), all.end()});
  }

  void place_input(Wanted& wanted) {
    const plan::TensorInfo& tensor = planning_.plan(wanted.part)->tensors[wanted.tensor];
    Address& at = planning_.schedule.parts[wanted.part][wanted.tensor];
    at = found(tensor, wanted.place);
    if (at) return;
    at = planning_.allocate(tensor);
    wanted.place.at = at;
    Gathered gathered{tensor.name, wanted.place, {}};
    for (Arrival& arrival : arrivals_) {
      if (arrival.place.at || arrival.name != tensor.name) continue;
      const auto there = view(wanted.place, arrival.place.heads, arrival.place.indices);
      if (!there || !is_dense(*there) || !same_layout(*there, arrival.place)) continue;
      arrive(arrival, there->at);
      gathered.arriving = both(gathered.arriving, arrival.place.indices);
    }
    known_[tensor.name].push_back(wanted.place);
    gathered_.push_back(std::move(gathered));
  }

  // Where the tensor already is, in the plan's layout; nothing if it is nowhere.
  Address found(const plan::TensorInfo& tensor, const Place& place) {
    for (const Place& known : known_[tensor.name]) {
      const auto there = fitting(known, tensor, place);
      if (there) return there->at;
    }
    for (Arrival& arrival : arrivals_) {
      if (arrival.place.at || arrival.name != tensor.name) continue;
      if (!fitting(arrival.place, tensor, place)) continue;
      arrive(arrival, planning_.memory.add(arrival.place.bytes()));
      return fitting(arrival.place, tensor, place)->at;
    }
    return {};
  }

  static std::optional<Place> fitting(const Place& known, const plan::TensorInfo& tensor,
                                      const Place& place) {
    std::optional<Place> there = view(known, place.heads, place.indices);
    if (!there || !same_layout(*there, place) || there->at.offset % tensor.alignment != 0)
      return std::nullopt;
    return there;
  }

  void arrive(Arrival& arrival, Address at) {
    arrival.place.at = at;
    known_[arrival.name].push_back(arrival.place);
  }

  Planning& planning_;
  std::vector<Arrival> arrivals_;                    // of this stage
  std::map<std::string, std::vector<Place>> known_;  // all that has a place, by tensor
  std::vector<Gathered> gathered_;                   // of this stage
};

class Inputs : private PlacedInputs {
 public:
  using PlacedInputs::PlacedInputs;

  Status run() {
    const Program& program = planning_.program();
    const auto& exchanges = planning_.is_backward() ? program.backward_inputs : program.inputs;
    for (const WholeTensor& tensor : planning_.tensors()) {
      if (const auto place = planning_.home(tensor.name)) known_[tensor.name].push_back(*place);
    }
    for (std::size_t stage = 0; stage < exchanges.size(); ++stage)
      ATTN_RETURN_IF_ERROR(run_stage(exchanges[stage], planning_.schedule.stages[stage], stage));
    return check_all_placed();
  }

 private:
  Status run_stage(const Exchange& exchange, StageSchedule& stage, std::size_t number) {
    ATTN_RETURN_IF_ERROR(pack(exchange, stage));
    announce(exchange, stage);
    ATTN_RETURN_IF_ERROR(place_parts(stage, number));
    for (Arrival& arrival : arrivals_) {
      if (!arrival.place.at) arrive(arrival, planning_.memory.add(arrival.place.bytes()));
    }
    for (const Arrival& arrival : arrivals_)
      stage.exchange.receives[arrival.receive].at = arrival.place.at;
    for (const Gathered& gathered : gathered_) ATTN_RETURN_IF_ERROR(gather(gathered, stage));
    for (const Arrival& arrival : arrivals_) before_[arrival.name].push_back(arrival.place);
    arrivals_.clear();
    gathered_.clear();
    return {};
  }

  Status pack(const Exchange& exchange, StageSchedule& stage) {
    for (const Message& message : exchange.sends) {
      for (const Payload& payload : message.tensors) {
        Place place = planning_.of_message(message, payload);
        const auto home = planning_.home(payload.name);
        if (!home || home->dtype != place.dtype || !contains(home->indices, message.indices)) {
          return damaged(fmt::format("rank {} sends rank {} what it does not have of '{}'",
                                     planning_.program().rank, message.peer, payload.name));
        }
        const auto there = view(*home, place.heads, place.indices);
        if (there && is_dense(*there)) {
          place.at = there->at;
        } else {
          place.at = planning_.memory.add(place.bytes());
          stage.packs.push_back(planning_.copy(*home, place, place.indices));
        }
        stage.exchange.sends.push_back({message.peer, place.at, place.bytes()});
      }
    }
    return {};
  }

  void announce(const Exchange& exchange, StageSchedule& stage) {
    for (const Message& message : exchange.receives) {
      for (const Payload& payload : message.tensors) {
        const Place place = planning_.of_message(message, payload);
        arrivals_.push_back({&message, payload.name, place, stage.exchange.receives.size()});
        stage.exchange.receives.push_back({message.peer, {}, place.bytes()});
      }
    }
  }

  Status gather(const Gathered& gathered, StageSchedule& stage) {
    Intervals left = rest(gathered.place.indices, gathered.arriving);
    const auto take = [&](const Place& from, std::vector<Copy>& copies) {
      const Intervals some = common(left, from.indices);
      if (some.empty() || from.dtype != gathered.place.dtype) return;
      copies.push_back(planning_.copy(from, gathered.place, some));
      left = rest(left, some);
    };
    if (const auto home = planning_.home(gathered.name)) take(*home, stage.early);
    for (const Place& place : before_[gathered.name]) take(place, stage.early);
    for (const Arrival& arrival : arrivals_) {
      if (arrival.name == gathered.name) take(arrival.place, stage.late);
    }
    if (left.empty()) return {};
    return damaged(fmt::format("rank {} lacks {} of '{}', which a part of it needs",
                               planning_.program().rank, to_text(left), gathered.name));
  }

  // Parts of stages that the program does not have would read nowhere.
  Status check_all_placed() {
    for (std::size_t part = 0; part < planning_.parts(); ++part) {
      if (planning_.plan(part) == nullptr) continue;
      const int stage = planning_.program().parts[part].stage;
      if (stage >= 0 && static_cast<std::size_t>(stage) < planning_.schedule.stages.size())
        continue;
      return damaged(fmt::format("part {} is of stage {}, which there is not", part, stage));
    }
    return {};
  }

  std::map<std::string, std::vector<Place>> before_;  // that arrived in stages before
};

}  // namespace

Status plan_inputs(Planning& planning) { return Inputs(planning).run(); }

}  // namespace attn::ranks
