// Binding checks with a made-up classifier: addresses below 0x1000000 are host memory, those with
// bit 32 set belong to device 1, bit 33 marks managed and bit 34 pinned host memory.
#include "runtime/execute/checks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tests/gpu/plain_attention.h"
#include "tests/unit/runtime/plan/sample_plans.h"

namespace attn::execute {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

Result<cuda::PointerInfo> classify(const void* pointer) {
  const auto address = reinterpret_cast<std::uintptr_t>(pointer);
  if ((address >> 34 & 1) != 0) return cuda::PointerInfo{cuda::MemoryKind::host, -1};
  if ((address >> 33 & 1) != 0) return cuda::PointerInfo{cuda::MemoryKind::managed, -1};
  if (address < 0x1000000) return cuda::PointerInfo{cuda::MemoryKind::unregistered, -1};
  return cuda::PointerInfo{cuda::MemoryKind::device, static_cast<int>(address >> 32 & 1)};
}

void* at(std::uintptr_t address) { return reinterpret_cast<void*>(address); }

class BindingChecks : public ::testing::Test {
 protected:
  plan::Program program_ = testing::attention_program(
      {.batch = 1, .heads_q = 4, .heads_kv = 2, .seq_q = 32, .seq_kv = 64, .head_dim = 16},
      testing::Mask::causal);

  // Arguments that fit, with `change` applied to the tensor `changed`.
  template <typename Change>
  Arguments with(const std::string& changed, Change change) const {
    Arguments arguments;
    std::uintptr_t address = 0x10000000;
    for (const plan::TensorInfo& info : program_.tensors) {
      TensorView view{at(address), info.dtype, info.dims, info.strides};
      if (info.name == changed) change(view);
      arguments.tensor(info.name, view);
      address += 0x1000000;
    }
    return arguments.scalar("scale", 0.25);
  }
  Arguments fitting() const {
    return with("", [](TensorView&) {});
  }

