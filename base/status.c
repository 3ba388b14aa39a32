#include "base/status.h"

#include "base/printable.h"

#include <stdarg.h>
#include <string.h>

static _Thread_local struct zd_error current;

int zd_exit_code(enum zd_status status)
{
    switch (status) {
    case ZD_OK:
        return 0;
    case ZD_ERR_USAGE:
        return 64;
    case ZD_ERR_DATA:
        return 65;
    case ZD_ERR_NO_INPUT:
        return 66;
    case ZD_ERR_UNFIT:
    case ZD_ERR_DEVICE:
    case ZD_ERR_MEMORY:
        return 69;
    case ZD_ERR_BUG:
        return 70;
    case ZD_ERR_CREATE:
        return 73;
    case ZD_ERR_IO:
        return 74;
    case ZD_ERR_STOPPED:
    case ZD_ERR_PEER:
        return 75;
    case ZD_ERR_DENIED:
        return 77;
    case ZD_ERR_CONFIG:
        return 78;
    case ZD_ERR_NUMERICS:
        return 79;
    }
    return 70;
}

/* Text from files and users goes to a terminal: what is not printable is shown
 * as an escape. */
static void format_printable(
        char *out, size_t out_bytes, const char *keep, const char *format,
        va_list args)
{
    char raw[sizeof current.what + sizeof current.help];
    int length = vsnprintf(raw, out_bytes, format, args);
    size_t bytes = length < 0 ? 0 : (size_t)length;
    if (bytes >= out_bytes) { /* cut, but not within a character */
        bytes = out_bytes - 1;
        bytes -= printable_tail(raw, bytes);
    }
    printable_copy(out, out_bytes, raw, bytes, keep);
}

enum zd_status zd_fail(
        enum zd_status status, const char *code, const char *format, ...)
{
    if (current.status != ZD_OK)
        return status; /* the first failure is the cause */
    va_list args;
    memset(&current, 0, sizeof current);
    current.status = status;
    snprintf(current.code, sizeof current.code, "%s", code);
    va_start(args, format);
    format_printable(current.what, sizeof current.what, "", format, args);
    va_end(args);
    return status;
}

void zd_fail_where(const char *format, ...)
{
    va_list args;
    if (current.where[0])
        return;
    va_start(args, format);
    format_printable(current.where, sizeof current.where, "", format, args);
    va_end(args);
}

void zd_fail_help(const char *format, ...)
{
    va_list args;
    if (current.help[0])
        return;
    va_start(args, format);
    /* print each line separately */
    format_printable(current.help, sizeof current.help, "\n", format, args);
    va_end(args);
}

const struct zd_error *zd_error_get(void)
{
    return &current;
}

void zd_error_set(const struct zd_error *error)
{
    current = *error;
}

void zd_error_clear(void)
{
    memset(&current, 0, sizeof current);
}

void zd_error_print(FILE *stream, const struct zd_error *error)
{
    if (error->status == ZD_OK)
        return;
    fprintf(stream, "error[%s]: %s\n", error->code, error->what);
    if (error->where[0])
        fprintf(stream, "  --> %s\n", error->where);
    /* each line of the help is its own "= help:" line */
    const char *line = error->help;
    while (*line) {
        size_t length = strcspn(line, "\n");
        fprintf(stream, "  = help: %.*s\n", (int)length, line);
        line += length + (line[length] == '\n');
    }
    fflush(stream);
}
