#include "daemon/cli/look.h"

#include "base/clock.h"
#include "base/must.h"
#include "base/printable.h"
#include "base/words.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>
#include <utf8proc.h>

#include "base/text_stream.h"
#include "daemon/cli/output.h"

/* --- the screen --- */

static bool locale_has_utf8(void)
{
    static const char *const names[] = {"LC_ALL", "LC_CTYPE", "LANG"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        const char *value = getenv(names[i]);
        if (value && value[0])
            return strcasestr(value, "utf-8") || strcasestr(value, "utf8");
    }
    return false;
}

static int number_of(const char *name)
{
    const char *text = getenv(name);
    long value = text ? strtol(text, NULL, 10) : 0;
    return value > 0 && value < 10000 ? (int)value : 0;
}

struct look look_of_stdout(void)
{
    struct winsize size = {0};
    bool is_terminal = isatty(STDOUT_FILENO);
    struct look look = {
            .out = stdout,
            .columns = number_of("COLUMNS"),
            .rows = number_of("LINES"),
            .has_utf8 = locale_has_utf8(),
            .has_color = output_has_color(STDOUT_FILENO),
            .now = clock_wall_seconds()};
    if (is_terminal && ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0) {
        look.columns = size.ws_col ? size.ws_col : look.columns;
        look.rows = size.ws_row ? size.ws_row : look.rows;
    }
    if (is_terminal && look.columns == 0)
        look.columns = 80;
    if (is_terminal && look.rows == 0)
        look.rows = 24;
    return look;
}

const char *look_style(const struct look *look, enum look_style style)
{
    static const char *const codes[] = {
            [LOOK_PLAIN] = "\033[0m",   [LOOK_BOLD] = "\033[1m",
            [LOOK_DIM] = "\033[2m",     [LOOK_GOOD] = "\033[32m",
            [LOOK_WARN] = "\033[33m",   [LOOK_BAD] = "\033[31m",
            [LOOK_ACCENT] = "\033[36m", [LOOK_INVERSE] = "\033[7m"};
    return look->has_color ? codes[style] : "";
}

enum look_style look_of_state(const char *state)
{
    if (words_have("failed|died|no answer", "|", state) ||
        strncmp(state, "stalled", 7) == 0)
        return LOOK_BAD;
    if (words_have("paused|stopping", "|", state) ||
        strncmp(state, "stopped", 7) == 0)
        return LOOK_WARN;
    return LOOK_GOOD;
}

/* --- text --- */

/* One character at `text` into `out`; returns the bytes read. */
static size_t escape_one(
        const struct look *look, const char *text, size_t bytes,
        bool keeps_lines, char out[PRINTABLE_MAX])
{
    if (text[0] == '\n' || text[0] == '\t') {
        const char *name = text[0] == '\n' ? "\\n" : "\\t";
        snprintf(
                out, PRINTABLE_MAX, "%.*s", keeps_lines ? 1 : 2,
                keeps_lines ? text : name);
        return 1;
    }
    utf8proc_int32_t code;
    size_t used = printable_one(text, bytes, out);
    if ((unsigned char)out[0] >= 0x80 && !look->has_utf8) {
        utf8proc_iterate(
                (const utf8proc_uint8_t *)text, (utf8proc_ssize_t)used, &code);
        snprintf(out, PRINTABLE_MAX, "\\u{%x}", (unsigned)code);
    }
    return used;
}

char *text_escape(
        const struct look *look, const char *text, size_t bytes,
        bool keeps_lines)
{
    char *out = NULL, one[PRINTABLE_MAX];
    FILE *stream = text_stream_open(&out, NULL);
    for (size_t at = 0; at < bytes;) {
        at += escape_one(look, text + at, bytes - at, keeps_lines, one);
        fputs(one, stream);
    }
    fclose(stream);
    return out;
}

void text_print(const struct look *look, const char *text, bool keeps_lines)
{
    ZD_FREED char *safe = text_escape(look, text, strlen(text), keeps_lines);
    fputs(safe, look->out);
}

/* Bytes of the next character, its columns in *columns_out. */
static int next_character(const char *text, int *columns_out)
{
    utf8proc_int32_t code;
    utf8proc_ssize_t used =
            utf8proc_iterate((const utf8proc_uint8_t *)text, -1, &code);
    *columns_out = used > 0 ? utf8proc_charwidth(code) : 1;
    return used > 0 ? (int)used : 1;
}

int text_width(const char *text)
{
    int width = 0, columns;
    while (*text) {
        text += next_character(text, &columns);
        width += columns;
    }
    return width;
}

size_t text_break(const char *text, int columns)
{
    size_t bytes = 0, blank = 0;
    int used = 0, width;
    while (text[bytes]) {
        int next = next_character(text + bytes, &width);
        used += width;
        if (columns > 0 && used > columns && bytes)
            return blank && text[bytes] != ' ' ? blank : bytes;
        if (text[bytes] == ' ')
            blank = bytes;
        bytes += (size_t)next;
    }
    return bytes;
}

