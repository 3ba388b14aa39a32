/* key_text.h - what the reference pages say of a key of job.toml. Words to be
 * typed stand between backticks, as in Markdown. */
#ifndef ZD_DAEMON_REFERENCE_KEY_TEXT_H
#define ZD_DAEMON_REFERENCE_KEY_TEXT_H

#include "daemon/job/schema.h"

#include <stdio.h>

/* "an integer from 1 to 64"; "`none`, `cpu`, `nvme`". */
void key_put_accepts(FILE *stream, const struct schema_key *key);
/* The value of train_job_default() as the file would have it, or where it
 * follows from when that is no constant. */
void key_put_default(FILE *stream, const struct schema_key *key);
/* The line of help, then other names of the key; no full stop at its end. */
void key_put_help(FILE *stream, const struct schema_key *key);

/* [train.fp16], but [[data.train]]; of "" what it is. */
void key_put_section(FILE *stream, const char *section);
bool key_is_available(const struct schema_key *key);
/* Is it the first key of a section that has one which is available? */
bool key_begins_section(const struct schema_key *key);

#endif
