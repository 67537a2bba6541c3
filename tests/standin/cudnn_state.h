// Internals of the stand-in cuDNN.
#pragma once

#include <atomic>
#include <cstring>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "runtime/cudnn/attributes.h"
#include "tests/standin/recorder.h"
#include "tests/standin/registry.h"
#include "tests/standin/work.h"

namespace attn::standin {

// An engine config offered by heuristics, and the result of building a plan from it.
struct Config {
  std::int64_t engine = 5;
  std::vector<std::pair<std::int64_t, std::int64_t>> knobs;  // type, value
  std::int64_t workspace = 256;
  int status = 0;  // of building the plan
  std::string words;
};
struct Offer {
  std::vector<Config> configs;
  std::int64_t surplus = 0;
  int status = 0;
  std::string words;
};
Offer offer_of(cudnnBackendHeurMode_t mode);
std::int64_t engine_count();
std::int64_t version();

struct Handle {
  int device = 0;
  void* stream = nullptr;
  std::atomic<bool> busy{false};
  std::atomic<int> plans{0};  // live plans loaded with it
};

// The bytes of an attribute's elements.
struct Elements {
  std::int64_t count = 0;
  std::vector<std::byte> bytes;

  template <typename T>
  T at(std::int64_t index = 0) const {
    T value{};
    std::memcpy(&value, bytes.data() + static_cast<std::size_t>(index) * sizeof(T), sizeof(T));
    return value;
  }
  std::string text() const { return std::string(reinterpret_cast<const char*>(bytes.data())); }
};

struct Descriptor {
  explicit Descriptor(cudnnBackendDescriptorType_t its_type) : type(its_type) {}

  cudnnBackendDescriptorType_t type;
  bool finalized = false;
  std::map<cudnnBackendAttributeName_t, Elements> set;
  std::atomic<int> in_use{0};  // by executes

  // Set by finalize.
  std::shared_ptr<const Work> work;            // OPERATIONGRAPH and descriptors derived from it
  std::vector<Config> offered;                 // ENGINEHEUR
  Config config;                               // ENGINECFG, ENGINE, EXECUTION_PLAN
  std::pair<std::int64_t, std::int64_t> knob;  // KNOB_CHOICE
  Handle* handle = nullptr;                    // a loaded EXECUTION_PLAN
  int device = -1;                             // the same
  std::int64_t sm = 0;                         // EXECUTION_PLAN, DEVICEPROP
  std::string json;                            // DEVICEPROP, EXECUTION_PLAN

  // Null if it was not set.
  const Elements* find(cudnnBackendAttributeName_t name) const;
};

Registry<Descriptor>& descriptors();
Registry<Handle>& handles();

// "EXECUTION_PLAN"
std::string kind_name(int kind);

// The attribute with this name, or null.
const cudnn::AttributeInfo* find_attribute(cudnnBackendAttributeName_t name);
bool belongs(const cudnn::AttributeInfo& attribute, cudnnBackendDescriptorType_t kind);
std::size_t size_of(cudnnBackendAttributeType_t type);

// The last error text of this thread.
void say(const std::string& words);
std::string take_last_words();
// Sets the error text and returns the status. breach() also records a violation.
cudnnStatus_t fail(cudnnStatus_t status, const std::string& reason);
cudnnStatus_t breach(const char* function, cudnnStatus_t status, const std::string& what);

// cudnnBackendFinalize of each kind of descriptor.
cudnnStatus_t finalize_tensor(const Descriptor& tensor);
cudnnStatus_t finalize_graph(Descriptor& graph);
cudnnStatus_t finalize_device(Descriptor& device);
cudnnStatus_t finalize_heuristics(Descriptor& heuristics);
cudnnStatus_t finalize_engine(Descriptor& engine);
cudnnStatus_t finalize_config(Descriptor& config);
cudnnStatus_t finalize_plan(Descriptor& plan);
cudnnStatus_t check_pack(const Descriptor& pack);

// cudnnBackendGetAttribute of an attribute that the descriptor has.
cudnnStatus_t read(const Descriptor& descriptor, const cudnn::AttributeInfo& attribute,
                   std::int64_t requested, std::int64_t* count, void* elements);

cudnnStatus_t execute(Handle& handle, Descriptor& plan, Descriptor& pack);

// The stand-in driver, or null if the driver of this process is a different one.
const StandinCuda* driver();

void set_offer(const char* mode, const char* json);
void reset_heuristics();

// At the start of an entry point: counts the call and applies the script.
#define ATTN_STANDIN_CUDNN(name, care, kind)                                       \
  static Site site(#name, Care::care);                                             \
  if (const Verdict verdict = recorder().enter(site, kind); verdict.status != 0) { \
    return scripted(verdict);                                                      \
  }

}  // namespace attn::standin
