# Source checks: `format` rewrites files, `format-check` and `tidy` only report.
find_program(ATTN_CLANG_FORMAT NAMES clang-format-14 clang-format)
find_program(ATTN_RUN_CLANG_TIDY NAMES run-clang-tidy-14 run-clang-tidy)

foreach(mode format format-check tidy)
  add_custom_target(${mode}
    COMMAND ${CMAKE_COMMAND} -E env CLANG_FORMAT=${ATTN_CLANG_FORMAT}
      RUN_CLANG_TIDY=${ATTN_RUN_CLANG_TIDY} ${PROJECT_SOURCE_DIR}/cmake/check-sources ${mode}
      ${PROJECT_BINARY_DIR}
    WORKING_DIRECTORY ${PROJECT_SOURCE_DIR}
    USES_TERMINAL VERBATIM)
endforeach()
