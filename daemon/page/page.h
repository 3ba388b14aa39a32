/* page.h - the page of a job: one HTML file, in the program.
 *
 * GET / answers it as it is: it asks the job for everything else. With a run's
 * numbers inside (page_inline) it is report.html: drawn from them, no buttons,
 * no questions.
 *
 * Source: page.html; page_html.S takes it in when zerod is built. */
#pragma once

#include "base/file/json.h"

extern const char page_html[]; /* UTF-8; a NUL follows */
extern const size_t page_html_bytes;

/* The page with a run's numbers inside: report.html.
 *
 * The page has one empty element for them, <script id="zerod-data"
 * type="application/json">. What goes in is JSON that HTML cannot mistake for
 * its own: `<` is written \u003c, so that no text of a sample or a log ends the
 * element or opens a comment.
 *
 * Keys that the page draws (docs/control.md has their members):
 *   status    GET /v1/status              ranks    GET /v1/ranks
 *   memory    GET /v1/memory              history  GET /v1/metrics/history
 *   samples   GET /v1/samples             config   GET /v1/config
 *   log       [lines of rank 0's log]
 *   events    [objects of GET /v1/events, steps left out]
 * All but status may be missing. malloc'd, with a NUL after *bytes_out bytes.
 */
char *page_inline(const json_t *data, size_t *bytes_out);
