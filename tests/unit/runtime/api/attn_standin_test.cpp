// attn.h on the stand-ins for cuDNN and the driver: the whole way, and what fails on it.
#include <attn.h>
#include <dlpack/dlpack.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/standin/standins.h"
#include "tests/unit/runtime/api/c99.h"
#include "tests/unit/runtime/api/plan_file.h"

namespace {

using attn::standin::contents_of;
using attn::standin::expected_o;
using attn::standin::PlanFile;
using ::testing::HasSubstr;

constexpr std::array<int64_t, 4> kDims = {1, 2, 4, 8};
constexpr int64_t kTableDims[] = {16};
constexpr size_t kBytes = 128, kTableBytes = 64;
constexpr double kParam = 1.5;

class AttnOnStandins : public attn::standin::StandinTest {
 protected:
  void SetUp() override {
    StandinTest::SetUp();
    error_ = attn_error_create();
    folder_ = attn::standin::folder();
  }
  void TearDown() override {
    for (attn_memory* memory : memory_) attn_memory_free(memory);
    attn_error_destroy(error_);
    StandinTest::TearDown();
  }

  void expect_ok(attn_status status) {
    EXPECT_EQ(status, ATTN_STATUS_OK) << attn_error_text(error_);
  }
  std::string message() const { return attn_error_message(error_); }

  attn_runtime* open(attn_runtime_options options = {}) {
    options.size = sizeof options;
    options.cudnn_folder = folder_.c_str();
    attn_runtime* runtime = nullptr;
    expect_ok(attn_runtime_open(&options, &runtime, error_));
    return runtime;
  }
  attn_executable* load(attn_runtime* runtime, const PlanFile& file = {}) {
    const std::string bytes = contents_of(file);
    attn_executable* executable = nullptr;
    expect_ok(attn_executable_load_memory(runtime, bytes.data(), bytes.size(), nullptr, &executable,
                                          error_));
    return executable;
  }
  attn_status load_status(attn_runtime* runtime, const std::string& bytes,
                          attn_direction direction = ATTN_DIRECTION_FORWARD) {
    attn_load_options options = {};
    options.size = sizeof options;
    options.direction = direction;
    attn_executable* executable = nullptr;
    return attn_executable_load_memory(runtime, bytes.data(), bytes.size(), &options, &executable,
                                       error_);
  }

  // Device memory with these bytes, ended with the test.
  void* allocate(attn_runtime* runtime, const std::string& bytes) {
    attn_memory* memory = nullptr;
    expect_ok(attn_memory_allocate(runtime, bytes.size(), &memory, error_));
    memory_.push_back(memory);
    expect_ok(attn_memory_upload(memory, 0, bytes.data(), bytes.size(), error_));
    return attn_memory_data(memory);
  }
  std::string read(void* address, size_t bytes) {
    std::string read(bytes, '\0');
    for (attn_memory* memory : memory_) {
      if (attn_memory_data(memory) != address) continue;
      expect_ok(attn_memory_download(memory, 0, read.data(), bytes, error_));
    }
    return read;
  }

  void add(attn_arguments* arguments, const char* name, void* data, attn_dtype dtype,
           const int64_t* dims, int32_t rank) {
    attn_tensor tensor = {};
    tensor.size = sizeof tensor;
    tensor.name = name;
    tensor.data = data;
    tensor.dtype = dtype;
    tensor.rank = rank;
    tensor.dims = dims;
    expect_ok(attn_arguments_tensor(arguments, &tensor, error_));
  }
  // In the order in which the plan has them.
  std::vector<void*> make_tensors(attn_runtime* runtime, char fill) {
    return {allocate(runtime, std::string(kBytes, fill)), allocate(runtime, std::string(kBytes, 0)),
            allocate(runtime, std::string(kTableBytes, fill))};
  }
  attn_arguments* arguments_of(const std::vector<void*>& tensors) {
    attn_arguments* arguments = nullptr;
    expect_ok(attn_arguments_create(&arguments, error_));
    add(arguments, "q", tensors[0], ATTN_DTYPE_BF16, kDims.data(), 4);
    add(arguments, "o", tensors[1], ATTN_DTYPE_BF16, kDims.data(), 4);
    add(arguments, "table", tensors[2], ATTN_DTYPE_F32, kTableDims, 1);
    expect_ok(attn_arguments_param(arguments, "p0", ATTN_DTYPE_F32, kParam, error_));
    return arguments;
  }
  attn_binding* bind(attn_executable* executable, const std::vector<void*>& tensors,
                     const attn_bind_options* options = nullptr) {
    attn_arguments* arguments = arguments_of(tensors);
    attn_binding* binding = nullptr;
    expect_ok(attn_binding_create(executable, arguments, options, &binding, error_));
    attn_arguments_destroy(arguments);
    return binding;
  }
  void expect_right(void* o, char fill, double param = kParam, const PlanFile& file = {}) {
    const std::string wanted = expected_o(
        file, std::string(kBytes, fill), std::string(kTableBytes, fill), static_cast<float>(param));
    EXPECT_EQ(read(o, kBytes), wanted);
  }

