# kgen_warnings: for every target.  kgen_flags: the same and the sanitizers.
add_library(kgen_warnings INTERFACE)
target_compile_options(kgen_warnings INTERFACE
  -Wall -Wextra -Wshadow -Wstrict-prototypes -Wpointer-arith
  # Text that is cut to its buffer is meant so (kgen_error); gcc alone has this.
  $<$<C_COMPILER_ID:GNU>:-Wno-format-truncation>
  $<$<BOOL:${KGEN_WERROR}>:-Werror>)
target_compile_definitions(kgen_warnings INTERFACE _GNU_SOURCE=) # empty: files may say it too

# Sanitizers end the process at the first finding, so that ctest sees it.
add_library(kgen_sanitize INTERFACE)
if(KGEN_SANITIZE)
  set(sanitize -fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer)
  if(KGEN_FUZZ)
    list(APPEND sanitize -fsanitize=fuzzer-no-link)
  endif()
  target_compile_options(kgen_sanitize INTERFACE ${sanitize})
  target_link_options(kgen_sanitize INTERFACE ${sanitize})
endif()

add_library(kgen_flags INTERFACE)
target_link_libraries(kgen_flags INTERFACE kgen_warnings kgen_sanitize)
