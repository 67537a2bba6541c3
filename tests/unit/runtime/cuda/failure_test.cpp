#include "runtime/cuda/failure.h"

#include <gtest/gtest.h>

namespace attn::cuda {
namespace {

TEST(Failure, KindsAreToldApart) {
  EXPECT_EQ(failure_for(2).kind, FailureKind::out_of_memory);
  EXPECT_EQ(failure_for(100).kind, FailureKind::no_driver);
  EXPECT_EQ(failure_for(700).kind, FailureKind::fault);
  EXPECT_EQ(failure_for(719).kind, FailureKind::fault);
  for (const int sticky : {226, 721, 810, 911}) {
    EXPECT_EQ(failure_for(sticky).kind, FailureKind::fault) << sticky;
  }
  EXPECT_EQ(failure_for(1).kind, FailureKind::other);
}

TEST(Failure, ThePayloadSaysWhatItWas) {
  for (const int code : {0, 1, 2, 100, 700, 999}) {
    const Error error{ErrorCode::cuda, "broken", {}, to_payload(failure_for(code), "CUDA_ERROR_X")};
    EXPECT_EQ(failure_of(error), failure_for(code));
  }
  const Error missing{ErrorCode::cuda, "none", {}, to_payload({FailureKind::no_driver, 0})};
  EXPECT_EQ(failure_of(missing), (Failure{FailureKind::no_driver, 0}));
  EXPECT_EQ(out_of_memory("full").payload,
            R"({"cuda": 2, "name": "CUDA_ERROR_OUT_OF_MEMORY", "kind": "out_of_memory"})");
}

TEST(Failure, OtherErrorsHaveNone) {
  EXPECT_EQ(failure_of({ErrorCode::cuda, "broken", {}, ""}), std::nullopt);
  EXPECT_EQ(failure_of({ErrorCode::cuda, "broken", {}, "{}"}), std::nullopt);
  EXPECT_EQ(failure_of({ErrorCode::io, "broken", {}, to_payload(failure_for(2))}), std::nullopt);
}

}  // namespace
}  // namespace attn::cuda
