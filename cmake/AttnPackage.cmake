# Files for `cmake --install`: the two runtime libraries, attnc if it is built, with its manual page,
# completion and specs, and the files of find_package(attn) and pkg-config.
include(CMakePackageConfigHelpers)

set(ATTN_PACKAGE attn_shared attn_static)
if(ATTN_BUILD_COMPILER)
  add_executable(attnc_installed $<TARGET_OBJECTS:attn_main>)
  attn_installed(attnc_installed)
  attn_house_rules(attnc_installed)
  target_link_libraries(attnc_installed PRIVATE attn_tools)
  attn_for_older_systems(attnc_installed)
  set_target_properties(attnc_installed PROPERTIES
    EXPORT_NAME attnc
    OUTPUT_NAME attnc
    RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/package)
  list(APPEND ATTN_PACKAGE attnc_installed)

  set(ATTN_MANUAL ${PROJECT_BINARY_DIR}/package/attnc.1)
  add_custom_command(OUTPUT ${ATTN_MANUAL}
    COMMAND attnc_installed help --man > ${ATTN_MANUAL}
    DEPENDS attnc_installed
    COMMENT "Writing the manual page"
    VERBATIM)
  add_custom_target(attn_manual ALL DEPENDS ${ATTN_MANUAL})
  install(FILES ${ATTN_MANUAL} DESTINATION ${CMAKE_INSTALL_MANDIR}/man1)
  set(ATTN_COMPLETION ${PROJECT_SOURCE_DIR}/tools/completion/attnc)
  install(FILES ${ATTN_COMPLETION}.bash RENAME attnc
    DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions)
  install(FILES ${ATTN_COMPLETION}.zsh RENAME _attnc
    DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/site-functions)
  install(FILES ${ATTN_COMPLETION}.fish
    DESTINATION ${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d)
  # What attnc finds by name (tools/standard_specs.h).
  install(DIRECTORY ${PROJECT_SOURCE_DIR}/specs/ DESTINATION ${CMAKE_INSTALL_DATADIR}/attn/specs
    FILES_MATCHING PATTERN "*.attn" PATTERN lib EXCLUDE)
endif()

# `cmake --install` does not build, so after `cmake --build build --target attnc` files would be missing.
# They are built then, but not as another user (sudo cmake --install), who would leave files that the
# owner cannot replace.
add_custom_target(attn_package DEPENDS ${ATTN_PACKAGE} ${ATTN_MANUAL})
list(TRANSFORM ATTN_PACKAGE REPLACE "(.+)" "\"$<TARGET_FILE:\\1>\"" OUTPUT_VARIABLE ATTN_PACKAGE_FILES)
if(ATTN_MANUAL)
  list(APPEND ATTN_PACKAGE_FILES "\"${ATTN_MANUAL}\"")
endif()
list(JOIN ATTN_PACKAGE_FILES " " ATTN_PACKAGE_FILES)
install(CODE "foreach(file IN ITEMS ${ATTN_PACKAGE_FILES})
    if(NOT EXISTS \${file})
      execute_process(COMMAND id -u OUTPUT_VARIABLE user OUTPUT_STRIP_TRAILING_WHITESPACE)
      execute_process(COMMAND stat -c %u \"${CMAKE_BINARY_DIR}\"
        OUTPUT_VARIABLE owner OUTPUT_STRIP_TRAILING_WHITESPACE)
      if(NOT user STREQUAL owner)
        message(FATAL_ERROR \"\${file} is not built yet, and ${CMAKE_BINARY_DIR} belongs to another \"
          \"user: build as its owner first: cmake --build ${CMAKE_BINARY_DIR} --target attn_package\")
      endif()
      message(STATUS \"Building what is missing: \${file}\")
      execute_process(COMMAND \"${CMAKE_COMMAND}\" --build \"${CMAKE_BINARY_DIR}\"
        --config \"\${CMAKE_INSTALL_CONFIG_NAME}\" --target attn_package COMMAND_ERROR_IS_FATAL ANY)
      break()
    endif()
  endforeach()")

set(ATTN_CMAKE_FOLDER ${CMAKE_INSTALL_LIBDIR}/cmake/attn)
file(RELATIVE_PATH ATTN_PC_PREFIX /${CMAKE_INSTALL_LIBDIR}/pkgconfig /)
string(REGEX REPLACE "/$" "" ATTN_PC_PREFIX ${ATTN_PC_PREFIX})
list(TRANSFORM ATTN_STATIC_NEEDS PREPEND -l OUTPUT_VARIABLE ATTN_PC_NEEDS)
list(JOIN ATTN_PC_NEEDS " " ATTN_PC_NEEDS)
foreach(name attn attn-static)
  configure_file(${CMAKE_CURRENT_LIST_DIR}/${name}.pc.in ${PROJECT_BINARY_DIR}/package/${name}.pc @ONLY)
  install(FILES ${PROJECT_BINARY_DIR}/package/${name}.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
endforeach()
write_basic_package_version_file(${PROJECT_BINARY_DIR}/package/attnConfigVersion.cmake
  COMPATIBILITY SameMajorVersion)

install(TARGETS ${ATTN_PACKAGE} EXPORT attn)
install(FILES ${ATTN_API_HEADERS} TYPE INCLUDE)
install(DIRECTORY ${ATTN_API_FOLDER}/attn TYPE INCLUDE)
install(EXPORT attn FILE attnConfig.cmake NAMESPACE attn:: DESTINATION ${ATTN_CMAKE_FOLDER})
install(FILES ${PROJECT_BINARY_DIR}/package/attnConfigVersion.cmake DESTINATION ${ATTN_CMAKE_FOLDER})
