# attn_library(NAME SOURCES a.cpp ... DEPS x y): a static library with the project's warnings, with
# CMAKE_UNITY_BUILD compiled in batches of 16 sources: an eighth less time than with 8.
# attn_embed(VARIABLE NAMESPACE FUNCTION FILES...): VARIABLE becomes a source file that defines FUNCTION,
# which returns the texts of FILES. It is written again when one of them changes.
# attn_test(NAME SOURCES ... DEPS ... [SEPARATE ...] [LABELS ...] [DEFINITIONS A=B ...] [NEEDS TARGET ...] [SLOW ...]
# [ALONE] [COST seconds] [ENVIRONMENT A=B]): a GoogleTest program with one ctest entry per case. Tests with the highest
# COST start first; SLOW ones have 25, and parts of a program 5. NEEDS are programs that it runs. Tests below tests/unit and tests/golden have the label of their
# folder, and the target fast_tests builds them. SLOW tests (Suite.Name, where * is any text) take seconds each: their
# label is slow instead. That of tests with Nightly in their names is nightly: only `./test --all` runs them.
# attn_nightly(TEST...): the same label, for entries of add_test.
# With CMAKE_UNITY_BUILD, attn_make_bundles makes one program for the tests of several folders (unit_runtime_test,
# unit_compiler_test, ..), because 32 sources that are compiled in one batch share their headers and templates: that
# takes 40 % less time. Most tests of the compiler take less time than to start a process, so those programs have 8
# ctest entries with an eighth of the tests each (.ci/count-tests counts them), and one for each SLOW test.
# ALONE, COST and ENVIRONMENT keep a program out, as it needs include folders or a linkage of its own. SEPARATE sources
# are compiled alone.
include(GoogleTest)

function(attn_house_rules target)
  target_include_directories(${target} PUBLIC $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}>)
  target_compile_features(${target} PUBLIC cxx_std_20)
  target_compile_options(${target} PRIVATE
    -Wall -Wextra -Wshadow -Wconversion -Wno-sign-conversion
    $<$<COMPILE_LANGUAGE:CXX>:-Wnon-virtual-dtor> $<$<BOOL:${ATTN_WERROR}>:-Werror>
    # GCC need not collect garbage: 7 % less time for 30 % more memory, at most 1.4 GB.
    $<$<COMPILE_LANG_AND_ID:CXX,GNU>:--param=ggc-min-heapsize=1000000>
    # False positives of GCC 13: inactive alternatives of a variant.
    $<$<COMPILE_LANG_AND_ID:CXX,GNU>:-Wno-maybe-uninitialized>)
  if(ATTN_SANITIZE)
    target_compile_options(${target} PUBLIC -fsanitize=${ATTN_SANITIZE} -fno-omit-frame-pointer
      -fno-sanitize-recover=all)
    target_link_options(${target} PUBLIC -fsanitize=${ATTN_SANITIZE})
  endif()
endfunction()

# False positives of GCC 12 with -O1 and -Og.
set(ATTN_NO_FALSE_WARNINGS)
foreach(warning restrict array-bounds stringop-overflow stringop-overread dangling-pointer mismatched-new-delete
    free-nonheap-object)
  list(APPEND ATTN_NO_FALSE_WARNINGS $<$<COMPILE_LANG_AND_ID:CXX,GNU>:-Wno-${warning}>)
endforeach()

# Optimizes little, for what computes little: -O1 takes three quarters of the time of -O3. Projects that include
# this one choose their own optimization.
function(attn_compile_quickly target)
  cmake_parse_arguments(ARG "" "WITH" "" ${ARGN})
  if(NOT ARG_WITH)
    set(ARG_WITH -O1)
  endif()
  if(PROJECT_IS_TOP_LEVEL)
    target_compile_options(${target} PRIVATE $<$<CONFIG:Release>:${ARG_WITH}> ${ATTN_NO_FALSE_WARNINGS})
  endif()
endfunction()