  Status check(const Arguments& arguments) const {
    return check_arguments(program_, arguments, 0, classify);
  }
  std::string message(const Arguments& arguments) const {
    Status status = check(arguments);
    if (status.ok()) return "accepted";
    EXPECT_EQ(status.error().code, ErrorCode::binding);
    return status.error().message;
  }
};

TEST_F(BindingChecks, FittingArgumentsAreAccepted) { EXPECT_EQ(message(fitting()), "accepted"); }

TEST_F(BindingChecks, TensorsOfAProgramAreFoundByTheirForm) {
  const auto has = [this](const std::string& name, auto change) {
    const plan::TensorInfo& q = program_.tensors[0];
    TensorView view{nullptr, q.dtype, q.dims, q.strides};
    change(view);
    return has_tensors(program_, Arguments().tensor(name, view));
  };
  const auto same = [](TensorView&) {};
  EXPECT_TRUE(has_tensors(program_, {}));
  EXPECT_TRUE(has_tensors(program_, fitting())) << "outputs and addresses too";
  EXPECT_TRUE(has("q", same));
  EXPECT_FALSE(has("k", same)) << "of other dims";
  EXPECT_FALSE(has("x", same));
  EXPECT_FALSE(has_tensors(program_, Arguments().address("x", at(0x10000000))));
  EXPECT_TRUE(has_tensors(program_, Arguments().address("q", at(0x10000000))));
  EXPECT_FALSE(has("q", [](TensorView& view) { view.dtype = DType::f16; }));
  EXPECT_FALSE(has("q", [](TensorView& view) { view.strides[2] *= 2; }));
  EXPECT_FALSE(has("q", [](TensorView& view) { view.strides.pop_back(); }));
  EXPECT_TRUE(has("q", [](TensorView& view) { view.strides[0] = 7; })) << "there is one batch";
  program_.tensors[0].bound_strides = true;
  EXPECT_TRUE(has("q", [](TensorView& view) { ++view.dims[0], view.strides[2] *= 2; }));
  EXPECT_FALSE(has("q", [](TensorView& view) { view.dtype = DType::f16; }));
}

TEST_F(BindingChecks, MissingTensor) {
  const Arguments all = fitting();
  Arguments arguments;
  for (const Arguments::Tensor& tensor : all.tensors()) {
    if (tensor.name != "k") arguments.tensor(tensor.name, tensor.view);
  }
  EXPECT_EQ(message(arguments.scalar("scale", 0.25)),
            "tensor 'k' (bf16 [1, 2, 64, 16]) is not given");
}

TEST_F(BindingChecks, ExtraTensor) {
  EXPECT_EQ(message(fitting().tensor("bias", {at(0x10000000), DType::f32, {1}, {1}})),
            "the plan has no tensor 'bias'; it has q, k, v, o, lse");
}

TEST_F(BindingChecks, WhatIsGivenAgainReplacesWhatWasGiven) {
  Arguments arguments = with("q", [](TensorView& view) { view.dtype = DType::f16; });
  const Arguments right = fitting();
  EXPECT_EQ(message(arguments.tensor("q", right.tensors()[0].view)), "accepted");
  EXPECT_EQ(message(arguments.scalar("scale", 1.0)), "accepted");
  ASSERT_EQ(arguments.scalars().size(), 1U);
  EXPECT_EQ(arguments.scalars()[0].value, 1.0);
}

TEST_F(BindingChecks, AnAddressAloneHasThePlansShape) {
  Arguments arguments = fitting();
  Arguments by_address;
  for (const Arguments::Tensor& tensor : arguments.tensors()) {
    by_address.address(tensor.name, tensor.view.data);
  }
  EXPECT_EQ(message(by_address.scalar("scale", 0.25)), "accepted");
  EXPECT_THAT(message(by_address.address("q", at(0x1000))), HasSubstr("'q' is in host memory"));
  Arguments wrong = with("q", [](TensorView& view) { view.dtype = DType::f16; });
  EXPECT_THAT(message(wrong.address("q", at(0x10000000))), HasSubstr("is f16"))
      << "as it was given";
}

TEST_F(BindingChecks, WrongDType) {
  EXPECT_EQ(message(with("q", [](TensorView& view) { view.dtype = DType::f16; })),
            "tensor 'q' is f16 but the plan needs bf16");
}

TEST_F(BindingChecks, WrongDims) {
  EXPECT_EQ(message(with("v", [](TensorView& view) { view.dims[2] = 63; })),
            "tensor 'v' has dims [1, 2, 63, 16] but the plan needs [1, 2, 64, 16]");
  EXPECT_THAT(message(with("lse", [](TensorView& view) { view.dims.push_back(1); })),
              HasSubstr("tensor 'lse' has dims [1, 4, 32, 1]"));
}

TEST_F(BindingChecks, WrongStrides) {
  EXPECT_EQ(message(with("k",
                         [](TensorView& view) {
                           view.strides = {2048, 16, 32, 1};
                         })),
            "tensor 'k' has strides [2048, 16, 32, 1] but the plan needs [2048, 1024, 16, 1]");
  EXPECT_THAT(message(with("k", [](TensorView& view) { view.strides.pop_back(); })),
              HasSubstr("has strides [2048, 1024, 16]"));
}

TEST_F(BindingChecks, StridesOfSizeOneDimsDoNotMatter) {
  EXPECT_EQ(message(with("q", [](TensorView& view) { view.strides[0] = 12345; })), "accepted");
}

TEST_F(BindingChecks, Misaligned) {
  EXPECT_EQ(message(with("o", [](TensorView& view) { view.data = at(0x10000008); })),
            "tensor 'o' is at address 0x10000008, which is not a multiple of 16 bytes");
}

TEST_F(BindingChecks, NullAddress) {
  EXPECT_EQ(message(with("o", [](TensorView& view) { view.data = nullptr; })),
            "tensor 'o' has a null address");
}

TEST_F(BindingChecks, HostMemory) {
  EXPECT_EQ(message(with("q", [](TensorView& view) { view.data = at(0x1000); })),
            "tensor 'q' is in host memory but must be in memory of CUDA device 0");
  EXPECT_EQ(message(with("q", [](TensorView& view) { view.data = at(0x400000000); })),
            "tensor 'q' is in pinned host memory but must be in memory of CUDA device 0");
}

TEST_F(BindingChecks, ManagedMemoryIsAccepted) {
  EXPECT_EQ(message(with("q", [](TensorView& view) { view.data = at(0x200000000); })), "accepted");
}

TEST_F(BindingChecks, WrongDevice) {
  EXPECT_EQ(message(with("q", [](TensorView& view) { view.data = at(0x110000000); })),
            "tensor 'q' is in memory of CUDA device 1 but the plan is loaded on device 0");
}

// Device memory in allocations of 4 kB; those from 0x20000000 on are adjacent.
Result<cuda::PointerInfo> classify_allocations(const void* pointer) {
  const auto address = reinterpret_cast<std::uintptr_t>(pointer);
  cuda::PointerInfo info = *classify(pointer);
  const std::uintptr_t in = address & 0xffffff;
  if (address < 0x20000000 && in >= 0x1000) return cuda::PointerInfo{};
  info.end = (address & ~std::uintptr_t{0xfff}) + 0x1000;
  return info;
}

TEST_F(BindingChecks, MemoryReachesToTheEndOfATensor) {
  const auto k_at = [&](std::uintptr_t address) {
    const Status status =
        check_arguments(program_, with("k", [&](TensorView& view) { view.data = at(address); }), 0,
                        classify_allocations);
    return status.ok() ? "accepted" : status.error().message;
  };
  EXPECT_EQ(k_at(0x18000000), "accepted") << "4 kB, as all but lse";
  EXPECT_EQ(k_at(0x18000010), "tensor 'k' takes 4096 bytes but its memory ends after 4080");
  EXPECT_EQ(k_at(0x20000010), "accepted") << "the next allocation follows at once";
  const Status workspace = check_workspace(at(0x18000000), 4097, 0, classify_allocations);
  ASSERT_FALSE(workspace.ok());
  EXPECT_EQ(workspace.error().message,
            "the workspace takes 4097 bytes but its memory ends after 4096");
}

TEST_F(BindingChecks, NothingIsWrittenWhereAnotherTensorBegins) {
  EXPECT_EQ(message(with("o", [](TensorView& view) { view.data = at(0x10000000); })),
            "tensor 'o' is written but has the address of tensor 'q'");
  EXPECT_EQ(message(with("lse", [](TensorView& view) { view.data = at(0x13000000); })),
            "tensor 'lse' is written but has the address of tensor 'o'");
  EXPECT_EQ(message(with("v", [](TensorView& view) { view.data = at(0x11000000); })), "accepted")
      << "k and v are read";
  std::vector<void*> addresses;
  for (std::uintptr_t i = 0; i < program_.tensors.size(); ++i) addresses.push_back(at(0x10000000));
  EXPECT_FALSE(check_addresses(program_, addresses, 0, classify).ok());
}

TEST_F(BindingChecks, AParamIsWithinTheRangeOfItsType) {
  EXPECT_TRUE(check_scalar("c", DType::f32, 3.4e38).ok());
  EXPECT_TRUE(check_scalar("c", DType::f32, -INFINITY).ok());
  EXPECT_EQ(check_scalar("c", DType::f32, 1e300).error().message,
            "param 'c' is 1e+300, which f32 cannot represent");
}

TEST_F(BindingChecks, AFailingClassifierIsReported) {
  const Status status =
      check_arguments(program_, fitting(), 0, [](const void*) -> Result<cuda::PointerInfo> {
        return {ErrorCode::cuda, "no CUDA driver on this machine"};
      });
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().code, ErrorCode::cuda);
  EXPECT_EQ(status.error().message, "tensor 'q': no CUDA driver on this machine");
}

