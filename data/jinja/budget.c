/* budget.c - see budget.h. */
#include "data/jinja/internal.h"

#include <stdarg.h>

struct jinja_budget jinja_budget_whole(void)
{
    return (struct jinja_budget){
            JINJA_DEPTH_MAX, JINJA_STEPS_MAX, JINJA_BYTES_MAX};
}

void jinja_stop(
        struct jinja *j, enum jinja_result result, const char *format, ...)
{
    va_list args;
    if (j->result != JINJA_DONE)
        return;
    j->result = result;
    va_start(args, format);
    vsnprintf(j->why, j->why_bytes, format, args);
    va_end(args);
}

bool jinja_charge(struct jinja *j, size_t steps, size_t bytes)
{
    struct jinja_budget *left = &j->left;
    if (j->result != JINJA_DONE)
        return false;
    if (steps > left->steps) {
        jinja_stop(j, JINJA_OVER, "takes more than %d steps", JINJA_STEPS_MAX);
        return false;
    }
    if (bytes > left->bytes) {
        jinja_stop(
                j, JINJA_OVER, "makes more than %d MiB of values and text",
                JINJA_BYTES_MAX >> 20);
        return false;
    }
    left->steps -= steps;
    left->bytes -= bytes;
    return true;
}

void jinja_too_deep(struct jinja *j)
{
    jinja_stop(
            j, JINJA_OVER, "nests more than %d levels deep", JINJA_DEPTH_MAX);
}

bool jinja_read(struct jinja *j, size_t bytes)
{
    return jinja_charge(j, 1 + bytes / 64, 0);
}

bool jinja_enter(struct jinja *j)
{
    if (!jinja_charge(j, 1, 0))
        return false;
    if (j->left.depth == 0) {
        jinja_too_deep(j);
        return false;
    }
    j->left.depth--;
    return true;
}

void jinja_leave(struct jinja *j)
{
    j->left.depth++;
}
