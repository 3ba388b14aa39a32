function __NAME_complete
    set -l words (commandline -opc) (commandline -ct)
    for line in ($words[1] __complete $words[2..-1] 2>/dev/null)
        if string match -qr '^:(files|folders) ' -- $line
            set -l cut (string replace -r '.* ' '' -- $line)
            set -l before (string sub -l $cut -- $words[-1])
            set -l value (string sub -s (math $cut + 1) -- $words[-1])
            set -l names (__fish_complete_path $value)
            string match -q ':folders*' -- $line
            and set names (__fish_complete_directories $value)
            for name in $names
                printf '%s%s\n' "$before" "$name"
            end
        else
            printf '%s\n' $line
        end
    end
end
complete -c NAME -f -a '(__NAME_complete)'
