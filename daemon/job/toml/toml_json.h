/* toml_json.h - values between TOML and JSON. */
#pragma once

#include "daemon/job/toml/problems.h"

/* New reference. What JSON has no value for, a date or inf, is a problem; then
 * NULL. */
json_t *toml_json(const struct toml_node *node, struct problems *problems);

/* A key, in quotes where it needs them. */
void toml_write_key(FILE *stream, const char *key);
/* As TOML; no null. Reals in the fewest digits that come back exactly. */
void toml_write(FILE *stream, const json_t *value);
