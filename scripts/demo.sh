# shellcheck shell=bash
# Sourced by ./run: plans, builds and checks the kernels of two models without a GPU.

# Model and tensor-parallel width; every one with a bf16 and an fp8 KV cache.
demo_models=("Qwen3.5-35B-A3B 1" "Llama-3.1-70B-Instruct 8")
# Architecture and the cpu device that stands for it.
demo_archs=("gfx942 cpu:cdna3" "gfx950 cpu:cdna4")

demo_plan() { # writes $demo/manifest
    local row model tp kv
    for row in "${demo_models[@]}"; do
        read -r model tp <<<"$row"
        for kv in bf16 fp8; do
            printf '\n%s, tp %s, %s KV cache, ' "$model" "$tp" "$kv"
            "$kgen" plan "$root/plan/configs/$model.json" --tp "$tp" --kv-dtype "$kv" \
                --spec-width 3 --arch gfx942,gfx950 -o "$demo/plan"
            cat "$demo/plan" >>"$demo/manifest"
        done
    done
}

# Prompts of a model's size take minutes on a CPU; ./run test checks small ones.
demo_check() {
    local row arch device specs
    for row in "${demo_archs[@]}"; do
        read -r arch device <<<"$row"
        mapfile -t specs < <(sed -n "/phase=\(extend\|prefill\)/!s/ @$arch\$//p" "$demo/manifest" | sort -u)
        "$kgen" check --device "$device" "${specs[@]}"
    done
}

run_demo() {
    setup
    build_tree release kgen kgen-cc
    kgen=$build/release/bin/kgen
    demo=$build/demo
    rm -rf "$demo"
    mkdir -p "$demo"
    export KGEN_CACHE_DIR=$demo/cache

    step="demo: plan"
    say "Which kernels two models need on MI300X (gfx942) and MI355X (gfx950)"
    demo_plan
    step="demo: build"
    say "Building them into a fresh cache"
    "$kgen" build --manifest "$demo/manifest"
    say "What was built"
    "$kgen" list
    say "The same again: nothing to compile"
    "$kgen" build --manifest "$demo/manifest"
    step="demo: check"
    say "Every kernel on the cpu device, against the double-precision reference"
    demo_check
    next_steps
}

next_steps() {
    local spec=attn:phase=decode,d=128,g=8,kv=fp8
    say "What next"
    cat <<EOF
   export PATH=$build/release/bin:\$PATH KGEN_CACHE_DIR=$KGEN_CACHE_DIR
   kgen source '$spec' --arch gfx942    the generated source
   kgen report '$spec' --arch gfx942    registers, LDS, occupancy
   kgen explain attn                                            every key of a spec
   kgen plan your/config.json --tp 8 --arch gfx942              your own model
   ./run test                                                   every test
EOF
}
