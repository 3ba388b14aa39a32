/* pattern.h - Python's regular expressions as PEFT uses them on names of
 * modules, by PCRE2. Patterns are compiled where they are matched: a model has
 * some hundred names, asked once. */
#pragma once

#include <stdbool.h>

/* Can it be compiled? If not, `problem` says why. */
bool pattern_is_sound(const char *pattern, char problem[160]);
/* re.fullmatch(pattern, name). The pattern is sound; one that gives up (too
 * many ways to match) does not match. */
bool pattern_matches_all(const char *pattern, const char *name);
/* re.match(rf"(.*\.)?({pattern})$", name): the last parts of a name. */
bool pattern_matches_end(const char *pattern, const char *name);