int text_fit(const struct look *look, const char *text, int columns)
{
    bool is_cut = text_width(text) > columns;
    int mark = !is_cut ? 0 : columns < 2 ? columns : look->has_utf8 ? 1 : 2;
    int used = 0, width;
    if (columns <= 0)
        return 0;
    while (*text) {
        int bytes = next_character(text, &width);
        if (used + width > columns - mark)
            break;
        fwrite(text, 1, (size_t)bytes, look->out);
        used += width;
        text += bytes;
    }
    if (is_cut) {
        fputs(look->has_utf8 ? "…" : mark == 1 ? "." : "..", look->out);
        used += mark;
    }
    return used;
}

/* --- numbers --- */

char *text_number(double value, char *out)
{
    double size = fabs(value);
    if (!isfinite(value))
        strcpy(out, "-");
    else if (value == 0)
        strcpy(out, "0");
    else if (size < 1e-3 || size >= 1e6)
        snprintf(out, TEXT_SHORT, "%.3e", value);
    else if (size < 0.1) /* a learning rate keeps its digits */
        snprintf(out, TEXT_SHORT, "%.4g", value);
    else if (size < 100)
        snprintf(out, TEXT_SHORT, "%.4f", value);
    else
        snprintf(out, TEXT_SHORT, "%.1f", value);
    return out;
}

/* 3 or 4 digits and a unit. */
static char *scaled(
        double value, double base, const char *const *units, size_t count,
        char *out)
{
    size_t unit = 0;
    if (!isfinite(value))
        return strcpy(out, "-");
    while (fabs(value) >= base * 0.9995 && unit + 1 < count) {
        value /= base;
        unit++;
    }
    bool is_whole = unit == 0 && value == floor(value);
    snprintf(
            out, TEXT_SHORT,
            is_whole || fabs(value) >= 100 ? "%.0f%s" : "%.1f%s", value,
            units[unit]);
    return out;
}

char *text_count(double value, char *out)
{
    static const char *const units[] = {"", "k", "M", "G", "T", "P", "E"};
    return scaled(value, 1000, units, sizeof units / sizeof units[0], out);
}

char *text_bytes(double value, char *out)
{
    static const char *const units[] = {" B",   " KiB", " MiB",
                                        " GiB", " TiB", " PiB"};
    return scaled(value, 1024, units, sizeof units / sizeof units[0], out);
}

char *text_duration(double value, char *out)
{
    if (!isfinite(value) || fabs(value) > 1e11)
        return strcpy(out, "-");
    value = value < 0 ? 0 : value;
    long whole = (long)(value + 0.5);
    if (value < 0.9995)
        snprintf(out, TEXT_SHORT, "%.0fms", value * 1e3);
    else if (value < 9.95)
        snprintf(out, TEXT_SHORT, "%.1fs", value);
    else if (whole < 60)
        snprintf(out, TEXT_SHORT, "%lds", whole);
    else if (whole < 3600)
        snprintf(out, TEXT_SHORT, "%ldm%02lds", whole / 60, whole % 60);
    else if (whole < 86400)
        snprintf(out, TEXT_SHORT, "%ldh%02ldm", whole / 3600, whole / 60 % 60);
    else
        snprintf(
                out, TEXT_SHORT, "%ldd%02ldh", whole / 86400,
                whole / 3600 % 24);
    return out;
}

char *text_time(const struct look *look, double time, char *out)
{
    bool is_date = time > 0 && time < 1e11; /* no NaN */
    time_t then = is_date ? (time_t)time : 0;
    struct tm local;
    if (!is_date || !localtime_r(&then, &local))
        return strcpy(out, "-");
    bool is_near = fabs(look->now - time) < 20 * 3600;
    strftime(out, TEXT_SHORT, is_near ? "%H:%M:%S" : "%b %d %H:%M", &local);
    return out;
}

void look_bar(const struct look *look, double share, int columns)
{
    static const char *const eighths[] = {"",  "▏", "▎", "▍",
                                          "▌", "▋", "▊", "▉"};
    share = isfinite(share) ? share : 0;
    share = share < 0 ? 0 : share > 1 ? 1 : share;
    int parts = (int)(share * columns * 8 + 0.5), used = parts / 8;
    for (int i = 0; i < parts / 8; i++)
        fputs(look->has_utf8 ? "█" : "#", look->out);
    if (look->has_utf8 && parts % 8) {
        fputs(eighths[parts % 8], look->out);
        used++;
    }
    fputs(look_style(look, LOOK_DIM), look->out);
    for (; used < columns; used++)
        fputs(look->has_utf8 ? "░" : "-", look->out);
    fputs(look_style(look, LOOK_PLAIN), look->out);
}