  attn_error* error_ = nullptr;
  std::string folder_;
  std::vector<attn_memory*> memory_;
};

TEST_F(AttnOnStandins, DescribesWhatItRunsOn) {
  attn_runtime* runtime = open();
  attn_runtime_info info = {};
  info.size = sizeof info;
  expect_ok(attn_runtime_describe(runtime, &info, error_));
  EXPECT_EQ(info.device, 0);
  EXPECT_EQ(info.sm, 90);
  EXPECT_EQ(info.cudnn_version, 91900);
  EXPECT_EQ(info.cudnn_library, folder_ + "/libcudnn.so.9");
  EXPECT_STRNE(info.device_name, "");
  attn_runtime_release(runtime);
}

TEST_F(AttnOnStandins, ListsWhatAPlanWants) {
  attn_runtime* runtime = open();
  attn_executable* executable = load(runtime);
  attn_executable_info info = {};
  info.size = sizeof info;
  expect_ok(attn_executable_describe(executable, &info, error_));
  EXPECT_EQ(std::string(info.signature).size(), 32u);
  EXPECT_EQ(info.direction, ATTN_DIRECTION_FORWARD);
  EXPECT_GT(info.workspace_bytes, 0);
  ASSERT_EQ(info.tensor_count, 3u);
  ASSERT_EQ(info.param_count, 1u);

  attn_tensor_info tensor = {};
  tensor.size = sizeof tensor;
  expect_ok(attn_executable_tensor(executable, 1, &tensor, error_));
  EXPECT_STREQ(tensor.name, "o");
  EXPECT_EQ(tensor.role, ATTN_ROLE_OUTPUT);
  EXPECT_EQ(tensor.dtype, ATTN_DTYPE_BF16);
  EXPECT_EQ(tensor.is_output, 1);
  ASSERT_EQ(tensor.rank, 4);
  EXPECT_EQ(tensor.dims[3], 8);
  EXPECT_EQ(tensor.strides[1], 32);
  EXPECT_EQ(tensor.alignment, 16);
  EXPECT_STREQ(tensor.addressed_by, "");
  EXPECT_EQ(attn_executable_tensor(executable, 3, &tensor, error_), ATTN_STATUS_INVALID_ARGUMENT);
  EXPECT_EQ(message(), "there is no tensor 3: the plan has 3");

  attn_param_info param = {};
  param.size = sizeof param;
  expect_ok(attn_executable_param(executable, 0, &param, error_));
  EXPECT_STREQ(param.name, "p0");
  EXPECT_EQ(param.dtype, ATTN_DTYPE_F32);
  attn_executable_release(executable);
  attn_runtime_release(runtime);
}

TEST_F(AttnOnStandins, ExecutesWhatWasBoundWithEveryKindOfWorkspace) {
  attn_runtime* runtime = open();
  attn_executable* executable = load(runtime);
  attn_stream* stream = nullptr;
  expect_ok(attn_stream_create(runtime, &stream, error_));
  void* workspace = allocate(runtime, std::string(4096, 0));
  for (const attn_workspace kind :
       {ATTN_WORKSPACE_OWNED, ATTN_WORKSPACE_CALLER, ATTN_WORKSPACE_STREAM_ORDERED}) {
    const std::vector<void*> tensors = make_tensors(runtime, 'a');
    attn_bind_options options = {};
    options.size = sizeof options;
    options.workspace = kind;
    options.workspace_memory = workspace;
    attn_binding* binding = bind(executable, tensors, &options);
    expect_ok(attn_binding_execute(binding, attn_stream_handle(stream), error_));
    expect_ok(attn_stream_synchronize(stream, error_));
    expect_right(tensors[1], 'a');
    attn_binding_destroy(binding);
  }
  attn_stream_destroy(stream);
  attn_executable_release(executable);
  attn_runtime_release(runtime);
}

TEST_F(AttnOnStandins, ParamsAddressesAndWorkspaceChange) {
  attn_runtime* runtime = open();
  attn_executable* executable = load(runtime);
  const std::vector<void*> first = make_tensors(runtime, 'a');
  const std::vector<void*> second = make_tensors(runtime, 'b');
  attn_binding* binding = bind(executable, first);
  expect_ok(attn_binding_set_param(binding, "p0", 2, error_));
  expect_ok(attn_binding_execute(binding, nullptr, error_));
  expect_right(first[1], 'a', 2);
  expect_ok(attn_binding_set_addresses(binding, second.data(), second.size(), ATTN_CHECK_ADDRESSES,
                                       error_));
  expect_ok(attn_binding_set_workspace(binding, allocate(runtime, std::string(4096, 0)), error_));
  expect_ok(attn_binding_execute(binding, nullptr, error_));
  expect_right(second[1], 'b', 2);
  expect_ok(
      attn_binding_set_addresses(binding, first.data(), first.size(), ATTN_CHECK_NOTHING, error_));
  expect_ok(attn_binding_execute(binding, nullptr, error_));
  expect_right(first[1], 'a', 2);

  EXPECT_EQ(attn_binding_set_param(binding, "cap", 2, error_), ATTN_STATUS_BINDING);
  EXPECT_EQ(attn_binding_set_param(binding, nullptr, 2, error_), ATTN_STATUS_INVALID_ARGUMENT);
  EXPECT_EQ(attn_binding_set_addresses(binding, second.data(), 2, ATTN_CHECK_ADDRESSES, error_),
            ATTN_STATUS_BINDING);
  EXPECT_EQ(attn_binding_set_addresses(binding, second.data(), 3, 7, error_),
            ATTN_STATUS_INVALID_ARGUMENT);
  char host[256];
  const std::vector<void*> wrong = {host, second[1], second[2]};
  EXPECT_EQ(attn_binding_set_addresses(binding, wrong.data(), 3, ATTN_CHECK_ADDRESSES, error_),
            ATTN_STATUS_BINDING);
  EXPECT_THAT(message(), HasSubstr("'q'"));
  attn_binding_destroy(binding);
  attn_executable_release(executable);
  attn_runtime_release(runtime);
}

TEST_F(AttnOnStandins, AGraphFollowsChanges) {
  attn_runtime* runtime = open();
  attn_executable* executable = load(runtime);
  attn_stream* stream = nullptr;
  expect_ok(attn_stream_create(runtime, &stream, error_));
  const std::vector<void*> first = make_tensors(runtime, 'a');
  const std::vector<void*> second = make_tensors(runtime, 'b');
  attn_graph* graph = nullptr;
  expect_ok(attn_graph_capture(bind(executable, first), &graph, error_));
  expect_ok(attn_graph_launch(graph, attn_stream_handle(stream), error_));
  expect_right(first[1], 'a');
  expect_ok(attn_graph_set_param(graph, "p0", 3, error_));
  expect_ok(attn_graph_set_addresses(graph, second.data(), 3, ATTN_CHECK_ADDRESSES, error_));
  expect_ok(attn_graph_launch(graph, attn_stream_handle(stream), error_));
  expect_right(second[1], 'b', 3);
  attn_graph_destroy(graph);
  attn_stream_destroy(stream);
  attn_executable_release(executable);
  attn_runtime_release(runtime);
}

TEST_F(AttnOnStandins, ABindingKeepsAliveWhatItNeeds) {
  attn_runtime* runtime = open();
  attn_executable* executable = load(runtime);
  const std::vector<void*> tensors = make_tensors(runtime, 'a');
  attn_binding* binding = bind(executable, tensors);
  attn_executable_release(executable);
  attn_runtime_release(runtime);
  expect_ok(attn_binding_execute(binding, nullptr, error_));
  expect_right(tensors[1], 'a');
  attn_binding_destroy(binding);
}

TEST_F(AttnOnStandins, APlanIsLoadedOnceAndCounted) {
  attn_runtime_options options = {};
  options.cache_entries = 2;
  attn_runtime* runtime = open(options);
  for (const int number : {0, 0, 1, 2, 0}) {
    PlanFile file;
    file.number = number;
    attn_executable_release(load(runtime, file));
  }
  attn_cache_counters counters = {};
  counters.size = sizeof counters;
  expect_ok(attn_runtime_cache_counters(runtime, 1, &counters, error_));
  EXPECT_EQ(counters.hit, 1u);
  EXPECT_EQ(counters.miss, 4u);
  EXPECT_EQ(counters.evict, 2u);
  EXPECT_EQ(counters.entries, 2u);
  EXPECT_GT(counters.bytes, 0u);
  expect_ok(attn_runtime_cache_clear(runtime, error_));
  expect_ok(attn_runtime_cache_counters(runtime, 0, &counters, error_));
  EXPECT_EQ(counters.miss, 0u);
  EXPECT_EQ(counters.entries, 0u);
  attn_runtime_release(runtime);
}

TEST_F(AttnOnStandins, PlansThatDoNotFitSaySo) {
  attn_runtime* runtime = open();
  PlanFile other_gpu, other_cudnn;
  other_gpu.sm = 80;
  other_cudnn.cudnn_version = 92000;
  EXPECT_EQ(load_status(runtime, contents_of(other_gpu)), ATTN_STATUS_PLAN_DEVICE);
  EXPECT_EQ(load_status(runtime, contents_of(other_cudnn)), ATTN_STATUS_PLAN_VERSION);
  EXPECT_EQ(attn_error_note_count(error_), 1u);
  EXPECT_EQ(load_status(runtime, "no plan at all, but long enough to be one: what a pity, really!"),
            ATTN_STATUS_PLAN_FOREIGN);
  EXPECT_EQ(load_status(runtime, contents_of({}).substr(0, 200)), ATTN_STATUS_PLAN_TRUNCATED);
  EXPECT_EQ(load_status(runtime, contents_of({}), ATTN_DIRECTION_BACKWARD),
            ATTN_STATUS_INVALID_ARGUMENT);
  EXPECT_EQ(load_status(runtime, contents_of({}), 7), ATTN_STATUS_INVALID_ARGUMENT);
  attn_executable* executable = nullptr;
  EXPECT_EQ(attn_executable_load_file(runtime, "/no/such.attnplan", nullptr, &executable, error_),
            ATTN_STATUS_IO);
  EXPECT_EQ(executable, nullptr);
  attn_runtime_release(runtime);
}

TEST_F(AttnOnStandins, WhatCudnnSaysIsInTheError) {
  constexpr int kInternal = 4000;  // CUDNN_STATUS_INTERNAL_ERROR
  attn_runtime* runtime = open();
  const StandinRule rule =
      attn::standin::fail_nth("cudnnBackendFinalize", 1, kInternal, "the kernel is broken");
  attn::standin::cudnn().control.script(&rule);
  EXPECT_EQ(load_status(runtime, contents_of({})), ATTN_STATUS_CUDNN);
  EXPECT_THAT(attn_error_text(error_), HasSubstr("the kernel is broken"));
  EXPECT_THAT(attn_error_payload(error_), HasSubstr("\"reason\""));
  attn_runtime_release(runtime);
}

TEST_F(AttnOnStandins, ADeviceThatIsNotThere) {
  attn_runtime_options options = {};
  options.size = sizeof options;
  options.device = 7;
  attn_runtime* runtime = nullptr;
  EXPECT_EQ(attn_runtime_open(&options, &runtime, error_), ATTN_STATUS_INVALID_ARGUMENT);
  EXPECT_THAT(message(), HasSubstr("7"));
  EXPECT_EQ(runtime, nullptr);
}

TEST_F(AttnOnStandins, ACallerWithAnOlderHeaderIsUnderstood) {
  EXPECT_EQ(c99_open_as_older_caller(folder_.c_str(), 1, error_), ATTN_STATUS_OK);
  EXPECT_EQ(c99_open_as_older_caller(folder_.c_str(), 7, error_), ATTN_STATUS_INVALID_ARGUMENT);
}

class DlpackOnStandins : public AttnOnStandins {
 protected:
  DLTensor dl_tensor(void* data, int device) {
    DLTensor tensor = {};
    tensor.data = data;
    tensor.device = {kDLCUDA, device};
    tensor.ndim = 4;
    tensor.dtype = {kDLBfloat, 16, 1};
    tensor.shape = shape_.data();
    return tensor;
  }
  attn_status bind_dlpack(attn_executable* executable, const std::vector<void*>& tensors,
                          int device, attn_binding** binding) {
    attn_arguments* arguments = nullptr;
    expect_ok(attn_arguments_create(&arguments, error_));
    const DLTensor q = dl_tensor(tensors[0], device), o = dl_tensor(tensors[1], device);
    expect_ok(attn_arguments_dlpack(arguments, "q", &q, error_));
    expect_ok(attn_arguments_dlpack(arguments, "o", &o, error_));
    add(arguments, "table", tensors[2], ATTN_DTYPE_F32, kTableDims, 1);
    expect_ok(attn_arguments_param(arguments, "p0", ATTN_DTYPE_F32, kParam, error_));
    const attn_status status = attn_binding_create(executable, arguments, nullptr, binding, error_);
    attn_arguments_destroy(arguments);
    return status;
  }

