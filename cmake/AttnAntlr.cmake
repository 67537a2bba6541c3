# ANTLR's runtime, which the compiler's parser needs.
find_library(ATTN_ANTLR4_LIBRARY antlr4-runtime REQUIRED)
find_path(ATTN_ANTLR4_INCLUDE_DIR antlr4-runtime.h PATH_SUFFIXES antlr4-runtime REQUIRED)

# Where the packaged runtime is newer than what the packaged tool generates for (Ubuntu 24.04), the
# generated files are adapted: `${ATTN_ADAPT_ANTLR4} FOLDER`.
set(ATTN_ADAPT_ANTLR4 ${CMAKE_COMMAND} -E true)
if(EXISTS ${ATTN_ANTLR4_INCLUDE_DIR}/atn/SerializedATNView.h)
  find_program(ATTN_PYTHON3 NAMES python3 PATHS /usr/bin REQUIRED)
  set(ATTN_ADAPT_ANTLR4 ${ATTN_PYTHON3} ${PROJECT_SOURCE_DIR}/cmake/adapt-antlr)
endif()

add_library(attn_dep_antlr4 INTERFACE)
target_link_libraries(attn_dep_antlr4 INTERFACE ${ATTN_ANTLR4_LIBRARY} Threads::Threads)
target_include_directories(attn_dep_antlr4 SYSTEM INTERFACE ${ATTN_ANTLR4_INCLUDE_DIR})
