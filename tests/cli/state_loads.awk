# Reads the listing of a gdn kernel of one token (kgen inspect -S), prints what
# is wrong with its loads of the recurrent state and exits 1 then.
#   awk -v first=<16-byte loads a lane has in flight> -v later=<those after> -f state_loads.awk
# State is what is loaded before the first barrier and used after it; weights of
# the convolution are used before it. `first` such loads are all of the state's
# first parts: no narrower load can be one of theirs.
function registers(text, set,    words, count, i, word, ends, r) { # "v[2:3]" -> v2, v3
    split("", set)
    count = split(text, words, /[^a-z0-9:\[\]]+/)
    for (i = 1; i <= count; i++) {
        word = words[i]
        if (word !~ /^[av](\[[0-9]+:[0-9]+\]|[0-9]+)$/) continue
        gsub(/[av\[\]]/, "", word)
        if (split(word, ends, ":") == 1) ends[2] = ends[1]
        for (r = ends[1] + 0; r <= ends[2] + 0; r++) set[substr(words[i], 1, 1) r] = 1
    }
}

function report(text) {
    print text
    wrong = 1
}

/^ *[0-9a-f]+: / {
    text = $0
    sub(/^[^:]*: *[^ ]+ */, "", text)
    sub(/ *\/\/.*/, "", text)
    registers(text, now)
    for (r in now) {
        if (!(r in owner)) continue
        if (!(owner[r] in touched)) touched[owner[r]] = NR
        delete owner[r]
    }
    if ($2 == "s_barrier" && !barrier) barrier = NR
    if ($2 ~ /^(global|buffer|flat|scratch)_/) issued++
    if ($2 ~ /^(global|buffer|flat)_load_dwordx4$/) {
        at[++loads] = NR
        number[loads] = issued
        sub(/,.*/, "", text)
        registers(text, now)
        for (r in now) owner[r] = loads
    }
    if ($2 == "s_waitcnt" && match(text, /vmcnt\([0-9]+/)) {
        wait_at[++waits] = NR # for the first `waited` of those that were issued
        waited[waits] = issued - substr(text, RSTART + 6, RLENGTH - 6)
    }
}

END {
    if (!barrier) report("no barrier")
    for (i = 1; i <= loads; i++) {
        if (at[i] > barrier) after++
        if (at[i] > barrier || (i in touched && touched[i] < barrier)) continue
        if (!before++) oldest = number[i]
        last = at[i]
    }
    if (before != first)
        report(before + 0 " loads of 16 bytes before the barrier for use after it, not " first)
    if (after + 0 != later) report(after + 0 " loads of 16 bytes after the barrier, not " later)
    for (i = 1; i <= waits; i++)
        if (before && wait_at[i] < last && waited[i] >= oldest)
            report("line " wait_at[i] " waits for a load before the last one, of line " last)
    exit wrong
}
