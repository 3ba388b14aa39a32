# complete.fish SCRIPT PROGRAM LINE...: what fish would offer at the end of each line, one line each.
source $argv[1]
for line in $argv[3..-1]
    set -l offered (complete -C $line | string replace -r '\t.*' '')
    echo $offered
end
