# The ANTLR runtime, for the compiler's parser.
find_library(ATTN_ANTLR4_LIBRARY antlr4-runtime REQUIRED)
find_path(ATTN_ANTLR4_INCLUDE_DIR antlr4-runtime.h PATH_SUFFIXES antlr4-runtime REQUIRED)

# If the packaged runtime is newer than the packaged tool (Ubuntu 24.04), `${ATTN_ADAPT_ANTLR4} FOLDER`
# adapts the generated files.
set(ATTN_ADAPT_ANTLR4 ${CMAKE_COMMAND} -E true)
if(EXISTS ${ATTN_ANTLR4_INCLUDE_DIR}/atn/SerializedATNView.h)
  find_program(ATTN_PYTHON3 NAMES python3 PATHS /usr/bin REQUIRED)
  set(ATTN_ADAPT_ANTLR4 ${ATTN_PYTHON3} ${PROJECT_SOURCE_DIR}/cmake/adapt-antlr)
endif()

add_library(attn_dep_antlr4 INTERFACE)
target_link_libraries(attn_dep_antlr4 INTERFACE ${ATTN_ANTLR4_LIBRARY} Threads::Threads)
target_include_directories(attn_dep_antlr4 SYSTEM INTERFACE ${ATTN_ANTLR4_INCLUDE_DIR})
