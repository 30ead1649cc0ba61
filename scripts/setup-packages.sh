# shellcheck shell=bash
# Sourced by ./run: which packages are missing, and installing them.

# A clang older than 18 knows neither gfx950 nor gfx1201; the cpu device takes
# the newest there is.
clang_minimum=18

newest_clang() {
    local name version best="" best_version=0
    for name in clang $(compgen -c clang- | grep -xE 'clang-[0-9]+' | sort -u); do
        version=$("$name" -dumpversion 2>/dev/null | cut -d. -f1) || continue
        [[ $version =~ ^[0-9]+$ ]] || continue
        ((version > best_version)) && best=$name best_version=$version
    done
    ((best_version >= clang_minimum)) && printf '%s\n' "$best"
}

have_cmake() {
    local version
    version=$(cmake --version 2>/dev/null | sed -n '1s/[^0-9]*//p') || return 1
    [[ $(printf '%s\n' 3.22 "$version" | sort -V | head -n 1) == 3.22 ]]
}

have_module() { pkg-config --exists "$1" 2>/dev/null; }
have_header() { printf '#include <%s>\n' "$1" | cc -E -x c - >/dev/null 2>&1; }

have_clang() { # compiler, AMD's linker and the sanitizers' run time
    local clang
    clang=$(newest_clang) && command -v "$("$clang" -print-prog-name=ld.lld)" >/dev/null &&
        printf 'int main(void) { return 0; }\n' |
        "$clang" -fsanitize=address,undefined -x c - -o /dev/null >/dev/null 2>&1
}

have_python_header() {
    python3 -c 'import os, sys, sysconfig
sys.exit(not os.path.exists(sysconfig.get_path("include") + "/Python.h"))' 2>/dev/null
}

# The first of these packages that apt knows.
first_known() {
    local name
    for name in "$@"; do
        if apt-cache show --no-all-versions "$name" >/dev/null 2>&1; then
            printf '%s\n' "$name"
            return
        fi
    done
    printf '%s\n' "${!#}"
}

clang_packages() {
    local version
    for version in 19 20 21 18; do
        if apt-cache show --no-all-versions "clang-$version" >/dev/null 2>&1; then
            printf '%s\n' "clang-$version" "lld-$version" "libclang-rt-$version-dev"
            return
        fi
    done
    printf '%s\n' clang lld libclang-rt-dev
}

# What is missing, one package a line. What is here from elsewhere counts.
missing_packages() {
    command -v cc >/dev/null && have_header stdio.h || echo build-essential
    have_cmake || echo cmake
    command -v ninja >/dev/null || echo ninja-build
    command -v pkg-config >/dev/null || echo pkg-config
    have_module cmocka || echo libcmocka-dev
    have_module jansson || echo libjansson-dev
    have_module libsodium || echo libsodium-dev
    have_module libzstd || echo libzstd-dev
    have_module msgpack-c || have_module msgpack || first_known libmsgpack-c-dev libmsgpack-dev
    have_header uthash.h || echo uthash-dev
    have_header xxhash.h || echo libxxhash-dev
    have_clang || clang_packages
    command -v python3 >/dev/null || echo python3
    python3 -c 'import ensurepip' 2>/dev/null || echo python3-venv
    have_python_header || echo python3-dev
}

# nginx into the build folder: as a package it would serve on this machine from now on.
fetch_nginx() {
    local dir=$build/nginx
    rm -rf "$dir" && mkdir -p "$dir" && cd "$dir" &&
        apt-get download nginx >>"$log" 2>&1 &&
        dpkg-deb -x nginx*.deb . && usr/sbin/nginx -v >>"$log" 2>&1
}

have_nginx() { PATH=$PATH:/usr/sbin:$build/nginx/usr/sbin command -v nginx >/dev/null; }

as_root() {
    if ((EUID == 0)); then
        "$@"
    else
        sudo -n "$@"
    fi
}

# Adds packages; never removes or upgrades one.
apt_add() {
    as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends \
        --no-remove --no-upgrade "$@" >>"$log" 2>&1
}

# Without them less is built and tested: no reason to end anything.
setup_wanted() {
    have_module libcurl || { { ((EUID == 0)) || sudo -n true 2>/dev/null; } && apt_add libcurl4-openssl-dev; } ||
        note "No libcurl4-openssl-dev: the cache is built without its remote layer"
    have_nginx || (fetch_nginx) || note "No nginx: the remote layer is tested without it"
}

setup_packages() {
    step="setup: packages"
    local missing
    mapfile -t missing < <(missing_packages)
    if ((${#missing[@]} == 0)); then
        return
    fi
    command -v apt-get >/dev/null ||
        die "setup: ${missing[*]} missing, and this machine has no apt-get" \
            "install them with your package manager, then run this again"
    ((EUID == 0)) || sudo -n true 2>/dev/null ||
        die "setup: ${missing[*]} missing, and installing them needs root" \
            "run: sudo apt-get install ${missing[*]}"
    say "Installing ${missing[*]}"
    if ! apt_add "${missing[@]}"; then
        as_root apt-get update >>"$log" 2>&1 || note "apt-get update failed (see $log)"
        mapfile -t missing < <(missing_packages) # names may be known only now
        apt_add "${missing[@]}" ||
            die "setup: apt-get could not install ${missing[*]}" "read the end of $log"
    fi
    mapfile -t missing < <(missing_packages)
    ((${#missing[@]} == 0)) ||
        die "setup: still missing after the installation: ${missing[*]}" "read the end of $log"
}
