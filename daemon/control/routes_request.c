/* routes_request.c - parameters of a request. */
#include "daemon/control/routes_internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* --- parameters --- */

const char *param_text(const struct ask *ask, const char *name)
{
    for (int i = 0; i < ask->request->param_count; i++)
        if (strcmp(ask->request->param_names[i], name) == 0)
            return ask->request->param_values[i];
    return NULL;
}

bool param_integer(
        const struct ask *ask, const char *name, int64_t min, int64_t max,
        int64_t *value)
{
    const char *text = param_text(ask, name);
    char *end;
    if (!text)
        return true;
    errno = 0;
    long long number = strtoll(text, &end, 10);
    bool is_number = text[0] && !*end && strspn(text, "-0123456789") > 0 &&
                     text[0] != ' ' && errno == 0;
    if (is_number && number >= min && number <= max) {
        *value = number;
        return true;
    }
    char hint[100];
    int64_t example = min > 100 ? min : max < 100 ? max : 100;
    snprintf(hint, sizeof hint, "%s=%lld", name, (long long)example);
    return refuse(
            ask, 400, "E_BAD_REQUEST", hint,
            "parameter %s=%.40s: an integer from %lld to %lld is expected",
            name, text, (long long)min, (long long)max);
}

bool param_flag(const struct ask *ask, const char *name, bool *value)
{
    static const char *const words[] = {"0", "1", "false", "true"};
    const char *text = param_text(ask, name);
    if (!text)
        return true;
    for (int i = 0; i < 4; i++)
        if (strcmp(text, words[i]) == 0) {
            *value = i % 2;
            return true;
        }
    char hint[100];
    snprintf(hint, sizeof hint, "%s=1", name);
    return refuse(
            ask, 400, "E_BAD_REQUEST", hint,
            "parameter %s=%.40s: 0 or 1 is expected", name, text);
}

