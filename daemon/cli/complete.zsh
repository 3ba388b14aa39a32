#compdef NAME
local line word
local -a names shown open
for line in ${(f)"$($words[1] __complete "${(@)words[2,CURRENT]}" 2>/dev/null)"}; do
    word=${line%%$'\t'*}
    case $word in
    (:files*) compset -p ${word##* }; _files ;;
    (:folders*) compset -p ${word##* }; _files -/ ;;
    (*=) open+=($word) ;;
    (*) names+=($word); shown+=("${line/$'\t'/  -- }") ;;
    esac
done
compadd -l -d shown -- $names
compadd -S '' -- $open
