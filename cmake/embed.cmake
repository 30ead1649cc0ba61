# Writes the template files as byte arrays into one C file.
#   cmake -DROOT=<templates folder> -DOUT=<file.c> -P embed.cmake
# Looks for the files itself: a command line has no room for a long list.
cmake_minimum_required(VERSION 3.22)

file(GLOB names RELATIVE "${ROOT}" "${ROOT}/*.hip" "${ROOT}/kg/*.h")
list(SORT names)
if(NOT names)
  message(FATAL_ERROR "embed: no templates under ${ROOT}")
endif()

set(arrays "")
set(rows "")
set(index 0)
foreach(name IN LISTS names)
  file(READ "${ROOT}/${name}" hex HEX)
  string(LENGTH "${hex}" digits)
  math(EXPR size "${digits} / 2")
  string(REGEX REPLACE "(................................)" "\\1\n" hex "${hex}")
  string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," bytes "${hex}")
  string(APPEND arrays "static const unsigned char text_${index}[] = {\n${bytes}0x00};\n")
  string(APPEND rows "    {\"${name}\", text_${index}, ${size}},\n")
  math(EXPR index "${index} + 1")
endforeach()

file(WRITE "${OUT}.new" "/* Written by cmake/embed.cmake. */
#include \"gen/templates.h\"

${arrays}
const kgen_template kgen_templates[] = {
${rows}};
const size_t kgen_template_count = ${index};
")
file(RENAME "${OUT}.new" "${OUT}")
