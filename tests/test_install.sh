#!/usr/bin/env bash
# Installs into a scratch prefix and builds the example against it, through
# pkg-config and through find_package(kgen); both programs must run.
# usage: test_install.sh <build folder>
set -euo pipefail
build=${1:?usage: test_install.sh <build folder>}
example=$(cd "$(dirname "$0")/../examples" && pwd)/decode.c
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
prefix=$scratch/prefix

logged() { # runs a command; shows its output only when it fails
    "$@" >"$scratch/log" 2>&1 && return
    cat "$scratch/log"
    exit 1
}

logged cmake --install "$build" --prefix "$prefix"
"$prefix/bin/kgen" --version
[[ -x $prefix/libexec/kgen/kgen-cc ]] || { echo "kgen-cc is not installed" && exit 1; }

library=$(find "$prefix" -name libkgen.so)
# One rule (kgen.h): before 1.0 the minor number is in the SONAME.
version=$("$prefix/bin/kgen" --version | sed 's/^kgen //')
minor=${version%.*}
soname=$(readelf -d "$library" | sed -n 's/.*SONAME.*\[\(.*\)\]/\1/p')
[[ $minor == 0.* && $soname == "libkgen.so.$minor" ]] ||
    { echo "version $version has the SONAME $soname" && exit 1; }

# The .pc file is there alone: what the library was built with need not be installed.
libdir=$(dirname "$library")
flags=$(PKG_CONFIG_LIBDIR=$libdir/pkgconfig PKG_CONFIG_PATH='' pkg-config --cflags --libs kgen)
# shellcheck disable=SC2086  # flags are words
cc -std=c11 -Wall -Wextra -Werror "$example" $flags -Wl,-rpath,"$libdir" -o "$scratch/by-pkg-config"
"$scratch/by-pkg-config" --device cpu:cdna3

mkdir "$scratch/project"
cat >"$scratch/project/CMakeLists.txt" <<EOF
cmake_minimum_required(VERSION 3.22)
project(user C)
find_package(kgen \${want} REQUIRED)
add_executable(by-cmake $example)
target_link_libraries(by-cmake PRIVATE kgen::kgen)
EOF
configure() { cmake -S "$scratch/project" -B "$scratch/out" -DCMAKE_PREFIX_PATH="$prefix" -Dwant="$1"; }
for other in "0.$((${minor#0.} + 1))" 1.0; do # another ABI
    ! configure "$other" >"$scratch/log" 2>&1 || { echo "find_package takes $other" && exit 1; }
done
logged configure "$minor"
logged cmake --build "$scratch/out"
"$scratch/out/by-cmake" --device cpu:cdna3

# The Debian package, of this tree: what is in it runs, and it says what it needs.
command -v cpack dpkg-shlibdeps dpkg-deb >/dev/null || { echo "no package tools: no package" && exit; }
logged cpack --config "$build/CPackConfig.cmake" -B "$scratch/deb"
deb=$(echo "$scratch"/deb/kgen_*.deb)
dpkg-deb -x "$deb" "$scratch/root"
"$scratch/root/usr/bin/kgen" --version
for file in usr/bin/kgen usr/libexec/kgen/kgen-cc usr/share/man/man1/kgen.1 usr/share/doc/kgen/kgen-tmpfiles.conf \
    usr/share/bash-completion/completions/kgen usr/share/zsh/vendor-completions/_kgen; do
    [[ -f $scratch/root/$file ]] || { echo "the package has no $file" && exit 1; }
done
needs=$(dpkg-deb -f "$deb" Depends)
for library in libc6 libjansson4 libsodium23 libzstd1; do
    [[ $needs == *"$library"* ]] || { echo "the package does not need $library: $needs" && exit 1; }
done
[[ $needs != *curl* ]] || { echo "the package needs libcurl: it is loaded when wanted" && exit 1; }
