# The libraries kgen stands on, each as an imported target kgen_dep::<name>.
find_package(PkgConfig REQUIRED)
find_package(Threads REQUIRED)

# kgen_find(<name> <Debian package> <pkg-config names...>): the first that is there
function(kgen_find name package)
  foreach(module IN LISTS ARGN)
    string(MAKE_C_IDENTIFIER "KGEN_${module}" var)
    pkg_check_modules(${var} QUIET IMPORTED_TARGET ${module})
    if(${var}_FOUND)
      add_library(kgen_dep::${name} ALIAS PkgConfig::${var})
      return()
    endif()
  endforeach()
  message(FATAL_ERROR "kgen needs ${name} and pkg-config does not find it.\n"
                      "  ./run setup installs what is missing; by hand: apt-get install ${package}")
endfunction()

kgen_find(jansson libjansson-dev jansson)
kgen_find(sodium libsodium-dev libsodium)
kgen_find(zstd libzstd-dev libzstd)
kgen_find(msgpack "libmsgpack-dev or libmsgpack-c-dev" msgpack-c msgpack)

# Of the remote layer of the cache: its header here, the library when a process needs it.
pkg_check_modules(KGEN_CURL QUIET libcurl)
if(NOT KGEN_CURL_FOUND)
  message(STATUS "no libcurl (libcurl4-openssl-dev): KGEN_CACHE_REMOTE will be refused")
endif()

# Headers alone: KGEN_<NAME>_DIR.
foreach(header IN ITEMS uthash xxhash)
  string(TOUPPER "KGEN_${header}_DIR" dir)
  find_path(${dir} ${header}.h)
  if(NOT ${dir})
    message(FATAL_ERROR "kgen needs ${header}.h: ./run setup, or apt-get install uthash-dev libxxhash-dev")
  endif()
  mark_as_advanced(${dir})
endforeach()
