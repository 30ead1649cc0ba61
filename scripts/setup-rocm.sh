# shellcheck shell=bash
# Sourced by ./run: ROCm of this system, or Debian's hipRTC in a prefix in the build folder.

system_rocm() {
    local dir
    for dir in "${KGEN_ROCM_PATH:-}" /opt/rocm; do
        if [[ -n $dir ]] && compgen -G "$dir/lib*/libhiprtc.so*" >/dev/null; then
            printf '%s\n' "$dir"
            return
        fi
    done
    ldconfig -p 2>/dev/null | sed -n 's/.*libhiprtc\.so.* => //p' | head -n 1 | grep .
}

# hipRTC and all it needs, the C library included, load from prefix $1 alone.
prefix_works() {
    local libs=$1/usr/lib/x86_64-linux-gnu rtc list
    rtc=$(compgen -G "$libs/libhiprtc.so.?") || return 1
    list=$("$libs/ld-linux-x86-64.so.2" --library-path "$libs" --list "${rtc%%$'\n'*}" 2>&1) ||
        return 1
    ! grep -q 'not found' <<<"$list"
}

# A package client that knows nothing of this system: own sources, own lists,
# an empty status file (so dependencies down to the C library are fetched too).
private_apt() {
    local dir=$1 keyring=$2
    mkdir -p "$dir/lists/partial" "$dir/cache/archives/partial"
    : >"$dir/status"
    local suite
    for suite in experimental sid forky; do
        printf 'deb [arch=amd64 signed-by=%s] %s %s main\n' "$keyring" "$mirror" "$suite"
    done >"$dir/sources.list"
    cat >"$dir/apt.conf" <<EOF
Dir::Etc::sourcelist "$dir/sources.list";
Dir::Etc::sourceparts "-";
Dir::Etc::preferences "-";
Dir::Etc::preferencesparts "-";
Dir::State "$dir";
Dir::State::lists "$dir/lists";
Dir::State::status "$dir/status";
Dir::Cache "$dir/cache";
Dir::Log "$dir";
APT::Architecture "amd64";
APT::Architectures { "amd64"; };
APT::Sandbox::User "root";
APT::Install-Recommends "false";
Acquire::Languages "none";
Acquire::Retries "2";
Acquire::http::Timeout "30";
EOF
}

# fetch_suite <apt folder> <suite> <packages...>: unpacks into $prefix.new
fetch_suite() {
    local dir=$1 suite=$2 deb
    shift 2
    rm -rf "$prefix.new" "$dir"/cache/archives/*.deb
    env APT_CONFIG="$dir/apt.conf" apt-get install -d -y -t "$suite" "$@" >>"$log" 2>&1 || return 1
    mkdir -p "$prefix.new"
    for deb in "$dir"/cache/archives/*.deb; do
        dpkg-deb -x "$deb" "$prefix.new" >>"$log" 2>&1 || return 1
        basename "$deb" .deb
    done >"$prefix.new/packages"
    rm -rf "$prefix.new"/usr/share "$prefix.new"/etc
    prefix_works "$prefix.new"
}

install_prefix() { # <what>
    rm -rf "$prefix"
    mv "$prefix.new" "$prefix"
    note "$1 in $prefix ($(du -sh "$prefix" | cut -f1))"
}

apt_error() {
    local text
    text=$(grep -m 1 -E '^[EW]: ' "$log" || true)
    printf '%s (%s)\n' "${text:-apt-get said nothing}" "$log"
}

no_rocm() {
    note "No hipRTC: $1"
    note "AMD kernels will be compiled by clang instead; checks on the cpu device are not affected."
    note "For hipRTC mend this, or install ROCm, or set KGEN_ROCM_PATH; then ./run setup"
}

setup_rocm() {
    step="setup: ROCm"
    local found keyring=/usr/share/keyrings/debian-archive-keyring.gpg dir=$build/apt
    if found=$(system_rocm); then
        note "ROCm of this system: $found"
        return
    fi
    if [[ -f $prefix/packages ]]; then
        prefix_works "$prefix" && return
        note "The ROCm prefix is damaged; fetching it again"
    fi
    [[ $(uname -m) == x86_64 ]] || { no_rocm "Debian has it for amd64, this is $(uname -m)" && return; }
    command -v apt-get dpkg-deb >/dev/null || { no_rocm "no apt-get and dpkg-deb here" && return; }
    [[ -f $keyring ]] || { no_rocm "$keyring is missing (package debian-archive-keyring)" && return; }

    say "Fetching ROCm's hipRTC from Debian into the build folder (about 85 MB)"
    rm -rf "$dir"
    private_apt "$dir" "$keyring"
    if ! env APT_CONFIG="$dir/apt.conf" apt-get update --error-on=any >>"$log" 2>&1; then
        no_rocm "$(apt_error)"
    elif fetch_suite "$dir" experimental libhiprtc7 libamdhip64-7 libamd-comgr3; then
        install_prefix "hipRTC 7 (Debian experimental)"
    elif fetch_suite "$dir" forky libhiprtc6 libamdhip64-6 libamd-comgr3; then
        install_prefix "hipRTC 6 (Debian forky)"
    else
        no_rocm "neither from experimental nor from forky: $(apt_error)"
    fi
    rm -rf "$dir" "$prefix.new"
}