  std::array<int64_t, 4> shape_ = kDims;
};

TEST_F(DlpackOnStandins, TensorsAreBoundWhereTheySayTheyAre) {
  attn_runtime* runtime = open();
  attn_executable* executable = load(runtime);
  const std::vector<void*> tensors = make_tensors(runtime, 'a');
  attn_binding* binding = nullptr;
  expect_ok(bind_dlpack(executable, tensors, 0, &binding));
  expect_ok(attn_binding_execute(binding, nullptr, error_));
  expect_right(tensors[1], 'a');
  attn_binding_destroy(binding);

  EXPECT_EQ(bind_dlpack(executable, tensors, 1, &binding), ATTN_STATUS_BINDING);
  EXPECT_EQ(message(), "tensor 'o' is on CUDA device 1 but the plan is loaded on device 0");
  attn_executable_release(executable);
  attn_runtime_release(runtime);
}

struct Diary {
  std::atomic<int> messages = 0;
  std::atomic<int> ends = 0;
};

void note(void* diary, attn_log_level level, const char* message) {
  EXPECT_GE(level, ATTN_LOG_DEBUG);
  EXPECT_STRNE(message, "");
  static_cast<Diary*>(diary)->messages += 1;
}
void end(void* diary) { static_cast<Diary*>(diary)->ends += 1; }

TEST_F(AttnOnStandins, TheLogEndsWithTheLastThatCouldWriteIt) {
  Diary diary;
  attn_runtime_options options = {};
  options.log = note;
  options.log_user = &diary;
  options.log_release = end;
  attn_runtime* runtime = open(options);
  EXPECT_GT(diary.messages, 0);
  attn_executable* executable = load(runtime);
  attn_runtime_release(runtime);
  EXPECT_EQ(diary.ends, 0);
  attn_executable_release(executable);
  EXPECT_EQ(diary.ends, 1);

  options.device = 7;
  options.size = sizeof options;
  EXPECT_NE(attn_runtime_open(&options, &runtime, error_), ATTN_STATUS_OK);
  EXPECT_EQ(diary.ends, 2);
}

TEST_F(AttnOnStandins, ThreadsShareARuntimeAndAnExecutable) {
  constexpr int kThreads = 8, kRounds = 20;
  attn_runtime* runtime = open();
  attn_executable* executable = load(runtime);
  std::vector<std::vector<void*>> tensors;
  std::vector<attn_binding*> bindings;
  for (int i = 0; i < kThreads; ++i) {
    tensors.push_back(make_tensors(runtime, static_cast<char>('a' + i)));
    bindings.push_back(bind(executable, tensors.back()));
  }
  std::atomic<int> failures = 0;
  std::vector<std::thread> threads;
  for (attn_binding* binding : bindings) {
    attn_executable_retain(executable);
    threads.emplace_back([&, binding] {
      attn_stream* stream = nullptr;
      failures += attn_stream_create(runtime, &stream, nullptr) != ATTN_STATUS_OK;
      for (int round = 0; round < kRounds; ++round) {
        failures +=
            attn_binding_execute(binding, attn_stream_handle(stream), nullptr) != ATTN_STATUS_OK;
      }
      failures += attn_stream_synchronize(stream, nullptr) != ATTN_STATUS_OK;
      attn_stream_destroy(stream);
      attn_executable_release(executable);
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(failures, 0);
  for (size_t i = 0; i < kThreads; ++i) {
    expect_right(tensors[i][1], static_cast<char>('a' + i));
    attn_binding_destroy(bindings[i]);
  }
  attn_executable_release(executable);
  attn_runtime_release(runtime);
}

}  // namespace
