#include "runtime/api/names.h"

#include <gtest/gtest.h>

#include "runtime/api/failure.h"

namespace attn::api {
namespace {

TEST(Names, EveryErrorCodeHasANumberWithItsNameAndExitCode) {
#define ATTN_ERROR(name, code, what)                                 \
  EXPECT_STREQ(attn_status_name(status_of(ErrorCode::name)), #name); \
  EXPECT_EQ(attn_status_exit_code(status_of(ErrorCode::name)), exit_code(ErrorCode::name));
#include "runtime/base/error_codes.def"
#undef ATTN_ERROR
  EXPECT_STREQ(attn_status_name(ATTN_STATUS_OK), "ok");
  EXPECT_STREQ(attn_status_name(ATTN_STATUS_OUT_OF_MEMORY), "out_of_memory");
  EXPECT_STREQ(attn_status_name(-1), "unknown");
  EXPECT_EQ(attn_status_exit_code(ATTN_STATUS_OK), 0);
  EXPECT_EQ(attn_status_exit_code(ATTN_STATUS_OUT_OF_MEMORY), 4);
  EXPECT_EQ(attn_status_exit_code(-1), 70);
}

TEST(Names, EveryDtypeHasANumber) {
#define ATTN_DTYPE(name, bytes, is_float)                                     \
  EXPECT_EQ(dtype_of(number_of(DType::name)), DType::name);                   \
  EXPECT_EQ(to_string(DType::name), attn_dtype_name(number_of(DType::name))); \
  EXPECT_EQ(attn_dtype_bytes(number_of(DType::name)), static_cast<size_t>(bytes));
#include "runtime/base/dtype.def"
#undef ATTN_DTYPE
  EXPECT_STREQ(attn_dtype_name(0), "unknown");
  EXPECT_EQ(attn_dtype_bytes(0), 0u);
}

TEST(Names, EveryRoleThatIsBoundHasANumber) {
  for (attn_role role = ATTN_ROLE_QUERY; role <= ATTN_ROLE_AMAX; ++role) {
    const auto parsed = plan::parse_tensor_role(attn_role_name(role));
    ASSERT_TRUE(parsed.has_value()) << role;
    EXPECT_EQ(number_of(*parsed), role);
  }
  EXPECT_STREQ(attn_role_name(0), "unknown");
  EXPECT_STREQ(attn_role_name(ATTN_ROLE_AMAX + 1), "unknown");
}

}  // namespace
}  // namespace attn::api
