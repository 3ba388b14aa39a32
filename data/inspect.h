/* inspect.h - what the model will see: samples decoded, the loss mask visible.
 *
 * Text that the loss counts is plain. Text that it does not count is dimmed on
 * a terminal, and [-between these-] otherwise. A line of its own marks where a
 * document begins within a sample. Control bytes are written as \xNN, so data
 * cannot send escape codes to a terminal.
 *
 * With ids a token is a line: its id, + when the loss counts it, its text. */
#pragma once

#include "data/dataset.h"

#include <stdio.h>

struct inspect_view {
    int64_t count; /* samples to show */
    bool color;    /* dim with escape codes; only for a terminal */
    bool ids;
};

/* The first samples of training (fewer if there are fewer), after lines of
 * totals, for which all of the data is read. `tokenizer` NULL: ids are printed,
 * as is <N> for one it lacks. */
enum zd_status dataset_inspect(
        FILE *out, struct dataset *dataset, const struct tokenizer *tokenizer,
        const struct inspect_view *view);
/* The same as an object: docs/data.md has its keys. */
enum zd_status dataset_inspect_json(
        struct dataset *dataset, const struct tokenizer *tokenizer,
        const struct inspect_view *view, json_t **json_out);
/* The same object as an HTML page. */
void inspect_html(FILE *out, const json_t *json);