TEST_F(BindingChecks, MissingAndExtraParams) {
  const Arguments all = fitting();
  Arguments no_scale;
  for (const Arguments::Tensor& tensor : all.tensors()) {
    no_scale.tensor(tensor.name, tensor.view);
  }
  EXPECT_EQ(message(no_scale), "param 'scale' (f32) is not given");
  EXPECT_EQ(message(fitting().scalar("cap", 1.0)), "the plan has no param 'cap'; it has scale");
}

TEST_F(BindingChecks, ParamsOfAnotherType) {
  plan::Program program = program_;
  program.params.push_back({"window", DType::i32});
  auto message_of = [&](Arguments arguments) {
    Status status = check_arguments(program, arguments, 0, classify);
    return status.ok() ? "accepted" : status.error().message;
  };
  EXPECT_EQ(message_of(fitting().scalar("window", 3)), "accepted");
  EXPECT_EQ(message_of(fitting().scalar("window", 3.0)),
            "param 'window' is f32 but the plan needs i32");
  EXPECT_EQ(message_of(fitting().scalar("window", DType::i32, 2.5)),
            "param 'window' is 2.5, which i32 cannot represent");
  EXPECT_EQ(message_of(fitting().scalar("window", DType::i32, 3e9)),
            "param 'window' is 3000000000, which i32 cannot represent");
}

