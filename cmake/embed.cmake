# Writes the files of a folder as byte arrays into one C file.
#   cmake -DWHAT=templates|tuning -DROOT=<folder> -DOUT=<file.c> -P embed.cmake
# Looks for the files itself: a command line has no room for a long list.
cmake_minimum_required(VERSION 3.22)

# what: the files, the header that declares the table, its name, its count's
set(templates_files "${ROOT}/*.hip" "${ROOT}/kg/*/*.h")
set(templates_table gen/templates.h kgen__templates kgen__template_count)
set(tuning_files "${ROOT}/*.jsonl")
set(tuning_table tuning/shipped.h kgen__shipped kgen__shipped_count)

file(GLOB names RELATIVE "${ROOT}" ${${WHAT}_files})
list(SORT names)
if(NOT names)
  message(FATAL_ERROR "embed: no ${WHAT} under ${ROOT}")
endif()
list(GET ${WHAT}_table 0 header)
list(GET ${WHAT}_table 1 table)
list(GET ${WHAT}_table 2 count)

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
#include \"${header}\"

${arrays}
const kgen__template ${table}[] = {
${rows}};
const size_t ${count} = ${index};
")
file(RENAME "${OUT}.new" "${OUT}")