# Headers that most sources of libraries include. Precompiled, they take GCC half a second less a batch. But warnings
# about their inlined functions are then reported, and nothing hides a missing include without CMAKE_UNITY_BUILD:
# so only the preset `sanitized`, which has no warnings, does this.
option(ATTN_LIBRARY_HEADERS "Precompile what libraries include" OFF)
if(ATTN_LIBRARY_HEADERS)
  set(headers_source ${PROJECT_BINARY_DIR}/library_headers.cpp)
  file(CONFIGURE OUTPUT ${headers_source} CONTENT "")
  add_library(attn_library_headers OBJECT ${headers_source})
  attn_house_rules(attn_library_headers)
  target_precompile_headers(attn_library_headers PRIVATE
    <algorithm> <array> <chrono> <cmath> <cstdint> <functional> <map> <memory> <mutex> <optional> <set> <span>
    <string> <string_view> <utility> <variant> <vector> <fmt/format.h>)
endif()

function(attn_library target)
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPS" ${ARGN})
  add_library(${target} STATIC ${ARG_SOURCES})
  if(CMAKE_UNITY_BUILD)
    set_target_properties(${target} PROPERTIES UNITY_BUILD_BATCH_SIZE 16)
  endif()
  attn_house_rules(${target})
  if(ATTN_LIBRARY_HEADERS)
    target_precompile_headers(${target} REUSE_FROM attn_library_headers)
  endif()
  target_link_libraries(${target} PUBLIC ${ARG_DEPS})
endfunction()

function(attn_embed variable namespace function)
  set(output ${CMAKE_CURRENT_BINARY_DIR}/embedded_${function}.cpp)
  set(script ${PROJECT_SOURCE_DIR}/cmake/EmbedFiles.cmake)
  add_custom_command(
    OUTPUT ${output}
    COMMAND ${CMAKE_COMMAND} -DOUTPUT=${output} -DNAMESPACE=${namespace} -DFUNCTION=${function}
      "-DFILES=${ARGN}" -P ${script}
    DEPENDS ${ARGN} ${script}
    COMMENT "Embedding ${function}"
    VERBATIM)
  set(${variable} ${output} PARENT_SCOPE)
endfunction()

add_custom_target(fast_tests)    # without those that take long
add_custom_target(thread_tests)  # to run with a sanitizer: ctest -L threads
set(ATTN_TEST_LISTS SOURCES SEPARATE DEPS LABELS DEFINITIONS NEEDS SLOW)

function(attn_test target)
  cmake_parse_arguments(ARG "ALONE" "COST;ENVIRONMENT" "${ATTN_TEST_LISTS}" ${ARGN})
  file(RELATIVE_PATH folder ${PROJECT_SOURCE_DIR}/tests ${CMAKE_CURRENT_SOURCE_DIR})
  if(NOT CMAKE_UNITY_BUILD OR ARG_ALONE OR ARG_COST OR ARG_ENVIRONMENT)
    attn_test_program(${target} ${folder} ${ARGN})
    return()
  endif()
  string(REGEX REPLACE "^unit/(bench|tools)" "unit/compiler" folder ${folder})
  string(REGEX MATCH "^(unit/)?[a-z]+" folder ${folder})
  list(JOIN ARG_LABELS "_" labels)
  string(REGEX REPLACE "[/_]+" "_" bundle "${folder}_${labels}_test")
  set_property(GLOBAL APPEND PROPERTY attn_bundles ${bundle})
  set_property(GLOBAL PROPERTY ${bundle}_FOLDER ${folder})
  list(TRANSFORM ARG_SOURCES PREPEND ${CMAKE_CURRENT_SOURCE_DIR}/ REGEX "^[^/]")
  list(TRANSFORM ARG_SEPARATE PREPEND ${CMAKE_CURRENT_SOURCE_DIR}/ REGEX "^[^/]")
  foreach(list ${ATTN_TEST_LISTS})
    set_property(GLOBAL APPEND PROPERTY ${bundle}_${list} ${ARG_${list}})
  endforeach()
endfunction()

# Makes the programs of the tests that attn_test has put into bundles.
function(attn_make_bundles)
  get_property(bundles GLOBAL PROPERTY attn_bundles)
  list(REMOVE_DUPLICATES bundles)
  foreach(bundle ${bundles})
    get_property(folder GLOBAL PROPERTY ${bundle}_FOLDER)
    set(arguments)
    foreach(list ${ATTN_TEST_LISTS})
      get_property(values GLOBAL PROPERTY ${bundle}_${list})
      list(REMOVE_DUPLICATES values)
      list(APPEND arguments ${list} ${values})
    endforeach()
    if(bundle MATCHES "^(golden|unit_compiler)_test$")  # those of the runtime load drivers that a process keeps
      list(APPEND arguments SHARDS 8)
    endif()
    attn_test_program(${bundle} ${folder} ${arguments})
  endforeach()