TEST_F(BindingChecks, NamesOfAPlanAreEscaped) {
  const Arguments arguments = fitting();
  program_.tensors[0].name = "q\x1b[2J\n";
  const Status status = check(arguments);
  ASSERT_FALSE(status.ok());
  const std::string text = status.error().to_text();
  EXPECT_THAT(text, HasSubstr("tensor 'q\\x1b[2J\\n' (bf16 "));
  EXPECT_EQ(text.find('\x1b'), std::string::npos);
}

TEST_F(BindingChecks, AllMistakesAreReportedTogether) {
  Arguments arguments = with("q", [](TensorView& view) {
    view.dtype = DType::f16;
    view.data = at(0x1008);
  });
  const Status status = check(arguments.scalar("cap", 1.0));
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().message, "the plan has no param 'cap'; it has scale");
  EXPECT_THAT(status.error().notes,
              ElementsAre("tensor 'q' is f16 but the plan needs bf16",
                          "tensor 'q' is at address 0x1008, which is not a multiple of 16 bytes",
                          "tensor 'q' is in host memory but must be in memory of CUDA device 0"));
}

TEST(Workspace, IsCheckedWhenItIsNeeded) {
  EXPECT_TRUE(check_workspace(nullptr, 0, 0, classify).ok());
  EXPECT_TRUE(check_workspace(at(0x10000000), 4096, 0, classify).ok());
  EXPECT_EQ(check_workspace(nullptr, 4096, 0, classify).error().message,
            "the workspace has a null address");
  EXPECT_EQ(check_workspace(at(0x10000010), 4096, 0, classify).error().message,
            "the workspace is at address 0x10000010, which is not a multiple of 256 bytes");
  EXPECT_THAT(check_workspace(at(0x1000), 4096, 0, classify).error().message,
              HasSubstr("the workspace is in host memory"));
}

TEST(Compatibility, AnotherArchitectureIsRefused) {
  plan::Plan plan;
  plan.target = {"h200", 90, "{}"};
  EXPECT_TRUE(check_device(plan, "NVIDIA H200", 90).ok());
  const Status status = check_device(plan, "NVIDIA A100-SXM4-80GB", 80);
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().code, ErrorCode::plan_device);
  EXPECT_EQ(status.error().message,
            "the plan was compiled for sm_90 (h200) but this device is sm_80 (NVIDIA "
            "A100-SXM4-80GB)");
  EXPECT_THAT(status.error().notes, ElementsAre(HasSubstr("--recompile")));
}

TEST(Compatibility, AnotherCudnnIsRefused) {
  plan::Plan plan = plan::testing::sample_plan();
  plan.cudnn_version = 91900;
  EXPECT_TRUE(check_version(plan, 91900).ok());
  const Status status = check_version(plan, 92800);
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().code, ErrorCode::plan_version);
  EXPECT_EQ(status.error().message,
            "the plan was compiled with cuDNN 9.19.0 but cuDNN 9.28.0 is loaded");
  EXPECT_THAT(status.error().notes, ElementsAre(HasSubstr("--recompile")));
}

TEST(Compatibility, ThatOfAPlanWithoutACudnnStepIsNotCompared) {
  plan::Plan plan = plan::testing::sample_plan();
  std::erase_if(plan.program.steps, [](const plan::Step& step) {
    return std::holds_alternative<plan::CudnnStep>(step);
  });
  EXPECT_TRUE(check_version(plan, plan.cudnn_version + 100).ok());
}

}  // namespace
}  // namespace attn::execute
