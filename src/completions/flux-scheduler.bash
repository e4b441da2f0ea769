# Completion for bash: flux sched, flux simulate and flux-simulate.
#
# flux-core has one function for all of flux; ours takes the two commands that it does not know and leaves the others to it,
# whichever of the two files is read first. t/t2404-completion.t compares the words with the commands' own parsers.

_flux_scheduler_words() {
    case $1 in
    sched) echo "explain when windows plan top stats reserve unreserve reservations limits shares topology check-config preempt preemptions --version --help" ;;
    "sched explain") echo "--all --json --utc --help" ;;
    "sched when") echo "--json --utc --ntasks --nodes --cores --cores-per-task --gpus-per-node --gpus-per-task --tasks-per-core --tasks-per-node --exclusive --time-limit --queue --bank --requires --setattr --match --help" ;;
    "sched topology") echo "--ranks --output --ascii --json --utc --help" ;;
    "sched windows") echo "--horizon --json --utc --help" ;;
    "sched plan") echo "--horizon --output --json --utc --help" ;;
    "sched top") echo "--delay --once --json --utc --help" ;;
    "sched stats") echo "--prometheus --output --json --utc --help" ;;
    "sched reserve") echo "--json --utc --start --duration --nodes --hosts --requires --users --queues --bank --every --zone --at-end --pin --dry-run --help" ;;
    "sched unreserve") echo "--json --utc --help" ;;
    "sched check-config") echo "--json --utc --help" ;;
    "sched limits") echo "--no-header --json --utc --help" ;;
    "sched shares") echo "--no-header --json --utc --help" ;;
    "sched preempt") echo "--dry-run --json --utc --help" ;;
    "sched preemptions") echo "--json --utc --help" ;;
    "sched reservations") echo "--no-header --json --utc --help" ;;
    simulate) echo "sample compare check tune --version --format --model --limits --estimates --window --jobs --scale-arrivals --dependencies --status --seed --seeds --shake --live --nodes --cores-per-node --gpus-per-node --memory-per-node --R --conf --unit --scheduler --engine --grain --forecast --odds --script --failures --jobtap --parallel --output --eventlogs --swf --save-trace --resume --force --again --diff --json --quiet --help" ;;
    "simulate compare") echo "--diff --across --output --help" ;;
    "simulate tune") echo "sample --format --model --limits --estimates --window --jobs --scale-arrivals --dependencies --status --seed --seeds --shake --nodes --cores-per-node --gpus-per-node --memory-per-node --R --conf --unit --scheduler --against --figure --splits --parallel --json --quiet --help" ;;
    "simulate check") echo "--live --help" ;;
    esac
}

# What follows an option: words, or files; anything else has nothing to offer.
_flux_scheduler_values() {
    case $1 in
    --scheduler) compgen -W "sched-fifo sched-simple sched-backfill" -- "$2"; compgen -f -- "$2" ;;
    --engine) compgen -W "lean instance" -- "$2" ;;
    --grain) compgen -W "batch event-end event-submit" -- "$2" ;;
    --unit) compgen -W "node core" -- "$2" ;;
    --at-end) compgen -W "cancel run" -- "$2" ;;
    --estimates) compgen -W "none run tsafrir" -- "$2" ;;
    --limits) compgen -W "trace run" -- "$2" ;;
    --model) compgen -W "lublin" -- "$2" ;;
    --format) compgen -W "auto swf sacct flux accounting batsim csv" -- "$2" ;;
    -o | --output | --R | --conf | --script | --jobtap | --save-trace) compgen -f -- "$2" ;;
    *) return 1 ;;
    esac
}

# _flux_scheduler_reply COMMAND WORD...: COMPREPLY for the last of the words.
_flux_scheduler_reply() {
    local command=$1 word before=
    shift
    local current=${!#}
    local -a earlier=("${@:1:$#-1}")
    for word in "${earlier[@]}"; do
        case "$command $word" in
        "sched "[a-z]* | "simulate compare" | "simulate check" | "simulate tune")
            command="$command $word"
            break
            ;;
        esac
    done
    [ ${#earlier[@]} = 0 ] || before=${earlier[${#earlier[@]}-1]}
    # --option=value is three words where "=" breaks words, as it does by default.
    if [ "$current" = "=" ]; then
        current=
    elif [ "$before" = "=" ] && [ ${#earlier[@]} -gt 1 ]; then
        before=${earlier[${#earlier[@]}-2]}
    fi
    compopt -o filenames 2>/dev/null
    mapfile -t COMPREPLY < <(_flux_scheduler_values "$before" "$current")
    if [ ${#COMPREPLY[@]} = 0 ]; then
        case "$command $current" in
        "sched explain "[!-]* | "sched preempt "[!-]*) mapfile -t COMPREPLY < <(compgen -W "$(flux jobs -n -f pending -o '{id.f58}' 2>/dev/null)" -- "$current") ;;
        *) mapfile -t COMPREPLY < <(compgen -W "$(_flux_scheduler_words "$command")" -- "$current") ;;
        esac
        case $command in
        simulate* | "sched check-config" | "sched topology") [ "${current#-}" != "$current" ] || mapfile -t -O ${#COMPREPLY[@]} COMPREPLY < <(compgen -f -- "$current") ;;
        esac
    fi
}

_flux_scheduler() {
    local i=1
    while [ "$i" -lt "$COMP_CWORD" ] && [[ ${COMP_WORDS[i]} == -* ]]; do i=$((i + 1)); done
    case ${COMP_WORDS[i]} in
    sched | simulate)
        if [ "$i" -lt "$COMP_CWORD" ]; then
            _flux_scheduler_reply "${COMP_WORDS[i]}" "${COMP_WORDS[@]:i+1:COMP_CWORD-i}"
            return
        fi
        ;;
    esac
    if ! declare -F _flux_core >/dev/null; then
        local file
        file=$(command -v flux) && file=${file%/bin/flux}/share/bash-completion/completions/flux
        if [ -f "$file" ]; then
            . "$file"
            complete -F _flux_scheduler flux
        fi
    fi
    if declare -F _flux_core >/dev/null; then _flux_core; fi
    if [ "$i" = "$COMP_CWORD" ]; then
        mapfile -t -O ${#COMPREPLY[@]} COMPREPLY < <(compgen -W "sched simulate" -- "${COMP_WORDS[COMP_CWORD]}")
    fi
}

_flux_scheduler_simulate() {
    _flux_scheduler_reply simulate "${COMP_WORDS[@]:1:COMP_CWORD}"
}

complete -F _flux_scheduler flux
complete -F _flux_scheduler_simulate flux-simulate
