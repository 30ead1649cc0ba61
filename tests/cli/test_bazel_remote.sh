#!/usr/bin/env bash
# The remote layer on the real bazel-remote, where it is on the PATH: what it refuses, who may write, restarts, kills in
# the middle of a transfer.
# shellcheck source=common.sh
source "$(dirname "$0")/common.sh"
command -v bazel-remote >/dev/null || { echo "skipped: no bazel-remote" && exit 77; }
sanitized_only_in_full
# shellcheck source=fake_compiler.sh
source "$here/fake_compiler.sh"
# shellcheck source=remote.sh
source "$here/remote.sh"
fake compiler
kernels=(scatter:op={draft_lens,cache_locs,assign_locs,slot_mapping}@cpu:cdna3)
one=${kernels[0]}
export KGEN_CACHE_REMOTE_TIMEOUT=5000 # this machine may be busy
port=$(free_port)
server=http://127.0.0.1:$port
listens() { (: <"/dev/tcp/127.0.0.1/$port") 2>/dev/null; }
# start [OPTION...]: on the same folder as before.
start() {
    bazel-remote --dir "$work/store" --max_size 1 --http_address "127.0.0.1:$port" --grpc_address none "$@" >>"$work/said" 2>&1 &
    bazel=$!
    servers+=("$bazel")
    disown "$bazel" # the shell says nothing of its death
    await listens
}
is_gone() { ! kill -0 "$bazel" 2>/dev/null; }
stop_it() {
    is_gone || kill "${1:--TERM}" "$bazel" 2>/dev/null || true
    await is_gone
}
# status METHOD PATH [BODY FILE]: what bazel-remote itself answers.
status() {
    python3 - "$server/$2" "$1" "${3:-}" <<'PYTHON'
import sys, urllib.error, urllib.request
body = open(sys.argv[3], "rb").read() if sys.argv[3] else None
try:
    print(urllib.request.urlopen(urllib.request.Request(sys.argv[1], body, method=sys.argv[2])).status)
except urllib.error.HTTPError as error:
    print(error.code)
PYTHON
}
says() { [[ $(status "${@:2}") == "$1" ]] || fail "bazel-remote: ${*:2}: $(status "${@:2}"), not $1"; }
stored() { find "$work/store/$1.v2" -type f 2>/dev/null | wc -l; }

# It is as strict as it says: a file of another digest, an answer that is none, a path that is no digest.
start
printf 'no kernel' >"$work/body"
printf -v none '%064d' 7
says 400 PUT "ac/$none" "$work/body"
[[ $(status PUT "cas/$none" "$work/body") == [45]?? ]] || fail "bazel-remote took a file of another digest"
says 400 GET ac/kernel
says 404 GET "ac/$none"

# One machine reads only, one writes; the next has no compilation, and after a restart neither.
with "$server" "2 compiled" 20 "${kernels[@]:0:2}"
[[ $(stored cas) == 0 && $(stored ac) == 0 ]] || fail "a server was written to that is only read"
KGEN_CACHE_REMOTE_WRITE=1 with "$server" "2 compiled" 20 "${kernels[@]:0:2}"
[[ $(stored cas) == 2 && $(stored ac) == 2 ]] || fail "bazel-remote did not take them: $(cat "$work/said")"
with "$server/kernels/of/mine" "0 compiled, 2 cached" 20 "${kernels[@]:0:2}" # an instance's name may stand before ac and cas
for signal in -TERM -KILL; do
    stop_it $signal
    with "$server" "1 compiled" 20 "$one" # nobody there
    start
    with "$server" "0 compiled, 2 cached" 20 "${kernels[@]:0:2}"
done
KGEN_CACHE_REMOTE=$server capture "$kgen" doctor
[[ $out == *"remote   $server"$'\n'* && $out != *"is of no use"* ]] || fail "bazel-remote, doctor: $out"

# 16 processes with caches of their own write the same kernels at once, and read them.
rm -rf "$work/many" && mkdir "$work/many"
for i in {1..16}; do
    KGEN_CACHE_DIR=$work/many/$i KGEN_CACHE_REMOTE=$server KGEN_CACHE_REMOTE_WRITE=1 \
        "$kgen" build --no-variants -q "${kernels[@]}" >"$work/many/$i.said" 2>&1 & pids[i]=$!
done
for i in {1..16}; do wait "${pids[i]}" || fail "of 16: $(cat "$work/many/$i.said")"; done
[[ $(stored ac) == "${#kernels[@]}" ]] || fail "16 processes: $(stored ac) answers"
with "$server" "0 compiled, ${#kernels[@]} cached" 20 "${kernels[@]}"

# What somebody changed in its folder, cut off or removed is not taken.
harm() { # WORDS COMMAND...: of each stored file
    stop_it
    cp -r "$work/store" "$work/kept"
    find "$work/store/cas.v2" -type f -exec "${@:2}" {} +
    start
    with "$server" "$1" 20 "$one"
    stop_it
    rm -rf "$work/store" && mv "$work/kept" "$work/store"
    start
}
cat >"$work/flip" <<'SCRIPT'
for file; do printf XX | dd of="$file" bs=1 seek=$(($(stat -c %s "$file") / 2)) conv=notrunc status=none; done
SCRIPT
harm "1 compiled" bash "$work/flip"
harm "1 compiled" truncate -s -7
harm "1 compiled" rm
with "$server" "0 compiled, 1 cached" 20 "$one"

# Killed in the middle of a transfer: of the answer, of the file, of what is written to it; then started again.
# breaks WAY BYTES WORDS: the build goes on without it, and the next one finds nothing that is half.
breaks() {
    python3 "$here/breaking_relay.py" "$work/relay" "$port" "$bazel" "$1" "$2" & servers+=($!)
    await test -s "$work/relay"
    with "http://127.0.0.1:$(<"$work/relay")" "1 compiled" 30 "$one"
    await is_gone # by the relay
    rm "$work/relay"
    start
}
for bytes in 100 300 2000 9000; do breaks down "$bytes"; done
with "$server" "0 compiled, 1 cached" 20 "$one" # whole on its disk
stop_it
rm -rf "$work/store"
start
export KGEN_CACHE_REMOTE_WRITE=1
for bytes in 100 3000 9000; do
    breaks up "$bytes"
    [[ $(stored ac) == 0 ]] || fail "up $bytes: an answer that names half a file"
done
with "$server" "1 compiled" 20 "$one"
unset KGEN_CACHE_REMOTE_WRITE
with "$server" "0 compiled, 1 cached" 20 "$one"

# Everybody reads, and who has the password writes.
stop_it
rm -rf "$work/store"
printf 'builder:%s\n' "{SHA}$(printf secret | openssl dgst -sha1 -binary | base64)" >"$work/passwords"
start --htpasswd_file "$work/passwords" --allow_unauthenticated_reads
KGEN_CACHE_REMOTE_WRITE=1 with "$server" "1 compiled" 20 "$one" # 401, and no failure of the build
KGEN_CACHE_REMOTE_WRITE=1 with "${server/\/\//\/\/builder:wrong@}" "1 compiled" 20 "$one"
[[ $(stored cas) == 0 ]] || fail "written without the password"
KGEN_CACHE_REMOTE_WRITE=1 with "${server/\/\//\/\/builder:secret@}" "1 compiled" 20 "$one"
with "$server" "0 compiled, 1 cached" 20 "$one"
finish
