# Makes a cluster's folder; removes it, with its server, when the owner has gone, however it went.
#
# Passed to `sh -c` with: FOLDER BINARIES USER PASSWORD SETTINGS. Stdin is a pipe that only the owner can write to, so
# its end is the owner's end. The owner says `running` before it starts a server, `stopped` after it has reaped one, and
# `hold PID` for a process that may still need the cluster then. Stdout: `ready`, or what went wrong.

# Nobody but the owner ends the guardian. PIPE: the owner may be gone before it has read our answer.
trap '' HUP INT QUIT PIPE TERM
umask 077
exec 2>&1

folder=$1 binaries=$2 user=$3 password=$4 settings=$5
data=$folder/data

# `mkdir` fails when somebody has this name already; so what is removed below is only ever our own.
mkdir "$folder" || exit 1

remove_folder() {
    # A backend or `initdb` that is just ending may still add a file while we remove.
    tries=0
    until rm -rf "$folder" && [ ! -e "$folder" ]; do
        tries=$((tries + 1))
        [ "$tries" -lt 100 ] || return 1
        sleep 0.1
    done
}

make_cluster() {
    printf '%s\n' "$password" >"$folder/password" &&
        "$binaries/initdb" --pgdata="$data" --username="$user" --pwfile="$folder/password" \
            --auth-local=trust --auth-host=scram-sha-256 --encoding=UTF8 --locale=C --no-sync \
            >"$folder/initdb" &&
        printf '%s\n' "$settings" >>"$data/postgresql.conf"
}

if ! make_cluster; then
    cat "$folder/initdb"
    remove_folder
    exit 1
fi
echo ready
exec >/dev/null 2>&1

state=stopped
held=
while read -r word argument; do
    case $word in
    running | stopped) state=$word ;;
    hold) held=$argument ;;
    esac
done

# The owner has gone.

is_alive() {
    # We may not signal a process of root's, but we may see it.
    kill -0 "$1" || [ -d "/proc/$1" ]
}

tries=0
while [ -n "$held" ] && is_alive "$held"; do
    tries=$((tries + 1))
    [ "$tries" -lt 600 ] || break
    sleep 0.1
done

stop_server() {
    # A server that has only just been started has not written its process id yet.
    tries=0
    until read -r pid <"$data/postmaster.pid" && [ -n "$pid" ]; do
        tries=$((tries + 1))
        [ "$tries" -lt 30 ] || return
        sleep 0.1
    done
    kill -s QUIT "$pid" || return
    # The file goes with the server; a process id alone can stay, where nobody reaps orphans.
    tries=0
    while [ -e "$data/postmaster.pid" ] && kill -0 "$pid"; do
        tries=$((tries + 1))
        [ "$tries" -lt 150 ] || kill -s KILL "$pid"
        [ "$tries" -lt 200 ] || return
        sleep 0.1
    done
}

[ "$state" = stopped ] || stop_server
remove_folder
