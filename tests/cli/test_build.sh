#!/usr/bin/env bash
# What the build says before it is silent for minutes, with a meson and a ninja that only play, and how the programs that it makes
# are protected. Prints TAP.
#   test_build.sh ZEROD SOURCE ZERODCTL
source=$(realpath "$2") programs=("$(realpath "$1")" "$(realpath "$3")")
. "$source/tests/support/tap.sh"
scratch_folder
cd "$work" || exit 99
mkdir -p tree/deploy bin
cp "$source"/deploy/{build.sh,quickstart.sh,suite_targets.py} tree/deploy
printf '#!/bin/sh\nexit 0\n' >tree/deploy/install.sh
# Each notes how many lines had been said when it was started.
cat >bin/meson <<'END'
#!/bin/sh
echo "meson $(wc -l <"$work/err")" >>"$work/order"
echo "Build type: native build"
: >"$2/build.ninja"
END
cat >bin/ninja <<'END'
#!/bin/sh
case " $* " in
    *' -n '*)
        [ "$left" = 0 ] && { echo 'ninja: no work to do.'; exit 0; }
        i=1
        while [ $i -le "$left" ]; do echo "[$i/$left] Compiling C object $i"; i=$((i + 1)); done
        exit 0 ;;
esac
echo "ninja $(wc -l <"$work/err")" >>"$work/order"
echo "$*" >"$work/asked"
echo '[1/2] Compiling C object a'
echo "a.c:3:1: $said"
echo '[2/2] Linking target b'
exit "$fails"
END
chmod +x bin/* tree/deploy/*
export work left=2 fails=0 said='note: so'
build() { # CODE: of a build of the folder out
    local want=$1 code
    PATH=$work/bin:$PATH tree/deploy/build.sh out --target b >text 2>err
    code=$?
    [ $code = "$want" ] || { echo "exit $code, not $want"; return 1; }
}
has() { grep -qE -e "$1" "$2"; }

ok 'a build of a new folder' build 0
ok '  setting up is told, with its log' has '^   meson setup out: .*; log: out/setup.log$' err
ok '  building is told, with its steps, its time and its log' has '^   ninja -C out: 2 steps, about 1 minute on [0-9]+ cores?; log: out/build.log$' err
ok '  each before it begins' diff - order <<<$'meson 1\nninja 2'
ok '  the logs are there' eval 'has "native build" tree/out/setup.log && has "2/2" tree/out/build.log'
ok '  what is no warning stays in the log' eval '[ $(wc -l <err) = 2 ] && [ ! -s text ]'
ok 'minutes grow with the steps' eval 'left=$((600 * $(nproc))) && build 0 && has "about 5 minutes on" err && ! has "meson setup" err'
ok 'where nothing is left to do' eval 'left=0 && build 0 && has "everything is built" err'
ok 'a warning is shown' eval "said='warning: so' && build 0 && has 'a.c:3:1: warning: so' err"
ok 'a build that fails ends with 70 and its last lines' eval "said='error: so' && fails=1 && build 70 && has 'a.c:3:1: error: so' err"
fails=0
# Of a suite, what its tests need: two that share a program, one that is a script.
mkdir -p tree/out/meson-info
target() { printf '{"id": "%s", "filename": ["%s/tree/out/%s"]}' "$1" "$(realpath .)" "$2"; }
printf '[%s, %s, %s]\n' "$(target a@exe t/a)" "$(target b@exe t/b)" "$(target c@exe c)" >tree/out/meson-info/intro-targets.json
printf '[%s, %s, %s, %s]\n' '{"suite": ["z:unit"], "depends": ["a@exe"]}' '{"suite": ["z:unit", "z:tsan"], "depends": ["a@exe", "c@exe"]}' \
    '{"suite": ["z:cli"], "depends": ["b@exe"]}' '{"suite": ["z:docs"], "depends": []}' >tree/out/meson-info/intro-tests.json
suite() { # TARGETS [suite]...: what ninja is asked for
    local want=$1 name
    shift
    PATH=$work/bin:$PATH tree/deploy/build.sh out "$@" >text 2>err && diff - asked <<<"-C out $want"
}
ok 'of a suite what its tests need is built' suite 't/a c' --suite unit
ok '  of several, each once' suite 't/a t/b c' --suite cli --suite tsan --suite unit
ok '  beside targets' suite 'x t/b' --target x --suite cli
ok '  and an unknown one is an error' eval '! suite "" --suite unti && has "no test of out has the suite unti" err'
if command -v script >/dev/null; then
    : >err
    ok 'on a terminal the step is shown' eval \
        'PATH=$work/bin:$PATH TERM=xterm script -qec "tree/deploy/build.sh out" /dev/null >seen && has "\[1/2\] Compiling" seen && has "\[2/2\] Linking" seen'
    ok '  and the log has it too' has '2/2' tree/out/build.log
    export fails=1
    ok '  and a failure is one' eval '! PATH=$work/bin:$PATH TERM=xterm script -qec "tree/deploy/build.sh out" /dev/null >seen'
else
    skip 'on a terminal the step is shown' 'there is no script(1)'
fi
quickstart() {
    PATH=$work/bin:$PATH tree/deploy/quickstart.sh >text 2>err
    [ $? = 70 ] && has '^== building zerod and zerodctl' err && has 'log: build/setup.log$' err && has 'log: build/build.log$' err
}
export fails=1 left=2
ok 'the quickstart says so too' quickstart

for program in "${programs[@]}"; do
    readelf -hldW "$program" >elf
    readelf --dyn-syms -W "$program" >symbols
    if grep -q '__[at]san_init' symbols; then
        skip "$(basename "$program") is protected" 'it is a build with a sanitizer'
        continue
    fi
    ok "$(basename "$program"): its addresses change" has 'Type: *DYN .*' elf
    ok '  tables of addresses are read-only from the start' eval 'has "GNU_RELRO" elf && has "(BIND_NOW|FLAGS.* NOW)" elf'
    ok '  an overwritten stack ends it' has '__stack_chk_fail' symbols
    ok '  and so does libc where it would write past an array' has '__(mem|str|s|vs|v?f)[a-z]*_chk@' symbols
done
tests_end
