# complete.zsh SCRIPT PROGRAM LINE...: what zsh would offer at the end of each line, one line each. The parts of its
# completion system that the script calls stand here as what they would add: without a terminal there are none.
offer() {
    local word
    for word; do [[ $word == $PREFIX* ]] && replies+=($word); done
}
compadd() {
    while [[ $1 != -- ]]; do shift; done
    shift
    offer "$@"
}
_describe() {
    local -a described=("${(@P)2}")
    offer "${(@)described%%:*}"
}
_files() {
    if [[ $1 == -/ ]]; then offer *(N/); else offer *(N); fi
}
compset() { # -P 1 '*='
    [[ $PREFIX == *=* ]] || return 1
    IPREFIX+=${PREFIX%%=*}=
    PREFIX=${PREFIX#*=}
}
script=$1
shift 2
for line; do
    words=(${(z)line})
    [[ $line == *' ' ]] && words+=('')
    CURRENT=$#words PREFIX=$words[-1] IPREFIX= replies=()
    . $script
    print -r -- $replies
done
