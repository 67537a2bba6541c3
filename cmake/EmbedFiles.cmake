# Writes OUTPUT, a source file that defines FUNCTION (declared: NAMESPACE::FUNCTION), which returns the
# names and texts of FILES (compiler/support/embedded.h).
list(SORT FILES)
set(entries "")
foreach(file IN LISTS FILES)
  get_filename_component(name ${file} NAME)
  file(READ ${file} text)
  string(APPEND entries "    {\"${name}\", R\"attn(${text})attn\"},\n")
endforeach()
file(WRITE ${OUTPUT} "#include \"compiler/support/embedded.h\"

namespace ${NAMESPACE} {

std::span<const attn::support::EmbeddedFile> ${FUNCTION}() {
  static constexpr attn::support::EmbeddedFile kFiles[] = {
${entries}  };
  return kFiles;
}

}  // namespace ${NAMESPACE}
")
