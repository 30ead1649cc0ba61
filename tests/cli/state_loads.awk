# Reads a disassembly of a gdn kernel of one token. Prints what is wrong:
# loads of the state that are not 16 bytes a lane, or not all on their way
# before the first use of one of them.
#   awk -v lanes_hold=<16-byte pieces of a lane in flight> -f state_loads.awk
function spread(text, set,   parts, i, low, high) { # "v[2:5]" -> set[2..5]
    while (match(text, /v\[[0-9]+:[0-9]+\]|v[0-9]+/)) {
        parts = substr(text, RSTART + 1, RLENGTH - 1)
        text = substr(text, RSTART + RLENGTH)
        gsub(/[\[\]]/, "", parts)
        low = high = parts
        if (parts ~ /:/) { low = parts; sub(/:.*/, "", low); sub(/.*:/, "", high) }
        for (i = low + 0; i <= high + 0; i++) set[i] = 1
    }
}
function operands(line,   text) {
    text = line
    sub(/^[ \t]*[a-z0-9_]+[ \t]*/, "", text)
    sub(/[ \t]*\/\/.*/, "", text)
    return text
}
/^[ \t]+[a-z]/ {
    count++
    line = $0
    op = $1
    delete now
    text = operands(line)
    if (op ~ /^(global_store|ds_write|buffer_store)/) spread(text, now)
    else { first = text; sub(/^[^,]*,?/, "", text); spread(text, now) }
    for (r in now) if (r in pending) { if (!(pending[r] in used)) used[pending[r]] = count }
    if (op == "s_barrier" && !barrier) barrier = count
    if (op ~ /^(global|buffer|flat)_load/) {
        if (op ~ /^flat/) print "a flat load: " line
        loads++
        at[loads] = count
        wide[loads] = op ~ /dwordx4$/
        delete now
        sub(/,.*/, "", first)
        spread(first, now)
        for (r in now) pending[r] = loads
    } else if (op !~ /^(global_store|ds_write|s_|v_cmp)/) { # a write ends the watch
        delete now
        sub(/,.*/, "", first)
        spread(first, now)
        for (r in now) delete pending[r]
    }
}
END {
    if (!barrier) { print "no barrier"; exit }
    # Before the barrier the inputs are used; what waits beyond it is the state.
    first_use = count + 1
    for (i = 1; i <= loads; i++) {
        if (!(i in used) || used[i] < barrier) continue
        if (at[i] < barrier) early++
        if (!wide[i]) print "a load of the state is not 16 bytes: number " i
        if (at[i] < barrier && used[i] < first_use) first_use = used[i]
        last = at[i] < barrier && at[i] > last ? at[i] : last
    }
    if (early != lanes_hold) print early + 0 " loads of the state before the barrier, not " lanes_hold
    if (last > first_use) print "a load comes after the first use"
}
