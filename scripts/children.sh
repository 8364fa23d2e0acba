# For scripts that start programs, which source it: where their logs, ports and ends are. They name $directory, where all files are, first.
declare -A children=() # name -> process
declare -A commands=() # name -> its words, quoted for the shell
script=$(basename "$0" .sh)
# Stands before each program that is started.
before=()

# Says what is wrong, with the last that child $2 said if one is named, and ends.
fail() {
    echo "$script: $1${2:+; the last that $2 said:}" >&2
    [ -z "${2:-}" ] || tail -n 20 "$directory/$2.log" >&2 || true
    exit 1
}

# Starts a program in a session of its own, so that Ctrl-C reaches the script alone.
start() {
    local name=$1
    shift
    setsid "${before[@]}" "$@" >"$directory/$name.out" 2>"$directory/$name.log" 9>&- &
    children[$name]=$!
    commands[$name]=$(printf '%q ' "$@")
}

# Starts it once more, as it was started.
start_again() { eval "start \"\$1\" ${commands[$1]}"; }

ended() { ! kill -0 "${children[$1]}" 2>/dev/null; }

# The first port from $1 on where nobody listens and that was not chosen yet, in $port.
next=0
choose_port() {
    port=$(($1 > next ? $1 : next))
    while (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null; do port=$((port + 1)); done
    next=$((port + 1))
}

# Asks these children to end, in this order; who does not within ten seconds is killed. Leaves no file.
clean_up() {
    local name patience=100
    trap '' INT TERM
    for name in "$@"; do
        [ -n "${children[$name]:-}" ] || continue
        # One that was stopped hears it when it goes on.
        kill -TERM "${children[$name]}" 2>/dev/null || true
        kill -CONT "${children[$name]}" 2>/dev/null || true
    done
    for name in "${!children[@]}"; do
        until ended "$name"; do
            if [ "$patience" -eq 0 ]; then
                echo "$script: $name does not end, it is killed" >&2
                kill -KILL "${children[$name]}" 2>/dev/null || true
                break
            fi
            patience=$((patience - 1))
            sleep 0.1
        done
        wait "${children[$name]}" 2>/dev/null || true
    done
    rm -rf "$directory"
}
