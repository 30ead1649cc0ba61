# shellcheck shell=bash
# Sourced behind common.sh and fake_compiler.sh: servers, which end with the test, and builds that ask them.
KGEN_CACHE_REMOTE=http://127.0.0.1:9 capture "$kgen" doctor
[[ $out != *"built without libcurl"* ]] || { echo "skipped: no libcurl" && exit 77; }
command -v python3 >/dev/null || { echo "skipped: no python3" && exit 77; }
export KGEN_TUNING= # doctor has no rows to look at
servers=()
stop() {
    local pid
    set +e
    for pid in "${servers[@]}"; do kill "$pid" 2>/dev/null || continue; wait "$pid" 2>/dev/null; done
    rm -rf "$work"
}
trap stop EXIT
free_port() { python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'; }
# with URL WORDS SECONDS KERNEL...: an empty cache, this server; the build says WORDS, and in time.
with() {
    local url=$1 words=$2 limit=$3 begin
    shift 3
    fresh
    begin=$(date +%s%N)
    KGEN_CACHE_REMOTE=$url expect 0 "$words" "$kgen" build --no-variants -q "$@"
    begin=$((($(date +%s%N) - begin) / 1000000))
    ((begin < 1000 * limit)) || fail "$url: $begin ms, over $limit s"
}
