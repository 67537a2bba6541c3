// Tests attn.h on the stand-ins for cuDNN and the driver: complete runs and their failures.
#include <attn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdlib>
#include <string>
#include <vector>

#include "tests/standin/standins.h"
#include "tests/unit/runtime/api/attn_on_standins.h"
#include "tests/unit/runtime/api/c99.h"
#include "tests/unit/runtime/api/plan_file.h"

namespace {

using attn::standin::AttnOnStandins;
using attn::standin::contents_of;
using attn::standin::PlanFile;
using ::testing::HasSubstr;

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

// The size of a structure that ended before its field `first`.
#define ATTN_SIZE_BEFORE(structure, first) offsetof(structure, first)

// Nothing beyond the size that a caller gives is read or written.
TEST_F(AttnOnStandins, StructuresOfTheFirstHeaderStillWork) {
  attn_runtime_options opening = {};
  opening.size = ATTN_SIZE_BEFORE(attn_runtime_options, allocate_memory);
  opening.cudnn_folder = folder_.c_str();
  opening.allocate_memory = [](void*, size_t, void*) -> void* { abort(); };
  opening.allocator_release = [](void*) { abort(); };
  attn_runtime* runtime = nullptr;
  expect_ok(attn_runtime_open(&opening, &runtime, error_));

  const std::string bytes = contents_of({});
  attn_load_options loading = {};
  loading.size = ATTN_SIZE_BEFORE(attn_load_options, sha256);
  loading.sha256 = "not looked at";
  loading.verify = [](void*, const void*, size_t) -> int32_t { return 1; };
  attn_executable* executable = nullptr;
  expect_ok(attn_executable_load_memory(runtime, bytes.data(), bytes.size(), &loading, &executable,
                                        error_));
  attn_executable_info info = {};
  info.size = ATTN_SIZE_BEFORE(attn_executable_info, device_bytes);
  info.device_bytes = -7;
  expect_ok(attn_executable_describe(executable, &info, error_));
  EXPECT_EQ(info.param_count, 1u);
  EXPECT_EQ(info.device_bytes, -7);
  attn_tensor_info tensor = {};
  tensor.size = ATTN_SIZE_BEFORE(attn_tensor_info, bytes);
  tensor.bytes = -7;
  expect_ok(attn_executable_tensor(executable, 0, &tensor, error_));
  EXPECT_STREQ(tensor.addressed_by, "");
  EXPECT_EQ(tensor.bytes, -7);

  attn_bind_options binding_options = {};
  binding_options.size = ATTN_SIZE_BEFORE(attn_bind_options, kept_addresses);
  binding_options.kept_addresses = 1000000;
  attn_binding_destroy(bind(executable, make_tensors(runtime, 'a'), &binding_options));
  attn_executable_release(executable);
  attn_runtime_release(runtime);
}

TEST_F(AttnOnStandins, BytesAreSaid) {
  attn_runtime* runtime = open();
  attn_executable* executable = load(runtime);
  attn_tensor_info tensor = {};
  tensor.size = sizeof tensor;
  expect_ok(attn_executable_tensor(executable, 0, &tensor, error_));
  EXPECT_EQ(tensor.bytes, static_cast<int64_t>(kBytes));
  expect_ok(attn_executable_tensor(executable, 2, &tensor, error_));
  EXPECT_EQ(tensor.bytes, static_cast<int64_t>(kTableBytes));
  attn_executable_info info = {};
  info.size = sizeof info;
  info.device_bytes = -1;
  expect_ok(attn_executable_describe(executable, &info, error_));
  EXPECT_EQ(info.device_bytes, 0);
  attn_executable_release(executable);
  attn_runtime_release(runtime);
}

TEST_F(AttnOnStandins, ReservedFieldsMustBeZero) {
  attn_runtime* runtime = open();
  const std::string bytes = contents_of({});
  attn_load_options loading = {};
  loading.size = sizeof loading;
  loading.reserved = 1;
  attn_executable* executable = nullptr;
  EXPECT_EQ(attn_executable_load_memory(runtime, bytes.data(), bytes.size(), &loading, &executable,
                                        error_),
            ATTN_STATUS_INVALID_ARGUMENT);
  EXPECT_THAT(message(), HasSubstr("`reserved`"));
  attn_runtime_release(runtime);
}

TEST_F(AttnOnStandins, ACudaFailureHasItsNumberAndKind) {
  attn_runtime* runtime = open();
  attn_executable* executable = load(runtime);
  const std::vector<void*> tensors = make_tensors(runtime, 'a');
  const struct {
    int code;
    attn_cuda_failure kind;
  } all[] = {{2, ATTN_CUDA_OUT_OF_MEMORY}, {719, ATTN_CUDA_FAULT}, {1, ATTN_CUDA_OTHER}};
  for (const auto& [code, kind] : all) {
    const StandinRule rule = attn::standin::fail_nth("cuMemAlloc", 1, code);
    attn::standin::cuda().control.script(&rule);
    attn_arguments* arguments = arguments_of(tensors);
    attn_binding* binding = nullptr;
    EXPECT_EQ(attn_binding_create(executable, arguments, nullptr, &binding, error_),
              ATTN_STATUS_CUDA);
    attn_arguments_destroy(arguments);
    EXPECT_EQ(attn_error_cuda_code(error_), code);
    EXPECT_EQ(attn_error_cuda_failure(error_), kind);
    EXPECT_THAT(attn_error_payload(error_), HasSubstr("{\"cuda\": " + std::to_string(code)));
  }
  EXPECT_EQ(attn_executable_describe(executable, nullptr, error_), ATTN_STATUS_INVALID_ARGUMENT);
  EXPECT_EQ(attn_error_cuda_code(error_), 0);
  EXPECT_EQ(attn_error_cuda_failure(error_), ATTN_CUDA_NONE);
  EXPECT_EQ(attn_error_cuda_failure(nullptr), ATTN_CUDA_NONE);
  attn_executable_release(executable);
  attn_runtime_release(runtime);
}

TEST_F(AttnOnStandins, ArgumentsMayBeSetAgainAndByAddress) {
  attn_runtime* runtime = open();
  attn_executable* executable = load(runtime);
  const std::vector<void*> first = make_tensors(runtime, 'a');
  const std::vector<void*> second = make_tensors(runtime, 'b');
  attn_arguments* arguments = arguments_of(first);
  add(arguments, "q", second[0], ATTN_DTYPE_BF16, kDims.data(), 4);
  expect_ok(attn_arguments_address(arguments, "o", second[1], error_));
  expect_ok(attn_arguments_address(arguments, "table", second[2], error_));
  expect_ok(attn_arguments_param(arguments, "p0", ATTN_DTYPE_F32, 3, error_));
  attn_binding* binding = nullptr;
  expect_ok(attn_binding_create(executable, arguments, nullptr, &binding, error_));
  expect_ok(attn_binding_execute(binding, nullptr, error_));
  expect_right(second[1], 'b', 3);
  attn_binding_destroy(binding);
  attn_arguments_destroy(arguments);

  expect_ok(attn_arguments_create(&arguments, error_));
  const char* names[] = {"q", "o", "table"};
  for (size_t i = 0; i < 3; ++i) {
    expect_ok(attn_arguments_address(arguments, names[i], first[i], error_));
  }
  expect_ok(attn_arguments_param(arguments, "p0", ATTN_DTYPE_F32, kParam, error_));
  expect_ok(attn_binding_create(executable, arguments, nullptr, &binding, error_));
  expect_ok(attn_binding_execute(binding, nullptr, error_));
  expect_right(first[1], 'a');
  attn_binding_destroy(binding);
  attn_arguments_destroy(arguments);
  attn_executable_release(executable);
  attn_runtime_release(runtime);
}

TEST_F(AttnOnStandins, ACaptureThatFailsLeavesTheBinding) {
  attn_runtime* runtime = open();
  attn_executable* executable = load(runtime);
  const std::vector<void*> tensors = make_tensors(runtime, 'a');
  attn_binding* binding = bind(executable, tensors);
  const StandinRule rule = attn::standin::fail_nth("cuGraphInstantiateWithFlags", 1, 2);
  attn::standin::cuda().control.script(&rule);
  attn_graph* graph = nullptr;
  EXPECT_EQ(attn_graph_from_binding(&binding, &graph, error_), ATTN_STATUS_CUDA);
  EXPECT_EQ(graph, nullptr);
  ASSERT_NE(binding, nullptr);
  expect_ok(attn_binding_execute(binding, nullptr, error_));
  expect_right(tensors[1], 'a');
  void* cuda_graph = nullptr;
  expect_ok(attn_binding_cuda_graph(binding, &cuda_graph, error_));
  EXPECT_NE(cuda_graph, nullptr);
  expect_ok(attn_graph_from_binding(&binding, &graph, error_));
  EXPECT_EQ(binding, nullptr);
  expect_ok(attn_graph_launch(graph, nullptr, error_));
  attn_graph_destroy(graph);
  attn_executable_release(executable);
  attn_runtime_release(runtime);
}

TEST_F(AttnOnStandins, APlanIsLookedIntoAndThenLoaded) {
  const std::string bytes = contents_of({});
  attn_plan* plan = nullptr;
  expect_ok(attn_plan_open_memory(bytes.data(), bytes.size(), nullptr, &plan, error_));
  ASSERT_EQ(attn_plan_count(plan), 1u);
  attn_plan_info info = {};
  info.size = sizeof info;
  expect_ok(attn_plan_describe(plan, 0, &info, error_));
  EXPECT_STREQ(info.target, "standin");
  EXPECT_EQ(info.sm, 90);
  EXPECT_EQ(info.cudnn_version, 91900);
  EXPECT_EQ(info.direction, ATTN_DIRECTION_FORWARD);
  ASSERT_EQ(info.tensor_count, 3u);
  ASSERT_EQ(info.param_count, 1u);
  attn_tensor_info tensor = {};
  tensor.size = sizeof tensor;
  expect_ok(attn_plan_tensor(plan, 0, 2, &tensor, error_));
  EXPECT_STREQ(tensor.name, "table");
  attn_param_info param = {};
  param.size = sizeof param;
  expect_ok(attn_plan_param(plan, 0, 0, &param, error_));
  EXPECT_STREQ(param.name, "p0");
  EXPECT_EQ(attn_plan_describe(plan, 1, &info, error_), ATTN_STATUS_INVALID_ARGUMENT);
  EXPECT_EQ(message(), "there is no plan 1: the file has 1");
  EXPECT_EQ(attn_plan_param(plan, 0, 1, &param, error_), ATTN_STATUS_INVALID_ARGUMENT);

  attn_runtime* runtime = open();
  attn_executable* executable = nullptr;
  expect_ok(attn_executable_load_plan(runtime, plan, 0, &executable, error_));
  EXPECT_EQ(attn_executable_load_plan(runtime, plan, 1, &executable, error_),
            ATTN_STATUS_INVALID_ARGUMENT);
  attn_executable_info loaded = {};
  loaded.size = sizeof loaded;
  expect_ok(attn_executable_describe(executable, &loaded, error_));
  EXPECT_STREQ(loaded.signature, info.signature);
  EXPECT_EQ(loaded.workspace_bytes, info.workspace_bytes);
  EXPECT_EQ(loaded.device_bytes, info.device_bytes);
  attn_plan_close(plan);
  attn_executable_release(executable);
  attn_runtime_release(runtime);
}

}  // namespace
