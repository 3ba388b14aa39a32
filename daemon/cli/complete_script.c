/* complete_script.c - the shells' part of completion: each asks the program
 * that is typed, and adds files and folders itself. */
#include "base/embedded.h"
#include "daemon/cli/complete.h"

#include <string.h>

extern const char complete_scripts[]; /* complete_scripts.S */

enum zd_status complete_print_script(
        const char *program, const char *shell, FILE *stream)
{
    struct embedded script = embedded_find(complete_scripts, shell);
    const char *at = script.text, *name;
    if (!script.name) {
        ZD_FAIL(ZD_ERR_USAGE, "E0101", "no completions for `%s`", shell);
        return zd_fail_help("bash, zsh or fish");
    }
    for (; (name = strstr(at, "NAME")); at = name + strlen("NAME"))
        fprintf(stream, "%.*s%s", (int)(name - at), at, program);
    fputs(at, stream);
    return ZD_OK;
}
