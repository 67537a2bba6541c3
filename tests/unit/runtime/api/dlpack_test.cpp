#include "runtime/api/dlpack.h"

#include <dlpack/dlpack.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace attn::api {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class Dlpack : public ::testing::Test {
 protected:
  DLTensor tensor_ = {};
  std::int64_t shape_[4] = {2, 3, 4, 8};
  std::int64_t strides_[4] = {96, 8, 24, 1};
  char memory_[64] = {};

  void SetUp() override {
    tensor_.data = memory_;
    tensor_.device = {kDLCUDA, 1};
    tensor_.ndim = 4;
    tensor_.dtype = {kDLBfloat, 16, 1};
    tensor_.shape = shape_;
    tensor_.strides = strides_;
  }
  void expect_error(std::string_view what) {
    const auto read = read_dlpack("q", &tensor_);
    ASSERT_FALSE(read.ok());
    EXPECT_EQ(read.error().code, ErrorCode::binding);
    EXPECT_THAT(read.error().message, HasSubstr("'q'"));
    EXPECT_THAT(read.error().message, HasSubstr(std::string(what)));
  }
};

TEST_F(Dlpack, GivesWhatItSays) {
  tensor_.byte_offset = 32;
  const auto read = read_dlpack("q", &tensor_);
  ASSERT_TRUE(read.ok());
  EXPECT_EQ(read->view.data, memory_ + 32);
  EXPECT_EQ(read->view.dtype, DType::bf16);
  EXPECT_THAT(read->view.dims, ElementsAre(2, 3, 4, 8));
  EXPECT_THAT(read->view.strides, ElementsAre(96, 8, 24, 1));
  EXPECT_EQ(read->device, 1);
}

TEST_F(Dlpack, WithoutStridesItIsRowMajor) {
  tensor_.strides = nullptr;
  EXPECT_THAT(read_dlpack("q", &tensor_)->view.strides, ElementsAre(96, 32, 8, 1));
}

TEST_F(Dlpack, ManagedMemoryIsOfNoDevice) {
  tensor_.device = {kDLCUDAManaged, 0};
  EXPECT_FALSE(read_dlpack("q", &tensor_)->device.has_value());
}

TEST_F(Dlpack, ATensorWithoutDimsIsOneElement) {
  tensor_.ndim = 0;
  tensor_.shape = nullptr;
  tensor_.strides = nullptr;
  const auto read = read_dlpack("q", &tensor_);
  ASSERT_TRUE(read.ok());
  EXPECT_TRUE(read->view.dims.empty());
}

TEST_F(Dlpack, EveryDtypeOfTheHouseIsKnown) {
  const std::pair<DLDataType, DType> all[] = {{{kDLFloat, 16, 1}, DType::f16},
                                              {{kDLBfloat, 16, 1}, DType::bf16},
                                              {{kDLFloat, 32, 1}, DType::f32},
                                              {{kDLFloat, 64, 1}, DType::f64},
                                              {{kDLInt, 8, 1}, DType::i8},
                                              {{kDLUInt, 8, 1}, DType::u8},
                                              {{kDLInt, 32, 1}, DType::i32},
                                              {{kDLInt, 64, 1}, DType::i64},
                                              {{/*kDLBool*/ 6, 8, 1}, DType::boolean}};
  for (const auto& [given, wanted] : all) {
    tensor_.dtype = given;
    EXPECT_EQ(read_dlpack("q", &tensor_)->view.dtype, wanted);
  }
}

TEST_F(Dlpack, MemoryOfTheHostIsRefused) {
  tensor_.device = {kDLCPU, 0};
  expect_error("not in CUDA memory");
  tensor_.device = {kDLCUDAHost, 0};
  expect_error("not in CUDA memory");
}

TEST_F(Dlpack, ForeignElementsAreRefused) {
  tensor_.dtype = {kDLBfloat, 16, 4};
  expect_error("vector elements of 4 lanes");
  tensor_.dtype = {kDLComplex, 64, 1};
  expect_error("type code 5 and 64 bits");
}

TEST_F(Dlpack, WhatContradictsItselfIsRefused) {
  tensor_.ndim = -1;
  expect_error("has -1 dims");
  tensor_.ndim = 4;
  shape_[2] = -4;
  expect_error("negative dim");
  tensor_.shape = nullptr;
  expect_error("no shape");
}

}  // namespace
}  // namespace attn::api