endfunction()

# A program with tests of a folder; a part of attn_test.
function(attn_test_program target folder)
  cmake_parse_arguments(ARG "ALONE" "COST;ENVIRONMENT;SHARDS" "${ATTN_TEST_LISTS}" ${ARGN})
  add_executable(${target} ${ARG_SOURCES} ${ARG_SEPARATE})
  if(ARG_SEPARATE)
    set_source_files_properties(${ARG_SEPARATE} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
  endif()
  if(CMAKE_UNITY_BUILD)
    set_target_properties(${target} PROPERTIES UNITY_BUILD_BATCH_SIZE 32)
  endif()
  attn_house_rules(${target})
  target_compile_definitions(${target} PRIVATE
    ATTN_SOURCE_DIR="${PROJECT_SOURCE_DIR}" ATTN_BINARY_DIR="${PROJECT_BINARY_DIR}" ${ARG_DEFINITIONS})
  target_link_libraries(${target} PRIVATE ${ARG_DEPS} GTest::gmock GTest::gtest_main)
  if(ARG_NEEDS)
    add_dependencies(${target} ${ARG_NEEDS})
  endif()
  if(TARGET attn_test_headers)
    target_precompile_headers(${target} REUSE_FROM attn_test_headers)
  endif()
  if(folder MATCHES "^(unit|golden)(/|$)")
    set(fast ${CMAKE_MATCH_1})
    add_dependencies(fast_tests ${target})
  endif()
  if("threads" IN_LIST ARG_LABELS)
    add_dependencies(thread_tests ${target})
  endif()
  set(nightly "*Nightly*")
  set(others "-${nightly}")
  if(ARG_SLOW)
    list(JOIN ARG_SLOW ":" slow)
    attn_discover(${target} "${slow}-${nightly}" slow ${ARG_LABELS})
    string(APPEND others ":${slow}")
  endif()
  attn_discover(${target} "${nightly}" nightly ${ARG_LABELS})
  attn_discover(${target} "${others}" ${fast} ${ARG_LABELS})
endfunction()

function(attn_nightly)
  foreach(test ${ARGN})
    set_property(TEST ${test} APPEND PROPERTY LABELS nightly)
  endforeach()
endfunction()

# The tests of a program whose names the filter lets pass; a part of attn_test_program.
macro(attn_discover target filter)
  set(properties TIMEOUT 1800)
  set(labels ${ARGN})
  if(labels)
    list(APPEND properties LABELS "${labels}")
  endif()
  if(ARG_COST)
    list(APPEND properties COST ${ARG_COST})
  elseif(labels MATCHES "(^|;)(slow|nightly)(;|$)")
    list(APPEND properties COST 25)  # not last, when the other processors would wait
  endif()
  if(ARG_ENVIRONMENT)
    list(APPEND properties ENVIRONMENT ${ARG_ENVIRONMENT})
  endif()
  if(ARG_SHARDS AND NOT labels MATCHES "(^|;)(slow|nightly)(;|$)")
    attn_add_shards(${target} "${filter}" ${ARG_SHARDS} "${labels}")
  else()
    gtest_discover_tests(${target} DISCOVERY_TIMEOUT 60 TEST_FILTER "${filter}" PROPERTIES ${properties})
  endif()
endmacro()

# The tests that the filter lets pass as `count` entries, TARGET.0 and so on, each with every count-th test. Their
# reports, of each test, are in test-reports/.
function(attn_add_shards target filter count labels)
  math(EXPR last "${count} - 1")
  foreach(i RANGE ${last})
    set(name ${target}.${i})
    add_test(NAME ${name} COMMAND ${target} --gtest_brief=1 "--gtest_filter=${filter}"
      --gtest_output=xml:${PROJECT_BINARY_DIR}/test-reports/${name}.xml)
    set_tests_properties(${name} PROPERTIES TIMEOUT 1800 COST 5 LABELS "${labels}"
      ENVIRONMENT "GTEST_TOTAL_SHARDS=${count};GTEST_SHARD_INDEX=${i}")
  endforeach()
endfunction()
