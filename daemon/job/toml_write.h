/* toml_write.h - JSON values as TOML text. */
#pragma once

#include <jansson.h>
#include <stdio.h>

/* A key, in quotes where it needs them. */
void toml_write_key(FILE *stream, const char *key);
/* No null. Reals in the fewest digits that come back exactly. */
void toml_write(FILE *stream, const json_t *value);
