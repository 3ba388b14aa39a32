_NAME() {
    local line=${COMP_LINE:0:COMP_POINT} current before breaks= kind word
    local -a typed
    read -ra typed <<<"$line"
    [[ $line == *[[:space:]] ]] && typed+=('')
    current=${typed[${#typed[@]} - 1]}
    COMPREPLY=()
    while IFS=$'\t' read -r word _; do
        case $word in
        :files*|:folders*)
            kind=-f
            [[ $word == :files* ]] || kind=-d
            before=${current:0:${word##* }}
            compopt -o filenames 2>/dev/null
            while IFS= read -r word; do
                COMPREPLY+=("$before$word")
            done < <(compgen $kind -- "${current:${#before}}") ;;
        *)
            [[ $word != *= ]] || compopt -o nospace 2>/dev/null
            COMPREPLY+=("$word") ;;
        esac
    done < <("${typed[0]}" __complete "${typed[@]:1}" 2>/dev/null)
    # bash keeps the word up to its last '=' or ':'
    [[ $COMP_WORDBREAKS != *=* ]] || breaks+='='
    [[ $COMP_WORDBREAKS != *:* ]] || breaks+=':'
    if [[ -n $breaks && $current == *[$breaks]* ]]; then
        before=${current%"${current##*[$breaks]}"}
        COMPREPLY=("${COMPREPLY[@]#"$before"}")
    fi
}
complete -F _NAME NAME
