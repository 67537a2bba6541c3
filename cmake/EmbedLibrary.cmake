# Writes OUTPUT, a source file that defines sema::standard_library with the texts of FILES.
list(SORT FILES)
set(entries "")
set(names "")
foreach(file IN LISTS FILES)
  get_filename_component(name ${file} NAME)
  file(READ ${file} text)
  string(APPEND entries "    {\"${name}\", R\"attn(${text})attn\"},\n")
  string(APPEND names "\"${name}\", ")
endforeach()
file(WRITE ${OUTPUT} "#include \"compiler/sema/library.h\"

namespace attn::sema {
namespace {

struct File {
  std::string_view name;
  std::string_view text;
};
constexpr File kFiles[] = {
${entries}};
constexpr std::string_view kNames[] = {${names}};

}  // namespace

std::string_view standard_library(std::string_view name) {
  for (const File& file : kFiles) {
    if (file.name == name) return file.text;
  }
  return {};
}

std::span<const std::string_view> standard_library_names() { return kNames; }

}  // namespace attn::sema
")
