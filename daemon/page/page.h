/* page.h - the page of a job: one HTML file, in the program.
 *
 * GET / answers it as it is: it asks the job for everything else. With a run's
 * numbers inside (page_inline) it is report.html: drawn from them, no buttons,
 * no questions.
 *
 * Source: page.html; page_html.S takes it in when zerod is built. */
#pragma once

#include <stddef.h>

extern const char page_html[]; /* UTF-8; a NUL follows */
extern const size_t page_html_bytes;
