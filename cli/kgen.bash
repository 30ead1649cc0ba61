# bash completion for kgen. Commands and options come from kgen's own help.
_kgen() {
    local current=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD - 1]} program=${COMP_WORDS[0]}
    COMPREPLY=()
    if ((COMP_CWORD == 1)); then
        mapfile -t COMPREPLY < <(compgen -W "$("$program" help 2>/dev/null | awk '/^  [a-z]/ {print $1}')" -- "$current")
        return
    fi
    case $previous in
    --engine) mapfile -t COMPREPLY < <(compgen -W "vllm sglang" -- "$current") && return ;;
    --kv-dtype) mapfile -t COMPREPLY < <(compgen -W "auto bf16 fp16 fp8 e4m3fn e4m3fnuz e5m2 i8 i4 8bit" -- "$current") && return ;;
    --dtype) mapfile -t COMPREPLY < <(compgen -W "auto bf16 fp16" -- "$current") && return ;;
    --state-dtype) mapfile -t COMPREPLY < <(compgen -W "auto bf16 fp16 f32" -- "$current") && return ;;
    --table) mapfile -t COMPREPLY < <(compgen -W "i32 i64" -- "$current") && return ;;
    --descale) mapfile -t COMPREPLY < <(compgen -W "auto head token" -- "$current") && return ;;
    --assume) mapfile -t COMPREPLY < <(compgen -W "nothing dense" -- "$current") && return ;;
    --prompts) mapfile -t COMPREPLY < <(compgen -W "engine extend none" -- "$current") && return ;;
    --layout) mapfile -t COMPREPLY < <(compgen -W "auto nhd hnd shuffle xpacked" -- "$current") && return ;;
    --arch) # the error for an unknown one lists them
        mapfile -t COMPREPLY < <(compgen -W "$("$program" list --arch '?' 2>&1 | sed 's/.*known are //; s/,//g')" -- "$current")
        return ;;
    --layer) mapfile -t COMPREPLY < <(compgen -W "user system shipped" -- "$current") && return ;;
    --family) # as above
        mapfile -t COMPREPLY < <(compgen -W "$("$program" explain '?' 2>&1 | sed 's/.*known are //; s/,//g')" -- "$current")
        return ;;
    tuning) mapfile -t COMPREPLY < <(compgen -W "list import export check renew restamp" -- "$current") && return ;;
    --problem) mapfile -t COMPREPLY < <(compgen -W "batch=8,context=8192,heads=8 batch=64,context=8192,heads=8" -- "$current") && return ;;
    --search) mapfile -t COMPREPLY < <(compgen -W "halving random exhaustive" -- "$current") && return ;;
    --cache-dir) mapfile -t COMPREPLY < <(compgen -d -- "$current") && return ;;
    help) mapfile -t COMPREPLY < <(compgen -W "$("$program" help 2>/dev/null | awk '/^  [a-z]/ {print $1}')" -- "$current") && return ;;
    esac
    if [[ $current == -* ]]; then
        mapfile -t COMPREPLY < <(compgen -W "$("$program" help "${COMP_WORDS[1]}" 2>/dev/null | sed -nE 's/^ +(-., )?(--[a-z-]+).*/\2/p')" -- "$current")
        return
    fi
    mapfile -t COMPREPLY < <(compgen -f -- "$current")
}
complete -o filenames -F _kgen kgen
