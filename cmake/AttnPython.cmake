# Files of the Python package's wheel that CMake builds or finds: `cmake --install BUILD --component python`
# puts them into PREFIX/attn. Not installed otherwise.
add_custom_target(attn_python DEPENDS attnc_installed attn_shared attn_call attn_xla)
set(ATTN_PYTHON_PART COMPONENT python EXCLUDE_FROM_ALL)
install(TARGETS attnc_installed RUNTIME DESTINATION attn/bin ${ATTN_PYTHON_PART})
install(TARGETS attn_shared LIBRARY DESTINATION attn/lib NAMELINK_SKIP ${ATTN_PYTHON_PART})
install(TARGETS attn_call attn_xla LIBRARY DESTINATION attn/lib ${ATTN_PYTHON_PART})
install(FILES ${ATTN_API_HEADERS} DESTINATION attn/include ${ATTN_PYTHON_PART})
install(DIRECTORY ${ATTN_API_FOLDER}/attn DESTINATION attn/include ${ATTN_PYTHON_PART})
install(DIRECTORY ${PROJECT_SOURCE_DIR}/specs/ DESTINATION attn/specs ${ATTN_PYTHON_PART}
  FILES_MATCHING PATTERN "*.attn" PATTERN lib EXCLUDE)
