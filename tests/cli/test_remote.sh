#!/usr/bin/env bash
# The remote layer: a real nginx with WebDAV, and a server that lies, hangs and breaks off.
# shellcheck source=common.sh
source "$(dirname "$0")/common.sh"
# shellcheck source=fake_compiler.sh
source "$here/fake_compiler.sh"
# shellcheck source=remote.sh
source "$here/remote.sh"
fake compiler
kernels=(scatter:op={draft_lens,cache_locs,assign_locs,slot_mapping}@cpu:cdna3)
one=${kernels[0]}

python3 "$here/remote_server.py" "$work/port" "$work/log" 2>"$work/server.said" & servers+=($!)
await test -s "$work/port"
server=http://127.0.0.1:$(<"$work/port")

# Where nobody listens, and where nothing is: compiled, as without a server.
export KGEN_CACHE_REMOTE_TIMEOUT=2000 # this machine may be busy; a look-up never takes longer than compiling
with http://127.0.0.1:9 "1 compiled" 20 "$one"
with "$server/ok" "1 compiled" 20 "$one"
! grep -q PUT "$work/log" || fail "a server was written to that is only read"

# One machine writes; the next has no compilation, keeps a copy, and needs the server no more.
KGEN_CACHE_REMOTE_WRITE=1 with "$server/ok" "1 compiled" 20 "$one"
[[ $(grep -c PUT "$work/log") == 2 ]] || fail "not written: $(cat "$work/log")"
with "$server/ok/" "0 compiled, 1 cached" 20 "$one"
KGEN_CACHE_REMOTE=http://127.0.0.1:9 expect 0 "1 cached" "$kgen" build "$one" --no-variants -q
# One process of a machine asks: what is in the folder is not asked for.
: >"$work/log"
KGEN_CACHE_REMOTE=$server/ok expect 0 "1 cached" "$kgen" build "$one" --no-variants -q
[[ ! -s $work/log ]] || fail "asked for what is here: $(cat "$work/log")"

# Whatever the server does, the kernel is the right one, and in time.
sanitized=0 && [[ ${KGEN_CPU_SANITIZE:-0} == 0 ]] || sanitized=1 # ten times as slow
ways=(truncate short wrong slow page answers huge error drop) && ((!sanitized)) || ways=(truncate wrong huge drop)
export KGEN_CACHE_REMOTE_TIMEOUT=1000
for how in "${ways[@]}"; do
    : >"$work/log"
    with "$server/$how" "1 compiled" 20 "$one"
    grep -q "$how" "$work/log" || fail "$how: the server was not asked"
done
export KGEN_CACHE_REMOTE_TIMEOUT=2000
with "$server/flaky" "0 compiled, 1 cached" 20 "$one" # a second attempt
: >"$work/log"
export KGEN_CACHE_REMOTE_TIMEOUT=200
with "$server/hang" "${#kernels[@]} compiled" 30 "${kernels[@]}"
[[ $(wc -l <"$work/log") == 3 ]] || fail "a server that hangs was asked $(wc -l <"$work/log") times"
unset KGEN_CACHE_REMOTE_TIMEOUT

((!sanitized)) || { finish && exit; }
# doctor says what is wrong, and no password.
remote_says() {
    KGEN_CACHE_REMOTE=$1 capture "$kgen" doctor
    [[ $out == *"$2"* ]] || fail "doctor, $1: no '$2': $out"
    [[ $out != *secret* ]] || fail "doctor shows a password"
}
remote_says "${server/\/\//\/\/me:secret@}/ok" "remote   $server/ok"
remote_says "$server/error" "the server answers 503"
remote_says "$server/page" "the server answers 200 to a look-up of what it does not have"
remote_says "http://127.0.0.1:9" "the server does not answer: "
remote_says "ftp://me:secret@host/" "http:// or https:// expected"
KGEN_CACHE_REMOTE_TIMEOUT=0 remote_says "$server/ok" "KGEN_CACHE_REMOTE_TIMEOUT=0: milliseconds"

# nginx as its package is: files in a folder.
nginx=$(PATH=$PATH:/usr/sbin:${KGEN_BIN_DIR:-}/../../nginx/usr/sbin command -v nginx) || { echo "no nginx: not tried" && finish && exit; }
mkdir -p "$work/www/tmp"
port=$(free_port)
cat >"$work/nginx.conf" <<CONF
daemon off; pid $work/nginx.pid; error_log $work/nginx.errors; worker_processes 1; events {}
http {
    access_log off; client_max_body_size 64m; client_body_temp_path $work/www/tmp;
    proxy_temp_path $work/www/tmp; fastcgi_temp_path $work/www/tmp; uwsgi_temp_path $work/www/tmp;
    scgi_temp_path $work/www/tmp;
    server {
        listen 127.0.0.1:$port;
        location / { root $work/www; dav_methods PUT; create_full_put_path on; dav_access user:rw; }
    }
}
CONF
chmod 755 "$work" # its worker is another user where this one is root
[[ $(id -u) != 0 ]] || sed -i '1i user root;' "$work/nginx.conf"
"$nginx" -p "$work" -c "$work/nginx.conf" 2>"$work/nginx.said" & servers+=($!)
await test -s "$work/nginx.pid"
nginx=http://127.0.0.1:$port/kgen
export KGEN_CACHE_REMOTE_TIMEOUT=2000
KGEN_CACHE_REMOTE_WRITE=1 with "$nginx" "2 compiled" 20 "${kernels[@]:0:2}"
[[ $(find "$work/www/kgen" -type f | wc -l) == 4 ]] || fail "nginx: $(find "$work/www"; cat "$work/nginx.said" "$work/nginx.errors")"
with "$nginx" "0 compiled, 2 cached" 20 "${kernels[@]:0:2}"
KGEN_CACHE_REMOTE=$nginx capture "$kgen" doctor
[[ $out == *"remote   $nginx"$'\n'* && $out != *"is of no use"* ]] || fail "nginx, doctor: $out"
for file in "$work"/www/kgen/cas/*; do printf X | dd of="$file" bs=1 seek=100 conv=notrunc status=none; done
with "$nginx" "2 compiled" 20 "${kernels[@]:0:2}" # what was changed on the server is not taken
finish
