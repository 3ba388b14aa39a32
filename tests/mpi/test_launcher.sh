#!/usr/bin/env bash
# deploy/mpirun.sh over stand-ins of mpirun, most of which never end by themselves.
#   test_launcher.sh ZEROD SOURCE_ROOT
source "$(dirname "$0")/lib.sh" "$1" "$2"
mkdir bin tmp
cat >bin/mpirun <<END
#!/bin/sh
sleep 0.3
exec "$(python3 -I -c 'import sys; print(sys.executable)')" "$folder/standin.py" "\$@"
END
cat >standin.py <<'END'
import os, signal, subprocess, sys, time
def start(command, **more):
    return subprocess.Popen(["sh", "-c", command], env={**os.environ, **more})
def rank(command):
    return start(command, OMPI_COMM_WORLD_RANK="0")
case = sys.argv[1]
with open(case + ".pid", "w") as file:
    file.write(str(os.getpid()))
time.sleep(1)  # as it takes a while to start
if case == "unseen":  # dead before anybody looks
    rank("kill -KILL $$").wait()
elif case == "unasked":
    rank("kill -KILL $$")
elif case == "seen":
    rank("sleep 1").wait()
elif case == "told":
    rank("sleep 1; echo 74 >>$ZEROD_LAUNCHER_FILE").wait()
elif case == "slow":  # its hosts are there late
    time.sleep(2)
    sys.exit(3)
elif case == "hosts":  # and their ssh ends
    start("sleep 3").wait()
    time.sleep(2)
    sys.exit(3)
elif case == "left":
    rank("exec sleep 100")
    open("left.started", "w").close()
elif case == "signals":
    signal.signal(signal.SIGUSR1, lambda *_: sys.exit(4))
    rank("exec sleep 3")
    open("signals.started", "w").close()
while True:
    signal.pause()
END
chmod +x bin/mpirun
export PATH=$folder/bin:$PATH TMPDIR=$folder/tmp
declare -A script
for each in unseen unasked seen told slow hosts left signals; do
    ZEROD_LAUNCHER_SECONDS=1 timeout -k 1 30 "$source_root/deploy/mpirun.sh" "$each" >"$each.out" 2>"$each.err" &
    script[$each]=$!
done
await() { # COMMAND...: until it holds
    local tries=0
    until "$@"; do
        sleep 0.1
        [[ $((++tries)) -lt 200 ]] || return 1
    done
}
finish_case() {
    name=$1 code=0
    wait "${script[$1]}" 2>/dev/null || code=$?
}
ended() { ! lives "$1"; }
await test -e left.started
await test -e signals.started
left=$(<left.pid)
kill -USR1 $(children "${script[signals]}") # that of `timeout`
kill -KILL $(children "${script[left]}")
check "a script that is killed: its mpirun is too" await ended "$left"
finish_case unseen
check "a rank killed before it was seen, and an mpirun that stands still: 75" code_is 75
check "  which is said" says "the ranks of this host ended 1 s ago, and mpirun, which waits for another host or stands still"
finish_case unasked
check "one whose code nobody asked for: 75" code_is 75
finish_case seen
check "one that ended and told nothing: 75" code_is 75
finish_case told
check "one that told its code" code_is 74
check "  at once" says "the ranks of this host ended by themselves"
finish_case slow
check "an mpirun that has started nothing yet is let go on" code_is 3
finish_case hosts
check "so is one whose ssh to other hosts has ended" code_is 3
finish_case signals
check "signals are passed on" code_is 4
check "no file is left" [ -z "$(ls tmp)" ]
tests_end
