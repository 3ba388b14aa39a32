/* schema.h - the one table of job.toml: a line per key. Parsing, validation,
 * `zerod validate --print`, did-you-mean and the reference page all come from
 * it.
 *
 * A key of this table writes one field (some types: two) of struct train_job,
 * or of struct data_entry for [[data.train]] and [[data.eval]]. Its default is
 * what train_job_default() and data_entry_default() hold there, so that no
 * default is written twice. */
#pragma once

#include "train/job/options.h"

enum { SCHEMA_NAME_MAX = 64 };

enum schema_type {                /* TOML accepted: field written (offset2) */
                   SCHEMA_STRING, /* string: const char * */
                   SCHEMA_NAME,  /* letters, digits, '.', '_', '-', 1 to 48: the
                                    same */
                   SCHEMA_ENUM,  /* one of choices: an enum */
                   SCHEMA_BOOL,  /* boolean: bool */
                   SCHEMA_INT,   /* integer, also 5e8: int */
                   SCHEMA_INT64, /* the same: int64_t */
                   SCHEMA_UINT64,   /* the same, not negative: uint64_t */
                   SCHEMA_REAL,     /* number: double */
                   SCHEMA_STEPS,    /* whole, or fraction < 1: double */
                   SCHEMA_SIZE,     /* "64MiB", bytes: uint64_t */
                   SCHEMA_LIMIT,    /* a size or "90%": uint64_t (double) */
                   SCHEMA_DURATION, /* "1h30m": double seconds */
                   SCHEMA_STRINGS,  /* array of strings: const char *const *
                                       (int) */
                   SCHEMA_MODULES,  /* a string, or some: json_t *; NULL: as the
                                       default,  or with NULLABLE none */
                   SCHEMA_LAYERS,   /* an integer, or some: json_t *; NULL: none
                                     */
                   SCHEMA_WORD_OR_PATH,  /* one of choices, or what the nameless
                                            choice stands  for: an enum (const
                                            char *) */
                   SCHEMA_CHECKPOINTING, /* one of choices, every:N: struct
                                            checkpointing */
                   SCHEMA_OPTIMIZER,     /* one of choices: name, state_type and
                                            paged of struct optim_options */
                   SCHEMA_ENTRIES, /* array of tables: struct data_entry * (int)
                                    */
                   SCHEMA_TABLE,   /* free table: json_t * */
                   SCHEMA_VERSION, /* the integer 1: nothing */
                   SCHEMA_EXTENDS  /* path of the base file: nothing */
};

enum schema_flags {
    SCHEMA_AUTO = 2,      /* "auto" is accepted and stored as 0 */
    SCHEMA_ABOVE_MIN = 4, /* min itself is out of range */
    SCHEMA_BELOW_MAX = 8, /* max itself is out of range */
    SCHEMA_PER_RANK = 16, /* may differ between ranks */
    SCHEMA_NULLABLE = 32, /* a string whose "" means not given (NULL) */
    SCHEMA_SLASH = 64,    /* a path has a slash */
    SCHEMA_NOT_ZERO = 128,
    SCHEMA_GPU = 512,      /* on the CPU, whose sums have one order and whose
                              collectives are MPI's, it does nothing */
    SCHEMA_ADAPTER = 1024, /* an adapter's own configuration has it too */
    SCHEMA_ZERO = 256,     /* a number where 0 is a value; "auto" is -1 */
};

/* Values of the choices of SCHEMA_OPTIMIZER: an enum optim_name and these. */
enum { SCHEMA_STATES_8BIT = 1 << 8, SCHEMA_STATES_PAGED = 1 << 9 };

struct schema_choice {
    const char *name;
    int value;
    const char *note; /* NULL; "=" another name of the same value; else the help
                         for a word that is set by other keys */
};
static inline bool schema_is_elsewhere(const struct schema_choice *choice)
{
    return choice->note && choice->note[0] != '=';
}

struct schema_key {
    const char *section, *name; /* "" for keys above all sections */
    enum schema_type type;
    size_t offset, offset2;
    const char *help; /* one line */
    unsigned flags;
    double min, max;                     /* numbers; both 0: any */
    const struct schema_choice *choices; /* ends with a NULL name */
    const char *aliases;                 /* other names, separated by spaces */
    const char *fallback; /* for the reference: what a key that is not given
                             follows from, where it has no constant default */
    const char *note;     /* .. of the section, in its first row: a sentence
                             without its full stop; NULL: its keys say it */
};

/* All keys, section by section in the order of the reference page. */
extern const struct schema_key schema_table[];
extern const int schema_count;

/* NULL when there is none. `section` is "optim", "train.fp16", "data.train". */
const struct schema_key *schema_find(const char *section, const char *name);
/* By one of its aliases. */
const struct schema_key *schema_find_alias(
        const char *section, const char *name);
/* A key (or alias) of that name in any other section. */
const struct schema_key *schema_find_elsewhere(
        const char *section, const char *name);
/* The nearest name in this section, then in any; NULL when nothing is near.
 * `found`: the name or alias that is near. */
const struct schema_key *schema_suggest(
        const char *section, const char *name, char found[SCHEMA_NAME_MAX]);
/* The choice nearest to a word that a key does not accept, by whatever name it
 * has; NULL when none is near or the key has no choices. */
const struct schema_choice *schema_suggest_choice(
        const struct schema_key *key, const char *typed);
bool schema_is_section(const char *section);
const char *schema_suggest_section(const char *section); /* NULL: none near */

int schema_index(const struct schema_key *key);
/* value.c: what a key accepts, for people: "an integer from 1 to 64"; and
 * whether that is a number, not a size or a time. */
bool schema_is_number(const struct schema_key *key);
void schema_accepts(const struct schema_key *key, char *out, size_t out_bytes);
