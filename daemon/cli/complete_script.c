/* complete_script.c - the shells' part of completion: each asks the program
 * that is typed, and adds files and folders itself. */
#include "daemon/cli/complete.h"

#include <string.h>

/* The line is cut at blanks, not at '=' and ':' as COMP_WORDS is; the part of
 * the answer that bash would repeat is cut off again. */
static const char bash[] =
        "_NAME() {\n"
        "    local line=${COMP_LINE:0:COMP_POINT} current before breaks= "
        "kind word\n"
        "    local -a typed\n"
        "    read -ra typed <<<\"$line\"\n"
        "    [[ $line == *[[:space:]] ]] && typed+=('')\n"
        "    current=${typed[${#typed[@]} - 1]}\n"
        "    COMPREPLY=()\n"
        "    while IFS=$'\\t' read -r word _; do\n"
        "        case $word in\n"
        "        :files*|:folders*)\n"
        "            kind=-f\n"
        "            [[ $word == :files* ]] || kind=-d\n"
        "            before=${current:0:${word##* }}\n"
        "            compopt -o filenames 2>/dev/null\n"
        "            while IFS= read -r word; do\n"
        "                COMPREPLY+=(\"$before$word\")\n"
        "            done < <(compgen $kind -- "
        "\"${current:${#before}}\") ;;\n"
        "        *)\n"
        "            [[ $word != *= ]] || compopt -o nospace 2>/dev/null\n"
        "            COMPREPLY+=(\"$word\") ;;\n"
        "        esac\n"
        "    done < <(\"${typed[0]}\" __complete \"${typed[@]:1}\" "
        "2>/dev/null)\n"
        "    # bash keeps the word up to its last '=' or ':'\n"
        "    [[ $COMP_WORDBREAKS != *=* ]] || breaks+='='\n"
        "    [[ $COMP_WORDBREAKS != *:* ]] || breaks+=':'\n"
        "    if [[ -n $breaks && $current == *[$breaks]* ]]; then\n"
        "        before=${current%\"${current##*[$breaks]}\"}\n"
        "        COMPREPLY=(\"${COMPREPLY[@]#\"$before\"}\")\n"
        "    fi\n"
        "}\n"
        "complete -F _NAME NAME\n";

static const char zsh[] =
        "#compdef NAME\n"
        "local line word\n"
        "local -a names shown open\n"
        "for line in ${(f)\"$($words[1] __complete "
        "\"${(@)words[2,CURRENT]}\" 2>/dev/null)\"}; do\n"
        "    word=${line%%$'\\t'*}\n"
        "    case $word in\n"
        "    (:files*) compset -p ${word##* }; _files ;;\n"
        "    (:folders*) compset -p ${word##* }; _files -/ ;;\n"
        "    (*=) open+=($word) ;;\n"
        "    (*) names+=($word); shown+=(\"${line/$'\\t'/  -- }\") ;;\n"
        "    esac\n"
        "done\n"
        "compadd -l -d shown -- $names\n"
        "compadd -S '' -- $open\n";

static const char fish[] =
        "function __NAME_complete\n"
        "    set -l words (commandline -opc) (commandline -ct)\n"
        "    for line in ($words[1] __complete $words[2..-1] 2>/dev/null)\n"
        "        if string match -qr '^:(files|folders) ' -- $line\n"
        "            set -l cut (string replace -r '.* ' '' -- $line)\n"
        "            set -l before (string sub -l $cut -- $words[-1])\n"
        "            set -l value (string sub -s (math $cut + 1) -- "
        "$words[-1])\n"
        "            set -l names (__fish_complete_path $value)\n"
        "            string match -q ':folders*' -- $line\n"
        "            and set names (__fish_complete_directories $value)\n"
        "            for name in $names\n"
        "                printf '%s%s\\n' \"$before\" \"$name\"\n"
        "            end\n"
        "        else\n"
        "            printf '%s\\n' $line\n"
        "        end\n"
        "    end\n"
        "end\n"
        "complete -c NAME -f -a '(__NAME_complete)'\n";

enum zd_status complete_print_script(
        const char *program, const char *shell, FILE *stream)
{
    static const struct {
        const char *name, *script;
    } shells[] = {{"bash", bash}, {"zsh", zsh}, {"fish", fish}};
    for (size_t i = 0; i < sizeof shells / sizeof shells[0]; i++) {
        const char *at = shells[i].script, *name;
        if (strcmp(shells[i].name, shell) != 0)
            continue;
        for (; (name = strstr(at, "NAME")); at = name + strlen("NAME"))
            fprintf(stream, "%.*s%s", (int)(name - at), at, program);
        fputs(at, stream);
        return ZD_OK;
    }
    ZD_FAIL(ZD_ERR_USAGE, "E0101", "no completions for `%s`", shell);
    zd_fail_help("bash, zsh or fish");
    return ZD_ERR_USAGE;
}
