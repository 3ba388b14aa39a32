#include "model/adapters/pattern.h"

#include "base/must.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static pcre2_code *compile(const char *pattern, char problem[160])
{
    int error;
    PCRE2_SIZE at;
    pcre2_code *code = pcre2_compile(
            (PCRE2_SPTR)pattern, PCRE2_ZERO_TERMINATED,
            PCRE2_ANCHORED | PCRE2_ENDANCHORED | PCRE2_UTF, &error, &at, NULL);
    if (!code && problem) {
        char text[128] = "";
        pcre2_get_error_message(error, (PCRE2_UCHAR *)text, sizeof text);
        snprintf(problem, 160, "%s at byte %zu", text, (size_t)at);
    }
    return code;
}

bool pattern_is_sound(const char *pattern, char problem[160])
{
    pcre2_code *code = compile(pattern, problem);
    pcre2_code_free(code);
    return code != NULL;
}

bool pattern_matches_all(const char *pattern, const char *name)
{
    pcre2_code *code = compile(pattern, NULL);
    if (!code)
        return false;
    pcre2_match_data *match =
            zd_must(pcre2_match_data_create_from_pattern(code, NULL));
    int found = pcre2_match(
            code, (PCRE2_SPTR)name, strlen(name), 0, 0, match, NULL);
    pcre2_match_data_free(match);
    pcre2_code_free(code);
    return found > 0;
}

bool pattern_matches_end(const char *pattern, const char *name)
{
    size_t bytes = strlen(pattern) + sizeof "(?:.*\\.)?(?:)";
    char *whole = zd_must(malloc(bytes));
    snprintf(whole, bytes, "(?:.*\\.)?(?:%s)", pattern);
    bool matches = pattern_matches_all(whole, name);
    free(whole);
    return matches;
}
