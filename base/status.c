#include "base/status.h"

#include "base/printable.h"

#include <stdarg.h>
#include <string.h>

static _Thread_local struct zd_error current;

int zd_exit_code(enum zd_status status)
{
    static const int codes[] = {[ZD_OK] = 0,           [ZD_ERR_USAGE] = 64,
                                [ZD_ERR_DATA] = 65,    [ZD_ERR_NO_INPUT] = 66,
                                [ZD_ERR_UNFIT] = 69,   [ZD_ERR_DEVICE] = 69,
                                [ZD_ERR_MEMORY] = 69,  [ZD_ERR_BUG] = 70,
                                [ZD_ERR_CREATE] = 73,  [ZD_ERR_IO] = 74,
                                [ZD_ERR_STOPPED] = 75, [ZD_ERR_PEER] = 75,
                                [ZD_ERR_DENIED] = 77,  [ZD_ERR_CONFIG] = 78,
                                [ZD_ERR_NUMERICS] = 79};
    size_t i = (size_t)status;
    return i < sizeof codes / sizeof codes[0] ? codes[i] : 70;
}

/* Text from files and users goes to a terminal: escape what is not
 * printable. */
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
    ZD_PRINT(current.code, "%s", code);
    va_start(args, format);
    format_printable(current.what, sizeof current.what, "", format, args);
    va_end(args);
    return status;
}

enum zd_status zd_fail_where(const char *format, ...)
{
    va_list args;
    if (current.where[0])
        return current.status;
    va_start(args, format);
    format_printable(current.where, sizeof current.where, "", format, args);
    va_end(args);
    return current.status;
}

enum zd_status zd_fail_help(const char *format, ...)
{
    va_list args;
    if (current.help[0])
        return current.status;
    va_start(args, format);
    /* print each line separately */
    format_printable(current.help, sizeof current.help, "\n", format, args);
    va_end(args);
    return current.status;
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
