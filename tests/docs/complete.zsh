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
_files() {
    if [[ $1 == -/ ]]; then offer *(N/); else offer *(N); fi
}
compset() { # -p N
    IPREFIX+=${PREFIX[1,$2]}
    PREFIX=${PREFIX[$2+1,-1]}
}
script=$1
# The script is the body of a function, as compinit makes it.
run() { . $script }
shift 2
for line; do
    words=(${(z)line})
    [[ $line == *' ' ]] && words+=('')
    CURRENT=$#words PREFIX=$words[-1] IPREFIX= replies=()
    run
    print -r -- $replies
done
